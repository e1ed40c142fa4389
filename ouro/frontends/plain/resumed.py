"""The resume card at the plain prompt: a few lines, and a choice that a message answers, too."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from ouro.errors import OuroError
from ouro.frontends.plain.printer import Printer
from ouro.frontends.plain.questions import Questions
from ouro.frontends.plain.turns import Turns
from ouro.frontends.resume_lines import card_choices, card_line, card_lines
from ouro.frontends.session_lines import now
from ouro.session import ResumeCard, Session
from ouro.session.opening import Part
from ouro.utils.log import log


class ResumeOffer:
    """Tells of a session that was taken up again, beside the prompt: whoever writes meanwhile goes on with all of it.

    Args:
        at_rest: waits for what was typed before, and says whether nothing is at work then.
        hand_on: takes a line that was meant for the agent.
    """

    def __init__(
        self,
        printer: Printer,
        questions: Questions,
        turns: Turns,
        at_rest: Callable[[], Awaitable[bool]],
        hand_on: Callable[[str], None],
    ) -> None:
        self._printer = printer
        self._questions = questions
        self._turns = turns
        self._at_rest = at_rest
        self._hand_on = hand_on
        self._telling: asyncio.Task[None] | None = None

    def begin(self, session: Session) -> None:
        """Tell of this session, where it was taken up again."""
        self.cancel()
        if session.resumed is not None:
            self._telling = asyncio.create_task(self._tell(session))

    def cancel(self) -> bool:
        """Leave it; gives whether there was something to leave."""
        was_at_it = self._telling is not None and not self._telling.done()
        if self._telling is not None:
            self._telling.cancel()
        return was_at_it

    async def _tell(self, session: Session) -> None:
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
        self._printer.choices("How shall it go on? A number, or just your message.", [words for _, words in choices])
        part, message = await self._questions.ask("> ", lambda line: _parsed(line, [part for part, _ in choices]))
        if part != "full" and session.resumed is not None:
            self._turns.run(session.resumed.take(part))
        elif message:
            self._hand_on(message)


def _parsed(line: str, parts: list[Part]) -> tuple[Part, str]:
    """A number is a choice; all else is said to the agent, who then has all of it."""
    text = line.strip()
    if text.isdigit() and 1 <= int(text) <= len(parts):
        return parts[int(text) - 1], ""
    return "full", text and line
