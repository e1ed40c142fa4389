"""Repair session files: move damaged records to another file, number messages that have no number."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from ouro.memory.backend import SessionHeader, timestamp
from ouro.memory.record_fields import BadRecordError
from ouro.memory.serialization import (
    Mask,
    UnknownRecordError,
    header_data,
    header_from,
    record_data,
)
from ouro.memory.sessions.session_file import (
    END,
    FILE_NAME,
    START,
    RawRecord,
    encode_record,
    number_of,
    read_file,
    records_in,
    rewrite_file,
    save_beside,
    split_records,
)
from ouro.memory.sessions.session_folders import load_record, write_output
from ouro.memory.sessions.session_reader import demand_known_format, read_record
from ouro.memory.sessions.yaml_text import BadYamlError, dump
from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import plural

_MESSAGE_LINE = late_pattern(rb"^message:[^\n]*", re.MULTILINE)
_START_LINE = late_pattern(rb"\A---[ \t\r]*\n")


def repair(folder: Path, mask: Mask = str) -> tuple[str, ...]:
    """Repair records of a session that hold values of a wrong type, and move unreadable data to a
    `.torn` file.

    Good records stay unchanged, byte for byte; the former bytes of repaired records are in the
    `.torn` file too. Returns the actions, one line each. Raises SessionDamaged if a newer version
    of ouro wrote it, or OSError; the file is then unchanged. Blocks.
    """
    demand_known_format(folder)
    data = read_file(folder)
    records, tail = split_records(data)
    header = _read_header_bytes(records)
    is_new = header is None
    if header is None:
        header = _make_header(folder)
    else:
        records = records[1:]
    repaired = [_repair_record(record, folder, mask) for record in records]
    changed_records: list[bytes] = []
    for record, repaired_data in zip(records, repaired, strict=True):
        if repaired_data != record.data:
            changed_records.append(data[record.offset : record.offset + record.size])
    if not (changed_records or tail or is_new):
        return ()
    report = _save_former(folder, changed_records, tail, repaired.count(None))
    if is_new:
        report.append("The header was lost. A new one was made.")
    kept_records = [
        START + repaired_data.strip(b"\n") + END
        for repaired_data in repaired
        if repaired_data is not None
    ]
    rewrite_file(folder, FILE_NAME, header + b"".join(kept_records))
    return (*report, f"Kept {plural(len(kept_records), 'record')}.")


def _save_former(
    folder: Path, changed_records: list[bytes], tail: bytes, unreadable_count: int
) -> list[str]:
    """Save changed records as they were, and what is after the last record. Returns what was done,
    as lines for the user.
    """
    if not (changed_records or tail):
        return []
    saved_path = save_beside(folder, "torn", b"".join(changed_records) + tail)
    return list(
        _lines_about(
            unreadable_count, len(changed_records) - unreadable_count, len(tail), str(saved_path)
        )
    )


def _read_header_bytes(records: Sequence[RawRecord]) -> bytes | None:
    """The header of a session as it is; None if it cannot be read."""
    try:
        header_from(load_record(records[0]))
    except (IndexError, BadYamlError, BadRecordError):
        return None
    return START + records[0].data.strip(b"\n") + END


def _make_header(folder: Path) -> bytes:
    """Make a header with what the name of the folder says."""
    day, _, start = folder.name.partition("_")
    session_id = str(uuid.uuid4())
    if len(start) >= 8:
        session_id = start[:8] + session_id[8:]
    created_at = f"{day}T00:00:00.000Z" if len(day) == 10 else timestamp()
    return encode_record(
        header_data(SessionHeader(session_id, project="", model="", created_at=created_at))
    )


def _lines_about(moved: int, repaired: int, tail: int, saved: str) -> Iterator[str]:
    """Yield what was done with damaged data, as lines for the user."""
    if moved or tail:
        yield f"Moved {plural(moved, 'record')} and {tail} bytes at the end to {saved}."
    if repaired:
        records = plural(repaired, "record")
        yield f"Corrected values in {records}. As they were, they are in {saved}."


def _repair_record(record: RawRecord, folder: Path, mask: Mask) -> bytes | None:
    """The bytes of a record in which every value can be read: as they were if nothing is wrong or
    the kind of record is unknown; None if nothing can be read. Long outputs of a repaired record
    are written into `folder`.
    """
    try:
        read = read_record(record, folder)
    except UnknownRecordError:
        return record.data
    except (BadYamlError, BadRecordError):
        return None
    if not read.repaired:
        return record.data
    return dump(record_data(read.record, mask, partial(write_output, folder))).encode()


def messages_without_number(messages: Sequence[tuple[RawRecord, int]]) -> tuple[RawRecord, ...]:
    """The messages that need a new number: those without a number, and the second of two with the
    same number.
    """
    used_numbers: set[int] = set()
    unnumbered: list[RawRecord] = []
    for record, number in messages:
        if number <= 0 or number in used_numbers:
            unnumbered.append(record)
        used_numbers.add(number)
    return tuple(unnumbered)


def number_messages(folder: Path, records: Sequence[RawRecord], first: int) -> None:
    """Write numbers into these messages, beginning with `first`; the rest of the file stays byte
    for byte. Blocks.

    Otherwise the next start would assign other numbers, and references to a message would break.
    """
    data = read_file(folder)
    numbers = range(first, first + len(records))
    for record, number in reversed(list(zip(records, numbers, strict=True))):
        old = data[record.offset : record.offset + record.size]
        line = b"message: %d" % number
        new = _MESSAGE_LINE.sub(line, old, count=1)
        if not _MESSAGE_LINE.search(old):
            new = _START_LINE.sub(START + line + b"\n", old, count=1)
        if number_of(records_in(new)[0]) == number:
            data = data[: record.offset] + new + data[record.offset + record.size :]
    rewrite_file(folder, FILE_NAME, data)
