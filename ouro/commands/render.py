"""View: the output of an action, printed as Markdown, text or JSON; untrusted texts as Markdown."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any

import msgspec

from ouro.display import Todo
from ouro.events import Level
from ouro.utils.lenient_json import dump_json
from ouro.utils.text import clean, code_block, longest_backticks

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_ONE_CELL_EACH = re.compile("[\x20-\x7e\xa1-\xac\xae-\xff\u2010-\u2027]*")
"""A text of characters that take one cell each, as most texts are; it saves the import of rich."""


class CodeSpan(str):
    """An id, a path or a quoted text, which is shown verbatim."""

    __slots__ = ()


class CommandText(str):
    """A command without the prefix of a front end: `memory undo 3f2a91c`."""

    __slots__ = ()


class Markdown(str):
    """A text that is Markdown already."""

    __slots__ = ()


class TextLine(msgspec.Struct, frozen=True):
    """A line of text."""

    spans: tuple[str, ...]
    """Plain text, `CodeSpan` and `CommandText`."""
    level: Level = "info"


class Title(msgspec.Struct, frozen=True):
    """A heading in a view."""

    text: str


class RowTable(msgspec.Struct, frozen=True):
    """Rows of cells: columns in text, a list in Markdown. Empty cells are left out of a list.

    A row whose first cell is empty continues the one above.
    """

    rows: tuple[tuple[str, ...], ...]
    is_numbered: bool = False


class Quote(msgspec.Struct, frozen=True):
    """Lines of a file or a diff."""

    text: str
    language: str = ""


ViewItem = Markdown | TextLine | Title | RowTable | Quote
View = list[ViewItem]


def line(*spans: str, level: Level = "info") -> ViewItem:
    """A line of spans: plain text, `CodeSpan` or `CommandText`."""
    return TextLine(spans, level)


def table(rows: Iterable[Sequence[str]], *, is_numbered: bool = False) -> View:
    """A view with a table of these rows, numbered from 1 if `is_numbered`; empty without rows."""
    cells = tuple(tuple(row) for row in rows)
    return [RowTable(cells, is_numbered)] if cells else []


def as_markdown(view: View) -> str:
    """The view as Markdown, for a session: commands begin with `/`."""
    blocks: list[str] = []
    for item in view:
        match item:
            case Markdown():
                blocks.append(item)
            case TextLine(spans):
                blocks.append("".join(map(_markdown_span, spans)))
            case Title(text):
                blocks.append(f"**{escape(text)}**")
            case RowTable(rows, is_numbered):
                blocks.append(_markdown_list(rows, is_numbered=is_numbered))
            case Quote(text, language):
                blocks.append(code_block(text, language))
    return "\n\n".join(blocks)


def _markdown_list(rows: Iterable[Sequence[str]], *, is_numbered: bool) -> str:
    """The rows of a table as a list, numbered from 1 if `is_numbered`. A row whose first cell is empty
    is a further line of the item above.
    """
    items: list[str] = []
    for row in rows:
        if items and not row[0]:
            items[-1] += f"\\\n  {_markdown_row(row)}"  # a backslash breaks the line
            continue
        mark = f"{len(items) + 1}." if is_numbered else "-"
        items.append(f"{mark} {_markdown_row(row)}")
    return "\n".join(items)


def as_text(view: View, prefix: str = "ouro ") -> str:
    """The view as text, for the command line; it is safe for a terminal. Commands begin with `prefix`."""
    lines: list[str] = []
    for item in view:
        match item:
            case Markdown():
                lines.append(item)
            case TextLine(spans):
                lines.append("".join(_text_span(span, prefix) for span in spans))
            case Title(text):
                if lines:
                    lines.append("")
                lines.append(text)
            case RowTable(rows, is_numbered):
                if is_numbered:
                    rows = tuple((f"{number}.", *row) for number, row in enumerate(rows, 1))
                lines += columns(rows, prefix)
            case Quote(text):
                lines += text.rstrip("\n").split("\n")
    return "\n".join(map(clean, lines))


def as_json(value: Any) -> str:
    return dump_json(msgspec.to_builtins(value), indent=2)


def print_document(pieces: Iterable[str]) -> None:
    """Write a document to stdout: unchanged into a pipe or file, without terminal control on a
    terminal.
    """
    sys.stdout.writelines(map(clean, pieces) if sys.stdout.isatty() else pieces)


def columns(rows: Sequence[Sequence[str]], prefix: str = "ouro ") -> list[str]:
    """The rows as lines, with cells in columns. The last cell of a row is not padded, and does not
    count for the width of its column. Rows may have different numbers of cells.

    `prefix`: what is put before a cell that is a command (CommandText).
    """
    texts_of_rows: list[list[str]] = []
    widths_of_rows: list[list[int]] = []
    for row in rows:
        texts = [_text_span(cell, prefix) for cell in row]
        texts_of_rows.append(texts)
        widths_of_rows.append(list(map(_width, texts[:-1])))
    column_widths = [max(column) for column in zip_longest(*widths_of_rows, fillvalue=0)]
    lines = []
    for texts, cell_widths in zip(texts_of_rows, widths_of_rows, strict=True):
        padded_cells = ""
        for index, cell_width in enumerate(cell_widths):  # without the last cell
            padding = " " * (column_widths[index] - cell_width)
            padded_cells += f"{texts[index]}{padding}  "
        lines.append(f"{padded_cells}{texts[-1]}".rstrip())
    return lines


def _width(text: str) -> int:
    """How many cells of a terminal a text takes."""
    if text.isascii() or _ONE_CELL_EACH.fullmatch(text):
        return len(text)
    from rich.cells import cell_len  # imported late: 12 ms

    wide = "".join(_NOT_ASCII.findall(text))  # each other character has one cell
    return len(text) - len(wide) + cell_len(wide)


def _markdown_row(row: Sequence[str]) -> str:
    """The cells of a row in one line: `a · b`. Empty cells are left out, and after the first cell that
    ends with a colon there is no dot: `a: b`.
    """
    cells = [cell if isinstance(cell, CodeSpan | CommandText) else cell.strip() for cell in row]
    joined = " · ".join(_markdown_span(cell) for cell in cells if cell)
    return joined.replace(": · ", ": ", 1)


def _markdown_span(span: str) -> str:
    """A span of a line as Markdown: commands and code verbatim, other text escaped. Spaces at the edges
    of text stay, because they separate it from the next span.
    """
    if isinstance(span, CommandText):
        return code(f"/{span}")
    if isinstance(span, CodeSpan):
        return code(span)
    words = span.strip()
    if not words:
        return span
    before, after = span.split(words)  # the spaces at both edges; `words` occurs once
    return f"{before}{escape(words)}{after}"


def _text_span(span: str, prefix: str) -> str:
    return f"{prefix}{span}" if isinstance(span, CommandText) else str(span)


def code(text: str) -> str:
    """Untrusted text as inline code, on one line. It cannot end the code."""
    line = " ".join(clean(text).split()) or " "
    fence = "`" * (longest_backticks(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def facts(*pairs: tuple[str, str]) -> str:
    """A list of names and values; pairs without a value are left out."""
    return "\n".join(f"- **{name}**: {value}" for name, value in pairs if value)


def todo_list(todos: Iterable[Todo]) -> str:
    return "\n".join(f"- {todo.mark} {escape(todo.text)}" for todo in todos)


def escape(text: str) -> str:
    """Untrusted text with Markdown escaped. A single `~` means nothing and stays; `~~` strikes text
    out.
    """
    return re.sub(r"([\\`*_\[\]<>#|]|~(?=~)|(?<=~)~)", r"\\\1", clean(text))


def escape_sentence(text: str) -> str:
    """Untrusted text with Markdown escaped, except for code between single backticks."""
    # Words and code alternate; the first piece is words.
    pieces = re.split(r"(?<!`)`([^`\n]+)`(?!`)", text)
    pieces[::2] = map(escape, pieces[::2])
    pieces[1::2] = map(code, pieces[1::2])
    return "".join(pieces)


def changed_lines(before: str, after: str) -> list[str]:
    """The lines that differ, with `-` or `+` in front, without lines around them."""
    diff = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    without_file_names = list(diff)[2:]
    return [line for line in without_file_names if not line.startswith("@@")]


def date_and_time(at: str) -> str:
    """A timestamp in local time; empty if it is not a timestamp."""
    try:
        return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError):  # the file was edited by hand
        return ""
