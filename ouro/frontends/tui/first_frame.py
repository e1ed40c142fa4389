"""The first frame: it is drawn without Textual, while Textual is imported. LineEditor holds what is
typed meanwhile.
"""

from __future__ import annotations

# What is not needed to draw is imported after it: `re`, `typing`, `pathlib`, `threading` and
# `contextlib` alone take as long as Python's own start.
import _signal as signal  # type: ignore[import-not-found]  # `signal` imports `enum`: 2 ms
import _thread
import fcntl
import os
import sys
import termios
import time
from codecs import getincrementaldecoder

from ouro.frontends.tui.console_glyphs import console_writer
from ouro.frontends.tui.screen_constants import (
    BOX_FROM_HEIGHT,
    HEADER_FROM_HEIGHT,
    OPENING_TEXT,
    QUEUED_MARK,
    QUIT_HINT,
    ROOMY_FROM_HEIGHT,
    placeholder,
)
from ouro.frontends.tui.themes import ANSI, ASK_BACKGROUND, has_true_color
from ouro.utils.dumb_terminal import no_drawing_reason
from ouro.utils.sections import replace_fields
from ouro.utils.terminal_parent import continue_in_child
from ouro.utils.text import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ouro.frontends.tui.screen_settings import ScreenSettings

SAVE_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
"""The terminal puts the title of its window on a stack, and takes it from there. A terminal without
that stack keeps the title of ouro.
"""
_ENTER_SCREEN = f"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h{SAVE_TITLE}"
LEAVE_SCREEN = (
    "\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[<u\x1b[>4m\x1b[?7h"
    f"\x1b[0m\x1b[?1049l\x1b[?25h{RESTORE_TITLE}"
)
"""Also resets what Textual may have set: mouse, focus and paste reports, keyboard protocol."""
_MIN_WIDTH_OF_PROMPT = 8
"""Columns from which the prompt is drawn: its frame and sign alone take six."""
_SIZE_OF_INT = 4
"""Bytes of the number that `FIONREAD` gives."""
_LFLAG, _IFLAG, _CC = 3, 0, 6
"""Places of the local flags, the input flags and the control characters in what `tcgetattr` returns.
"""


