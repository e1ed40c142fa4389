"""Numbers for messages that a person has put into a session by hand, without one or with one that is taken."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ouro.memory.sessions.session_file import FILE_NAME, START, Block, number_of, read_file, replace, split

_LINE = re.compile(rb"^message:[^\n]*", re.MULTILINE)
_START = re.compile(rb"\A---[ \t\r]*\n")


def unnamed(blocks: Sequence[tuple[Block, int]]) -> tuple[Block, ...]:
    """The messages that need a number of their own: of two with the same one the second."""
    seen: set[int] = set()
    found: list[Block] = []
    for block, number in blocks:
        if number <= 0 or number in seen:
            found.append(block)
        seen.add(number)
    return tuple(found)


def name_messages(folder: Path, blocks: Sequence[Block], first: int) -> None:
    """Write numbers from `first` on into these messages; all else in the file stays as it is, byte for byte.

    Without it a later start would give them others, and what refers to a message would miss it.

    Raises:
        OSError: the file could not be read or written; it is as it was.
        SessionError: it is not ours.
    """
    data = read_file(folder)
    numbers = range(first, first + len(blocks))
    for block, number in reversed(list(zip(blocks, numbers, strict=True))):
        old = data[block.offset : block.offset + block.size]
        new = _named(old, number)
        if number_of(split(new)[0][0]) == number:
            data = data[: block.offset] + new + data[block.offset + block.size :]
    replace(folder, FILE_NAME, data)


def _named(record: bytes, number: int) -> bytes:
    line = b"message: %d" % number
    if _LINE.search(record):
        return _LINE.sub(line, record, count=1)
    found = _START.match(record)
    return START + line + b"\n" + record[found.end() :] if found else record
