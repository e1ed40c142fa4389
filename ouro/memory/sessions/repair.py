"""Make a damaged session whole again: the good records stay as they are, byte for byte; the rest is set aside."""

from __future__ import annotations

import uuid
from pathlib import Path

from ouro.errors import SessionDamaged
from ouro.memory.backend import FORMAT, SessionHeader, timestamp
from ouro.memory.serialization import BadRecordError, header_data, header_from
from ouro.memory.sessions.session_file import END, FILE_NAME, START, RawRecord, keep_aside, read_file, replace, split
from ouro.memory.sessions.session_reader import is_sound
from ouro.memory.sessions.yaml_text import BadYamlError, dump, load


def repair(folder: Path) -> tuple[str, ...]:
    """Set what is damaged in a session aside; gives what was done, a line each, nothing where all was well.

    Raises:
        SessionDamaged: a newer ouro wrote it; it is left alone.
        OSError: the file could not be read or written; it is as it was.
    """
    data = read_file(folder)
    blocks, tail = split(data)
    header, is_new = _header(blocks, folder)
    good = [block for block in (blocks if is_new else blocks[1:]) if is_sound(block, folder)]
    bad = [block for block in blocks if block not in good and (is_new or block is not blocks[0])]
    if not (bad or tail or is_new):
        return ()
    aside = b"".join(data[block.offset : block.offset + block.size] for block in bad) + tail
    report = (
        [f"Set aside: {len(bad)} records and {len(tail)} bytes at the end, in {keep_aside(folder, aside)}."]
        if aside
        else []
    )
    if is_new:
        report.append("The header was lost: a new one was made.")
    replace(folder, FILE_NAME, header + b"".join(START + each.data.strip(b"\n") + END for each in good))
    return (*report, f"Kept: {len(good)} records.")


def _header(blocks: list[RawRecord], folder: Path) -> tuple[bytes, bool]:
    """The first record with its marks, and whether it had to be made."""
    try:
        header = header_from(load(blocks[0].data)) if blocks and blocks[0].is_whole else None
    except (BadYamlError, BadRecordError):
        header = None
    if header is None:
        return START + dump(header_data(_new_header(folder))).encode() + END[1:], True
    if header.format > FORMAT:
        raise SessionDamaged(f"{folder / FILE_NAME} was written by a newer ouro; it is left alone.")
    return START + blocks[0].data.strip(b"\n") + END, False


def _new_header(folder: Path) -> SessionHeader:
    day, _, start = folder.name.partition("_")
    made = start[:8] + str(uuid.uuid4())[8:] if len(start) >= 8 else str(uuid.uuid4())
    created_at = f"{day}T00:00:00.000Z" if len(day) == 10 else timestamp()
    return SessionHeader(made, "", "", created_at)
