"""The questions of a turn: asked at the plain prompt, and answered to the session."""

from __future__ import annotations

import asyncio

from ouro.events import Event, PermissionAsked, QuestionAsked, QuestionClosed
from ouro.frontends.plain.questions import Questions, parse_permit, parse_reply
from ouro.session import Session


class Asker:
    """Asks what a turn asks, while its events go on."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._asking: dict[str, asyncio.Task[None]] = {}

    def take(self, event: Event, session: Session) -> bool:
        """Begin or end a question, where the event is one; True when one begins."""
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
        """Ask nothing more."""
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
