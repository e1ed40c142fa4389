"""ToolCard: a tool call with its output; long outputs are folded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Literal

from rich.cells import cell_len
from rich.segment import Segment

from ouro.display import Body, CommandOutput, Display, Plain
from ouro.frontends.tui.blocks.block_list import TranscriptBlock
from ouro.frontends.tui.blocks.diff import diff_figures
from ouro.frontends.tui.blocks.diff_data import FileDiff
from ouro.frontends.tui.blocks.display_body import (
    MAX_LINES,
    body_lines,
    body_text,
    diff_files,
    estimate_body,
    last_lines,
    preview_size,
)
from ouro.frontends.tui.blocks.messages import MARGIN, format_duration, spinner_sign
from ouro.frontends.tui.blocks.paged_lines import put_below, put_right_of
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.styled_lines import StyledLine, crop, tidy
from ouro.frontends.tui.blocks.tool_kind import OTHER, kind_of, title_with_verb
from ouro.utils.text import plural

State = Literal["pending", "running", "waiting", "done", "failed", "stopped"]
_STATE_SIGNS = {"pending": "·", "waiting": "?", "failed": "✗", "stopped": "■"}
_STATE_WORDS = {"pending": "waiting", "waiting": "waiting for approval", "stopped": "stopped"}
_STATE_COLORS = {"pending": "muted", "waiting": "warning", "failed": "error", "stopped": "warning"}
MAX_OUTPUT = 64_000
"""Characters that are kept of what a running call prints: the last ones."""
RUNNING_LINES = 5
"""Lines of its output that the folded card of a running call shows."""
_BODY_MARGIN = MARGIN * 2
_MIN_TITLE_WIDTH = 8
"""Columns that the title gets even if the terminal is too narrow for it."""


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
        *,
        moves: bool = True,
    ) -> None:
        """Make the card of a call that begins now.

        Args:
            title: what the call does; it may be replaced by `rename`.
            key: the key that unfolds the card.
            tool: the name of the tool, which decides about sign, colour and verb.
            moves: whether the sign of a running call turns, and tenths of a second are shown.
        """
        self._moves = moves
        super().__init__()
        self._tool = tool
        self._kind = OTHER
        self.title = ""
        self.on_change: Callable[[], None] | None = None
        """Called after each change; set by the group that shows the card (`ReadGroup`)."""
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
        if self.on_change is not None:
            self.on_change()

    def _set_title(self, title: str) -> None:
        self._kind = kind_of(self._tool, title)
        self.title = tidy(title_with_verb(self._tool, title))

    def show_progress(self, figures: str, activity: str, state: State) -> None:
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
        files = diff_files(self._body)
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
        return 1 + min(estimate_body(body), max_lines + 1)  # with the line that counts the others

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
        is_running = self.state == "running"
        tenths = self._moves or not is_running
        duration = format_duration(seconds, tenths=tenths) if seconds >= 0.1 else ""
        if figures and cell_len(f"{self.title} · {summary} · {duration}") > room:
            duration = ""  # what has changed is more important
        details = "".join(f" · {part}" for part in (summary, duration) if part)
        # The title gets at least half of the room.
        details_width = min(cell_len(details), room // 2)
        title = crop(self.title, max(_MIN_TITLE_WIDTH, room - details_width))
        details = crop(details, max(0, room - cell_len(title)))
        kind_sign = spinner_sign(seconds, moves=self._moves) if is_running else self._kind.sign
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
        return self._end_lines(self._output, max_lines, width, palette)

    def _preview_lines(
        self, body: Body, width: int, palette: Palette, *, has_names: bool
    ) -> Sequence[StyledLine]:
        """What a folded card shows of its body: the end of a command's output, or the beginning of
        any other body, and how many lines are left out. Empty for a kind of body that has no
        preview.
        """
        max_lines = preview_size(body, self.state == "failed")
        if isinstance(body, CommandOutput):
            if not body.output.strip():
                return []
            return self._end_lines(body.output, max_lines, width, palette)
        if max_lines == 0:
            return []
        lines = body_lines(body, width, palette, has_names=has_names)
        if len(lines) <= max_lines + 1:  # the line `1 more line` would need the same place
            return lines
        omission = self._omission_lines(
            len(lines) - max_lines, where="more", width=width, palette=palette
        )
        return [*lines[:max_lines], *omission]

    def _end_lines(
        self, output: str, max_lines: int, width: int, palette: Palette
    ) -> list[StyledLine]:
        """The last lines of an output, after a line that says how many are left out before them. An
        output that is only one line longer than `max_lines` is shown whole, because that line would
        take the same room.
        """
        lines, rows_before = last_lines(output, max_lines + 1, width, style=palette.muted)
        if rows_before:
            lines, rows_before = last_lines(output, max_lines, width, style=palette.muted)
        return [
            *self._omission_lines(rows_before, where="before", width=width, palette=palette),
            *lines,
        ]

    def _omission_lines(
        self, count: int, where: str, width: int, palette: Palette
    ) -> list[StyledLine]:
        """A list with the line that says how many lines are left out, and which key shows them. The
        line is decoration, so that copying leaves it out. The list is empty if the count is 0.
        """
        if not count:
            return []
        words = crop(f"… {plural(count, 'line')} {where} · {self._key}", width)
        return [StyledLine([Segment(words, palette.muted)], gutter=len(words))]