class FirstFrame:
    """The first frame in the terminal. A thread reads keys and shows what is typed, until
    `take_keys`.
    """

    def __init__(
        self,
        settings: ScreenSettings,
        size: tuple[int, int],
        attributes: list[Any],
        typed: bytes,
        *,
        has_launcher: bool,
    ) -> None:
        """Draw the frame, and start the thread. From now on signals restore the terminal.

        Args:
            size: the columns and rows of the terminal.
            attributes: the modes of the terminal before it was made raw.
            typed: what was typed before.
            has_launcher: see `draw`.
        """
        self.attributes = attributes
        """The terminal's original modes, which will be restored."""
        self.has_left = False
        """Whether the user has quit."""
        self._settings = settings
        self._size = size
        self._rows: dict[int, str] = {}
        """The lines on the screen."""
        self._decoder = getincrementaldecoder("utf-8")(errors="replace")
        self._lock = _thread.allocate_lock()
        self._is_stopped = False
        """Whether nothing is drawn any more."""
        _restore_at_signals(self)
        _write(_ENTER_SCREEN + (ASK_BACKGROUND if settings.theme == "auto" else ""))
        self._draw(settings, typed="", entered=())
        # Done now: the user sees the frame.
        if has_launcher:
            continue_in_child(LEAVE_SCREEN, attributes)
        self._readable, self._write_end = os.pipe()  # ends the thread
        from threading import Thread

        from ouro.frontends.tui.first_frame_prompt import LineEditor, has_usual_keys

        self._editor = LineEditor(understands=has_usual_keys(settings.keys))
        self._thread = Thread(target=self._read, args=[typed], name="type-ahead", daemon=True)
        self._thread.start()

    @property
    def settings(self) -> ScreenSettings:
        """The settings. After the terminal has answered, the theme `auto` is replaced by the one that
        fits its background.
        """
        if self._settings.theme == "auto" and self._editor.theme:
            return replace_fields(self._settings, theme=self._editor.theme)
        return self._settings

    @property
    def entered(self) -> Sequence[str]:
        """All messages that were entered so far."""
        with self._lock:
            return tuple(self._editor.entered)

    def take_message(self) -> str:
        """Remove the first entered message and return it; see `LineEditor.take_message`."""
        with self._lock:
            return self._editor.take_message()

    def take_keys(self) -> tuple[list[tuple[float, str]], bytes]:
        """Stop reading and drawing. Returns the time and input of each key that was not taken yet, and
        the bytes of a character that is not complete.
        """
        if not self._is_stopped:
            self._stop_drawing()
            os.write(self._write_end, b"x")  # ends the thread
            self._thread.join()
            os.close(self._write_end)
            os.close(self._readable)
        incomplete_character, _ = self._decoder.getstate()
        self._decoder.reset()
        return self._editor.take_keys(), incomplete_character

    def restore(self) -> None:
        """Leave the alternate screen and restore the modes of the terminal. May be called twice."""
        self._stop_drawing()
        _restore(self.attributes)

    def restore_modes(self) -> None:
        _restore_modes(self.attributes)

    def _stop_drawing(self) -> None:
        """Draw nothing from now on: the terminal belongs to Textual, or is restored."""
        with self._lock:
            self._is_stopped = True

    def _read(self, typed: bytes) -> None:
        """Read keys and show what is typed, until the keys are taken, the user quits or the
        terminal is gone. The thread runs this.

        `typed` is what came before. If the user quits, the process gets a SIGINT.
        """
        from contextlib import suppress
        from select import select

        editor = self._editor
        while True:
            with self._lock:
                editor.feed(self._decoder.decode(typed), time.monotonic())
                if typed and editor.understands and not self._is_stopped:
                    with suppress(OSError):  # the terminal is gone; Textual notices, too
                        self._draw(
                            self.settings,
                            typed=editor.text,
                            entered=editor.entered,
                            asks_to_quit=editor.asks_to_quit,
                        )
            if editor.leaves:
                self.has_left = True
                os.kill(os.getpid(), signal.SIGINT)
                return
            readable, _, _ = select([0, self._readable], [], [])
            if self._readable in readable:
                return
            try:
                typed = os.read(0, 65536)
            except OSError:  # the terminal is gone; Textual notices, too
                return
            if not typed:
                return

    def _draw(
        self,
        settings: ScreenSettings,
        typed: str,
        entered: Sequence[str],
        asks_to_quit: bool = False,
    ) -> None:
        """Draw the lines that have changed; see `_FrameText.rows` for the parameters."""
        rows = _FrameText(settings, *self._size).rows(typed, entered, asks_to_quit)
        changed = {row: text for row, text in rows.items() if self._rows.get(row) != text}
        self._rows = rows
        _write("".join(f"\x1b[{row + 1};1H{text}" for row, text in changed.items()))


def can_draw() -> bool:
    """Whether all three standard streams are a terminal that a full screen can be drawn on."""
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    try:
        return not no_drawing_reason() and all(s is not None and s.isatty() for s in streams)
    except ValueError:  # the stream is closed
        return False


def draw(settings: ScreenSettings, *, has_launcher: bool = False) -> FirstFrame:
    """Draw the first frame, and read what is typed from now on.

    Args:
        has_launcher: whether this process becomes the launcher, which the terminal waits for, once
            the frame is drawn. Then this function returns in a child of it.

    Raises:
        OSError: the terminal cannot be written to, or its modes cannot be read.
    """
    try:
        attributes = termios.tcgetattr(0)
        typed = _make_raw(attributes)
    except termios.error as error:
        raise OSError(*error.args) from error
    try:
        width, height = os.get_terminal_size(1)
        size = (width or 80, height or 24)  # 0: the terminal does not know it
        return FirstFrame(settings, size, attributes, typed, has_launcher=has_launcher)
    except BaseException:  # also if a module cannot be imported, or no thread can be started
        _restore(attributes)
        raise


def _write(text: str) -> None:
    """Write a text to the terminal, which may take it in parts."""
    if to_console := console_writer():
        text = to_console(text)
    data = text.encode(errors="replace")
    while data:
        data = data[os.write(1, data) :]


