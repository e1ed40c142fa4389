"""Entries of memory: the lines of the core and the notes, each with its source and badges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from ouro.errors import MemoryUnusable, NoteError, SearchUnavailable, UsageError
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.git import history
from ouro.memory.long_term.git.files import ARCHIVE
from ouro.memory.long_term.git.values import NO_TURN, Commit, Scope
from ouro.memory.long_term.notes.note import Note, find_ids, is_core_line, strip_list_mark
from ouro.memory.long_term.notes.notebook import NoteFile
from ouro.memory.long_term.notes.validity import confidence_now, may_be_tentative
from ouro.utils.log import log
from ouro.utils.path_encoding import path_text
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.memory.long_term.core_line_provenance import CoreRecord
    from ouro.memory.long_term.scope import ScopeMemory

_BADGES = (
    "archived",
    "replaced",
    "contradicted",
    "contradicts",
    "unconfirmed",
    "tentative",
    "stale",
)
_LESSON_CATEGORIES = ("corrections", "patterns")


class MemoryEntry(msgspec.Struct, frozen=True):
    """A core line or a note, as it is listed. A core line has no time, session and source if it is
    not committed, or was listed without `sources`.
    """

    id: str
    """The id of a note; for a core line `user/facts.md:3`."""
    kind: Literal["core", "note"]
    scope: Scope
    category: str
    text: str
    file: str
    """Relative to the scope's folder."""
    line: int = 0
    """The number of a core line, from 1; 0 for a note."""
    at: str = ""
    """When it was last changed."""
    session: str = ""
    turn: int = 0
    source: str = ""
    """For a note `user` or `assistant`; for a core line the author of its commit: `person`,
    `agent`, `outside` …
    """
    confidence: float = 1.0
    supersedes: str = ""
    badges: tuple[str, ...] = ()
    """`archived`, `replaced`, `contradicted`, `contradicts`, `unconfirmed` (not approved),
    `tentative` (concluded, and confirmed by nothing), `stale`
    (a file that it names has changed), `on BRANCH`.
    """
    versions: int = 1

    @property
    def archived(self) -> bool:
        return self.file.startswith(f"{ARCHIVE}/")

    @property
    def is_in_use(self) -> bool:
        return {"archived", "replaced"}.isdisjoint(self.badges)


class NoteLink(msgspec.Struct, frozen=True):
    """A link between a note, or core line, and another note."""

    relationship: str
    """`refines`, `contradicts` or `relates-to`; followed by `, by` if the link is from the other
    note to this one.
    """
    note_id: str
    text: str


class EntryDetails(msgspec.Struct, frozen=True):
    """All that is shown of one entry."""

    entry: MemoryEntry
    path: str
    chain: tuple[MemoryEntry, ...] = ()
    """All versions, oldest first; empty for a core line."""
    note: NoteFile | None = None
    """The file of a note; None for a core line."""
    stale: tuple[str, ...] = ()
    """The paths of files that it names and that have changed."""
    links: tuple[NoteLink, ...] = ()
    confidence: float = 1.0
    record: CoreRecord | None = None
    """The record of a core line; None for a note, and for a line without a record."""


def describe_source(entry: MemoryEntry) -> str:
    """The day, session, source, number of changes and badges of an entry in one line, without what
    is unknown: `2026-11-21 · session 0d9f3c52, turn 7 · user`.
    """
    session = f"session {entry.session[:8]}" if entry.session else ""
    if session and entry.turn:
        session += f", turn {entry.turn}"
    changes = f"changed {plural(entry.versions - 1, 'time')}" if entry.versions > 1 else ""
    fields = (entry.at[:10], session, source_name(entry.source), changes, *entry.badges)
    return " · ".join(filter(None, fields))


def source_name(source: str) -> str:
    """A source as the user reads it: `person`, the user's own commits, is `user` like in notes."""
    return "user" if source == "person" else source


def all_entries(
    editor: MemoryEditor, *, archived: bool = False, stale: bool = False, sources: bool = True
) -> list[MemoryEntry]:
    """The core lines in the order of the files, then the notes, newest first.

    Args:
        archived: also notes that are archived or replaced.
        stale: mark notes that name a changed file, as `note_entries`.
        sources: with the commit of each core line, as `core_entries`.
    """
    notes = sorted(note_entries(editor, stale=stale), key=lambda entry: entry.at, reverse=True)
    shown_notes = [note for note in notes if archived or note.is_in_use]
    return [*core_entries(editor, sources=sources), *shown_notes]


