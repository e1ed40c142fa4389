"""PlanQuestion: the question that ends plan mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from textual.message import Message

from ouro.events import QuestionAsked, Reply
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.widgets.choice_list import ChoiceList
from ouro.frontends.tui.widgets.question_panel import QuestionPanel, text_body
from ouro.utils.text import clean

_EDIT_LABEL, _COMMENT_LABEL = "Edit the plan", "Comment on its lines"
PlanAct = Literal["edit", "comment"]


class PlanQuestion(QuestionPanel):
    """The question that ends plan mode. Its last choice keeps planning, with a comment if the user
    writes one.
    """

    FIELD_KEYS = "Enter sends · Esc back"

    @dataclass
    class Wanted(Message):
        """The user wants to change the plan, or to comment on its lines."""

        act: PlanAct

    def __init__(self, asked: QuestionAsked, keymap: Keymap) -> None:
        """Make the panel. Two choices of the screen itself, to edit the plan and to comment on it,
        stand before the last choice of the question.
        """
        self._choices = asked.question.choices
        last = self._choices[-1]
        lines = [*self._choices[:-1], _EDIT_LABEL, _COMMENT_LABEL, f"{last}: say what to change"]
        comment = keymap.key_text("comment")
        super().__init__(
            asked.question_id,
            keymap,
            text_body(clean(asked.question.text), "question--asked"),
            options=ChoiceList([(text, "") for text in lines]),
            hint="what to change",
            keys=f"a digit, or ↑↓ Enter · {comment} comments · Esc keeps planning",
        )

    def answer_of(self, key: str, action: str, character: str) -> Callable[[], object] | None:
        """The function to call for a key; None if it is not an answer. `y` chooses the first
        choice, `n` opens the field for what to change, and `e` edits the plan.
        """
        acts: dict[str, Callable[[], object]] = {
            "yes": partial(self.choose, 0),
            "no": self.open_field,
        }
        if action in acts:
            return acts[action]
        if character == "e":
            return partial(self.post_message, self.Wanted("edit"))
        return super().answer_of(key, action, character)

    def choose(self, number: int) -> None:
        """Choose the line at this index. The lines are: the choices of the question except its last
        one, edit the plan, comment on its lines, and the last choice, which opens the field. While
        the user writes in the field, its text is the answer, whatever line is marked. If the text is
        empty, the answer is the last choice.
        """
        *first_choices, keep_planning = self._choices
        edit_line = len(first_choices)
        if self.field.has_focus:
            self._answer(self.field.value.strip() or keep_planning)
        elif number < edit_line:
            self._answer(first_choices[number])
        elif number == edit_line:
            self.post_message(self.Wanted("edit"))
        elif number == edit_line + 1:
            self.post_message(self.Wanted("comment"))
        else:
            self.open_field()

    def _answer(self, answer: str) -> None:
        self.post_message(self.Answered(self.question_id, Reply((answer,))))

    def dismiss_question(self) -> bool:
        """Close the question with an empty answer, which keeps planning. Always returns True."""
        self.post_message(self.Answered(self.question_id, Reply()))
        return True
