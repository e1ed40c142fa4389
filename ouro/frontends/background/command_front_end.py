"""HostFrontEnd: the viewers of a background session, as the commands see them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import TYPE_CHECKING

from ouro import events
from ouro.commands.front_end import FrontEnd, choice_line
from ouro.display import Choice, Question
from ouro.errors import UsageError
from ouro.events import Event, Level
from ouro.messages import Image
from ouro.session import Draft, OpenRequest, Session, SessionCatalog, TurnQueue
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.frontends.background.host import SessionHost

NO_SCREEN = "This session runs on its own."


class HostFrontEnd(FrontEnd):
    """What commands can do in a background session."""

    def __init__(self, host: SessionHost) -> None:
        self._host = host
        self._numbers = itertools.count(1)

    @property
    def session(self) -> Session:
        return self._host.session

    @property
    def queue(self) -> TurnQueue:
        return self._host.turns

    def show(self, markdown: str, page: str = "") -> None:
        self._host.show_text(markdown, page)

    def say(self, text: str, level: Level = "info") -> None:
        self._host.show(events.Notice(text, level))

    async def choose(self, title: str, choices: Sequence[Choice], current: str = "") -> str | None:
        """Ask all viewers, also viewers that come later. The first answer counts. Returns the value
        of the choice; None if the question was dismissed, or the answer is not a choice.
        """
        labels = [clean(choice_line(choice, current)) for choice in choices]
        question = Question(clean(title), tuple(labels))
        answer = await self.session.turn.tasks.ask(f"choice:{next(self._numbers)}", question)
        if not isinstance(answer, events.Reply) or not answer.answers:
            return None
        answer_text = answer.answers[0]  # a label on a screen, a value from `ouro agents answer`
        for choice, label in zip(choices, labels, strict=True):
            if answer_text in (label, choice.value):
                return choice.value
        return None

    def show_again(self, draft: str = "", images: Sequence[Image] = ()) -> None:  # noqa: ARG002 (they stay in the session)
        self._host.show_again(draft)

    async def pick_session(
        self,
        session_catalog: SessionCatalog,  # noqa: ARG002 (as FrontEnd names it)
        only: Collection[str] = (),  # noqa: ARG002
    ) -> OpenRequest | None:
        raise UsageError(NO_SCREEN, "Use `ouro --resume` in a terminal.")

    async def open(self, request: OpenRequest) -> None:  # noqa: ARG002
        raise UsageError(NO_SCREEN, "Start another one: `ouro`, or `ouro --bg`.")

    async def go_to(self, message: int) -> None:
        raise UsageError(f"{NO_SCREEN} Message {message} cannot be shown.")

    async def send(self, text: str) -> None:
        self._host.turns.queue(Draft(text))

    async def run(self, events: AsyncGenerator[Event, None]) -> None:
        await self._host.turns.run(events)

    def copy(self, text: str) -> str:  # noqa: ARG002 (as FrontEnd names it)
        raise UsageError("Copy it with your terminal: the session runs in another process.")

    def redraw(self) -> None:
        self._host.send_state_soon()

    def leave(self) -> None:
        raise UsageError(
            "This session runs in the background.", commands=["agents stop", "attach --help"]
        )