def _restore(attributes: list[Any]) -> None:
    try:  # noqa: SIM105  # without `contextlib`
        os.write(1, LEAVE_SCREEN.encode())
    except OSError:  # the terminal is gone: nothing is left to restore
        pass
    _restore_modes(attributes)


def _restore_modes(attributes: list[Any]) -> None:
    try:  # noqa: SIM105  # as above
        termios.tcsetattr(0, termios.TCSANOW, attributes)
    except termios.error:
        pass


def _restore_at_signals(frame: FirstFrame) -> None:
    """From now on, restore the terminal and end at a signal that ends programs, until the full screen
    handles it. Nothing else is open yet, so the process ends at once.

    Python's own handler of SIGINT is not enough: a KeyboardInterrupt in a weakref callback of an
    import is lost.
    """

    def end(number: int, _: object) -> None:
        """End with the exit code of the signal, or with 0 if the user has quit."""
        frame.restore()
        os._exit(0 if frame.has_left else 128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, end)


def _make_raw(attributes: list[Any]) -> bytes:
    """Let the terminal send single keys, without printing them and without signals.

    Returns what was typed before. Until now the terminal has sent Enter as a line feed, and from
    now on as a carriage return. So each line feed in the result is replaced.
    """
    changed = [*attributes[:_CC], list(attributes[_CC])]  # `attributes` stay for `_restore`
    changed[_LFLAG] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
    changed[_IFLAG] &= ~(
        termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR
    )
    # A read returns as soon as there is one byte.
    changed[_CC][termios.VMIN], changed[_CC][termios.VTIME] = 1, 0
    termios.tcsetattr(0, termios.TCSANOW, changed)
    # The number of bytes that wait to be read.
    answer = fcntl.ioctl(0, termios.FIONREAD, bytes(_SIZE_OF_INT))
    waiting = int.from_bytes(answer, sys.byteorder)
    return os.read(0, waiting).replace(b"\n", b"\r") if waiting else b""


