"""LineQuestions: questions at the plain prompt, which the next typed line answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ouro.display import Question
from ouro.errors import UsageError
from ouro.events import (
    PLAN_QUESTION,
    Event,
    PermissionAsked,
    Permit,
    PermitChoice,
    QuestionAsked,
    QuestionClosed,
    Reply,
)
from ouro.frontends.plain.printer import Printer
from ouro.session import Session
from ouro.session.opening import Part
from ouro.session.plan_file import number_lines
from ouro.utils.text import clean, escape_invisible, one_line, whole_number

if TYPE_CHECKING:
    from ouro.session.plan_approval import PlanApproval

T = TypeVar("T")
_PERMIT_ANSWER = re.compile(
    r"(y|yes|s|session|a|always|n|no|d|deny)(?:[\s,:;.]+(.*))?\Z", re.IGNORECASE | re.DOTALL
)
"""A choice and a text for the model, such as `n, use the other file`."""
_CHOICE_LABELS: Mapping[PermitChoice, str] = {
    "yes": "y yes",
    "session": "s yes, for this session",
    "edits": "s yes, and all edits in this session",
    "always": "a always: {rule}",
    "stop": "n no, stop",
    "no": "d no, continue",
}
"""The printed label of each choice, which begins with its letter."""
_CHOICES_BY_LETTER: Mapping[str, tuple[PermitChoice, ...]] = {
    "y": ("yes",),
    "s": ("edits", "session"),
    "a": ("always",),
    "n": ("stop", "no"),
    "d": ("no",),
}
"""The choices that a typed letter may mean. The first one that the question offers counts."""
_PLAN_HINT = (
    "a number, or what to change; e: your editor; l: line numbers, then `3: text` comments on line"
    " 3; empty line: stay in plan mode"
)


class NotUnderstood(ValueError):
    """The line does not answer the question; the message says what to type."""


@dataclass(frozen=True, slots=True)
class OpenQuestion(Generic[T]):
    """A question that waits for a typed line."""

    label: str
    """The text before the cursor."""
    parse: Callable[[str], T]
    answer: asyncio.Future[T]
    secret: bool = False
    """Whether the typed text is not shown."""


class LineQuestions:
    """Open questions in their order; only the first is asked."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """`on_change` is called when the question that is asked now changes."""
        self._unanswered: list[OpenQuestion[Any]] = []
        """The open questions, in the order in which they are asked."""
        self._on_change = on_change
        self._question_added = asyncio.Event()
        """Set when a question is added; `wait_for_question` resets it."""

    @property
    def open(self) -> OpenQuestion[Any] | None:
        """The question that is asked now; None if there is none."""
        unanswered = (question for question in self._unanswered if not question.answer.done())
        return next(unanswered, None)

    async def ask(self, label: str, parse: Callable[[str], T], *, secret: bool = False) -> T:
        """Ask a question when all earlier questions are answered. Returns what `parse` makes of the
        typed line. If `parse` raises NotUnderstood, the line is no answer, and the question stays
        open.

        Args:
            label: the text before the cursor.
            secret: whether the typed text is not shown.
        """
        question = OpenQuestion(label, parse, asyncio.get_running_loop().create_future(), secret)
        self._unanswered.append(question)
        self._question_added.set()
        self._on_change()
        try:
            answer: T = await question.answer
            return answer
        finally:
            self._unanswered.remove(question)
            self._on_change()

    async def wait_for_question(self, *work: Awaitable[Any]) -> None:
        """Wait until all `work` is done, or until the next question is asked. In both cases the
        work itself continues.
        """
        self._question_added.clear()
        question_added = asyncio.ensure_future(self._question_added.wait())
        done = asyncio.gather(*(asyncio.shield(item) for item in work), return_exceptions=True)
        try:
            await asyncio.wait((question_added, done), return_when=asyncio.FIRST_COMPLETED)
        finally:
            question_added.cancel()
            done.cancel()
            await asyncio.gather(question_added, done, return_exceptions=True)

    def answer_with(self, line: str) -> str:
        """Answer the open question with a line. Returns a hint for the user if the line is no answer;
        empty if it is one, or if no question is open.
        """
        question = self.open
        if question is None:
            return ""
        try:
            question.answer.set_result(question.parse(line))
        except NotUnderstood as error:
            return str(error)
        return ""


def parse_permit(line: str, choices: Sequence[PermitChoice]) -> Permit:
    """Read a line that answers a permission question: a letter or word of a choice, and after it an
    optional text for the model. `choices` are the choices that the question offers. Raises
    NotUnderstood if the line is none of them.
    """
    match = _PERMIT_ANSWER.match(line.strip())
    if match is None:
        raise NotUnderstood(
            "Type y (yes), s (for this session), a (always), n (no) or d (no, continue); text"
            " after the letter goes to the model."
        )
    letter, comment = match[1][0].lower(), (match[2] or "").strip()
    if letter == "n" and comment:  # not `stop`: the agent continues with what the user says
        return Permit("no", comment)
    for choice in _CHOICES_BY_LETTER[letter]:
        if choice in choices:
            return Permit(choice, comment)
    raise NotUnderstood("There is no rule for this call. Type y (yes) or n (no).")


def parse_reply(line: str, question: Question) -> Reply:
    """Read a line that answers a question. Numbers, such as `1` or `1, 3`, are the choices with
    these numbers. Any other text is an answer of the user's own, and so is a number if the question
    has no choices. An empty line is a reply without answers.

    Raises NotUnderstood for a number that is none of the choices, and for several numbers if the
    question allows only one answer.
    """
    text = line.strip()
    if not text:
        return Reply(answers=())
    words = text.split("," if "," in text else None)
    numbers = [number for word in words if (number := whole_number(word.strip())) is not None]
    if len(numbers) < len(words):
        return Reply((text,))
    if len(numbers) > 1 and not question.several:
        raise NotUnderstood("Choose only one.")
    choices = question.choices
    if not choices:
        return Reply((text,))
    if min(numbers) < 1 or max(numbers) > len(choices):
        raise NotUnderstood(f"Type a number from 1 to {len(choices)}, or your own answer.")
    return Reply(tuple(choices[number - 1] for number in numbers))


def parse_choice(line: str, values: Sequence[str]) -> str | None:
    """Read a line that names one of `values`: by its number from 1, by the whole value, or by the
    beginning of one value. Returns the value; None for an empty line. Raises NotUnderstood if the
    line names no value, or is the beginning of several.
    """
    text = line.strip()
    if not text:
        return None
    number = whole_number(text)
    if number is not None and 1 <= number <= len(values):
        return values[number - 1]
    if text in values:
        return text
    matching_values = [value for value in values if value.startswith(text)]
    if len(matching_values) == 1:
        return matching_values[0]
    raise NotUnderstood(f"Type a number from 1 to {len(values)}, or an empty line to cancel.")


class TurnQuestions:
    """Asks the questions of a session at the prompt, and passes the answers to it."""

    def __init__(
        self, questions: LineQuestions, printer: Printer, edit: Callable[[str], Awaitable[str]]
    ) -> None:
        """`edit` lets the user edit a text in an editor, and returns it."""
        self._questions = questions
        self._edit = edit
        self._printer = printer
        self._question_tasks: dict[str, asyncio.Task[None]] = {}
        """The tasks that wait for the answers, by the ids of the questions."""

    def handle_event(self, event: Event, session: Session) -> bool:
        """Handle an event about questions: print and ask a new question, or end one that was
        closed. Returns whether a question was asked; False for any other event.
        """
        if isinstance(event, QuestionClosed):
            if task := self._question_tasks.pop(event.question_id, None):
                task.cancel()
            return False
        if isinstance(event, PermissionAsked):
            self._print_permission(event)
        elif isinstance(event, QuestionAsked):
            self._print_question(event)
        else:
            return False
        self._question_tasks[event.question_id] = asyncio.create_task(self._ask(event, session))
        return True

    def close(self) -> None:
        """Cancel the open questions, without answers."""
        for task in self._question_tasks.values():
            task.cancel()
        self._question_tasks.clear()

    def _print_permission(self, event: PermissionAsked) -> None:
        """Print what a call would do, why the user is asked, and the choices."""
        self._printer.calls_with_shown_diff.add(event.call.id)
        self._printer.print_line(f"? {escape_invisible(one_line(event.title))}", "bold yellow")
        self._printer.print_question_body(event.display)
        self._printer.print_line(f"  {escape_invisible(event.shown_reason)}", "dim")
        labels = " · ".join(_CHOICE_LABELS[choice] for choice in event.choices)
        choices = labels.format(rule=escape_invisible(event.rule))
        self._printer.print_line(f"  {choices}    (text after the letter goes to the model)")

    def _print_question(self, event: QuestionAsked) -> None:
        """Print a question of the model with its choices, and how it is answered."""
        question = event.question
        self._printer.print_markdown(question.text)
        if question.details:
            self._printer.print_markdown(question.details)
        self._printer.print_choices("", question.choices)
        if event.question_id.startswith(PLAN_QUESTION):
            self._printer.print_line(f"  {_PLAN_HINT}", "dim")
            return
        hint = ""
        if question.choices:
            numbers = "numbers" if question.several else "a number"
            hint = f"  {numbers}, or your own answer; empty line: no answer"
        self._printer.print_line(hint, "dim")

    async def _ask(self, event: PermissionAsked | QuestionAsked, session: Session) -> None:
        """Ask for the answer to a printed question, and pass it to the session."""
        answer: Permit | Reply
        if isinstance(event, PermissionAsked):
            letters = "/".join(_CHOICE_LABELS[choice][0] for choice in event.choices)
            answer = await self._questions.ask(
                f"{letters}? ", lambda line: parse_permit(line, event.choices)
            )
        elif event.question_id.startswith(PLAN_QUESTION):
            answer = await self._ask_about_plan(event.question, session.plan)
        else:
            answer = await self._questions.ask(
                "answer: ", lambda line: parse_reply(line, event.question)
            )
        session.answer(event.question_id, answer)

    async def _ask_about_plan(self, question: Question, plan: PlanApproval) -> Reply:
        """Ask until the user decides about a plan. Before that, `e` edits the plan, and `l` shows
        it with line numbers.
        """
        while True:
            reply = await self._questions.ask("answer: ", lambda line: parse_reply(line, question))
            word = reply.answers[0].lower() if reply.answers else ""
            if word not in ("e", "l"):
                return reply
            if word == "l":
                self._printer.print_line(clean(number_lines(plan.text)), "dim")
                continue
            try:
                self._printer.print_markdown(plan.change(await self._edit(plan.text)))
            except (UsageError, OSError) as error:
                self._printer.say(str(error), "warning")


def parse_part(line: str, parts: list[Part]) -> tuple[Part, str]:
    """Read a line that answers the resume card. Returns the part with which to resume, and a message.
    The number of a part gives that part and no message. Any other text is the message, and the part is
    `full`. An empty line gives `full` and no message.
    """
    text = line.strip()
    number = whole_number(text)
    if number is not None and 1 <= number <= len(parts):
        return parts[number - 1], ""
    message = line if text else ""
    return "full", message
