"""Learner: what of a conversation becomes notes, and what becomes of notes with time. Made when first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro.errors import NoteError, SearchUnavailable, SecretInMemory
from ouro.memory.index.lookup import Lookup
from ouro.memory.long_term.capture.backlog import Piece
from ouro.memory.long_term.capture.capture import Capture, Captured, CaptureParts, Moment, SaidBefore
from ouro.memory.long_term.capture.request import LONGEST_PART, Spoken
from ouro.memory.long_term.git.values import FileEdit, Scope
from ouro.memory.long_term.manager import LongTermMemoryManager
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.memory.long_term.notes.notebook import Notebook, Written
from ouro.memory.long_term.notes.validity import Anchors, default_branch, has_faded, merged_branches
from ouro.memory.long_term.scope import ScopeMemory
from ouro.memory.long_term.trust.approval import ASKS
from ouro.memory.long_term.trust.proposals import Proposals, by_agent
from ouro.memory.long_term.trust.provenance import Provenance, below
from ouro.messages import Message
from ouro.utils.log import log
from ouro.utils.text import cut

if TYPE_CHECKING:
    from ouro.memory.index.search import Search, SearchFilter
    from ouro.memory.long_term.notes.graph import Graph

_ASKED_BY = 6
"""Of the messages, those by which the nearest notes are looked for."""
FROM_OUTSIDE = "was concluded after material from outside was read"
_SHOWN = 200
"""Characters of a note, where it says why it waits."""


class LearnerParts(msgspec.Struct, frozen=True):
    """What a Learner is made of."""

    knowledge: LongTermMemoryManager
    scopes: tuple[ScopeMemory, ...]
    lookup: Lookup
    ask: Callable[[list[Message]], Awaitable[str]]
    """The classifier. Raises ModelError."""
    root: Path
    """Of the repository that is worked in."""
    cwd: Path
    mark: str
    categories: Mapping[str, Scope]
    asks: bool = False
    """Everything waits for the person."""
    half_life_days: float = 30


class Upkeep(msgspec.Struct, frozen=True):
    """What became of notes with time."""

    faded: tuple[Written, ...] = ()
    """Moved to the archive."""
    shared: tuple[Written, ...] = ()
    """Known to all now, as their branch was merged."""


class Learner:
    """For one session."""

    def __init__(self, parts: LearnerParts) -> None:
        self._parts = parts
        self._scopes = {each.scope: each for each in parts.scopes}
        self._anchors = Anchors(parts.root)
        self.notebook = Notebook(
            {each.scope: each.store for each in parts.scopes},
            latest=self._latest,
            doubted=lambda scope: self._scopes[scope].doubted,
        )

    async def capture(self, piece: Piece, messages: Sequence[Message], moment: Moment, *, is_whole: bool) -> Captured:
        """Keep what is worth it of a piece.

        Args:
            messages: the conversation up to the end of the piece: what came into it from outside.
            is_whole: they are all of it.

        Raises:
            ModelError: the classifier did not answer as it should; nothing was written of what it was asked.
        """
        sources = await asyncio.to_thread(self._sources, messages, is_whole)
        return await Capture(self._capture_parts(moment)).run(piece.spoken, moment, sources)

    async def upkeep(self) -> Upkeep:
        """Put away what has faded, and share what was learned on branches that are merged by now."""
        faded, shared = await asyncio.to_thread(self._due)
        if not faded and not shared:
            return Upkeep()
        return await self._parts.knowledge.alone(lambda: self._kept_up(faded, shared))

    def _sources(self, messages: Sequence[Message], is_whole: bool) -> tuple[str, ...]:
        clean = [each.store.folder for each in self._parts.scopes if each.is_clean]
        return Provenance(messages, below(clean, self._parts.cwd), is_whole=is_whole).sources

    def _capture_parts(self, moment: Moment) -> CaptureParts:
        parts = self._parts
        return CaptureParts(
            ask=parts.ask,
            notebook=self.notebook,
            nearest=self._nearest,
            propose=lambda note, sources: self._propose(note, sources, moment),
            categories=parts.categories,
            mark=parts.mark,
            said_before=lambda scope: SaidBefore(self._scopes[scope].store.repository),
            root=str(parts.root),
            anchors=self._anchors,
            main_branch=lambda: default_branch(parts.root),
            asks=parts.asks,
            alone=parts.knowledge.alone,
        )

    def _nearest(self, spoken: Sequence[Spoken], most: int) -> list[Note]:
        """The latest versions of the notes that come near to what was said, best first."""
        try:
            search = self._search()
            best: dict[str, float] = {}
            for each in [one for one in spoken if one.role == "user"][-_ASKED_BY:]:
                for hit in search.find(each.text[:LONGEST_PART], most, self._notes_here()):
                    best[hit.id] = max(hit.score, best.get(hit.id, 0.0))
            ids = dict.fromkeys(map(self._latest, sorted(best, key=lambda one: -best[one])))
        except SearchUnavailable as error:
            log.warning("capture: the notes that come near are not known: %s", error)
            return []
        return [note for each in ids if (note := self._found(each))][:most]

    def _found(self, note_id: str) -> Note | None:
        try:
            return self.notebook.find(note_id).note
        except NoteError:
            return None  # gone since the index was brought up to date, or it waits for the person

    def _search(self) -> Search:
        """The search, its index brought up to date with the notes. Raises SearchUnavailable."""
        from ouro.memory.index.index import Sources
        from ouro.memory.index.note_indexer import MemoryFolder, project_of

        search = self._parts.lookup.search()
        stores = [each.store for each in self._parts.scopes]
        folders = (MemoryFolder(each.scope, project_of(each.scope, each.folder), each.folder) for each in stores)
        search.index.follow(Sources(memories=tuple(folders)))
        return search

    def _notes_here(self) -> SearchFilter:
        from ouro.memory.index.note_indexer import project_of
        from ouro.memory.index.search import SearchFilter

        repo = self._scopes.get("repo")
        return SearchFilter(
            kinds=("note",), project=project_of("repo", repo.store.folder) if repo else "-", archived=True
        )

    def _latest(self, note_id: str) -> str:
        return self._graph().latest(note_id)

    def _graph(self) -> Graph:
        from ouro.memory.long_term.notes.graph import Graph

        return Graph(self._parts.lookup.search().index)

    def _propose(self, note: Note, sources: Sequence[str], moment: Moment) -> None:
        """Keep what waits for the person. Raises SecretInMemory."""
        store, text = self._scopes[note.scope].store, note_text(note)
        if kind := store.secret_in(text):
            raise SecretInMemory(f"This holds a secret ({kind}) and is not proposed.")
        store.ensure_repo()
        edits = (FileEdit(note.file_name, None, text),)
        said = cut(note.text, _SHOWN)
        reason = f"“{said}” {FROM_OUTSIDE}" if sources else f"{ASKS}: “{said}”"
        Proposals(store.repository).add(
            by_agent(note.scope, edits, reason, sources, moment.session_id, note.turn, note.created_at)
        )

    def _due(self) -> tuple[list[str], list[str]]:
        """The notes that have faded, and those of merged branches. Blocks."""
        if not any(each.loaded.notes for each in self._parts.scopes):
            return [], []
        try:
            index = self._search().index
            with index.reading() as database:
                rows = database.execute(
                    "SELECT note, path, source, confidence, at, branch FROM notes WHERE kind = 'note'"
                    " AND NOT archived AND (source != 'user' OR branch != '')"
                ).fetchall()
        except SearchUnavailable as error:
            log.warning("notes are looked through later: %s", error)
            return [], []
        folders = {str(each.store.folder) for each in self._parts.scopes}
        here = [row for row in rows if str(Path(row[1]).parent) in folders]
        merged = merged_branches(self._parts.root, {row[5] for row in here}, default_branch(self._parts.root))
        shared = [row[0] for row in here if row[5] in merged and self._found(row[0])]
        return [row[0] for row in here if self._has_faded(row)], shared

    def _has_faded(self, row: Sequence[str]) -> bool:
        """By the index first: of 10,000 notes few files are read."""
        now, days = datetime.now(UTC), self._parts.half_life_days
        note_id, _, source, confidence, at, _ = row
        guess = Note(id=note_id, source=source, confidence=float(confidence), updated_at=at)  # type: ignore[arg-type]
        if not has_faded(guess, now, days):
            return False
        found = self._found(note_id)
        return found is not None and has_faded(found, now, days)

    def _kept_up(self, faded: Sequence[str], shared: Sequence[str]) -> Upkeep:
        put_away = self.notebook.archive(faded, "capture") if faded else []
        known = self.notebook.share([each for each in shared if each not in faded], "capture") if shared else []
        return Upkeep(tuple(put_away), tuple(known))
