"""SessionNotes: the notes that one session may read and write, with their index."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ouro.errors import ModelError, NoteError, OuroError, SearchUnavailable, UsageError
from ouro.events import CoreChanged
from ouro.memory.index import (
    Graph,
    Lookup,
    MemoryFolder,
    Search,
    SearchFilter,
    Sources,
    project_of,
    searched_text,
)
from ouro.memory.long_term.capture.operations import Certainty
from ouro.memory.long_term.capture.session_parts import MAX_MESSAGE, Spoken
from ouro.memory.long_term.core_line_provenance import carry_records
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entry_lookup import core_entries, find_entry, note_entries
from ouro.memory.long_term.git.files import ARCHIVE
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import NO_TURN, FileEdit, Scope, TurnRef
from ouro.memory.long_term.line_links import relate_lines
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.memory.long_term.notes.notebook import Notebook, WrittenNote
from ouro.memory.long_term.notes.validity import (
    Anchors,
    has_decayed,
    is_tentative_expired,
    may_be_tentative,
)
from ouro.memory.long_term.placement import note_category
from ouro.memory.long_term.remember import keep_in_core, make_line_edit
from ouro.memory.long_term.scope import ScopeMemory
from ouro.memory.long_term.trust.approval import ASKS
from ouro.memory.long_term.trust.change_descriptions import change_of
from ouro.memory.long_term.trust.provenance import Provenance
from ouro.messages import Message
from ouro.utils.log import log
from ouro.utils.path_encoding import path_text
from ouro.utils.text import cut

FROM_OUTSIDE = "was concluded after material from outside was read"
_MAX_QUERIES = 6
"""The number of the user's latest messages that are used to search for the nearest notes."""
_REASON_IF_DOUBTFUL = "you may only have quoted, drafted or considered it"
_REASON_WIDTH = 200
_MIN_SIMILARITY = 0.85
"""The similarity of vectors (0 to 1) from which on two notes mean about the same."""
_MAX_SIMILAR = 12
_NO_REPOSITORY = "-"
"""Stands for the project if its memory is off, so that no project's notes are found."""


class Contradiction(msgspec.Struct, frozen=True):
    """A core line, and a later statement that contradicts it. The change of the line is pending."""

    line: Note
    note: Note
    file: str
    pending: CoreChanged


class OutdatedNotes(NamedTuple):
    """The ids of notes that maintenance changes."""

    to_archive: list[str]
    """Nothing has confirmed them for long."""
    to_share: list[str]
    """Their branch is merged."""


