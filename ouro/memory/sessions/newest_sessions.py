"""The first page of a list of sessions, of which only those on the page are looked at.

The index begins with the sessions that were used last. Sessions that were opened since are noted
beside it. For the screen both are only hints: each file of the page is looked at, and the whole
list follows. A command that prints one page compares the names of all folders with the index, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import msgspec

from ouro.errors import SessionError
from ouro.memory.backend import SessionInfo
from ouro.memory.sessions.index_journal import INDEX_NAME, MANY_NOTES, opened_sessions
from ouro.memory.sessions.session_file import FILE_NAME, open_private, read_file, read_range
from ouro.memory.sessions.session_folders import folder_names, is_named_after
from ouro.memory.sessions.session_index import (
    HEAD,
    SessionSurvey,
    is_current,
    is_ordered,
    rank,
    survey,
)
from ouro.utils.decoding import json_decoder
from ouro.utils.late_pattern import late_pattern

_NOTES_READ = 2 << 10
"""The end of the notes that a first page for the screen reads: about fifty sessions."""
_BLOCK = 64 << 10
_MAX_READ = 1 << 20
"""With fewer sessions of the project in so many bytes, the whole list is waited for."""
_MAX_SURVEYED = 300
"""With more sessions that the index does not have, the whole list is made, and the index with it."""
_IN_ORDER = 64
"""So many entries show whether the index is in the order of lists."""
_FOLDER = late_pattern(rb'"folder":"([^"\\]*)"')
_PROJECT = late_pattern(rb'"project":("(?:[^"\\]|\\.)*")')


def newest_infos(root: Path, is_wanted: Callable[[str], bool], count: int) -> list[SessionInfo]:
    """The first `count` sessions whose project is wanted, pinned ones first; empty if the index
    does not tell. Blocks.
    """
    try:
        found = _newest_by_index(root, is_wanted, count)
    except (OSError, SessionError, msgspec.MsgspecError, UnicodeDecodeError):
        return []  # missing, broken or of another version
    # A copy made by hand has the id of another session: the whole list tells them apart.
    originals = [info for info in _infos_in_lists(found) if is_named_after(info.folder, info.id)]
    return sorted(originals, key=rank, reverse=True)[:count]


def first_infos(
    root: Path, is_wanted: Callable[[str], bool], count: int
) -> list[SessionInfo] | None:
    """The first `count` sessions of the whole list whose project is wanted, pinned ones first.

    Of the others only the names are compared with the index. None if that does not suffice. Blocks.
    """
    try:
        found = _first_by_index(root, is_wanted, count)
    except (OSError, SessionError, msgspec.MsgspecError, UnicodeDecodeError):
        return None  # missing, broken or of another version
    if found is None:
        return None
    infos = [info for info in _infos_in_lists(found) if is_wanted(info.project)]
    if not all(is_named_after(info.folder, info.id) for info in infos):
        return None
    return sorted(infos, key=rank, reverse=True)[:count]


def _first_by_index(
    root: Path, is_wanted: Callable[[str], bool], count: int
) -> list[SessionSurvey] | None:
    """At least the first `count` entries, and all that changed since the index was written."""
    noted, are_all = opened_sessions(root, MANY_NOTES)
    known = _indexed_lines(root)
    if not are_all or not known:
        return None
    names = set(folder_names(root))
    changed = (names - known.keys()) | (names & set(noted))
    if len(changed) > _MAX_SURVEYED:
        return None
    decode = json_decoder(SessionSurvey).decode
    belongs = cache(lambda project: is_wanted(json_decoder(str).decode(project)))
    unchanged = [name for name in known if name in names and name not in changed]
    wanted = (name for name in unchanged if belongs(_project_in(known[name])))
    entries = (_current_entry(root, name, decode(known[name])) for name in wanted)
    page = list(islice((entry for entry in entries if entry and _infos_in_lists([entry])), count))
    for name in changed:
        before = decode(known[name]) if name in known else None
        if entry := _current_entry(root, name, before):
            page.append(entry)
    return page


def _indexed_lines(root: Path) -> dict[str, bytes]:
    """Folder -> line of the index, in the order of lists; empty if that does not hold."""
    text = read_file(root, INDEX_NAME)
    if not text.startswith(HEAD):
        return {}
    lines = [line.rstrip(b",") for line in text[len(HEAD) :].split(b"\n")[1:-2]]
    folders = _FOLDER.findall(text)
    decode = json_decoder(SessionSurvey).decode
    if len(folders) != len(lines) or not is_ordered(map(decode, lines[:_IN_ORDER])):
        return {}
    return {folder.decode(): line for folder, line in zip(folders, lines, strict=True)}


def _project_in(line: bytes) -> bytes:
    """The project in a line of the index, as JSON; an empty string if it has none."""
    found = _PROJECT.search(line)
    return found[1] if found else b'""'


def _infos_in_lists(entries: Iterable[SessionSurvey]) -> list[SessionInfo]:
    """The entries that a list shows: those with messages or a title."""
    return [entry.info for entry in entries if entry.info.messages or entry.info.title]


def _newest_by_index(
    root: Path, is_wanted: Callable[[str], bool], count: int
) -> list[SessionSurvey]:
    """The current entries of the first `count` wanted sessions in the index, and of the sessions
    opened since; none if the index is in another order.
    """
    noted, _ = opened_sessions(root, _NOTES_READ)
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
    folders = dict.fromkeys([*(entry.info.folder for entry in page), *noted])
    current = [_current_entry(root, name, known.get(name)) for name in folders]
    return [entry for entry in current if entry and is_wanted(entry.info.project)]


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


def _current_entry(root: Path, name: str, known: SessionSurvey | None) -> SessionSurvey | None:
    """The entry as its file is now, surveyed again if the file has changed; None if there is no
    such session.
    """
    try:
        status = (root / name / FILE_NAME).lstat()
    except OSError:
        return None
    return known if known and is_current(known, status) else survey(root / name, status, known)
