"""NoteFinder: the notes in the scopes of a session, and what its turns say about their use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro.errors import ModelError, NoteError
from ouro.events import RecalledNote
from ouro.memory.index import Lookup
from ouro.memory.long_term.git.values import LoadedScope, Scope
from ouro.memory.long_term.scope import ScopeMemory
from ouro.messages import Message
from ouro.settings import MemorySettings
from ouro.utils.decoding import from_plain
from ouro.utils.git import git_branch
from ouro.utils.path_encoding import path_text

if TYPE_CHECKING:
    from ouro.memory.long_term.core_line_provenance import CoreRecord
    from ouro.memory.long_term.listing_schedule import ListingSchedule
    from ouro.memory.long_term.notes.note import Note
    from ouro.memory.long_term.notes.notebook import Notebook
    from ouro.memory.long_term.recall.note_question import Candidate
    from ouro.memory.long_term.recall.recall import Recall
    from ouro.memory.long_term.recall.recall_log import RecallLog
    from ouro.memory.long_term.recall.selection import NoteSelection, Recalled, Situation

UPDATE_TIMEOUT = 0.4
"""Seconds for which the index reads changed notes in one turn; the rest is read in later turns."""
_WEIGHT_OF_FILE = 0.5
"""How much a used file counts in the statistics of a note; a turn counts 1. It counts less: that the
file is unchanged shows that the note holds, but not that it was of use.
"""
_MAX_NOTES_ABOUT_COMMANDS = 3
_NO_REPOSITORY = "-"
"""Stands for the project if its memory is off, so that its notes are not found."""


class NoteFinder(msgspec.Struct, eq=False, dict=True):
    """Finds notes in the scopes of a session. Every method but `has_notes` blocks."""

    lookup: Lookup
    scopes: tuple[ScopeMemory, ...]
    root: Path
    cwd: Path
    mark: str
    settings: MemorySettings
    recall_log_path: Path
    changed: frozenset[tuple[Scope, str]] = frozenset()
    """Notes that are not recalled: memory is used as of an earlier time, and they changed after it.
    """
    is_model_local: Callable[[], bool] = lambda: False
    """Whether the local model makes vectors, and no other is configured."""
    listings: ListingSchedule | None = None
    """Lists the folders before a message; None in a session without the manager of memory."""
    _indexed: tuple[str, tuple[LoadedScope, ...]] | None = None
    """The id of the index, and the files with which it was last updated."""

    @property
    def has_notes(self) -> bool:
        """Whether there were any notes when the scopes were last read."""
        return any(scope.loaded.notes for scope in self.scopes)

    def update_index(self) -> None:
        """Index the notes that changed since the last update, as the scopes were read when the turn
        began. If nothing changed, no file is read. What takes longer than `UPDATE_TIMEOUT` is left
        to the next call.
        """
        from ouro.memory.index import Sources

        build_id = self.lookup.search().index.build_id()
        loaded = tuple(scope.loaded for scope in self.scopes)
        if self._indexed is not None:
            indexed_build_id, indexed = self._indexed
            # A scope that was read again is a new object.
            is_same = all(before is now for before, now in zip(indexed, loaded, strict=True))
            if indexed_build_id == build_id and is_same:
                return
        is_complete = self.lookup.update(Sources.of_scopes(self.scopes), UPDATE_TIMEOUT)
        if is_complete:
            self._indexed = build_id, loaded

    def prepare(self) -> None:
        """Index the notes and load the embedding model, so that the next message waits for neither.
        Blocks.
        """
        self.update_index()
        if (vectors := self.lookup.search().vectors) is not None:
            vectors.embedder.prepare()

    def embed(self, text: str) -> bool:
        """Make the vectors of a message and its sentences, so that the search finds them ready.
        Returns False without an embedding model, or if it does not answer.
        """
        from ouro.memory.index import parse_query
        from ouro.memory.long_term.recall.relevance import questions_in

        vectors = self.lookup.search().vectors
        if vectors is None:
            return False
        questions = [parse_query(question).spoken for question in questions_in(text)]
        try:
            return bool(vectors.embed_questions(questions))
        except ModelError:
            return False  # the embedder has logged it

    def find_in_process(self, text: str, linked: Mapping[str, str]) -> list[Candidate] | None:
        """The candidates for a message, as the process for the first message finds them; `linked` as
        in `Situation`. None if it does not run, or has no answer for the files as they were loaded.
        """
        from ouro.memory.index import MemoryFolder, running_question_process
        from ouro.memory.long_term.recall.note_question import (
            Candidate,
            NoteQuestion,
            QuestionForProcess,
        )

        process = running_question_process()
        if process is None or not self.is_model_local():
            return None
        folders = [MemoryFolder.of(scope.store, scope.loaded) for scope in self.scopes]
        states = {path_text(folder.path): folder.state for folder in folders}
        question = NoteQuestion.about(text, self._project, linked, self.settings)
        asked = msgspec.to_builtins(QuestionForProcess(question, states))
        answer = process.find(asked)
        return None if answer is None else from_plain(answer, list[Candidate])

    def find_ids_about_files(self, paths: Sequence[str]) -> list[str]:
        """The ids of the notes about these files; paths are relative to the working folder. A path
        outside of the repository is ignored.
        """
        relative_paths = map(self.make_relative, paths)
        paths_in_repository = [path for path in relative_paths if path]
        if not paths_in_repository:
            return []
        return self.recall.graph.find_anchored_to(paths_in_repository, self._project)

    def find_about_commands(
        self, lines: Sequence[str], sent: frozenset[str], room: int
    ) -> Recalled | None:
        """The newest notes that name a program or a script which these shell lines run, for at most
        `room` tokens and without those whose marks are in `sent`. None if no note names one.
        """
        from ouro.utils.prohibitions import line_names, names_run

        names = frozenset(chain.from_iterable(map(line_names, lines)))
        if not names:
            return None
        ids: list[str] = []
        for note_id, text in self.recall.graph.find_mentioning(names, self._project):
            # The index finds the letters of a name anywhere in a text, also as part of a word.
            if any(names_run(text, line) for line in lines):
                ids.append(note_id)
        if not ids:
            return None
        newest_ids = ids[:_MAX_NOTES_ABOUT_COMMANDS]
        return self.recall.select_about_commands(newest_ids, self.situation(sent), room)

    def make_relative(self, path: str) -> str:
        """Make a path, which is relative to the working folder or absolute, relative to the root of
        the repository. Links are followed. Empty if the path is outside of the repository.
        """
        real_path = Path(os.path.realpath(self.cwd / path))
        real_root = self.root.resolve()
        if not real_path.is_relative_to(real_root):
            return ""
        return path_text(real_path.relative_to(real_root))

    def find_dead_ends(self) -> list[Note]:
        """The notes about what was tried in this repository, failed and was undone, newest first."""
        from ouro.memory.long_term.notes.note import DEAD_ENDS

        self.update_index()
        notes: list[Note] = []
        for note_id in self.recall.graph.find_in_category(DEAD_ENDS, self._project):
            with suppress(NoteError):  # it was deleted since the index was updated
                notes.append(self.notebook.find(note_id).note)
        return notes

    def select_repeated(self, note_ids: Sequence[str], room: int) -> Recalled:
        """Select which of these dead ends are sent, at most `room` tokens together. The caller has
        left out those that were sent before in this session: so no marks of sent notes are needed.
        """
        none_sent: frozenset[str] = frozenset()
        return self.recall.select_repeated(note_ids, self.situation(none_sent), room)

    def select_about_files(
        self, note_ids: Sequence[str], sent: frozenset[str], room: int
    ) -> Recalled:
        """Select which of these notes about files are sent: at most `room` tokens, and without
        those whose marks are in `sent`. Each counts as half a turn in the statistics of use, and as
        used if its files are unchanged.
        """
        from ouro.memory.long_term.recall.recall_log import RecallCounts

        recalled = self.recall.select_about_files(note_ids, self.situation(sent), room)
        if loaded := [item for item in recalled.items if item.state == "loaded"]:
            unchanged = [item.id for item in loaded if "stale" not in item.reason]
            judged = dict.fromkeys([item.id for item in loaded], _WEIGHT_OF_FILE)
            used = dict.fromkeys(unchanged, _WEIGHT_OF_FILE)
            self.recall_log.add(RecallCounts(judged=judged, used=used))
        return recalled

    def count_use_of_notes(self, notes: Sequence[RecalledNote], turn: Sequence[Message]) -> None:
        """Count which of the notes that were sent in a turn its answers used. The first message of
        the turn is the prompt.
        """
        if not notes:
            return
        from ouro.memory.long_term.recall.recall import ABOUT_FILE
        from ouro.memory.long_term.recall.relevance import is_used

        prompt, answer_text = turn[0].text, _text_of_answers(turn)
        used = {
            note.id
            for note in notes
            if is_used(note.text, prompt, answer_text, is_of_file=ABOUT_FILE in note.reason)
        }
        self._count_use({note.id: note.text for note in notes}, used, turn)

    def count_use_of_core(self, turn: Sequence[Message]) -> None:
        """Count which core lines the answers of a turn used: all are sent with each request. The
        first message of the turn is the prompt.
        """
        records = self._core_records()
        if not records:
            return
        from ouro.memory.long_term.recall.relevance import is_used

        prompt, answer_text = turn[0].text, _text_of_answers(turn)
        used = {record.id for record in records if is_used(record.text, prompt, answer_text)}
        self._count_use({record.id: record.text for record in records}, used, turn)

    def find_broken_rules(
        self, notes: Sequence[RecalledNote], turn: Sequence[Message]
    ) -> dict[str, str]:
        """The remembered rules that a turn broke: the text of each, by the id of its entry."""
        from ouro.memory.long_term.recall.obedience import broken_among

        rules = {record.id: record.text for record in self._core_records()}
        return broken_among(rules | {note.id: note.text for note in notes}, turn)

    def _core_records(self) -> list[CoreRecord]:
        """The records of the core lines of all scopes."""
        from ouro.memory.long_term.core_line_provenance import core_records

        return [*chain.from_iterable(core_records(scope).values() for scope in self.scopes)]

    def _count_use(self, texts: Mapping[str, str], used: set[str], turn: Sequence[Message]) -> None:
        """Add one turn to the counts of the entries that were sent in it; `texts` has the text of
        each by its id, and `used` the ids of those that it used.
        """
        from ouro.memory.long_term.recall.obedience import count_turn

        self.recall_log.add(count_turn(texts, used, turn))

    @cached_property
    def recall_log(self) -> RecallLog:
        from ouro.memory.long_term.recall.recall_log import RecallLog

        return RecallLog(self.recall_log_path)

    @cached_property
    def notebook(self) -> Notebook:
        from ouro.memory.long_term.notes.notebook import Notebook

        return Notebook({scope.name: scope.store for scope in self.scopes})

    @cached_property
    def selection(self) -> NoteSelection:
        from ouro.memory.long_term.notes.validity import Anchors
        from ouro.memory.long_term.recall.selection import NoteSelection

        return NoteSelection(
            self.notebook,
            self.mark,
            self.settings,
            anchors=Anchors(self.root),
            usefulness=self.recall_log.usefulness,
        )

    @cached_property
    def recall(self) -> Recall:
        from ouro.memory.long_term.recall.recall import Recall

        return Recall(self.lookup.search(), self.selection)

    @property
    def _project(self) -> str:
        """The repository whose notes are found. If its memory is off, a repository that does not
        exist, so that none are found.
        """
        from ouro.memory.index import project_of

        projects = (project_of(scope.store.folder) for scope in self.scopes if scope.name == "repo")
        return next(projects, _NO_REPOSITORY)

    def _is_as_loaded(self, scope_name: str, name: str) -> bool:
        """Whether a file of memory is still as it was when its scope was last read, or approved.
        False for a scope that this session has not: nobody has approved its files here.
        """
        for scope in self.scopes:
            if scope.name == scope_name:
                return scope.store.is_as_loaded(name, scope.loaded)
        return False

    def find_linked(self, text: str) -> dict[str, str]:
        """The notes that are linked to core lines which a text is about: id -> the line."""
        from ouro.memory.long_term.line_links import linked_notes

        return linked_notes(self.scopes, text)

    def situation(self, sent: frozenset[str], linked: Mapping[str, str] | None = None) -> Situation:
        """What decides now which notes are sent, beside their relevance.

        Args:
            sent: the marks of notes that are not sent again.
            linked: of `find_linked`.
        """
        from ouro.memory.long_term.notes.merged_branches import find_merged_branches
        from ouro.memory.long_term.recall.selection import Situation

        find_merged = partial(find_merged_branches, self.root)
        untrusted: set[tuple[Scope, str]] = set()
        for scope in self.scopes:
            untrusted.update((scope.name, name) for name in scope.untrusted)
        return Situation(
            project=self._project,
            branch=git_branch(self.root),
            merged=find_merged,
            sent=sent,
            untrusted=frozenset(untrusted),
            is_as_loaded=self._is_as_loaded,
            linked=linked or {},
            changed=self.changed,
        )


def _text_of_answers(turn: Sequence[Message]) -> str:
    """The answers of a turn, and the arguments of their tool calls, in one text."""
    answers = [message for message in turn if message.role == "assistant"]
    texts = [answer.text for answer in answers]
    for answer in answers:
        for call in answer.tool_calls:
            texts += map(str, call.arguments.values())
    return " ".join(texts)
