"""AgentQuestion: a question of the agent, above the prompt."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual.widget import Widget

from ouro.events import QuestionAsked, Reply
from ouro.frontends.tui.blocks.messages import AnswerBlock
from ouro.frontends.tui.blocks.styled_lines import code_content
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.widgets.choice_list import ChoiceList
from ouro.frontends.tui.widgets.question_panel import QuestionPanel, block_body, text_body
from ouro.utils.text import clean

_OTHER = "another answer …"
_SEND = "send the answer"


class AgentQuestion(QuestionPanel):
    def __init__(self, asked: QuestionAsked, keymap: Keymap) -> None:
        question = self._question = asked.question
        last_lines = [(_OTHER, ""), (_SEND, "")] if question.several else [(_OTHER, "")]
        above: list[Widget] = [text_body(code_content(clean(question.text)), "question--asked")]
        # The agent and MCP servers write Markdown; ouro's own questions are plain text.
        is_markdown = asked.of_turn or question.details.startswith("```")
        if question.details and is_markdown:
            above.append(block_body(AnswerBlock(question.details)))
        elif question.details:
            above.append(text_body(code_content(clean(question.details))))
        lines = [*((choice, "") for choice in question.choices), *last_lines]
        keys = "a digit, or ↑↓ Enter"
        if not question.choices:
            keys = "type your answer"
        elif question.several:
            keys = "digits tick · Enter on the last line sends"
        super().__init__(
            asked.question_id,
            keymap,
            *above,
            options=ChoiceList(lines, len(question.choices) if question.several else 0),
            hint="your answer",
            keys=f"{keys} · Esc: no answer",
        )
        self.field.display = not question.choices
        self.options.display = bool(question.choices)

    def answer_of(self, key: str, action: str, character: str) -> Callable[[], object] | None:
        """The function to call for a key; None if the key is not an answer. If the question has no
        choices, every key is one: it is the first character of the answer.
        """
        if not self._question.choices:
            return partial(self._begin_answer, character)
        if key == "space" and self._question.several:
            return partial(self.choose, self.options.marked_index)
        return super().answer_of(key, action, character)

    def _begin_answer(self, text: str) -> None:
        self.open_field()
        self.field.insert_text_at_cursor(text)

    def choose(self, number: int) -> None:
        """Choose the line at this index. The first line after the choices opens the field for
        another answer. If several may be chosen, a choice is only ticked, and the last line sends
        the ticked choices and the text of the field.

        While the user writes in the field, its text is sent, whatever line is marked. If only one
        answer is allowed, a choice is sent without the text that may still be in the field.
        """
        choices, written = self._question.choices, self.field.value.strip()
        is_writing = self.field.has_focus or not choices
        if is_writing and written:
            self._answer((*self._ticked(), written))
        elif number == len(choices):
            self.open_field()
        elif not self._question.several:
            self._answer((choices[number],))
        elif number < len(choices):
            self.options.toggle_tick(number)
        else:
            answers = (*self._ticked(), written) if written else self._ticked()
            self._answer(answers)

    def _ticked(self) -> tuple[str, ...]:
        return tuple(self._question.choices[number] for number in sorted(self.options.ticked))

    def _answer(self, answers: tuple[str, ...]) -> None:
        self.post_message(self.Answered(self.question_id, Reply(answers)))

    def dismiss_question(self) -> bool:
        """Close the question with an empty answer. Always returns True."""
        self._answer(answers=())
        return True
