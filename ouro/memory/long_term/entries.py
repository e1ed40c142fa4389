"""Entries of memory: the lines of the core and the notes, each with its source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
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


class MemoryEntry(msgspec.Struct, frozen=True):
    id: str
    """The id of a note; for a core line `user/facts.md:3`."""
    kind: Literal["core", "note"]
    scope: Scope
    category: str
    text: str
    file: str
    """Relative to the scope's folder."""
    line: int = 0
    """The number of a core line, from 1."""
    at: str = ""
    """When it was last changed."""
    session: str = ""
    turn: int = 0
    source: str = ""
    """For a note `user` or `assistant`; for a core line the author of its commit: `person`, `agent`, `outside` …"""
    confidence: float = 1.0
    supersedes: str = ""
    badges: tuple[str, ...] = ()
    """`archived`, `replaced`, `contradicted`, `unconfirmed` (not approved), `stale`."""
    versions: int = 1
    """The length of its chain."""

    @property
    def archived(self) -> bool:
        return self.file.startswith(f"{ARCHIVE}/")


def provenance(entry: MemoryEntry) -> str:
    """The source of an entry, on one line: `2026-11-21 · session 0d9f3c52, turn 7 · user`."""
    session = f"session {entry.session[:8]}" + (f", turn {entry.turn}" if entry.turn else "") if entry.session else ""
    chain = f"changed {entry.versions - 1} time{'s' * (entry.versions > 2)}" if entry.versions > 1 else ""
    return " · ".join(filter(None, (entry.at[:10], session, entry.source, chain, *entry.badges)))


def all_entries(editor: MemoryEditor, *, archived: bool = False) -> list[MemoryEntry]:
    """Core lines, then notes, newest first; archived and replaced ones only if `archived`."""
    notes = sorted(note_entries(editor), key=lambda item: item.at, reverse=True)
    kept = [note for note in notes if archived or not (note.archived or "replaced" in note.badges)]
    return [*core_entries(editor), *kept]


def core_entries(editor: MemoryEditor) -> list[MemoryEntry]:
    """The lines of the core, without headings and comments, each with its commit."""
    return [entry for scope in editor.scopes for category in scope.store.core for entry in _core_lines(scope, category)]


def note_entries(editor: MemoryEditor) -> list[MemoryEntry]:
    """All notes, also archived ones; from the index if it can be read, else from the files."""
    try:
        found = _from_index(editor) if editor.index else _from_files(editor)
    except SearchUnavailable as error:
        log.warning("notes are read from the files: %s", error)
        found = _from_files(editor)
    by_id = {item.id: item for item in found}
    return [_with_chain(item, by_id) for item in _add_badges(editor, found)]


def find_entry(editor: MemoryEditor, named: str) -> MemoryEntry:
    """The named entry: a note by its id or the start of it, a core line as `user/facts.md:3`.

    Raises:
        UsageError: there is no such entry, or several.
    """
    entries = [*core_entries(editor), *note_entries(editor)]
    word = named.strip().removesuffix(".md")
    exact = [entry for entry in entries if word in (entry.id, entry.id.removeprefix("mem_"))]
    started = [entry for entry in entries if entry.kind == "note" and len(word) >= 3 and _begins(entry.id, word)]
    found = exact or started
    if len(found) != 1:
        several = (
            f"Several notes begin with {word[:60]}: {', '.join(item.id[:16] for item in found[:4])}." if found else ""
        )
        raise UsageError(several or f"There is no entry {named[:60]}.", commands=["memory list"])
    return found[0]


def is_line(text: str) -> bool:
    """Whether a line of a core file is neither empty, a heading nor a comment."""
    return bool(text.strip()) and not _HEADING.match(text)


def plain(text: str) -> str:
    """A core line without its list mark."""
    return re.sub(r"^\s*(?:[-*+]|\d{1,3}[.)])\s+", "", text).strip()


def _begins(note_id: str, word: str) -> bool:
    return note_id.startswith(word) or note_id.removeprefix("mem_").startswith(word)


def _core_lines(scope: ScopeMemory, category: str) -> Iterator[MemoryEntry]:
    name = f"{category}.md"
    text = scope.store.load_all().core.get(category, "")
    if not text.strip():
        return
    blamed = _blame(scope, name)
    badges = ("unconfirmed",) if name in scope.untrusted else ()
    for number, line in enumerate(text.splitlines(), 1):
        if not is_line(line):
            continue
        line_commit = blamed.get(line.strip())
        commit = line_commit.commit if line_commit else None
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


def _blame(scope: ScopeMemory, name: str) -> dict[str, BlamedLine]:
    """Line -> its commit. By the text of the line, as the files may be newer than the history."""
    try:
        return {item.text.strip(): item for item in git_history.blame(scope.store.repository, name)}
    except MemoryUnusable:
        return {}


def _from_index(editor: MemoryEditor) -> list[MemoryEntry]:
    from ouro.memory.index import Graph, Sources

    assert editor.index is not None
    index = editor.index()
    sources = Sources.of_notes(scope.store for scope in editor.scopes)
    index.follow(sources)
    found = []
    for folder in sources.memories:
        for hit in Graph(index).notes(folder.scope, folder.project):
            file = hit.path.removeprefix(f"{folder.path}/")
            if hit.kind == "note" and file != hit.path:
                row = (hit.id, "", hit.category, hit.text, hit.at, hit.confidence, hit.source, hit.session, hit.number)
                found.append(_entry(folder.scope, file, (*row, hit.supersedes)))
    return found


