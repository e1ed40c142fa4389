"""A whole session at once: written for good or not at all, and read from its first record to its last."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from ouro.errors import SaveFailed, SessionError
from ouro.memory.backend import MemoryStore, Record, SessionHeader
from ouro.memory.images import keep_image
from ouro.memory.serialization import Mask, header_data, record_data
from ouro.memory.session_file import END, FILE_NAME, START, opened, sync_folder
from ouro.memory.yaml_text import dump
from ouro.utils.runtime import ensure_private_dir

_WRITE_AT_ONCE = 1 << 20


class WholeSession(msgspec.Struct, frozen=True):
    """A session as it is kept, all of it."""

    header: SessionHeader
    records: Callable[[], Iterator[Record]]
    """Every record, oldest first, what was taken back and compacted among them. May be asked for again."""


def read_whole(store: MemoryStore, session_id: str) -> WholeSession:
    """A session from its first record to its last; blocks on a disk, as its `records` do.

    Raises:
        SessionError: the session cannot be read.
    """
    loaded = store.load_session(session_id, read_only=True)
    return WholeSession(loaded.header, lambda: iter(loaded.records))


def write_whole(root: Path, header: SessionHeader, records: Iterable[Record], mask: Mask) -> Path:
    """Write a session that is not there yet, in a folder of its own below `root`; gives the folder.

    It is made under another name and moved into place when it is whole: a crash leaves no half of a session.

    Raises:
        SaveFailed: nothing was written.
    """
    made = root / f".import-{header.id}-{os.urandom(4).hex()}"
    try:
        ensure_private_dir(root)
        made.mkdir(mode=0o700)
        try:
            _write(made, header, records, mask)
            place = _free_place(root, header)
            made.rename(place)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        sync_folder(root)
    except (OSError, SessionError) as error:
        raise SaveFailed(f"Not saved in {root}: {getattr(error, 'strerror', None) or error}.") from error
    return place


def _write(folder: Path, header: SessionHeader, records: Iterable[Record], mask: Mask) -> None:
    with (
        opened(folder, FILE_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor,
        os.fdopen(os.dup(descriptor), "wb", buffering=_WRITE_AT_ONCE) as file,
    ):
        for data in (header_data(header), *(record_data(each, mask, partial(keep_image, folder)) for each in records)):
            file.write(START + dump(data).encode() + END[1:])
        file.flush()
        os.fsync(descriptor)
    sync_folder(folder)


def _free_place(root: Path, header: SessionHeader) -> Path:
    day = header.created_at[:10]
    for name in (f"{day}_{header.id[:8]}", f"{day}_{header.id}"):
        if not os.path.lexists(root / name):
            return root / name
    raise SaveFailed(f"Session {header.id} exists already.")
