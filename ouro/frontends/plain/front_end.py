"""ReplFrontEnd: the plain prompt as the commands see it."""

from __future__ import annotations

import base64
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ouro.commands.front_end import WayBack
from ouro.commands.rewind import choose_from_list
from ouro.display import Choice
from ouro.errors import NoModelError, OuroError, SessionInUse, SeveralSessions, TrustNeeded, UsageError
from ouro.events import Event, Level, Prompted
from ouro.frontends.plain.printer import Printer
from ouro.frontends.plain.questions import LineQuestions, parse_choice
from ouro.frontends.plain.session_question import SessionQuestion
from ouro.frontends.plain.turns import PlainTurns
from ouro.frontends.session_lines import LEFT_BRANCH
from ouro.messages import Image
from ouro.session import OpenRequest, Session, SessionCatalog
from ouro.session.opening import PICK
from ouro.utils.text import one_line

if TYPE_CHECKING:
    from ouro.frontends.plain.repl import Repl

OpenSession = Callable[[OpenRequest], Awaitable[Session]]
OpenCatalog = Callable[[], Awaitable[SessionCatalog]]
SHOWN_AGAIN = 3
"""User messages, with their turns, that are printed on resume."""
TRUST = (
    Choice("yes", "yes: trust this folder, now and later"),
    Choice("no", "no: work here, ignore these files"),
    Choice("quit", "quit"),
)
IN_USE = (
    Choice("read", "read-only: new messages are not saved"),
    Choice("copy", "open a copy: the session stays unchanged"),
)
KEYS = (
    ("Enter", "send; while a turn runs: steer it"),
    ("Alt+Enter, Ctrl+J, \\ Enter", "a new line"),
    ("Tab", "complete; while a turn runs: queue for the next turn"),
    ("Up", "prompt history; while a turn runs: edit the newest queued message"),
    ("Ctrl+C", "interrupt; at rest: clear, twice: quit"),
    ("Ctrl+D", "quit"),
    ("Shift+Tab", "the next mode: ask, edit, plan, auto"),
    ("Ctrl+R", "search the prompt history"),
    ("Ctrl+G, Ctrl+X Ctrl+E", "write in your editor"),
)


