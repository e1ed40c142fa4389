"""Body: the output of a tool call, as lines; long outputs show how much is left out."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from itertools import islice
from typing import assert_never

from rich.segment import Segment
from rich.style import Style

from ouro.display import Body, CommandOutput, Diff, Picture, Plain, Todo, Todos
from ouro.frontends.tui.blocks.code import highlight
from ouro.frontends.tui.blocks.diff import diff_lines
from ouro.frontends.tui.blocks.lines import StyledLine, crop, fold, indent, printed, tidy, wrap
from ouro.frontends.tui.blocks.palette import Palette

MAX_LINES = 2_000
"""Lines that are drawn of one body, however long it is."""
_TODO_SIGNS = {"pending": "☐", "in_progress": "▶", "done": "☑"}


def body_lines(body: Body, width: int, palette: Palette) -> Iterator[StyledLine]:
    match body:
        case Plain():
            return _plain(body, width, palette)
        case Diff():
            return (line for change in body.changes for line in diff_lines(change, width, palette))
        case CommandOutput():
            return _command(body, width, palette)
        case Picture():
            size = f"{body.bytes / 1024:.0f} kB" if body.bytes >= 1024 else f"{body.bytes} bytes"
            words = f"[image: {tidy(body.name)}] {tidy(body.media_type)}, {size}"
            return iter(wrap([(words, palette.text)], width))
        case Todos():
            return (line for todo in body.items for line in _todo(todo, width, palette))
        case _:
            assert_never(body)


def preview_size(body: Body, failed: bool) -> int:
    """The number of lines shown while folded."""
    match body:
        case Diff() | Plain(language="diff"):
            return 24
        case Todos():
            return 30
        case CommandOutput():
            return 6
        case Picture():
            return 1
        case Plain():
            return 6 if failed else 0
        case _:
            assert_never(body)


def last_lines(text: str, most: int, width: int, style: Style) -> tuple[list[StyledLine], int]:
    """The end of a command's output, and the number of lines before it."""
    rows = printed(text).rstrip("\n").split("\n")
    shown: list[StyledLine] = []
    taken = 0
    for row in reversed(rows):
        lines = fold([(row, style)], width)
        if taken and len(shown) + len(lines) > most:
            break
        shown = [*lines[-most:], *shown]
        taken += 1
    return shown, len(rows) - taken


def text_size(body: Body) -> int:
    match body:
        case Plain():
            return body.text.count("\n") + 1
        case CommandOutput():
            return body.output.count("\n") + 2
        case Diff():
            return min(30, sum((change.after or change.before or "").count("\n") + 2 for change in body.changes))
        case Picture():
            return 1
        case Todos():
            return len(body.items)
        case _:
            assert_never(body)


def body_text(body: Body) -> str:
    match body:
        case Plain():
            return tidy(body.text)
        case CommandOutput():
            return f"$ {tidy(body.command)}\n{printed(body.output)}".rstrip("\n")
        case Diff():
            return "\n".join(_unified(body))
        case Picture():
            return f"[image: {tidy(body.name)}]"
        case Todos():
            return "\n".join(f"- [{'x' if todo.state == 'done' else ' '}] {tidy(todo.text)}" for todo in body.items)
        case _:
            assert_never(body)


def _plain(body: Plain, width: int, palette: Palette) -> Iterator[StyledLine]:
    text = tidy(body.text).removesuffix("\n")
    rows = islice(highlight("\n".join(text.split("\n")[:MAX_LINES]), body.language, palette, palette.text), MAX_LINES)
    yield from (line for row in rows for line in fold(row, width))
    left = text.count("\n") + 1 - MAX_LINES
    if left > 0:
        yield StyledLine([Segment(crop(f"… {left} more lines", width), palette.muted)])


def _command(body: CommandOutput, width: int, palette: Palette) -> Iterator[StyledLine]:
    command = fold([(tidy(body.command), palette.strong)], width - 2)
    yield from indent(command, ("$ ", palette.accent), ("  ", palette.accent))
    lines, before = last_lines(body.output, MAX_LINES, width, palette.text) if body.output else ([], 0)
    if before:
        yield StyledLine([Segment(crop(f"… {before} lines before", width), palette.muted)])
    yield from lines
    if body.exit_code:
        yield StyledLine([Segment(crop(f"exit code {body.exit_code}", width), palette.error)])


def _todo(todo: Todo, width: int, palette: Palette) -> list[StyledLine]:
    style = {"pending": palette.text, "in_progress": palette.strong, "done": palette.muted}[todo.state]
    return indent(
        wrap([(tidy(todo.text), style)], width - 2), (f"{_TODO_SIGNS[todo.state]} ", style), ("  ", style), False
    )


def _unified(body: Diff) -> Iterator[str]:
    for change in body.changes:
        old, new = tidy(change.before or "").splitlines(), tidy(change.after or "").splitlines()
        before = tidy(change.path) if change.before is not None else "/dev/null"
        after = tidy(change.moved_to or change.path) if change.after is not None else "/dev/null"
        yield from unified_diff(old, new, before, after, lineterm="")
