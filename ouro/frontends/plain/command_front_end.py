"""ReplFrontEnd: the plain prompt as the commands see it."""

from __future__ import annotations

import base64
import sys
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ouro.commands.front_end import FrontEnd, choice_line
from ouro.display import Choice
from ouro.errors import OuroError, UsageError
from ouro.events import Event, Level, Prompted
from ouro.frontends.clipboard import SENT_TO_TERMINAL, copy_with_program
from ouro.frontends.plain.line_questions import LineQuestions, parse_choice
from ouro.frontends.plain.printer import Printer
from ouro.frontends.plain.session_list import ask_session
from ouro.frontends.session_format import LEFT_BRANCH
from ouro.frontends.welcome import is_first_start, welcome
from ouro.messages import Image
from ouro.session import Draft, Session, SessionCatalog, TurnQueue
from ouro.session.opening import OpenCatalog, OpenRequest, OpenSession, open_interactively

if TYPE_CHECKING:
    from ouro.frontends.plain.repl import Repl

_TURN_END_TIMEOUT = 1.0
"""Seconds for a running turn to end before another session is opened."""
REPLAYED_TURNS = 3
"""How many of the last turns are printed when a session is opened."""
_KEY_HELP = (
    ("Enter", "send; while a turn runs: steer it"),
    ("Alt+Enter, Ctrl+J, \\ Enter", "a new line"),
    ("Tab", "complete; while a turn runs: queue for the next turn"),
    ("Up", "prompt history; on empty input: edit the newest queued message"),
    ("Ctrl+C", "interrupt; at rest: clear, twice: quit"),
    ("Ctrl+D", "quit"),
    ("Shift+Tab", "the next mode: ask, edit, plan (/permissions auto: no questions)"),
    ("Ctrl+R", "search the prompt history"),
    ("Ctrl+G, Ctrl+X Ctrl+E", "write in your editor"),
)