def core_entries(editor: MemoryEditor, *, sources: bool = True) -> list[MemoryEntry]:
    """The lines of the core, without headings and comments, in the order of the files. With
    `sources` each has the time, session and author of its commit, which takes two processes a file.
    """
    entries: list[MemoryEntry] = []
    for scope in editor.scopes:
        for category in scope.store.core:
            entries += _entries_of_file(scope, category, sources=sources)
    return entries


def _entries_of_file(scope: ScopeMemory, category: str, *, sources: bool) -> Iterator[MemoryEntry]:
    """Yield the lines of a core file as entries, as `core_entries`. A line that is not in the
    trusted text is `unconfirmed`.
    """
    name = f"{category}.md"
    text = scope.loaded.core.get(category, "")
    is_foreign = name in scope.foreign
    trusted_lines = {*scope.texts.get(category, "").splitlines()}
    commits = _commits_of_lines(scope, name) if sources and text.strip() else {}
    for number, line in enumerate(text.splitlines(), 1):
        if not is_core_line(line):
            continue
        commit = commits.get(line.strip())
        source = commit.source if commit else NO_TURN
        is_unconfirmed = is_foreign and line not in trusted_lines
        yield MemoryEntry(
            id=f"{scope.name}/{name}:{number}",
            kind="core",
            scope=scope.name,
            category=category,
            text=strip_list_mark(line),
            file=name,
            line=number,
            at=commit.at if commit else "",
            session=source.session,
            turn=source.turn,
            source=commit.origin if commit else "",
            badges=("unconfirmed",) if is_unconfirmed else (),
        )


def _commits_of_lines(scope: ScopeMemory, name: str) -> dict[str, Commit]:
    """The last commit of each line of a file, by the text of the line: the file may be newer than
    the history, so line numbers may differ. Empty if the history cannot be read.
    """
    try:
        lines = history.blame(scope.store.repository, name)
    except MemoryUnusable:
        return {}
    return {line.text.strip(): line.commit for line in lines}


def with_sources(editor: MemoryEditor, entries: Sequence[MemoryEntry]) -> list[MemoryEntry]:
    """The same entries; the core lines among them get the time, session and author of their
    commits. Call it for entries that were read without these.
    """
    if all(entry.kind == "note" for entry in entries):
        return list(entries)
    lines_by_id = {line.id: line for line in core_entries(editor)}
    return [lines_by_id.get(entry.id, entry) for entry in entries]


def note_entries(
    editor: MemoryEditor, files: Sequence[NoteFile] | None = None, *, stale: bool = False
) -> list[MemoryEntry]:
    """The notes of `files`, by default all notes, as entries with their badges; also archived ones.
    With `stale`, notes that name a changed file are marked, which reads these files.
    """
    files = all_notes(editor) if files is None else files
    anchors = editor.anchors if stale else None
    ids = {file.note.id for file in files}
    replaced_by_newer = {
        file.note.id: file.note.supersedes for file in files if file.note.supersedes
    }
    # A version that was deleted cannot be counted.
    older_versions = {newer: old for newer, old in replaced_by_newer.items() if old in ids}
    replaced_ids = {*replaced_by_newer.values()}
    contradicting, contradicted = _find_contradictions(files)
    untrusted = {scope.name: scope.foreign for scope in editor.scopes}
    entries = []
    for file in files:
        note = file.note
        has_badge = {
            "archived": file.archived,
            "replaced": note.id in replaced_ids,
            "contradicted": note.id in contradicted,
            "contradicts": note.id in contradicting,
            "unconfirmed": file.name in untrusted.get(file.scope, ()),
            "tentative": _is_tentative(editor, note),
            "stale": bool(anchors and anchors.changed_paths(note.anchors)),
        }
        badges = [badge for badge in _BADGES if has_badge[badge]]
        if note.branch:
            badges.append(f"on {note.branch}")
        entries.append(
            MemoryEntry(
                id=note.id,
                kind="note",
                scope=file.scope,
                category=note.category,
                text=note.text,
                file=file.name,
                at=note.updated_at or note.created_at,
                session=note.session_id,
                turn=note.turn,
                source=note.source,
                confidence=note.confidence,
                supersedes=replaced_by_newer.get(note.id, ""),
                badges=tuple(badges),
                versions=len(_follow_ids(note.id, older_versions)),
            )
        )
    return entries


