"""Budget: what was spent, in this session and in all others, and whether another model call is
allowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ouro.errors import LimitReached, SaveFailed, SpendingUnreadable
from ouro.llm import ModelSpec
from ouro.memory.backend import CostRecord, timestamp
from ouro.memory.sessions.usage import UsagePeriod, sum_periods, today
from ouro.messages import Usage
from ouro.settings import LimitSettings
from ouro.utils.log import log
from ouro.utils.sections import replace_fields
from ouro.utils.text import dollars, plural

if TYPE_CHECKING:
    from ouro.memory.manager import MemoryManager
    from ouro.memory.sessions.session_catalog import SessionCatalog

WARN_AT = 0.8
"""The share of a limit from which the user is warned."""
MAX_UNWATCHED_TURNS = 500
"""Model calls in a turn that no user watches, unless `limits.max_turns` is set."""
_PERIOD_TITLES = {"session": "this session", "today": "today", "month": "this month"}
_RESET_NOTES = {"today": "It is reset tomorrow. ", "month": "It is reset next month. "}


class SpendingLimit(msgspec.Struct, frozen=True):
    """A limit of cost that is set, and what was spent of it."""

    period: str
    """`session`, `today` or `month`."""
    setting: str
    limit: float
    spent: float

    @property
    def left(self) -> float:
        """US dollars, at least 0."""
        return max(0.0, self.limit - self.spent)


class SpendingReport(msgspec.Struct, frozen=True):
    """What was spent, and the limits."""

    periods: tuple[UsagePeriod, ...]
    limits: tuple[SpendingLimit, ...]
    side_calls: tuple[tuple[str, int, Usage], ...] = ()
    """Purpose, number and usage of this session's model calls outside of turns (titles, capture …).
    """


class Budget(msgspec.Struct, eq=False):
    """Checks the limits before each model call of a session."""

    memory: MemoryManager
    session_catalog: SessionCatalog
    limits: LimitSettings
    model: Callable[[], ModelSpec]
    """Returns the present model of the session."""
    _warned: set[str] = msgspec.field(default_factory=set)
    """The settings of the limits that the user was warned about, and `prices`."""
    _limits_at_check: tuple[SpendingLimit, ...] = ()
    """The limits, as `check` found them last."""
    _spent_at_check: float = 0.0
    """What this session had cost at that time, in US dollars."""

    async def report(self) -> SpendingReport:
        """The usage by model in this session, today, this month and in total; and the limits."""
        periods = await _load_periods(self.session_catalog, self.memory.session_id)
        by_purpose = sorted(self.memory.transcript.side_calls.items())
        side_calls = tuple((purpose, calls, usage) for purpose, (calls, usage) in by_purpose)
        return SpendingReport(periods, self._limits_with_spending(periods), side_calls)

    async def check(self, calls_made: int) -> str:
        """Check the limits before a model call; the turn has made `calls_made` calls so far. What
        other processes spend counts as soon as it is in their session files.

        Returns a warning if most of a limit is spent or a price is unknown, each once in a session;
        otherwise an empty text. Raises LimitReached if a limit is reached.
        """
        check_calls(self.limits, calls_made)
        periods: tuple[UsagePeriod, ...] = ()
        if _has_period_limit(self.limits):  # without limits the list is not needed
            periods = await _load_periods(self.session_catalog, self.memory.session_id)
        self._limits_at_check = self._limits_with_spending(periods)
        self._spent_at_check = self.memory.usage.cost or 0.0
        self.check_background_call()
        return " ".join(self._new_warnings(periods))

    def check_background_call(self) -> None:
        """Raises LimitReached before a background call, by the limits that `check` found last and
        by what this session has spent since. It reads no files.
        """
        spent_since = (self.memory.usage.cost or 0.0) - self._spent_at_check
        _raise_if_spent(
            replace(limit, spent=limit.spent + spent_since) for limit in self._limits_at_check
        )

    def _new_warnings(self, periods: Sequence[UsagePeriod]) -> Iterator[str]:
        """Yields warnings, each once in a session: about limits that are near, and about models
        whose cost is unknown.
        """
        for limit in self._limits_at_check:
            if limit.spent >= WARN_AT * limit.limit and limit.setting not in self._warned:
                self._warned.add(limit.setting)
                yield (
                    f"{_PERIOD_TITLES[limit.period].capitalize()} has cost {dollars(limit.spent)} of "
                    f"{dollars(limit.limit)} ({limit.setting}): {dollars(limit.left)} are left."
                )
        names = self._unpriced_models(periods)
        if names and "prices" not in self._warned:
            self._warned.add("prices")
            yield (
                f"The price of {', '.join(names)} is not known: its calls count for no limit,"
                " unless the provider reports what they cost. Write `prices` into models.yaml."
            )

    def _unpriced_models(self, periods: Sequence[UsagePeriod]) -> list[str]:
        """The models whose calls count for no limit, because their cost is not known: those used
        today, and the present model of this session. Empty if no limit of cost is set.
        """
        models_of_period = {period.name: period.models for period in periods}
        used_today = models_of_period.get("today", ())
        names = [use.model for use in used_today if use.usage.cost is None]
        model = self.model()
        # `check` loads the periods only if there is a limit for one of them.
        has_limit = bool(periods) or self.limits.max_cost is not None
        # A provider that reports its costs is known by the cost of the session.
        if has_limit and model.prices is None and self.memory.usage.cost is None:
            names.append(model.name)
        return list(dict.fromkeys(names))

    def _limits_with_spending(self, periods: Sequence[UsagePeriod]) -> tuple[SpendingLimit, ...]:
        """All limits of cost that are set, with what was spent of them: that of the session first.

        Args:
            periods: the usage of each period; may be empty if no limit is for a period.
        """
        period_limits = spending_limits(periods, self.limits)
        maximum = self.limits.max_cost
        if maximum is None:
            return period_limits
        spent = self.memory.usage.cost or 0.0
        return (
            SpendingLimit("session", setting="limits.max_cost", limit=maximum, spent=spent),
            *period_limits,
        )


class VectorBudget(msgspec.Struct, frozen=True):
    """Checks and records the cost of vectors (embeddings), which does not belong to a session. Blocks
    on the disk.
    """

    session_catalog: SessionCatalog
    limits: LimitSettings

    def check(self) -> None:
        """Raises LimitReached if the limit of a day or a month is reached."""
        if _has_period_limit(self.limits):
            periods = asyncio.run(_load_periods(self.session_catalog))
            _raise_if_spent(spending_limits(periods, self.limits))

    def record_cost(self, model: str, usage: Usage) -> None:
        """Record the cost of a model call that has made vectors. A failure is only logged. Must be
        called in a thread without an event loop.
        """
        record = CostRecord("vectors", at=timestamp(), model=model, usage=usage)
        try:
            asyncio.run(self.session_catalog.store.save_cost(record))
        except (SaveFailed, SpendingUnreadable) as error:
            log.warning("a call of %s is not in `ouro usage`: %s", model, error)


def limit_turns(limits: LimitSettings) -> LimitSettings:
    """The limits for turns that no user watches: if `limits.max_turns` is not set, a turn may make
    MAX_UNWATCHED_TURNS model calls.
    """
    return replace_fields(limits, max_turns=limits.max_turns or MAX_UNWATCHED_TURNS)


def check_calls(limits: LimitSettings, calls_made: int) -> None:
    """Raises LimitReached if a turn that has made `calls_made` model calls may not make another
    one.
    """
    if limits.max_turns is not None and calls_made >= limits.max_turns:
        raise LimitReached(
            f"Stopped after {plural(calls_made, 'model call')}.",
            "Send `go on`, or raise limits.max_turns.",
        )


def _has_period_limit(limits: LimitSettings) -> bool:
    """Whether there is a limit for a day or a month, for which other sessions count."""
    return limits.max_cost_day is not None or limits.max_cost_month is not None


async def _load_periods(
    session_catalog: SessionCatalog, session_id: str = ""
) -> tuple[UsagePeriod, ...]:
    """The usage of each period: today, this month, in total, and this session if its id is given.

    Raises:
        LimitReached: the spending cannot be read; then every limit counts as reached.
    """
    # Deleted sessions count too: their cost was paid.
    sessions = [*await session_catalog.sessions(), *await session_catalog.store.list_deleted()]
    try:
        costs = await session_catalog.store.load_costs()
    except SpendingUnreadable as error:
        raise LimitReached(
            f"The limits of cost cannot be checked: {error.message}", error.hint
        ) from error
    return sum_periods(sessions, outside_of_sessions=costs, day=today(), session_id=session_id)


def spending_limits(
    periods: Sequence[UsagePeriod], limits: LimitSettings
) -> tuple[SpendingLimit, ...]:
    """The limits of a day and of a month that are set, with what was spent of them.

    Args:
        periods: the usage of each period; may be empty if neither limit is set.
    """
    spent = {period.name: period.total.cost or 0.0 for period in periods}
    spending: list[SpendingLimit] = []
    if limits.max_cost_day is not None:
        spending.append(
            SpendingLimit(
                "today",
                setting="limits.max_cost_day",
                limit=limits.max_cost_day,
                spent=spent["today"],
            )
        )
    if limits.max_cost_month is not None:
        spending.append(
            SpendingLimit(
                "month",
                setting="limits.max_cost_month",
                limit=limits.max_cost_month,
                spent=spent["month"],
            )
        )
    return tuple(spending)


def _raise_if_spent(limits: Iterable[SpendingLimit]) -> None:
    """Raise LimitReached for the first limit of which nothing is left."""
    for limit in limits:
        if not limit.left:
            reset_note = _RESET_NOTES.get(limit.period, "")
            raise LimitReached(
                f"Stopped: {_PERIOD_TITLES[limit.period]} has cost {dollars(limit.spent)} of"
                f" {dollars(limit.limit)}.",
                f"{reset_note}Raise {limit.setting} to continue now; `/usage` shows what was spent.",
            )
