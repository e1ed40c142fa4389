"""True forget in sessions: record by record, so that what is left of one can be taken up as before."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec

from ouro.errors import SessionError, SessionInUse
from ouro.memory.long_term.forget.files import ForgetTally, forget_in_file, regular_files
from ouro.memory.long_term.forget.needle import ForgottenText
from ouro.memory.sessions.session_file import (
    FILE_NAME,
    LOCK_NAME,
    RawRecord,
    SessionLock,
    as_record,
    read_file,
    replace,
    split,
)
from ouro.memory.sessions.session_folders import TRASH
from ouro.memory.sessions.session_index import INDEX_NAME
from ouro.memory.sessions.session_reader import is_readable
from ouro.memory.sessions.yaml_text import BadYamlError, dump, load

Progress = Callable[[str], None]


def forget_in_sessions(
    root: Path, needle: ForgottenText, tally: ForgetTally, progress: Progress, *, changes: bool
) -> None:
    """Look through all sessions, those in the trash too; where `changes`, write them anew without it."""
    for place in (root, root / TRASH):
        folders = sorted(each for each in place.iterdir() if each.is_dir()) if place.is_dir() else []
        for number, folder in enumerate(each for each in folders if each.name != TRASH):
            if number % 50 == 0:
                progress(f"sessions: {number} of {len(folders)}")
            _in_session(folder, needle, tally, changes)
    index = root / INDEX_NAME
    if index.is_file() and tally.add("the list of sessions", needle.count_bytes(index.read_bytes())) and changes:
        index.unlink()  # it is made again from the sessions


def _in_session(folder: Path, needle: ForgottenText, tally: ForgetTally, changes: bool) -> None:
    files = [each for each in regular_files(folder) if each.name != LOCK_NAME]
    found = {each: count for each in files if (count := needle.count_bytes(each.read_bytes()))}
    for path, count in found.items():
        tally.add(_what(path.relative_to(folder)), count)
    if not (found and changes):
        return
    tally.sessions.append(folder.name)
    try:
        with closing(_Closing(folder)):
            for path in found:
                if path.name == FILE_NAME:
                    _in_records(folder, needle, tally)
                else:
                    forget_in_file(path, needle, tally)
    except SessionInUse as error:
        tally.left.append(
            f"Session {folder.name}: {error.message} Close it, then forget once more: what is there is as it was."
        )
    except (SessionError, OSError) as error:
        tally.left.append(f"Session {folder.name}: it could not be written ({error}). Mend that, and forget once more.")


class _Closing:
    def __init__(self, folder: Path) -> None:
        self._lock = SessionLock(folder)

    def close(self) -> None:
        self._lock.release()


def _what(path: Path) -> str:
    if path.name == FILE_NAME:
        return "what was said in sessions, their summaries and titles"
    return "tool outputs beside sessions" if path.parent.name == "outputs" else "what was set aside beside sessions"


def _in_records(folder: Path, needle: ForgottenText, tally: ForgetTally) -> None:
    data = read_file(folder)
    pieces: list[bytes] = []
    at = 0
    for block in split(data)[0]:
        pieces += [needle.bytes_without(data[at : block.offset])]
        at = block.offset + block.size
        raw = data[block.offset : at]
        pieces.append(_record(folder, block, raw, needle) if needle.count_bytes(raw) else raw)
    pieces.append(needle.bytes_without(data[at:]))
    made = b"".join(pieces)
    if made != data:
        replace(folder, FILE_NAME, made)
    if left := needle.count_bytes(made):
        tally.left.append(
            f"Session {folder.name}: {left} times in what says how to read it (the name of a tool, a model or the "
            "project's folder): it stays, or the session could not be read."
        )


def _record(folder: Path, block: RawRecord, raw: bytes, needle: ForgottenText) -> bytes:
    """A record without it, that is read as before; what was no record is only text."""
    if not block.is_whole:
        return needle.bytes_without(raw)
    try:
        made = as_record(dump(needle.in_data(load(block.data))))
    except BadYamlError:
        return needle.bytes_without(raw)
    new = msgspec.structs.replace(block, data=made[4:-4])
    check = partial(is_readable, folder=folder)
    return made if check(new) or not check(block) else raw
