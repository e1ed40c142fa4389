"""SessionCatalog: find, preview, search, rename and delete sessions."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
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
from ouro.memory.sessions.session_search import SessionHit, find_session, find_words, has_words, read_ends
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.utils.log import log
from ouro.utils.repository import same_project

SEARCH_LIMIT = 200
"""Sessions that a search through messages returns at most."""
_LAST_MESSAGES = 6
IsWanted = Callable[[], bool]
Search = Callable[[Sequence[SessionInfo], str, IsWanted], Iterable[SessionHit]]
"""Yields where these words occur in these sessions, until the function returns False. Blocks."""
ReadEnds = Callable[[SessionInfo], Awaitable[Sequence[Record]]]


class SessionExcerpt(msgspec.Struct, frozen=True):
    summary: str = ""
    first: str = ""
    """The user's first message."""
    last: tuple[tuple[str, str], ...] = ()
    """The last messages, oldest first: role (`user`, `assistant`) and text."""


class SessionCatalog:
    """The sessions of a store.

    Args:
        store: of the sessions.
        project: the current folder.
        ends: returns the first and last records of a session.
        search: searches the messages of sessions.
    """

    def __init__(
        self, store: MemoryStore, project: str, ends: ReadEnds | None = None, search: Search | None = None
    ) -> None:
        self.project = project
        self.is_here = same_project(project)
        self._store = store
        self._ends = ends or self._all_records
        self._search = search or (lambda _sessions, _words, _is_wanted: ())

    async def sessions(self, progress: Progress | None = None) -> list[SessionInfo]:
        """All sessions, of every project, last used first; `progress` is called while that takes long."""
        return await self._store.list_sessions(None, progress)

    async def here(self) -> list[SessionInfo]:
        return [info for info in await self.sessions() if self.is_here(info.project)]

    async def find(self, query: str) -> SessionInfo:
        """The one session that `query` names: an id, its start, `latest`, words of its title or its messages.

        Raises:
            SeveralSessions: several match.
            SessionNotFound: none does.
        """
        sessions = await self.sessions()
        said = partial(self._ids_saying, sessions)
        return await asyncio.to_thread(find_session, sessions, query, self.project, said)

    async def matching(self, sessions: Sequence[SessionInfo], words: str) -> list[SessionInfo]:
        """The sessions whose title has all these words, then those whose messages have them."""
        wanted = words.lower().split()
        titles = [info for info in sessions if has_words(info.title, wanted)]
        seen = {info.id for info in titles}
        rest = [info for info in sessions if info.id not in seen]
        ids = set(await asyncio.to_thread(self._ids_saying, rest, words))
        return [*titles, *(info for info in rest if info.id in ids)]

    async def info(self, session_id: str) -> SessionInfo:
        """The list entry of one session.

        Raises:
            SessionNotFound: there is none.
        """
        return await self._store.get_session_stats(session_id)

    async def preview(self, info: SessionInfo) -> SessionExcerpt:
        """What a session was about. Reads only its ends.

        Raises:
            SessionError: it cannot be read.
            OSError: likewise.
        """
        records = await self._ends(info)
        messages = [record.message for record in records if isinstance(record, MessageRecord)]
        said = [(item.role, item.text) for item in messages if item.role in ("user", "assistant") and item.text.strip()]
        first = next((text for role, text in said if role == "user"), "")
        summaries = [record.summary for record in records if isinstance(record, SummaryRecord)]
        last = said[1:] if said and said[0] == ("user", first) else said
        return SessionExcerpt(summaries[-1] if summaries else "", first, tuple(last[-_LAST_MESSAGES:]))

    async def turn(self, session_id: str, turn: int = 0, message: int = 0) -> TurnEvidence:
        """One turn of a session, as `turn_evidence` finds it. Does not open the session.

        Raises:
            SessionNotFound: there is no such session.
            UsageError: it has no such turn.
        """
        return turn_evidence(await self._store.load_session(session_id, read_only=True), turn, message)

    async def search(self, sessions: Sequence[SessionInfo], words: str) -> AsyncGenerator[SessionHit, None]:
        ended = threading.Event()
        loop = asyncio.get_running_loop()
        found: asyncio.Queue[SessionHit | None] = asyncio.Queue()

        def run() -> None:
            try:
                hits = self._search(sessions, words, lambda: not ended.is_set())
                for hit in itertools.islice(hits, SEARCH_LIMIT):
                    loop.call_soon_threadsafe(found.put_nowait, hit)
                    if ended.is_set():
                        return
            finally:
                if not ended.is_set():
                    loop.call_soon_threadsafe(found.put_nowait, None)

        running = asyncio.ensure_future(asyncio.to_thread(run))
        try:
            while (hit := await found.get()) is not None:
                yield hit
            await running
        finally:
            ended.set()

    async def rename(self, session_id: str, title: str) -> None:
        """Rename a session.

        Raises:
            SessionInUse: it is open elsewhere.
            SaveFailed: the new title could not be written.
        """
        loaded = await self._store.load_session(session_id, reach="screen")
        try:
            at = timestamp(loaded.records[-1].at if loaded.records else "")
            await self._store.save_memory(session_id, TitleRecord(title, at))
        finally:
            await self._store.close_session(session_id)

    async def delete(self, session_id: str) -> None:
        """Move a session to the trash.

        Raises:
            SessionInUse: it is open.
            SessionNotFound: there is none.
        """
        await self._store.delete_session(session_id)

    async def save_cost(self, record: CostRecord) -> None:
        """Count a model call that belongs to no session.

        Raises:
            SaveFailed: it is not on disk.
        """
        await self._store.save_cost(record)

    async def load_costs(self) -> tuple[DailyUsage, ...]:
        """What was spent outside of the sessions, by day and model."""
        return await self._store.load_costs()

    async def deleted(self) -> list[SessionInfo]:
        """The sessions in the trash, last used first."""
        return await self._store.list_deleted()

    async def purge(self, session_id: str) -> None:
        """Remove a session in the trash permanently.

        Raises:
            SessionNotFound: it is not there.
            SaveFailed: it could not be removed.
        """
        await self._store.purge_session(session_id)

    async def restore(self, session_id: str) -> None:
        """Move a session out of the trash.

        Raises:
            SessionNotFound: it is not there.
            SaveFailed: it could not be moved.
        """
        await self._store.restore_session(session_id)

    async def _all_records(self, info: SessionInfo) -> Sequence[Record]:
        return (await self._store.load_session(info.id, read_only=True)).records

    def _ids_saying(self, sessions: Sequence[SessionInfo], words: str) -> list[str]:
        hits = self._search(sessions, words, lambda: True)
        return [hit.session_id for hit in itertools.islice(hits, SEARCH_LIMIT)]


