"""Regular expressions that are compiled when they are first used."""

from __future__ import annotations

TYPE_CHECKING = False  # without `typing`, which no first frame needs
if TYPE_CHECKING:
    import re
    from typing import Any, AnyStr


def late_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """A pattern that is compiled at its first use. It is used like the result of `re.compile`.

    A start defines 150 patterns and uses few; to compile all of them took 20 ms. The first frame
    uses none: until then `re` is not even imported.
    """
    return _LatePattern(pattern, flags)  # type: ignore[return-value]  # it has the same methods


class _LatePattern:
    """Has the methods of a compiled pattern as soon as one of them is used."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self._pattern_and_flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """Compile the pattern, and make its methods attributes: Python calls this only for an
        attribute that is missing, so once.
        """
        import re  # not before the first frame

        compiled = re.compile(*self._pattern_and_flags)
        for method in (
            "search",
            "match",
            "fullmatch",
            "sub",
            "split",
            "findall",
            "finditer",
            "pattern",
        ):
            self.__dict__[method] = getattr(compiled, method)
        return getattr(compiled, name)
