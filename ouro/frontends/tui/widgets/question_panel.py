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
    PLAN_QUESTION,
    PermissionAsked,
    Permit,
    PermitChoice,
    QuestionAsked,
    Reply,
    UserAnswer,
)
from ouro.frontends.event_lines import PERMIT_LABELS
from ouro.frontends.tui.blocks.block_list import TranscriptBlock
from ouro.frontends.tui.blocks.lines import code_content, join_fitting, tidy
from ouro.frontends.tui.blocks.messages import AnswerBlock
from ouro.frontends.tui.blocks.paged_lines import plain_lines
from ouro.frontends.tui.blocks.tool_card import DisplayBlock
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screen_layout import (
    ALL_AROUND_FROM_HEIGHT,
    BOX_FROM_HEIGHT,
    HEADER_FROM_HEIGHT,
    ROOMY_FROM_HEIGHT,
)
from ouro.frontends.tui.widgets.choice_list import ChoiceList
from ouro.frontends.tui.widgets.transcript import TranscriptView
from ouro.frontends.tui.widgets.typed_field import TypedField
from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import clean, escape_invisible, one_line, plural

_ROWS_AROUND = (
    (BOX_FROM_HEIGHT, 0),
    (HEADER_FROM_HEIGHT, 1),
    (ALL_AROUND_FROM_HEIGHT, 5),
    (ROOMY_FROM_HEIGHT, 8),
)
"""For terminals lower than the first number: the lines around a question, including its frame."""


TOO_EARLY = "This question is new: press the key again"
TOO_EARLY_LOW = "new: press again"
"""The same beside the title, where there is no line for it."""


