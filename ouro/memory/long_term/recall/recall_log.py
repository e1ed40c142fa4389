"""RecallLog: how often and when each note was sent to a model, for ranking and statistics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from ouro.memory.long_term.notes.notebook import timestamp
from ouro.utils.files import lock_file, write_private
from ouro.utils.log import log

_RECORD = re.compile(rb"^---\nrecalled: \d+\n(.*?)^\.\.\.$", re.DOTALL | re.MULTILINE)
_LOADED = re.compile(rb"^- \{id: (mem_[0-9a-f]{8,32}), state: loaded", re.MULTILINE)
_MAX_BYTES = 16 << 20
"""Of one session: its end."""
_LOCK_TIMEOUT = 1.0


class _Counts(msgspec.Struct, frozen=True):
    counts: Mapping[str, int] = {}
    """By note id: with how many messages it went."""
    last: Mapping[str, str] = {}
    """By note id: the time of the last one."""


@dataclass(eq=False)
class RecallLog:
    """A file derived from the sessions; it may be deleted. Every method blocks."""

    path: Path
    sessions: Path
    """The folder of sessions, counted when the file does not exist."""

    def count(self, note_id: str) -> int:
        """With how many messages the note went, as known when this session first asked."""
        return self._latest.counts.get(note_id, 0)

    def add(self, note_ids: Iterable[str]) -> None:
        """Count that these notes went with a message."""
        note_ids, now = list(note_ids), timestamp()
        try:
            with lock_file(self.path.with_suffix(".lock"), _LOCK_TIMEOUT):
                before = self._read() or _Counts(recall_counts(self.sessions))
                counts = {**before.counts, **{note_id: before.counts.get(note_id, 0) + 1 for note_id in note_ids}}
                self._latest = _Counts(counts, {**before.last, **dict.fromkeys(note_ids, now)})
                write_private(self.path, msgspec.json.encode(self._latest))
        except (OSError, TimeoutError) as error:
            log.warning("recall is not counted: %s", error)

    def counts(self) -> tuple[Mapping[str, int], Mapping[str, str]]:
        """Counts and last times, by note id."""
        read = self._read() or _Counts(recall_counts(self.sessions))
        return read.counts, read.last

    @cached_property
    def _latest(self) -> _Counts:
        return self._read() or _Counts()

    def _read(self) -> _Counts | None:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_Counts)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s cannot be read, the sessions are counted: %s", self.path, error)
            return None


def recall_counts(sessions: Path) -> dict[str, int]:
    """By note id: with how many messages of the sessions in this folder it went. Reads their files."""
    counted: Counter[str] = Counter()
    for path in sorted(sessions.glob("*/session.yaml")):
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _MAX_BYTES))
                data = file.read(_MAX_BYTES)
        except OSError as error:
            log.warning("%s is not counted: %s", path, error)
            continue
        for record in _RECORD.findall(data):
            counted.update(note_id.decode() for note_id in _LOADED.findall(record))
    return dict(counted)
