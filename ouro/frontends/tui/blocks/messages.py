"""Blocks of text: user messages, answers, thinking, notices and queued messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic

from rich.segment import Segment
from rich.style import Style

from ouro.events import Level, Retrying
from ouro.frontends.event_lines import retry_line
from ouro.frontends.tui.blocks.block_list import TranscriptBlock, estimate_text
from ouro.frontends.tui.blocks.code import Code
from ouro.frontends.tui.blocks.markdown import markdown_lines
from ouro.frontends.tui.blocks.markdown_pieces import MarkdownPiece, MarkdownPieces
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.styled_lines import (
    GrowingText,
    StyledLine,
    code_runs,
    crop,
    fold,
    indent,
    pad,
    tidy,
    wrap,
)
from ouro.frontends.tui.screen_constants import QUEUED_MARK
from ouro.utils.text import clean, clean_start, plural

MARGIN = "  "
MAX_MESSAGE_LINES, MAX_MESSAGE_CHARACTERS = 20, 3_000
"""Limits of a message that is folded."""
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_STILL_SPINNER = "•"
_LEVEL_SIGNS: dict[Level, tuple[str, str]] = {
    "info": ("·", ""),
    "warning": ("!", "Warning: "),
    "error": ("✗", "Error: "),
}


class UserMessage(TranscriptBlock):
    """A message of the user; a long one, such as a paste, is folded to its beginning."""

    def __init__(self, text: str, images: Sequence[str] = (), key: str = "Ctrl+O") -> None:
        """`images`: the names of the attached images; `key`: the key that unfolds the block."""
        super().__init__()
        self.text = tidy(text)
        self._images = tuple(tidy(name) for name in images)
        self._key = key
        self._more_lines = max(0, self.text.count("\n") + 1 - MAX_MESSAGE_LINES)
        first_lines = self.text.split("\n", MAX_MESSAGE_LINES)[:MAX_MESSAGE_LINES]
        self._head = "\n".join(first_lines)[:MAX_MESSAGE_CHARACTERS]
        self.foldable = len(self._head) < len(self.text)

    @property
    def _visible_text(self) -> str:
        """The text that is shown. While the block is folded, it is the beginning of the message,
        and a line that says how much more there is.
        """
        if self.is_open or not self.foldable:
            return self.text
        if self._more_lines:
            size_of_rest = plural(self._more_lines, "more line")
        else:
            size_of_rest = plural(len(self.text) - len(self._head), "more character")
        return f"{self._head}\n… {size_of_rest} · {self._key}"

    def _draw(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        """The message behind its sign, with a line for each image, on a background of full width."""
        image_lines = [f"[image: {name}]" for name in self._images]
        text_width = width - len(MARGIN) - 1  # the last column belongs to the scroll bar
        text = "\n".join([self._visible_text, *image_lines])
        lines = fold_or_wrap(text, text_width, palette.user)
        return pad(
            indent(lines, ("❯ ", palette.user_bar), (MARGIN, palette.user)), width, palette.user
        )

    def estimate(self, width: int) -> int:
        return estimate_text(self._visible_text, width - 3) + len(self._images)

    def as_markdown(self) -> str:
        return "\n".join(f"> {line}" for line in self.text.split("\n"))


class StreamedBlock(TranscriptBlock):
    """A block whose text arrives in pieces. Each piece is cleaned once, except its end, which may be
    the beginning of an escape sequence.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self._cleaned = self._unfinished = ""
        StreamedBlock.append(self, text)  # a subclass is not ready for its own `append`

    @property
    def text(self) -> str:
        return self._cleaned + clean(self._unfinished)

    def append(self, text: str) -> None:
        """Add a piece at the end of the text. An end that later text may change, such as a part of
        an escape sequence, waits in `_unfinished` until it is complete.
        """
        cleaned, self._unfinished = clean_start(self._unfinished + text)
        # Always four spaces per tab: the result must not depend on how the text was cut into
        # pieces.
        self._cleaned += cleaned.replace("\t", "    ")
        self.invalidate()