class ReplFrontEnd:
    """What commands can do at the plain prompt."""

    theme = ""
    themes: Sequence[str] = ()
    keys: Sequence[tuple[str, str]] = KEYS

    def __init__(
        self,
        open_session: OpenSession,
        open_catalog: OpenCatalog | None,
        printer: Printer,
        questions: LineQuestions,
        turns: PlainTurns,
        repl: Repl,
    ) -> None:
        self._open_session = open_session
        self._open_catalog = open_catalog
        self._printer = printer
        self._questions = questions
        self._turns = turns
        self._repl = repl

    @property
    def session(self) -> Session:
        return self._turns.session

    def set_theme(self, name: str) -> None:
        """Do nothing: the terminal sets the colours."""

    def show(self, markdown: str) -> None:
        self._printer.markdown(markdown)

    def say(self, text: str, level: Level = "info") -> None:
        self._printer.say(text, level)

    async def choose(self, title: str, choices: Sequence[Choice], current: str = "") -> str | None:
        """Print the choices with numbers, and wait for one."""
        values = [choice.value for choice in choices]
        self._printer.choices(title, [_label(choice, bool(current) and choice.value == current) for choice in choices])
        return await self._questions.ask("number: ", lambda line: parse_choice(line, values))

    async def choose_way_back(self) -> WayBack | None:
        """Print the earlier messages with numbers, and wait for one."""
        return await choose_from_list(self)

    def show_again(self, draft: str = "", images: Sequence[Image] = ()) -> None:
        """Print the end of the transcript, and put the draft into the prompt. Images cannot be sent again."""
        self._replay(list(self.session.history()))
        self.redraw()
        if images:
            self.say("The images of this message are lost: the plain prompt cannot send images.", "warning")
        if draft and not self._repl.fill(draft):
            self.say(f"The message was:\n{draft}")

    async def pick_session(
        self, session_catalog: SessionCatalog, search: str = "", only: Collection[str] = ()
    ) -> OpenRequest | None:
        """Print the sessions with numbers, and wait for one."""
        return await SessionQuestion(self._printer, self._questions, session_catalog).ask(search, only)

    async def begin(self, request: OpenRequest) -> bool:
        """Open the first session; returns False when the user cancels.

        Raises:
            OuroError: it cannot be opened.
        """
        session = await self._open_trusted(request)
        if session is not None:
            await self._use(session, request.message)
        return session is not None

    async def open(self, request: OpenRequest) -> None:
        """Open another session in place of this one."""
        before = self.session
        opened = await self._open_trusted(request)
        if opened is not None:
            await self._use(opened, request.message)
            await before.close()

    async def go_to(self, message: int) -> None:
        """Print the transcript from this message on."""
        try:
            reached = await self.session.scrollback.reach(message)
        except OuroError as error:
            self.say(str(error), "error")
            self._replay(list(self.session.history()))
            return
        events = list(self.session.history())
        starts = [place for place, event in enumerate(events) if isinstance(event, Prompted)]
        if reached.is_left:
            self.say(LEFT_BRANCH, "warning")
        self._printer.replay(events[starts[-reached.prompts] :])

    async def send(self, text: str) -> None:
        """Send a message, or steer the running turn with it."""
        self._turns.submit(text)

    async def run(self, events: AsyncGenerator[Event, None]) -> None:
        """Print these events as a turn."""
        if self._turns.is_busy:
            raise UsageError("A turn is running. Try again when it has ended.")
        self._turns.run(events)

    async def browse_memory(self) -> bool:
        """Always False: the plain prompt prints lists instead."""
        return False

    def redraw(self) -> None:
        self._repl.redraw()

    def leave(self) -> None:
        self._repl.leave()

    def copy(self, text: str) -> None:
        """Copy with OSC 52.

        Raises:
            UsageError: the terminal is a plain one.
        """
        if self._printer.is_plain:
            raise UsageError("This terminal has no clipboard access. Use /export to write a file.")
        self._printer.control(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\a")

    async def edit(self, _text: str) -> str:
        """Not possible: the plain prompt keeps reading lines while an editor would need the terminal.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "The plain prompt cannot open an editor.",
            "Edit the file itself: ouro reads it again with your next message.",
        )

    async def ask(self, title: str, *, secret: bool = False) -> str:
        """A line of text; may be empty."""
        self._printer.say(title)
        return await self._questions.ask("answer: ", str.strip, secret=secret)

    async def _open_trusted(self, request: OpenRequest) -> Session | None:
        """A session; None when the user cancels. Piped input is asked nothing: the error is raised."""
        while True:
            try:
                if request.resume == PICK:
                    raise SeveralSessions("", "", ())
                return await self._open_session(request)
            except SeveralSessions as several:
                if not sys.stdin.isatty() and several.message:
                    raise
                picked = await self._pick(request, several.ids)
                if picked is None:
                    return None
                request = picked
            except SessionInUse as error:
                if not sys.stdin.isatty():
                    raise
                self.say(error.message, "warning")
                answer = await self.choose("Open it how?", IN_USE)
                if answer is None:
                    return None
                request = replace(request, read_only=answer == "read", fork=answer == "copy")
            except TrustNeeded as needed:
                if not sys.stdin.isatty():
                    raise
                self.say(str(needed), "warning")
                answer = await self.choose("Do you trust this folder?", TRUST)
                if answer not in ("yes", "no"):
                    return None
                request = replace(request, trust="yes" if answer == "yes" else "no")
            except NoModelError as error:
                if not sys.stdin.isatty() or not await self._set_up_a_model(error):
                    raise

    async def _pick(self, request: OpenRequest, ids: Sequence[str]) -> OpenRequest | None:
        if self._turns.has_session:
            session_catalog = self.session.session_catalog
        elif self._open_catalog is not None:
            session_catalog = await self._open_catalog()
        else:
            return OpenRequest()
        picked = await self.pick_session(session_catalog, only=ids)
        return picked and replace(request, resume=picked.resume, fork=request.fork or picked.fork)

    async def _set_up_a_model(self, error: NoModelError) -> bool:
        """Offer the set-up; returns True when a model was set up."""
        from ouro.commands.setup import set_up  # the catalog and YAML, which only a first start needs here

        self.say(str(error), "warning")
        if not await self.choose("Set up a model now?", (Choice("yes", "yes"), Choice("", "quit"))):
            return False
        return bool(await set_up(self))

    async def _use(self, session: Session, message: int) -> None:
        self._turns.use(session)
        self._repl.session_opened(session)
        for notice in session.notices:
            self.say(notice, "warning")
        if message:
            await self.go_to(message)
        else:
            self._replay(list(session.history()))
        self.redraw()

    def _replay(self, events: Sequence[Event]) -> None:
        starts = [place for place, event in enumerate(events) if isinstance(event, Prompted)]
        if len(starts) > SHOWN_AGAIN:
            self.say(f"{len(starts) - SHOWN_AGAIN} earlier messages are not shown. Use /export to write all.")
            events = events[starts[-SHOWN_AGAIN] :]
        self._printer.replay(events)


def _label(choice: Choice, is_current: bool) -> str:
    detail = f" — {choice.detail}" if choice.detail else ""
    return one_line(f"{choice.label}{' (in use)' if is_current else ''}{detail}")
