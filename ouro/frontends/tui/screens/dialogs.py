"""Dialogs over the conversation (sheets): Sheet, the base of all, and those with a text or a field."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from textwrap import wrap
from typing import Any, Literal, TypeVar

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text
from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static

from ouro.frontends.tui.blocks.messages import AnswerBlock
from ouro.frontends.tui.blocks.styled_lines import code_content, join_fitting, quote_code
from ouro.frontends.tui.keymap import SCROLLS, Keymap
from ouro.frontends.tui.screen_constants import HEADER_FROM_HEIGHT
from ouro.frontends.tui.screens.sheet_layout import Layout, StyledOnce
from ouro.frontends.tui.widgets.transcript import TranscriptView
from ouro.frontends.tui.widgets.typed_field import TypedField
from ouro.utils.text import clean

R = TypeVar("R")
_BELOW_TITLE = "$foreground not bold"


Keys = Sequence[tuple[str, str]]
"""Keys as they are written, and what they do; the last one closes the dialog."""
MOVE_KEYS: Keys = (
    ("↑ ↓ · j k", "one line"),
    ("PageUp PageDown", "one page"),
    ("Home End · g G", "first, last"),
)
"""The keys of every list and text. While a search field has the focus, letters are text."""
MIN_WIDTH_FOR_HINT = 30
"""The minimum columns to name the key that shows all keys."""
MAX_MESSAGE_LINES = 4
"""The maximum of lines of a question or an error in the line of keys. The style sheet allows a
notice fewer.
"""
APART_FROM = 112
"""The minimum columns of a screen to leave some beside a dialog. On a narrower one only the marks at
the edge of the transcript would be seen there.
"""
SHOWS_KEYS = ("question_mark", "f1")


MessageKind = Literal["", "-asks", "-failed"]
"""The class of a message in the line of keys: a notice, a question, an error."""


class KeyLine(Widget):
    """The last line of a dialog: its keys, as many as fit, or for a moment a message."""

    def __init__(self, keys: Keys, more: str, max_lines: int = 2) -> None:
        """`more` is the key that shows all keys; it is empty if there are no others. `max_lines` is the
        maximum of lines for the keys.
        """
        super().__init__(classes="sheet--keys")
        self._max_lines = max_lines
        self.keys = keys
        self._more = more
        self._message = ""
        """The message that is shown instead of the keys; empty if there is none."""

    @property
    def has_message(self) -> bool:
        return bool(self._message)

    def show_keys(self, keys: Keys | None = None, more: str | None = None) -> None:
        """Show keys instead of a message. If `keys` or `more` is None, the line keeps the keys that
        it had.
        """
        keys_before, more_before = self.keys, self._more
        self.keys = keys_before if keys is None else keys
        self._more = more_before if more is None else more
        is_same = (self.keys, self._more) == (keys_before, more_before)
        if is_same and not self._message:
            return  # nothing to draw, so no layout is needed
        self._message = ""
        self.remove_class("-asks", "-failed")
        self.refresh(layout=True)

    def show_message(self, text: str, kind: MessageKind = "") -> None:
        """Show a message instead of the keys, until `show_keys`."""
        self._message = quote_code(clean(" ".join(text.split())))
        self.remove_class("-asks", "-failed")
        if kind:
            self.add_class(kind)
        self.refresh(layout=True)

    def render(self) -> Text:
        return Text(self._text(self.size.width))

    def get_content_height(self, _container: Size, _viewport: Size, width: int) -> int:
        return self._text(width).count("\n") + 1

    def _text(self, width: int) -> str:
        """The message, or if there is none as many keys as fit into this width. The last key is
        always shown. The key that shows all keys is before it, if there is room for the first key,
        too.
        """
        if self._message:
            return "\n".join(wrap(self._message, max(1, width))[:MAX_MESSAGE_LINES])
        max_lines = 1 if self.screen.has_class("-low") else self._max_lines
        key_texts = [" ".join(filter(None, key)) for key in self.keys]
        if self._more and width >= MIN_WIDTH_FOR_HINT:
            last_two = f"{self._more} keys · {key_texts[-1]}"
            if max_lines > 1 or len(f"{key_texts[0]} · {last_two}") <= width:
                key_texts[-1] = last_two
        return join_fitting(key_texts, width, max_lines)


class SheetFrame(Vertical):
    """The frame of a dialog: its title, its body, and its keys in the last line."""

    def __init__(
        self,
        title: Static,
        *body: Widget,
        key_line: KeyLine,
        id: str | None = None,  # noqa: A002 (Textual's own name)
        classes: str = "sheet",
    ) -> None:
        """Make the frame. `title` must be inside of the first widget of `body`; it is stored so
        that its text can be changed.
        """
        self.title = title
        self.head = body[0]
        """The widget with the title; it scrolls if it has not room for all lines. A closing sheet
        may lose it before it leaves the screen: then a query does not find it.
        """
        self.key_line = key_line
        super().__init__(*body, key_line, classes=classes, id=id)


class SearchField(TypedField):
    """The search field of a dialog; `?` in the empty field shows the keys."""

    def __init__(
        self,
        text: str = "",
        placeholder: str = "type to search",
        id: str = "picker-search",  # noqa: A002 (Textual's own name)
        dialog_keys: Collection[str] = (),
    ) -> None:
        """`dialog_keys` are editing keys that the dialog uses itself."""
        super().__init__(text, placeholder=placeholder, compact=True, id=id, select_on_focus=False)
        self.dialog_keys = dialog_keys

    async def _on_key(self, event: events.Key) -> None:
        """Show all keys for a `?` in the empty field. Textual handles any other key."""
        if event.key == "question_mark" and not self.value:
            event.stop()
            event.prevent_default()
            await self.screen.run_action("show_keys")


class Sheet(StyledOnce[R], ModalScreen[R]):
    """A dialog over the conversation: a frame with its title first and its keys last.

    Esc and Ctrl+C close it without a result, or go back one step; `?` and F1 show its keys. Ctrl+C
    in a field with text only clears it, as in the prompt.
    """

    BINDINGS = [  # noqa: RUF012 (Textual's own form)
        Binding("escape", "close", show=False, priority=True),
        Binding("ctrl+c", "clear_or_close", show=False, priority=True),
    ]
    HORIZONTAL_BREAKPOINTS = [(0, "-fills"), (APART_FROM, "-apart")]  # noqa: RUF012 (as above)
    VERTICAL_BREAKPOINTS = [(0, "-low"), (HEADER_FROM_HEIGHT, "-normal")]  # noqa: RUF012 (as above)

    def __init__(self, frame: SheetFrame) -> None:
        super().__init__()
        self._compositor = Layout()
        self._frame = frame
        self.set_class(frame.has_class("-full"), "-covers")
        self.key_line = frame.key_line

    def compose(self) -> ComposeResult:
        yield self._frame

    def all_keys(self) -> Keys:
        """The keys that `?` lists: first those of the last line, then those of every list. The key that
        closes the dialog, which is the last one of the line, comes at the end.
        """
        *other_keys, closes = self.key_line.keys
        # Arrows that only move the mark are among the keys of every list.
        special_keys = [(key, what) for key, what in other_keys if what or not key.startswith("↑↓")]
        return [*special_keys, *MOVE_KEYS, closes]

    def action_close(self) -> None:
        self.dismiss(None)

    def action_clear_or_close(self) -> None:
        """Clear the field that has the focus; close the dialog if it has no text."""
        if not self.clear_field():
            self.action_close()

    def clear_field(self) -> bool:
        """Clear the field that has the focus; returns whether it had text."""
        field = self.focused
        if not isinstance(field, TypedField) or not field.value:
            return False
        field.value = ""
        return True

    def action_show_keys(self) -> None:
        self.app.push_screen(KeySheet(self.all_keys()))

    async def _on_key(self, event: events.Key) -> None:
        """Handle a key of this dialog; `?` and F1 show its keys. Any other key goes on to Textual,
        for example as text for a field.
        """
        is_handled = await self._take_key(event)
        if not is_handled and event.key in SHOWS_KEYS:
            self.action_show_keys()
            is_handled = True
        if is_handled:
            event.stop()
            event.prevent_default()

    async def _take_key(self, event: events.Key) -> bool:  # noqa: ARG002 (for subclasses)
        """Handle a key that no widget has handled; returns whether it did so."""
        return False


def show_sheet(app: App[Any], sheet: Sheet[R | None]) -> asyncio.Future[R | None]:
    """Show a sheet at once, before the result is awaited. The future has the result of the sheet
    when it is closed; None if the user cancelled.
    """
    result: asyncio.Future[R | None] = asyncio.get_running_loop().create_future()

    def set_result(value: R | None) -> None:
        if not result.done():  # who waited for it may have been cancelled
            result.set_result(value)

    app.push_screen(sheet, set_result)
    return result


def make_frame(
    title: str,
    *body: Widget,
    keys: Keys,
    id: str | None = None,  # noqa: A002 (Textual's own name)
    more: str = "?",
    beside: Widget | None = None,
    is_full: bool = False,
) -> SheetFrame:
    """Make the frame of a dialog.

    Args:
        body: the widgets between the title and the keys.
        more: the key that shows all keys.
        beside: a widget at the right of the title.
        is_full: whether the dialog covers the whole screen.
    """
    title_widget = Static(title_content(title), classes="sheet--title", markup=False)
    head: Widget = VerticalScroll(title_widget, classes="sheet--question", can_focus=False)
    if beside is not None:
        head = Horizontal(title_widget, beside, classes="sheet--head")
    classes = "sheet -full" if is_full else "sheet"
    return SheetFrame(
        title_widget, head, *body, key_line=KeyLine(keys, more), classes=classes, id=id
    )


def title_content(title: str) -> Content:
    """A title as content, with `code` in backticks marked. Its first line has the style of titles;
    the lines below it explain it, and have the style of text.
    """
    first, _, rest = clean(title).partition("\n")
    if not rest:
        return code_content(first)
    return Content.assemble(code_content(first), "\n", code_content(rest, _BELOW_TITLE))


class KeySheet(Sheet[None]):
    """The list of all keys of a dialog. Esc, `q`, Enter, `?` and F1 close it."""

    BINDINGS = [Binding("q,enter,question_mark,f1", "close", show=False)]  # noqa: RUF012 (as above)

    def __init__(self, keys: Keys) -> None:
        key_width = max(cell_len(key) for key, _ in keys)
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=key_width)
        for key, what in keys:
            table.add_row(Text(key), Text(what))
        self._text = VerticalScroll(Static(table), classes="sheet--scroll", can_focus=True)
        own_keys = (("↑↓", ""), ("Esc", "closes"))
        super().__init__(make_frame("Keys", self._text, keys=own_keys, more=""))

    def on_mount(self) -> None:
        self._text.focus()

    async def _take_key(self, event: events.Key) -> bool:
        if event.key in ("j", "k"):
            self._text.scroll_relative(y=1 if event.key == "j" else -1, animate=False)
        return event.key in ("j", "k")


class HelpSheet(Sheet[None]):
    """Markdown to read; the key that opened the sheet closes it, too."""

    BINDINGS = [Binding("q,enter", "close", show=False)]  # noqa: RUF012 (as above)

    def __init__(self, keymap: Keymap, text: str, title: str) -> None:
        self._text = TranscriptView(classes="sheet--scroll")
        self._text.following = False  # read from its beginning
        self._text.add(AnswerBlock(text))
        self._field = SearchField(placeholder="words to search for")
        self._field.display = False
        self._words = ""
        """The words that were searched for last."""
        pages = [keymap.key_text(name) for name in ("page_up", "page_down")]
        moves = " ".join(["↑↓", *filter(None, pages)])
        keys = ((moves, ""), ("/", "searches"), ("Esc", "closes"))
        frame = make_frame(title, self._field, self._text, keys=keys, more="")
        super().__init__(frame)
        for key, name in keymap.actions_of("app").items():
            if name in SCROLLS:
                self._bindings.bind(key, f"scroll_text('{SCROLLS[name]}')", show=False)
        for key in keymap.keys("help"):
            self._bindings.bind(key, "close", show=False)

    def on_mount(self) -> None:
        self._text.focus()

    def action_scroll_text(self, action: str) -> None:
        getattr(self._text, f"action_{action}")()

    def action_close(self) -> None:
        """Close the search field if it is open, else the page."""
        if not self._field.display:
            self.dismiss(None)
            return
        self._field.display = False
        self._text.focus()

    def action_show_keys(self) -> None:
        """Close the page: `?` has opened it."""
        self.dismiss(None)

    @on(Input.Submitted)
    def _search(self, event: Input.Submitted) -> None:
        """Close the search field, and go to the first match of what was typed into it."""
        event.stop()
        self._words = event.value.strip()
        self.action_close()
        self._go_to_match(1)

    def _go_to_match(self, by: int) -> None:
        """Scroll to the next match (`by` is 1) or the previous one (-1), and show the keys for
        further matches. If there is none in this direction, scroll to the nearest one in the other.
        If there is no match at all, say so.
        """
        if not self._words:
            return
        if self._text.find(self._words, by) or self._text.find(self._words, -by):
            match_keys = (("n N", "next, previous"), ("/", "searches"), ("Esc", "closes"))
            self.key_line.show_keys(match_keys)
        else:
            self.key_line.show_message(f"No match for `{self._words}`.", "-failed")

    async def _take_key(self, event: events.Key) -> bool:
        """Search with `/`, go to matches with `n` and `N`, or scroll. Returns False for all other
        keys, and while the search field is open.
        """
        if self._field.display:
            return False
        if event.key == "slash":
            self._field.value = ""
            self._field.display = True
            self._field.focus()
        elif event.key in _TEXT_MOVES:
            getattr(self._text, f"action_{_TEXT_MOVES[event.key]}")()
        elif event.key in ("n", "N"):
            self._go_to_match(1 if event.key == "n" else -1)
        else:
            return False
        return True


_TEXT_MOVES = {
    "j": "scroll_down",
    "k": "scroll_up",
    "space": "page_down",
    "b": "page_up",
    "g": "scroll_home",
    "G": "scroll_end",
}


_LINE_KEYS: Keys = (("Enter", ""), ("Esc", "closes"))


class LineSheet(Sheet[str | None]):
    """Asks for a line of text. Its result is the line without blanks around it; None if the user
    cancels.
    """

    def __init__(self, title: str, secret: bool, text: str = "") -> None:
        """`text` is the initial text of the field; with `secret` the field shows dots."""
        field = TypedField(
            text, select_on_focus=False, password=secret, compact=True, id="picker-search"
        )
        super().__init__(make_frame(title, field, keys=_LINE_KEYS, more=""))

    @on(Input.Submitted)
    def _close_with_text(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())
