"""Regular expressions that are compiled when they are first used."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, AnyStr, cast

_compile, _lock = re.compile, threading.Lock()
_threads: set[int] = set()


def late_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, at first use: of 150 patterns that a start defines few are used, and all took 20 ms."""
    return cast("re.Pattern[AnyStr]", _LatePattern(pattern, flags))


class _LatePattern:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        compiled = _compile(*self._given)
        for known in ("search", "match", "fullmatch", "sub", "split", "findall", "finditer", "pattern"):
            self.__dict__[known] = getattr(compiled, known)
        return getattr(compiled, name)


@contextmanager
def late_patterns() -> Iterator[None]:
    """What this thread imports meanwhile gets late patterns: most patterns of libraries are never used."""
    with _lock:
        _threads.add(threading.get_ident())
        re.compile = _compile_late
    try:
        yield
    finally:
        with _lock:
            _threads.discard(threading.get_ident())
            if not _threads:
                re.compile = _compile


def _compile_late(pattern: Any, flags: Any = 0) -> Any:
    return (late_pattern if threading.get_ident() in _threads else _compile)(pattern, flags)
