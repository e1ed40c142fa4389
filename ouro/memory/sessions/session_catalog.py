"""SessionCatalog: find, preview, search and rename sessions."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
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
    SessionError,
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
from ouro.memory.sessions.session_file import FILE_NAME, open_private, read_range, records_in
from ouro.memory.transcript import Transcript
from ouro.messages import Context, Message
from ouro.utils.git import same_project
from ouro.utils.late_pattern import late_pattern
from ouro.utils.log import log
from ouro.utils.text import cut

SEARCH_LIMIT = 200
"""Maximum sessions that a search through messages returns."""
_LAST_MESSAGES = 6
_MAX_SEARCHED_BYTES = 8 << 20
"""Bytes of one session that are searched, from its end."""
_ROLE_LINE = late_pattern(rb"^role: *(?:user|assistant)\b", re.MULTILINE)
_CHARACTERS_AROUND = 60
_MAX_LISTED = 8
_MAX_FIRST_RECORD = 4096
"""Bytes of the first record of a session, at most."""
_MIN_ID_PREFIX = 8
"""An id prefix of so many characters cannot be an ordinary word."""
_MEMORY_CHANGES = late_pattern(
    r'<(memory-[0-9a-f]{16}) changed="[^"\n]*">\n(.*?)\n</\1>', re.DOTALL
)
"""What memory sent to the model with a message; each changed line begins with `| `."""


class SessionHit(msgspec.Struct, frozen=True):
    """A session whose messages contain the words, with the best matching message."""

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
    began_with: Mapping[str, str] = {}
    """Scope -> the version of memory at the start of the session."""
    is_left: bool = False
    """Whether the turn is on a branch that a rewind left."""


class SessionCatalog:
    """Finds, previews, searches and renames the sessions of a store.

    Args:
        root: the folder with the files of the store; None: there are no files, and messages are not searched.
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
        """Where the folder was before it was moved."""
        if self._root is None:
            return frozenset()
        # Imported late: most lists have only sessions of folders that exist.
        from ouro.memory.sessions.moved_projects import earlier_paths

        return earlier_paths(self._root, self.project)

    def is_here(self, project: str) -> bool:
        """Whether a session with this folder belongs to the project, also if the project was moved
        since.
        """
        return self._is_same_project(project) or project in self._earlier_paths

    async def sessions(self, progress: Progress | None = None) -> list[SessionInfo]:
        """All sessions, of every project, last used first; `progress` is called while that takes
        long.
        """
        return await self.store.list_sessions(None, progress)

    async def first_page(self, count: int) -> list[SessionInfo]:
        """The sessions of this project at the top of a list, at once; empty: wait for `sessions`."""
        return await self.store.newest_sessions(self.is_here, count)

    async def first(self, count: int, *, every: bool) -> list[SessionInfo]:
        """The first sessions of the list of this project, or of all projects if `every`, pinned
        ones first.
        """
        is_wanted = (lambda _: True) if every else self.is_here
        return await self.store.complete_first_page(is_wanted, count)

    async def here(self) -> list[SessionInfo]:
        """The sessions of this project, last used first."""
        return [info for info in await self.sessions() if self.is_here(info.project)]

    async def find(self, query: str) -> SessionInfo:
        """The one session that `query` names, as `find_session` does; it also searches for words in
        messages. Raises as `find_session`.
        """
        sessions = await self.sessions()

        def ids_with(words: str) -> list[str]:
            return [hit.session_id for hit in self._hits(sessions, words)]

        return await asyncio.to_thread(find_session, sessions, query, self.is_here, ids_with)

    async def matching(self, sessions: Sequence[SessionInfo], words: str) -> list[SessionInfo]:
        """The sessions whose title has all these words, then those whose messages have them; with
        `#x` only those with that tag.
        """
        sessions, words = _narrow_by_tags(sessions, words)
        if not words:
            return sessions
        titles = _with_words_in_title(sessions, words)
        ids_by_title = {info.id for info in titles}
        other_sessions = [info for info in sessions if info.id not in ids_by_title]
        ids = {
            hit.session_id
            for hit in await asyncio.to_thread(list, self._hits(other_sessions, words))
        }
        return [*titles, *(info for info in other_sessions if info.id in ids)]

    async def preview(self, info: SessionInfo) -> SessionExcerpt:
        """What a session was about. Reads its first message and its end. Raises SessionError and
        OSError.
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
            del last_messages[0]
        summary = ""
        for record in loaded.records:
            if isinstance(record, SummaryRecord):
                summary = record.summary
        return SessionExcerpt(
            summary, first_prompt, tuple(last_messages[-_LAST_MESSAGES:]), loaded.notices
        )

    async def turn(self, session_id: str, turn: int = 0, message: int = 0) -> TurnEvidence:
        """One turn of a session, which is not opened. Raises UsageError if there is no such turn.

        Args:
            turn: its number on the current branch; 0: the last one.
            message: the number of one of its messages, to find it also on a branch that a rewind left.
        """
        loaded = await self.store.load_session(session_id, read_only=True)
        transcript, header = Transcript.of(loaded), loaded.header
        current_branch = transcript.entries
        branch = _branch_with(
            message, [current_branch, *(left_branch.entries for left_branch in transcript.branches)]
        )
        entries = current_branch if branch is None else branch
        is_left = entries is not current_branch
        turn_starts = [index for index, entry in enumerate(entries) if begins_turn(entry.message)]
        turn_number = 0
        if branch is not None:
            turn_number = sum(entries[index].number <= message for index in turn_starts)
        if not turn_number and not is_left:
            turn_number = turn or len(turn_starts)
        if not 1 <= turn_number <= len(turn_starts):
            raise UsageError(
                f"Session {header.id[:8]} has no turn {turn}: it has {len(turn_starts)}."
            )
        turn_ends = [*turn_starts[1:], len(entries)]
        messages = entries[turn_starts[turn_number - 1] : turn_ends[turn_number - 1]]
        if is_left and turn:
            turn_number = turn
        return _evidence_of(header, transcript, messages, turn_number, is_left=is_left)

    async def search(
        self, sessions: Sequence[SessionInfo], words: str
    ) -> AsyncGenerator[SessionHit, None]:
        """The messages that have all these words: from the index, best first, then from files that
        are newer.
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
        labels = (info.branch, info.files)
        await self._change(info.id, lambda at: LabelRecord(tuple(tags), at, pinned, *labels))

    async def _change(self, session_id: str, make: Callable[[str], ChangeRecord]) -> None:
        """Append the record that `make` returns for a time. Raises as `rename`."""
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
        """At most `SEARCH_LIMIT` hits of `_search`."""
        return islice(self._search(sessions, words, ended or threading.Event()), SEARCH_LIMIT)

    def _search(
        self, sessions: Sequence[SessionInfo], words: str, ended: threading.Event
    ) -> Iterator[SessionHit]:
        """Yield the hits of the index, then those in sessions that the index has not read: there
        the last matching message is found by reading the file. Blocks.
        """
        if self._root is None or not words.split():
            return
        hits, changed = self._search_index(self._root, words)
        ids = {info.id for info in sessions}
        found_ids = set()
        for hit in hits:
            if hit.session_id in ids:
                found_ids.add(hit.session_id)
                yield hit
        unread = [info for info in sessions if changed is None or info.folder in changed]
        yield from _search_session_files(self._root, words, unread, found_ids, ended)

    def _search_index(
        self, root: Path, words: str
    ) -> tuple[list[SessionHit], frozenset[str] | None]:
        """The hits of the index, and the folders of sessions that changed since it read them; None:
        no index.
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
    """The session that `query` names.

    Args:
        query: an id or its beginning, the name of its folder, `latest` (of this project), or words of a title or of
            messages.
        is_here: returns whether the folder of a session belongs to the current project.
        ids_with: returns the ids of the sessions with these words; called only if no title has them.
        hint: the hint of the error if no session matches.

    Raises:
        SeveralSessions: several match; the message lists them.
        SessionNotFound: none matches.
    """
    query = query.strip()
    if query == "latest":
        resumable = filter(_has_begun, sessions)
        here = [session for session in resumable if is_here(session.project)]
        return _only_one_of(here[:1], "No session of this folder yet.", hint)
    if query.startswith("#"):
        with_tags, _other_words = _narrow_by_tags(sessions, query)
        tagged = _prefer_here(is_here, with_tags)
        return _only_one_of(tagged, f"No session has the tag `{cut(query, 60)}`.", hint)
    matches = _with_folder_or_id(sessions, query)
    if len(query) < _MIN_ID_PREFIX or not matches:
        titled = _prefer_here(is_here, _with_words_in_title(sessions, query))
        matches += [session for session in titled if session not in matches]
    if not matches and query:
        ids = set(ids_with(query))
        matches = _prefer_here(is_here, [session for session in sessions if session.id in ids])
    return _only_one_of(matches, f"No session matches `{cut(query, 60)}`.", hint)


def _with_folder_or_id(sessions: Sequence[SessionInfo], query: str) -> list[SessionInfo]:
    """The sessions with this folder; if there is none, those whose id begins so."""
    with_folder = [session for session in sessions if session.folder == query]
    if with_folder or not query:
        return with_folder
    return [session for session in sessions if session.id.startswith(query.lower())]


def _with_words_in_title(sessions: Iterable[SessionInfo], words: str) -> list[SessionInfo]:
    """The sessions whose title has all these words."""
    return [session for session in sessions if _has_words(session.title, words)]


def _prefer_here(is_here: Callable[[str], bool], sessions: list[SessionInfo]) -> list[SessionInfo]:
    """The sessions of this project; all of them if none is."""
    return [session for session in sessions if is_here(session.project)] or sessions


def _first_prompt(whole: WholeSession) -> str:
    """The first text of the user. Blocks."""
    for record in whole.records():
        if isinstance(record, MessageRecord):
            message = record.message
            if message.role == "user" and message.text.strip():
                return message.text
    return ""


def _branch_with(
    number: int, branches: Iterable[Sequence[MessageRecord]]
) -> Sequence[MessageRecord] | None:
    """The branch with a message; None if no branch has it."""
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
    """The evidence of the turn with these messages; `is_left`: they are on a branch that a rewind
    left.
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
    """Yield the lines with which ouro sent changes of memory to the model with this message."""
    for part in message.parts_of(Context):
        for change in _MEMORY_CHANGES.finditer(part.text):
            lines = change[2].split("\n")
            yield from (line[2:] for line in lines if line.startswith("| "))


