"""Browsing: read and correct long-term memory, for any front end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ouro.errors import UsageError
from ouro.memory.long_term.entries import find_entry
from ouro.memory.long_term.evidence import TurnEvidence
from ouro.memory.long_term.receipt import MemoryReceipt
from ouro.memory.long_term.remember import OpenedFile, SavedFile, archive_note, confirm_note, open_file, save_file
from ouro.memory.long_term.session_memory import SessionMemory
from ouro.memory.long_term.timeline import Timeline
from ouro.memory.long_term.trust.proposals import Proposal
from ouro.utils.git import find_root

if TYPE_CHECKING:
    from ouro.events import NotesRecalled
    from ouro.memory.long_term.git.values import UndoResult
    from ouro.memory.long_term.overview import ListedEntry, NoteDetails, Overview
    from ouro.memory.sessions.session_catalog import SessionCatalog

_Answer = TypeVar("_Answer")


class Browsing:
    """Long-term memory of one session, read and corrected by the user.

    Raises:
        UsageError: memory is off here.
    """

    def __init__(self, memory: SessionMemory, session_catalog: SessionCatalog) -> None:
        self._memory = memory
        self._known = memory.required()
        self._session_catalog = session_catalog
        self._listing: Overview | None = None

    @property
    def session_id(self) -> str:
        return self._memory.session_id

    @property
    def recalled(self) -> NotesRecalled:
        """What recall considered for the last message, and the result."""
        return self._memory.recalled

    @property
    def receipt(self) -> MemoryReceipt:
        """Which core entries are in every prompt of this session."""
        return self._known.receipt()

    async def ask(self, question: Callable[[Timeline], _Answer]) -> _Answer:
        return await asyncio.to_thread(lambda: question(self._known.timeline()))

    async def all(self) -> list[ListedEntry]:
        """Notes and core lines, the latest first.

        Raises:
            SearchUnavailable: the index cannot be read.
        """
        return await asyncio.to_thread(lambda: self._list().all())

    async def details(self, note_id: str) -> NoteDetails:
        """A note with its history, links and anchors.

        Raises:
            NoteError: there is no note with that id.
        """
        return await asyncio.to_thread(lambda: self._list().details(note_id))

    async def turn(self, session_id: str, turn: int, message: int = 0) -> TurnEvidence:
        """The turn that a memory came from.

        Raises:
            SessionNotFound: its session does not exist any more.
            UsageError: it did not come from a turn.
        """
        if not session_id or not turn:
            raise UsageError("It did not come from a turn: it was written by hand, or outside of a session.")
        return await self._session_catalog.turn(session_id, turn, message)

    async def proposals(self) -> tuple[Proposal, ...]:
        return await asyncio.to_thread(self._known.proposals)

    async def accept(self, proposal: str) -> None:
        await self._known.accept(proposal)

    async def reject(self, proposal: str) -> None:
        await self._known.reject(proposal)

    async def undo(self, commit: str, hunk: int = 0) -> UndoResult:
        """Undo a commit with all of its turn, or one hunk of it.

        Raises:
            UsageError: there is no such commit, or nothing left to undo.
        """
        found = await self.ask(lambda timeline: timeline.find(commit))
        return await self._known.undo(found.commit.id, hunk)

    async def open_file(self, named: str) -> OpenedFile:
        """Open the file of a note, or a core file such as `user/facts.md`, for editing.

        Raises:
            UsageError: there is none, or it may not be read.
        """
        return await self._memory.with_editor(lambda editor: open_file(editor, named))

    async def save(self, opened: OpenedFile, after: str) -> SavedFile:
        """Save a file that the user edited.

        Raises:
            UsageError: it could not be saved; the hint says where the user's text is.
        """
        return await self._memory.with_editor(lambda editor: save_file(editor, opened, after))

    async def confirm(self, note_id: str) -> str:
        """Confirm a note for the current state of the files it names; returns the commit.

        An archived note is restored.

        Raises:
            UsageError: there is no such note, or its file has unapproved changes.
        """
        return await self._memory.with_editor(lambda editor: confirm_note(editor, find_entry(editor, note_id)))

    async def archive(self, note_id: str) -> str:
        """Archive a note; returns the commit.

        Raises:
            UsageError: as `confirm`.
        """
        return await self._memory.with_editor(lambda editor: archive_note(editor, find_entry(editor, note_id)))

    def _list(self) -> Overview:
        from ouro.memory.long_term.overview import Overview  # loads SQLite

        if self._listing is None:
            lookup = self._memory.lookup
            if lookup is None:
                raise UsageError("There is no search index of memory in this session.")
            index, stores = lookup.search().index, self._known.timeline().stores
            root, half_life = find_root(self._known.cwd), self._memory.half_life_days
            self._listing = Overview(index, stores, root, self._untrusted, half_life)
        return self._listing

    def _untrusted(self) -> frozenset[tuple[str, str]]:
        """Scope and name of the files with unapproved changes."""
        foreign = (proposal for proposal in self._known.proposals() if proposal.origin == "outside")
        return frozenset((proposal.scope, edit.name) for proposal in foreign for edit in proposal.edits)
