"""Browsing: long-term memory as a person looks through it and puts it right, whichever front end shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ouro.errors import UsageError
from ouro.memory.long_term.anchors import Anchors
from ouro.memory.long_term.chronicle import Chronicle, PlannedUndo
from ouro.memory.long_term.note import note_text, parse_note
from ouro.memory.long_term.notebook import Notebook, Written
from ouro.memory.long_term.proposals import Proposal
from ouro.memory.long_term.scope_memory import Moment, ScopeMemory
from ouro.memory.long_term.values import Scope
from ouro.memory.said_turn import SaidTurn
from ouro.safety.trust import find_root

if TYPE_CHECKING:
    from ouro.events import CoreChanged
    from ouro.memory.long_term.overview import Listed, NoteDetails, Overview
    from ouro.session.session import Session

_Told = TypeVar("_Told")
_NotesWork = Callable[[Notebook], Sequence[Written]]


class Browsing:
    """Of one session.

    Raises:
        UsageError: memory is off here.
    """

    def __init__(self, session: Session) -> None:
        if session.knowledge is None:
            raise UsageError("Memory is off here.", "By `memory.enabled`, --no-memory or --ephemeral.")
        self._session = session
        self._known = session.knowledge
        self._listing: Overview | None = None

    @property
    def session_id(self) -> str:
        """Of the session that is open here."""
        return self._session.id

    async def ask(self, question: Callable[[Chronicle], _Told]) -> _Told:
        """Ask the history, in a thread."""
        return await asyncio.to_thread(lambda: question(self._known.chronicle()))

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

    async def turn(self, session_id: str, turn: int) -> SaidTurn:
        """The words of a turn that taught something.

        Raises:
            SessionNotFound: its session is not there any more.
            UsageError: no turn taught it.
        """
        if not session_id or not turn:
            raise UsageError("No turn taught it: it was written by hand, or outside of a session.")
        return await asyncio.to_thread(self._session.shelf.turn, session_id, turn)

    async def proposals(self) -> tuple[Proposal, ...]:
        """What waits for the person."""
        return await asyncio.to_thread(self._known.proposals)

    async def accept(self, proposal: str) -> None:
        """Let it take effect."""
        await self._known.accept(proposal)

    async def reject(self, proposal: str) -> None:
        """Drop it."""
        await self._known.reject(proposal)

    async def take_back(self, commit: str, hunk: int = 0) -> PlannedUndo:
        """Take back a commit, or one change of it; gives what was done, and what could not be.

        Raises:
            UsageError: no such commit, or nothing of it is left.
        """
        chronicle = self._known.chronicle()

        def act(scopes: tuple[ScopeMemory, ...], moment: Moment) -> tuple[PlannedUndo, list[CoreChanged]]:
            planned = chronicle.plan_undo(commit, hunk)
            if not planned.edits:
                raise UsageError("Nothing of that is left to take back: its lines have changed since.")
            scope = next(each for each in scopes if each.scope == planned.scope)
            changes = {edit.name: edit.after for edit in planned.edits}
            return planned, scope.write(changes, f"Undo: {planned.commit.subject}", moment, "undo")

        return await self._known.by_hand(act)

    async def note_text(self, note_id: str) -> str:
        """The file of a note, as it is edited."""
        return await self._with_notes(lambda book: note_text(book.find(note_id).note))

    async def rewrite(self, note_id: str, text: str) -> str:
        """Keep the file of a note as the person has edited it; gives the commit.

        Raises:
            NoteError: there is no such note.
            UsageError: its front matter cannot be read.
        """
        parsed = parse_note(f"{note_id}.md", text)
        if parsed.complaints:
            raise UsageError(f"The note is left as it was: {'; '.join(parsed.complaints)}.")
        return await self._write(lambda book: [book.rewrite(parsed.note, "person")])

    async def core_text(self, scope: Scope, name: str) -> str:
        """A core file, as it is edited."""
        path = self._known.folder(scope) / name
        return await asyncio.to_thread(lambda: path.read_text(encoding="utf-8") if path.is_file() else "")

    async def write_core(self, scope: Scope, name: str, text: str) -> None:
        """Keep a core file as the person has edited it."""
        await self._known.write(scope, {name: f"{text.rstrip()}\n" if text.strip() else None}, f"Edit {name}")

    async def confirm(self, note_id: str) -> str:
        """Say that a note still holds, also of the files it speaks of as they are now; gives the commit."""
        anchors = Anchors(find_root(self._session.cwd))
        return await self._write(
            lambda book: [book.confirm(note_id, "person", anchors=lambda note: anchors.of(note.entities))]
        )

    async def archive(self, note_id: str) -> str:
        """Put a note away; gives the commit."""
        return await self._write(lambda book: book.archive([note_id], "person"))

    async def restore(self, note_id: str) -> str:
        """Take a note out of the archive; gives the commit."""
        return await self._write(lambda book: [book.restore(note_id, "person")])

    async def _write(self, work: _NotesWork) -> str:
        written = await self._with_notes(work)
        return written[-1].commit if written else ""

    async def _with_notes(self, work: Callable[[Notebook], _Told]) -> _Told:
        def act(scopes: tuple[ScopeMemory, ...], _moment: Moment) -> tuple[_Told, list[CoreChanged]]:
            doubted = {each.scope: each.doubted for each in scopes}  # a change in one of them would vouch for it
            book = Notebook({each.scope: each.store for each in scopes}, doubted=lambda scope: doubted[scope])
            return work(book), []

        return await self._known.by_hand(act)

    def _list(self) -> Overview:
        from ouro.memory.long_term.overview import Overview  # SQLite, for who looks

        if self._listing is None:
            lookup = self._session.lookup
            if lookup is None:
                raise UsageError("There is no index of memory here.")
            stores = self._known.chronicle().stores
            self._listing = Overview(lookup.search().index, stores, find_root(self._session.cwd))
        return self._listing