def _has_begun(session: SessionInfo) -> bool:
    """Whether the session may have something to resume. One that was killed while its first record
    was written has nothing: it stays in the list, and `sessions repair` looks at it.
    """
    return bool(session.project or session.messages) or session.size > _MAX_FIRST_RECORD


def has_tags(info: SessionInfo, words: Iterable[str]) -> bool:
    """Whether each of the words, such as `#parser`, is a tag of the session, or its start."""
    tags = "".join(f"\n#{tag.lower()}" for tag in info.tags)
    return all(f"\n{word.lower()}" in tags for word in words)


def _narrow_by_tags(sessions: Sequence[SessionInfo], words: str) -> tuple[list[SessionInfo], str]:
    """The sessions with each tag among the words (`#parser`), and the other words."""
    all_words = words.split()
    tags = [word for word in all_words if word.startswith("#")]
    other_words = [word for word in all_words if not word.startswith("#")]
    return [info for info in sessions if has_tags(info, tags)], " ".join(other_words)


def _has_words(title: str, words: str) -> bool:
    lowered, wanted_words = title.lower(), words.lower().split()
    return bool(wanted_words) and all(word in lowered for word in wanted_words)


def _only_one_of(sessions: Sequence[SessionInfo], not_found_text: str, hint: str) -> SessionInfo:
    """The session, if there is exactly one. Raises SessionNotFound with `not_found_text` if there
    is none, SeveralSessions if there are more.
    """
    if len(sessions) == 1:
        return sessions[0]
    if not sessions:
        raise SessionNotFound(not_found_text, hint)
    lines = [
        f"  {session.short_id}  {session.updated_at[:10]}  {session.title}"
        for session in sessions[:_MAX_LISTED]
    ]
    more_line = (
        [f"  … and {len(sessions) - _MAX_LISTED} more"] if len(sessions) > _MAX_LISTED else []
    )
    raise SeveralSessions(
        "Several sessions match:\n" + "\n".join(lines + more_line),
        "Give more of the id or the title.",
        [session.id for session in sessions],
    )


