"""ToolCard: one tool call with state, time and summary, and its output below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from time import monotonic
from typing import Literal

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from ouro.display import Body, CommandOutput, Display
from ouro.frontends.tui.blocks.block_list import TranscriptBlock
from ouro.frontends.tui.blocks.lines import StyledLine, crop, indent, tidy
from ouro.frontends.tui.blocks.messages import MARGIN, duration
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.tool_body import MAX_LINES, body_lines, body_text, last_lines, preview_size, text_size

State = Literal["running", "waiting", "done", "failed", "stopped"]
_SIGNS = {"waiting": "?", "done": "✓", "failed": "✗", "stopped": "■"}
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
MAX_OUTPUT = 64_000
_INSIDE = MARGIN * 2


class ToolCard(TranscriptBlock):
    foldable = True
    is_compact = True
    is_moving = True

    def __init__(self, title: str, clock: Callable[[], float] = monotonic, key: str = "Ctrl+O") -> None:
        super().__init__()
        self._title = tidy(title)
        self._clock = clock
        self._key = key
        self._since = clock()
        self._seconds: float | None = None
        self._state: State = "running"
        self._output = ""
        self._display: Display | None = None

    def append(self, text: str) -> None:
        self._output = (self._output + text)[-MAX_OUTPUT:]
        self.changed()

    def wait(self, is_waiting: bool) -> None:
        if self._seconds is None:
            self._state = "waiting" if is_waiting else "running"
            self.changed()

    def finish(self, display: Display, failed: bool, seconds: float | None = None) -> None:
        """The call has its result. `seconds` None: since the card was made."""
        self._display = display
        self._seconds = self._clock() - self._since if seconds is None else seconds
        self._end("failed" if failed else "done")

    def stop(self) -> None:
        """The turn ended before the call had a result."""
        if self._seconds is None:
            self._seconds = self._clock() - self._since
            self._end("stopped")

    def _draw(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        inside = width - len(_INSIDE) - 1
        space = (_INSIDE, palette.text)
        return [self._head(width, palette), *indent(self._below(inside, palette), space, space)]

    def _estimate(self, _: int) -> int:
        body = self._body
        if body is None:
            return 1
        shown = MAX_LINES if self.is_open else preview_size(body, self._state == "failed")
        return 1 + min(text_size(body), shown + 1 if shown else 0)

    def as_markdown(self) -> str:
        body = self._body
        head = f"`{self._title}`" + (f": {tidy(self._display.summary)}" if self._display else "")
        return head if body is None else f"{head}\n\n```\n{body_text(body)}\n```"

    @property
    def _body(self) -> Body | None:
        return self._display.body if self._display is not None else None

    def _end(self, state: State) -> None:
        self._state = state
        self.is_moving = False
        self.changed()

    def _head(self, width: int, palette: Palette) -> StyledLine:
        passed = self._clock() - self._since if self._seconds is None else self._seconds
        summary = tidy(self._display.summary) if self._display is not None else _WORDS.get(self._state, "")
        parts = [part for part in (summary, duration(passed) if passed >= 0.1 else "") if part]
        room = max(8, width - len(MARGIN) - 3)  # the last column is the scroll bar's
        after = "".join(f" · {part}" for part in parts)
        title = crop(self._title, max(8, room - min(cell_len(after), room // 2)))
        after = crop(after, max(0, room - cell_len(title)))
        sign = _SIGNS.get(self._state) or _SPINNER[int(passed * 4) % len(_SPINNER)]
        return StyledLine(
            [
                Segment(f"{MARGIN}{sign} ", _state_style(self._state, palette)),
                Segment(title, palette.strong),
                Segment(after, palette.muted),
            ],
            gutter=len(MARGIN) + 2,
        )

    def _below(self, width: int, palette: Palette) -> list[StyledLine]:
        body = self._body
        if body is None:
            if self._display is not None or not self._output:
                return []
            lines, before = last_lines(self._output, MAX_LINES if self.is_open else 5, width, palette.muted)
            return [*self._left_out(before, "before", width, palette), *lines]
        if self.is_open:
            return list(islice(body_lines(body, width, palette), MAX_LINES))
        return self._preview(body, width, palette)

    def _preview(self, body: Body, width: int, palette: Palette) -> list[StyledLine]:
        most = preview_size(body, self._state == "failed")
        if isinstance(body, CommandOutput):
            if not body.output.strip():
                return []
            lines, before = last_lines(body.output, most, width, palette.muted)
            return [*self._left_out(before, "before", width, palette), *lines]
        if not most:
            return []
        lines = list(islice(body_lines(body, width, palette), most + 1))
        if len(lines) <= most:
            return lines
        left = max(1, _total(body, width, palette) - most)
        return [*lines[:most], *self._left_out(left, "more", width, palette)]

    def _left_out(self, count: int, where: str, width: int, palette: Palette) -> list[StyledLine]:
        if not count:
            return []
        words = f"… {count} line{'s' if count != 1 else ''} {where} · {self._key}"
        return [StyledLine([Segment(crop(words, width), palette.muted)], gutter=len(words))]


class DisplayBlock(TranscriptBlock):
    """A display on its own, whole: for questions and commands that show something."""

    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display

    def _draw(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        body = self._display.body
        if body is None:
            return []
        space = (MARGIN, palette.text)
        return indent(islice(body_lines(body, width - len(MARGIN) - 1, palette), MAX_LINES), space, space)

    def _estimate(self, _: int) -> int:
        return text_size(self._display.body) if self._display.body is not None else 0

    def as_markdown(self) -> str:
        return f"```\n{body_text(self._display.body)}\n```" if self._display.body is not None else ""


_WORDS = {"waiting": "waiting for approval", "stopped": "stopped"}


def _state_style(state: State, palette: Palette) -> Style:
    return {
        "running": palette.accent,
        "waiting": palette.warning,
        "done": palette.success,
        "failed": palette.error,
        "stopped": palette.warning,
    }[state]


def _total(body: Body, width: int, palette: Palette) -> int:
    return sum(1 for _ in islice(body_lines(body, width, palette), MAX_LINES))
