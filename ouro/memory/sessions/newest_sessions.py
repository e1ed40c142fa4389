"""Makes the first page of a list of sessions without reading all sessions.

The index begins with the sessions that were used last. Sessions that were opened since are noted
beside it. For the screen both are only hints: each file of the page is looked at, and the whole
list follows. For a command that prints one page the names of all folders are compared with the
index too, so that the page is complete.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import msgspec

from ouro.errors import SessionError
from ouro.memory.backend import SessionInfo
from ouro.memory.sessions.index_journal import INDEX_NAME, MANY_NOTES_BYTES, opened_sessions
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

_NOTES_BYTES = 2 << 10
"""The end of the notes that a first page for the screen reads: about fifty sessions."""
_BLOCK_BYTES = 64 << 10
_MAX_READ = 1 << 20
"""With fewer sessions of the project in so many bytes, the whole list is waited for."""
_MAX_SURVEYED = 300
"""With more sessions that the index does not have, the whole list is made, and the index with
it.
"""
_ENTRIES_COMPARED = 64
"""So many entries show whether the index is in the order of lists."""
_FOLDER_FIELD = late_pattern(rb'"folder":"([^"\\]*)"')
"""The folder in a line of the index."""
_PROJECT_FIELD = late_pattern(rb'"project":("(?:[^"\\]|\\.)*")')
"""The project in a line of the index, as JSON."""


def quick_first_page(root: Path, is_wanted: Callable[[str], bool], count: int) -> list[SessionInfo]:
    """Returns the first `count` sessions whose project is wanted, pinned ones first, as far as the
    index and the notes beside it know them. Empty if the index cannot be used. Blocks.
    """
    try:
        entries = _quick_entries(root, is_wanted, count)
    except (OSError, SessionError, msgspec.MsgspecError, UnicodeDecodeError):
        return []  # missing, broken or of another version
    # A copy made by hand has the id of another session. Only the whole list can show which one is
    # the copy.
    originals = [info for info in _infos_in_lists(entries) if is_named_after(info.folder, info.id)]
    return sorted(originals, key=rank, reverse=True)[:count]


def exact_first_page(
    root: Path, is_wanted: Callable[[str], bool], count: int
) -> list[SessionInfo] | None:
    """Returns the first `count` sessions of the whole list whose project is wanted, pinned ones
    first.

    Of the other sessions only the names are compared with the index. None if the first ones cannot
    be known from the index: then the whole list must be made. Blocks.
    """
    try:
        entries = _exact_entries(root, is_wanted, count)
    except (OSError, SessionError, msgspec.MsgspecError, UnicodeDecodeError):
        return None  # missing, broken or of another version
    if entries is None:
        return None
    infos = [info for info in _infos_in_lists(entries) if is_wanted(info.project)]
    # A copy made by hand has the id of another session. Only the whole list can mark it as a copy.
    if not all(is_named_after(info.folder, info.id) for info in infos):
        return None
    return sorted(infos, key=rank, reverse=True)[:count]


def _exact_entries(
    root: Path, is_wanted: Callable[[str], bool], count: int
) -> list[SessionSurvey] | None:
    """Returns the current entries of the first `count` wanted sessions in the index whose files
    have not changed since the index was written, and then of all sessions whose files have changed,
    wanted or not. None if the index cannot be used, or if too many sessions have changed.
    """
    opened_names, is_read_whole = opened_sessions(root, MANY_NOTES_BYTES)
    indexed_lines = _indexed_lines(root)
    if not is_read_whole or not indexed_lines:
        return None
    names = set(folder_names(root))
    changed = (names - indexed_lines.keys()) | (names & set(opened_names))
    if len(changed) > _MAX_SURVEYED:
        return None
    decode = json_decoder(SessionSurvey).decode
    # Asks `is_wanted` about a project given as JSON, once for each project: many sessions have the
    # same one.
    is_wanted_json = cache(lambda project: is_wanted(json_decoder(str).decode(project)))
    page: list[SessionSurvey] = []
    for name, line in indexed_lines.items():
        if len(page) == count:
            break
        is_unchanged = name in names and name not in changed
        if not is_unchanged or not is_wanted_json(_project_in(line)):
            continue
        entry = _current_entry(root, name, decode(line))
        if entry and _infos_in_lists([entry]):
            page.append(entry)
    # The changed ones are added to the `count` others: the caller sorts all, and cuts the page.
    for name in changed:
        indexed = decode(indexed_lines[name]) if name in indexed_lines else None
        if entry := _current_entry(root, name, indexed):
            page.append(entry)
    return page


def _indexed_lines(root: Path) -> dict[str, bytes]:
    """Returns the lines of the index by the folders of their sessions, in the order in which
    sessions are listed. Empty if the index has another version, or its first lines another order.
    """
    text = read_file(root, INDEX_NAME)
    if not text.startswith(HEAD):
        return {}
    # One entry on each line. The first line has only a bracket, the last but one too, and the last
    # one is empty.
    entry_lines = text[len(HEAD) :].split(b"\n")[1:-2]
    lines = [line.rstrip(b",") for line in entry_lines]
    folders = _FOLDER_FIELD.findall(text)
    decode = json_decoder(SessionSurvey).decode
    if len(folders) != len(lines) or not is_ordered(map(decode, lines[:_ENTRIES_COMPARED])):
        return {}
    return {folder.decode(): line for folder, line in zip(folders, lines, strict=True)}


def _project_in(line: bytes) -> bytes:
    """Returns the project in a line of the index, as JSON; an empty JSON string if it has none."""
    match = _PROJECT_FIELD.search(line)
    return match[1] if match else b'""'


def _infos_in_lists(entries: Iterable[SessionSurvey]) -> list[SessionInfo]:
    """Returns the sessions that a list shows: those with messages or a title."""
    return [entry.info for entry in entries if entry.info.messages or entry.info.title]


def _quick_entries(root: Path, is_wanted: Callable[[str], bool], count: int) -> list[SessionSurvey]:
    """Returns the current entries of the first `count` wanted sessions in the index, and of the
    wanted ones that were opened since. Empty if the index is in another order.
    """
    opened_names, _ = opened_sessions(root, _NOTES_BYTES)
    indexed: dict[str, SessionSurvey] = {}
    page: list[SessionSurvey] = []
    with open_private(root, INDEX_NAME, os.O_RDONLY) as descriptor:
        for entry in _read_entries(descriptor):
            indexed[entry.info.folder] = entry
            if is_wanted(entry.info.project):
                page.append(entry)
            if len(page) >= count:
                break
    if not is_ordered(indexed.values()):
        return []  # an earlier version wrote it
    folders = dict.fromkeys([*(entry.info.folder for entry in page), *opened_names])
    current = [_current_entry(root, name, indexed.get(name)) for name in folders]
    return [entry for entry in current if entry and is_wanted(entry.info.project)]


def _read_entries(descriptor: int) -> Iterator[SessionSurvey]:
    """Yield the entries of the index in its order; none if the index has another version. Reads
    the next block when its first entry is asked for, and at most `_MAX_READ` bytes in all. Raises
    MsgspecError if an entry is not valid.
    """
    decode = json_decoder(SessionSurvey).decode
    text, offset = read_range(descriptor, start=0, end=_BLOCK_BYTES), _BLOCK_BYTES
    if not text.startswith(HEAD):
        return
    *lines, incomplete_line = text[len(HEAD) :].split(b"\n")
    lines = lines[1:]  # the first line is only the opening bracket of the list
    while True:
        for line in lines:
            if line != b"]":
                yield decode(line.rstrip(b","))
        text = read_range(descriptor, offset, offset + _BLOCK_BYTES) if offset < _MAX_READ else b""
        if not text:
            return
        offset += _BLOCK_BYTES
        # The last line of the block before continues in this block.
        *lines, incomplete_line = (incomplete_line + text).split(b"\n")


def _current_entry(root: Path, name: str, indexed: SessionSurvey | None) -> SessionSurvey | None:
    """Returns the entry of a session as its file is now: the one of the index, or a new one if the
    file has changed or the index has none. None if there is no such session.
    """
    try:
        status = (root / name / FILE_NAME).lstat()
    except OSError:
        return None
    if indexed and is_current(indexed, status):
        return indexed
    return survey(root / name, status, indexed)
