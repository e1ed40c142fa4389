"""How a session comes to digest what was said: what its parts are made of, once they are needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ouro.errors import LimitReached, ModelError, SearchUnavailable
from ouro.memory.backend import MemoryStore
from ouro.memory.index.lookup import Lookup
from ouro.memory.long_term.block import mark_of
from ouro.memory.long_term.briefing import MARK
from ouro.memory.long_term.learning_rules import categories_of
from ouro.memory.long_term.maintenance.background import Digest, DigestParts, LongWork
from ouro.memory.long_term.maintenance.summaries import Summaries, SummaryParts
from ouro.memory.long_term.scope_memory import ScopeMemory
from ouro.memory.side_calls import beside
from ouro.messages import Message, Usage, system
from ouro.session.parts import SessionParts
from ouro.utils.log import log
from ouro.utils.repository import branch_in_note
from ouro.utils.runtime import get_history_dir

if TYPE_CHECKING:
    from ouro.memory.long_term.notes.note import Note

_LIKE = 0.85
"""From this cosine on two notes mean about the same."""
_NEIGHBOURS = 12
Ask = Callable[[list[Message]], Awaitable[str]]


class DigestRules(msgspec.Struct, frozen=True):
    """What the settings and the front end say of it."""

    summaries: bool = True
    by_itself: bool = False
    """Out of band, where a person stays."""
    write: str = "tell"
    half_life_days: float = 30
    categories: Mapping[str, Sequence[str]] = {}


def with_digest(
    parts: SessionParts, store: MemoryStore, scopes: tuple[ScopeMemory, ...], root: Path, rules: DigestRules
) -> SessionParts:
    """The session sums up what was said, merges notes and reads old sessions. Nothing is made or read yet."""
    memory = parts.memory
    busy = parts.learning.busy if parts.learning else asyncio.Lock()
    mark = mark_of(memory.began_with.get(MARK) or memory.session_id)

    def asks(role: str, purpose: str) -> Ask:
        words = beside(parts.models, memory, role, purpose)  # type: ignore[arg-type]  # one of its roles

        async def ask(messages: list[Message]) -> str:
            async with busy:
                return await words(messages)

        return ask

    summaries = Summaries(SummaryParts(memory, store, parts.session_catalog, asks("compact", "summary"), mark))
    has_memory = parts.knowledge is not None and parts.lookup is not None and bool(scopes)
    work = partial(_long_work, parts, store, scopes, root, rules, asks, mark)
    return replace(
        parts,
        digest=Digest(
            DigestParts(
                summaries=summaries if rules.summaries else None,
                work=work if has_memory else None,
                lock=get_history_dir() / "digest.lock",
                price=partial(_price, parts),
                usage=lambda: memory.usage,
                by_itself=rules.by_itself and not memory.read_only,
                is_new=parts.resumed is None,
                silent=rules.write == "silent",
            )
        ),
    )


def _long_work(
    parts: SessionParts,
    store: MemoryStore,
    scopes: tuple[ScopeMemory, ...],
    root: Path,
    rules: DigestRules,
    asks: Callable[[str, str], Ask],
    mark: str,
) -> LongWork:
    from ouro.memory.long_term.capture.learner import Learner, LearnerParts
    from ouro.memory.long_term.maintenance.crystallizer import ORDER, Crystallizer, CrystallizerParts
    from ouro.memory.long_term.maintenance.note_consolidator import MergeParts, NoteConsolidator
    from ouro.memory.sessions.whole_session import read_whole

    knowledge, lookup = parts.knowledge, parts.lookup
    assert knowledge is not None
    assert lookup is not None
    classify = asks("classify", "crystallization")

    async def ask(messages: list[Message]) -> str:
        return await classify([system(messages[0].text + ORDER), *messages[1:]])

    categories = categories_of(rules.categories)
    learner = Learner(
        LearnerParts(
            knowledge=knowledge,
            scopes=scopes,
            lookup=lookup,
            ask=ask,
            root=root,
            cwd=parts.cwd,
            mark=mark,
            categories=categories,
            asks=rules.write == "ask",
            half_life_days=rules.half_life_days,
        )
    )
    histories = {each.scope: each.store.repository for each in scopes}
    merging = MergeParts(
        ask=asks("compact", "consolidation"),
        notebook=learner.notebook,
        histories=histories,
        categories=categories,
        mark=mark,
        alike=_Alike(lookup, scopes),
        root=str(root),
        alone=knowledge.alone,
    )
    reading = CrystallizerParts(
        capture=partial(learner.capture, is_whole=True),
        sessions=parts.session_catalog.here,
        read=partial(read_whole, store),
        history=histories.get("repo") or histories["user"],
        project=parts.memory.project,
        own=parts.memory.session_id,
        branch_in=branch_in_note,
    )
    return LongWork(NoteConsolidator(merging), Crystallizer(reading))


class _Alike:
    """Finds what is close in meaning, where there are vectors; the index is brought up to date first. Blocks."""

    def __init__(self, lookup: Lookup, scopes: Sequence[ScopeMemory]) -> None:
        self._lookup = lookup
        self._scopes = scopes
        self._is_ready = False

    def __call__(self, note: Note) -> Collection[str]:
        from ouro.memory.index.search import SearchFilter

        try:
            search = self._lookup.search()
            if search.vectors is None:
                return ()
            self._prepare()
            hits = search.find(note.text, _NEIGHBOURS, SearchFilter(kinds=("note",), scope=note.scope))
            vector = search.vectors.question(note.text)
            with search.index.reading() as database:
                close = search.vectors.cosines(database, "notes", vector, [hit.place for hit in hits])
        except (ModelError, SearchUnavailable) as error:
            log.warning("notes are compared by words alone: %s", error)
            return ()
        return [hit.id for hit in hits if close.get(hit.place, 0.0) >= _LIKE]

    def _prepare(self) -> None:
        if self._is_ready:
            return
        from ouro.memory.index.index import Sources
        from ouro.memory.index.note_indexer import MemoryFolder, project_of

        stores = [each.store for each in self._scopes]
        folders = (MemoryFolder(each.scope, project_of(each.scope, each.folder), each.folder) for each in stores)
        self._lookup.search().index.follow(Sources(memories=tuple(folders)))
        self._lookup.fill_notes()
        self._is_ready = True


def _price(parts: SessionParts, tokens: int) -> float | None:
    try:
        spec = parts.models.role("classify")[0].spec
    except LimitReached:
        return None
    return spec.prices.cost(Usage(input=tokens)) if spec.prices else None
