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
from ouro.utils.text import clean

_TICKS = re.compile(r"`+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_ONE_CELL_EACH = re.compile("[\x20-\x7e\xa1-\xac\xae-\xff\u2010-\u2027]*")
"""Text in which each character has one cell, as in most notes; a cut one ends with an ellipsis."""


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
    spans: tuple[str, ...]
    """Plain text, `CodeSpan` and `CommandText`."""
    level: Level = "info"


class Title(msgspec.Struct, frozen=True):
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
    return TextLine(spans, level)


def table(rows: Iterable[Sequence[str]], *, is_numbered: bool = False) -> View:
    found = tuple(tuple(row) for row in rows)
    return [RowTable(found, is_numbered)] if found else []


def as_markdown(view: View) -> str:
    """Render for a session: commands begin with `/`."""
    parts: list[str] = []
    for item in view:
        match item:
            case Markdown():
                parts.append(item)
            case TextLine(spans):
                parts.append("".join(map(_markdown_span, spans)))
            case Title(text):
                parts.append(f"**{escape(text)}**")
            case RowTable(rows, is_numbered):
                items: list[str] = []
                for row in rows:
                    if items and not row[0]:
                        items[-1] += f"\\\n  {_markdown_row(row)}"
                    else:
                        items.append(
                            f"{f'{len(items) + 1}.' if is_numbered else '-'} {_markdown_row(row)}"
                        )
                parts.append("\n".join(items))
            case Quote(text, language):
                parts.append(block(text, language))
    return "\n\n".join(parts)


def as_text(view: View, prefix: str = "ouro ") -> str:
    """Render for the command line; the text is safe for a terminal. Commands begin with `prefix`."""
    lines: list[str] = []
    for item in view:
        match item:
            case Markdown():
                lines.append(item)
            case TextLine(spans):
                lines.append("".join(_text_span(span, prefix) for span in spans))
            case Title(text):
                lines += [*([""] if lines else []), text]
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
    """Cells in columns; the last cell of a row is not padded."""
    shown = [[_text_span(cell, prefix) for cell in row] for row in rows]
    measured = [[_width(cell) for cell in row[:-1]] for row in shown]
    widths = [max(column) for column in zip_longest(*measured, fillvalue=0)]
    lines = []
    for row, own in zip(shown, measured, strict=True):
        padded = [
            cell + " " * (width - cell_width)
            for cell, cell_width, width in zip(row[:-1], own, widths, strict=False)
        ]
        lines.append("  ".join([*padded, row[-1]]).rstrip())
    return lines


def _width(text: str) -> int:
    """The cells of a text in a terminal."""
    if text.isascii() or _ONE_CELL_EACH.fullmatch(text):
        return len(text)
    from rich.cells import cell_len  # imported late: 12 ms

    wide = "".join(_NOT_ASCII.findall(text))  # each other character has one cell
    return len(text) - len(wide) + cell_len(wide)


def _markdown_row(row: Sequence[str]) -> str:
    cells = [cell if isinstance(cell, CodeSpan | CommandText) else cell.strip() for cell in row]
    return " · ".join(_markdown_span(cell) for cell in cells if cell).replace(": · ", ": ", 1)


def _markdown_span(span: str) -> str:
    """A part of a line as Markdown. Spaces at its edges stay outside of the marks."""
    if isinstance(span, CommandText):
        return code(f"/{span}")
    if isinstance(span, CodeSpan):
        return code(span)
    edges = (
        span[: len(span) - len(span.lstrip())],
        span[len(span.rstrip()) :] if span.strip() else "",
    )
    return f"{edges[0]}{escape(span.strip())}{edges[1]}"


def _text_span(span: str, prefix: str) -> str:
    return f"{prefix}{span}" if isinstance(span, CommandText) else str(span)


def code(text: str) -> str:
    """Untrusted text as inline code."""
    line = " ".join(clean(text).split()) or " "
    fence = "`" * (1 + max((len(run) for run in _TICKS.findall(line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def block(text: str, language: str = "") -> str:
    """Untrusted text as a code block."""
    fence = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(text)), default=0))
    return f"{fence}{language}\n{clean(text).rstrip()}\n{fence}"


def facts(*pairs: tuple[str, str]) -> str:
    """A list of names and values; pairs without a value are left out."""
    return "\n".join(f"- **{name}**: {value}" for name, value in pairs if value)


def todo_list(todos: Iterable[Todo]) -> str:
    return "\n".join(f"- {todo.mark} {escape(todo.text)}" for todo in todos)


def escape(text: str) -> str:
    """Untrusted text with Markdown escaped."""
    return re.sub(r"([\\`*_\[\]<>#|]|~(?=~)|(?<=~)~)", r"\\\1", clean(text))


def escape_sentence(text: str) -> str:
    """Untrusted text with Markdown escaped, except for code between single backticks."""
    # Words and code alternate; the first piece is words.
    pieces = re.split(r"(?<!`)`([^`\n]+)`(?!`)", text)
    pieces[::2] = map(escape, pieces[::2])
    pieces[1::2] = map(code, pieces[1::2])
    return "".join(pieces)


def changed_lines(before: str, after: str) -> list[str]:
    """The lines that differ, with `-` or `+` in front."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[
        2:
    ]
    return [line for line in lines if not line.startswith("@@")]


def date_and_time(at: str) -> str:
    """A timestamp in local time; empty if it is not a timestamp."""
    try:
        return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError):  # the file was edited by hand
        return ""