class AnswerBlock(StreamedBlock):
    """An answer of the model as Markdown. A piece that is finished is drawn only once."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self._pieces = MarkdownPieces()
        self._finished_lines: list[StyledLine] = []
        """The lines of the finished pieces."""
        self._finished_count = 0
        """How many finished pieces these lines are of."""
        self._growing_code: Code | None = None
        """Draws the first piece that is not finished, if it is a fence."""

    def forget(self) -> None:
        super().forget()
        self._finished_lines, self._finished_count, self._growing_code = [], 0, None

    def _draw(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        """The lines of all pieces. The lines of finished pieces are drawn once and kept. The pieces that
        still grow are drawn each time; if the first of them is a fence, `_growing_code` keeps what it has
        drawn. An open fence further below is drawn whole each time, until it is the first of them.
        """
        unfinished_pieces = self._pieces.update(self.text)
        text_width = width - 2 * len(MARGIN)
        for piece in self._pieces.finished[self._finished_count :]:
            self._add_piece(self._finished_lines, piece, text_width, palette, self._growing_code)
            self._growing_code = None  # only the first of them was drawn as it grew
        self._finished_count = len(self._pieces.finished)
        lines = list(self._finished_lines)
        for number, piece in enumerate(unfinished_pieces):
            if piece.is_open and piece.code is not None and self._growing_code is None:
                language, _ = piece.code
                self._growing_code = Code(language, text_width, palette, margin=MARGIN)
            code = self._growing_code if number == 0 else None
            self._add_piece(lines, piece, text_width, palette, code)
        return lines

    def as_markdown(self) -> str:
        return self.text.strip("\n")

    def _add_piece(
        self,
        lines: list[StyledLine],
        piece: MarkdownPiece,
        width: int,
        palette: Palette,
        code: Code | None,
    ) -> None:
        """Draw a piece and add its lines to `lines`, after a blank line if it has a gap. If it
        continues a paragraph, the last of `lines` is wrapped again with it, and replaced.

        `code` draws the piece if it is a code block. It may have drawn the beginning of the piece
        before.
        """
        if code is not None and piece.code is not None:
            _, text = piece.code
            new_lines = code.lines(text)
        else:
            margin = (MARGIN, palette.text)
            line_before = None
            if piece.continues:
                last = lines.pop()
                line_before = replace(last, segments=last.segments[1:])  # without the margin
            text_lines = markdown_lines(piece.source, width, palette, piece.number, line_before)
            new_lines = indent(text_lines, margin, margin)
        if piece.gap and new_lines:
            lines.append(StyledLine([]))
        lines += new_lines


class ThinkingBlock(StreamedBlock):
    """The thinking of the model: one line, with the text below when it is open."""

    foldable = True
    is_compact = True

    def __init__(
        self, text: str = "", clock: Callable[[], float] = monotonic, key: str = "Ctrl+O"
    ) -> None:
        super().__init__(text)
        self._clock = clock
        self._key = key
        self._since: float | None = None
        """When the first text came; None: none was streamed."""
        self._seconds: float | None = None
        """How long the model thought; None: it has not ended, or it is not known."""
        self._growing_text: GrowingText | None = None
        """Wraps the text as it grows; None until it is drawn for the present width."""

    def append(self, text: str) -> None:
        """Add a piece at the end of the text. The first piece starts the clock."""
        if self._since is None:
            self._since = self._clock()
        self.is_moving = True
        super().append(text)

    def close(self) -> None:
        """Stop the clock: the thinking has ended."""
        if self._since is not None and self._seconds is None:
            self._seconds = self._clock() - self._since
        self.is_moving = False
        self.invalidate()

    def forget(self) -> None:
        super().forget()
        self._growing_text = None

    def _draw(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        """A line with how long the model thought, and if it is open the text below it."""
        sign = "▾" if self.is_open else "▸"
        head = crop(f"{sign} {self._summary()}", width - len(MARGIN) - 1)
        segments = [Segment(MARGIN, palette.text), Segment(head, palette.muted)]
        lines = [StyledLine(segments, gutter=len(MARGIN))]
        if self.is_open:
            if self._growing_text is None:
                text_width = width - 6  # without the margin before it, and two cells behind it
                self._growing_text = GrowingText(text_width, palette.muted, MARGIN + "│ ")
            lines += self._growing_text.lines(self.text.strip("\n"))
        return lines

    def as_markdown(self) -> str:
        """The thinking as a quote; empty if it is folded."""
        if not self.is_open:
            return ""
        return "\n".join(f"> {line}" for line in self.text.strip("\n").split("\n"))

    def _summary(self) -> str:
        """The text of the first line: how long the model has been thinking or has thought, the
        number of words, and if the block is folded the key that opens it.
        """
        size = plural(len(self.text.split()), "word")
        if self.is_moving and self._since is not None:
            return f"Thinking… {format_duration(self._clock() - self._since)} · {size}"
        took = f" for {format_duration(self._seconds)}" if self._seconds is not None else ""
        key_hint = "" if self.is_open else f" · {self._key}"
        return f"Thought{took} · {size}{key_hint}"


class NoticeBlock(TranscriptBlock):
    """A notice of ouro; its level is shown by a sign and a word, not by colour alone."""

    def __init__(self, text: str, level: Level = "info") -> None:
        super().__init__()
        self.text = tidy(text)
        self._level = level

    def _draw(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        """The notice behind the sign of its level. An empty margin of the same width is at its right."""
        styles = {"info": palette.muted, "warning": palette.warning, "error": palette.error}
        style = styles[self._level]
        sign, word = _LEVEL_SIGNS[self._level]
        lines = _notice_lines(
            word + self.text, width=width - 2 * len(MARGIN), base=style, palette=palette
        )
        return indent(lines, (f"{sign} ", style), (MARGIN, palette.text))

    def as_markdown(self) -> str:
        return _LEVEL_SIGNS[self._level][1] + self.text


class TypedCommand(NoticeBlock):
    """A slash command, above its output; it is not a message."""

    def _draw(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        lines = fold_or_wrap(self.text, width - 4, palette.muted)
        return indent(lines, ("❯ ", palette.muted), (MARGIN, palette.text))

    def as_markdown(self) -> str:
        return f"> {self.text}"


class RetryBlock(NoticeBlock):
    """A notice of a failed model call, with a clock of the seconds until the next attempt."""

    is_moving = True

    def __init__(self, event: Retrying, clock: Callable[[], float]) -> None:
        super().__init__(retry_line(event, event.wait), "warning")
        self._event = event
        self._clock = clock
        self._end = clock() + event.wait

    def _draw(self, width: int, palette: Palette) -> Sequence[StyledLine]:
        """The notice, with the seconds that are left now."""
        seconds_left = max(0.0, self._end - self._clock())
        self.text = tidy(f"{retry_line(self._event, seconds_left)} Esc ends it.")
        return super()._draw(width, palette)


def queued_lines(
    steering: Sequence[str], queued: Sequence[str], width: int, palette: Palette
) -> list[StyledLine]:
    """The lines for messages that wait, each cut to one line. First are messages that steer the
    running turn, then messages for the next turn. A blank line is above them. Without messages
    there are no lines.
    """
    lines: list[StyledLine] = [StyledLine([])] if steering or queued else []
    for mark, texts in ((f"{MARGIN}→ steers: ", steering), (f"{MARGIN}{QUEUED_MARK}", queued)):
        for text in texts:
            words = crop(tidy(text), max(1, width - len(mark) - 1))
            lines.append(
                StyledLine(
                    [Segment(mark, palette.warning), Segment(words, palette.muted)],
                    gutter=len(mark),
                )
            )
    return lines


def _notice_lines(text: str, width: int, base: Style, palette: Palette) -> list[StyledLine]:
    """Wrap a notice. Code between backticks has the style of code, as in an answer. Lines that begin
    with a space are quoted text, which keeps its spaces and backticks.
    """
    code = base + Style(color=palette.code.color, bgcolor=palette.code.bgcolor)
    lines: list[StyledLine] = []
    for row in text.split("\n"):
        is_quoted = row.startswith(" ")
        if is_quoted:
            lines += fold([(row, base)], width)
        else:
            lines += wrap(code_runs(row, base, code), width)
    return lines


def fold_or_wrap(text: str, width: int, base: Style) -> list[StyledLine]:
    """Wrap each line of a text. A line that begins with a space is taken as code, and keeps all its
    spaces. Any other line is prose.
    """
    lines: list[StyledLine] = []
    for row in text.split("\n"):
        keeps_spaces = row.startswith(" ")
        lines += wrap([(row, base)], width, keeps_spaces=keeps_spaces)
    return lines


def spinner_sign(seconds: float, *, moves: bool = True) -> str:
    """The sign of the spinner, that many seconds after the start of the work.

    Args:
        moves: whether it turns (`tui.animations`).
    """
    return _SPINNER[int(seconds * 4) % len(_SPINNER)] if moves else _STILL_SPINNER


def format_duration(seconds: float, *, tenths: bool = True) -> str:
    """A duration as text: `0.4 s` below ten seconds (without `tenths`: `0 s`), then `12 s`, and from
    a minute on `3 min 20 s`.
    """
    if tenths and seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"