class SessionNotes:
    """The notes and core lines that one session or command reads and writes. `cwd` is its folder,
    `root` that of the repository. Every method blocks.
    """

    def __init__(
        self,
        scopes: Sequence[ScopeMemory],
        lookup: Lookup,
        root: Path,
        cwd: Path,
        half_life_days: float,
    ) -> None:
        self.root = root
        self.anchors = Anchors(root)
        self._half_life = half_life_days
        self._scopes = {scope.name: scope for scope in scopes}
        self._lookup = lookup
        self._cwd = cwd
        self._has_all_vectors = False
        """The vectors of all notes were made once."""
        stores = {scope.name: scope.store for scope in scopes}
        self.notebook = Notebook(
            stores,
            latest=self._latest_version,
            anchors=self.anchors,
            untrusted=lambda scope: self._scopes[scope].untrusted,
        )

    def main_branch(self) -> str:
        """The branch that work is merged into; empty if it is not known."""
        from ouro.memory.long_term.notes.merged_branches import find_default_branch

        return find_default_branch(self.root)

    def repository(self, scope: Scope) -> GitRepository:
        """The git history of a scope, with ouro's records about it."""
        return self._scopes[scope].store.repository

    def find_outside_sources(
        self, messages: Sequence[Message], *, is_whole: bool
    ) -> tuple[str, ...]:
        """What came into the session from outside, by its messages: texts for the user, empty if
        nothing did. `is_whole`: these are all messages of the session.
        """
        clean_folders = [scope.store.folder for scope in self._scopes.values() if scope.is_clean]
        return Provenance(messages, clean_folders, self._cwd, is_whole=is_whole).sources

    def find_nearest(self, spoken: Sequence[Spoken], count: int) -> list[Note]:
        """The at most `count` notes nearest to the last messages of the user, best first, each in
        its latest version. Archived notes are found, too. Empty, with a warning, if the index
        cannot be used.
        """
        repo = self._scopes.get("repo")
        project = project_of(repo.store.folder) if repo else _NO_REPOSITORY
        filter_of_project = SearchFilter(kinds=("note",), project=project, archived=True)
        own_messages = [message for message in spoken if message.role == "user"]
        scores: dict[str, float] = {}
        try:
            search = self._updated_search()
            for message in own_messages[-_MAX_QUERIES:]:
                for hit in search.find(message.text[:MAX_MESSAGE], count, filter_of_project):
                    scores[hit.id] = max(hit.score, scores.get(hit.id, 0.0))
            found_ids = sorted(scores, key=lambda note_id: -scores[note_id])
            latest_ids = dict.fromkeys(map(self._latest_version, found_ids))
        except SearchUnavailable as error:
            log.warning("capture: the nearest notes are not known: %s", error)
            return []
        return [note for note_id in latest_ids if (note := self._find_note(note_id))][:count]

    def find_alike(self, note: Note) -> Collection[str]:
        """The ids of the notes in the scope of a note that mean about the same. The note itself may
        be among them. Empty if no model makes vectors: then notes are compared by words only.
        """
        try:
            search = self._updated_search()
            if not self._has_all_vectors:
                self._lookup.fill_notes()
                self._has_all_vectors = True
            hits = search.nearest_notes(
                [searched_text(note.text, note.search_words)],
                _MAX_SIMILAR,
                [SearchFilter(kinds=("note",), scope=note.scope)],
            )
        except (ModelError, SearchUnavailable) as error:
            log.warning("notes are compared by words only: %s", error)
            return ()
        return [hit.id for hit in hits if hit.score >= _MIN_SIMILARITY]

    def propose(self, note: Note, sources: Sequence[str], certainty: Certainty = "stated") -> None:
        """Store a new note as a pending proposal. The user sees one reason with it: text from
        outside (`sources`) came into the session before; else the note is doubtful; else the user
        wants to be asked. Raises SecretInMemory.
        """
        edit = FileEdit(note.file_name, before=None, after=note_text(note))
        quote = cut(note.text, _REASON_WIDTH)
        if sources:
            reason = f"“{quote}” {FROM_OUTSIDE}"
        elif certainty == "doubtful":
            reason = f"{_REASON_IF_DOUBTFUL}: “{quote}”"
        else:
            reason = f"{ASKS}: “{quote}”"
        self._propose(note, edit, reason, sources)

    def propose_instead(self, line: Note, note: Note, sources: Sequence[str]) -> Contradiction:
        """Store a pending proposal that the text of a note replaces the core line which it
        contradicts. Raises SecretInMemory, and UsageError if the line is gone.
        """
        editor = self._editor(TurnRef(note.session_id, note.turn))
        edit = make_line_edit(editor, find_entry(editor, line.id), note.text)
        note_in_scope = replace(note, scope=line.scope)
        reason = "it contradicts what is remembered"
        proposal_id = self._propose(note_in_scope, edit, reason, sources)
        pending = change_of(line.scope, [edit], "agent", proposal=proposal_id)
        return Contradiction(line, note=note_in_scope, file=edit.name, pending=pending)

    def _propose(self, note: Note, edit: FileEdit, reason: str, sources: Sequence[str]) -> str:
        """Store `edit` as a pending proposal in the scope and for the turn of the note; returns the
        id of the proposal. Raises SecretInMemory.
        """
        scope = self._scopes[note.scope]
        scope.store.demand_no_secret([edit.after])
        return scope.propose([edit], reason, sources, TurnRef(note.session_id, note.turn)).id

    def core_lines(self) -> list[Note]:
        """The lines of the core as notes. The id of such a note is the id of the line."""
        return [
            Note(
                id=line.id,
                text=line.text,
                scope=line.scope,
                category=note_category(line.text, line.category, line.scope),
                created_at=line.at,
            )
            for line in core_entries(self._editor(NO_TURN))
        ]

    def relate_core(self) -> None:
        """Give moved lines their record, and link the core lines to the notes on their subjects."""
        carry_records([*self._scopes.values()])
        if any(scope.loaded.notes for scope in self._scopes.values()):
            notes = note_entries(self._editor(NO_TURN))
            for scope in self._scopes.values():
                relate_lines(scope, notes)

    def keep_in_core(
        self, note: Note, statement: str, message: int, corrected: str, *, is_sure: bool
    ) -> WrittenNote | None:
        """Write a statement into the core if it belongs there. Returns None, and writes nothing, if
        it does not belong there, or if the core has unapproved changes.

        Args:
            note: the statement as a model wrote it.
            statement: the words of the user.
            message: the number of the message in which they said it.
            corrected: the text of the core line that it replaces; empty if there is none.
            is_sure: the subjects of both were compared: no common word is needed.
        """
        try:
            editor = self._editor(TurnRef(note.session_id, note.turn, message))
            return keep_in_core(editor, note, statement, corrected, is_sure=is_sure)
        except UsageError as error:
            log.info("capture: a note, not a core line: %s", error)
            return None

    def _editor(self, moment: TurnRef) -> MemoryEditor:
        """An editor of memory for one action in the turn `moment`."""
        return MemoryEditor(
            tuple(self._scopes.values()),
            index=lambda: self._lookup.search().index,  # opened only if the action needs it
            moment=moment,
            worktree=self.root,
        )

    def find_outdated(self) -> OutdatedNotes:
        """Find the notes that maintenance changes; none if the index cannot be used."""
        notes = self._list_notes_in_use()
        if not notes:
            return OutdatedNotes([], [])
        from ouro.memory.long_term.notes.merged_branches import find_merged_branches

        decayed_ids = self._find_decayed(notes)
        branches = find_merged_branches(self.root, {note.branch for note in notes if note.branch})
        merged_ids: list[str] = []
        for note in notes:
            if note.branch not in branches or note.id in decayed_ids:
                continue
            # The index may be older than the files: the note may be gone.
            if self._find_note(note.id):
                merged_ids.append(note.id)
        return OutdatedNotes(decayed_ids, merged_ids)

    def _find_decayed(self, notes: Iterable[Note]) -> list[str]:
        """The ids of the notes that nothing confirmed for too long. `notes` are from the index; the
        file is read only of those that may be among them: few, even of 10,000 notes.
        """
        now, half_life = datetime.now(UTC), self._half_life
        decayed = []
        for note in notes:
            if has_decayed(note, now, half_life) or may_be_tentative(note):
                # The index does not hold when a note was confirmed, or whether it is tentative.
                current = self._find_note(note.id)
                if current is not None and _is_to_archive(current, now, half_life):
                    decayed.append(current.id)
        return decayed

    def _list_notes_in_use(self) -> list[Note]:
        """The notes in the index outside of the archive; none if the index cannot be used."""
        if not any(scope.loaded.notes for scope in self._scopes.values()):
            return []
        notes = []
        try:
            graph = Graph(self._updated_search().index)
            for scope in self._scopes.values():
                for path, note in graph.notes(MemoryFolder.of(scope.store)):
                    if Path(path).parent.name != ARCHIVE:
                        notes.append(note)
        except SearchUnavailable as error:  # to read the files of all notes would take too long
            log.warning("notes are checked for age later: %s", error)
            return []
        return notes

    def confirm_tentative_notes(
        self, messages: Sequence[Message], turn: TurnRef
    ) -> list[WrittenNote]:
        """Confirm the tentative notes about the files that the tool calls of a turn named, because
        its checks passed. Notes that were made in this turn itself are left as they are. One that
        cannot be confirmed is logged, and the next one is confirmed.
        """
        names = {f"file:{path}" for path in _paths_in(messages, self._cwd, self.root)}
        try:
            ids = Graph(self._updated_search().index).find_naming(names)
        except SearchUnavailable as error:
            log.warning("tentative notes are not confirmed: %s", error)
            return []
        notes = [note for note in map(self._find_note, ids) if note and note.tentative]
        this_turn = (turn.session, turn.turn)
        trailers = turn.trailers("capture")
        confirmed: list[WrittenNote] = []
        for note in notes:
            if (note.session_id, note.turn) == this_turn:
                continue
            try:
                confirmed.append(
                    self.notebook.confirm(note.id, "capture", trailers, is_checked=True)
                )
            except (OuroError, OSError) as error:  # it may have been deleted meanwhile
                log.warning("the tentative note %s is not confirmed: %s", note.id, error)
        return confirmed

    def _find_note(self, note_id: str) -> Note | None:
        """The note of that id; None if it was deleted since the index was updated, or is not
        approved.
        """
        try:
            return self.notebook.find(note_id).note
        except NoteError:
            return None

    def _updated_search(self) -> Search:
        """The search, after its index was updated with the notes. Raises SearchUnavailable."""
        search = self._lookup.search()
        search.index.update(Sources.of_notes(scope.store for scope in self._scopes.values()))
        return search

    def _latest_version(self, note_id: str) -> str:
        """The id of the newest version of a note. Raises SearchUnavailable."""
        return Graph(self._lookup.search().index).find_latest([note_id])[note_id]


def _is_to_archive(note: Note, now: datetime, half_life: float) -> bool:
    return has_decayed(note, now, half_life) or is_tentative_expired(note, now)


def _paths_in(messages: Sequence[Message], cwd: Path, root: Path) -> set[str]:
    """The files in `root` that the tool calls in these messages named. Each has two names in the
    result: its path in the repository, and its last part, because a note may name it either way.
    """
    paths: set[str] = set()
    for call in chain.from_iterable(message.tool_calls for message in messages):
        argument = call.arguments.get("path")
        if not isinstance(argument, str):
            continue
        path = (cwd / argument).resolve()
        if path.is_relative_to(root.resolve()):
            paths |= {path_text(path.relative_to(root.resolve())), path.name}
    return paths
