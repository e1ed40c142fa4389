"""SessionShelf: the sessions that are kept: found, looked into, named, put away. Opens none for good."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from ouro.errors import SearchUnavailable
from ouro.memory.backend import (
    CostRecord,
    DailyUsage,
    MemoryStore,
    MessageRecord,
    Progress,
    Record,
    SessionInfo,
    SummaryRecord,
    TitleRecord,
    timestamp,
)
from ouro.memory.long_term.evidence import TurnEvidence, turn_evidence
from ouro.memory.sessions.session_search import SessionHit, find_session, find_words, read_ends, titled
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.utils.log import log
from ouro.utils.repository import same_project

SEARCH_LIMIT = 200
"""Sessions that a search through what was said gives at most."""
_LAST_WORDS = 6
GoesOn = Callable[[], bool]
Search = Callable[[Sequence[SessionInfo], str, GoesOn], Iterable[SessionHit]]
"""Where these words were said in these sessions, as it is found; ends when the function says so."""


class SessionExcerpt(msgspec.Struct, frozen=True):
    """What a session was about."""

    summary: str = ""
    first: str = ""
    """The person's first words."""
    last: tuple[tuple[str, str], ...] = ()
    """The last words, oldest first: who (`user`, `assistant`), and what."""


class SessionCatalog:
    """The sessions of a store. What may block on a disk says so: call it from a thread.

    Args:
        store: keeps them.
        project: the folder that is worked in.
        ends: the first and last records of a session.
        search: looks through what was said.
    """

    def __init__(
        self,
        store: MemoryStore,
        project: str,
        ends: Callable[[SessionInfo], Sequence[Record]] | None = None,
        search: Search | None = None,
    ) -> None:
        self.project = project
        self.is_here = same_project(project)
        self._store = store
        self._ends = ends or (lambda info: store.load_session(info.id, read_only=True).records)
        self._search = search or (lambda _sessions, _words, _goes_on: ())

    def sessions(self, progress: Progress | None = None) -> list[SessionInfo]:
        """All sessions, of every project, last used first; `progress` is told while that takes long. Blocks."""
        return self._store.list_sessions(None, progress)

    def here(self) -> list[SessionInfo]:
        """Those of this project, in all worktrees of its repository. Blocks."""
        return [each for each in self.sessions() if self.is_here(each.project)]

    def find(self, query: str) -> SessionInfo:
        """The one session that is meant: an id, its start, `latest`, words of its title or of what was said. Blocks.

        Raises:
            SeveralSessions: several answer to it.
            SessionNotFound: none does.
        """
        sessions = self.sessions()
        return find_session(sessions, query, self.project, lambda words: self._ids_saying(sessions, words))

    def matching(self, sessions: Sequence[SessionInfo], words: str) -> list[SessionInfo]:
        """Those whose title has all these words, then those in which they were said. Blocks."""
        wanted = words.lower().split()
        named = [each for each in sessions if titled(each.title, wanted)]
        seen = {each.id for each in named}
        rest = [each for each in sessions if each.id not in seen]
        ids = set(self._ids_saying(rest, words))
        return [*named, *(each for each in rest if each.id in ids)]

    def info(self, session_id: str) -> SessionInfo:
        """What a list says of one session. Blocks.

        Raises:
            SessionNotFound: there is none.
        """
        return self._store.get_session_stats(session_id)

    def preview(self, info: SessionInfo) -> SessionExcerpt:
        """What a session was about. Blocks, but reads no more than its ends.

        Raises:
            SessionError: it cannot be read.
            OSError: likewise.
        """
        records = self._ends(info)
        said = [each for each in records if isinstance(each, MessageRecord) and each.message.text.strip()]
        spoken = [(each.message.role, each.message.text) for each in said if each.message.role in ("user", "assistant")]
        first = next((text for role, text in spoken if role == "user"), "")
        summaries = [each.summary for each in records if isinstance(each, SummaryRecord)]
        last = spoken[1:] if spoken and spoken[0] == ("user", first) else spoken
        return SessionExcerpt(summaries[-1] if summaries else "", first, tuple(last[-_LAST_WORDS:]))

    def turn(self, session_id: str, turn: int = 0, message: int = 0) -> TurnEvidence:
        """One turn of a session, to be looked at, as `turn_evidence` finds it. Opens nothing. Blocks.

        Raises:
            SessionNotFound: there is no such session.
            UsageError: it has no such turn.
        """
        return turn_evidence(self._store.load_session(session_id, read_only=True), turn, message)

    async def search(self, sessions: Sequence[SessionInfo], words: str) -> AsyncGenerator[SessionHit, None]:
        """Where these words were said in these sessions, as it is found; closing the generator ends the search."""
        ended = threading.Event()
        loop = asyncio.get_running_loop()
        found: asyncio.Queue[SessionHit | None] = asyncio.Queue()

        def look() -> None:
            try:
                for hit in itertools.islice(self._search(sessions, words, lambda: not ended.is_set()), SEARCH_LIMIT):
                    loop.call_soon_threadsafe(found.put_nowait, hit)
                    if ended.is_set():
                        return
            finally:
                if not ended.is_set():
                    loop.call_soon_threadsafe(found.put_nowait, None)

        looking = asyncio.ensure_future(asyncio.to_thread(look))
        try:
            while (hit := await found.get()) is not None:
                yield hit
            await looking
        finally:
            ended.set()

    def rename(self, session_id: str, title: str) -> None:
        """Call a session so. Blocks.

        Raises:
            SessionInUse: it is open elsewhere.
            SaveFailed: it could not be written.
        """
        loaded = self._store.load_session(session_id, reach="screen")
        try:
            at = timestamp(loaded.records[-1].at if loaded.records else "")
            self._store.save_memory(session_id, TitleRecord(title, at))
        finally:
            self._store.close_session(session_id)

    def delete(self, session_id: str) -> None:
        """Put a session into the trash. Blocks.

        Raises:
            SessionInUse: it is open.
            SessionNotFound: there is none.
        """
        self._store.delete_session(session_id)

    def save_cost(self, record: CostRecord) -> None:
        """Count a model call that belongs to no session. Blocks.

        Raises:
            SaveFailed: it is not on disk.
        """
        self._store.save_cost(record)

    def spent_beside(self) -> tuple[DailyUsage, ...]:
        """What was spent outside of the sessions, by day and model. Blocks."""
        return self._store.spent_beside()

    def deleted(self) -> list[SessionInfo]:
        """What is in the trash, last used first. Blocks."""
        return self._store.list_deleted()

    def purge(self, session_id: str) -> None:
        """Remove a session that is in the trash for good. Blocks.

        Raises:
            SessionNotFound: it is not there.
            SaveFailed: it could not be removed.
        """
        self._store.purge_session(session_id)

    def restore(self, session_id: str) -> None:
        """Take a session out of the trash. Blocks.

        Raises:
            SessionNotFound: it is not there.
            SaveFailed: it could not be moved.
        """
        self._store.restore_session(session_id)

    def _ids_saying(self, sessions: Sequence[SessionInfo], words: str) -> list[str]:
        hits = self._search(sessions, words, lambda: True)
        return [hit.session_id for hit in itertools.islice(hits, SEARCH_LIMIT)]


