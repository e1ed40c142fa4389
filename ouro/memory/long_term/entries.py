"""What is remembered, entry by entry: the lines of the core and the notes, each with provenance it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from ouro.errors import MemoryUnusable, SearchUnavailable, UsageError
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.git import history as git_history
from ouro.memory.long_term.git.files import ARCHIVE
from ouro.memory.long_term.git.values import SESSION, TURN, BlamedLine, Scope
from ouro.memory.long_term.notes.notebook import NoteFile
from ouro.memory.long_term.notes.validity import Anchors
from ouro.memory.long_term.scope import ScopeMemory
from ouro.utils.log import log

_HEADING = re.compile(r"\s{0,3}(?:#{1,6}(?:\s|$)|-{3,}\s*$|<!--)")
_SQL = (
    "SELECT note, path, category, text, at, confidence, source, session, turn, supersedes FROM notes"
    " WHERE kind = 'note' AND scope = ? AND project = ?"
)


class MemoryEntry(msgspec.Struct, frozen=True):
    """One thing that is remembered."""

    id: str
    """Of a note its id, of a core line its place: `user/facts.md:3`."""
    kind: Literal["core", "note"]
    scope: Scope
    category: str
    text: str
    file: str
    """Below the scope's folder."""
    line: int = 0
    """Of a core line, from 1."""
    at: str = ""
    """When it was last changed."""
    session: str = ""
    turn: int = 0
    source: str = ""
    """Of a note `user` or `assistant`; of a core line who committed it: `person`, `agent`, `outside`, `import` …"""
    confidence: float = 1.0
    supersedes: str = ""
    badges: tuple[str, ...] = ()
    """`archived`, `replaced`, `contradicted`, `unconfirmed` (nobody has vouched for it), `stale`."""
    versions: int = 1
    """Length of its chain."""

    @property
    def archived(self) -> bool:
        """Whether it is kept, but not recalled."""
        return self.file.startswith(f"{ARCHIVE}/")


def provenance(entry: MemoryEntry) -> str:
    """Where an entry is from, on one line: `2026-11-21 · session 0d9f3c52, turn 7 · user`."""
    session = f"session {entry.session[:8]}" + (f", turn {entry.turn}" if entry.turn else "") if entry.session else ""
    chain = f"changed {entry.versions - 1} time{'s' * (entry.versions > 2)}" if entry.versions > 1 else ""
    return " · ".join(filter(None, (entry.at[:10], session, entry.source, chain, *entry.badges)))


def all_entries(desk: MemoryEditor, *, archived: bool = False) -> list[MemoryEntry]:
    """Core lines, then notes, newest first; what was replaced only where `archived`."""
    notes = sorted(note_entries(desk), key=lambda each: each.at, reverse=True)
    kept = [each for each in notes if archived or not (each.archived or "replaced" in each.badges)]
    return [*core_entries(desk), *kept]


def core_entries(desk: MemoryEditor) -> list[MemoryEntry]:
    """The lines of the core that say something, each with the commit that it is from."""
    return [entry for scope in desk.scopes for category in scope.store.core for entry in _core_lines(scope, category)]


def note_entries(desk: MemoryEditor) -> list[MemoryEntry]:
    """All notes, those of the archive too; from the index where it can be read, else from the files."""
    try:
        found = _from_index(desk) if desk.index else _from_files(desk)
    except SearchUnavailable as error:
        log.warning("notes are read from the files: %s", error)
        found = _from_files(desk)
    by_id = {each.id: each for each in found}
    return [_with_chain(each, by_id) for each in _badged(desk, found)]


def find_entry(desk: MemoryEditor, named: str) -> MemoryEntry:
    """The one that is named: a note by its id or the start of it, a core line as `user/facts.md:3`.

    Raises:
        UsageError: none is, or several are.
    """
    entries = [*core_entries(desk), *note_entries(desk)]
    word = named.strip().removesuffix(".md")
    exact = [each for each in entries if word in (each.id, each.id.removeprefix("mem_"))]
    started = [each for each in entries if each.kind == "note" and len(word) >= 3 and _begins(each.id, word)]
    found = exact or started
    if len(found) != 1:
        several = f"Several notes begin so: {', '.join(each.id[:16] for each in found[:4])}." if found else ""
        raise UsageError(several or f"Nothing remembered is called {named[:60]}.", commands=["memory list"])
    return found[0]


