"""Browsing: long-term memory as a person looks through it and puts it right, whichever front end shows it."""

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
from ouro.utils.repository import find_root

if TYPE_CHECKING:
    from ouro.events import NotesRecalled
    from ouro.memory.long_term.git.values import UndoResult
    from ouro.memory.long_term.overview import Listed, NoteDetails, Overview
    from ouro.memory.sessions.session_catalog import SessionCatalog

_Told = TypeVar("_Told")


class Browsing:
    """Of one session.

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
        """Of the session that is open here."""
        return self._memory.session_id

    @property
    def recalled(self) -> NotesRecalled:
        """What recall considered for the last message, and what became of it."""
        return self._memory.recalled

    @property
    def receipt(self) -> MemoryReceipt:
        """What of the core stands in every prompt of this session."""
        return self._known.receipt()

    async def ask(self, question: Callable[[Timeline], _Told]) -> _Told:
        """Ask the history, in a thread."""
        return await asyncio.to_thread(lambda: question(self._known.timeline()))

    async def all(self) -> list[Listed]:
        """Notes and core lines, the latest first.

        Raises:
            SearchUnavailable: the index cannot be read just now.
        """
        return await asyncio.to_thread(lambda: self._list().all())

    async def details(self, note_id: str) -> NoteDetails:
        """All there is to tell of a note.

        Raises:
            NoteError: there is none of that id.
        """
        return await asyncio.to_thread(lambda: self._list().details(note_id))

    async def turn(self, session_id: str, turn: int, message: int = 0) -> TurnEvidence:
        """The words of a turn that taught something.

        Raises:
            SessionNotFound: its session is not there any more.
            UsageError: no turn taught it.
        """
        if not session_id or not turn:
            raise UsageError("No turn taught it: it was written by hand, or outside of a session.")
        return await self._session_catalog.turn(session_id, turn, message)

    async def proposals(self) -> tuple[Proposal, ...]:
        """What waits for the person."""
        return await asyncio.to_thread(self._known.proposals)

    async def accept(self, proposal: str) -> None:
        """Let it take effect."""
        await self._known.accept(proposal)

    async def reject(self, proposal: str) -> None:
        """Drop it."""
        await self._known.reject(proposal)

    async def take_back(self, commit: str, hunk: int = 0) -> UndoResult:
        """Take back a commit with all of its turn, or one change of it; gives what was done, and what could not be.

        Raises:
            UsageError: no such commit, or nothing of it is left.
        """
        found = await self.ask(lambda timeline: timeline.find(commit))
        return await self._known.undo(found.commit.id, hunk)

    async def open_file(self, named: str) -> OpenedFile:
        """The file of a note, or `user/facts.md`, as it is edited.

        Raises:
            UsageError: there is none, or it may not be read.
        """
        return await self._memory.at_desk(lambda desk: open_file(desk, named))

    async def save(self, opened: OpenedFile, after: str) -> SavedFile:
        """Keep a file as the person has edited it.

        Raises:
            UsageError: it could not be kept; the hint says where the person's text lies.
        """
        return await self._memory.at_desk(lambda desk: save_file(desk, opened, after))

    async def confirm(self, note_id: str) -> str:
        """Say that a note still holds, also of the files it speaks of as they are now; gives the commit.

        One from the archive comes back.

        Raises:
            UsageError: there is no such note, or nobody has vouched for what its file holds.
        """
        return await self._memory.at_desk(lambda desk: confirm_note(desk, find_entry(desk, note_id)))

    async def archive(self, note_id: str) -> str:
        """Put a note away; gives the commit.

        Raises:
            UsageError: as `confirm`.
        """
        return await self._memory.at_desk(lambda desk: archive_note(desk, find_entry(desk, note_id)))

    def _list(self) -> Overview:
        from ouro.memory.long_term.overview import Overview  # SQLite, for who looks

        if self._listing is None:
            lookup = self._memory.lookup
            if lookup is None:
                raise UsageError("There is no index of memory here.")
            index, stores = lookup.search().index, self._known.timeline().stores
            root, half_life = find_root(self._known.cwd), self._memory.half_life_days
            self._listing = Overview(index, stores, root, self._doubted, half_life)
        return self._listing

    def _doubted(self) -> frozenset[tuple[str, str]]:
        """The files, by scope and name, that hold what nobody has vouched for."""
        outside = (each for each in self._known.proposals() if each.origin == "outside")
        return frozenset((each.scope, edit.name) for each in outside for edit in each.edits)
