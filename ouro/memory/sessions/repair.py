"""Repair session files: move damaged records to another file, number messages that have no number."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from pathlib import Path

from ouro.errors import SessionDamaged
from ouro.memory.backend import FORMAT, SessionHeader, timestamp
from ouro.memory.serialization import BadRecordError, header_data, header_from
from ouro.memory.sessions.session_file import (
    END,
    FILE_NAME,
    START,
    RawRecord,
    number_of,
    read_file,
    replace,
    save_damaged,
    split,
)
from ouro.memory.sessions.session_reader import is_readable
from ouro.memory.sessions.yaml_text import BadYamlError, dump, load

_MESSAGE_LINE = re.compile(rb"^message:[^\n]*", re.MULTILINE)
_START_LINE = re.compile(rb"\A---[ \t\r]*\n")


def repair(folder: Path) -> tuple[str, ...]:
    """Move what is damaged in a session to a `.torn` file; good records stay as they are, byte for byte. Blocks.

    Returns what was done, one line each. What it raises leaves the file unchanged: SessionDamaged if a newer ouro
    wrote it, or OSError.
    """
    data = read_file(folder)
    records, tail = split(data)
    header, is_new = _header(records, folder)
    good = [record for record in (records if is_new else records[1:]) if is_readable(record, folder)]
    bad = [record for record in records if record not in good and (is_new or record is not records[0])]
    if not (bad or tail or is_new):
        return ()
    damaged = b"".join(data[record.offset : record.offset + record.size] for record in bad) + tail
    report = []
    if damaged:
        saved = save_damaged(folder, damaged)
        report.append(f"Moved {len(bad)} records and {len(tail)} bytes at the end to {saved}.")
    if is_new:
        report.append("The header was lost. A new one was made.")
    replace(folder, FILE_NAME, header + b"".join(START + record.data.strip(b"\n") + END for record in good))
    return (*report, f"Kept {len(good)} records.")


def _header(records: list[RawRecord], folder: Path) -> tuple[bytes, bool]:
    try:
        header = header_from(load(records[0].data)) if records and records[0].is_whole else None
    except (BadYamlError, BadRecordError):
        header = None
    if header is None:
        return START + dump(header_data(_new_header(folder))).encode() + END[1:], True
    if header.format > FORMAT:
        raise SessionDamaged(f"{folder / FILE_NAME} was written by a newer ouro. It was not changed.")
    return START + records[0].data.strip(b"\n") + END, False


def _new_header(folder: Path) -> SessionHeader:
    day, _, start = folder.name.partition("_")
    made = start[:8] + str(uuid.uuid4())[8:] if len(start) >= 8 else str(uuid.uuid4())
    created_at = f"{day}T00:00:00.000Z" if len(day) == 10 else timestamp()
    return SessionHeader(made, "", "", created_at)


def without_number(messages: Sequence[tuple[RawRecord, int]]) -> tuple[RawRecord, ...]:
    """The messages that need a new number: those without one, and of two with the same number the second."""
    seen: set[int] = set()
    found: list[RawRecord] = []
    for record, number in messages:
        if number <= 0 or number in seen:
            found.append(record)
        seen.add(number)
    return tuple(found)


def number_messages(folder: Path, records: Sequence[RawRecord], first: int) -> None:
    """Write numbers from `first` on into these messages; the rest of the file stays as it is, byte for byte. Blocks.

    Without that the next start would assign other numbers, and references to a message would break.
    """
    data = read_file(folder)
    numbers = range(first, first + len(records))
    for record, number in reversed(list(zip(records, numbers, strict=True))):
        old = data[record.offset : record.offset + record.size]
        new = _with_number(old, number)
        if number_of(split(new)[0][0]) == number:
            data = data[: record.offset] + new + data[record.offset + record.size :]
    replace(folder, FILE_NAME, data)


def _with_number(record: bytes, number: int) -> bytes:
    line = b"message: %d" % number
    if _MESSAGE_LINE.search(record):
        return _MESSAGE_LINE.sub(line, record, count=1)
    found = _START_LINE.match(record)
    return START + line + b"\n" + record[found.end() :] if found else record
