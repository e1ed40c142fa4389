"""SessionCatalog: find, preview, search and rename sessions."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import (
    AsyncGenerator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import cached_property
from itertools import chain, islice
from pathlib import Path

import msgspec

from ouro.errors import (
    SaveFailed,
    SearchUnavailable,
    SessionNotFound,
    SeveralSessions,
    UsageError,
)
from ouro.memory.backend import (
    ChangeRecord,
    LabelRecord,
    MemoryStore,
    MessageRecord,
    Progress,
    RecalledItem,
    SessionHeader,
    SessionInfo,
    SummaryRecord,
    TitleRecord,
    WholeSession,
    timestamp,
)
from ouro.memory.message_tree import begins_turn
from ouro.memory.transcript import Transcript
from ouro.messages import Context, Message
from ouro.utils.git import same_project
from ouro.utils.late_pattern import late_pattern
from ouro.utils.log import log
from ouro.utils.text import cut

SEARCH_LIMIT = 200
"""Maximum sessions that a search through messages returns."""
_LAST_MESSAGES = 6
_MAX_LISTED = 8
_MAX_FIRST_RECORD = 4096
"""Bytes of the first record of a session, at most."""
_MIN_ID_PREFIX = 8
"""An id prefix of so many characters cannot be an ordinary word."""
_MEMORY_CHANGES = late_pattern(
    r'<(?P<tag>memory-[0-9a-f]{16}) changed="[^"\n]*">\n(?P<lines>.*?)\n</(?P=tag)>', re.DOTALL
)
"""What memory sent to the model with a message; each changed line begins with `| `."""


class SessionHit(msgspec.Struct, frozen=True):
    """A session that contains the words, with the best matching message."""

    session_id: str
    number: int
    """The number of the message; 0: the words are in the summary of the session."""
    snippet: str
    """The words with the text around them, in one line."""
    score: float = 0.0
    """Higher is better; comparable within one result only."""


class SessionExcerpt(msgspec.Struct, frozen=True):
    """What is shown of a session before it is resumed."""

    summary: str = ""
    first: str = ""
    last: tuple[tuple[str, str], ...] = ()
    """The last messages, oldest first: role (`user`, `assistant`) and text."""
    notices: tuple[str, ...] = ()
    """Notices about the session: unreadable records, or a newer version of ouro wrote it."""


class TurnEvidence(msgspec.Struct, frozen=True):
    """The turn that a memory came from, with its messages and what memory sent to the model."""

    session_id: str
    title: str
    turn: int
    """The number of the user message, from 1."""
    number: int
    """The number of that message in the session."""
    at: str
    words: tuple[tuple[str, str], ...]
    """Role and text of each message, oldest first, without tool calls and results."""
    told: tuple[str, ...] = ()
    """Changes of memory that were sent with the message: lines with - and +."""
    recalled: tuple[RecalledItem, ...] = ()
    """The notes that recall considered for the message."""
    way: str = ""
    """How these were found, as in `RecalledRecord`; empty if nothing was recalled."""
    began_with: Mapping[str, str] = {}
    """Scope -> the version of memory at the start of the session."""
    is_left: bool = False
    """Whether the turn is on a branch that a rewind left."""


class SessionCatalog:
    """Finds, previews, searches and renames the sessions of a store.

    Args:
        root: the folder with the files of the store; None: there are no files, and messages are not
            searched.
        index: the search index of the messages, which need not exist.
    """

    def __init__(
        self, store: MemoryStore, project: str, root: Path | None = None, index: Path | None = None
    ) -> None:
        self.store = store
        self.project = project
        self._root = root
        self._index = index
        self._is_same_project = same_project(project)

    @cached_property
    def _earlier_paths(self) -> frozenset[str]:
        """The paths at which the folder of this project was before it was moved; empty if the store
        has no files.
        """
        if self._root is None:
            return frozenset()
        # Imported late: most lists have only sessions of folders that exist.
        from ouro.memory.sessions.moved_projects import earlier_paths

        return earlier_paths(self._root, self.project)

    def is_here(self, project: str) -> bool:
        """Whether a session with the folder `project` belongs to the project of this catalog, also
        if that was moved since.
        """
        return self._is_same_project(project) or project in self._earlier_paths

    def may_be_here(self, project: str) -> bool:
        """Whether a session belongs to this project, or nobody knows to which one: its file is damaged,
        and `project` is empty. A user who misses a session looks for it in the list of the folder.
        """
        return not project or self.is_here(project)

    async def sessions(self, progress: Progress | None = None) -> list[SessionInfo]:
        """Returns the sessions of all projects, last used first. `progress` is called while that
        takes long.
        """
        return await self.store.list_sessions(None, progress)

    async def first_page(self, count: int) -> list[SessionInfo]:
        """Returns the first `count` sessions of this project, pinned ones first, without waiting
        for the whole list. Some may be missing. Empty if they cannot be known without the whole
        list.
        """
        return await self.store.newest_sessions(self.is_here, count)

    async def first_sessions(self, count: int, *, every: bool) -> list[SessionInfo]:
        """Returns the first `count` sessions, pinned ones first. Unlike `first_page`, this may take
        long, and none is missing.

        Args:
            every: whether the sessions of all projects are listed, or only those of this project
                and damaged ones whose project is not known.
        """
        is_wanted = (lambda _project: True) if every else self.may_be_here
        return await self.store.complete_first_page(is_wanted, count)

    async def sessions_here(self) -> list[SessionInfo]:
        """Returns the sessions of this project, last used first."""
        return [info for info in await self.sessions() if self.is_here(info.project)]

    async def find(self, query: str, *, prefers_listed: bool = False) -> SessionInfo:
        """Returns the one session that `query` names, as `find_session` does, also by words in its
        messages. With `prefers_listed`, `latest` passes over headless sessions if there is another
        one. Raises as `find_session`.
        """
        sessions = await self.sessions()

        def ids_with(words: str) -> list[str]:
            return [hit.session_id for hit in self._hits(sessions, words)]

        if prefers_listed:
            sessions.sort(key=lambda info: not info.is_listed)  # stable: else last used first
        return await asyncio.to_thread(find_session, sessions, query, self.is_here, ids_with)

    async def matching(self, sessions: Sequence[SessionInfo], words: str) -> list[SessionInfo]:
        """Returns those of the sessions whose title has all these words, then those whose messages
        have them. A word such as `#parser` is a tag: only sessions with it are returned.
        """
        tagged, other_words = _narrow_by_tags(sessions, words)
        if not other_words:
            return tagged
        with_title = _with_words_in_title(tagged, other_words)
        ids_by_title = {info.id for info in with_title}
        remaining = [info for info in tagged if info.id not in ids_by_title]
        hits = await asyncio.to_thread(list, self._hits(remaining, other_words))
        ids_by_message = {hit.session_id for hit in hits}
        return [*with_title, *(info for info in remaining if info.id in ids_by_message)]

    async def preview(self, info: SessionInfo) -> SessionExcerpt:
        """Returns what is shown of a session before it is resumed. Only its first message and its
        end are read. Raises SessionError and OSError.
        """
        whole = await self.store.read_whole(info.id)
        loaded = await self.store.load_session(info.id, read_only=True, reach="screen")
        first_prompt = await asyncio.to_thread(_first_prompt, whole)
        last_messages = []
        for entry in Transcript.of(loaded).entries:
            message = entry.message
            if message.role in ("user", "assistant") and message.text.strip():
                last_messages.append((message.role, message.text))
        if last_messages[:1] == [("user", first_prompt)]:
            del last_messages[0]  # it is shown as the first message already
        summary = ""  # the newest one
        for record in loaded.records:
            if isinstance(record, SummaryRecord):
                summary = record.summary
        return SessionExcerpt(
            summary,
            first=first_prompt,
            last=tuple(last_messages[-_LAST_MESSAGES:]),
            notices=loaded.notices,
        )

    async def find_turn(self, session_id: str, turn: int = 0, message: int = 0) -> TurnEvidence:
        """Returns one turn of a session, which is read but not opened.

        Args:
            turn: the number of the turn on its branch, from 1; 0: the last one.
            message: the number of a message of the turn; 0: not known. If it is known, the turn is
                found by it, also on a branch that a rewind left, and `turn` does not matter.

        Raises:
            UsageError: there is no such turn.
        """
        loaded = await self.store.load_session(session_id, read_only=True)
        transcript, header = Transcript.of(loaded), loaded.header

        # Find the branch: the current one, or the one with `message`.
        current_branch = transcript.entries
        branch = _branch_with(
            message, [current_branch, *(left_branch.entries for left_branch in transcript.branches)]
        )
        entries = current_branch if branch is None else branch
        is_left = entries is not current_branch

        # Find the turn on it. The turn of `message` is the last one that begins at or before it.
        turn_starts = [index for index, entry in enumerate(entries) if begins_turn(entry.message)]
        turn_number = 0
        if branch is not None:
            starts_until_message = [
                index for index in turn_starts if entries[index].number <= message
            ]
            turn_number = len(starts_until_message)
        if not turn_number and not is_left:  # `message` is not known, or before the first turn
            turn_number = turn or len(turn_starts)
        if not 1 <= turn_number <= len(turn_starts):
            raise UsageError(
                f"Session {header.id[:8]} has no turn {turn}: it has {len(turn_starts)}."
            )

        turn_ends = [*turn_starts[1:], len(entries)]
        messages = entries[turn_starts[turn_number - 1] : turn_ends[turn_number - 1]]
        if is_left and turn:  # the number that was recorded with the memory
            turn_number = turn
        return _evidence_of(header, transcript, messages, turn=turn_number, is_left=is_left)

    async def search(
        self, sessions: Sequence[SessionInfo], words: str
    ) -> AsyncGenerator[SessionHit, None]:
        """Yield the messages of the sessions that have all these words: first those in the index,
        best first, then those in session files that the index has not read yet.
        """
        ended = threading.Event()
        hits = self._hits(sessions, words, ended)
        try:
            while (hit := await asyncio.to_thread(next, hits, None)) is not None:
                yield hit
        finally:
            ended.set()

    async def rename(self, session_id: str, title: str) -> None:
        """Rename a session. Raises SessionInUse if it is open elsewhere, SaveFailed if it can only
        be read.
        """
        await self._change(session_id, lambda at: TitleRecord(title, at))

    async def label(self, info: SessionInfo, tags: Sequence[str], *, pinned: bool) -> None:
        """Set the tags of a session, and whether it is pinned. Raises as `rename`."""
        labels = (info.branch, info.files, info.headless)
        await self._change(info.id, lambda at: LabelRecord(tuple(tags), at, pinned, *labels))

    async def _change(self, session_id: str, make: Callable[[str], ChangeRecord]) -> None:
        """Append a record to a session that is not open; `make` returns it for the time that it
        gets. Raises as `rename`.
        """
        loaded = await self.store.load_session(session_id, reach="screen")
        if loaded.read_only:
            raise SaveFailed(f"Not changed: {loaded.notices[-1]}")
        try:
            at = timestamp(loaded.records[-1].at if loaded.records else "")
            await self.store.save_memory(session_id, make(at))
        finally:
            await self.store.close_session(session_id)

    def _hits(
        self, sessions: Sequence[SessionInfo], words: str, ended: threading.Event | None = None
    ) -> Iterator[SessionHit]:
        """Returns an iterator over at most `SEARCH_LIMIT` hits of `_search`, which stops when
        `ended` is set; None: it runs to its end.
        """
        return islice(self._search(sessions, words, ended or threading.Event()), SEARCH_LIMIT)

    def _search(
        self, sessions: Sequence[SessionInfo], words: str, ended: threading.Event
    ) -> Iterator[SessionHit]:
        """Yield the hits of the index, then one for each session that the index has not read: the
        last message of its file that has the words. Stops when `ended` is set. Blocks.
        """
        if self._root is None or not words.split():
            return
        # Without an index, `changed` is None: no session was read.
        hits, changed = self._search_index(self._root, words)
        ids = {info.id for info in sessions}
        found_ids = set()
        for hit in hits:
            if hit.session_id in ids:
                found_ids.add(hit.session_id)
                yield hit
        unread = [info for info in sessions if changed is None or info.folder in changed]
        if unread:
            # Imported late: usually the index has read all sessions.
            from ouro.memory.sessions.message_search import search_session_files

            yield from search_session_files(
                self._root, words, sessions=unread, found_already=found_ids, ended=ended
            )

    def _search_index(
        self, root: Path, words: str
    ) -> tuple[list[SessionHit], frozenset[str] | None]:
        """Returns the hits of the index, and the folders of the sessions that changed since it read
        them. Without an index that can be used: no hits, and None.
        """
        if self._index is None or not self._index.exists():
            return [], None
        # Imported late, because it imports sqlite3.
        from ouro.memory.index import (
            Index,
            search_sessions,
        )

        index = Index(self._index)
        try:
            return search_sessions(index, words, limit=SEARCH_LIMIT), index.changed_sessions(root)
        except SearchUnavailable as error:
            log.warning("sessions are searched without the index: %s", error)
            return [], None
        finally:
            index.close()


def find_session(
    sessions: Sequence[SessionInfo],
    query: str,
    is_here: Callable[[str], bool],
    ids_with: Callable[[str], Iterable[str]] = lambda _: (),
    hint: str = "`ouro sessions list --all` shows them all.",
) -> SessionInfo:
    """Returns the session that `query` names.

    Args:
        query: an id or its beginning, the name of its folder, `latest` or `last` (of this
            project), a tag such as `#parser`, or words of a title or of messages. A title that is
            exactly `query` comes before those that have its words. Of several sessions with the tag
            or the words only those of this project count, if there are any.
        is_here: returns whether the folder of a session belongs to the current project.
        ids_with: returns the ids of the sessions with these words in messages; called only if no id
            and no title matches.
        hint: the hint of the error if no session matches.

    Raises:
        SeveralSessions: several match; the message lists them.
        SessionNotFound: none matches.
    """
    query = query.strip()
    if query in ("latest", "last"):
        resumable = filter(_has_begun, sessions)
        here = [session for session in resumable if is_here(session.project)]
        return _only_one_of(here[:1], "No session of this folder yet.", hint)
    if query.startswith("#"):
        with_tags, _other_words = _narrow_by_tags(sessions, query)
        tagged = _prefer_here(is_here, with_tags)
        return _only_one_of(tagged, f"No session has the tag `{cut(query, 60)}`.", hint)
    matches = _with_folder_or_id(sessions, query)
    may_be_word = len(query) < _MIN_ID_PREFIX
    if may_be_word or not matches:
        titled = _prefer_here(is_here, _with_words_in_title(sessions, query))
        titled = _with_exact_title(titled, query) or titled
        matches += [session for session in titled if session not in matches]
    if not matches and query:
        ids = set(ids_with(query))
        matches = _prefer_here(is_here, [session for session in sessions if session.id in ids])
    return _only_one_of(matches, f"No session matches `{cut(query, 60)}`.", hint)


def _with_folder_or_id(sessions: Sequence[SessionInfo], query: str) -> list[SessionInfo]:
    """Returns the sessions whose folder has the name `query`; if there is none, those whose id
    begins with it. Empty without a query.
    """
    with_folder = [session for session in sessions if session.folder == query]
    if with_folder or not query:
        return with_folder
    return [session for session in sessions if session.id.startswith(query.lower())]


def _with_words_in_title(sessions: Iterable[SessionInfo], words: str) -> list[SessionInfo]:
    """Returns the sessions whose title has all these words, in any order."""
    return [session for session in sessions if _has_words(session.title, words)]


def _with_exact_title(sessions: Iterable[SessionInfo], title: str) -> list[SessionInfo]:
    """Returns the sessions that have exactly this title, ignoring case: the user may have named one
    with a word that others have in their titles.
    """
    wanted_title = title.casefold()
    return [session for session in sessions if session.title.casefold() == wanted_title]


def _prefer_here(is_here: Callable[[str], bool], sessions: list[SessionInfo]) -> list[SessionInfo]:
    """Returns those of the sessions that are of this project; all of them if none is."""
    return [session for session in sessions if is_here(session.project)] or sessions


def _first_prompt(whole: WholeSession) -> str:
    """Returns the text of the first message of the user that has text; empty if there is none.
    Blocks.
    """
    for record in whole.records():
        if isinstance(record, MessageRecord):
            message = record.message
            if message.role == "user" and message.text.strip():
                return message.text
    return ""


def _branch_with(
    number: int, branches: Iterable[Sequence[MessageRecord]]
) -> Sequence[MessageRecord] | None:
    """Returns the first branch that has the message with this number; None if no branch has it."""
    for branch in branches:
        if any(entry.number == number for entry in branch):
            return branch
    return None


def _evidence_of(
    header: SessionHeader,
    transcript: Transcript,
    messages: Sequence[MessageRecord],
    turn: int,
    *,
    is_left: bool,
) -> TurnEvidence:
    """Returns what a user may want to see of the turn from which a memory came: its texts, and what
    the model was sent of memory.

    Args:
        messages: the messages of the turn.
        turn: the number of the turn.
        is_left: whether the turn is on a branch that a rewind left.
    """
    first = messages[0]
    recalled = (transcript.recalled.get(entry.number) for entry in messages)
    records = [record for record in recalled if record]
    scopes = [scope for scope in ("user", "repo") if scope in header.memory]
    return TurnEvidence(
        session_id=header.id,
        title=transcript.title,
        turn=turn,
        number=first.number,
        at=first.at,
        words=tuple(_texts_of(messages)),
        told=tuple(_memory_changes_in(first.message)),
        recalled=tuple(chain.from_iterable(record.items for record in records)),
        way=records[0].way if records else "",
        began_with={scope: header.memory[scope] for scope in scopes},
        is_left=is_left,
    )


def _texts_of(entries: Iterable[MessageRecord]) -> Iterator[tuple[str, str]]:
    """Yield the role and the text of each message that has text."""
    for entry in entries:
        if entry.message.text:
            yield entry.message.role, entry.message.text


def _memory_changes_in(message: Message) -> Iterator[str]:
    """Yield the lines about changes of memory that ouro sent to the model with this message. In the
    message each line begins with `| `; without that, it begins with `-` or `+`.
    """
    for part in message.parts_of(Context):
        for change in _MEMORY_CHANGES.finditer(part.text):
            for line in change["lines"].split("\n"):
                if line.startswith("| "):
                    yield line.removeprefix("| ")


def _has_begun(session: SessionInfo) -> bool:
    """Whether the session may have something to resume. One that was killed while its first record
    was written has nothing: it stays in the list, and `sessions repair` looks at it.
    """
    return bool(session.project or session.messages) or session.size > _MAX_FIRST_RECORD


def has_tags(info: SessionInfo, words: Iterable[str]) -> bool:
    """Whether each of the words, such as `#parser`, is a tag of the session, or its start."""
    tags = [f"#{tag.lower()}" for tag in info.tags]

    def begins_a_tag(word: str) -> bool:
        return any(tag.startswith(word.lower()) for tag in tags)

    return all(map(begins_a_tag, words))


def _narrow_by_tags(sessions: Sequence[SessionInfo], words: str) -> tuple[list[SessionInfo], str]:
    """Returns the sessions that have each of the tags among the words (`#parser`), and the words
    that are not tags.
    """
    all_words = words.split()
    tags = [word for word in all_words if word.startswith("#")]
    other_words = [word for word in all_words if not word.startswith("#")]
    return [info for info in sessions if has_tags(info, tags)], " ".join(other_words)


def _has_words(title: str, words: str) -> bool:
    """Whether a title has all these words, ignoring case. False without words."""
    lowered, wanted_words = title.lower(), words.lower().split()
    return bool(wanted_words) and all(word in lowered for word in wanted_words)


def _only_one_of(sessions: Sequence[SessionInfo], not_found_text: str, hint: str) -> SessionInfo:
    """Returns the session, if there is exactly one.

    Raises:
        SessionNotFound: there is none; its message is `not_found_text`.
        SeveralSessions: there are more; its message lists the first ones.
    """
    if len(sessions) == 1:
        return sessions[0]
    if not sessions:
        raise SessionNotFound(not_found_text, hint)
    lines = [
        f"  {session.short_id}  {session.updated_at[:10]}  {session.title}"
        for session in sessions[:_MAX_LISTED]
    ]
    if len(sessions) > _MAX_LISTED:
        lines.append(f"  … and {len(sessions) - _MAX_LISTED} more")
    raise SeveralSessions(
        "Several sessions match:\n" + "\n".join(lines),
        "Give more of the id or the title.",
        [session.id for session in sessions],
    )
