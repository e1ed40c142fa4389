"""ReplFrontEnd: the plain prompt as the commands see it."""

from __future__ import annotations

import base64
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ouro.commands.front_end import FrontEnd, choice_line
from ouro.display import Choice
from ouro.errors import OuroError, UsageError
from ouro.events import Event, Level, Prompted
from ouro.frontends.clipboard import SENT_TO_TERMINAL, copy_with_program
from ouro.frontends.plain.printer import Printer
from ouro.frontends.plain.questions import LineQuestions, ask_session, parse_choice
from ouro.frontends.session_lines import LEFT_BRANCH
from ouro.frontends.welcome import is_first_start, welcome
from ouro.messages import Image
from ouro.session import Draft, OpenRequest, Session, SessionCatalog, TurnQueue, open_interactively

if TYPE_CHECKING:
    from ouro.frontends.plain.repl import Repl

OpenSession = Callable[[OpenRequest], Awaitable[Session]]
OpenCatalog = Callable[[], Awaitable[SessionCatalog]]
SHOWN_AGAIN = 3
"""User messages, with their turns, that are printed on resume."""
_KEYS = (
    ("Enter", "send; while a turn runs: steer it"),
    ("Alt+Enter, Ctrl+J, \\ Enter", "a new line"),
    ("Tab", "complete; while a turn runs: queue for the next turn"),
    ("Up", "prompt history; on empty input: edit the newest queued message"),
    ("Ctrl+C", "interrupt; at rest: clear, twice: quit"),
    ("Ctrl+D", "quit"),
    ("Shift+Tab", "the next mode: ask, edit, plan, auto"),
    ("Ctrl+R", "search the prompt history"),
    ("Ctrl+G, Ctrl+X Ctrl+E", "write in your editor"),
)


@dataclass
class ReplFrontEnd(FrontEnd):
    _open_session: OpenSession
    _open_catalog: OpenCatalog | None
    _printer: Printer
    _questions: LineQuestions
    _turns: TurnQueue
    _repl: Repl

    keys = (("Keys", _KEYS),)

    @property
    def session(self) -> Session:
        assert self._turns.session is not None, "no session is open yet"
        return self._turns.session

    def show(self, markdown: str) -> None:
        self._printer.markdown(markdown)

    def say(self, text: str, level: Level = "info") -> None:
        self._printer.say(text, level)

    async def choose(
        self,
        title: str,
        choices: Sequence[Choice],
        current: str = "",
        preview: Callable[[str], None] = lambda _value: None,  # noqa: ARG002 (a line marks nothing)
    ) -> str | None:
        values = [choice.value for choice in choices]
        self._printer.choices(title, [choice_line(choice, current) for choice in choices])
        return await self._questions.ask("number: ", lambda line: parse_choice(line, values))

    def show_again(self, draft: str = "", images: Sequence[Image] = ()) -> None:
        """Print the end of the transcript, and put the draft into the prompt. Images of the draft are lost."""
        self._replay(list(self.session.scrollback.shown()))
        self.redraw()
        if images:
            self.say("The images of this message are lost: the plain prompt cannot send images.", "warning")
        if draft and not self._repl.reader.fill(draft):
            self.say(f"The message was:\n{draft}")

    async def pick_session(self, session_catalog: SessionCatalog, only: Collection[str] = ()) -> OpenRequest | None:
        return await ask_session(self._printer, self._questions, session_catalog, only)

    async def begin(self, request: OpenRequest) -> bool:
        """Open the first session; returns False when the user cancels.

        Raises:
            OuroError: it cannot be opened.
        """
        greets = is_first_start() and sys.stdin.isatty()
        session = await self._open_interactively(request)
        if session is not None:
            await self._use(session, request.message)
            if greets and session.resumed is None:
                self.show(welcome(session))
        return session is not None

    async def open(self, request: OpenRequest) -> None:
        before = self.session
        opened = await self._open_interactively(request)
        if opened is not None:
            await self._use(opened, request.message)
            await before.close()

    async def go_to(self, message: int) -> None:
        try:
            reached = await self.session.scrollback.reach(message)
        except OuroError as error:
            self.say(str(error), "error")
            self._replay(list(self.session.scrollback.shown()))
            return
        events = list(self.session.scrollback.shown())
        starts = [place for place, event in enumerate(events) if isinstance(event, Prompted)]
        if reached.is_left:
            self.say(LEFT_BRANCH, "warning")
        self._printer.replay(events[starts[-reached.prompts] :])

    async def send(self, text: str) -> None:
        self._turns.say(Draft(text))

    async def run(self, events: AsyncGenerator[Event, None]) -> None:
        if self._turns.running:
            self.say("Runs when the turn has ended.")
        if self._turns.busy:  # the command was itself queued
            await self._turns.run(events)
        else:
            self._turns.start(events)

    def redraw(self) -> None:
        self._repl.redraw()

    def leave(self) -> None:
        self._repl.leave()

    def copy(self, text: str) -> str:
        if how := copy_with_program(text):
            return how
        if self._printer.plain:
            raise UsageError("This terminal has no clipboard access. Use /export to write a file.")
        self._printer.write(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\a")
        return SENT_TO_TERMINAL

    async def ask(self, title: str, *, secret: bool = False, draft: str = "") -> str:  # noqa: ARG002 (for screens)
        self._printer.say(title)
        return await self._questions.ask("answer: ", str.strip, secret=secret)

    async def _open_interactively(self, request: OpenRequest) -> Session | None:
        # With piped input nobody can answer: the error is raised.
        return await open_interactively(self._open_session, request, self if sys.stdin.isatty() else None)

    async def choose_open(self, title: str, choices: Sequence[Choice]) -> str | None:
        return await self.choose(title, choices)

    async def pick_open(self, ids: Sequence[str]) -> OpenRequest | None:
        if self._turns.session is not None:
            catalog = self._turns.session.session_catalog
        elif self._open_catalog is not None:
            catalog = await self._open_catalog()
        else:
            return OpenRequest()
        return await self.pick_session(catalog, only=ids)

    async def set_up_model(self) -> str:
        from ouro.commands.models import set_up  # needed only without a model

        return await set_up(self)

    async def _use(self, session: Session, message: int) -> None:
        self._turns.attach(session)
        self._repl.begin_session(session)
        for notice in session.notices:
            self.say(notice, "warning")
        if message:
            await self.go_to(message)
        else:
            self._replay(list(session.scrollback.shown()))
        self.redraw()

    def _replay(self, events: Sequence[Event]) -> None:
        starts = [place for place, event in enumerate(events) if isinstance(event, Prompted)]
        if len(starts) > SHOWN_AGAIN:
            self.say(f"{len(starts) - SHOWN_AGAIN} earlier messages are not shown. Use /export to write all.")
            events = events[starts[-SHOWN_AGAIN] :]
        self._printer.replay(events)
