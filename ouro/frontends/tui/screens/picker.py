"""Picker: a dialog with a list of choices, over the conversation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from textual import events, on
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, Static

from ouro.display import Choice
from ouro.frontends.tui.blocks.styled_lines import code_content
from ouro.frontends.tui.screens.dialogs import SHOWS_KEYS, SearchField, Sheet, make_frame
from ouro.frontends.tui.widgets.prompt import PromptArea
from ouro.frontends.tui.widgets.question_panel import QuestionPanel
from ouro.frontends.tui.widgets.row_list import PAGES, PickList
from ouro.utils.text import clean

MIN_ROWS, MIN_QUESTION = 5, 2
"""The lines that a list, and the question above it, have at least on a low terminal."""
LONG_TITLE = 8
"""The keys that scroll a question are shown if it has more lines than this."""
MAX_WITHOUT_SEARCH = 6
"""Up to this many choices are numbered, and a digit chooses; more have a search line."""
PROMPT_AND_STATUS = 4
"""Lines below the transcript; a short list covers them unless the prompt has text."""
MIN_TRANSCRIPT = 6
"""With fewer lines above a short list, the transcript does not move up for it."""
STRAY_GRACE = 0.5
"""Seconds after a letter in which Enter chooses nothing: the user may still be writing a message.
"""


def _make_word_test(label: str) -> Callable[[str], bool]:
    """Returns a function that returns whether any word of this label begins with a text. A word
    begins after any character that is neither a letter nor a digit.
    """
    characters_before = f" {label}"
    word_starts = {
        start for start, character in enumerate(characters_before) if not character.isalnum()
    }
    return lambda text: any(label.startswith(text, start) for start in word_starts)


class Picker(Sheet[str | None]):
    """A list to choose from. Its result is the value of the choice; None if it was closed.

    Arrows move the mark, and Enter chooses. In a short list digits choose and letters mark; a long
    list has a search field.
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
        """From when on a key can choose."""
        self._opened_at = 0.0
        self._reads_from = 0.0
        """From when on letters can mark a choice; earlier ones were typed before the picker came."""
        self._typed_keys: list[events.Key] = []
        """The keys of the letters that have marked a choice."""
        self._shows_prompt = False
        """Whether the prompt stays visible below a short list, because it has text."""
        self._hides_rows = False
        """Whether a short list has not all its lines, on a very low terminal."""
        self._heights_seen = set[tuple[int, ...]]()
        """The heights of the other widgets for which room was made since the size or the mark changed:
        for each only once, so that this ends.
        """
        self.is_short = search is None and len(choices) <= MAX_WITHOUT_SEARCH
        if self.is_short:
            choices = [
                Choice(choice.value, f"{number} {choice.label}", choice.detail)
                for number, choice in enumerate(choices, 1)
            ]
        self._choices = choices
        self._list = PickList(choices, current, "No matches." if choices else nothing)
        self._search = SearchField(search or "")
        self._whole_choice = Static(markup=False, classes="sheet--whole")
        is_long = title.count("\n") >= LONG_TITLE
        pages = [("PageUp PageDown", "scroll")] if is_long else []
        field = [] if self.is_short else [self._search]
        keys = (("↑↓ Enter", ""), *pages, ("Esc", "closes"))
        frame = make_frame(
            title,
            *field,
            self._list,
            self._whole_choice,
            keys=keys,
            more="?" if self.is_short else "F1",  # in a search field `?` is text
        )
        super().__init__(frame)
        self.set_class(self.is_short, "-numbered")

    def on_mount(self) -> None:
        """Set the times from which keys are read and accepted. Keys that were typed before the
        sheet appeared were meant for another widget.
        """
        self._beneath = self.app.screen_stack[0]
        self._shows_prompt = any(prompt.text for prompt in self._beneath.query(PromptArea))
        if not self.is_short:
            self._search.focus()
        self.screen_layout_refresh_signal.subscribe(self, self._make_room_after_layout)
        self._opened_at = time.monotonic()
        self._accepts_from = self._opened_at + self._grace
        self._reads_from = self._opened_at + STRAY_GRACE

    @property
    def words(self) -> str:
        """The text that is searched for."""
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
        """Preview the newly marked choice, and show it whole if its line is cut."""
        if (marked := self._list.marked) is not None:
            self._preview(marked.value)
        # The sheet may get heights that it had with an earlier mark: room must be made again then.
        self._heights_seen.clear()
        self._show_whole()

    def on_resize(self) -> None:
        self._heights_seen.clear()
        self.call_after_refresh(self._show_whole)

    def on_unmount(self) -> None:
        self._beneath.styles.padding = 0

    def _make_room_after_layout(self, _screen: Screen[Any]) -> None:
        """On a low terminal, make room again after a layout that has changed the heights of the
        texts. The first layout has heights for an earlier width or text.
        """
        if not self.has_class("-low") or not self._frame.is_attached:
            return
        heights = tuple(widget.outer_size.height for widget in self._other_widgets())
        if heights not in self._heights_seen:
            self._heights_seen.add(heights)
            self._make_room()

    def _other_widgets(self) -> list[Widget]:
        """The visible widgets of the sheet besides the list."""
        return [
            child for child in self._frame.children if child.display and child is not self._list
        ]

    def _make_room(self) -> None:
        """Set the height of the list: it gets the lines that the title, the texts and the keys
        leave. If the list is short, also move the transcript up, so that its end stays visible
        above the sheet. It moves less if the sheet covers the prompt and the status line.
        """
        sheet = self._frame
        if not sheet.is_attached:
            return  # the sheet is being closed

        # Set the height of the list.
        used_height = sum(
            child.outer_size.height + child.styles.margin.height for child in self._other_widgets()
        )
        used_height += sheet.gutter.height + sheet.styles.margin.height
        if self.has_class("-low"):
            used_height += self._fit_question(self.size.height - used_height)
        else:  # the terminal may have been low before
            self._frame.head.styles.clear_rule("max_height")
        height = max(1, self.size.height - used_height)
        self._list.styles.max_height = height
        hides_rows = self.is_short and height < len(self._choices)
        if self._hides_rows != hides_rows:  # the text below the list gets another height
            self._hides_rows = hides_rows
            self._show_whole()

        # Move the transcript.
        if self.is_short and sheet.outer_size.height <= self.size.height - MIN_TRANSCRIPT:
            rows_to_move = sheet.outer_size.height
            if not self._shows_prompt:
                rows_to_move -= PROMPT_AND_STATUS
            self._beneath.styles.padding = (0, 0, max(0, rows_to_move), 0)

    def _fit_question(self, free: int) -> int:
        """Change the height of the question, so that the list gets the lines that it needs at least:
        MIN_ROWS, or fewer if it has fewer choices. `free` is the number of lines that the widgets
        leave to the list now. Returns how many lines the question gains; negative if it loses some.
        """
        question = self._frame.head
        list_height = min(len(self._choices), MIN_ROWS)
        height = question.outer_size.height
        max_height = max(MIN_QUESTION, height + free - list_height)
        question.styles.max_height = max_height
        new_height = min(question.virtual_size.height, max_height)
        return new_height - height

    def _show_whole(self) -> None:
        """Show the whole marked choice below the list if its line is cut. If other choices are hidden,
        also show the number of the marked one and the arrows, even if its line is not cut.
        """
        marked = self._list.marked
        is_cut = marked is not None and self._list.is_cut(marked)
        self._whole_choice.display = is_cut or self._hides_rows
        if marked is not None:
            text = f"{marked.label}\n{marked.detail}".rstrip()
            if self.has_class("-low"):  # one line: only the longer part, which is cut
                text = max(marked.label, marked.detail, key=len)
            if self._hides_rows:
                text = f"{self._list.marked_index + 1}/{len(self._choices)} ↑↓ {text if is_cut else ''}"
            self._whole_choice.update(code_content(clean(text)))
        self.call_after_refresh(self._make_room)

    @on(Input.Submitted)
    @on(PickList.Picked)
    def _choose_marked(self) -> None:
        """Choose the marked row, unless it is too early for the user to have seen the list."""
        self._list.narrow(self._search.value)  # the last letters may not have narrowed it yet
        choice = self._list.marked
        if choice is not None and time.monotonic() >= self._accepts_from:
            self.dismiss(choice.value)

    async def _take_key(self, event: events.Key) -> bool:
        """Scroll, move the mark, choose, or take text. Returns False for a key that shows the keys,
        and for text of the search field.

        PageUp and PageDown scroll the question if it is cut. Otherwise they scroll the transcript
        above a short list, or a long list itself.
        """
        question = self._frame.head
        if event.key in PAGES and question.max_scroll_y:
            question.scroll_relative(y=PAGES[event.key] * (question.size.height - 1), animate=False)
        elif event.key in PAGES and self.is_short:
            action = "page_up" if PAGES[event.key] < 0 else "page_down"
            await self.run_action(f"app.press('{action}')")
        elif self._list.move_by_key(event.key):
            self._end_grace(event)
        elif self.is_short and event.key == "enter":
            self._choose_marked()
        elif event.key in SHOWS_KEYS and not self._typed_keys:
            return False
        else:
            return self._take_text(event)
        return True

    def _end_grace(self, event: events.Key) -> None:
        """Let Enter choose at once after a key that moved the mark: the user has seen the list. A
        key that was pressed before the list opened does not count.
        """
        if event.time > self._opened_at:
            self._accepts_from = 0.0

    def _take_text(self, event: events.Key) -> bool:
        """Handle a key that is text. In a short list, text marks or chooses a choice; other
        text goes to the prompt below the list. In a long list it goes to the search field. Returns
        False if the key is no text. Also returns False if the search field has the focus, because
        then it gets the key from Textual.
        """
        if self.is_short:
            is_text = event.is_printable or event.key == "backspace"
            if is_text:
                self._take_character(event)
            return is_text
        if not event.is_printable or self._search.has_focus:
            return False
        # `on_mount` has given it the focus, but this key came before the focus was set.
        self._search.post_message(events.Key(event.key, event.character))
        return True

    def _take_character(self, event: events.Key) -> None:
        """Handle a character in a short list. A digit chooses, and letters mark a choice. Any other
        text is a message: it goes to the prompt, after the letters that were typed before it.
        """
        number = 0  # not a digit
        if event.character and event.character.isdecimal():
            number = int(event.character)
        accepts = time.monotonic() >= self._accepts_from
        self._forget_moves(event.time)
        if accepts and 0 < number <= len(self._choices):
            self.dismiss(self._choices[number - 1].value)
            return
        has_moved_mark = accepts and (self._mark_typed(event) or self._move_by_letter(event))
        if not has_moved_mark:
            self._pass_to_prompt([*self._typed_keys, event])

    def _mark_typed(self, event: events.Key) -> bool:
        """Mark the choice that the typed letters find, including this one. Backspace removes the
        last letter. Returns False if the letters find no choice, or if it is too early for keys.
        """
        if event.key == "backspace" and self._typed_keys:
            self._typed_keys.pop()
            return True
        if time.monotonic() < self._reads_from or not event.character:
            return False
        typed_text = "".join(key.character or "" for key in (*self._typed_keys, event))
        index = self._find_choice(typed_text.casefold())
        if index is None:
            return False
        self._typed_keys.append(event)
        self._list.marked_index = index
        return True

    def _move_by_letter(self, event: events.Key) -> bool:
        """Move the mark down for `j`, or up for `k`. Returns False for any other key, after other
        letters, and if it is too early. The letter is also added to the typed keys, because it may
        be the beginning of a message.
        """
        if time.monotonic() < self._reads_from or event.key not in ("j", "k"):
            return False
        if any(key.key not in ("j", "k") for key in self._typed_keys):
            return False
        self._typed_keys.append(event)
        self._list.move_by_key("down" if event.key == "j" else "up")
        return True

    def _forget_moves(self, now: float) -> None:
        """Forget the typed keys if they are only `j` and `k`, and some time has passed since the
        last one. They are not the beginning of a message then.
        """
        has_only_moves = self._typed_keys and all(key.key in ("j", "k") for key in self._typed_keys)
        if has_only_moves and now - self._typed_keys[-1].time > STRAY_GRACE:
            self._typed_keys = []

    def _find_choice(self, text: str) -> int | None:
        """The index of the first choice whose label begins with a text. If there is none, the first
        choice that has, for each word of the text, a word that begins with it: `claude` finds
        `anthropic/claude-…`. None if no choice matches, or the text has no word.
        """
        words = text.split()
        if not words:
            return None
        # The labels of a short list begin with their numbers.
        labels = [choice.label.partition(" ")[2].casefold() for choice in self._choices]
        for index, label in enumerate(labels):
            if label.startswith(text):
                return index
        for index, label in enumerate(labels):
            begins_a_word = _make_word_test(label)
            if all(begins_a_word(word) for word in words):
                return index
        return None

    def _pass_to_prompt(self, keys: Sequence[events.Key]) -> None:
        """Pass typed keys to the prompt of the screen below, because they are a message. For a
        moment Enter chooses nothing, because it may end that message.
        """
        self._typed_keys = []
        self._accepts_from = max(self._accepts_from, time.monotonic() + STRAY_GRACE)
        for key in keys:
            message = QuestionPanel.KeyForPrompt(events.Key(key.key, key.character))
            self.app.screen_stack[-2].post_message(message)
        self._shows_prompt = True
        self._make_room()


class HistoryPicker(Picker):
    """The earlier messages, which are searched. The key that opens it marks an older one, as in a shell.

    Args:
        search: the text to search first.
        opening_keys: the keys that open it.
    """

    def __init__(self, entries: Sequence[Choice], search: str, opening_keys: Sequence[str]) -> None:
        super().__init__("Search history", entries, search=search)
        self._opening_keys = opening_keys

    async def _take_key(self, event: events.Key) -> bool:
        """Mark an older message for a key that opens the picker; handle other keys as a Picker does."""
        if event.key not in self._opening_keys:
            return await super()._take_key(event)
        self._list.action_move(1)  # the newest message is the first row
        self._end_grace(event)
        return True
