"""Dialogs over the conversation (sheets): a text to read, a line to type, a list to choose from.

The base of all of them, with its frame, its search field and its keys.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from textwrap import wrap
from typing import Any, TypeVar

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text
from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static

from ouro.display import Choice
from ouro.frontends.tui.blocks.lines import code_content, join_fitting, quote_code
from ouro.frontends.tui.blocks.messages import AnswerBlock
from ouro.frontends.tui.keymap import SCROLLS, Keymap
from ouro.frontends.tui.screen_layout import HEADER_FROM_HEIGHT
from ouro.frontends.tui.screens.sheet_layout import Layout
from ouro.frontends.tui.widgets.prompt import PromptArea
from ouro.frontends.tui.widgets.question_panel import QuestionPanel
from ouro.frontends.tui.widgets.row_list import PAGES, PickList
from ouro.frontends.tui.widgets.transcript import TranscriptView
from ouro.frontends.tui.widgets.typed_field import TypedField
from ouro.utils.text import clean

R = TypeVar("R")
MIN_ROWS, MIN_QUESTION = 5, 2
"""Of a list and the question above it, on a low terminal."""
LONG_TITLE = 8
"""If a question has at least so many lines, the keys that scroll it are shown."""


Keys = Sequence[tuple[str, str]]
"""Keys as they are written, and what they do; the last one closes the dialog."""
MOVES: Keys = (
    ("↑ ↓ · j k", "one line"),
    ("PageUp PageDown", "one page"),
    ("Home End · g G", "first, last"),
)
"""The keys of every list and text. While a search field has the focus, letters are text."""
WORDS_FROM = 30
"""The minimum columns to name the key that shows all keys."""
MAX_MESSAGE = 4
"""Lines of a question or an error in the line of keys; the style sheet allows others fewer."""
_SHOWS_KEYS = ("question_mark", "f1")


class KeyLine(Widget):
    """The last line of a dialog: its keys, as many as fit, or for a moment a message."""

    def __init__(self, keys: Keys, more: str, most: int = 2) -> None:
        """`more`: the key that shows all of them; empty: there are no others. `most`: lines."""
        super().__init__(classes="sheet--keys")
        self._most = most
        self.keys = keys
        self._more = more
        self._message = ""

    @property
    def has_message(self) -> bool:
        return bool(self._message)

    def show_keys(self, keys: Keys | None = None, more: str | None = None) -> None:
        """Show these keys, or the same as before, instead of a message."""
        self.keys = self.keys if keys is None else keys
        self._more = self._more if more is None else more
        self._message = ""
        self.remove_class("-asks", "-failed")
        self.refresh(layout=True)

    def show_message(self, text: str, kind: str = "") -> None:
        """Show a message: a question (`-asks`), an error (`-failed`)."""
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
        """The message, or as many keys as fit."""
        if self._message:
            return "\n".join(wrap(self._message, max(1, width))[:MAX_MESSAGE])
        most = 1 if self.screen.has_class("-low") else self._most
        shown = [" ".join(filter(None, key)) for key in self.keys]
        if self._more and width >= WORDS_FROM:
            last = f"{self._more} keys · {shown[-1]}"
            if most > 1 or len(f"{shown[0]} · {last}") <= width:
                shown[-1] = last
        return join_fitting(shown, width, most)


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
        """`title` is in the first widget of the body."""
        self.title = title
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
        """`dialog_keys`: editing keys that the dialog uses itself."""
        super().__init__(text, placeholder=placeholder, compact=True, id=id, select_on_focus=False)
        self.dialog_keys = dialog_keys

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "question_mark" and not self.value:
            event.stop()
            event.prevent_default()
            await self.screen.run_action("show_keys")


class Sheet(ModalScreen[R]):
    """A dialog over the conversation: a frame with its title first and its keys last.

    Esc and Ctrl+C close it without a result, or go back one step; `?` and F1 show its keys.
    """

    BINDINGS = [Binding("escape,ctrl+c", "close", show=False, priority=True)]  # noqa: RUF012 (Textual's own form)
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
        """The keys that `?` lists: those of the last line, and those of every list."""
        *own, closes = self.key_line.keys
        moving = [key for key in own if not key[0].startswith("↑↓") or key[1]]
        return [*moving, *MOVES, closes]

    def action_close(self) -> None:
        self.dismiss(None)

    def action_show_keys(self) -> None:
        self.app.push_screen(KeySheet(self.all_keys()))

    async def _on_key(self, event: events.Key) -> None:
        is_handled = await self._take_key(event)
        if not is_handled and event.key in _SHOWS_KEYS:
            self.action_show_keys()
            is_handled = True
        if is_handled:
            event.stop()
            event.prevent_default()

    async def _take_key(self, event: events.Key) -> bool:  # noqa: ARG002 (for subclasses)
        """Handle a key that no widget has handled; returns whether it did so."""
        return False


def show_sheet(app: App[Any], sheet: Sheet[R | None]) -> asyncio.Future[R | None]:
    """Show a sheet at once; returns its result, when it is closed."""
    result: asyncio.Future[R | None] = asyncio.get_running_loop().create_future()
    app.push_screen(sheet, lambda value: None if result.done() else result.set_result(value))
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
    """The frame of a dialog.

    `more`: the key that shows all keys; `beside`: at the right of the title; `is_full`: it covers
    the whole screen.
    """
    shown = Static(code_content(clean(title)), classes="sheet--title", markup=False)
    head: Widget = VerticalScroll(shown, classes="sheet--question", can_focus=False)
    if beside is not None:
        head = Horizontal(shown, beside, classes="sheet--head")
    classes = "sheet -full" if is_full else "sheet"
    return SheetFrame(shown, head, *body, key_line=KeyLine(keys, more), classes=classes, id=id)


class KeySheet(Sheet[None]):
    """All keys of a dialog; any of the keys that close dialogs closes it."""

    BINDINGS = [Binding("q,enter,question_mark,f1", "close", show=False)]  # noqa: RUF012 (as above)

    def __init__(self, keys: Keys) -> None:
        wide = max(cell_len(key) for key, _ in keys)
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=wide)
        for key, what in keys:
            table.add_row(Text(key), Text(what))
        self._text = VerticalScroll(Static(table), classes="sheet--scroll", can_focus=True)
        closes = (("↑↓", ""), ("Esc", "closes"))
        super().__init__(make_frame("Keys", self._text, keys=closes, more=""))

    def on_mount(self) -> None:
        self._text.focus()

    async def _take_key(self, event: events.Key) -> bool:
        if event.key in ("j", "k"):
            self._text.scroll_relative(y=1 if event.key == "j" else -1, animate=False)
        return event.key in ("j", "k")


_HELP = "Help · /help NAME shows an example"


class HelpSheet(Sheet[None]):
    """Markdown to read; the key that opened the sheet closes it, too."""

    BINDINGS = [Binding("q,enter", "close", show=False)]  # noqa: RUF012 (as above)

    def __init__(self, keymap: Keymap, text: str, title: str = _HELP) -> None:
        self._text = TranscriptView(classes="sheet--scroll")
        self._text.following = False  # read from its beginning
        self._text.add(AnswerBlock(text))
        self._field = SearchField(placeholder="words to search for")
        self._field.display = False
        self._words = ""
        pages = [keymap.shown(name) for name in ("page_up", "page_down")]
        moves = " ".join(["↑↓", *filter(None, pages)])
        keys = ((moves, ""), ("/", "searches"), ("Esc", "closes"))
        frame = make_frame(title, self._field, self._text, keys=keys, more="")
        super().__init__(frame)
        for key, name in keymap.of("app").items():
            if name in SCROLLS:
                self._bindings.bind(key, f"scroll_text('{SCROLLS[name]}')", show=False)
        for key in keymap.keys("help"):
            self._bindings.bind(key, "close", show=False)

    def on_mount(self) -> None:
        self._text.focus()

    def action_scroll_text(self, action: str) -> None:
        getattr(self._text, f"action_{action}")()

    def action_close(self) -> None:
        if not self._field.display:
            self.dismiss(None)
            return
        self._field.display = False
        self._text.focus()

    def action_show_keys(self) -> None:
        """`?` closes the page that it opens."""
        self.dismiss(None)

    @on(Input.Submitted)
    def _search(self, event: Input.Submitted) -> None:
        event.stop()
        self._words = event.value.strip()
        self.action_close()
        self._go_to_match(1)

    def _go_to_match(self, by: int) -> None:
        """Scroll to the next or previous match, and name the keys for more; or say that there is
        none.
        """
        if not self._words:
            return
        if self._text.find(self._words, by) or self._text.find(self._words, -by):
            found = (("n N", "next, previous"), ("/", "searches"), ("Esc", "closes"))
            self.key_line.show_keys(found)
        else:
            self.key_line.show_message(f"No match for `{self._words}`.", "-failed")

    async def _take_key(self, event: events.Key) -> bool:
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
    """Asks for a line of text; None if the user cancels."""

    def __init__(self, title: str, secret: bool, text: str = "") -> None:
        """`text`: the initial text of the field."""
        field = TypedField(
            text, select_on_focus=False, password=secret, compact=True, id="picker-search"
        )
        super().__init__(make_frame(title, field, keys=_LINE_KEYS, more=""))

    @on(Input.Submitted)
    def _take(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())


MAX_WITHOUT_SEARCH = 6
"""Up to this many choices are numbered, and a digit chooses; more have a search line."""
PROMPT_AND_STATUS = 4
"""Lines below the transcript; a short list covers them unless the prompt has text."""
STRAY_GRACE = 0.5
"""Seconds after a letter in which Enter chooses nothing: the user may still be writing a message.
"""


def _word_in(label: str) -> Callable[[str], bool]:
    """Whether a word of a label begins with a text."""
    starts = {place for place, before in enumerate(f" {label}") if not before.isalnum()}
    return lambda word: any(label.startswith(word, start) for start in starts)


class Picker(Sheet[str | None]):
    """A list to choose from: arrows and letters mark, a digit or Enter chooses; typing filters a
    long list.
    """

    def __init__(
        self,
        title: str,
        choices: Sequence[Choice],
        current: str = "",
        search: str | None = None,
        grace: float = 0.0,
        preview: Callable[[str], None] = lambda _value: None,
        nothing: str = "There is nothing to choose from.",
    ) -> None:
        """Show the choices.

        Args:
            current: the value that is in use.
            search: the text to search first; None: a short list is numbered and not searched.
            grace: seconds in which no key chooses: it may have been typed before the picker appeared.
            preview: called with each value that is marked.
            nothing: shown if there are no choices, or until `fill`.
        """
        self._grace = grace
        self._preview = preview
        self._accepts_from = 0.0
        self._shown_at = 0.0
        self._reads_from = 0.0
        """From when on letters can mark a choice; earlier ones were typed before the picker came."""
        self._typed: list[events.Key] = []
        """The letters that have marked a choice."""
        self._shows_prompt = False
        self.is_short = search is None and len(choices) <= MAX_WITHOUT_SEARCH
        if self.is_short:
            choices = [
                Choice(choice.value, f"{number} {choice.label}", choice.detail)
                for number, choice in enumerate(choices, 1)
            ]
        self._choices = choices
        self._list = PickList(choices, current, "No matches." if choices else nothing)
        self._search = SearchField(search or "")
        self._whole = Static(markup=False, classes="sheet--whole")
        is_long = title.count("\n") >= LONG_TITLE
        pages = [("PageUp PageDown", "scroll")] if is_long else []
        field = [] if self.is_short else [self._search]
        keys = (("↑↓ Enter", ""), *pages, ("Esc", "closes"))
        frame = make_frame(
            title, *field, self._list, self._whole, keys=keys, more="?" if self.is_short else "F1"
        )
        super().__init__(frame)
        self.set_class(self.is_short, "-numbered")

    def on_mount(self) -> None:
        self._beneath = self.app.screen_stack[0]
        self._shows_prompt = any(prompt.text for prompt in self._beneath.query(PromptArea))
        if not self.is_short:
            self._search.focus()
        self._shown_at = time.monotonic()
        self._accepts_from = self._shown_at + self._grace
        self._reads_from = time.monotonic() + STRAY_GRACE

    @property
    def words(self) -> str:
        """What is searched."""
        return self._search.value

    def fill(self, choices: Sequence[Choice]) -> None:
        """Show the choices of a long list that opened without them."""
        self._choices = choices
        if self.is_attached:  # else it was closed meanwhile
            self._list.fill(choices, "No matches.")
            self.call_after_refresh(self._show_whole)

    @on(Input.Changed)
    def _narrow(self, event: Input.Changed) -> None:
        self._list.narrow(event.value)

    @on(PickList.Marked)
    def _show_marked(self) -> None:
        if (marked := self._list.marked) is not None:
            self._preview(marked.value)
        self._show_whole()

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_whole)

    def on_unmount(self) -> None:
        self._beneath.styles.padding = 0

    def _make_room(self, *, again: bool = True) -> None:
        """Give the list the remaining lines; show the transcript's end, and text in the prompt,
        above it. On a low terminal once more, `again`, when the lines of the texts are known.
        """
        if not (sheet := self._frame).is_attached:
            return  # the sheet is being closed
        rest = [child for child in sheet.children if child.display and child is not self._list]
        taken = sum(child.outer_size.height + child.styles.margin.height for child in rest)
        taken += sheet.gutter.height + sheet.styles.margin.height
        if self.has_class("-low"):
            taken += self._fit_question(self.size.height - taken)
            if again:
                self.call_after_refresh(partial(self._make_room, again=False))
        self._list.styles.max_height = max(1, self.size.height - taken)
        if self.is_short and sheet.outer_size.height <= self.size.height - 6:
            covered = sheet.outer_size.height - (0 if self._shows_prompt else PROMPT_AND_STATUS)
            self._beneath.styles.padding = (0, 0, max(0, covered), 0)

    def _fit_question(self, free: int) -> int:
        """Let the question have the lines that a short list leaves; returns how many more it takes
        than now.
        """
        question = self.query_one(".sheet--question")
        rows = min(len(self._choices), MIN_ROWS)
        before = question.outer_size.height
        most = max(MIN_QUESTION, before + free - rows)
        question.styles.max_height = most
        return min(question.virtual_size.height, most) - before

    def _show_whole(self) -> None:
        """Show the whole marked choice below the list if its line is cut."""
        marked = self._list.marked
        self._whole.display = marked is not None and self._list.is_cut(marked)
        if marked is not None:
            text = f"{marked.label}\n{marked.detail}".rstrip()
            if self.has_class("-low"):  # there are no lines to repeat the part that is not cut
                text = max(marked.label, marked.detail, key=len)
            self._whole.update(code_content(clean(text)))
        self.call_after_refresh(self._make_room)

    @on(Input.Submitted)
    @on(PickList.Picked)
    def _take(self) -> None:
        self._list.narrow(self._search.value)
        chosen = self._list.marked
        if chosen is not None and time.monotonic() >= self._accepts_from:
            self.dismiss(chosen.value)

    async def _take_key(self, event: events.Key) -> bool:
        above = self.query_one(".sheet--question")
        if event.key in PAGES and above.max_scroll_y:
            above.scroll_relative(y=PAGES[event.key] * (above.size.height - 1), animate=False)
        elif event.key in PAGES and self.is_short:
            await self.run_action(
                f"app.press('{'page_up' if PAGES[event.key] < 0 else 'page_down'}')"
            )
        elif self._list.take_key(event.key):
            self._end_grace(event)
        elif self.is_short and event.key == "enter":
            self._take()
        elif event.key in _SHOWS_KEYS and not self._typed:
            return False
        else:
            return self._take_text(event)
        return True

    def _end_grace(self, event: events.Key) -> None:
        """Let Enter choose at once after a key that moved the mark: the user has seen the list."""
        if event.time > self._shown_at:
            self._accepts_from = 0.0

    def _take_text(self, event: events.Key) -> bool:
        """Handle text: in a short list it marks or goes to the prompt, else it goes to the search
        field. Returns whether it was text.
        """
        if self.is_short:
            is_text = event.is_printable or event.key == "backspace"
            if is_text:
                self._press(event)
            return is_text
        if not event.is_printable or self._search.has_focus:
            return False
        # It will soon have the focus.
        self._search.post_message(events.Key(event.key, event.character))
        return True

    def _press(self, event: events.Key) -> None:
        """A character in a short list: a digit chooses, the letters of a choice mark it; other text
        is a message, and goes to the prompt.
        """
        number = int(event.character) if event.character and event.character.isdecimal() else 0
        accepts = time.monotonic() >= self._accepts_from
        self._forget_moves(event.time)
        if accepts and 0 < number <= len(self._choices):
            self.dismiss(self._choices[number - 1].value)
        elif not (accepts and (self._mark_typed(event) or self._move_by_letter(event))):
            self._pass_to_prompt([*self._typed, event])

    def _mark_typed(self, event: events.Key) -> bool:
        """Mark the choice whose label begins with the typed letters; False if there is none."""
        if event.key == "backspace" and self._typed:
            self._typed.pop()
            return True
        if time.monotonic() < self._reads_from or not event.character:
            return False
        place = self._find("".join(key.character or "" for key in (*self._typed, event)).casefold())
        if place is None:
            return False
        self._typed.append(event)
        self._list.place = place
        return True

    def _move_by_letter(self, event: events.Key) -> bool:
        """Move for `j` and `k`; at once followed by other letters they are a message."""
        if time.monotonic() < self._reads_from or event.key not in ("j", "k"):
            return False
        if any(key.key not in ("j", "k") for key in self._typed):
            return False
        self._typed.append(event)
        self._list.action_move(1 if event.key == "j" else -1)
        return True

    def _forget_moves(self, now: float) -> None:
        """After a moment `j` and `k` are no beginning of a message any more."""
        moved = self._typed and all(key.key in ("j", "k") for key in self._typed)
        if moved and now - self._typed[-1].time > STRAY_GRACE:
            self._typed = []

    def _find(self, typed: str) -> int | None:
        """The choice that begins with a text, else the first whose words begin with its words:
        `claude` finds `anthropic/claude-…`.
        """
        labels = [choice.label.partition(" ")[2].casefold() for choice in self._choices]
        words = typed.split()
        found = [n for n, label in enumerate(labels) if label.startswith(typed)]
        found += [n for n, label in enumerate(labels) if all(map(_word_in(label), words))]
        return found[0] if found and words else None

    def _pass_to_prompt(self, keys: Sequence[events.Key]) -> None:
        """Put typed keys into the prompt below, because they are a message. Enter chooses nothing
        for a moment.
        """
        self._typed = []
        self._accepts_from = max(self._accepts_from, time.monotonic() + STRAY_GRACE)
        for key in keys:
            stray = QuestionPanel.Stray(events.Key(key.key, key.character))
            self.app.screen_stack[-2].post_message(stray)
        self._shows_prompt = True
        self._make_room()
