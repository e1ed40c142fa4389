"""A file of JSON lines from anywhere: what can be read of it, line by line, in little memory."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ouro.errors import SessionError

LONGEST_LINE = 64 << 20
DAMAGED = "lines that cannot be read"
TOO_LONG = "lines that are too long"


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read it; never a pipe or a device, which could make us wait for ever.

    Raises:
        SessionError: it is no regular file, or cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise SessionError(f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}.") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SessionError(f"{path} is not a regular file.")
    return os.fdopen(descriptor, "rb")


def json_lines(path: Path, left_out: Counter[str], most: int | None = None) -> Iterator[dict[str, Any]]:
    """The objects in a file of JSON lines; what is no such line is counted in `left_out`.

    Args:
        path: the file.
        left_out: what was not read, by kind.
        most: bytes after which to stop; None: read all.

    Raises:
        SessionError: as `open_regular`.
    """
    with open_regular(path) as file:
        for line in _lines(file, left_out, most):
            value = _parsed(line)
            if isinstance(value, dict):
                yield value
            elif line.strip(b" \t\r\n\0"):
                left_out[DAMAGED] += 1


def _lines(file: BinaryIO, left_out: Counter[str], most: int | None) -> Iterator[bytes]:
    read = 0
    while line := file.readline(LONGEST_LINE):
        read += len(line)
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            left_out[TOO_LONG] += 1
            while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
            continue
        yield line
        if most is not None and read >= most:
            return


def _parsed(line: bytes) -> Any:
    try:
        # Not strictly UTF-8: half a character at the end of a cut line takes nothing else with it.
        return json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