def is_line(text: str) -> bool:
    """Whether a line of a core file says something."""
    return bool(text.strip()) and not _HEADING.match(text)


def plain(text: str) -> str:
    """A core line without the mark of its list."""
    return re.sub(r"^\s*(?:[-*+]|\d{1,3}[.)])\s+", "", text).strip()


def _begins(note_id: str, word: str) -> bool:
    return note_id.startswith(word) or note_id.removeprefix("mem_").startswith(word)


def _core_lines(scope: ScopeMemory, category: str) -> Iterator[MemoryEntry]:
    name = f"{category}.md"
    text = scope.store.load_all().core.get(category, "")
    if not text.strip():
        return
    blamed = _blamed(scope, name)
    badges = ("unconfirmed",) if name in scope.doubted else ()
    for number, line in enumerate(text.splitlines(), 1):
        if not is_line(line):
            continue
        made = blamed.get(line.strip())
        commit = made.commit if made else None
        trailers: Mapping[str, str] = commit.trailers if commit else {}
        turn = trailers.get(TURN, "")
        yield MemoryEntry(
            id=f"{scope.scope}/{name}:{number}",
            kind="core",
            scope=scope.scope,
            category=category,
            text=plain(line),
            file=name,
            line=number,
            at=commit.at if commit else "",
            session=trailers.get(SESSION, ""),
            turn=int(turn) if turn.isdecimal() else 0,
            source=commit.origin if commit else "",
            badges=badges,
        )


def _blamed(scope: ScopeMemory, name: str) -> dict[str, BlamedLine]:
    """By the words of the line: what stands in the files may be newer than the history."""
    try:
        return {each.text.strip(): each for each in git_history.blame(scope.store.repository, name)}
    except MemoryUnusable:
        return {}


def _from_index(desk: MemoryEditor) -> list[MemoryEntry]:
    from ouro.memory.index.index import Sources
    from ouro.memory.index.note_indexer import MemoryFolder

    assert desk.index is not None
    index = desk.index()
    index.follow(Sources(memories=tuple(MemoryFolder.of(scope.store) for scope in desk.scopes)))
    found = []
    with index.reading() as database:
        for store in (scope.store for scope in desk.scopes):
            scope, folder = store.scope, store.folder
            for row in database.execute(_SQL, (scope, MemoryFolder.of(store).project)):
                path = Path(row[1])
                if folder in (path.parent, path.parent.parent):
                    file = path.name if path.parent == folder else f"{ARCHIVE}/{path.name}"
                    found.append(_entry(scope, file, row))
    return found


def _entry(scope: Scope, file: str, row: tuple[str, str, str, str, str, float, str, str, int, str]) -> MemoryEntry:
    note_id, _, category, text, at, confidence, source, session, turn, supersedes = row
    return MemoryEntry(
        note_id, "note", scope, category, text, file, 0, at, session, turn, source, confidence, supersedes or ""
    )


def _from_files(desk: MemoryEditor) -> list[MemoryEntry]:
    found = []
    for kept in desk.notebook.all(archived=True):
        note = kept.note
        at = note.updated_at or note.created_at
        row = (note.id, "", note.category, note.text, at, note.confidence, note.source, note.session_id, note.turn)
        found.append(_entry(kept.scope, kept.name, (*row, note.supersedes or "")))
    return found


def _badged(desk: MemoryEditor, entries: list[MemoryEntry]) -> list[MemoryEntry]:
    replaced = {each.supersedes for each in entries if each.supersedes}
    contradicted = _contradicted(desk)
    doubted = {(scope.scope, name) for scope in desk.scopes for name in scope.doubted}
    badged = []
    for each in entries:
        badges = (
            *(("archived",) if each.archived else ()),
            *(("replaced",) if each.id in replaced else ()),
            *(("contradicted",) if each.id in contradicted else ()),
            *(("unconfirmed",) if (each.scope, each.file) in doubted else ()),
        )
        badged.append(replace(each, badges=badges) if badges else each)
    return badged


