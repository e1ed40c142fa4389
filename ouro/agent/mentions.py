"""Finds what a message names with `@`: `@api.py:10-40`, `@"a b.py"#L10`, `@src/`, `@note:ID`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from ouro.utils.late_pattern import late_pattern

_AT_WORD = late_pattern(r'(?<![\w@/.])@("[^"\n\0]+"[^\s\0]*|[^\s\0"]+)')
_LINE_RANGE = late_pattern(
    r"(?::(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?"
    r"|#L(?P<url_first>\d{1,9})(?:-L?(?P<url_last>\d{1,9}))?)$"
)
_QUOTED_NAME = late_pattern(r'"([^"]+)"(.*)')
_SENTENCE_ENDS = ".,;:!?)]}>'`"
_PREFIXES = ("note", "session")


class Mention(msgspec.Struct, frozen=True):
    """What a message names with `@`."""

    name: str
    """A path, or `note:…` and `session:…`."""
    first: int = 0
    """The first line, counted from 1; 0 for the whole file."""
    last: int = 0

    @property
    def kind(self) -> str:
        """`note`, `session` or `file`; `resource` for a resource of an MCP server."""
        start, colon, rest = self.name.partition(":")
        if not colon:
            return "file"
        return start if start in _PREFIXES and rest else "resource"

    @property
    def shown(self) -> str:
        """The mention as the user would write it, without the `@`."""
        if not self.first:  # the whole file
            return self.name
        if self.last == self.first:
            return f"{self.name}:{self.first}"
        return f"{self.name}:{self.first}-{self.last}"


def find_mentions(text: str, exists: Callable[[str], bool]) -> list[Mention]:
    """The mentions of a text, each once, in order.

    A sentence may end after a name, so the last signs of a word may not belong to the name: the
    first reading for which `exists` is true is taken. If there is none, these signs are left out.
    """
    mentions: dict[Mention, None] = {}
    for word in _AT_WORD.findall(text):
        readings = list[Mention]()
        for form in _forms_of(word):
            readings += _readings_of(form)
        *_, without_sentence_end = _readings_of(word)
        existing = (reading for reading in readings if exists(reading.name))
        mention = next(existing, without_sentence_end)
        if mention.name:
            mentions[mention] = None
    return list(mentions)


def _forms_of(word: str) -> list[str]:
    """The word as it was written; if it is not ASCII, also with its accents composed, and decomposed:
    a file from macOS may have `é` in two characters, and a keyboard types it in one.
    """
    if word.isascii():
        return [word]
    from unicodedata import normalize  # 1 MB that few sessions need

    return [word, normalize("NFC", word), normalize("NFD", word)]


def _readings_of(word: str) -> Iterator[Mention]:
    """Yields what a word behind `@` can mean, the best first: all of it is the name; it is a name
    with lines; the same without the signs that end a sentence. A name in quotes has only one
    reading.
    """
    match = _QUOTED_NAME.fullmatch(word)
    if match:
        yield _split_line_range(match[1], match[2].rstrip(_SENTENCE_ENDS))
        return
    yield Mention(word)
    yield _split_line_range(word, rest="")
    yield _split_line_range(word.rstrip(_SENTENCE_ENDS), rest="")


def _split_line_range(name: str, rest: str) -> Mention:
    """The mention of a name: of some lines if it ends with them, such as `:10-40` or `#L10`, else
    of the whole file.

    Args:
        rest: what follows a name in quotes, such as `:10-40`; empty if the name has no quotes.
    """
    match = _LINE_RANGE.search(name + rest)
    if match is None:
        return Mention(name)
    path = (name + rest)[: match.start()]
    if path in _PREFIXES:  # `note:12` is an id, not a line
        return Mention(name)
    first = int(match["first"] or match["url_first"])
    last = int(match["last"] or match["url_last"] or first)
    return Mention(path, first, max(first, last))
