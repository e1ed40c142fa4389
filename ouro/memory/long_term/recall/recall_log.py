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
"""A note that is always used weighs at most that much more, one that never is at most that much less."""


class RecallCounts(msgspec.Struct, frozen=True):
    counts: Mapping[str, int] = {}
    """By note id: with how many messages it went."""
    last: Mapping[str, str] = {}
    """By note id: the time of the last one."""
    judged: Mapping[str, float] = {}
    """By note id: the turns after which it was looked whether the note was used; an anchored file counts half."""
    used: Mapping[str, float] = {}
    """Those of them that used it, or found the anchored file unchanged."""


class RecallLog(msgspec.Struct, eq=False, dict=True):
    """Every method blocks."""

    path: Path

    def usefulness(self, note_id: str) -> float:
        """The weight of a note in ranking, around 1, as known when this session first asked."""
        share = (self._latest.used.get(note_id, 0) + 1) / (self._latest.judged.get(note_id, 0) + 2)
        return 1 + _SPAN * (2 * share - 1)

    def add(self, note_ids: Iterable[str]) -> None:
        """Count that these notes went with a message."""
        sent, now = list(note_ids), timestamp()

        def counted(known: RecallCounts) -> RecallCounts:
            return replace(
                known, counts=Counter(known.counts) + Counter(sent), last={**known.last, **dict.fromkeys(sent, now)}
            )

        self._change(counted)

    def judge(self, weights: Mapping[str, float], used: Collection[str]) -> None:
        """Count that of these notes some were of use."""
        of_use = Counter({note_id: weight for note_id, weight in weights.items() if note_id in used})

        def counted(known: RecallCounts) -> RecallCounts:
            return replace(known, judged=Counter(known.judged) + Counter(weights), used=Counter(known.used) + of_use)

        self._change(counted)

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
        """What is known by now."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=RecallCounts)
        except FileNotFoundError:
            return RecallCounts()
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s cannot be read, recalls are counted from zero: %s", self.path, error)
            return RecallCounts()