def _entry(scope: Scope, file: str, row: tuple[str, str, str, str, str, float, str, str, int, str]) -> MemoryEntry:
    note_id, _, category, text, at, confidence, source, session, turn, supersedes = row
    return MemoryEntry(
        note_id, "note", scope, category, text, file, 0, at, session, turn, source, confidence, supersedes or ""
    )


def _from_files(editor: MemoryEditor) -> list[MemoryEntry]:
    found = []
    for kept in editor.notebook.all(archived=True):
        note = kept.note
        at = note.updated_at or note.created_at
        row = (note.id, "", note.category, note.text, at, note.confidence, note.source, note.session_id, note.turn)
        found.append(_entry(kept.scope, kept.name, (*row, note.supersedes or "")))
    return found


def _add_badges(editor: MemoryEditor, entries: list[MemoryEntry]) -> list[MemoryEntry]:
    replaced = {entry.supersedes for entry in entries if entry.supersedes}
    contradicted = _contradicted(editor)
    untrusted = {(scope.scope, name) for scope in editor.scopes for name in scope.untrusted}
    badged = []
    for entry in entries:
        badges = (
            *(("archived",) if entry.archived else ()),
            *(("replaced",) if entry.id in replaced else ()),
            *(("contradicted",) if entry.id in contradicted else ()),
            *(("unconfirmed",) if (entry.scope, entry.file) in untrusted else ()),
        )
        badged.append(replace(entry, badges=badges) if badges else entry)
    return badged


def _contradicted(editor: MemoryEditor) -> set[str]:
    from ouro.memory.index import Graph

    if editor.index is None:
        return set()
    try:
        return {other for _, way, other in Graph(editor.index()).edges() if way == "contradicts"}
    except SearchUnavailable:
        return set()


def _with_chain(entry: MemoryEntry, by_id: Mapping[str, MemoryEntry]) -> MemoryEntry:
    versions, seen, at = 1, {entry.id}, entry.supersedes
    while at in by_id and at not in seen:
        seen.add(at)
        versions, at = versions + 1, by_id[at].supersedes
    return replace(entry, versions=versions) if versions > 1 else entry


def chain_of(entries: list[MemoryEntry], entry: MemoryEntry) -> list[MemoryEntry]:
    """All versions of a note, oldest first; the note alone when it never changed."""
    by_id = {item.id: item for item in entries}
    after = {item.supersedes: item for item in entries if item.supersedes}
    chain, seen = [entry], {entry.id}
    while (older := by_id.get(chain[0].supersedes)) and older.id not in seen:
        seen.add(older.id)
        chain.insert(0, older)
    while (newer := after.get(chain[-1].id)) and newer.id not in seen:
        seen.add(newer.id)
        chain.append(newer)
    return chain


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class EntryDetails(msgspec.Struct, frozen=True):
    entry: MemoryEntry
    path: str
    chain: tuple[MemoryEntry, ...] = ()
    """All versions, oldest first; empty for a core line."""
    note: NoteFile | None = None
    stale: tuple[str, ...] = ()
    """The files named in it that have changed."""


def list_entries(editor: MemoryEditor, what: str = "") -> list[MemoryEntry]:
    """The entries of a scope, a category, both (`repo patterns`), or a badge (`archived`); by default all in use.

    Raises:
        UsageError: there is no such scope or category.
    """
    words = what.lower().replace("/", " ").replace(".md", "").split()
    entries = all_entries(editor, archived=True)
    for word in words:
        found = [entry for entry in entries if word in (entry.scope, entry.category, entry.kind, *entry.badges)]
        known = {
            "core",
            "note",
            "archived",
            "replaced",
            "contradicted",
            "unconfirmed",
            *editor.names,
            *editor.scopes[0].store.core,
        }
        known |= {entry.category for entry in all_entries(editor, archived=True)}
        if not found and word not in known:
            raise UsageError(f"There is no scope or category {word[:40]}.", f"There are {', '.join(sorted(known))}.")
        entries = found
    hidden = {"archived", "replaced"} - set(words)
    return [entry for entry in entries if not hidden & set(entry.badges)]


def details_of(editor: MemoryEditor, named: str) -> EntryDetails:
    """Everything about one entry.

    Raises:
        UsageError: there is no such entry.
    """
    entry = find_entry(editor, named)
    folder = editor.scope(entry.scope).store.folder
    if entry.kind == "core":
        return EntryDetails(entry, str(folder / entry.file))
    kept = editor.notebook.find(entry.id)
    stale = Anchors(editor.root).changed(kept.note.anchors) if editor.root else ()
    chain = tuple(chain_of(note_entries(editor), entry))
    return EntryDetails(entry, str(folder / entry.file), chain, kept, stale)


def counts(entries: Sequence[MemoryEntry]) -> dict[str, int]:
    """How many entries each `scope/category` has."""
    found: dict[str, int] = {}
    for entry in entries:
        key = f"{entry.scope}/{entry.category}"
        found[key] = found.get(key, 0) + 1
    return found


_CATEGORIES = ("corrections", "patterns")
_NOT_IN_USE = {"archived", "replaced", "unconfirmed"}


def find_lessons(editor: MemoryEditor) -> list[MemoryEntry]:
    """The corrections and patterns in use, newest first. Blocks."""
    found = (entry for entry in note_entries(editor) if entry.category in _CATEGORIES)
    return sorted((e for e in found if not _NOT_IN_USE & {*e.badges}), key=lambda item: item.at, reverse=True)
