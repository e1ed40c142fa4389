"""Sheet: screens over the conversation: a text to read, a line to type, a list to choose from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from textual import events, on
from textual._compositor import Compositor, CompositorMap, ReflowResult
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static

from ouro.display import Choice
from ouro.frontends.tui.blocks.messages import AnswerBlock
from ouro.frontends.tui.keymap import SCROLLS, Keymap
from ouro.frontends.tui.look import HEADER_FROM_HEIGHT
from ouro.frontends.tui.widgets.prompt import PromptArea
from ouro.frontends.tui.widgets.question_panel import QuestionPanel
from ouro.frontends.tui.widgets.row_list import PAGES, PickList
from ouro.frontends.tui.widgets.transcript import TranscriptView
from ouro.utils.text import clean

R = TypeVar("R")
LONG_TITLE = 8
"""If a question has at least so many lines, the keys that scroll it are shown."""


class Layout(Compositor):
    """Textual's layout, corrected so that each widget receives its size.

    If a place is requested after a scroll, Textual assumes that widgets mounted meanwhile know
    their size already: one question in 25 was drawn without its choices.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last_map: CompositorMap = {}

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        self._full_map = self._last_map
        result = super().reflow(parent, size)
        self._last_map = self._full_map
        return result


class Sheet(ModalScreen[R]):
    """A framed sheet over the conversation; Esc and Ctrl+C close it without a result."""

    BINDINGS = [Binding("escape,ctrl+c", "close", show=False, priority=True)]  # noqa: RUF012 (Textual's own form)
    VERTICAL_BREAKPOINTS = [(0, "-low"), (HEADER_FROM_HEIGHT, "-normal")]  # noqa: RUF012 (as above)

    def __init__(self, frame: Widget) -> None:
        super().__init__()
        self._compositor = Layout()
        self._frame = frame

    def compose(self) -> ComposeResult:
        yield self._frame

    def action_close(self) -> None:
        self.dismiss(None)

    async def _on_key(self, event: events.Key) -> None:
        if await self._take_key(event):
            event.stop()
            event.prevent_default()

    async def _take_key(self, event: events.Key) -> bool:  # noqa: ARG002 (for subclasses)
        """Handle a key that no widget has handled; returns whether it did so."""
        return False


async def show_sheet(app: App[Any], sheet: Sheet[R | None]) -> R | None:
    """Show a sheet until it is closed; returns its result."""
    result: asyncio.Future[R | None] = asyncio.get_running_loop().create_future()
    app.push_screen(sheet, lambda value: None if result.done() else result.set_result(value))
    return await result


def make_frame(title: str, *body: Widget, keys: str, id: str | None = None) -> Vertical:  # noqa: A002 (Textual's own name)
    """The frame of a sheet: its title, its body, and its keys in the last line."""
    shown = Static(clean(title), classes="sheet--title", markup=False)
    return Vertical(
        VerticalScroll(shown, classes="sheet--question", can_focus=False),
        *body,
        Static(keys, classes="sheet--keys", markup=False),
        classes="sheet",
        id=id,
    )


_HELP = "Help · /help NAME shows details and an example"


class HelpSheet(Sheet[None]):
    """Markdown to read; the key that opened the sheet closes it, too."""

    BINDINGS = [Binding("q,enter", "close", show=False)]  # noqa: RUF012 (as above)

    def __init__(self, keymap: Keymap, text: str, title: str = _HELP) -> None:
        self._text = TranscriptView(classes="sheet--scroll")
        self._text.following = False  # read from its beginning
        self._text.add(AnswerBlock(text))
        pages = [keymap.shown(name) for name in ("page_up", "page_down")]
        keys = f"{' '.join(['↑↓', *filter(None, pages)])} · Esc closes"
        super().__init__(make_frame(title, self._text, keys=keys))
        for key, name in keymap.of("app").items():
            if name in SCROLLS:
                self._bindings.bind(key, f"scroll_text('{SCROLLS[name]}')", show=False)
        for key in keymap.keys("help"):
            self._bindings.bind(key, "close", show=False)

    def on_mount(self) -> None:
        self._text.focus()

    def action_scroll_text(self, action: str) -> None:
        getattr(self._text, f"action_{action}")()


