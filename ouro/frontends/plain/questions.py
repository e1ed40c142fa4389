"""LineQuestions of the plain prompt: the next typed line answers the open question."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ouro.display import Question
from ouro.events import Event, PermissionAsked, Permit, QuestionAsked, QuestionClosed, Reply
from ouro.session import Session

T = TypeVar("T")
_PERMIT = re.compile(r"(y|yes|1|a|always|2|n|no|3)(?:[\s,:;.]+(.*))?\Z", re.IGNORECASE | re.DOTALL)


class NotUnderstood(ValueError):
    """The line does not answer the question; the message says what does."""


@dataclass(frozen=True, slots=True)
class OpenQuestion(Generic[T]):
    label: str
    """The text before the cursor."""
    parse: Callable[[str], T]
    answer: asyncio.Future[T]
    secret: bool = False
    """The typed text is not shown."""


class LineQuestions:
    """Open questions in their order; only the first is asked."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._waiting: list[OpenQuestion[Any]] = []
        self._changed = changed
        self._asked = asyncio.Event()

    @property
    def open(self) -> OpenQuestion[Any] | None:
        return next((question for question in self._waiting if not question.answer.done()), None)

    async def ask(self, label: str, parse: Callable[[str], T], *, secret: bool = False) -> T:
        """Wait for a line that `parse` understands."""
        question = OpenQuestion(label, parse, asyncio.get_running_loop().create_future(), secret)
        self._waiting.append(question)
        self._asked.set()
        self._changed()
        try:
            answer: T = await question.answer
            return answer
        finally:
            self._waiting.remove(question)
            if self.open is None:
                self._asked.clear()
            self._changed()

    async def or_asked(self, *work: Awaitable[Any]) -> None:
        """Wait until all of the work is done, or a question is open."""
        asked = asyncio.ensure_future(self._asked.wait())
        done = asyncio.gather(*(asyncio.shield(item) for item in work), return_exceptions=True)
        try:
            await asyncio.wait((asked, done), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            done.cancel()
            await asyncio.gather(asked, done, return_exceptions=True)

    def take(self, line: str) -> str:
        """Answer the open question; returns a hint when the line does not answer it."""
        question = self.open
        if question is None:
            return ""
        try:
            question.answer.set_result(question.parse(line))
        except NotUnderstood as error:
            return str(error)
        if self.open is None:
            self._asked.clear()
        return ""


def parse_permit(line: str, rule: str) -> Permit:
    """`y`, `a` or `n`, with a comment after it."""
    match = _PERMIT.match(line.strip())
    if match is None:
        raise NotUnderstood("Type y (yes), a (always) or n (no); text after the letter goes to the model.")
    letter, comment = match[1][0].lower(), (match[2] or "").strip()
    if letter in "a2" and not rule:
        raise NotUnderstood("There is no rule to save for this call. Type y (yes) or n (no).")
    return Permit("yes" if letter in "y1" else "always" if letter in "a2" else "no", comment)


def parse_reply(line: str, question: Question) -> Reply:
    """Numbers of choices, or an answer in words; an empty line is no answer."""
    words = line.split("," if "," in line else None)
    if words and all(word.strip().isdigit() for word in words):
        numbers = [int(word) for word in words]
        if len(numbers) > 1 and not question.several:
            raise NotUnderstood("Choose only one.")
        if not question.choices:
            return Reply((line.strip(),))
        if not all(1 <= number <= len(question.choices) for number in numbers):
            raise NotUnderstood(f"Type a number from 1 to {len(question.choices)}, or your own answer.")
        return Reply(tuple(question.choices[number - 1] for number in numbers))
    return Reply((line.strip(),) if line.strip() else ())


def parse_choice(line: str, values: Sequence[str]) -> str | None:
    """A number or the start of a value; None for an empty line."""
    text = line.strip()
    if not text:
        return None
    if text.isdigit() and 1 <= int(text) <= len(values):
        return values[int(text) - 1]
    starting = [value for value in values if value.startswith(text)]
    if text in values or len(starting) == 1:
        return text if text in values else starting[0]
    raise NotUnderstood(f"Type a number from 1 to {len(values)}, or an empty line to cancel.")


class TurnQuestions:
    """Asks the questions of a turn at the prompt and answers them to the session."""

    def __init__(self, questions: LineQuestions) -> None:
        self._questions = questions
        self._asking: dict[str, asyncio.Task[None]] = {}

    def take(self, event: Event, session: Session) -> bool:
        """Start or end a question, if the event is one; returns True when one starts."""
        match event:
            case PermissionAsked():
                self._asking[event.question_id] = asyncio.create_task(self._permission(event, session))
                return True
            case QuestionAsked():
                self._asking[event.question_id] = asyncio.create_task(self._question(event, session))
                return True
            case QuestionClosed():
                if task := self._asking.pop(event.question_id, None):
                    task.cancel()
                return False
            case _:
                return False

    def close(self) -> None:
        for task in self._asking.values():
            task.cancel()
        self._asking.clear()

    async def _permission(self, event: PermissionAsked, session: Session) -> None:
        letters = "y/a/n" if event.rule else "y/n"
        permit = await self._questions.ask(f"{letters}? ", lambda line: parse_permit(line, event.rule))
        session.answer(event.question_id, permit)

    async def _question(self, event: QuestionAsked, session: Session) -> None:
        reply = await self._questions.ask("answer: ", lambda line: parse_reply(line, event.question))
        session.answer(event.question_id, reply)
