"""Repairs session files: corrects values of a wrong type, moves damaged records to another file,
and numbers messages that have no number.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from ouro.memory.backend import SessionHeader, timestamp
from ouro.memory.record_fields import BadRecordError
from ouro.memory.safe_yaml import BadYamlError, dump
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
from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import plural

_MESSAGE_LINE = late_pattern(rb"^message:[^\n]*", re.MULTILINE)
_START_LINE = late_pattern(rb"\A---[ \t\r]*\n")


def repair(folder: Path, mask: Mask = str) -> tuple[str, ...]:
    """Repair the session in `folder`: correct records that have values of a wrong type, move
    unreadable data to a `.torn` file, and make a header if it was lost. Blocks.

    Good records stay unchanged, byte for byte. The former bytes of corrected records are in the
    `.torn` file too.

    Args:
        mask: masks secrets in a corrected record.

    Returns:
        What was done, as lines for the user; empty if nothing was wrong.

    Raises:
        SessionDamaged: a newer version of ouro wrote it; it is unchanged.
        OSError: it cannot be read or written.
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

    # Find out what is wrong. A record that cannot be read is None in `repaired`.
    repaired = [_repair_record(record, folder, mask) for record in records]
    changed_records: list[bytes] = []  # as they were, with their marks
    for record, repaired_data in zip(records, repaired, strict=True):
        if repaired_data != record.data:
            changed_records.append(data[record.offset : record.offset + record.size])
    if not (changed_records or tail or is_new):
        return ()

    # Save the former bytes, then write the file again.
    report = _save_originals(folder, changed_records, tail, repaired.count(None))
    if is_new:
        report.append("The header was lost. A new one was made.")
    kept_records = [
        START + repaired_data.strip(b"\n") + END
        for repaired_data in repaired
        if repaired_data is not None
    ]
    rewrite_file(folder, FILE_NAME, header + b"".join(kept_records))
    return (*report, f"Kept {plural(len(kept_records), 'record')}.")


def _save_originals(
    folder: Path, changed_records: list[bytes], tail: bytes, unreadable_count: int
) -> list[str]:
    """Save what a repair removes or changes in a `.torn` file. Returns what was done, as lines for
    the user; empty if there is nothing to save.

    Args:
        changed_records: the bytes that these records had before the repair.
        tail: the bytes after the last record, which are not a record.
        unreadable_count: how many of the changed records cannot be read, and are only moved.
    """
    if not (changed_records or tail):
        return []
    saved_path = save_beside(folder, "torn", b"".join(changed_records) + tail)
    corrected_count = len(changed_records) - unreadable_count
    return list(_describe_repair(unreadable_count, corrected_count, len(tail), saved_path))


def _read_header_bytes(records: Sequence[RawRecord]) -> bytes | None:
    """Returns the bytes of the header, with marks, as it is; None if the first record cannot be
    read as a header.
    """
    try:
        header_from(load_record(records[0]))
    except (IndexError, BadYamlError, BadRecordError):
        return None
    return START + records[0].data.strip(b"\n") + END


def _make_header(folder: Path) -> bytes:
    """Returns the bytes of a new header for the session in `folder`, with the day and the beginning
    of the id that the name of the folder has. Project and model are empty.
    """
    day, _, start_of_id = folder.name.partition("_")
    session_id = str(uuid.uuid4())
    if len(start_of_id) >= 8:
        session_id = start_of_id[:8] + session_id[8:]
    created_at = f"{day}T00:00:00.000Z" if len(day) == 10 else timestamp()
    return encode_record(
        header_data(SessionHeader(session_id, project="", model="", created_at=created_at))
    )


def _describe_repair(
    unreadable_count: int, corrected_count: int, tail_size: int, saved_path: Path
) -> Iterator[str]:
    """Yield what was done with damaged data, as lines for the user.

    Args:
        tail_size: the number of bytes after the last record.
        saved_path: that of the `.torn` file.
    """
    if unreadable_count or tail_size:
        records = plural(unreadable_count, "record")
        yield f"Moved {records} and {tail_size} bytes at the end to {saved_path}."
    if corrected_count:
        records = plural(corrected_count, "record")
        yield f"Corrected values in {records}. As they were, they are in {saved_path}."


def _repair_record(record: RawRecord, folder: Path, mask: Mask) -> bytes | None:
    """Returns the bytes of a record, without its marks, in which every value can be read. They are
    as before if nothing is wrong, or a newer ouro wrote this kind of record. None if it cannot be
    read.

    Long outputs of a corrected record are written into `folder`.
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
    """Returns the messages that need a number: those without one (0), and of several with the same
    number all but the first. `messages` has each with its number, in the order of the file.
    """
    used_numbers: set[int] = set()
    unnumbered: list[RawRecord] = []
    for record, number in messages:
        if number <= 0 or number in used_numbers:
            unnumbered.append(record)
        used_numbers.add(number)
    return tuple(unnumbered)


def number_messages(folder: Path, records: Sequence[RawRecord], first: int) -> None:
    """Write numbers into these messages of the session file in `folder`, beginning with `first`;
    the rest of the file stays byte for byte. Blocks.

    Otherwise the next start would give them other numbers, and references to them would break.
    """
    data = read_file(folder)
    numbers = range(first, first + len(records))
    # The last one first, so that the offsets of the others stay valid.
    for record, number in reversed(list(zip(records, numbers, strict=True))):
        old = data[record.offset : record.offset + record.size]
        line = b"message: %d" % number
        if _MESSAGE_LINE.search(old):
            new = _MESSAGE_LINE.sub(line, old, count=1)
        else:
            new = _START_LINE.sub(START + line + b"\n", old, count=1)
        # In a record of an unusual form the patterns may find nothing: it stays without a number.
        has_number = number_of(records_in(new)[0]) == number
        if has_number:
            data = data[: record.offset] + new + data[record.offset + record.size :]
    rewrite_file(folder, FILE_NAME, data)
