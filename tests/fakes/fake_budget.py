"""What a fake session has spent: a given report."""

from ouro.memory.sessions.usage import ModelUse, UsagePeriod
from ouro.messages import Usage
from ouro.session.budget import SpendingReport


class FakeBudget:
    """Gives `given`."""

    def __init__(self) -> None:
        used = (ModelUse("fake/one", Usage(1_200, 1_000, 0, 34, 0.0123), 2),)
        self.given = SpendingReport(tuple(UsagePeriod(name, used) for name in ("session", "today", "month", "all")), ())

    async def report(self) -> SpendingReport:
        return self.given

    async def check(self) -> str:
        return ""
