"""A whole session, from its first record to its last, in memory that does not grow with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from ouro.errors import SessionError
from ouro.memory.backend import MemoryStore
from ouro.memory.serialization import BadRecordError, UnknownRecordError, header_from, record_from
from ouro.memory.sessions.outputs import fetch_output
from ouro.memory.sessions.records import Record, SessionHeader
from ouro.memory.sessions.session_file import FILE_NAME, RawRecord, opened, read_range, split
from ouro.memory.sessions.yaml_text import BadYamlError, load

_READ_AT_ONCE = 4 << 20


class WholeSession(msgspec.Struct, frozen=True):
    """A session as it is kept, all of it."""

    header: SessionHeader
    records: Callable[[], Iterator[Record]]
    """Every record, oldest first, what was taken back and compacted among them. May be asked for again."""


def read_whole(store: MemoryStore, session_id: str) -> WholeSession:
    """A session from its first record to its last; blocks on a disk, as its `records` do.

    What cannot be read in it is left out, as it is when the session is opened.

    Raises:
        SessionError: there is no such session, or it cannot be read.
    """
    header = store.load_session(session_id, read_only=True, reach="screen").header
    folder = store.outputs_folder(header).parent
    if _id_in(folder) == session_id:
        return WholeSession(header, partial(_records, folder))
    loaded = store.load_session(session_id, read_only=True)  # of a store without files
    return WholeSession(loaded.header, lambda: iter(loaded.records))


def _id_in(folder: Path) -> str:
    """The id of the session in a folder; empty where there is none."""
    try:
        first = next(_blocks(folder), None)
        return header_from(load(first.data)).id if first else ""
    except (OSError, SessionError, BadYamlError, BadRecordError):
        return ""


def _records(folder: Path) -> Iterator[Record]:
    fetch = partial(fetch_output, folder)
    blocks = _blocks(folder)
    next(blocks, None)  # the header
    for block in blocks:
        try:
            if block.is_whole:
                yield record_from(load(block.data), fetch)[0]
        except (BadYamlError, BadRecordError, UnknownRecordError):
            continue  # `ouro sessions repair` tells of it


def _blocks(folder: Path) -> Iterator[RawRecord]:
    """The blocks of a session file, a few megabytes at a time."""
    with opened(folder, FILE_NAME, os.O_RDONLY) as descriptor:
        start, reach = 0, _READ_AT_ONCE
        while data := read_range(descriptor, start, start + reach):
            blocks, tail = split(data, start)
            yield from blocks
            if blocks:
                start, reach = blocks[-1].offset + blocks[-1].size, _READ_AT_ONCE
            elif len(data) < reach or not tail:
                return
            else:
                reach *= 4  # one record is longer than that
