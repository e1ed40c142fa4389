"""Searches the messages in session files for words, without the search index."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from ouro.errors import SessionError
from ouro.memory.backend import MessageRecord, SessionInfo
from ouro.memory.sessions.session_catalog import SessionHit
from ouro.memory.sessions.session_file import FILE_NAME, open_private, read_range, records_in
from ouro.memory.sessions.session_reader import parse_record
from ouro.utils.late_pattern import late_pattern

_MAX_SEARCHED_BYTES = 8 << 20
"""Bytes of one session that are searched, from its end."""
_ROLE_LINE = late_pattern(rb"^role: *(?:user|assistant)\b", re.MULTILINE)
_CHARACTERS_AROUND = 60


def search_session_files(
    root: Path,
    words: str,
    sessions: Sequence[SessionInfo],
    found_already: Collection[str],
    ended: threading.Event,
) -> Iterator[SessionHit]:
    """Yield a hit for each session that is not in `found_already` (ids) and has a message with all
    words: its last such message. Stops when `ended` is set.
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
    """Returns the last message of the user or the model that all patterns match, as a hit; None if
    there is none. Of a long session file only the last `_MAX_SEARCHED_BYTES` are read.
    """
    try:
        with open_private(folder, FILE_NAME, os.O_RDONLY) as descriptor:
            size = os.fstat(descriptor).st_size
            data = read_range(descriptor, max(0, size - _MAX_SEARCHED_BYTES), size)
    except (OSError, SessionError):
        return None  # the file is missing or belongs to another user; the list reports that
    if not _matches_all(patterns, data):
        return None
    for raw_record in reversed(records_in(data)):
        # Parsing is slow, so the bytes are searched first.
        if not _matches_all(patterns, raw_record.data) or not _ROLE_LINE.search(raw_record.data):
            continue
        record = parse_record(raw_record)
        if isinstance(record, MessageRecord):
            text = record.message.text.encode()
            if _matches_all(patterns, text):
                return SessionHit(session_id, record.number, _text_around(patterns[0], text))
    return None


def _matches_all(patterns: Iterable[re.Pattern[bytes]], data: bytes) -> bool:
    return all(pattern.search(data) for pattern in patterns)


def _text_around(pattern: re.Pattern[bytes], text: bytes) -> str:
    """Returns the text around the place where a pattern matches first (or at the start, if
    nowhere), on one line.
    """
    match = pattern.search(text)
    start = match.start() if match else 0
    before = text[:start].decode("utf-8", "replace")
    after = text[start:].decode("utf-8", "replace")
    cut_before = f"…{before[-_CHARACTERS_AROUND:]}" if len(before) > _CHARACTERS_AROUND else before
    return " ".join((cut_before + after[: 3 * _CHARACTERS_AROUND]).split())


def _word_pattern(word: str) -> re.Pattern[bytes]:
    """Returns a pattern that matches a word in UTF-8 bytes, ignoring case: each letter becomes a
    group of its forms.
    """
    groups: list[bytes] = []
    for letter in word:
        forms = sorted({letter, letter.lower(), letter.upper()})
        escaped = [re.escape(form.encode("utf-8", "replace")) for form in forms]
        groups.append(b"(?:" + b"|".join(escaped) + b")")
    return re.compile(b"".join(groups))
