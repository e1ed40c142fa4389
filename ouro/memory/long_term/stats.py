"""Statistics of memory: counts by kind and age, sizes, tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entries import MemoryEntry, all_entries
from ouro.memory.long_term.recall.recall_log import RecallLog
from ouro.memory.tokens import estimate

_AGES = ((1, "today"), (7, "a week"), (30, "a month"), (365, "a year"))


class MemoryStats(msgspec.Struct, frozen=True):
    core: Mapping[str, int]
    """The number of lines, by `scope/category`."""
    notes: Mapping[str, int]
    """Notes in use, by `scope/category`."""
    archived: int
    replaced: int
    contradicted: int
    sources: Mapping[str, int]
    """Notes by source; core lines by author."""
    triggers: Mapping[str, int]
    """Notes by trigger."""
    ages: Mapping[str, int]
    """Entries by the age of their last change."""
    prompt_tokens: Mapping[str, int]
    """Tokens of the core in each request, by scope."""
    sizes: Mapping[str, int]
    """Bytes of the files, by scope."""
    recalled: Mapping[str, int]
    """Note id -> number of messages it was sent with, for the ten most recalled."""
    last_recalled: str = ""
    """The time when a note last went to a model."""


def memory_stats(editor: MemoryEditor, recall_log: RecallLog | None = None, now: datetime | None = None) -> MemoryStats:
    """Count entries. Reads each note: some seconds for 10,000 notes.

    Args:
        recall_log: counts recalled notes.
    """
    entries = all_entries(editor, archived=True)
    core = [entry for entry in entries if entry.kind == "core"]
    notes = [entry for entry in entries if entry.kind == "note"]
    used = [note for note in notes if not note.archived and "replaced" not in note.badges]
    known = {note.id for note in notes}
    counts, times = recall_log.counts() if recall_log else ({}, {})
    return MemoryStats(
        core=_count(f"{item.scope}/{item.category}" for item in core),
        notes=_count(f"{item.scope}/{item.category}" for item in used),
        archived=sum(note.archived for note in notes),
        replaced=sum("replaced" in note.badges for note in notes),
        contradicted=sum("contradicted" in note.badges for note in notes),
        sources=_count(item.source or "unknown" for item in [*core, *used]),
        triggers=_count(kept.note.trigger for kept in editor.notebook.all()),
        ages=_ages([*core, *used], now or datetime.now(UTC)),
        prompt_tokens={item.scope: sum(map(estimate, item.texts.values())) for item in editor.scopes},
        sizes={scope.scope: _size(scope.loaded.files.values()) for scope in editor.scopes},
        recalled=dict(Counter({key: n for key, n in counts.items() if key in known}).most_common(10)),
        last_recalled=max((at for note_id, at in times.items() if note_id in known), default=""),
    )


def _count(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))


def _size(fingerprints: Iterable[str]) -> int:
    """A fingerprint holds the size: `inode:size:…`."""
    return sum(int(item.split(":")[1]) for item in fingerprints)


def _ages(entries: Iterable[MemoryEntry], now: datetime) -> dict[str, int]:
    names = [name for _, name in _AGES] + ["older", "unknown"]
    counts = Counter(_age(entry.at, now) for entry in entries)
    return {name: counts[name] for name in names if counts[name]}


def _age(at: str, now: datetime) -> str:
    try:
        found = datetime.fromisoformat(at)
    except ValueError:
        return "unknown"
    days = (now - (found if found.tzinfo else found.replace(tzinfo=UTC))).total_seconds() / 86_400
    return next((name for most, name in _AGES if days < most), "older")
