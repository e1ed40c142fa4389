"""Money: what was spent, in this session and in all others, and whether another model call may be paid."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import msgspec

from ouro.agent.limits import Limits
from ouro.errors import LimitReached
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.shelf import SessionShelf
from ouro.memory.sessions.usage import Period, periods_of, today

WARN_AT = 0.8
_WORDS = {"session": "this session", "today": "today", "month": "this month"}
_LATER = {"today": "It goes on tomorrow. ", "month": "It goes on next month. "}


class Budget(msgspec.Struct, frozen=True):
    """A limit in US dollars, and what of it is spent."""

    period: str
    """`session`, `today` or `month`."""
    setting: str
    limit: float
    spent: float

    @property
    def left(self) -> float:
        """US dollars; never less than nothing."""
        return max(0.0, self.limit - self.spent)


class MoneyReport(msgspec.Struct, frozen=True):
    """What was used, and the limits that are set."""

    periods: tuple[Period, ...]
    budgets: tuple[Budget, ...]


class Money:
    """What was spent, and whether more may be.

    Args:
        memory: the messages of this session.
        shelf: all sessions there are.
        limits: what may be spent.
    """

    def __init__(self, memory: MemoryManager, shelf: SessionShelf, limits: Limits) -> None:
        self._memory = memory
        self._shelf = shelf
        self._limits = limits
        self._told: set[str] = set()
        self._over: Budget | None = None

    async def report(self) -> MoneyReport:
        """What was used by model in this session, today, this month and in all; and what is left."""
        found = await asyncio.to_thread(self._periods)
        return MoneyReport(found, self._budgets(found))

    async def check(self) -> str:
        """Before a model call: a warning, once for each limit, where most of it is spent; else nothing.

        What other processes have spent counts from the moment it is in their sessions' files.

        Raises:
            LimitReached: a limit is reached; the message says which, and what to do.
        """
        limits = self._limits
        reads = limits.max_cost_day is not None or limits.max_cost_month is not None
        found = await asyncio.to_thread(self._periods) if reads else ()  # a list is not read for nothing
        budgets = self._budgets(found)
        self._over = next((each for each in budgets if not each.left), None)
        self.refuse()
        return " ".join(self._news(budgets, found))

    def refuse(self) -> None:
        """Refuse a call beside the conversation, too, once a limit was found to be reached.

        Raises:
            LimitReached: it was.
        """
        if self._over is not None:
            budget = self._over
            raise LimitReached(
                f"Stopped: {_WORDS[budget.period]} has cost ${budget.spent:.2f} of ${budget.limit:.2f}.",
                f"{_LATER.get(budget.period, '')}Raise {budget.setting} to go on now; `/usage` shows what was spent.",
            )

    def _news(self, budgets: Sequence[Budget], periods: Sequence[Period]) -> Iterator[str]:
        """What was not told yet: which limits are near, and what counts for none."""
        for each in budgets:
            if each.spent >= WARN_AT * each.limit and self._is_new(each.setting):
                yield (
                    f"{_WORDS[each.period].capitalize()} has cost ${each.spent:.2f} of ${each.limit:.2f} "
                    f"({each.setting}): ${each.left:.2f} are left."
                )
        models = next((each.models for each in periods if each.name == "today"), ())
        names = [use.model for use in models if use.usage.cost is None]
        if names and self._is_new("prices"):
            yield f"The price of {', '.join(names)} is not known: it counts for no limit (`prices` in models.yaml)."

    def _is_new(self, what: str) -> bool:
        is_new = what not in self._told
        self._told.add(what)
        return is_new

    def _periods(self) -> tuple[Period, ...]:
        # Those in the trash, too: what they cost was paid.
        sessions = [*self._shelf.sessions(), *self._shelf.deleted()]
        return periods_of(sessions, today(), self._memory.session_id)

    def _budgets(self, periods: Sequence[Period]) -> tuple[Budget, ...]:
        limits, spent = self._limits, self._memory.usage.cost or 0.0
        own = () if limits.max_cost is None else (Budget("session", "limits.max_cost", limits.max_cost, spent),)
        return (*own, *budgets_of(periods, limits.max_cost_day, limits.max_cost_month))


def budgets_of(periods: Sequence[Period], day: float | None, month: float | None) -> tuple[Budget, ...]:
    """The limits of a day and of a month that are set, with what was spent."""
    spent = {each.name: each.total.cost or 0.0 for each in periods}
    found = (("today", "limits.max_cost_day", day), ("month", "limits.max_cost_month", month))
    return tuple(Budget(period, name, limit, spent[period]) for period, name, limit in found if limit is not None)
