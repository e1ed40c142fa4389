"""Regular expressions that are compiled when they are first used."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, AnyStr, cast

_compile = re.compile
_importing = threading.Lock()


def late_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, but at first use: a start defines 150 patterns and uses few; all of them
    took 20 ms.
    """
    return cast("re.Pattern[AnyStr]", _LatePattern(pattern, flags))


@contextmanager
def late_patterns() -> Iterator[None]:
    """Inside, patterns of an imported package are also compiled late; it may call only their
    methods, as PyYAML does.

    PyYAML's patterns took 4 ms, three quarters of its import, and reading does not need them.
    """
    with _importing:
        thread = threading.get_ident()

        def compile_late(pattern: Any, flags: int = 0) -> re.Pattern[Any]:
            is_importing = threading.get_ident() == thread  # other threads are not affected
            return late_pattern(pattern, flags) if is_importing else _compile(pattern, flags)

        re.compile = compile_late
        try:
            yield
        finally:
            re.compile = _compile


class _LatePattern:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        compiled = _compile(*self._given)
        for known in (
            "search",
            "match",
            "fullmatch",
            "sub",
            "split",
            "findall",
            "finditer",
            "pattern",
        ):
            self.__dict__[known] = getattr(compiled, known)
        return getattr(compiled, name)
