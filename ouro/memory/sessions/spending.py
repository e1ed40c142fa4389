"""Spending: what a session used, by day and model."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache

from ouro.memory.backend import Spent
from ouro.memory.sessions.records import CompactionRecord, CostRecord, ForkRecord, MessageRecord, Record
from ouro.messages import Usage


class Spending:
    """Adds up model calls. What stands before a `fork` was paid by the session that was copied."""

    def __init__(self, before: Iterable[Spent] = ()) -> None:
        self._spent = {(each.day, each.model): each for each in before}

    @property
    def cost(self) -> float | None:
        """US dollars; None where no price was known."""
        costs = [each.usage.cost for each in self._spent.values() if each.usage.cost is not None]
        return sum(costs) if costs else None

    def spent(self) -> tuple[Spent, ...]:
        """By day and model, in the order of the days."""
        return tuple(self._spent[key] for key in sorted(self._spent))

    def take(self, record: Record, model: str) -> None:
        """One more record; `model` is that of the session, for calls that name none."""
        match record:
            case MessageRecord(_, at, message) if message.usage is not None:
                self.add(at, message.model or model, message.usage)
            case CompactionRecord(at=at, usage=usage) if usage is not None:
                self.add(at, record.model or model, usage)
            case CostRecord(at=at, model=asked, usage=usage):
                self.add(at, asked or model, usage)
            case ForkRecord():
                self.forget()
            case _:
                pass

    def add(self, at: str, model: str, usage: Usage) -> None:
        """One model call more, made at that time."""
        key = (day_of(at), model)
        before = self._spent.get(key)
        total = before.usage + usage if before else usage
        self._spent[key] = Spent(*key, total, (before.calls if before else 0) + 1)

    def forget(self) -> None:
        """What was taken so far does not count."""
        self._spent.clear()


def day_of(at: str) -> str:
    """The day on the person's wall at that time (UTC)."""
    return _local_day(at[:15])


@lru_cache(maxsize=4096)
def _local_day(minutes: str) -> str:
    try:
        return datetime.fromisoformat(f"{minutes}0:00+00:00").astimezone().date().isoformat()
    except (ValueError, OverflowError):
        return minutes[:10]