def catalog_of(root: Path, index: Path, project: str, mask: Callable[[str], str] = str) -> SessionCatalog:
    """The sessions in the folder `root`, before one is open; `index` is where they can be searched, if it is there."""
    return catalog_on(YamlFileMemoryStore(root, mask), root, index, project)


def catalog_on(store: MemoryStore, root: Path, index: Path, project: str) -> SessionCatalog:
    """The sessions of a store that keeps them in `root`."""
    search = partial(_search, root, index)
    return SessionCatalog(store, project, lambda info: read_ends(root / info.folder, _LAST_WORDS), search)


def _search(
    root: Path, index: Path, sessions: Sequence[SessionInfo], words: str, goes_on: GoesOn
) -> Iterator[SessionHit]:
    """By the index, best first; what it does not know as it is now is read from the files."""
    hits, stale = _by_index(root, index, words) if index.exists() else ([], None)
    wanted = {each.id for each in sessions}
    found = [hit for hit in hits if hit.session_id in wanted]
    yield from found
    seen = {hit.session_id for hit in found}
    rest = [each for each in sessions if each.id not in seen and (stale is None or each.folder in stale)]
    yield from find_words(root, rest, words.lower().split(), goes_on)


def _by_index(root: Path, path: Path, words: str) -> tuple[list[SessionHit], frozenset[str] | None]:
    """What the index finds, and the folders of sessions that it does not know as they are; None: it knows none."""
    from ouro.memory.index.index import Index  # SQLite, for who searches
    from ouro.memory.index.session_indexer import changed_sessions, known_sessions
    from ouro.memory.index.session_search import search_sessions

    index = Index(path)
    try:
        found = search_sessions(index, words, limit=SEARCH_LIMIT)
        with index.reading() as database:
            known = known_sessions(database)
        return [SessionHit(hit.session_id, hit.number, hit.snippet) for hit in found], frozenset(
            changed_sessions(root, known)[0]
        )
    except SearchUnavailable as error:
        log.warning("sessions are searched without the index: %s", error)
        return [], None
    finally:
        index.close()