def _contradicted(desk: MemoryEditor) -> set[str]:
    if desk.index is None:
        return set()
    try:
        with desk.index().reading() as database:
            return {row[0] for row in database.execute("SELECT other FROM edges WHERE relationship = 'contradicts'")}
    except SearchUnavailable:
        return set()


def _with_chain(entry: MemoryEntry, by_id: Mapping[str, MemoryEntry]) -> MemoryEntry:
    versions, seen, at = 1, {entry.id}, entry.supersedes
    while at in by_id and at not in seen:
        seen.add(at)
        versions, at = versions + 1, by_id[at].supersedes
    return replace(entry, versions=versions) if versions > 1 else entry


def chain_of(entries: list[MemoryEntry], entry: MemoryEntry) -> list[MemoryEntry]:
    """All versions of what a note says, oldest first; the note alone where it never changed."""
    by_id = {each.id: each for each in entries}
    after = {each.supersedes: each for each in entries if each.supersedes}
    chain, seen = [entry], {entry.id}
    while (older := by_id.get(chain[0].supersedes)) and older.id not in seen:
        seen.add(older.id)
        chain.insert(0, older)
    while (newer := after.get(chain[-1].id)) and newer.id not in seen:
        seen.add(newer.id)
        chain.append(newer)
    return chain


def now() -> str:
    """The time, as notes have it."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class EntryDetails(msgspec.Struct, frozen=True):
    """One entry, with all that is known of it."""

    entry: MemoryEntry
    path: str
    chain: tuple[MemoryEntry, ...] = ()
    """All versions, oldest first; empty for a core line."""
    note: NoteFile | None = None
    stale: tuple[str, ...] = ()
    """The files that it speaks of and that are not as they were."""


def list_entries(desk: MemoryEditor, what: str = "") -> list[MemoryEntry]:
    """The entries of a scope, a category, both (`repo patterns`), or a badge (`archived`); without a word all in use.

    Raises:
        UsageError: there is no such scope or category.
    """
    words = what.lower().replace("/", " ").replace(".md", "").split()
    entries = all_entries(desk, archived=True)
    for word in words:
        found = [each for each in entries if word in (each.scope, each.category, each.kind, *each.badges)]
        known = {
            "core",
            "note",
            "archived",
            "replaced",
            "contradicted",
            "unconfirmed",
            *desk.names,
            *desk.scopes[0].store.core,
        }
        known |= {each.category for each in all_entries(desk, archived=True)}
        if not found and word not in known:
            raise UsageError(f"There is no scope or category {word[:40]}.", f"There are {', '.join(sorted(known))}.")
        entries = found
    hidden = {"archived", "replaced"} - set(words)
    return [each for each in entries if not hidden & set(each.badges)]


def details_of(desk: MemoryEditor, named: str) -> EntryDetails:
    """One entry whole.

    Raises:
        UsageError: none is called so.
    """
    entry = find_entry(desk, named)
    folder = desk.scope(entry.scope).store.folder
    if entry.kind == "core":
        return EntryDetails(entry, str(folder / entry.file))
    kept = desk.notebook.find(entry.id)
    stale = Anchors(desk.root).changed(kept.note.anchors) if desk.root else ()
    chain = tuple(chain_of(note_entries(desk), entry))
    return EntryDetails(entry, str(folder / entry.file), chain, kept, stale)


def counts(entries: Sequence[MemoryEntry]) -> dict[str, int]:
    """How many entries each `scope/category` has."""
    found: dict[str, int] = {}
    for each in entries:
        key = f"{each.scope}/{each.category}"
        found[key] = found.get(key, 0) + 1
    return found


_CATEGORIES = ("corrections", "patterns")
_DOES_NOT_COUNT = {"archived", "replaced", "unconfirmed"}


def find_lessons(desk: MemoryEditor) -> list[MemoryEntry]:
    """The corrections and patterns that count in this project. Blocks."""
    found = (each for each in note_entries(desk) if each.category in _CATEGORIES)
    return sorted((e for e in found if not _DOES_NOT_COUNT & {*e.badges}), key=lambda each: each.at, reverse=True)