def all_notes(editor: MemoryEditor) -> list[NoteFile]:
    """All notes, also archived ones; from the index if it can be read, else from the files."""
    if editor.index:
        from ouro.memory.index import Graph, Sources

        if editor.lists_files:
            sources = Sources.of_notes(scope.store for scope in editor.scopes)
        else:
            sources = Sources.of_scopes(editor.scopes)
        try:
            index = editor.index()
            index.update(sources)
            notes = []
            for folder in sources.memories:
                folder_prefix = f"{path_text(folder.path)}/"
                for path, note in Graph(index).notes(folder):
                    notes.append(NoteFile(note, note.scope, path.removeprefix(folder_prefix)))
            return notes
        except SearchUnavailable as error:
            log.warning("notes are read from the files: %s", error)
    return list(editor.notebook.all(archived=True))


def _is_tentative(editor: MemoryEditor, note: Note) -> bool:
    """Whether a note was concluded, and confirmed by nothing. The index does not hold this: the file
    is read of the few notes that may be tentative.
    """
    if not may_be_tentative(note):
        return False
    try:
        return bool(editor.notebook.find(note.id).note.tentative)
    except NoteError:
        return False


def find_entry(editor: MemoryEditor, name: str) -> MemoryEntry:
    """Find a note by its id or the beginning of it, or a core line by a name such as
    `user/facts.md:3`. Raises UsageError if there is none, or several.
    """
    entries = core_entries(editor) if ":" in name else note_entries(editor)
    return _find_by_name(entries, name)


def list_entries(editor: MemoryEditor, filter_words: str = "") -> list[MemoryEntry]:
    """The entries that fit all of the filter words. A word is a scope, a category, both (`repo
    patterns`), a kind (`core`), or a badge (`archived`). Archived and replaced entries are listed
    only if a word names that badge. Without words all other entries are listed.

    Raises UsageError if there is no such scope or category, or the scope is not in use here.
    """
    words = filter_words.lower().replace("/", " ").replace(".md", "").split()
    entries = all_entries(editor, archived=True)
    badges = set(_BADGES) - {"stale"}  # entries are not listed with this one
    allowed = {"core", "note", *badges, *editor.names, *editor.core}
    allowed |= {entry.category for entry in entries}
    for word in words:
        if word in ("user", "repo"):
            editor.scope(word)  # raises if it is not in use
        entries = [
            entry
            for entry in entries
            if word in (entry.scope, entry.category, entry.kind, *entry.badges)
        ]
        if not entries and word not in allowed:
            raise UsageError(
                f"There is no scope or category {word[:40]}.",
                f"There are {', '.join(sorted(allowed))}.",
            )
    hidden_badges = {"archived", "replaced"} - set(words)
    return [entry for entry in entries if hidden_badges.isdisjoint(entry.badges)]


def find_lessons(editor: MemoryEditor) -> list[MemoryEntry]:
    """The notes about corrections and patterns that are in use and approved, newest first. Blocks."""
    notes = [entry for entry in all_entries(editor) if entry.kind == "note"]
    approved_notes = [note for note in notes if "unconfirmed" not in note.badges]
    return [note for note in approved_notes if note.category in _LESSON_CATEGORIES]