def catalog_of(root: Path, index: Path, project: str, mask: Callable[[str], str] = str) -> SessionCatalog:
    """The sessions in the folder `root`; `index` is where they can be searched, if it exists."""
    return catalog_on(YamlFileMemoryStore(root, mask), root, index, project)


def catalog_on(store: MemoryStore, root: Path, index: Path, project: str) -> SessionCatalog:
    """The sessions of a store that keeps them in `root`."""

    async def ends(info: SessionInfo) -> Sequence[Record]:
        return await asyncio.to_thread(read_ends, root / info.folder, _LAST_MESSAGES)

    return SessionCatalog(store, project, ends, partial(_search, root, index))


def _search(
    root: Path, index: Path, sessions: Sequence[SessionInfo], words: str, is_wanted: IsWanted
) -> Iterator[SessionHit]:
    """From the index, best first; then from the files that the index has not read in their present state."""
    hits, stale = _search_index(root, index, words) if index.exists() else ([], None)
    wanted = {info.id for info in sessions}
    found = [hit for hit in hits if hit.session_id in wanted]
    yield from found
    seen = {hit.session_id for hit in found}
    rest = [info for info in sessions if info.id not in seen and (stale is None or info.folder in stale)]
    yield from find_words(root, rest, words.lower().split(), is_wanted)


def _search_index(root: Path, path: Path, words: str) -> tuple[list[SessionHit], frozenset[str] | None]:
    """What the index finds, and the folders of sessions that changed since it read them; None: it has read none."""
    from ouro.memory.index import (
        Index,  # imports sqlite3: only for a search
        search_sessions,
    )

    index = Index(path)
    try:
        return search_sessions(index, words, limit=SEARCH_LIMIT), index.changed_sessions(root)
    except SearchUnavailable as error:
        log.warning("sessions are searched without the index: %s", error)
        return [], None
    finally:
        index.close()
