"""ToolCard: a tool call with its output; long outputs are folded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from time import monotonic
from typing import Literal

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from ouro.display import Body, CommandOutput, Diff, Display, Picture, Plain, Todos
from ouro.frontends.tui.blocks.block_list import TranscriptBlock
from ouro.frontends.tui.blocks.code import highlight
from ouro.frontends.tui.blocks.diff import diff_figures, draw_diff, draw_git_diff
from ouro.frontends.tui.blocks.diff_data import FileDiff, changed_files, file_diffs
from ouro.frontends.tui.blocks.lines import StyledLine, clean_output, crop, fold, indent, tidy, wrap
from ouro.frontends.tui.blocks.messages import MARGIN, format_duration, spinner_sign
from ouro.frontends.tui.blocks.paged_lines import put_below, put_right_of
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.tool_kind import OTHER, kind_of, title_with_verb
from ouro.utils.text import byte_size, plural

MAX_LINES = 2_000
"""Maximum lines that are drawn of one body."""
MAX_DIFF_SIZE = 30
"""Maximum lines that a diff is estimated to have."""
_MIN_TITLE_WIDTH = 8
"""Columns that the title gets even if the terminal is too narrow for it."""


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
    files = _files_of(body, show)
    if files is not None or isinstance(body, Diff):
        return draw_diff(files or [], width, palette, has_names=has_names)
    lines = _body_lines(body, width, palette)
    drawn = list(islice(lines, MAX_LINES))
    if next(lines, None) is not None:
        drawn.append(StyledLine([Segment(crop("… the rest is not shown", width), palette.muted)]))
    return drawn


def _files_of(body: Body | None, show: Callable[[str], str] = tidy) -> list[FileDiff] | None:
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


def _body_lines(
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


def last_lines(text: str, most: int, width: int, style: Style) -> tuple[list[StyledLine], int]:
    """The last lines of a command's output, at most `most`, and how many of its rows are not whole
    among them. A row is a line of the output before it is wrapped.
    """
    rows = clean_output(text).rstrip("\n").split("\n")
    lines_shown: list[StyledLine] = []
    whole_rows = 0
    for row in reversed(rows):
        lines = fold([(row, style)], width)
        if lines_shown and len(lines_shown) + len(lines) > most:
            break
        lines_shown = [*lines[-most:], *lines_shown]
        if len(lines) <= most:
            whole_rows += 1
    return lines_shown, len(rows) - whole_rows


def text_size(body: Body) -> int:
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
        lines, rows_before = last_lines(body.output, most=room, width=width, style=palette.text)
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


State = Literal["pending", "running", "waiting", "done", "failed", "stopped"]
_STATE_SIGNS = {"pending": "·", "waiting": "?", "failed": "✗", "stopped": "■"}
_STATE_WORDS = {"pending": "waiting", "waiting": "waiting for approval", "stopped": "stopped"}
_STATE_COLORS = {"pending": "muted", "waiting": "warning", "failed": "error", "stopped": "warning"}
MAX_OUTPUT = 64_000
"""Characters that are kept of what a running call prints: the last ones."""
RUNNING_LINES = 5
"""Lines of its output that the folded card of a running call shows."""
_BODY_MARGIN = MARGIN * 2


class ToolCard(TranscriptBlock):
    """A tool call: a line with its title and state, and its output below."""

    foldable = True
    is_compact = True
    is_moving = True

    def __init__(
        self,
        title: str,
        clock: Callable[[], float] = monotonic,
        key: str = "Ctrl+O",
        tool: str = "",
    ) -> None:
        """Make the card of a call that begins now.

        Args:
            title: what the call does; it may be replaced by `rename`.
            key: the key that unfolds the card.
            tool: the name of the tool, which decides about sign, colour and verb.
        """
        super().__init__()
        self._tool = tool
        self._kind = OTHER
        self.title = ""
        self.changed: Callable[[], None] | None = None
        """Called after each change; set by the group that shows the card."""
        self._set_title(title)
        self._clock = clock
        self._key = key
        self._since = clock()
        self._seconds: float | None = None
        """How many seconds the call took; None while it runs."""
        self.state: State = "pending"
        self._output = ""
        """What the running call has printed so far."""
        self._figures = ""
        """The figures that a running call reports, such as tokens."""
        self._activity = ""
        """The activity that a running call has reported last."""
        self._display: Display | None = None
        """The result of the call; None while it runs, and if it was stopped."""

    @property
    def _has_ended(self) -> bool:
        return self._seconds is not None

    def append(self, text: str) -> None:
        """Add what the running call has printed."""
        self._output = (self._output + text)[-MAX_OUTPUT:]
        self.invalidate()

    def set_state(self, state: State) -> None:
        if not self._has_ended:
            self.state = state
            self.invalidate()

    def rename(self, title: str) -> None:
        self._set_title(title)
        self.invalidate()

    def invalidate(self) -> None:
        super().invalidate()
        if self.changed is not None:
            self.changed()

    def _set_title(self, title: str) -> None:
        self._kind = kind_of(self._tool, title)
        self.title = tidy(title_with_verb(self._tool, title))

    def note(self, figures: str, activity: str, state: State) -> None:
        """Show the figures of a running call in its first line. Add its activity to the output
        below, unless it is empty or the same as before. Does nothing after the call has ended.
        """
        if self._has_ended:
            return
        if activity not in ("", self._activity):
            self._activity = activity
            self.append(f"{activity}\n")
        self._figures = figures
        self.set_state(state)

    def finish(self, display: Display, failed: bool, seconds: float | None = None) -> None:
        """Show the result of the call. `seconds` is how long the call took; None: the time since
        the card was made.
        """
        self._display = display
        self._seconds = self._clock() - self._since if seconds is None else seconds
        self._end("failed" if failed else "done")

    def stop(self) -> None:
        """Show that the call was stopped, if it has no result yet."""
        if not self._has_ended:
            self._seconds = self._clock() - self._since
            self._end("stopped")

    def _draw(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        """The first line, and the body or the output so far below it. If the title names the only
        changed file, the numbers of its changed lines are in the first line, and no line below
        repeats its name.
        """
        inner_width = width - len(_BODY_MARGIN) - 1
        margin = (_BODY_MARGIN, palette.text)
        files = _files_of(self._body)
        is_named = self._title_names_file(files)
        lines = self._lines_below_head(inner_width, palette, has_names=not is_named)
        figures = diff_figures(files[0], palette) if files and is_named else []
        return put_below([self._head_line(width, palette, figures)], put_right_of(margin, lines))

    def _title_names_file(self, files: Sequence[FileDiff] | None) -> bool:
        """Whether the title ends with the name of the only changed file."""
        return files is not None and len(files) == 1 and self.title.endswith(files[0].after)

    def estimate(self, _: int) -> int:
        """The approximate number of lines of the card, as it is folded or unfolded now."""
        body = self._body
        if body is None:
            return 1
        max_lines = MAX_LINES if self.is_open else preview_size(body, self.state == "failed")
        if max_lines == 0:
            return 1
        return 1 + min(text_size(body), max_lines + 1)  # with the line that counts the others

    def as_markdown(self) -> str:
        """The title and the summary, and the body as a block of code, if there is one."""
        head = f"`{self.title}`"
        if self._display is not None:
            head += f": {tidy(self._display.summary)}"
        body = self._body
        return head if body is None else f"{head}\n\n```\n{body_text(body)}\n```"

    @property
    def _body(self) -> Body | None:
        return self._display.body if self._display is not None else None

    def _end(self, state: State) -> None:
        self.state = state
        self.is_moving = False
        self.invalidate()

    def _head_line(self, width: int, palette: Palette, figures: Sequence[Segment]) -> StyledLine:
        """The first line of the card: sign, title, summary, duration and figures. If they do not
        fit, the duration is left out so that the figures of a diff stay. If that is not enough, the
        title and the summary are cut.
        """
        seconds = self._clock() - self._since if self._seconds is None else self._seconds
        figures_text = "".join(figure.text for figure in figures)
        summary = self._summary(figures_text)
        around = len(MARGIN) + 3  # the margin, the sign, a blank, and the column of the scroll bar
        room = max(_MIN_TITLE_WIDTH, width - around - cell_len(figures_text))
        duration = format_duration(seconds) if seconds >= 0.1 else ""
        if figures and cell_len(f"{self.title} · {summary} · {duration}") > room:
            duration = ""  # what has changed is more important
        details = "".join(f" · {part}" for part in (summary, duration) if part)
        # The title gets at least half of the room.
        details_width = min(cell_len(details), room // 2)
        title = crop(self.title, max(_MIN_TITLE_WIDTH, room - details_width))
        details = crop(details, max(0, room - cell_len(title)))
        kind_sign = spinner_sign(seconds) if self.state == "running" else self._kind.sign
        sign = _STATE_SIGNS.get(self.state, kind_sign)
        color = _STATE_COLORS.get(self.state, self._kind.color)
        return StyledLine(
            [
                Segment(f"{MARGIN}{sign} ", getattr(palette, color)),
                Segment(title, palette.strong),
                Segment(details, palette.muted),
                *figures,
            ],
            gutter=len(MARGIN) + 2,
        )

    def _summary(self, figures: str) -> str:
        """The text after the title in the first line: the summary of the result, or the state as
        long as there is no result.

        Nothing is shown twice. So a summary is left out if the title or the `figures` of a diff
        have it already, or if the text below begins with it. The figures are such as `(new) +3 −1`.
        If the summary has more behind the figures, only that is shown.
        """
        if self._display is None:
            return _STATE_WORDS.get(self.state, self._figures)
        summary = tidy(self._display.summary)
        body = self._body
        if self.state == "failed" and isinstance(body, Plain) and body.text.startswith(summary):
            return ""
        figures = figures.strip()
        if figures and summary.startswith(f"{figures} · "):
            return summary.removeprefix(f"{figures} · ")  # why a judge allowed it
        if summary == figures or self.title.endswith(f" {summary}"):
            return ""
        says_new = summary.startswith("new file,") and figures.startswith("(new)")
        says_deleted = summary.startswith("deleted,") and figures.startswith("(deleted)")
        return "" if says_new or says_deleted else summary

    def _lines_below_head(
        self, width: int, palette: Palette, *, has_names: bool
    ) -> Sequence[StyledLine]:
        """The lines below the first: the whole body, its preview, or the output so far. There are
        none if the call ended without a body.

        Without `has_names` a diff has no line with the name of each file.
        """
        body = self._body
        if body is not None and self.is_open:
            return body_lines(body, width, palette, has_names=has_names)
        if body is not None:
            return self._preview_lines(body, width, palette, has_names=has_names)
        return self._running_lines(width, palette) if self._display is None else []

    def _running_lines(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        """The end of what a running call has printed so far."""
        if not self._output:
            return []
        max_lines = MAX_LINES if self.is_open else RUNNING_LINES
        return self._tail(self._output, most=max_lines, width=width, palette=palette)

    def _preview_lines(
        self, body: Body, width: int, palette: Palette, *, has_names: bool
    ) -> Sequence[StyledLine]:
        """What a folded card shows of its body: the end of a command's output, or the beginning of
        any other body, and how many lines are left out. Empty for a kind of body that has no
        preview.
        """
        max_lines = preview_size(body, self.state == "failed")
        if isinstance(body, CommandOutput):
            has_output = bool(body.output.strip())
            return (
                self._tail(body.output, most=max_lines, width=width, palette=palette)
                if has_output
                else []
            )
        if max_lines == 0:
            return []
        lines = body_lines(body, width, palette, has_names=has_names)
        if len(lines) <= max_lines + 1:  # the line `1 more line` would need the same place
            return lines
        omission = self._omission_lines(
            len(lines) - max_lines, where="more", width=width, palette=palette
        )
        return [*lines[:max_lines], *omission]

    def _tail(self, output: str, most: int, width: int, palette: Palette) -> list[StyledLine]:
        """The last lines of an output, after a line that says how many are left out before them. An
        output that is only one line longer than `most` is shown whole, because that line would take
        the same room.
        """
        lines, rows_before = last_lines(output, most=most + 1, width=width, style=palette.muted)
        if rows_before:
            lines, rows_before = last_lines(output, most, width, style=palette.muted)
        return [
            *self._omission_lines(rows_before, where="before", width=width, palette=palette),
            *lines,
        ]

    def _omission_lines(
        self, count: int, where: str, width: int, palette: Palette
    ) -> list[StyledLine]:
        """A list with the line that says how many lines are left out, and which key shows them.
        Empty if the count is 0.
        """
        if not count:
            return []
        words = f"… {plural(count, 'line')} {where} · {self._key}"
        return [StyledLine([Segment(crop(words, width), palette.muted)], gutter=len(words))]


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
        return _files_of(self._display.body, self._show)

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