def details_of(editor: MemoryEditor, name: str, half_life_days: float) -> EntryDetails:
    """All that is shown of the entry with this name, which `find_entry` explains: its versions, its
    links in both directions, and its confidence now. Raises UsageError as `find_entry`. Blocks.
    """
    if ":" in name:  # a core line, such as `repo/facts.md:3`
        return _core_details(editor, _find_by_name(core_entries(editor), name))
    files = all_notes(editor)
    entries = note_entries(editor, files)
    entry = _find_by_name(entries, name)
    file = editor.notebook.find(entry.id)

    # The links from this note to others, then those from others to it.
    notes_by_id = {other.note.id: other.note for other in files}
    texts = {note_id: note.text for note_id, note in notes_by_id.items()}
    links = [
        NoteLink(edge.relationship, edge.id, texts.get(edge.id, "deleted"))
        for edge in file.note.related
    ]
    for other in notes_by_id.values():
        links += [
            NoteLink(f"{edge.relationship}, by", other.id, other.text)
            for edge in other.related
            if edge.id == entry.id
        ]

    stale = editor.anchors.changed_paths(file.note.anchors) if editor.anchors else ()
    return EntryDetails(
        entry=entry,
        path=str(editor.scope(entry.scope).store.folder / entry.file),
        chain=tuple(versions_of(entries, entry)),
        note=file,
        stale=stale,
        links=tuple(links),
        confidence=confidence_now(file.note, datetime.now(UTC), half_life_days),
    )


def _core_details(editor: MemoryEditor, entry: MemoryEntry) -> EntryDetails:
    """The details of a core line. They come from its record: the earlier versions, and the links to
    notes. A line without a record has only its text and file. Records of lines that were moved to
    another scope are brought up to date first.
    """
    from ouro.memory.long_term.core_line_provenance import carry_records, core_records

    scope = editor.scope(entry.scope)
    carry_records(editor.scopes)  # a moved line gets its record back
    notes = note_entries(editor)
    record = core_records(scope).get(entry.text)
    path = str(scope.store.folder / entry.file)
    if record is None:
        return EntryDetails(entry, path)
    # Oldest first: `~1` is the version before this one, `~2` the one before that.
    ages = range(len(record.supersedes), 0, -1)
    earlier_versions = [
        replace(entry, id=f"{entry.id}~{age}", text=text, line=0)
        for age, text in zip(ages, record.supersedes, strict=True)
    ]
    texts = {note.id: note.text for note in notes}
    links = [
        NoteLink("relates-to", note_id, texts.get(note_id, "deleted")) for note_id in record.related
    ]
    entry = replace(entry, versions=len(earlier_versions) + 1)
    all_versions = (*earlier_versions, entry) if earlier_versions else ()
    return EntryDetails(entry, path, all_versions, links=tuple(links), record=record)


def versions_of(entries: Sequence[MemoryEntry], entry: MemoryEntry) -> list[MemoryEntry]:
    """All versions of a note among `entries`, oldest first; the note alone if it never changed."""
    by_id = {version.id: version for version in entries}
    older_ids = {
        version.id: version.supersedes for version in entries if version.supersedes in by_id
    }
    newer_ids = {old: new for new, old in older_ids.items()}
    _this, *older_versions = _follow_ids(entry.id, older_ids)
    this_and_newer = _follow_ids(entry.id, newer_ids)
    return [by_id[note_id] for note_id in (*reversed(older_versions), *this_and_newer)]


def _find_by_name(entries: Sequence[MemoryEntry], name: str) -> MemoryEntry:
    """The entry whose id is `name`, or the only one whose id begins with it; `.md` at the end is
    ignored. Raises UsageError if there is none, or several.
    """
    word = name.strip().removesuffix(".md")
    matching_ids = {word, *find_ids(word, (entry.id for entry in entries))}
    matches = [entry for entry in entries if entry.id in matching_ids]
    if len(matches) != 1:
        ids = ", ".join(entry.id[:16] for entry in matches[:4])
        several = f"Several notes begin with {word[:60]}: {ids}." if matches else ""
        raise UsageError(several or f"There is no entry {name[:60]}.", commands=["memory list"])
    return matches[0]


def _find_contradictions(files: Sequence[NoteFile]) -> tuple[set[str], set[str]]:
    """Two sets of ids: the notes that contradict others, and the notes that these contradict."""
    contradicting, contradicted = set(), set()
    for file in files:
        for edge in file.note.related:
            if edge.relationship == "contradicts":
                contradicting.add(file.note.id)
                contradicted.add(edge.id)
    return contradicting, contradicted


def _follow_ids(start: str, following: Mapping[str, str]) -> list[str]:
    """`start`, the id that follows it in `following`, the one after that, and so on; ends before an
    id would come a second time.
    """
    ids = [start]
    while (next_id := following.get(ids[-1], "")) and next_id not in ids:
        ids.append(next_id)
    return ids
