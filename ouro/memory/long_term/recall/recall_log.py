"""RecallLog: how often and when each note was sent to a model and was used, for ranking and statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ouro.memory.long_term.notes.notebook import timestamp
from ouro.utils.files import lock_file, write_private
from ouro.utils.log import log

_LOCK_TIMEOUT = 1.0
_SPAN = 0.1
"""How much more a note weighs that is always used, and how much less one that never is."""


class RecallCounts(msgspec.Struct, frozen=True):
    counts: Mapping[str, int] = {}
    """Note id -> the number of messages with which it was sent."""
    last: Mapping[str, str] = {}
    """Note id -> the time of the last one."""
    judged: Mapping[str, float] = {}
    """Note id -> the number of turns that were checked for use of the note; a check of an anchored file counts half."""
    used: Mapping[str, float] = {}
    """Note id -> the number of these that used the note, or found the anchored file unchanged."""


class RecallLog(msgspec.Struct, eq=False, dict=True):
    """Every method blocks."""

    path: Path

    def usefulness(self, note_id: str) -> float:
        """The weight of a note in ranking, around 1, by the counts when this session first asked."""
        share = (self._latest.used.get(note_id, 0) + 1) / (self._latest.judged.get(note_id, 0) + 2)
        return 1 + _SPAN * (2 * share - 1)

    def add(self, note_ids: Iterable[str]) -> None:
        """Count that these notes were sent with a message."""
        sent, now = list(note_ids), timestamp()

        def count(known: RecallCounts) -> RecallCounts:
            return replace(
                known, counts=Counter(known.counts) + Counter(sent), last={**known.last, **dict.fromkeys(sent, now)}
            )

        self._change(count)

    def judge(self, weights: Mapping[str, float], used: Collection[str]) -> None:
        """Count that these notes were checked for use, and which were used."""
        of_use = Counter({note_id: weight for note_id, weight in weights.items() if note_id in used})

        def count(known: RecallCounts) -> RecallCounts:
            return replace(known, judged=Counter(known.judged) + Counter(weights), used=Counter(known.used) + of_use)

        self._change(count)

    def _change(self, change: Callable[[RecallCounts], RecallCounts]) -> None:
        try:
            with lock_file(self.path.with_suffix(".lock"), _LOCK_TIMEOUT):
                self._latest = change(self.counts())
                write_private(self.path, msgspec.json.encode(self._latest))
        except OSError as error:
            log.warning("recall is not counted: %s", error)

    @cached_property
    def _latest(self) -> RecallCounts:
        return self.counts()

    def counts(self) -> RecallCounts:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=RecallCounts)
        except FileNotFoundError:
            return RecallCounts()
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s cannot be read, recalls are counted from zero: %s", self.path, error)
            return RecallCounts()