def _search_session_files(
    root: Path,
    words: str,
    sessions: Sequence[SessionInfo],
    found_already: Collection[str],
    ended: threading.Event,
) -> Iterator[SessionHit]:
    """Yield the last message with all words of each session whose id was not found already. Stops
    when `ended` is set.
    """
    patterns = [_word_pattern(word) for word in words.lower().split()]
    for info in sessions:
        if info.id in found_already:
            continue
        if ended.is_set():
            return
        hit = _find_last_message(root / info.folder, info.id, patterns)
        if hit is not None:
            yield hit


def _find_last_message(
    folder: Path, session_id: str, patterns: Sequence[re.Pattern[bytes]]
) -> SessionHit | None:
    """The last message (of user or model) with all the words; only the end of a very long file is
    read.
    """
    from ouro.memory.sessions.session_reader import parse_record

    try:
        with open_private(folder, FILE_NAME, os.O_RDONLY) as descriptor:
            size = os.fstat(descriptor).st_size
            data = read_range(descriptor, max(0, size - _MAX_SEARCHED_BYTES), size)
    except (OSError, SessionError):
        return None  # the file is missing or belongs to another user; the list reports that
    if not _matches_all(patterns, data):
        return None
    for block in reversed(records_in(data)):
        if not _matches_all(patterns, block.data) or not _ROLE_LINE.search(block.data):
            continue
        record = parse_record(block)
        if isinstance(record, MessageRecord):
            text = record.message.text.encode()
            if _matches_all(patterns, text):
                return SessionHit(session_id, record.number, _text_around(patterns[0], text))
    return None


def _matches_all(patterns: Iterable[re.Pattern[bytes]], data: bytes) -> bool:
    return all(pattern.search(data) for pattern in patterns)


def _text_around(pattern: re.Pattern[bytes], text: bytes) -> str:
    """The text before and after the place where a pattern matches first, on one line."""
    match = pattern.search(text)
    start = match.start() if match else 0
    before = text[:start].decode("utf-8", "replace")
    after = text[start:].decode("utf-8", "replace")
    cut_before = f"…{before[-_CHARACTERS_AROUND:]}" if len(before) > _CHARACTERS_AROUND else before
    return " ".join((cut_before + after[: 3 * _CHARACTERS_AROUND]).split())


def _word_pattern(word: str) -> re.Pattern[bytes]:
    """A pattern of a word in UTF-8 bytes, with each letter in both cases."""
    letters = (sorted({letter, letter.lower(), letter.upper()}) for letter in word)
    alternatives = (
        b"|".join(re.escape(form.encode("utf-8", "replace")) for form in forms) for forms in letters
    )
    return re.compile(b"".join(b"(?:" + item + b")" for item in alternatives))
