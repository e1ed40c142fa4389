"""How much is remembered, of what sort and age, and what it costs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entries import MemoryEntry, all_entries
from ouro.memory.tokens import estimate
from ouro.utils.log import log

_AGES = ((1, "today"), (7, "a week"), (30, "a month"), (365, "a year"))


class MemoryStats(msgspec.Struct, frozen=True):
    """Counts of what is remembered."""

    core: Mapping[str, int]
    """Lines, by `scope/category`."""
    notes: Mapping[str, int]
    """By `scope/category`; without the archive and what was replaced."""
    archived: int
    replaced: int
    contradicted: int
    sources: Mapping[str, int]
    """Notes by who said it; core lines by who committed them."""
    triggers: Mapping[str, int]
    """Notes by what made ouro write them."""
    ages: Mapping[str, int]
    """By when they were last changed."""
    prompt_tokens: Mapping[str, int]
    """Of the core, by scope: in each request."""
    sizes: Mapping[str, int]
    """Bytes of the files, by scope."""
    recalled: Mapping[str, int]
    """How often notes were recalled in the sessions that are kept, the most often first."""


def stats(desk: MemoryEditor, recalled: Mapping[str, int] | None = None, now: datetime | None = None) -> MemoryStats:
    """Count. Reads each note: some seconds with ten thousand of them.

    Args:
        recalled: how often each note was recalled, by its id.
    """
    entries = all_entries(desk, archived=True)
    core = [each for each in entries if each.kind == "core"]
    notes = [each for each in entries if each.kind == "note"]
    used = [each for each in notes if not each.archived and "replaced" not in each.badges]
    known = {each.id for each in notes}
    return MemoryStats(
        core=_counted(f"{each.scope}/{each.category}" for each in core),
        notes=_counted(f"{each.scope}/{each.category}" for each in used),
        archived=sum(each.archived for each in notes),
        replaced=sum("replaced" in each.badges for each in notes),
        contradicted=sum("contradicted" in each.badges for each in notes),
        sources=_counted(each.source or "unknown" for each in [*core, *used]),
        triggers=_counted(kept.note.trigger for kept in desk.notebook.all()),
        ages=_ages([*core, *used], now or datetime.now(UTC)),
        prompt_tokens={each.scope: sum(map(estimate, each.texts.values())) for each in desk.scopes},
        sizes={scope.scope: _size(scope.loaded.files.values()) for scope in desk.scopes},
        recalled=dict(Counter({key: n for key, n in (recalled or {}).items() if key in known}).most_common(10)),
    )


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))


def _size(fingerprints: Iterable[str]) -> int:
    """A fingerprint holds the size: `inode:size:…`."""
    return sum(int(each.split(":")[1]) for each in fingerprints)


def _ages(entries: Iterable[MemoryEntry], now: datetime) -> dict[str, int]:
    names = [name for _, name in _AGES] + ["older", "unknown"]
    counts = Counter(_age(each.at, now) for each in entries)
    return {name: counts[name] for name in names if counts[name]}


def _age(at: str, now: datetime) -> str:
    try:
        found = datetime.fromisoformat(at)
    except ValueError:
        return "unknown"
    days = (now - (found if found.tzinfo else found.replace(tzinfo=UTC))).total_seconds() / 86_400
    return next((name for most, name in _AGES if days < most), "older")


_RECORD = re.compile(rb"^---\nrecalled: \d+\n(.*?)^\.\.\.$", re.DOTALL | re.MULTILINE)
_LOADED = re.compile(rb"^- \{id: (mem_[0-9a-f]{8,32}), state: loaded", re.MULTILINE)
_MOST_BYTES = 16 << 20
"""Of one session that are looked through: its end."""


def recall_counts(sessions: Path) -> dict[str, int]:
    """Note id -> how many messages it went with. Reads the sessions' files; blocks."""
    counted: Counter[str] = Counter()
    for path in sorted(sessions.glob("*/session.yaml")):
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _MOST_BYTES))
                data = file.read(_MOST_BYTES)
        except OSError as error:
            log.warning("%s is not counted: %s", path, error)
            continue
        for record in _RECORD.findall(data):
            counted.update(each.decode() for each in _LOADED.findall(record))
    return dict(counted)
