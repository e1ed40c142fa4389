"""Money: what was spent, in this session and in all others, and whether another model call may be paid."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from ouro.agent.limits import Limits
from ouro.errors import LimitReached, SaveFailed
from ouro.memory.backend import CostRecord, timestamp
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.sessions.usage import UsagePeriod, periods_of, today
from ouro.messages import Usage
from ouro.utils.log import log

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

    periods: tuple[UsagePeriod, ...]
    budgets: tuple[Budget, ...]


class Money:
    """What was spent, and whether more may be.

    Args:
        memory: the messages of this session.
        session_catalog: all sessions there are.
        limits: what may be spent.
    """

    def __init__(self, memory: MemoryManager, session_catalog: SessionCatalog, limits: Limits) -> None:
        self._memory = memory
        self._session_catalog = session_catalog
        self._limits = limits
        self._told: set[str] = set()
        self._known: tuple[Budget, ...] = ()
        self._spent_then = 0.0

    async def report(self) -> MoneyReport:
        """What was used by model in this session, today, this month and in all; and what is left."""
        found = await asyncio.to_thread(_periods, self._session_catalog, self._memory.session_id)
        return MoneyReport(found, self._budgets(found))

    async def check(self) -> str:
        """Before a model call: a warning, once for each limit, where most of it is spent; else nothing.

        What other processes have spent counts from the moment it is in their sessions' files.

        Raises:
            LimitReached: a limit is reached; the message says which, and what to do.
        """
        limits = self._limits
        reads = limits.max_cost_day is not None or limits.max_cost_month is not None
        found: tuple[UsagePeriod, ...] = ()
        if reads:  # a list is not read for nothing
            found = await asyncio.to_thread(_periods, self._session_catalog, self._memory.session_id)
        self._known, self._spent_then = self._budgets(found), self._memory.usage.cost or 0.0
        self.refuse()
        return " ".join(self._news(self._known, found))

    def refuse(self) -> None:
        """Refuse a call beside the conversation, too, by what `check` found and what this session has spent since.

        Raises:
            LimitReached: a limit is reached.
        """
        since = (self._memory.usage.cost or 0.0) - self._spent_then
        refuse_over(replace(each, spent=each.spent + since) for each in self._known)

    def _news(self, budgets: Sequence[Budget], periods: Sequence[UsagePeriod]) -> Iterator[str]:
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

    def _budgets(self, periods: Sequence[UsagePeriod]) -> tuple[Budget, ...]:
        limits, spent = self._limits, self._memory.usage.cost or 0.0
        own = () if limits.max_cost is None else (Budget("session", "limits.max_cost", limits.max_cost, spent),)
        return (*own, *budgets_of(periods, limits.max_cost_day, limits.max_cost_month))


class Purse:
    """Pays for what belongs to no session: vectors. Blocks on the disk.

    Args:
        session_catalog: all sessions there are, and what was spent beside them.
        limits: what may be spent of a day and a month.
    """

    def __init__(self, session_catalog: SessionCatalog, limits: Limits) -> None:
        self._session_catalog = session_catalog
        self._limits = limits

    def afford(self) -> None:
        """Look whether another call may be paid.

        Raises:
            LimitReached: it may not.
        """
        limits = self._limits
        if limits.max_cost_day is not None or limits.max_cost_month is not None:
            refuse_over(budgets_of(_periods(self._session_catalog), limits.max_cost_day, limits.max_cost_month))

    def pay(self, model: str, usage: Usage) -> None:
        """Count a call; where that cannot be written the log has it."""
        try:
            self._session_catalog.save_cost(CostRecord("vectors", timestamp(), model, usage))
        except SaveFailed as error:
            log.warning("a call of %s is not in `ouro usage`: %s", model, error)


def _periods(session_catalog: SessionCatalog, session_id: str = "") -> tuple[UsagePeriod, ...]:
    # Those in the trash, too: what they cost was paid.
    return periods_of(
        [*session_catalog.sessions(), *session_catalog.deleted()], session_catalog.spent_beside(), today(), session_id
    )


def budgets_of(periods: Sequence[UsagePeriod], day: float | None, month: float | None) -> tuple[Budget, ...]:
    """The limits of a day and of a month that are set, with what was spent."""
    spent = {each.name: each.total.cost or 0.0 for each in periods}
    found = (("today", "limits.max_cost_day", day), ("month", "limits.max_cost_month", month))
    return tuple(Budget(period, name, limit, spent[period]) for period, name, limit in found if limit is not None)


def refuse_over(budgets: Iterable[Budget]) -> None:
    """Refuse a model call where nothing is left of one of these.

    Raises:
        LimitReached: so it is; the message says which, and what to do.
    """
    for each in budgets:
        if not each.left:
            raise LimitReached(
                f"Stopped: {_WORDS[each.period]} has cost ${each.spent:.2f} of ${each.limit:.2f}.",
                f"{_LATER.get(each.period, '')}Raise {each.setting} to go on now; `/usage` shows what was spent.",
            )
