"""Questions of the agent, and the stack of all open questions."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from ouro.events import PermissionAsked, QuestionAsked, Reply
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.widgets.permission import PermissionPanel
from ouro.frontends.tui.widgets.question_panel import ChoiceList, QuestionPanel
from ouro.utils.text import clean


class QuestionStack(Vertical):
    """The open questions above the prompt; the oldest is shown."""

    def __init__(self, keymap: Keymap) -> None:
        super().__init__(id="questions")
        self._keymap = keymap
        self._waiting: list[PermissionAsked | QuestionAsked] = []
        self._panel: QuestionPanel | None = None

    @property
    def panel(self) -> QuestionPanel | None:
        return self._panel

    def ask(self, asked: PermissionAsked | QuestionAsked) -> None:
        self._waiting.append(asked)
        self._show_first()

    def close(self, question_id: str) -> None:
        self._waiting = [asked for asked in self._waiting if asked.question_id != question_id]
        self._show_first()

    def end_turn(self) -> None:
        """Remove the questions of the turn; background questions stay."""
        self._waiting = [asked for asked in self._waiting if isinstance(asked, QuestionAsked) and not asked.of_turn]
        self._show_first()

    def _show_first(self) -> None:
        first = self._waiting[0] if self._waiting else None
        if self._panel is not None and (first is None or self._panel.question_id != first.question_id):
            self._panel.remove()
            self._panel = None
        if first is not None and self._panel is None:
            kind = PermissionPanel if isinstance(first, PermissionAsked) else AskPanel
            self._panel = kind(first, self._keymap)  # type: ignore[arg-type]
            self.mount(self._panel)
            self._panel.focus()
        if self._panel is not None:
            more = len(self._waiting) - 1
            self._panel.border_subtitle = f"{more} more after this" if more else ""
        self.display = self._panel is not None
        self.screen.set_class(self.display, "-asking")


_OTHER = "another answer …"
_DONE = "done"


class AskPanel(QuestionPanel):
    """The choices of the agent, and one more for another answer."""

    def __init__(self, asked: QuestionAsked, keymap: Keymap) -> None:
        question = asked.question
        self._question = question
        last = [(_OTHER, "")] + ([(_DONE, "Enter")] if question.several else [])
        super().__init__(
            asked.question_id, keymap, ChoiceList([*((c, "") for c in question.choices), *last], question.several)
        )
        self.field.placeholder = "your answer · Enter sends it"
        self.field.display = not question.choices
        self.options.display = bool(question.choices)

    def compose(self) -> ComposeResult:
        yield Static(clean(self._question.text), classes="question--title", markup=False)
        if self._question.details:
            details = Static(clean(self._question.details), markup=False)
            yield VerticalScroll(details, can_focus=False, classes="question--body question--text")
        yield self.options
        yield self.field
        hint = "digits tick · Enter on the last line sends" if self._question.several else "a digit, or ↑↓ Enter"
        yield Static(f"{hint} · Esc: no answer", classes="question--keys", markup=False)

    def means(self, key: str, action: str, character: str) -> bool:
        """Without choices, every key starts the answer."""
        chooses = key == "space" and self._question.several
        return not self._question.choices or chooses or super().means(key, action, character)

    def press(self, key: str, action: str, character: str) -> None:
        if not self._question.choices:
            self.open_field()
            self.field.insert_text_at_cursor(character)
        elif key == "space" and self._question.several:
            self.choose(self.options.place)
        else:
            super().press(key, action, character)

    def choose(self, number: int) -> None:
        """Choose; with several choices, tick until the last line is chosen."""
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
            self._answer((*self._ticked(), *((written,) if written else ())))

    def _ticked(self) -> tuple[str, ...]:
        return tuple(self._question.choices[number] for number in sorted(self.options.ticked))

    def _answer(self, answers: tuple[str, ...]) -> None:
        self.post_message(self.Answered(self.question_id, Reply(answers)))

    def dismiss_question(self) -> None:
        self._answer(())