class _FrameText:
    """The text of the first frame. It looks like the widgets that replace it."""

    def __init__(self, settings: ScreenSettings, width: int, height: int) -> None:
        self._settings = settings
        self._width = width
        self._height = height
        self._has_box = height >= BOX_FROM_HEIGHT
        around_prompt = len("│ ❯  │") if self._has_box else len("❯ ")
        self._prompt_width = max(0, width - around_prompt)

    def rows(self, typed: str, entered: Sequence[str], asks_to_quit: bool) -> dict[int, str]:
        """The text of each row of the screen. What has no room on a small terminal is left out.

        Args:
            typed: the text in the prompt.
            entered: the messages that were entered.
            asks_to_quit: whether the status line asks for the second Ctrl+C.
        """
        width, height = self._width, self._height
        rows = dict.fromkeys(range(height), " " * width)
        header_height = 0
        if height >= HEADER_FROM_HEIGHT:
            header_height = 2 if height >= ROOMY_FROM_HEIGHT else 1
            rows[0] = self._header_text()
        if height >= 2:
            rows[height - 1] = self._status_text(QUIT_HINT if asks_to_quit else OPENING_TEXT)
        prompt_row = height - (3 if self._has_box else 2)
        if width >= _MIN_WIDTH_OF_PROMPT and prompt_row >= 0:
            # A blank row is above the messages, and the frame or a blank row below them.
            message_rows = range(header_height + 1, prompt_row - 1)
            for row, message in zip(message_rows, entered, strict=False):
                rows[row] = self._message_text(message)
            rows[prompt_row] = self._prompt_text(typed)
            if self._has_box:
                edge = self._style("border")
                rows[prompt_row - 1] = edge + "╭" + "─" * (width - 2) + "╮"
                rows[prompt_row + 1] = edge + "╰" + "─" * (width - 2) + "╯"
        base = self._style("text")
        return {row: base + text for row, text in rows.items()}

    def _style(self, name: str, background: str = "background") -> str:
        """The codes of a colour of the theme, on a background; empty in the theme of 16 colours."""
        if self._settings.theme == ANSI:
            return ""
        colors = self._settings.colors
        return f"\x1b[38;{_color_code(colors[name])};48;{_color_code(colors[background])}m"

    def _status_text(self, text: str) -> str:
        """The last line of the screen, with this text cut or filled to the width."""
        style = self._style("text" if text == QUIT_HINT else "muted")
        return style + f" {text}"[: self._width].ljust(self._width)

    def _header_text(self) -> str:
        """The first line of the screen: the name in bold, the version and the folder."""
        width = self._width
        name_and_version = f" ouro {self._settings.version}".rstrip()[:width]
        name_end = len(" ouro")
        name, version = name_and_version[:name_end], name_and_version[name_end:]
        room = max(0, width - len(name_and_version) - 1)
        folder = f" · {clean(self._settings.folder)}"[:room]
        blanks = " " * (width - len(name_and_version) - len(folder))
        bold, muted = "\x1b[1m" + self._style("accent"), "\x1b[0m" + self._style("muted")
        return bold + name + muted + version + folder + blanks

    def _message_text(self, message: str) -> str:
        """A queued message in one line, as the transcript will show it."""
        room = max(1, self._width - len(QUEUED_MARK) - 3)
        text, width = _fit(" ".join(message.split()), room, from_end=False)
        padding = " " * max(0, self._width - len(QUEUED_MARK) - 2 - width)
        return f"{self._style('warning')}  {QUEUED_MARK}{self._style('muted')}{text}{padding}"

    def _prompt_text(self, typed: str) -> str:
        """The line of the prompt. It has the end of what was typed, and the cursor behind it. If
        nothing was typed, it has a hint, with the cursor on its first character.
        """
        cursor_style = self._style("background", "text")
        if typed:
            text, width = _fit(typed.rpartition("\n")[2], self._prompt_width - 1)
            blanks = " " * (self._prompt_width - width - 1)
            line = self._style("text") + text + cursor_style + " " + self._style("text") + blanks
        else:
            hint = placeholder(self._prompt_width).ljust(self._prompt_width)
            cursor = cursor_style + hint[:1] if self._prompt_width else ""
            line = cursor + self._style("faint") + hint[1:]
        edge = self._style("border")
        line = self._style("accent") + "❯ " + line
        return f"{edge}│ {line}{edge} │" if self._has_box else line


def _fit(text: str, columns: int, *, from_end: bool = True) -> tuple[str, int]:
    """The part of a text that fits into `columns`, and the width of this part. It is the end of the
    text, or without `from_end` its beginning.
    """
    text = clean(text)
    if text.isascii():
        text = text[-columns:] if from_end else text[:columns]
        return text, len(text)
    from unicodedata import combining, east_asian_width  # imported late: 1 MB

    width, fitting = 0, []
    characters = text[::-1] if from_end else text
    for character in characters:
        size = 2 if east_asian_width(character) in "WF" else 1
        if combining(character):
            size = 0
        if width + size > columns:
            break
        width += size
        fitting.append(character)
    return "".join(reversed(fitting) if from_end else fitting), width


def _color_code(color: str) -> str:
    """The numbers of SGR for a colour `#rrggbb`. If the terminal does not have the exact colour,
    they are for one of its 256 colours: the one that rich chooses, so that nothing changes after
    the first frame.
    """
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    if has_true_color():
        return f"2;{red};{green};{blue}"
    import colorsys  # only for a terminal without all colours

    _, light, saturation = colorsys.rgb_to_hls(red / 255, green / 255, blue / 255)
    if saturation < 0.15:  # black, one of the 24 greys, or white
        grey = round(light * 25)
        number = {0: 16, 25: 231}.get(grey, 231 + grey)
        return f"5;{number}"
    red_step, green_step, blue_step = map(_color_step, (red, green, blue))
    return f"5;{16 + 36 * red_step + 6 * green_step + blue_step}"


def _color_step(value: int) -> int:
    """The nearest of the six steps that the 256 colours have of red, green and blue: 0, 95, 135 …"""
    return round(value / 95 if value < 95 else 1 + (value - 95) / 40)