@dataclass
class ReplFrontEnd(FrontEnd):
    """What commands can do at the plain prompt."""

    _open_session: OpenSession
    _open_catalog: OpenCatalog | None
    _printer: Printer
    _questions: LineQuestions
    _turns: TurnQueue
    _repl: Repl

    keys = (("Keys", _KEY_HELP),)

    @property
    def session(self) -> Session:
        assert self._turns.session is not None, "no session is open yet"
        return self._turns.session

    def show(self, markdown: str, page: str = "") -> None:  # noqa: ARG002 (for screens)
        self._printer.print_markdown(markdown)

    def say(self, text: str, level: Level = "info") -> None:
        self._printer.say(text, level)

    async def choose(self, title: str, choices: Sequence[Choice], current: str = "") -> str | None:
        """Print the choices with their numbers, and ask for one. Returns its value; None if the
        user enters an empty line.
        """
        values = [choice.value for choice in choices]
        self._printer.print_choices(title, [choice_line(choice, current) for choice in choices])
        return await self._questions.ask("number: ", lambda line: parse_choice(line, values))

    @property
    def queue(self) -> TurnQueue:
        return self._turns

    async def edit(self, text: str) -> str:
        return await self._repl.reader.edit(text)

    def show_again(self, draft: str = "", images: Sequence[Image] = ()) -> None:
        """Print the end of the transcript, and put the draft into the prompt. If the prompt cannot
        be filled, print the draft. The images of the draft are lost, and a warning says so.
        """
        self._replay(list(self.session.scrollback.shown_events()))
        self.redraw()
        if images:
            self.say(
                "The images of this message are lost: the plain prompt cannot send images.",
                "warning",
            )
        self._repl.undone_text = draft
        if draft and not self._repl.reader.fill(draft):
            self.say(f"The message was:\n{draft}")

    async def pick_session(
        self, session_catalog: SessionCatalog, only: Collection[str] = ()
    ) -> OpenRequest | None:
        return await ask_session(self._printer, self._questions, session_catalog, only)

    async def begin(self, request: OpenRequest) -> bool:
        """Open the first session, and at the first start of ouro welcome the user. Returns False if
        the user cancels. Raises OuroError if it cannot be opened.
        """
        greets = is_first_start() and sys.stdin.isatty()
        session = await self._open(request)
        if session is not None and greets and session.resumed is None:
            self.show(welcome(session))
        return session is not None

    async def open(self, request: OpenRequest) -> None:
        """Open another session and close this one. If the user cancels, this one stays. A running turn
        is interrupted first; messages that wait are for the session that is then open.
        """
        with self._turns.paused():
            await self._turns.finish_turn(timeout=_TURN_END_TIMEOUT)
            previous = self.session
            session = await self._open(request)
        if session is not None:
            await previous.close()

    async def go_to(self, message: int) -> None:
        """Print the transcript from the message with this number on. The message may have to be
        read from disk. If it does not exist, print the error and the end of the transcript.
        """
        try:
            position = await self.session.scrollback.reach(message)
        except OuroError as error:
            self.say(str(error), "error")
            self._replay(list(self.session.scrollback.shown_events()))
            return
        events = list(self.session.scrollback.shown_events())
        if position.is_left:
            self.say(LEFT_BRANCH, "warning")
        # `prompts` counts the user's messages from the end of the transcript.
        index_of_message = _prompt_indexes(events)[-position.prompts]
        self._printer.replay(events[index_of_message:])

    async def send(self, text: str) -> None:
        self._turns.say(Draft(text))

    async def run(self, events: AsyncGenerator[Event, None]) -> None:
        """Show events as the queue shows the events of a turn. If the queue is busy, the command
        that calls this was queued, and waits for the last event. Otherwise this returns at once,
        and the events are shown in the background.
        """
        if self._turns.running:
            self.say("Runs when the turn has ended.")
        if self._turns.busy:
            await self._turns.run(events)
        else:
            self._turns.start(events)

    def redraw(self) -> None:
        self._repl.redraw()

    async def detach(self) -> None:
        await self._repl.detach()

    def leave(self) -> None:
        self._repl.leave()

    def toggle_vim(self) -> str:
        return self._repl.toggle_vim()

    def copy(self, text: str) -> str:
        """Copy with a program, or if there is none with an escape sequence (OSC 52). Returns how
        the text was copied, in words for the user. Raises UsageError if neither is possible.
        """
        program_note = copy_with_program(text)
        if program_note:
            return program_note
        if self._printer.plain:
            raise UsageError("This terminal has no clipboard access. Use /export to write a file.")
        self._printer.write(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\a")
        return SENT_TO_TERMINAL

    async def ask(self, title: str, *, secret: bool = False, draft: str = "") -> str:  # noqa: ARG002 (for screens)
        self._printer.say(title)
        return await self._questions.ask("answer: ", str.strip, secret=secret)

    async def choose_open(
        self,
        title: str,
        choices: Sequence[Choice],
        *,
        esc: str = "closes",  # noqa: ARG002 (for screens)
        ctrl_c: str | None = None,  # noqa: ARG002 (for screens)
    ) -> str | None:
        return await self.choose(title, choices)

    async def pick_open(self, ids: Sequence[str]) -> OpenRequest | None:
        """Let the user pick a session whose id is in `ids`, or any session if `ids` is empty.
        Returns the request to open it; None if the user cancels. If there is no session and no
        catalog to pick from, returns the request of a new session.
        """
        if self._turns.session is not None:
            catalog = self._turns.session.session_catalog
        elif self._open_catalog is not None:
            catalog = await self._open_catalog()
        else:
            return OpenRequest()
        return await self.pick_session(catalog, only=ids)

    async def set_up_model(self) -> str:
        from ouro.commands.model_setup import set_up_and_test  # needed only without a model

        return await set_up_and_test(self)

    async def _open(self, request: OpenRequest) -> Session | None:
        """Open a session, and print its transcript: from the requested message on, or if none is
        requested the end. Returns None if the user cancels. With piped input the user is not asked,
        and an error is raised instead.
        """
        who_is_asked = self if sys.stdin.isatty() else None
        session = await open_interactively(
            self._open_session,
            request,
            who_is_asked,
            has_open_session=self._turns.session is not None,
        )
        if session is None:
            return None
        self._turns.attach(session)
        self._repl.begin_session(session)
        if request.message:
            await self.go_to(request.message)
        else:
            self._replay(list(session.scrollback.shown_events()))
        self.redraw()
        return session

    def _replay(self, events: Sequence[Event]) -> None:
        """Print the last turns of a transcript, and how many messages are before them."""
        starts = _prompt_indexes(events)
        left_out = len(starts) - REPLAYED_TURNS
        if left_out > 0:
            self.say(f"{left_out} earlier messages are not shown. Use /export to write all.")
            events = events[starts[-REPLAYED_TURNS] :]
        self._printer.replay(events)


def _prompt_indexes(events: Sequence[Event]) -> list[int]:
    """The indexes of the user's messages in `events`."""
    return [index for index, event in enumerate(events) if isinstance(event, Prompted)]
