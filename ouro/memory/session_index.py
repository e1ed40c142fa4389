"""`.index.yaml`: what a list says of each session, so that a list opens no folder. Derived; may be deleted.

One line a session, JSON, which is YAML too and read a hundred times faster. Each line holds size and time of the file
it speaks of: what does not fit any more is read again, so nobody has to keep it up to date while a session runs.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import msgspec

from ouro.errors import SessionError
from ouro.memory.backend import SessionInfo
from ouro.memory.serialization import BadRecordError, header_from
from ouro.memory.session_file import FILE_NAME, Block, opened, read_file, read_range, replace, split
from ouro.memory.yaml_text import BadYamlError, load
from ouro.utils.terminal_text import clean

INDEX_NAME = ".index.yaml"
_HEAD = b"# Made from the sessions in this folder; may be deleted at any time.\nformat: 1\nsessions:\n"
_ALWAYS_WHOLE = 8 << 20
_READ_AT_ONCE = 64 << 20
_EDGE = 1 << 20

_KIND = re.compile(rb"(?:\s|#[^\n]*\n)*(\w+):")
_NUMBER = re.compile(rb"^message: *([0-9]{1,9})", re.MULTILINE)
_AT = re.compile(rb"^at: *\"?([0-9T:.Z-]+)", re.MULTILINE)
_COST = re.compile(rb"^usage: \{[^\n]*\bcost: *([0-9.eE+-]+)", re.MULTILINE)


class Entry(msgspec.Struct):
    """One line of the index."""

    folder: str
    id: str
    title: str = ""
    project: str = ""
    model: str = ""
    created_at: str = ""
    updated_at: str = ""
    messages: int = 0
    cost: float | None = None
    size: int = 0
    mtime: int = 0
    """In nanoseconds."""
    read: int = 0
    """Up to here the file was looked at."""

    def info(self) -> SessionInfo:
        """For a list."""
        return SessionInfo(
            id=self.id,
            title=self.title,
            project=self.project,
            model=self.model,
            created_at=self.created_at,
            updated_at=self.updated_at,
            messages=self.messages,
            size=self.size,
            cost=self.cost,
            folder=self.folder,
        )


def entries(root: Path, *, anew: bool = False) -> list[Entry]:
    """An entry for each session below `root`, as it is now; the index is brought up to date where it can be."""
    known = {} if anew else _read(root)
    found = [_current(root, folder, known.get(folder)) for folder in _folders(root)]
    current = {each.folder: each for each in found if each is not None}
    if current != known or anew:
        _write(root, current)
    return list(current.values())


def entry_of(root: Path, folder: str) -> Entry | None:
    """One session as it is now, without the index; None where there is none."""
    return _current(root, folder, None)


def _folders(root: Path) -> list[str]:
    try:
        with os.scandir(root) as found:
            return sorted(
                each.name for each in found if not each.name.startswith(".") and each.is_dir(follow_symlinks=False)
            )
    except FileNotFoundError:
        return []


def _read(root: Path) -> dict[str, Entry]:
    try:
        text = read_file(root, INDEX_NAME)
        if not text.startswith(_HEAD):
            return {}
        decode = msgspec.json.Decoder(Entry).decode
        lines = text[len(_HEAD) :].splitlines()
        return {each.folder: each for each in (decode(line.removeprefix(b"- ")) for line in lines)}
    except (OSError, SessionError, msgspec.MsgspecError, UnicodeDecodeError):
        # Missing, broken, of a newer ouro: it is made again from the sessions.
        return {}


def _write(root: Path, current: dict[str, Entry]) -> None:
    encode = msgspec.json.Encoder().encode
    lines = [b"- " + encode(each) + b"\n" for each in current.values()]
    try:
        replace(root, INDEX_NAME, _HEAD + b"".join(lines))
    except (OSError, SessionError):
        # A folder that cannot be written: the next list looks again.
        return


def _current(root: Path, folder: str, known: Entry | None) -> Entry | None:
    try:
        found = os.stat(f"{root}/{folder}/{FILE_NAME}", follow_symlinks=False)  # noqa: PTH116 (10,000 of them)
    except OSError:
        return None
    if known is not None and known.size == found.st_size and known.mtime == found.st_mtime_ns:
        return known
    entry = Entry(folder, folder.partition("_")[2])
    if known is not None and known.read <= found.st_size and found.st_size > _ALWAYS_WHOLE:
        entry = msgspec.structs.replace(known)
    try:
        _look(root / folder, entry, found.st_size)
    except (OSError, SessionError, BadYamlError, BadRecordError) as error:
        entry.title = entry.title or f"[cannot be read: {clean(str(error)).splitlines()[0]}]"
    entry.size, entry.mtime = found.st_size, found.st_mtime_ns
    return entry


def _look(folder: Path, entry: Entry, size: int) -> None:
    with opened(folder, FILE_NAME, os.O_RDONLY) as descriptor:
        if size - entry.read > _READ_AT_ONCE:
            # Nobody waits for a list while hundreds of megabytes are read: its start, then its end.
            first, _ = split(read_range(descriptor, 0, _EDGE))
            _take(entry, first)
            entry.read = size - _EDGE
            entry.messages = max(0, _first_number(read_range(descriptor, entry.read, size)) - 1)
        blocks, _ = split(read_range(descriptor, entry.read, size))
    _take(entry, blocks)
    if blocks:
        entry.read += blocks[-1].offset + blocks[-1].size
    if not entry.created_at:
        raise BadRecordError("its header is missing")


def _first_number(data: bytes) -> int:
    found = _NUMBER.search(data)
    return int(found[1]) if found else 0


def _take(entry: Entry, blocks: list[Block]) -> None:
    for block in blocks:
        kind = _KIND.match(block.data)
        name = kind[1] if kind and block.is_whole else b""
        if name == b"message":
            _take_message(entry, block.data)
        elif name in (b"session", b"title", b"model"):
            _take_other(entry, name.decode(), load(block.data))


def _take_message(entry: Entry, data: bytes) -> None:
    entry.messages += 1
    if at := _AT.search(data):
        entry.updated_at = max(entry.updated_at, at[1].decode())
    if cost := _COST.search(data):
        entry.cost = (entry.cost or 0.0) + float(cost[1])


def _take_other(entry: Entry, kind: str, data: Any) -> None:
    if kind == "session":
        header = header_from(data)
        entry.id, entry.project, entry.model = header.id, header.project, header.model
        entry.created_at = entry.updated_at = header.created_at
    elif isinstance(data, dict) and isinstance(data.get(kind), str):
        setattr(entry, kind, clean(data[kind]).replace("\n", " "))
