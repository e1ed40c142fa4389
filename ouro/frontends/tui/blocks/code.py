"""Code: source text as lines in syntax colours, cheap to redraw while it grows."""

from __future__ import annotations

import re
from collections import Counter
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import PurePath
from typing import Any, NamedTuple

from rich.style import Style

from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.styled_lines import Run, StyledLine, fold, indent, pad

CHUNK_LINES = 40
"""So many lines are coloured together. If the text grows, only its last chunk is coloured again."""
MAX_LINE = 2_000
"""Characters of a line, up to which it has colours."""
MAX_CHUNKS_IN_STRING = 10
"""A long string or comment is cut after so many chunks, though the next one begins inside of it."""
_GLOB = re.compile(r"[*?\[]")
"""What makes a pattern of file names more than a name."""


class Code:
    """Code that may still grow; finished chunks are lexed and wrapped once."""

    def __init__(self, language: str, width: int, palette: Palette, margin: str = "") -> None:
        self._margin = (margin, palette.text)
        """What is put before each line, with its style; it is empty without a margin."""
        self._language = language
        self._width = width
        self._palette = palette
        self._finished_end = 0
        """The offset in the code behind the finished chunks."""
        self._finished_lines: list[StyledLine] = []
        """The lines of the finished chunks."""

    def lines(self, code: str) -> list[StyledLine]:
        """The lines of `code`, which must begin with the code of the last call."""
        rest = code[self._finished_end :]
        while (size := _chunk_size(rest, self._language)) > 0:
            self._finished_lines += self._draw_chunk(rest[: size - 1])  # without its last newline
            self._finished_end += size
            rest = rest[size:]
        return [*self._finished_lines, *self._draw_chunk(rest)]

    def _draw_chunk(self, text: str) -> list[StyledLine]:
        """The lines of a chunk in the colours of its syntax. The background of code fills the width;
        the margin before it has none.
        """
        text_width = max(1, self._width - 2)  # a space on each side
        space = (" ", self._palette.code)
        lines: list[StyledLine] = []
        for row in highlight(text, self._language, self._palette, base=self._palette.code):
            lines += fold(row, text_width)
        padded = pad(indent(lines, space, space), self._width, self._palette.code)
        has_margin = self._margin[0] != ""
        return indent(padded, self._margin, self._margin) if has_margin else padded


def highlight(code: str, language: str, palette: Palette, base: Style) -> list[list[Run]]:
    """The lines of `code`, each as runs in the colours of the syntax over the style `base`. They have
    only `base` if the language is not known, or if any line is longer than MAX_LINE.
    """
    lexer = _lexer(language)
    if lexer is None or any(len(line) > MAX_LINE for line in code.split("\n")):
        return [[(line, base)] for line in code.split("\n")]
    rows: list[list[Run]] = [[]]
    styles: dict[Any, Style] = {}
    # Some lexers (as for diffs) need whole lines.
    for _, kind, value in lexer.get_tokens_unprocessed(f"{code}\n"):
        style = styles.get(kind)
        if style is None:
            style = styles[kind] = base + _style_of(kind, palette)
        first, *others = value.split("\n")
        if first:
            rows[-1].append((first, style))
        for other in others:
            rows.append([])
            if other:
                rows[-1].append((other, style))
    # The last row is behind the newline that was added. An empty line has one run, too.
    return [row or [("", base)] for row in rows[:-1]]


def _style_of(kind: object, palette: Palette) -> Style:
    """The style of a kind of token, or of the nearest kind above it: `Name.Function` -> `Name`."""
    name = str(kind).removeprefix("Token.")
    while name and name not in palette.syntax:
        name = name.rpartition(".")[0]
    return palette.syntax.get(name, Style.null())


@lru_cache(maxsize=256)
def language_of(path: str) -> str:
    """The name of the language of a file, for a lexer; empty if it is not known. The suffix of the
    file decides. If another pattern may match its name, Pygments is asked, which is slow.
    """
    name = PurePath(path).name
    table = _language_table()
    has_other_pattern = name in table.names or any(fnmatchcase(name, glob) for glob in table.globs)
    suffix = PurePath(path).suffix
    if not has_other_pattern and suffix in table.by_suffix:
        return table.by_suffix[suffix]
    from pygments.lexers import get_lexer_for_filename  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        return str(get_lexer_for_filename(path).aliases[0])
    except (ClassNotFound, IndexError):
        return ""


class _LanguageTable(NamedTuple):
    """Which names of files the lexers of Pygments claim."""

    by_suffix: dict[str, str]
    """Suffixes that only one lexer claims -> its language."""
    names: set[str]
    """Whole names: `CMakeLists.txt`."""
    globs: list[str]
    """Other patterns: `*.[1-9]`, `*.html.j2`."""


@cache
def _language_table() -> _LanguageTable:
    """Make a table of the file names that the lexers of Pygments know.

    Pygments itself would make a regular expression of each of its thousand patterns when the first
    name is looked up, which takes 66 ms.
    """
    from pygments.lexers import get_all_lexers

    table = _LanguageTable(by_suffix={}, names=set(), globs=[])
    claims: Counter[str] = Counter()
    for _, aliases, patterns, _ in get_all_lexers(plugins=False):
        for pattern in patterns:
            suffix = pattern.removeprefix("*")
            if not _GLOB.search(pattern):
                table.names.add(pattern)
            elif suffix.rfind(".") == 0 and not _GLOB.search(suffix):
                claims[suffix] += 1
                table.by_suffix[suffix] = aliases[0] if aliases else ""
            else:
                table.globs.append(pattern)
    for suffix, count in claims.items():
        if count > 1:
            del table.by_suffix[suffix]
    return table


def prepare_lexers() -> None:
    """Load what the lexers of all languages need: 15 ms that the first coloured page then does not
    wait for.
    """
    _language_table()
    import pygments.lexer  # type: ignore[import-untyped]  # noqa: F401


@lru_cache(maxsize=64)
def _lexer(language: str) -> Any:
    """The lexer of Pygments for a language; None if there is none, or for plain text."""
    if not language or language in ("text", "txt", "plain"):
        return None
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language)
    except ClassNotFound:
        return None


def _chunk_size(code: str, language: str) -> int:
    """The length of the first chunk of the code with its last newline; 0 if the chunk is not complete
    yet. It has CHUNK_LINES lines, or a multiple of them.

    A chunk ends outside of strings and comments, so that the next one can be lexed separately. Only
    one of MAX_CHUNKS_IN_STRING times CHUNK_LINES lines may end inside of them: it is cut there. The
    end of a chunk depends only on its own text, so that code is always cut in the same way,
    independent of the pieces in which it arrives.
    """
    if code.count("\n") <= CHUNK_LINES:
        return 0
    line_ends = [match.end() for match in re.finditer("\n", code)]
    possible_ends = line_ends[CHUNK_LINES - 1 : -1 : CHUNK_LINES]
    for chunks, end in enumerate(possible_ends, 1):
        if chunks == MAX_CHUNKS_IN_STRING or not _is_inside_string(code[:end], language):
            return end
    return 0


def _is_inside_string(code: str, language: str) -> bool:
    """Whether code ends inside of a long string or comment."""
    lexer = _lexer(language)
    if lexer is None:
        return False
    kind_of_last_token: Any = ""
    for _, kind, _value in lexer.get_tokens_unprocessed(code):
        kind_of_last_token = kind
    return str(kind_of_last_token).startswith(("Token.Literal.String", "Token.Comment.Multiline"))
