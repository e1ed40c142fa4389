"""RecallLog: how often each note and core line was sent to a model, and was used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import msgspec

from ouro.utils.files import lock_file, write_private
from ouro.utils.lenient_json import read_state
from ouro.utils.log import log

_LOCK_TIMEOUT = 1.0
_WEIGHT_SPAN = 0.1
"""The weight of a note is raised by this if it is always used, and lowered by this if it is never
used.
"""
_MAX_WEEKS = 12
"""The weeks of which uses are kept apart."""


class WeekUse(msgspec.Struct, frozen=True):
    """The uses of an entry in one week, or in all time. What is counted is said at `RecallCounts`."""

    sent: float = 0.0
    """The turns that were checked for use of the entry (`RecallCounts.judged`)."""
    used: float = 0.0
    obeyed: float = 0.0
    broken: float = 0.0


class RecallCounts(msgspec.Struct, frozen=True):
    """How often notes were sent and used, in total and by week."""

    counts: Mapping[str, int] = {}
    """Note id -> the number of messages with which it was sent."""
    last: Mapping[str, str] = {}
    """Note id -> the time of the last one."""
    judged: Mapping[str, float] = {}
    """Note id -> the number of turns that were checked for use of the note; a check of an anchored
    file counts half.
    """
    used: Mapping[str, float] = {}
    """Note id -> the number of these that used the note, or found the anchored file unchanged."""
    obeyed: Mapping[str, float] = {}
    """Note id -> the number of turns that kept to the rule in it, judged by their effects."""
    broken: Mapping[str, float] = {}
    """Note id -> the number of turns that broke the rule in it, judged the same way."""
    weeks: Mapping[str, Mapping[str, WeekUse]] = {}
    """The last weeks (`2026-W48`), each with the uses of its notes."""

    def use_of(self, note_id: str) -> WeekUse:
        """The uses of a note in these counts; all 0 if it is not in them."""
        counts = (self.judged, self.used, self.obeyed, self.broken)
        return WeekUse(*(count.get(note_id, 0.0) for count in counts))


class RecallLog(msgspec.Struct, eq=False, dict=True):
    """How often and when each note was sent to a model and was used. Every method blocks."""

    path: Path

    def usefulness(self, note_id: str) -> float:
        """The weight of a note in ranking: 1 if nothing is known, more if most turns used it, less
        if few did. By the counts that this process last read or wrote.
        """
        used, judged = self._latest.used.get(note_id, 0), self._latest.judged.get(note_id, 0)
        # Laplace's rule of succession: one turn more of each kind, so that few turns say little.
        share = (used + 1) / (judged + 2)
        return 1 + _WEIGHT_SPAN * (2 * share - 1)

    def add(self, new: RecallCounts) -> None:
        """Add counts to those in the file, and the uses to this week; a failure is logged."""
        try:
            with lock_file(self.path.with_suffix(".lock"), _LOCK_TIMEOUT):
                earlier = self.counts()
                self._latest = RecallCounts(
                    counts=Counter(earlier.counts) + Counter(new.counts),
                    last={**earlier.last, **new.last},
                    judged=Counter(earlier.judged) + Counter(new.judged),
                    used=Counter(earlier.used) + Counter(new.used),
                    obeyed=Counter(earlier.obeyed) + Counter(new.obeyed),
                    broken=Counter(earlier.broken) + Counter(new.broken),
                    weeks=_add_week(earlier.weeks, new),
                )
                write_private(self.path, msgspec.json.encode(self._latest))
        except OSError as error:
            log.warning("recall is not counted: %s", error)

    @cached_property
    def _latest(self) -> RecallCounts:
        return self.counts()

    def counts(self) -> RecallCounts:
        """All counts; empty if the file cannot be read."""
        return read_state(self.path, RecallCounts)


def this_week() -> str:
    """The current week, as `2026-W48`."""
    return datetime.now(UTC).strftime("%G-W%V")


def _add_week(
    weeks: Mapping[str, Mapping[str, WeekUse]], new: RecallCounts
) -> dict[str, Mapping[str, WeekUse]]:
    """The newest `_MAX_WEEKS` weeks, with the uses of the judged notes in `new` added to the
    current one.
    """
    week = this_week()
    uses = dict(weeks.get(week, {}))
    for note_id in new.judged:
        earlier_use, new_use = uses.get(note_id, WeekUse()), new.use_of(note_id)
        uses[note_id] = WeekUse(
            earlier_use.sent + new_use.sent,
            used=earlier_use.used + new_use.used,
            obeyed=earlier_use.obeyed + new_use.obeyed,
            broken=earlier_use.broken + new_use.broken,
        )
    all_weeks = {**weeks, week: uses} if uses else dict(weeks)
    return {name: all_weeks[name] for name in sorted(all_weeks)[-_MAX_WEEKS:]}
