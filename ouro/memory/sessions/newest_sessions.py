"""The first page of a list of sessions: read from the start of the index, not from all of it.

The index begins with the sessions that were used last. Sessions that were opened since are noted
beside it. Both are only hints: each file of the page is looked at, and the whole list follows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from ouro.errors import SessionError
from ouro.memory.backend import SessionInfo
from ouro.memory.sessions.session_file import FILE_NAME, open_private, read_range
from ouro.memory.sessions.session_folders import is_named_after
from ouro.memory.sessions.session_index import (
    HEAD,
    INDEX_NAME,
    SessionSurvey,
    is_current,
    is_ordered,
    rank,
    survey,
)
from ouro.utils.decoding import json_decoder

OPENED_NAME = ".opened"
_OPENED_READ = 2 << 10
"""The end of the notes that is read: about a hundred sessions."""
_OPENED_KEPT = 64 << 10
"""With more bytes the notes begin again."""
_BLOCK = 64 << 10
_MAX_READ = 1 << 20
"""With fewer sessions of the project in so many bytes, the whole list is waited for."""


def note_opened(root: Path, folder: str) -> None:
    """Note that a session is written from now on. Without an index there is no need. Blocks."""
    if not (root / INDEX_NAME).exists():
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    with suppress(OSError, SessionError), open_private(root, OPENED_NAME, flags) as descriptor:
        if os.fstat(descriptor).st_size > _OPENED_KEPT:
            os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{folder}\n".encode())


def newest_infos(root: Path, is_wanted: Callable[[str], bool], count: int) -> list[SessionInfo]:
    """The first `count` sessions whose project is wanted, pinned ones first; empty if the index
    does not tell. Blocks.
    """
    try:
        found = _newest(root, is_wanted, count)
    except (OSError, SessionError, msgspec.MsgspecError, UnicodeDecodeError):
        return []  # missing, broken or of another version
    infos = [entry.info for entry in found if entry.info.messages or entry.info.title]
    # A copy made by hand has the id of another session: the whole list tells them apart.
    own = [info for info in infos if is_named_after(info.folder, info.id)]
    return sorted(own, key=rank, reverse=True)[:count]


def _newest(root: Path, is_wanted: Callable[[str], bool], count: int) -> list[SessionSurvey]:
    known: dict[str, SessionSurvey] = {}
    page: list[SessionSurvey] = []
    with open_private(root, INDEX_NAME, os.O_RDONLY) as descriptor:
        for entry in _entries(descriptor):
            known[entry.info.folder] = entry
            if is_wanted(entry.info.project):
                page.append(entry)
            if len(page) >= count:
                break
    if not is_ordered(known.values()):
        return []  # an earlier version wrote it
    folders = dict.fromkeys([entry.info.folder for entry in page] + _opened(root))
    looked_at = [_looked_at(root, name, known.get(name)) for name in folders]
    return [entry for entry in looked_at if entry and is_wanted(entry.info.project)]


def _entries(descriptor: int) -> Iterator[SessionSurvey]:
    """The entries of the index in its order, read in blocks."""
    decode = json_decoder(SessionSurvey).decode
    text, offset = read_range(descriptor, 0, _BLOCK), _BLOCK
    if not text.startswith(HEAD):
        return
    *lines, rest = text[len(HEAD) :].split(b"\n")
    lines = lines[1:]  # the first one is the bracket
    while True:
        for line in lines:
            if line != b"]":
                yield decode(line.rstrip(b","))
        text = read_range(descriptor, offset, offset + _BLOCK) if offset < _MAX_READ else b""
        if not text:
            return
        offset += _BLOCK
        *lines, rest = (rest + text).split(b"\n")


def _opened(root: Path) -> list[str]:
    """The folders that were noted last; none of them needs to exist."""
    try:
        with open_private(root, OPENED_NAME, os.O_RDONLY) as descriptor:
            size = os.fstat(descriptor).st_size
            text = read_range(descriptor, max(0, size - _OPENED_READ), size)
    except (OSError, SessionError):
        return []
    names = text.decode("utf-8", "replace").split("\n")
    is_cut = size > _OPENED_READ
    shown = [name for name in names[is_cut:] if name and not name.startswith(".")]
    return [name for name in shown if "/" not in name and "\0" not in name]


def _looked_at(root: Path, name: str, known: SessionSurvey | None) -> SessionSurvey | None:
    """The entry as its file is now; None if there is no such session."""
    try:
        found = (root / name / FILE_NAME).lstat()
    except OSError:
        return None
    return known if known and is_current(known, found) else survey(root / name, found, known)
