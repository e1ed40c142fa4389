"""Questions above the prompt: permissions for tool calls, and questions of the agent."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from re import Pattern

from rich.cells import cell_len
from textual import events
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from ouro.display import CommandOutput, Diff, Display, Plain
from ouro.events import (
    PermissionAsked,
    Permit,
    PermitChoice,
    UserAnswer,
)
from ouro.frontends.event_lines import PERMIT_LABELS
from ouro.frontends.tui.blocks.block_list import TranscriptBlock
from ouro.frontends.tui.blocks.display_body import DisplayBlock
from ouro.frontends.tui.blocks.paged_lines import plain_lines
from ouro.frontends.tui.blocks.styled_lines import code_content, join_fitting, tidy
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screen_constants import (
    ALL_AROUND_FROM_HEIGHT,
    BOX_FROM_HEIGHT,
    HEADER_FROM_HEIGHT,
    ROOMY_FROM_HEIGHT,
)
from ouro.frontends.tui.widgets.choice_list import ChoiceList
from ouro.frontends.tui.widgets.transcript import TranscriptView
from ouro.frontends.tui.widgets.typed_field import TypedField
from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import escape_invisible, one_line, plural

_ROWS_AROUND = (
    (BOX_FROM_HEIGHT, 0),
    (HEADER_FROM_HEIGHT, 1),
    (ALL_AROUND_FROM_HEIGHT, 5),
    (ROOMY_FROM_HEIGHT, 8),
)
"""For terminals lower than the first number: the lines around a question, including its frame."""
_ROWS_AROUND_IN_HIGH_TERMINALS = 12
_SPARE_ROWS_FOR_KEYS = 2
"""The rows that a question must leave on a low terminal to show its keys."""
TOO_EARLY = "This question is new: press the key again"
BESIDE_A_DRAFT = "The prompt has text: press the key again to answer"
_LOW_NOTICES = {TOO_EARLY: "new: press again", BESIDE_A_DRAFT: "draft: press again"}
"""The short texts for low terminals, which show them beside the title."""


class QuestionPanel(Vertical, can_focus=True):
    """A question above the prompt. Subclasses implement `choose`.

    No accidental answers: a key that would answer a question which has just appeared does nothing
    but show a hint. The same holds for the first key if the prompt had text when the question
    appeared: the user may be looking away while they continue it. What the user is writing goes to
    the prompt: the text that was begun before the question appeared, and one that begins with a
    letter that is not an answer, up to its Enter, with its editing keys.
    """

    GRACE = 0.5
    """Seconds without a key, after the question is drawn, until keys answer it."""
    FIELD_KEYS = "Enter sends · Esc back"
    _notice = ""

    @dataclass
    class Answered(Message):
        """The user has answered the question."""

        question_id: str
        answer: UserAnswer

    @dataclass
    class KeyForPrompt(Message):
        """A key or a paste that the panel received, and that belongs to the prompt."""

        key: events.Key | events.Paste

    def __init__(
        self,
        question_id: str,
        keymap: Keymap,
        *above: Widget,
        options: ChoiceList,
        hint: str,
        keys: str,
    ) -> None:
        """Make the panel.

        Args:
            above: the widgets above the choices.
            hint: the text in the empty field.
            keys: the keys that the last line names.
        """
        self.question_id = question_id
        self.options = options
        self.field = TypedField(
            compact=True, select_on_focus=False, placeholder=hint, classes="question--field"
        )
        self.field.display = False
        self._keys = keys
        self._key_line = Static(keys, classes="question--keys", markup=False)
        super().__init__(*above, options, self.field, self._key_line, classes="question")
        self._actions = keymap.actions_of("answer")
        self._editing = {
            key: act for key, act in keymap.actions_of("edit").items() if key not in self._actions
        }
        self._page_down = keymap.key_text("page_down")
        self._page_keys = f"{keymap.key_text('page_up')} {self._page_down}"
        self._size_text = ""
        """The size of what is asked about, in words; it is shown beside the title."""
        self._was_drawn = False
        """Whether the question was drawn once."""
        self._listens_from = float("inf")
        """From when on a key answers."""
        self._is_writing = False
        """Whether the user is writing a message, so that keys go to the prompt."""
        self._typed_at = float("-inf")
        """When the last key went to the prompt."""
        self._early_key: events.Key | None = None
        """The key before, if it came too early. It begins a message if another letter follows."""
        self._is_beside_draft = False
        """Whether the prompt had text when the question appeared, and no arrow was pressed since."""
        self._pressed_once = ""
        """The last key that did not answer because the prompt had text; empty if there was none."""

    def on_mount(self) -> None:
        self.call_after_refresh(self._start_listening)

    def on_focus(self) -> None:
        if not self._was_drawn:
            self._was_drawn = True
            self.call_next(self._draw_at_once)

    def _draw_at_once(self) -> None:
        """Place and draw the new question now: Textual's next frame comes up to 17 ms later."""
        screen = self.screen
        if screen.is_current and not self.app._batch_count:
            screen._layout_required = True
            screen._on_timer_update()

    def _start_listening(self) -> None:
        self._listens_from = time.monotonic() + self.GRACE

    def take_key(self, event: events.Key) -> None:
        """Handle a key that was pressed where another widget has the focus."""
        self._handle_answer(event)

    async def _on_key(self, event: events.Key) -> None:
        """Answer the question, or pass the key to the prompt if it belongs to a text. Keys that
        edit a text, and are no key of a question, always go to the prompt. Any other key is left to
        the app.
        """
        if self.field.has_focus:
            self._key_in_field(event)
            return
        # Keys that may answer. Which of them belong to a message, the text so far decides.
        is_for_both = event.is_printable or event.key in ("enter", "tab", "backspace", "up", "down")
        if not is_for_both and event.key not in self._editing:
            return
        event.stop()
        event.prevent_default()
        if is_for_both:
            self._handle_answer(event)
            return
        if self._editing[event.key] == "delete_to_start_of_line":
            self._is_writing = False  # the message is empty again
        self.post_message(self.KeyForPrompt(events.Key(event.key, event.character)))

    def _on_paste(self, event: events.Paste) -> None:
        """Pass a paste to the prompt. It is the beginning of a message, never an answer."""
        if self.field.has_focus:
            return
        event.stop()
        self._is_writing = True
        self._typed_at = event.time
        paste = events.Paste(event.text)
        paste.stop()  # a paste that bubbles up from the prompt comes to the panel again
        self.post_message(self.KeyForPrompt(paste))

    def _handle_answer(self, event: events.Key) -> None:
        """Pass the key to the prompt if it belongs to a message; otherwise answer with it. A key
        that comes too soon after the question appeared does not answer.
        """
        answer = self.answer_of(event.key, self._actions.get(event.key, ""), event.character or "")
        is_message = self._track_message(event, is_answer=answer is not None)
        # The key before, if it came too early to answer and may be the first letter of a message.
        early_key, self._early_key = self._early_key, None
        if is_message or event.time - self._typed_at < self.GRACE:
            if early_key is not None and event.time - early_key.time < self.GRACE:
                self._pass_to_prompt(early_key)  # it was the first letter of this message
            self._pass_to_prompt(event)
        elif event.time < self._listens_from and event.key not in ("up", "down"):
            self._take_early_key(event, early_key)
        elif self._needs_second_press(event):
            self._pressed_once = event.key
            self._notice = BESIDE_A_DRAFT
            self._listens_from = event.time + self.GRACE
            self._take_early_key(event, early_key=None)
        elif answer is _do_nothing:
            self._early_key = event  # if a letter follows, it is the first one of a message
        elif answer is not None:
            answer()

    def note_typed_text(self, at: float) -> None:
        """Note when the last key was typed in the prompt; minus infinity if the prompt is empty. Soon
        after that, a key is more of its text; later, a key must be pressed twice to answer.
        """
        self._typed_at = at
        # Without choices each key is text for the field of the question, and no answer by itself.
        has_choices = self.options.display
        self._is_beside_draft = has_choices and at > float("-inf")

    def _needs_second_press(self, event: events.Key) -> bool:
        """Whether this key does not answer yet, because it may continue the text in the prompt. It
        answers if it is pressed a second time.
        """
        may_be_text = event.is_printable or event.key == "enter"  # Enter would send the prompt
        is_second = event.key == self._pressed_once
        return self._is_beside_draft and may_be_text and not is_second

    def _pass_to_prompt(self, key: events.Key) -> None:
        """Pass a key to the prompt. For a moment after it, no key answers the question."""
        self._typed_at = key.time
        self._listens_from = max(self._listens_from, key.time + self.GRACE)
        self.post_message(self.KeyForPrompt(events.Key(key.key, key.character)))

    def _take_early_key(self, event: events.Key, early_key: events.Key | None) -> None:
        """Remember a character that came too early to answer, and show that it did not. If the
        character before it came too early, too (`early_key`), both are the beginning of a message,
        and go to the prompt. The same key twice is no message: the user insists on an answer.
        """
        if early_key is not None and event.is_printable and event.key != early_key.key:
            self._is_writing = True
            self._pass_to_prompt(early_key)
            self._pass_to_prompt(event)
            return
        self._early_key = event if event.is_printable else None
        self._notice = self._notice or TOO_EARLY
        self._fit()

    def answer_of(self, key: str, action: str, character: str) -> Callable[[], object] | None:
        """The function to call for a key; None if the key is not an answer. `action` is the name of
        the key's action in the keymap, and `character` the character that it types. Either may be
        empty.
        """
        if key in ("up", "down"):
            return partial(self.options.move, -1 if key == "up" else 1)
        if action == "comment":
            return self.open_field
        if character.isdecimal() and 0 < int(character) <= len(self.options.lines):
            return partial(self._mark_and_choose, int(character) - 1)
        return partial(self.choose, self.options.marked_index) if key == "enter" else None

    def _track_message(self, event: events.Key, *, is_answer: bool) -> bool:
        """Note whether this key begins or ends a message that the user is writing. Returns whether the
        key belongs to the message, and so goes to the prompt.

        A character that is not an answer begins a message. Enter is its last key. An arrow ends it,
        too, but goes to the choices. After an arrow, a key answers at its first press, also if the
        prompt has text.
        """
        if event.key in ("up", "down"):
            self._is_writing = self._is_beside_draft = False
        elif not self._is_writing:
            self._is_writing = event.is_printable and not is_answer
        elif event.key == "enter":
            self._is_writing = False
            return True
        return self._is_writing

    def _mark_and_choose(self, number: int) -> None:
        self.options.marked_index = number
        self.choose(number)

    def _key_in_field(self, event: events.Key) -> None:
        """Handle the keys of the field that are not text. Enter chooses the marked choice: `choose` of
        the subclass also sends the text of the field, as a comment or as the answer. The arrows move
        the mark. Esc and Tab return to the choices; the field stays visible if it has text, or if
        there are no choices.
        """
        if event.key not in ("enter", "escape", "tab", "shift+tab", "up", "down"):
            return
        event.stop()
        event.prevent_default()
        if event.key == "enter":
            self.choose(self.options.marked_index)  # reads the field
        elif event.key in ("up", "down"):
            self.options.move(-1 if event.key == "up" else 1)
        else:
            self.field.display = bool(self.field.value) or not self.options.display
            self.focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit)

    on_descendant_focus = on_descendant_blur = on_resize

    def _fit(self) -> None:
        """Divide the rows between the choices and the texts. A text that has more lines than rows
        can be scrolled. A hint says so, with the number of lines of the last such text. A text
        may have at least two rows, even if the choices lose rows; on a very low terminal only one.
        """
        has_choices = self.options.display
        if has_choices and not self.options.size.width:
            return  # there is no layout yet; the layout causes a resize too
        height = self.app.size.height
        bodies = list(self.query(".question--body"))
        room = self._free_rows(height, bodies)
        choices = 0
        if has_choices:
            choices = self.options.get_content_height(self.size, self.size, self.options.size.width)
        min_rows = 2  # of each text
        if height < BOX_FROM_HEIGHT:  # two for all texts, and one row stays for the choices
            min_rows = max(1, min(2, room - 1) // len(bodies))
        hint = ""
        for body in bodies:
            rows = max(min_rows, _rows_of_text(height, room, choices))
            body.styles.max_height = rows
            if isinstance(body, TranscriptView):
                # Its height does not follow its lines: it adds lines without a layout. Before any
                # are drawn it needs some rows, because only visible lines are.
                body.styles.height = max(3, body.virtual_size.height)
            lines = body.virtual_size.height
            room -= min(lines, rows)
            hint = f"{lines} lines" if lines > rows else hint
        self.options.styles.max_height = max(1, room)
        self._show_keys_if_room(room - choices)
        has_no_keys = height < HEADER_FROM_HEIGHT and not self._key_line.display
        self._show_hint(hint, has_no_keys)

    def _show_keys_if_room(self, spare_rows: int) -> None:
        """On a low terminal, which hides the line of keys, show it if this many rows are enough for it.
        On any other terminal this has no effect.
        """
        spare_rows += self._key_line.outer_size.height if self._key_line.display else 0
        has_room = spare_rows >= _SPARE_ROWS_FOR_KEYS
        if has_room != self.has_class("-has-room"):
            self.set_class(has_room, "-has-room")
            self.call_after_refresh(self._fit)  # then the rows are divided again

    def _free_rows(self, height: int, bodies: Sequence[Widget]) -> int:
        """The number of rows that are left for the choices and the texts (`bodies`) on a screen of this
        height.
        """
        divided = {*bodies, self.options}
        others = [child for child in self.children if child.display and child not in divided]
        around = _ROWS_AROUND_IN_HIGH_TERMINALS
        for limit, rows in _ROWS_AROUND:
            if height < limit:
                around = rows
                break
        return height - around - sum(child.outer_size.height for child in others)

    def _show_hint(self, hint: str, has_no_keys: bool) -> None:
        """Show that a text is cut, and the keys that scroll it: below the choices, or without a line of
        keys beside the title. `hint` is the number of its lines in words; if it is empty, no
        text is cut. If a key did not answer yet, `_notice` says why, instead of the keys. While
        the user writes in the field, the keys of the field are shown.
        """
        # The loops run once, or not at all if the question was just answered.
        for key_line in self.query(".question--keys").results(Static):
            hints = [f"{self._page_keys}: {hint}"] if hint else []
            keys = self._notice or self._keys
            if self.field.has_focus:
                keys = self.FIELD_KEYS
            key_line.update(join_fitting([*hints, *keys.split(" · ")], key_line.size.width, 1))
        for size in self.query(".question--size").results(Static):
            text_beside_title = self._size_text
            if has_no_keys and self._notice:
                text_beside_title = _LOW_NOTICES[self._notice]
            elif has_no_keys and hint:
                text_beside_title = f"{self._page_down}: {hint}"
            title_width = cell_len(str(self.query_one(".question--title", Static).content))
            has_room = title_width + 2 + len(text_beside_title) <= self.content_size.width
            size.update(text_beside_title if has_room else "")

    @property
    def scrolls(self) -> bool:
        return any(body.max_scroll_y for body in self.query(".question--body"))

    def scroll_body(self, by: int) -> None:
        """Scroll the texts by a page, up for -1; one line of the page before stays in sight."""
        for body in self.query(".question--body"):
            body.scroll_relative(y=by * max(1, body.size.height - 1), animate=False)

    def open_field(self) -> None:
        self.field.display = True
        self.field.focus()

    def choose(self, number: int) -> None:
        """Choose the choice at this index: mostly that answers the question. If the user has written
        into the field, its text is the answer, or a part of it.
        """
        raise NotImplementedError

    def dismiss_question(self) -> bool:
        """Close the question without an answer; returns False if it needs one."""
        return False

    def on_choice_list_picked(self) -> None:
        self.choose(self.options.marked_index)


def _rows_of_text(height: int, room: int, choice_rows: int) -> int:
    """How many rows a text of a question may have, of the `room` that it shares with the choices. On
    a low terminal it is all that the choices leave. On a higher one the choices count for at most a
    quarter of the `height` of the screen, and the text gets at most a third of it, so that the
    transcript stays in sight.
    """
    if height < ALL_AROUND_FROM_HEIGHT:
        return room - choice_rows
    return min(room - min(choice_rows, height // 4), height // 3)


class _BlockBody(TranscriptView):
    """A block that is asked about."""

    def go_to_line(self, pattern: Pattern[str]) -> None:
        """Scroll to the first line whose beginning matches the pattern; it is then at the top. If
        there is none, nothing is scrolled. The view has one block.
        """
        for block in self._blocks.blocks:
            lines = plain_lines(block.lines(self.size.width, self._palette))
            for number, line in enumerate(lines):
                if pattern.match(line.text):
                    self._go_to(block, number)
                    return


def block_body(block: TranscriptBlock) -> TranscriptView:
    """A body of a question that shows a block from its beginning."""
    view = _BlockBody(classes="question--body")
    view.following = False  # show its beginning
    view.add(block)
    return view


def text_body(text: str | Content, kind: str = "question--text") -> VerticalScroll:
    return VerticalScroll(
        Static(text, markup=False), can_focus=False, classes=f"question--body {kind}"
    )


_BLANKS = re.compile(" {24,}")
"""So many blanks may hide what follows them: it would be beyond the edge of the screen. Indentation
is mostly shorter.
"""
_ACTION_OF_CHOICE: Mapping[PermitChoice, str] = {
    "yes": "yes",
    "session": "session",
    "edits": "session",
    "always": "always",
    "stop": "no",
    "no": "decline",
}
"""The action of the keymap that makes a choice."""
_CHANGED_LINE = late_pattern(r"\s*\d+ [-+](\s|$)")
"""A changed line of a diff, with its number."""


class PermissionPanel(QuestionPanel):
    FIELD_KEYS = "↑↓ Enter sends · Esc back"

    def __init__(self, asked: PermissionAsked, keymap: Keymap) -> None:
        labels_and_details: list[tuple[str, str]] = []
        for choice in asked.choices:
            key = keymap.key_text(_ACTION_OF_CHOICE[choice]).lower()
            label = f"{PERMIT_LABELS[choice]} ({key})"
            detail = f"rule {escape_invisible(asked.rule)}" if choice == "always" else ""
            labels_and_details.append((label, detail))
        size_text, body = _size_and_body(asked.display)
        title_text = f"Allow?  {escape_invisible(asked.call.name)}"
        title = Static(title_text, classes="question--title", markup=False)
        size = Static(size_text, classes="question--size", markup=False)
        reason_text = code_content(escape_invisible(asked.shown_reason))
        reason = Static(reason_text, classes="question--why", markup=False)
        super().__init__(
            asked.question_id,
            keymap,
            Horizontal(title, size, classes="question--head"),
            body,
            reason,
            options=ChoiceList(labels_and_details),
            hint="comment for the agent",
            keys=f"↑↓ Enter · {keymap.key_text('comment')} adds a comment · Esc interrupts",
        )
        self._size_text = size_text
        self._asked = asked
        self._has_shown_change = False
        """Whether the text was scrolled to its first change, as on a low terminal."""
        self._refusal: PermitChoice = "stop" if "stop" in asked.choices else "no"
        """The choice of the key that refuses."""

    def answer_of(self, key: str, action: str, character: str) -> Callable[[], object] | None:
        """The function to call for a key; None if the key is not an answer. If a key stands for a
        choice that this question does not offer, the function does nothing: the key alone does
        not begin a message, but it is the first letter of one if another letter follows.
        """
        for number, choice in enumerate(self._asked.choices):
            is_refusal = action == "no" and choice == self._refusal
            if action == _ACTION_OF_CHOICE[choice] or is_refusal:
                return partial(self.choose, number)
        answer = super().answer_of(key, action, character)
        is_not_offered = answer is None and bool(action)
        return _do_nothing if is_not_offered else answer

    def _fit(self) -> None:
        """Show the text of the open field as the comment of the marked choice, and divide the rows. The
        first time on a terminal without rows for a header, scroll the text to its first change.
        """
        self.options.comment = ""
        if self.field.display:
            self.options.comment = one_line(self.field.value, 60) or "…"
        super()._fit()
        is_low = self.app.size.height < HEADER_FROM_HEIGHT
        if is_low and self.scrolls and not self._has_shown_change:
            self._has_shown_change = True
            self.call_after_refresh(self._scroll_to_change)

    def _scroll_to_change(self) -> None:
        """Scroll to the first changed line: a low terminal has no room for lines above it."""
        if not self.query_one(".question--why").size.height:
            return  # the reason, which names the file, has no row: then the text must name it
        for body in self.query(_BlockBody):
            body.go_to_line(_CHANGED_LINE)

    def on_input_changed(self) -> None:
        self._fit()

    def choose(self, number: int) -> None:
        """Answer with the choice at this index, and with the comment that was written."""
        choice, comment = self._asked.choices[number], self.field.value.strip()
        if choice == "stop" and comment:  # the agent continues with what the user says
            choice = "no"
        self.post_message(self.Answered(self.question_id, Permit(choice, comment)))


def _do_nothing() -> None:
    pass


def _size_and_body(display: Display) -> tuple[str, Widget]:
    """The size of what is asked for in words (files, or characters and lines), and a widget that shows
    all of it, also characters that a terminal does not show.
    """
    match display.body:
        case Diff(changes=changes):
            block = DisplayBlock(display, _write_out_controls)
            return plural(len(changes), "file"), block_body(block)
        case CommandOutput(command=text) | Plain(text=text):
            pass
        case _:
            text = display.summary
    length = f"{len(text):,} characters"
    if "\n" in text:
        length += f", {plural(text.count(chr(10)) + 1, 'line')}"
    return length, text_body(_write_out_hidden(text))


def _write_out_controls(line: str) -> str:
    """A line of a file with control characters written out."""
    return tidy(escape_invisible(line))


def _write_out_hidden(text: str) -> str:
    """A text with control characters, tabs, line ends and long runs of blanks written out: nothing is
    hidden.
    """
    text = escape_invisible(text).replace("\t", "⇥\t").replace("\n", "⏎\n")
    return _BLANKS.sub(lambda run: f"⟨{len(run[0]):,} blanks⟩", text)
