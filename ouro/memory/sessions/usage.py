"""Spending of sessions by day and model: counting, the spending file, and sums by period."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from itertools import chain
from pathlib import Path

import msgspec

from ouro.errors import SaveFailed, SpendingUnreadable
from ouro.memory.backend import CostRecord, DailyUsage, SessionInfo, timestamp
from ouro.messages import Usage
from ouro.utils.decoding import decode_json
from ouro.utils.files import MARK, demand_known_layout, lock_file, mark_layout, write_private
from ouro.utils.ouro_paths import ensure_private_dir


class Spending:
    """Adds up model calls by day, model and purpose."""

    def __init__(self, earlier: Iterable[DailyUsage] = ()) -> None:
        self._spent = {(item.day, item.model, item.purpose): item for item in earlier}

    def spent(self) -> tuple[DailyUsage, ...]:
        """Returns the usage by day, model and purpose, sorted by these."""
        return tuple(self._spent[key] for key in sorted(self._spent))

    def add(self, at: str, model: str, usage: Usage, purpose: str = "") -> None:
        """Add a model call made at that UTC time; `purpose` as in `DailyUsage`."""
        day = day_of(at)
        key = (day, model, purpose)
        total, calls = usage, 1
        if before := self._spent.get(key):
            total, calls = before.usage + usage, before.calls + 1
        self._spent[key] = DailyUsage(day, model, usage=total, calls=calls, purpose=purpose)


def day_of(at: str) -> str:
    """Returns the local date at that UTC time, such as `2026-11-21`."""
    return _local_day(at[:15])  # without the seconds, so that the cache is used more often


@lru_cache(maxsize=4096)
def _local_day(minutes: str) -> str:
    """Returns the local date at a UTC time. For a damaged time: its first ten characters.

    Args:
        minutes: the time, cut after the first digit of its minutes, as `2026-11-21T20:3`.
    """
    try:
        return datetime.fromisoformat(f"{minutes}0:00+00:00").astimezone().date().isoformat()
    except (ValueError, OverflowError):
        return minutes[:10]


FILE_NAME = "spent.json"


class SpendingFile:
    """The spending outside of sessions, in one JSON file in the folder of the sessions: a row for
    each day and model. Several processes may add to it. Blocks on the disk.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._mark = folder / f".{FILE_NAME}{MARK}"
        """The file with the number of the layout: an older ouro does not write over a newer one."""

    def add(self, cost: CostRecord) -> None:
        """Add a model call to the file. Raises SaveFailed, SpendingUnreadable."""
        try:
            ensure_private_dir(self._path.parent)
            with lock_file(Path(f"{self._path}.lock")):
                spending = Spending(self.spent())
                spending.add(cost.at, cost.model, cost.usage, cost.purpose)
                rows = [msgspec.json.encode(item).decode() for item in spending.spent()]
                mark_layout(self._mark)
                write_private(self._path, "[\n" + ",\n".join(rows) + "\n]\n")
        except OSError as error:
            raise SaveFailed(f"Not saved in {self._path}: {error.strerror or error}.") from error

    def spent(self) -> tuple[DailyUsage, ...]:
        """Returns the usage by day, model and purpose; empty if there is no file.

        Raises:
            SpendingUnreadable: it cannot be read. It stays unchanged, because limits of spending
                must not count from zero.
        """
        demand_known_layout(self._mark, str(self._path), SpendingUnreadable)
        try:
            return decode_json(self._path.read_bytes(), tuple[DailyUsage, ...])
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SpendingUnreadable(
                f"{self._path} cannot be read: {getattr(error, 'strerror', None) or error}.",
                "A newer ouro may have written it: update ouro, or move the file away to count from"
                " zero.",
            ) from error


class ModelUse(msgspec.Struct, frozen=True):
    """The usage of one model."""

    model: str
    usage: Usage
    calls: int


class UsagePeriod(msgspec.Struct, frozen=True):
    """The usage of a session, a day, a month, or all time."""

    name: str
    """`session`, `today`, `month`, `all`."""
    models: tuple[ModelUse, ...]
    """The most expensive models first, then those without a known price."""

    @property
    def total(self) -> Usage:
        """The sum over all models; its cost is the known part."""
        return sum((model.usage for model in self.models), Usage())

    @property
    def is_priced(self) -> bool:
        """Whether the price of every model is known, so that the cost of `total` is complete."""
        return all(model.usage.cost is not None for model in self.models)


def today() -> str:
    """Returns the local date."""
    return day_of(timestamp())


def sum_periods(
    sessions: Iterable[SessionInfo],
    outside_of_sessions: Iterable[DailyUsage],
    day: str,
    session_id: str = "",
) -> tuple[UsagePeriod, ...]:
    """Returns the usage of four periods: of a session, of a day, of its month, and of all time. The
    first is left out without a `session_id`.

    Args:
        outside_of_sessions: what was spent outside of sessions. It counts for the last three
            periods.
        day: a local date.
    """
    all_sessions = list(sessions)
    spent = [*chain.from_iterable(session.spent for session in all_sessions), *outside_of_sessions]
    spent_by_session = [session.spent for session in all_sessions if session.id == session_id]
    spent_here = list(chain.from_iterable(spent_by_session))
    periods = (
        UsagePeriod("today", _sum_by_model(item for item in spent if item.day == day)),
        UsagePeriod("month", _sum_by_model(item for item in spent if item.day[:7] == day[:7])),
        UsagePeriod("all", _sum_by_model(spent)),
    )
    return (UsagePeriod("session", _sum_by_model(spent_here)), *periods) if session_id else periods


def sum_by(rows: Iterable[tuple[str, DailyUsage]]) -> tuple[ModelUse, ...]:
    """Returns the sums of usages that have the same name, the most expensive first. The field
    `model` of a sum has the name, whatever it stands for.

    Args:
        rows: pairs of a name and a usage.
    """
    return _sum_by_model(msgspec.structs.replace(item, model=name) for name, item in rows)


def _sum_by_model(spent: Iterable[DailyUsage]) -> tuple[ModelUse, ...]:
    """Returns the sum of each model: the most expensive first; of equal cost, that with the most
    input tokens.
    """
    uses: dict[str, ModelUse] = {}
    for row in spent:
        use = uses.get(row.model, ModelUse(row.model, Usage(), calls=0))
        uses[row.model] = ModelUse(row.model, use.usage + row.usage, use.calls + row.calls)
    return tuple(
        sorted(
            uses.values(),
            key=lambda row: (-(row.usage.cost or 0.0), -row.usage.input, row.model),
        )
    )