class LineSheet(Sheet[str | None]):
    """Asks for a line of text; None if the user cancels."""

    def __init__(self, title: str, secret: bool, text: str = "") -> None:
        """`text`: the initial text of the field."""
        field = Input(
            text, select_on_focus=False, password=secret, compact=True, id="picker-search"
        )
        super().__init__(make_frame(title, field, keys="Enter · Esc closes"))

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
    ) -> None:
        """Show the choices.

        Args:
            current: the value that is in use.
            search: the text to search first; None: a short list is numbered and not searched.
            grace: seconds in which no key chooses: it may have been typed before the picker appeared.
            preview: called with each value that is marked.
        """
        self._grace = grace
        self._preview = preview
        self._accepts_from = 0.0
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
        self._list = PickList(
            choices, current, "No matches." if choices else "There is nothing to choose from."
        )
        self._search = Input(
            search or "", placeholder="type to search", compact=True, id="picker-search"
        )
        self._whole = Static(markup=False, classes="sheet--whole")
        pages = " · PageUp PageDown scroll" if title.count("\n") >= LONG_TITLE else ""
        field = [] if self.is_short else [self._search]
        keys = f"↑↓ Enter · Esc closes{pages}"
        super().__init__(make_frame(title, *field, self._list, self._whole, keys=keys))
        self.set_class(self.is_short, "-numbered")

    def on_mount(self) -> None:
        self._beneath = self.app.screen_stack[0]
        self._shows_prompt = any(prompt.text for prompt in self._beneath.query(PromptArea))
        if not self.is_short:
            self._search.focus()
        self._accepts_from = time.monotonic() + self._grace
        self._reads_from = time.monotonic() + STRAY_GRACE

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

    def _make_room(self) -> None:
        """Give the list the remaining lines; show the transcript's end, and text in the prompt,
        above it.
        """
        if not (sheet := self._frame).is_attached:
            return  # the sheet is being closed
        rest = [child for child in sheet.children if child.display and child is not self._list]
        taken = sum(child.outer_size.height + child.styles.margin.height for child in rest)
        taken += sheet.gutter.height + sheet.styles.margin.height
        self._list.styles.max_height = max(1, self.size.height - taken)
        if self.is_short and sheet.outer_size.height <= self.size.height - 6:
            covered = sheet.outer_size.height - (0 if self._shows_prompt else PROMPT_AND_STATUS)
            self._beneath.styles.padding = (0, 0, max(0, covered), 0)

    def _show_whole(self) -> None:
        """Show the whole marked choice below the list if its line is cut."""
        marked = self._list.marked
        self._whole.display = marked is not None and self._list.is_cut(marked)
        if marked is not None:
            self._whole.update(clean(f"{marked.label}\n{marked.detail}".rstrip()))
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
            pass
        elif self.is_short and event.key == "enter":
            self._take()
        elif self.is_short and (event.is_printable or event.key == "backspace"):
            self._press(event)
        else:
            return False
        return True

    def _press(self, event: events.Key) -> None:
        """A character in a short list: a digit chooses, the letters of a choice mark it; other text
        is a message, and goes to the prompt.
        """
        number = int(event.character) if event.character and event.character.isdecimal() else 0
        accepts = time.monotonic() >= self._accepts_from
        if accepts and 0 < number <= len(self._choices):
            self.dismiss(self._choices[number - 1].value)
        elif not (accepts and self._mark_typed(event)):
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
        self._typed = []
        self._accepts_from = max(self._accepts_from, time.monotonic() + STRAY_GRACE)
        for key in keys:
            stray = QuestionPanel.Stray(events.Key(key.key, key.character))
            self.app.screen_stack[-2].post_message(stray)
        self._shows_prompt = True
        self._make_room()
