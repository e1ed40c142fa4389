"""Search in session files without opening them: first and last messages, words, and the session of a query."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from ouro.errors import SessionError, SessionNotFound, SeveralSessions
from ouro.memory.backend import MessageRecord, Record, SessionInfo
from ouro.memory.serialization import BadRecordError, UnknownRecordError, record_from
from ouro.memory.sessions.session_file import FILE_NAME, RawRecord, opened, read_range, split
from ouro.memory.sessions.yaml_text import BadYamlError, load
from ouro.utils.repository import same_project
from ouro.utils.text import cut

_EDGE = 256 << 10
"""Bytes that are read from each end of a session for its first and last words."""
_SEARCHED = 8 << 20
"""Bytes of one session that are searched, from its end."""

_ROLE = re.compile(rb"^role: *(\w+)", re.MULTILINE)
_AROUND = 60


class SessionHit(msgspec.Struct, frozen=True):
    """A session whose messages have the words, and the message that fits best."""

    session_id: str
    number: int
    """Of the message; 0: the words are in the summary of the session."""
    snippet: str
    """The words and what surrounds them, on one line."""
    score: float = 0.0
    """Higher is better; comparable within one result only."""


def read_ends(folder: Path, count: int) -> list[Record]:
    """The first user message and the last `count` messages with text, with other records between the last.

    Raises:
        SessionError: the file belongs to another user.
        OSError: it cannot be read.
    """
    with opened(folder, FILE_NAME, os.O_RDONLY) as descriptor:
        size = os.fstat(descriptor).st_size
        tail = max(0, size - _EDGE)
        first, _ = split(read_range(descriptor, 0, min(size, _EDGE)))
        last, _ = split(read_range(descriptor, tail, size), tail)
    beginning = list(itertools.islice(filter(None, (_message_in(block, b"user") for block in first[1:])), 1))
    seen = beginning[0].number if beginning else 0
    ending: list[Record] = []
    messages = 0
    for block in reversed(last[1:]):  # the first one is the header, or incomplete
        record = _record(block)
        if isinstance(record, MessageRecord):
            if not record.message.text.strip() or record.number <= seen:
                continue
            messages += 1
        if record is not None:
            ending.append(record)
        if messages == count:
            break
    return [*beginning, *reversed(ending)]


def find_words(
    root: Path, sessions: Iterable[SessionInfo], words: Sequence[str], goes_on: Callable[[], bool] = lambda: True
) -> Iterator[SessionHit]:
    """The last message of each session with all these words, by the user or the model.

    Reads the files, only the end of very long ones: for use without an index.

    Args:
        goes_on: called before each file; False ends the search.
    """
    patterns = [_pattern(word) for word in words]
    for info in sessions:
        if not goes_on():
            return
        if patterns and (hit := _find_in(root / info.folder, info.id, patterns)) is not None:
            yield hit


def _find_in(folder: Path, session_id: str, patterns: Sequence[re.Pattern[bytes]]) -> SessionHit | None:
    try:
        with opened(folder, FILE_NAME, os.O_RDONLY) as descriptor:
            size = os.fstat(descriptor).st_size
            data = read_range(descriptor, max(0, size - _SEARCHED), size)
    except (OSError, SessionError):
        return None  # missing, or of another user: the list shows it
    if not all(pattern.search(data) for pattern in patterns):
        return None
    for block in reversed(split(data)[0]):
        if all(pattern.search(block.data) for pattern in patterns):
            record = _message_in(block, b"user", b"assistant")
            text = record.message.text.encode() if record else b""
            found = [pattern.search(text) for pattern in patterns]
            if record and found[0] and all(found):
                return SessionHit(session_id, record.number, _snippet(text, found[0]))
    return None


def _pattern(word: str) -> re.Pattern[bytes]:
    """Matches a word in UTF-8, whatever its case."""
    letters = (sorted({letter, letter.lower(), letter.upper()}) for letter in word)
    alternatives = (b"|".join(re.escape(form.encode("utf-8", "replace")) for form in forms) for forms in letters)
    return re.compile(b"".join(b"(?:" + item + b")" for item in alternatives))


def _snippet(text: bytes, found: re.Match[bytes]) -> str:
    before = text[: found.start()].decode("utf-8", "replace")
    after = text[found.start() :].decode("utf-8", "replace")
    around = ("…" if len(before) > _AROUND else "") + before[-_AROUND:] + after[: 3 * _AROUND]
    return " ".join(around.split())


def _message_in(block: RawRecord, *roles: bytes) -> MessageRecord | None:
    """The message in a record, if it has one of these roles and text."""
    role = _ROLE.search(block.data)
    if role is None or role[1] not in roles:
        return None
    record = _record(block)
    return record if isinstance(record, MessageRecord) and record.message.text.strip() else None


def _record(block: RawRecord) -> Record | None:
    """The parsed record; None if it is invalid or a tool result."""
    role = _ROLE.search(block.data)
    if not block.is_whole or (role is not None and role[1] == b"tool"):
        return None
    try:
        return record_from(load(block.data), lambda _name: b"")[0]
    except (BadYamlError, BadRecordError, UnknownRecordError):
        return None


_LISTED = 8
_LONG_PREFIX = 8
"""Characters of an id that nobody types as a word."""


def find_session(
    sessions: Sequence[SessionInfo],
    query: str,
    project: str,
    said: Callable[[str], Iterable[str]] = lambda _words: (),
) -> SessionInfo:
    """The session that `query` names.

    Args:
        sessions: all sessions, last used first.
        query: an id, the start of one, the name of its folder, `latest` of this project, or words of a title or of the
            conversation.
        project: the current folder; sessions of other worktrees of its repository count as its own.
        said: returns the ids of the sessions with these words; called only if no title has them.

    Raises:
        SeveralSessions: several match; the message lists them.
        SessionNotFound: none matches.
    """
    query = query.strip()
    is_here = same_project(project)
    here = [session for session in sessions if is_here(session.project)]
    if query == "latest":
        return _only(here[:1], "No session of this folder yet.")
    found = [session for session in sessions if session.folder == query] or _by_id(sessions, query.lower())
    if len(query) < _LONG_PREFIX or not found:
        titled = _titled(here, query) or _titled(sessions, query)
        found += [item for item in titled if item not in found]
    if not found and query:
        ids = set(said(query))
        spoken = [session for session in sessions if session.id in ids]
        found = [item for item in spoken if is_here(item.project)] or spoken
    return _only(found, f"No session answers to `{cut(query, 60)}`.")


def has_words(title: str, words: Sequence[str]) -> bool:
    lowered = title.lower()
    return all(word in lowered for word in words)


def _by_id(sessions: Iterable[SessionInfo], start: str) -> list[SessionInfo]:
    return [session for session in sessions if start and session.id.startswith(start)]


def _titled(sessions: Iterable[SessionInfo], query: str) -> list[SessionInfo]:
    words = query.lower().split()
    return [session for session in sessions if words and has_words(session.title, words)]


def _only(found: Sequence[SessionInfo], otherwise: str) -> SessionInfo:
    if len(found) == 1:
        return found[0]
    if not found:
        raise SessionNotFound(otherwise, "`ouro sessions list --all` shows them all.")
    lines = [f"  {item.id[:8]}  {item.updated_at[:10]}  {item.title}" for item in found[:_LISTED]]
    more = [f"  … and {len(found) - _LISTED} more"] if len(found) > _LISTED else []
    raise SeveralSessions(
        "Several sessions answer to that:\n" + "\n".join(lines + more),
        "Say more of the id or the title.",
        [item.id for item in found],
    )