class QuestionPanel(Vertical, can_focus=True):
    """A question above the prompt. Subclasses implement `choose`.

    No accidental answers: a key that would answer a question which has just appeared does nothing
    but show a hint. What the user is writing goes to the prompt: the text that was begun before the
    question appeared, and one that begins with a letter that is not an answer, up to its Enter,
    with its editing keys.
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
    class Stray(Message):
        """A key or a paste that belongs to the prompt."""

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
        key_line = Static(keys, classes="question--keys", markup=False)
        super().__init__(*above, options, self.field, key_line, classes="question")
        self._actions = keymap.actions_of("answer")
        self._editing = {
            key: act for key, act in keymap.actions_of("edit").items() if key not in self._actions
        }
        self._page_down = keymap.key_text("page_down")
        self._page_keys = f"{keymap.key_text('page_up')} {self._page_down}"
        self._amount = ""
        self._was_drawn = False
        self._listens_from = float("inf")
        self._is_writing = False
        self._typed_at = float("-inf")
        """When the last key went to the prompt."""
        self._held: events.Key | None = None
        """An answer that came too early; it begins a text if another letter follows at once."""

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
        """Answer the question, or pass the key to the prompt if it belongs to a text."""
        if self.field.has_focus:
            self._key_in_field(event)
            return
        answers = event.is_printable or event.key in ("enter", "tab", "backspace", "up", "down")
        if not answers and event.key not in self._editing:
            return
        event.stop()
        event.prevent_default()
        if not answers:
            self._is_writing = (
                self._is_writing and self._editing[event.key] != "delete_to_start_of_line"
            )
            self.post_message(self.Stray(events.Key(event.key, event.character)))
            return
        self._handle_answer(event)

    def _on_paste(self, event: events.Paste) -> None:
        """Pass a paste to the prompt. It is the beginning of a message, never an answer."""
        if self.field.has_focus:
            return
        event.stop()
        self._is_writing = True
        self._typed_at = event.time
        paste = events.Paste(event.text)
        paste.stop()  # a paste that bubbles up from the prompt comes to the panel again
        self.post_message(self.Stray(paste))

    def _handle_answer(self, event: events.Key) -> None:
        """Answer with a key, or pass it to the prompt if it belongs to a text."""
        act = self.answer_of(event.key, self._actions.get(event.key, ""), event.character or "")
        is_message = self._follow_writing(event, is_answer=act is not None)
        held, self._held = self._held, None
        if is_message or event.time - self._typed_at < self.GRACE:
            if held is not None and event.time - held.time < self.GRACE:
                self._pass_to_prompt(held)
            self._pass_to_prompt(event)
        elif event.time < self._listens_from and event.key not in ("up", "down"):
            self._drop_early_answer(event, held)
        elif act is not None:
            act()

    def text_was_typed(self, at: float) -> None:
        """The prompt has a text, whose last key was pressed then."""
        self._typed_at = at

    def _pass_to_prompt(self, key: events.Key) -> None:
        self._typed_at = key.time
        self._listens_from = max(self._listens_from, key.time + self.GRACE)
        self.post_message(self.Stray(events.Key(key.key, key.character)))

    def _drop_early_answer(self, event: events.Key, held: events.Key | None) -> None:
        """Two different letters are a text, one is an answer that came too early."""
        if held is not None and event.is_printable and event.key != held.key:
            self._is_writing = True
            self._pass_to_prompt(held)
            self._pass_to_prompt(event)
            return
        self._held = event if event.is_printable else None
        self._notice = TOO_EARLY
        self._fit()

    def answer_of(self, key: str, action: str, character: str) -> Callable[[], object] | None:
        """What a key does here; None if it is not an answer."""
        if key in ("up", "down"):
            return partial(self.options.move, -1 if key == "up" else 1)
        if action == "comment":
            return self.open_field
        if character.isdigit() and 0 < int(character) <= len(self.options.lines):
            return partial(self._mark_and_choose, int(character) - 1)
        return partial(self.choose, self.options.place) if key == "enter" else None

    def _follow_writing(self, event: events.Key, *, is_answer: bool) -> bool:
        """Note whether the user is writing a message; returns whether this key belongs to it. A
        letter that is no answer begins a message, Enter ends it.
        """
        if event.key in ("up", "down"):
            self._is_writing = False
        elif not self._is_writing:
            self._is_writing = event.is_printable and not is_answer
        elif event.key == "enter":
            self._is_writing = False
            return True
        return self._is_writing

    def _mark_and_choose(self, number: int) -> None:
        self.options.place = number
        self.choose(number)

    def _key_in_field(self, event: events.Key) -> None:
        """Handle the keys of the field that are not text: send, move the mark, close."""
        if event.key not in ("enter", "escape", "tab", "shift+tab", "up", "down"):
            return
        event.stop()
        event.prevent_default()
        if event.key == "enter":
            self.choose(self.options.place)
        elif event.key in ("up", "down"):
            self.options.move(-1 if event.key == "up" else 1)
        else:
            self.field.display = bool(self.field.value) or not self.options.display
            self.focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit)

    on_descendant_focus = on_descendant_blur = on_resize

    def _fit(self) -> None:
        """Divide the height: first the choices, then the texts; what does not fit can be scrolled."""
        if not self.options.size.width:
            return  # there is no layout yet; the layout causes a resize too
        height = self.app.size.height
        bodies = list(self.query(".question--body"))
        room = self._free_rows(height, bodies)
        wanted = self.options.get_content_height(self.size, self.size, self.options.size.width)
        is_short = height < ALL_AROUND_FROM_HEIGHT
        # On a short terminal a text gets all lines but those of the choices, else at most a third.
        least = max(1, min(2, room - 1) // len(bodies)) if height < BOX_FROM_HEIGHT else 2
        hint = ""
        for body in bodies:
            most = room - (wanted if is_short else min(wanted, height // 4))
            most = max(least, most if is_short else min(most, height // 3))
            body.styles.max_height = most
            if isinstance(body, TranscriptView):
                body.styles.height = max(3, body.virtual_size.height)
            lines = body.virtual_size.height
            room -= min(lines, most)
            hint = f"{lines} lines" if lines > most else hint
        self.options.styles.max_height = max(1, room)
        self._show_hint(hint, height < HEADER_FROM_HEIGHT)

    def _free_rows(self, height: int, bodies: Sequence[Widget]) -> int:
        """The rows of a screen of this height that are left for the choices and the texts."""
        divided = {*bodies, self.options}
        others = [child for child in self.children if child.display and child not in divided]
        around = next((rows for below, rows in _ROWS_AROUND if height < below), 12)
        return height - around - sum(child.outer_size.height for child in others)

    def _show_hint(self, hint: str, is_low: bool) -> None:
        """Show the keys that scroll: below the choices, or on low terminals beside the title."""
        # There are none if it was just answered.
        for keys in self.query(".question--keys").results(Static):
            hints = [f"{self._page_keys}: {hint}"] if hint else []
            shown = self.FIELD_KEYS if self.field.has_focus else self._notice or self._keys
            keys.update(join_fitting([*hints, *shown.split(" · ")], keys.size.width, 1))
        for size in self.query(".question--size").results(Static):
            shown = f"{self._page_down}: {hint}" if hint and is_low else self._amount
            shown = TOO_EARLY_LOW if is_low and self._notice else shown
            title = cell_len(str(self.query_one(".question--title", Static).content))
            size.update(shown if title + 2 + len(shown) <= self.content_size.width else "")

    @property
    def scrolls(self) -> bool:
        return any(body.max_scroll_y for body in self.query(".question--body"))

    def scroll_body(self, by: int) -> None:
        for body in self.query(".question--body"):
            body.scroll_relative(y=by * max(1, body.size.height - 1), animate=False)

    def open_field(self) -> None:
        self.field.display = True
        self.field.focus()

    def choose(self, number: int) -> None:
        raise NotImplementedError

    def dismiss_question(self) -> bool:
        """Close the question without an answer; returns False if it needs one."""
        return False

    def on_choice_list_picked(self) -> None:
        self.choose(self.options.place)


class _BlockBody(TranscriptView):
    """A block that is asked about."""

    def go_to_line(self, wanted: Pattern[str]) -> None:
        """Show the first line that begins with `wanted` at the top."""
        for block in self._blocks.blocks:
            lines = plain_lines(block.lines(self.size.width, self._palette))
            found = [number for number, line in enumerate(lines) if wanted.match(line.text)]
            if found:
                self._go_to(block, found[0])


def _block_body(block: TranscriptBlock) -> TranscriptView:
    view = _BlockBody(classes="question--body")
    view.following = False  # show its beginning
    view.add(block)
    return view


def text_body(text: str | Content, kind: str = "question--text") -> VerticalScroll:
    return VerticalScroll(
        Static(text, markup=False), can_focus=False, classes=f"question--body {kind}"
    )


_BLANKS = re.compile(" {24,}")
_KEYS: Mapping[PermitChoice, str] = {
    "yes": "yes",
    "session": "session",
    "edits": "session",
    "always": "always",
    "stop": "no",
    "no": "decline",
}
"""The actions of the keymap that choose them."""


_CHANGED = late_pattern(r"\s*\d+ [-+](\s|$)")
"""A changed line of a diff, with its number."""


class PermissionPanel(QuestionPanel):
    FIELD_KEYS = "↑↓ Enter sends · Esc back"

    def __init__(self, asked: PermissionAsked, keymap: Keymap) -> None:
        details = {"always": f"rule {escape_invisible(asked.rule)}"}
        lines = [
            (
                f"{PERMIT_LABELS[name]} ({keymap.key_text(_KEYS[name]).lower()})",
                details.get(name, ""),
            )
            for name in asked.choices
        ]
        amount, body = _body(asked.display)
        title = Static(
            f"Allow?  {escape_invisible(asked.call.name)}", classes="question--title", markup=False
        )
        super().__init__(
            asked.question_id,
            keymap,
            Horizontal(
                title,
                Static(amount, classes="question--size", markup=False),
                classes="question--head",
            ),
            body,
            Static(
                code_content(escape_invisible(asked.reason)), classes="question--why", markup=False
            ),
            options=ChoiceList(lines),
            hint="comment for the agent",
            keys=f"↑↓ Enter · {keymap.key_text('comment')} adds a comment · Esc interrupts",
        )
        self._amount = amount
        self._asked = asked
        self._shows_change = False
        """Whether a low terminal has shown the first change."""
        self._refusal: PermitChoice = "stop" if "stop" in asked.choices else "no"

    def answer_of(self, key: str, action: str, character: str) -> Callable[[], object] | None:
        """What a key does here. The key of a choice that is not offered does nothing; None if the
        key is not an answer.
        """
        for number, choice in enumerate(self._asked.choices):
            if action == _KEYS[choice] or (action == "no" and choice == self._refusal):
                return partial(self.choose, number)
        act = super().answer_of(key, action, character)
        # The key of a choice that is not offered.
        return (lambda: None) if act is None and action else act

    def _fit(self) -> None:
        """Divide the height. The field shows its text in the marked choice. Without lines for a
        header, the first change is shown first.
        """
        self.options.comment = (one_line(self.field.value, 60) or "…") if self.field.display else ""
        super()._fit()

        if not self._shows_change and self.scrolls and self.app.size.height < HEADER_FROM_HEIGHT:
            self._shows_change = True
            self.call_after_refresh(self._show_change)

    def _show_change(self) -> None:
        """Show the first changed line first: a low terminal has no room for lines above it. The
        reason names the file, if there is room for it.
        """
        if not self.query_one(".question--why").size.height:
            return
        for body in self.query(_BlockBody):
            body.go_to_line(_CHANGED)

    def on_input_changed(self) -> None:
        self._fit()

    def choose(self, number: int) -> None:
        choice, comment = self._asked.choices[number], self.field.value.strip()
        if choice == "stop" and comment:  # the agent continues with what the user says
            choice = "no"
        self.post_message(self.Answered(self.question_id, Permit(choice, comment)))


def _body(display: Display) -> tuple[str, Widget]:
    """The size of what is asked for, and a widget that shows it with nothing hidden."""
    match display.body:
        case Diff(changes=changes):
            return plural(len(changes), "file"), _block_body(DisplayBlock(display, _show_controls))
        case CommandOutput(command=text) | Plain(text=text):
            pass
        case _:
            text = display.summary
    length = f"{len(text):,} characters" + (
        f", {plural(text.count(chr(10)) + 1, 'line')}" if "\n" in text else ""
    )
    return length, text_body(_show_hidden(text))


def _show_controls(line: str) -> str:
    """A line of a file with control characters written out."""
    return tidy(escape_invisible(line))


def _show_hidden(text: str) -> str:
    """Write out control characters, tabs and long runs of blanks, so that nothing is hidden."""
    shown = _BLANKS.sub(
        lambda run: f"⟨{len(run[0]):,} blanks⟩", escape_invisible(text).replace("\t", "⇥\t")
    )
    return shown.replace("\n", "⏎\n")


def make_panel(asked: PermissionAsked | QuestionAsked, keymap: Keymap) -> QuestionPanel:
    """The panel for a question: a permission, the plan, or any other question of the agent."""
    if isinstance(asked, PermissionAsked):
        return PermissionPanel(asked, keymap)
    if not asked.question_id.startswith(PLAN_QUESTION):
        return AskPanel(asked, keymap)
    from ouro.frontends.tui.widgets.plan_question import PlanQuestion  # rarely used

    return PlanQuestion(asked, keymap)


class QuestionStack(Vertical):
    """The open questions above the prompt; the oldest is shown."""

    def __init__(self, keymap: Keymap, typed_at: Callable[[], float]) -> None:
        """`typed_at`: returns when the text in the prompt was last typed at."""
        super().__init__(id="questions")
        self._keymap = keymap
        self._typed_at = typed_at
        self._waiting: list[PermissionAsked | QuestionAsked] = []
        self.panel: QuestionPanel | None = None

    def ask(self, asked: PermissionAsked | QuestionAsked) -> None:
        self._waiting.append(asked)
        self._show_first()

    def close(self, question_id: str) -> None:
        self._waiting = [asked for asked in self._waiting if asked.question_id != question_id]
        self._show_first()

    def end_turn(self) -> None:
        """Remove the questions of the turn, but not those of the background."""
        self._waiting = [asked for asked in self._waiting if not asked.of_turn]
        self._show_first()

    def _show_first(self) -> None:
        """Show the panel of the oldest open question, or none."""
        first = self._waiting[0] if self._waiting else None
        if self.panel is not None and (
            first is None or self.panel.question_id != first.question_id
        ):
            self.panel.remove()
            self.panel = None
        if first is not None and self.panel is None:
            self.panel = make_panel(first, self._keymap)
            self.panel.text_was_typed(self._typed_at())
            self.mount(self.panel)
            self.panel.focus()
        if self.panel is not None:
            more = len(self._waiting) - 1
            self.panel.border_subtitle = f"{more} more after this" if more else ""
        self.display = self.panel is not None
        self.screen.set_class(self.display, "-asking")


_OTHER = "another answer …"
_DONE = "done"


class AskPanel(QuestionPanel):
    def __init__(self, asked: QuestionAsked, keymap: Keymap) -> None:
        question = self._question = asked.question
        last = [(_OTHER, "")] + ([(_DONE, "Enter")] if question.several else [])
        above: list[Widget] = [text_body(code_content(clean(question.text)), "question--asked")]
        # The agent and MCP servers write Markdown; ouro's own questions are plain text.
        if question.details and (asked.of_turn or question.details.startswith("```")):
            above.append(_block_body(AnswerBlock(question.details)))
        elif question.details:
            above.append(text_body(code_content(clean(question.details))))
        choices = (
            "digits tick · Enter on the last line sends"
            if question.several
            else "a digit, or ↑↓ Enter"
        )
        super().__init__(
            asked.question_id,
            keymap,
            *above,
            options=ChoiceList(
                [*((choice, "") for choice in question.choices), *last], question.several
            ),
            hint="your answer",
            keys=f"{choices if question.choices else 'type your answer'} · Esc: no answer",
        )
        self.field.display = not question.choices
        self.options.display = bool(question.choices)

    def answer_of(self, key: str, action: str, character: str) -> Callable[[], object] | None:
        """Every key, if there are no choices: it begins the answer."""
        if not self._question.choices:
            return partial(self._begin_answer, character)
        if key == "space" and self._question.several:
            return partial(self.choose, self.options.place)
        return super().answer_of(key, action, character)

    def _begin_answer(self, text: str) -> None:
        self.open_field()
        self.field.insert_text_at_cursor(text)

    def choose(self, number: int) -> None:
        """Answer with a choice; if several may be chosen, tick it until the last line is chosen."""
        choices, written = self._question.choices, self.field.value.strip()
        if written and (self.field.has_focus or not choices):
            self._answer((*self._ticked(), written))
        elif number == len(choices):
            self.open_field()
        elif not self._question.several:
            self._answer((choices[number],))
        elif number < len(choices):
            self.options.tick(number)
        else:
            self._answer((*self._ticked(), *filter(None, [written])))

    def _ticked(self) -> tuple[str, ...]:
        return tuple(self._question.choices[number] for number in sorted(self.options.ticked))

    def _answer(self, answers: tuple[str, ...]) -> None:
        self.post_message(self.Answered(self.question_id, Reply(answers)))

    def dismiss_question(self) -> bool:
        self._answer(())
        return True
