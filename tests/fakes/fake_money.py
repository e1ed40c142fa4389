"""What a fake session has spent: a given report."""

from ouro.memory.sessions.usage import ModelUse, UsagePeriod
from ouro.messages import Usage
from ouro.session.budget import MoneyReport


class FakeMoney:
    """Gives `given`."""

    def __init__(self) -> None:
        used = (ModelUse("fake/one", Usage(1_200, 1_000, 0, 34, 0.0123), 2),)
        self.given = MoneyReport(tuple(UsagePeriod(name, used) for name in ("session", "today", "month", "all")), ())

    async def report(self) -> MoneyReport:
        return self.given

    async def check(self) -> str:
        return ""
