"""AskPanel: a question of the agent: choices by digit, one or several, or an answer in one's own words."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from ouro.events import QuestionAsked, Reply
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.widgets.options import Options
from ouro.frontends.tui.widgets.question_panel import QuestionPanel
from ouro.utils.text import clean

_OTHER = "something else …"
_DONE = "that is all"


class AskPanel(QuestionPanel):
    """The choices that the agent offers, and always one more: something else."""

    def __init__(self, asked: QuestionAsked, keymap: Keymap) -> None:
        question = asked.question
        self._question = question
        last = [(_OTHER, "")] + ([(_DONE, "Enter")] if question.several else [])
        super().__init__(
            asked.question_id, keymap, Options([*((c, "") for c in question.choices), *last], question.several)
        )
        self.field.placeholder = "your answer · Enter sends it"
        self.field.display = not question.choices
        self.options.display = bool(question.choices)

    def compose(self) -> ComposeResult:
        """The question, what there is to know, the choices, the field."""
        yield Static(clean(self._question.text), classes="question--title", markup=False)
        if self._question.details:
            details = Static(clean(self._question.details), markup=False)
            yield VerticalScroll(details, can_focus=False, classes="question--body question--text")
        yield self.options
        yield self.field
        hint = "digits tick · Enter on the last line sends" if self._question.several else "a digit, or ↑↓ Enter"
        yield Static(f"{hint} · Esc: no answer", classes="question--keys", markup=False)

    def means(self, key: str, action: str, character: str) -> bool:
        """Where there are no choices, every key does."""
        chooses = key == "space" and self._question.several
        return not self._question.choices or chooses or super().means(key, action, character)

    def press(self, key: str, action: str, character: str) -> None:
        """Where there are no choices, every key begins the answer."""
        if not self._question.choices:
            self.open_field()
            self.field.insert_text_at_cursor(character)
        elif key == "space" and self._question.several:
            self.choose(self.options.place)
        else:
            super().press(key, action, character)

    def choose(self, number: int) -> None:
        """Take a choice; of several, tick it until the last line is taken."""
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

    def wave_away(self) -> None:
        """No answer."""
        self._answer(())
