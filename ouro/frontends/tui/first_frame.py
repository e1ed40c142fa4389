"""The first frame: drawn by plain writes while Textual is imported; collects what is typed meanwhile."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import signal
import sys
import termios
from dataclasses import dataclass
from typing import Any

from ouro.frontends.tui.look import BOX_FROM_HEIGHT, HEADER_FROM_HEIGHT, OPENING, Look, ThemeColors, placeholder
from ouro.utils.text import clean

_ENTER_SCREEN = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h"
_LEAVE_SCREEN = (
    "\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[<u\x1b[>4m\x1b[?7h\x1b[0m\x1b[?1049l\x1b[?25h"
)
"""Also resets what Textual may have set by then: mouse, focus and paste reports, keyboard protocol."""
_LFLAG, _IFLAG, _CC = 3, 0, 6


@dataclass(frozen=True, slots=True)
class FirstFrame:
    """A terminal that shows the first frame and echoes nothing."""

    attributes: list[Any]
    """The terminal's modes before, to be restored."""
    typed: str
    """What was typed before the terminal was made raw; Enter is `\\r`."""

    def restore(self) -> None:
        """Leave the alternate screen and give the terminal its modes back; harmless when done twice."""
        with contextlib.suppress(OSError):  # the terminal is gone: nothing is left to restore
            os.write(1, _LEAVE_SCREEN.encode())
        self.restore_modes()

    def restore_modes(self) -> None:
        with contextlib.suppress(termios.error):  # as above
            termios.tcsetattr(0, termios.TCSANOW, self.attributes)


def can_draw() -> bool:
    """Whether this is a terminal that a full screen can be drawn on."""
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    try:
        return os.environ.get("TERM", "dumb") not in ("", "dumb") and all(s is not None and s.isatty() for s in streams)
    except ValueError:  # a stream that is closed
        return False


def draw(look: Look) -> FirstFrame:
    """Draw the first frame and collect what is typed from now on for Textual.

    Raises:
        OSError: the terminal cannot be written to or its modes cannot be read.
    """
    try:
        attributes = termios.tcgetattr(0)
        frame = FirstFrame(attributes, _make_raw(attributes))
    except termios.error as error:
        raise OSError(*error.args) from error
    _restore_at_signals(frame)
    try:
        width, height = (size or usual for size, usual in zip(os.get_terminal_size(1), (80, 24), strict=True))
        picture = _ENTER_SCREEN + "".join(_lines(look, width, height))
        data = picture.encode()
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        frame.restore()
        raise
    return frame


def _restore_at_signals(frame: FirstFrame) -> None:
    """Restore the terminal on signals until the full screen handles them: nothing else is open yet.

    Python's own handler of SIGINT does not serve: a KeyboardInterrupt in a weakref callback of an import is lost.
    """

    def end(number: int, _: object) -> None:
        frame.restore()
        os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, end)


def _make_raw(attributes: list[Any]) -> str:
    """Read key by key, without echo. Ctrl+C still ends the program until Textual is up: it could hang before that."""
    changed = [*attributes[:_CC], list(attributes[_CC])]
    changed[_LFLAG] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    changed[_IFLAG] &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
    for name in ("VSUSP", "VQUIT", "VDSUSP"):
        if hasattr(termios, name):
            changed[_CC][getattr(termios, name)] = b"\0"
    changed[_CC][termios.VMIN], changed[_CC][termios.VTIME] = 1, 0
    termios.tcsetattr(0, termios.TCSANOW, changed)
    return _typed_before()


def _typed_before() -> str:
    """Input typed before raw mode, where the terminal turned Enter into a line feed."""
    waiting = array.array("i", [0])
    fcntl.ioctl(0, termios.FIONREAD, waiting)
    if not waiting[0]:
        return ""
    return os.read(0, waiting[0]).decode(errors="replace").replace("\n", "\r")


def _lines(look: Look, width: int, height: int) -> list[str]:
    """Every line of the first frame with its position, as the widgets of the same names draw it."""
    colours, palette = _Colours(), look.colors
    base = colours.of(palette.text, palette.background)
    rows = dict.fromkeys(range(height), " " * width)
    if height >= HEADER_FROM_HEIGHT:
        rows[0] = _header(look, width, colours)
    if height >= 2:
        rows[height - 1] = colours.of(palette.muted, palette.background) + f" {OPENING}"[:width].ljust(width)
    boxed = height >= BOX_FROM_HEIGHT
    _place_prompt(rows, width, height - 3 if boxed else height - 2, boxed, (colours, palette))
    return [f"\x1b[{row + 1};1H{base}{text}" for row, text in rows.items()]


def _header(look: Look, width: int, colours: _Colours) -> str:
    palette = look.colors
    name = f" ouro {look.version}".rstrip()[:width]
    rest = f" · {clean(look.folder)}"[: max(0, width - len(name) - 1)]
    bold = "\x1b[1m" + colours.of(palette.accent, palette.background)
    muted = "\x1b[0m" + colours.of(palette.muted, palette.background)
    return bold + name[:5] + muted + name[5:] + rest + " " * (width - len(name) - len(rest))


def _place_prompt(rows: dict[int, str], width: int, row: int, boxed: bool, paint: tuple[_Colours, ThemeColors]) -> None:
    """The empty prompt with its cursor on `row`, in a frame where there is room."""
    colours, palette = paint
    inner = max(0, width - (6 if boxed else 2))
    hint = placeholder(inner).ljust(inner)
    sign = colours.of(palette.accent, palette.background) + "❯ "
    cursor = colours.of(palette.background, palette.text) + hint[:1] if inner else ""
    line = sign + cursor + colours.of(palette.faint, palette.background) + hint[1:]
    edge = colours.of(palette.border, palette.background)
    if width < 8 or row < 0:
        return
    if not boxed:
        rows[row] = line
        return
    rows[row - 1] = edge + "╭" + "─" * (width - 2) + "╮"
    rows[row] = edge + "│ " + line + edge + " │"
    rows[row + 1] = edge + "╰" + "─" * (width - 2) + "╯"


class _Colours:
    """Colours as terminal sequences; empty for terminals with few colours."""

    def __init__(self) -> None:
        self._plain = "NO_COLOR" in os.environ
        self._true = os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit")
        self._many = os.environ.get("TERM", "").endswith("256color")

    def of(self, text: str, background: str) -> str:
        if self._plain or not (self._true or self._many):
            return ""
        return f"\x1b[38;{self._code(text)};48;{self._code(background)}m"

    def _code(self, colour: str) -> str:
        red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
        if self._true:
            return f"2;{red};{green};{blue}"
        high, low = max(red, green, blue) / 255, min(red, green, blue) / 255
        light = (high + low) / 2
        saturation = 0.0 if high == low else (high - low) / ((high + low) if light <= 0.5 else (2 - high - low))
        if saturation < 0.15:  # as in rich: near grey uses the grey ramp
            grey = round(light * 25)
            return f"5;{16 if grey == 0 else 231 if grey == 25 else 231 + grey}"
        six = [round(part / 95 if part < 95 else 1 + (part - 95) / 40) for part in (red, green, blue)]
        return f"5;{16 + 36 * six[0] + 6 * six[1] + six[2]}"
