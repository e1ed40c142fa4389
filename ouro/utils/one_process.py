"""Work that one process at a time does: whoever comes second leaves it to the first."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ouro.utils.log import log
from ouro.utils.runtime import ensure_private_dir


@contextmanager
def only_one(path: Path) -> Iterator[bool]:
    """Whether no other process is inside with the same file, and none will be meanwhile. The file holds nothing.

    A process that is killed lets go of it.
    """
    try:
        ensure_private_dir(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        log.warning("%s cannot be locked: %s", path, error)
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        is_mine = False
    else:
        is_mine = True
    try:
        yield is_mine
    finally:
        os.close(descriptor)
