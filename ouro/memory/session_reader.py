"""A session file as records: what can be believed, and what is to be said of the rest."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path

import msgspec

from ouro.errors import SessionDamaged
from ouro.memory.backend import FORMAT, LoadedSession, Record, SessionHeader
from ouro.memory.images import fetch_image
from ouro.memory.serialization import BadRecordError, UnknownRecordError, header_from, record_from
from ouro.memory.session_file import FILE_NAME, Block, opened, read_range, split
from ouro.memory.yaml_text import BadYamlError, load

MOST_READ = 64 << 20
"""Bytes of a session that are read; of a longer one the end, which is more than any model's window holds."""
MOST_IN_A_RECORD = 32 << 20
_MOST_NOTICES = 3


class _Findings(msgspec.Struct):
    """What is to be told, gathered while reading."""

    damaged: list[str] = msgspec.field(default_factory=list)
    kinds: Counter[str] = msgspec.field(default_factory=Counter)
    fields: Counter[str] = msgspec.field(default_factory=Counter)

    def notices(self, path: Path) -> list[str]:
        lines = [f"{each} It is skipped, and stays in {path}." for each in self.damaged[:_MOST_NOTICES]]
        if len(self.damaged) > _MOST_NOTICES:
            lines.append(f"{len(self.damaged) - _MOST_NOTICES} more records cannot be read; they stay in {path}.")
        if self.kinds:
            lines.append(f"Skipped what a newer ouro has written: {_listed(self.kinds)}.")
        if self.fields:
            lines.append(f"Fields that this ouro does not know were left out: {_listed(self.fields)}.")
        return lines


def read_session(folder: Path) -> LoadedSession:
    """The session in `folder`; a tail without its end mark is left out.

    Raises:
        SessionDamaged: the first record cannot be believed.
        SessionError: the file is not ours.
        OSError: it cannot be read.
    """
    path = folder / FILE_NAME
    with opened(folder, FILE_NAME, os.O_RDONLY) as descriptor:
        size = os.fstat(descriptor).st_size
        if size <= MOST_READ:
            blocks, tail = split(read_range(descriptor, 0, size))
            header, rest, notices = _header(blocks, path), blocks[1:], []
        else:
            first, _ = split(read_range(descriptor, 0, 1 << 20))
            header = _header(first, path)
            rest, tail = _end_of(descriptor, size)
            notices = [
                f"The session has {size >> 20} MB: its last {MOST_READ >> 20} MB were read. The rest stays in {path}."
            ]
    findings = _Findings()
    records = tuple(_records(rest, folder, findings))
    notices += findings.notices(path)
    if tail:
        notices.append(f"The last record of {path} was cut off in the middle ({len(tail)} bytes): it is left out.")
    if header.format > FORMAT:
        notices.append(
            f"{path} was written by a newer ouro (format {header.format}): opened read-only, nothing is saved."
        )
    return LoadedSession(header, records, tuple(notices), read_only=header.format > FORMAT)


def _header(blocks: list[Block], path: Path) -> SessionHeader:
    hint = "`ouro sessions repair` sets the damage aside and keeps the rest."
    if not blocks:
        raise SessionDamaged(f"{path} holds no whole record.", hint)
    try:
        return header_from(_data(blocks[0]))
    except (BadYamlError, BadRecordError) as error:
        raise SessionDamaged(f"{path} cannot be read: {error}.", hint) from error


def _end_of(descriptor: int, size: int) -> tuple[list[Block], bytes]:
    data = read_range(descriptor, size - MOST_READ, size)
    blocks, tail = split(data, size - MOST_READ)
    return blocks[1:], tail  # the first one has lost its start


def _records(blocks: list[Block], folder: Path, findings: _Findings) -> list[Record]:
    records: list[Record] = []
    fetch = partial(fetch_image, folder)
    for block in blocks:
        try:
            record, unknown = record_from(_data(block), fetch)
        except UnknownRecordError as error:
            findings.kinds[str(error)] += 1
        except (BadYamlError, BadRecordError) as error:
            findings.damaged.append(f"The record at byte {block.offset} cannot be read: {error}.")
        else:
            records.append(record)
            findings.fields.update(unknown)
    return records


def _data(block: Block) -> object:
    if not block.is_whole:
        raise BadRecordError("its end is missing")
    if len(block.data) > MOST_IN_A_RECORD:
        raise BadRecordError(f"it has over {MOST_IN_A_RECORD >> 20} MB")
    return load(block.data)


def is_sound(block: Block, folder: Path) -> bool:
    """Whether a record can be read, or was written by a newer ouro."""
    try:
        record_from(_data(block), partial(fetch_image, folder))
    except UnknownRecordError:
        return True
    except (BadYamlError, BadRecordError):
        return False
    return True


def _listed(names: Counter[str]) -> str:
    return ", ".join(f"{count} × `{name[:40]}`" for name, count in sorted(names.items()))
