"""The lines of what a tool result shows (a display), and blocks that show it without a card."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice

from rich.segment import Segment
from rich.style import Style

from ouro.display import Body, CommandOutput, Diff, Display, Picture, Plain, Todos
from ouro.frontends.tui.blocks.block_list import TranscriptBlock
from ouro.frontends.tui.blocks.code import highlight
from ouro.frontends.tui.blocks.diff import draw_diff, draw_git_diff
from ouro.frontends.tui.blocks.diff_data import FileDiff, changed_files, file_diffs
from ouro.frontends.tui.blocks.messages import MARGIN
from ouro.frontends.tui.blocks.paged_lines import put_right_of
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.styled_lines import (
    StyledLine,
    clean_output,
    crop,
    fold,
    indent,
    tidy,
    wrap,
)
from ouro.utils.text import byte_size, plural

MAX_LINES = 2_000
"""Maximum lines that are drawn of one body."""
MAX_DIFF_SIZE = 30
"""Maximum lines that a diff is estimated to have."""


def body_lines(
    body: Body,
    width: int,
    palette: Palette,
    show: Callable[[str], str] = tidy,
    *,
    has_names: bool = True,
) -> Sequence[StyledLine]:
    """The lines of a body. A diff, or a text that is a diff, has all its lines. Each is drawn only
    when it is taken. Any other body has its first MAX_LINES, and a note if there are more.

    Args:
        show: makes the lines of a changed file printable.
        has_names: whether a diff has a line with the name of each file.
    """
    files = diff_files(body, show)
    if files is not None or isinstance(body, Diff):
        return draw_diff(files or [], width, palette, has_names=has_names)
    lines = _lines_without_diff(body, width, palette)
    drawn = list(islice(lines, MAX_LINES))
    if next(lines, None) is not None:
        drawn.append(StyledLine([Segment(crop("… the rest is not shown", width), palette.muted)]))
    return drawn


def diff_files(body: Body | None, show: Callable[[str], str] = tidy) -> list[FileDiff] | None:
    """The files of a body that is a diff, or the text of a diff. None for any other body, and for
    None.

    `show` makes the lines of a `Diff` printable. The lines of a text are made so by `file_diffs`.
    """
    if isinstance(body, Diff):
        return changed_files(body, show)
    if isinstance(body, Plain) and body.language == "diff":
        with suppress(ValueError):  # a patch in another notation: it is shown as text
            return file_diffs(body.text.splitlines())
    return None


def _lines_without_diff(
    body: Plain | CommandOutput | Picture | Todos, width: int, palette: Palette
) -> Iterator[StyledLine]:
    """The lines of a body that is not a diff."""
    match body:
        case Plain():
            return _plain_lines(body, width, palette)
        case CommandOutput():
            return _command_lines(body, width, palette)
        case Picture():
            words = f"[image: {tidy(body.name)}] {tidy(body.media_type)}, {byte_size(body.bytes)}"
            return iter(wrap([(words, palette.text)], width))
        case Todos():
            return _todo_lines(body, width, palette)


def preview_size(body: Body, failed: bool) -> int:
    """How many lines of a body a folded card shows; 0: none, only the line of the card."""
    match body:
        case Diff() | Plain(language="diff"):
            return 24
        case Todos():
            return 0  # the panel above the prompt shows the plan
        case CommandOutput():
            return 6
        case Picture():
            return 1
        case Plain():
            return 6 if failed else 0  # the summary in the first line is enough


def last_lines(
    output: str, max_lines: int, width: int, style: Style
) -> tuple[list[StyledLine], int]:
    """The last lines of a command's output, at most `max_lines`, and how many of its rows are not
    whole among them. A row is a line of the output before it is wrapped.
    """
    rows = clean_output(output).rstrip("\n").split("\n")
    lines_shown: list[StyledLine] = []
    whole_rows = 0
    for row in reversed(rows):
        lines = fold([(row, style)], width)
        if lines_shown and len(lines_shown) + len(lines) > max_lines:
            break
        lines_shown = [*lines[-max_lines:], *lines_shown]
        if len(lines) <= max_lines:
            whole_rows += 1
    return lines_shown, len(rows) - whole_rows


def estimate_body(body: Body) -> int:
    """About how many lines a body has, without drawing it. For a diff it is at most MAX_DIFF_SIZE:
    only a comparison of the files could tell how much of them has changed.
    """
    if not isinstance(body, Diff):
        return body_text(body).count("\n") + 1
    size = 0
    for change in body.changes:
        text = change.after or change.before or ""
        size += text.count("\n") + 1
        size += 1  # the name of the file
    return min(MAX_DIFF_SIZE, size)


def body_text(body: Body) -> str:
    """The text of a body as it is copied, without colours."""
    match body:
        case Plain():
            return tidy(body.text)
        case CommandOutput():
            return f"$ {tidy(body.command)}\n{clean_output(body.output)}".rstrip("\n")
        case Diff():
            return "\n".join(map(tidy, body.lines()))
        case Picture():
            return f"[image: {tidy(body.name)}]"
        case Todos():
            return "\n".join(
                f"- [{'x' if todo.state == 'done' else ' '}] {tidy(todo.text)}"
                for todo in body.items
            )


def _plain_lines(body: Plain, width: int, palette: Palette) -> Iterator[StyledLine]:
    """Yield the lines of a text in the colours of its syntax. Of a long text these are MAX_LINES and
    one more, by which `body_lines` sees that there are more.
    """
    rows = tidy(body.text).removesuffix("\n").split("\n")[: MAX_LINES + 1]
    for row in highlight("\n".join(rows), body.language, palette, base=palette.text):
        yield from fold(row, width)


def _command_lines(body: CommandOutput, width: int, palette: Palette) -> Iterator[StyledLine]:
    """Yield a command, the last lines of its output, and its exit code if it failed. Together they
    are at most MAX_LINES.
    """
    command = fold([(tidy(body.command), palette.strong)], width - 2)
    head = indent(command, ("$ ", palette.accent), ("  ", palette.accent))
    yield from head
    if body.output:
        room = max(1, MAX_LINES - len(head) - 2)  # for the lines before and after the output
        lines, rows_before = last_lines(
            body.output, max_lines=room, width=width, style=palette.text
        )
        if rows_before:
            note = crop(f"… {plural(rows_before, 'line')} before", width)
            yield StyledLine([Segment(note, palette.muted)])
        yield from lines
    if body.exit_code:
        yield StyledLine([Segment(crop(f"exit code {body.exit_code}", width), palette.error)])


def _todo_lines(body: Todos, width: int, palette: Palette) -> Iterator[StyledLine]:
    """Yield the lines of todos, each behind its mark and in the style of its state."""
    styles = {"pending": palette.text, "in_progress": palette.strong, "done": palette.muted}
    for todo in body.items:
        style = styles[todo.state]
        lines = wrap([(tidy(todo.text), style)], width - 2)
        yield from indent(lines, (f"{todo.mark} ", style), ("  ", style), decoration=False)


class DisplayBlock(TranscriptBlock):
    """The whole body of a display, without a card, for questions and commands.

    `show` makes the lines of a changed file printable.
    """

    def __init__(self, display: Display, show: Callable[[str], str] = tidy) -> None:
        super().__init__()
        self._display = display
        self._show = show

    @cached_property
    def _files(self) -> list[FileDiff] | None:
        """The files of a diff, which are the same in each width."""
        return diff_files(self._display.body, self._show)

    def _draw(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        """The whole body behind a margin; no lines if there is no body."""
        body = self._display.body
        if body is None:
            return []
        room = width - len(MARGIN) - 1
        if self._files is None:
            lines = body_lines(body, width=room, palette=palette, show=self._show)
        else:  # `body_lines` would read the files again for each width
            lines = draw_diff(self._files, room, palette)
        return put_right_of((MARGIN, palette.text), lines)

    def as_markdown(self) -> str:
        """The body as a block of code; empty if there is no body."""
        body = self._display.body
        if body is None:
            return ""
        return f"```\n{body_text(body)}\n```"


class GitDiffBlock(TranscriptBlock):
    """A diff of git, which may be long."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = tidy(text)

    def _draw(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        lines = draw_git_diff(self._text, width - 2 * len(MARGIN), palette)
        return put_right_of((MARGIN, palette.text), lines)

    def as_markdown(self) -> str:
        return f"```diff\n{self._text}\n```"
