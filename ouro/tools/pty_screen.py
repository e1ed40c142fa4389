"""The screen of a pseudo-terminal: what a program has drawn, as text. pyte interprets the codes."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from copy import copy, deepcopy
from typing import Any

import pyte
import pyte.modes

from ouro.tools.truncate import decode_output
from ouro.utils.text import clean

COLUMNS, ROWS = 100, 30
"""The size of a terminal until a front end shows it."""
MAX_COLUMNS, MAX_ROWS = 500, 200
_MAX_LINES = 1_000
"""Lines above the screen that are kept."""
_MAX_INCOMPLETE = 4 * 1024
"""Characters of an incomplete code that wait for the rest."""
# Codes that pyte would print or refuse: strings for devices, and private ones of newer terminals.
_UNKNOWN_CODE = re.compile(
    r"\x1b[P_^X][^\x1b\x07]{0,4096}(?:\x1b\\|\x07)"
    r"|\x1b\[[<>=][0-9;:]{0,64}[ -/]{0,4}[@-~]"
    r"|\x1b\[\?[0-9;:]{0,64}(?:[ -/]{1,4}[@-~]|[@-GIM-gi-km-~])"
    r"|\x1b\[[0-9;:]{0,64}[ -/]{1,4}[@-~]"
)
_INCOMPLETE_CODE = re.compile(r"\x1b(?:[P_^X\]][^\x1b\x07]*|\[[0-?]*[ -/]*)?\Z")


class PtyScreen:
    """The screen of one program, and the lines that have left it at the top.

    Args:
        reply: sends what the terminal itself answers, such as the place of the cursor.
    """

    def __init__(self, reply: Callable[[str], None]) -> None:
        self.above: deque[str] = deque(maxlen=_MAX_LINES)
        """The last lines that have left the screen at its top."""
        self.version = 0
        """Grows with each change."""
        self.gone = 0
        """How many lines have left the screen at its top so far."""
        self._screen = _Screen(COLUMNS, rows=ROWS, on_line_gone=self._keep_line, reply=reply)
        self._stream = pyte.Stream(self._screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._incomplete = ""
        """The beginning of a code whose rest has not come yet."""

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self._screen.columns, self._screen.lines

    @property
    def cursor(self) -> tuple[int, int]:
        """Column and row, from 0."""
        return self._screen.cursor.x, self._screen.cursor.y

    @property
    def is_cursor_hidden(self) -> bool:
        return self._screen.cursor.hidden

    @property
    def sends_application_keys(self) -> bool:
        """Whether the program wants the other codes of the arrow keys (DECCKM)."""
        return _APPLICATION_KEYS in self._screen.mode

    def cells(self, row: int) -> list[Any]:
        """The characters of a row with their colors: `data`, `fg`, `bg`, `bold`, `reverse` …"""
        line = self._screen.buffer[row]
        return [line[column] for column in range(self._screen.columns)]

    def feed(self, data: bytes) -> None:
        """Draw what the program has printed. A code that is not complete yet waits for the rest.
        Takes about 10 ms for 4 KB.
        """
        self.version += 1
        text = _UNKNOWN_CODE.sub("", self._incomplete + self._decode(data))
        self._incomplete = ""
        if rest := _INCOMPLETE_CODE.search(text[-_MAX_INCOMPLETE:]):
            self._incomplete = rest[0]
            text = text[: len(text) - len(rest[0])]
        for piece in _split_at_codes(text):
            with suppress(Exception):  # pyte refuses some codes: they draw nothing
                self._stream.feed(piece)

    def _decode(self, data: bytes) -> str:
        """What the program has printed as text. A character that is cut at the end waits for the
        rest. If it is not UTF-8, it is read as the output of a command without a terminal is, and
        each line begins at the left: its line ends may be those of UTF-16.
        """
        incomplete_character, _flags = self._decoder.getstate()
        try:
            return self._decoder.decode(data)
        except UnicodeDecodeError:
            self._decoder.reset()
            text = decode_output(incomplete_character + data)
            return text.replace("\r\n", "\n").replace("\n", "\r\n")

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the screen. Numbers that are too small or too large are replaced by
        the nearest that is allowed.
        """
        self.version += 1
        self._screen.resize(min(max(rows, 2), MAX_ROWS), min(max(columns, 10), MAX_COLUMNS))

    def text(self) -> str:
        """The screen as lines, without what is empty at the end."""
        return "\n".join(clean(line).rstrip() for line in self._screen.display).rstrip("\n")

    def lines_since(self, gone: int) -> list[str]:
        """The lines that have left the screen at its top since `gone` lines had left it, oldest
        first. If these are more than _MAX_LINES, the oldest are missing.
        """
        count = min(self.gone - gone, len(self.above))
        return [clean(line) for line in list(self.above)[len(self.above) - count :]]

    def _keep_line(self, line: str) -> None:
        """Keep a line that has left the screen at the top."""
        self.gone += 1
        self.above.append(line.rstrip())


_OTHER_SCREEN = 1049
"""The mode in which a program draws on another screen, as an editor or a pager does."""
_APPLICATION_KEYS = 1 << 5  # DECCKM, private mode 1: pyte shifts the private modes


class _Screen(pyte.Screen):
    """A screen that passes on the lines that leave it at the top, and answers as a terminal does.

    Args:
        on_line_gone: gets each line that leaves the screen at the top.
        reply: sends the program what the terminal itself answers.
    """

    def __init__(
        self,
        columns: int,
        rows: int,
        on_line_gone: Callable[[str], None],
        reply: Callable[[str], None],
    ) -> None:
        self._keep_line, self._reply = on_line_gone, reply
        self._usual_screen: tuple[Any, Any] | None = None
        """Buffer and cursor of the usual screen while an editor or a pager draws on another one."""
        super().__init__(columns, rows)

    def index(self) -> None:
        """Move the cursor down a line. On the last line the screen scrolls instead, and its first
        line leaves it. This line is kept, unless only a lower part of the screen scrolls, or an
        editor draws on another screen.
        """
        scrolls_at_top = self.margins is None or self.margins.top == 0
        is_on_last_line = self.cursor.y == self.lines - 1
        if scrolls_at_top and is_on_last_line and self._usual_screen is None:
            line = self.buffer[0]
            self._keep_line("".join(line[column].data for column in range(self.columns)))
        super().index()

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        """Set modes of the terminal. When an editor or a pager asks for the other screen, the
        content of the usual screen is stored until `reset_mode`.
        """
        if kwargs.get("private") and _OTHER_SCREEN in modes and self._usual_screen is None:
            self._usual_screen = deepcopy(self.buffer), copy(self.cursor)
            self.erase_in_display(2)
        super().set_mode(*modes, **kwargs)

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        """Reset modes of the terminal. When an editor or a pager leaves the other screen, the usual
        one is restored.
        """
        if kwargs.get("private") and _OTHER_SCREEN in modes and self._usual_screen is not None:
            self.buffer, self.cursor = self._usual_screen
            self._usual_screen = None
        super().reset_mode(*modes, **kwargs)

    def write_process_input(self, data: str) -> None:
        """Send the program what a terminal answers by itself."""
        self._reply(data)


def _split_at_codes(text: str) -> list[str]:
    """The text in pieces. Each piece begins with an escape code, except perhaps the first. If pyte
    refuses a code, only the piece with this code is not drawn.
    """
    return [piece for piece in re.split(r"(?=\x1b)", text) if piece]
