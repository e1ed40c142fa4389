"""PtySheet: the screen of a program in a terminal; what is typed goes to the program."""

from __future__ import annotations

from typing import Any, Protocol

from rich.color import Color, ColorParseError
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen
from textual.widget import Widget

from ouro.errors import ToolError
from ouro.frontends.tui.blocks.styled_lines import crop
from ouro.frontends.tui.screens.dialogs import KeyLine, Keys, Sheet, make_frame
from ouro.frontends.tui.screens.sheet_layout import StyledOnce
from ouro.utils.text import clean, one_line

_CHECK_SECONDS = 0.1
"""Seconds between two looks at the screen of the program."""
_KEYS: Keys = (("Ctrl+]", "returns"), ("all other keys", "go to the program"))
_HIDDEN_INPUT_KEYS: Keys = (("Ctrl+]", "returns"), ("what you type", "is neither shown nor saved"))
_PYTE_COLORS = {
    "brown": "yellow",
    "brightbrown": "bright_yellow",
    "bfightmagenta": "bright_magenta",
}
"""pyte's names of colours that rich does not know; the misspelled one is pyte's."""


class ProgramScreen(Protocol):
    """The cells that a program has drawn, and its cursor."""

    version: int
    """Grows with each change."""

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        ...

    @property
    def cursor(self) -> tuple[int, int]:
        """Column and row, from 0."""
        ...

    @property
    def is_cursor_hidden(self) -> bool: ...

    def cells(self, row: int) -> list[Any]:
        """The characters of a row with their colors, as pyte has them."""
        ...


class ProgramTerminal(Protocol):
    """The terminal of a program."""

    @property
    def screen(self) -> ProgramScreen: ...

    @property
    def exit_code(self) -> int | None: ...

    @property
    def hides_input(self) -> bool: ...

    def key_codes(self, key: str) -> str:
        """What the terminal sends for a key; empty for an unknown one."""
        ...

    async def type(self, text: str) -> None:
        """Type into the program. Raises ToolError: it has ended, or does not read."""
        ...

    def resize(self, columns: int, rows: int) -> None: ...


class PtyView(Widget, can_focus=True):
    """The screen of a program."""

    def __init__(self, pty: ProgramTerminal) -> None:
        super().__init__()
        self._pty = pty
        self._drawn_version = -1

    def on_mount(self) -> None:
        self.set_interval(_CHECK_SECONDS, self._check_program)
        self.focus()

    def on_resize(self, event: events.Resize) -> None:
        self._pty.resize(event.size.width, event.size.height)

    def render(self) -> Text:
        """The screen of the program. Rows that have no room are left out."""
        screen = self._pty.screen
        self._drawn_version = screen.version
        text = Text(no_wrap=True, end="")
        for row in range(min(screen.size[1], self.size.height)):
            text.append_text(self._row(row))
            text.append("\n")
        return text

    async def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        await self._type(self._codes_of(event))

    async def on_paste(self, event: events.Paste) -> None:
        event.stop()
        await self._type(event.text.replace("\r\n", "\r").replace("\n", "\r"))

    def _check_program(self) -> None:
        if self._pty.screen.version != self._drawn_version:
            self.refresh()

    def _row(self, row: int) -> Text:
        """A row of the screen of the program, with its cursor."""
        screen = self._pty.screen
        cursor_column, cursor_row = screen.cursor
        has_cursor = row == cursor_row and not screen.is_cursor_hidden
        text = Text(end="")
        for cell_column, cell in enumerate(screen.cells(row)):
            is_cursor = has_cursor and cell_column == cursor_column
            text.append(clean(cell.data), _style(cell, is_cursor=is_cursor))
        return text

    def _codes_of(self, event: events.Key) -> str:
        """The text that a key sends to the program; empty if it sends nothing. Alt with a character is
        sent as Esc and the character.
        """
        codes = self._pty.key_codes(event.key)
        if codes:
            return codes
        key = event.key.removeprefix("alt+")
        is_alt_character = key != event.key and len(key) == 1
        if is_alt_character:
            return f"\x1b{key}"
        return event.character or ""

    async def _type(self, text: str) -> None:
        """Type a text into the program; if it does not take it, show a warning."""
        try:
            await self._pty.type(text)
        except ToolError as error:
            self.app.notify(str(error), severity="warning")


class PtySheet(StyledOnce[None], ModalScreen[None]):
    """Shows the program of `command` until it ends or the user returns."""

    BINDINGS = [Binding("ctrl+right_square_bracket", "close", show=False, priority=True)]  # noqa: RUF012 (Textual's own form)

    VERTICAL_BREAKPOINTS = Sheet.VERTICAL_BREAKPOINTS

    def __init__(self, command: str, pty: ProgramTerminal) -> None:
        super().__init__()
        self._command, self._pty = command, pty
        self._view = PtyView(pty)

    def compose(self) -> ComposeResult:
        yield make_frame(
            crop(one_line(self._command, 200), 100),
            self._view,
            keys=_KEYS,
            more="",
            id="pty",
            is_full=True,
        )

    def on_mount(self) -> None:
        self.set_interval(_CHECK_SECONDS, self._check_program)

    def action_close(self) -> None:
        self.dismiss(None)

    def _check_program(self) -> None:
        """Close the sheet if the program has ended. Otherwise show the keys, and whether the
        program hides what is typed.
        """
        if self._pty.exit_code is not None:
            self.dismiss(None)
            return
        self.query_one(KeyLine).show_keys(_HIDDEN_INPUT_KEYS if self._pty.hides_input else _KEYS)


def _style(cell: Any, *, is_cursor: bool) -> Style:
    """The style of a cell of a terminal. The cursor reverses its cell."""
    return Style(
        color=_color(cell.fg),
        bgcolor=_color(cell.bg),
        bold=cell.bold,
        italic=cell.italics,
        underline=cell.underscore,
        reverse=cell.reverse != is_cursor,
    )


def _color(name: str) -> Color | None:
    """The colour of rich for a name of pyte. None for the default colour, and for a colour that
    rich does not know.
    """
    if name == "default":
        return None
    name = _PYTE_COLORS.get(name, name)
    # pyte writes `brightred`, and rich `bright_red`, as our table already does.
    rich_name = name.replace("bright", "bright_", 1).replace("__", "_")
    is_hex = len(name) == 6 and all(letter in "0123456789abcdef" for letter in name.lower())
    if is_hex:
        rich_name = f"#{name}"
    try:
        return Color.parse(rich_name)
    except ColorParseError:
        return None
