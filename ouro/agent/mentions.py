"""What a message names with `@`: `@api.py`, `@api.py:10-40`, `@"a b.py"#L10`, `@src/`, `@note:ID`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from ouro.utils.late_pattern import late_pattern

_MENTION = late_pattern(r'(?<![\w@/.])@("[^"\n\0]+"[^\s\0]*|[^\s\0"]+)')
_RANGE = late_pattern(r"(?::(\d+)(?:-(\d+))?|#L(\d+)(?:-L?(\d+))?)$")
_QUOTED = late_pattern(r'"([^"]+)"(.*)')
_SENTENCE_ENDS = ".,;:!?)]}>'`"
_KINDS = ("note", "session")


class Mention(msgspec.Struct, frozen=True):
    name: str
    """A path, or `note:…` and `session:…`."""
    first: int = 0
    """The first line, counted from 1; 0: the whole file."""
    last: int = 0

    @property
    def kind(self) -> str:
        """`note`, `session`, `file`; `resource` for what an MCP server has."""
        start, colon, rest = self.name.partition(":")
        if not colon:
            return "file"
        return start if start in _KINDS and rest else "resource"

    @property
    def shown(self) -> str:
        """The mention as the user would write it, without the `@`."""
        if not self.first:
            return self.name
        return f"{self.name}:{self.first}" + (f"-{self.last}" if self.last != self.first else "")


def find_mentions(text: str, exists: Callable[[str], bool]) -> list[Mention]:
    """The mentions of a text, each once, in order.

    A sentence may end after a name: `exists` tells whether its last signs belong to it.
    """
    found: dict[Mention, None] = {}
    for written in _MENTION.findall(text):
        readings = list(_meanings(written))
        mention = next((item for item in readings if exists(item.name)), readings[-1])
        if mention.name:
            found[mention] = None
    return list(found)


def _meanings(written: str) -> Iterator[Mention]:
    """What a word can mean: all of it a name, a name with lines, without the end of a sentence."""
    quoted = _QUOTED.fullmatch(written)
    if quoted:
        yield _split_line_range(quoted[1], quoted[2].rstrip(_SENTENCE_ENDS))
        return
    yield Mention(written)
    yield _split_line_range(written, "")
    yield _split_line_range(written.rstrip(_SENTENCE_ENDS), "")


def _split_line_range(name: str, after: str) -> Mention:
    """The mention with the lines that its end names (`:10-40`, `#L10`); without them, the whole
    name.
    """
    found = _RANGE.search(name + after)
    if found is None:
        return Mention(name)
    path = (name + after)[: found.start()]
    if path in _KINDS:  # an id of digits only
        return Mention(name)
    first = int(found[1] or found[3])
    last = int(found[2] or found[4] or first)
    return Mention(path, first, max(first, last))
