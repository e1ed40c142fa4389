"""ResumeOffer: the resume card at the plain prompt, and the choice of what to resume with."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from ouro.errors import OuroError
from ouro.frontends.plain.printer import Printer
from ouro.frontends.plain.questions import LineQuestions
from ouro.frontends.session_lines import card_choices, card_line, card_lines, now
from ouro.session import ResumeCard, Session, TurnQueue
from ouro.session.opening import Part
from ouro.utils.log import log


class ResumeOffer:
    """Prints the resume card in the background. A message that is typed instead of a choice resumes with everything.

    Args:
        at_rest: waits for the lines typed before, and returns whether nothing runs then.
        send: takes a line that was meant for the agent.
    """

    def __init__(
        self,
        printer: Printer,
        questions: LineQuestions,
        turns: TurnQueue,
        at_rest: Callable[[], Awaitable[bool]],
        send: Callable[[str], None],
    ) -> None:
        self._printer = printer
        self._questions = questions
        self._turns = turns
        self._at_rest = at_rest
        self._send = send
        self._card_task: asyncio.Task[None] | None = None

    def begin(self, session: Session) -> None:
        self.cancel()
        if session.resumed is not None:
            self._card_task = asyncio.create_task(self._show(session))

    def cancel(self) -> bool:
        """Stop; returns whether a card or its question was open."""
        was_open = self._card_task is not None and not self._card_task.done()
        if self._card_task is not None:
            self._card_task.cancel()
        return was_open

    async def _show(self, session: Session) -> None:
        try:
            card = await session.resumed.card() if session.resumed else None
        except (OuroError, OSError) as error:
            log.warning("the resume card: %s", error)
            return
        if card is None or not await self._at_rest() or self._turns.session is not session:
            return
        if card.is_long and sys.stdin.isatty():
            await self._ask(session, card)
        else:
            self._printer.say(card_line(card, now()))

    async def _ask(self, session: Session, card: ResumeCard) -> None:
        for name, words in card_lines(card, now()):
            self._printer.say(f"{name:<11} {words}")
        choices = card_choices(card)
        if len(choices) == 1:
            return
        self._printer.choices(
            "Resume with which part? Type a number, or your message.", [words for _, words in choices]
        )
        part, message = await self._questions.ask("> ", lambda line: _parse(line, [part for part, _ in choices]))
        if part != "full" and session.resumed is not None:
            self._turns.start(session.resumed.take(part))
        elif message:
            self._send(message)


def _parse(line: str, parts: list[Part]) -> tuple[Part, str]:
    """A number is a choice; any other text is a message, sent with the full session."""
    text = line.strip()
    if text.isdigit() and 1 <= int(text) <= len(parts):
        return parts[int(text) - 1], ""
    return "full", text and line
