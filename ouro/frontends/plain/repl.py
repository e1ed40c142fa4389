"""Repl: the plain prompt, which shows a session in the terminal's own scrollback."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ouro.commands.mode import next_mode, set_mode
from ouro.commands.models import next_effort
from ouro.commands.slash import dispatch
from ouro.errors import AttachRequested, DemoRequested, OuroError, UsageError
from ouro.events import Event, Outcome, PermissionAsked, Permit, QuestionAsked
from ouro.frontends.drafts import DraftSaver, join_unsent
from ouro.frontends.headless.input import handle_signals
from ouro.frontends.plain.command_front_end import ReplFrontEnd
from ouro.frontends.plain.line_questions import LineQuestions, TurnQuestions, parse_part
from ouro.frontends.plain.line_reader import LineReader
from ouro.frontends.plain.printer import Printer
from ouro.frontends.session_format import (
    ITEMS_WITH_SCRIPT,
    card_choices,
    card_line,
    card_lines,
    now,
    script_state,
    status_items,
)
from ouro.session import (
    Draft,
    OpenCatalog,
    OpenRequest,
    OpenSession,
    Resumed,
    Session,
    TurnObserver,
    TurnQueue,
)
from ouro.settings import TuiSettings
from ouro.utils.dumb_terminal import no_drawing_reason
from ouro.utils.log import log
from ouro.utils.text import clean, join_names, plural

if TYPE_CHECKING:
    from ouro.frontends.background.detach import DetachedHost
    from ouro.frontends.plain.prompt_reader import PromptReader

EXIT_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
SECOND_CTRL_C = 2.0
"""Seconds within which a second Ctrl+C at rest ends ouro."""
PROMPT = "› "
PLAIN_PROMPT = "> "


async def run_repl(
    open_session: OpenSession,
    request: OpenRequest,
    first_message: str,
    open_catalog: OpenCatalog | None = None,
    settings: TuiSettings | None = None,
) -> int:
    """Run the plain prompt until the user leaves; returns the exit code. If the user has chosen the
    demo, or to attach to a background session, that is run instead.

    Args:
        open_catalog: returns the session catalog, to pick a session before one is open.
        settings: the settings of its status line and bell; None: the defaults.

    Raises:
        OuroError: no session could be opened.
    """
    repl = Repl(open_session, open_catalog, settings or TuiSettings(), plain=is_plain())
    try:
        with repl.reader.in_use():
            return await repl.run(request, first_message)
    except DemoRequested:
        arguments = ["demo"]
    except AttachRequested as attach:
        arguments = ["attach", attach.session_id, "--plain"]
    command = [sys.executable, "-P", "-m", "ouro", *arguments]
    return await asyncio.to_thread(subprocess.call, command)


def is_plain() -> bool:
    """Whether nothing is drawn: the environment says so, or input or output is not a terminal."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return bool(no_drawing_reason()) or not is_terminal


class Repl(TurnObserver):
    """Reads lines and passes each to the open question, a command, the shell or the agent.

    The line readers call it for the label, the status line and the actions of their keys.

    Args:
        plain: whether nothing can be drawn; then the terminal itself edits the line.
    """

    def __init__(
        self,
        open_session: OpenSession,
        open_catalog: OpenCatalog | None,
        settings: TuiSettings,
        *,
        plain: bool,
    ) -> None:
        self._settings = settings
        self._printer = Printer(self._write, plain=plain)
        self._questions = LineQuestions(self.redraw)
        self._turn_questions = TurnQuestions(self._questions, self._printer, self._edit)
        self._background_questions = TurnQuestions(self._questions, self._printer, self._edit)
        self.turns = self._make_turns()
        self._resume_offer: asyncio.Task[None] | None = None
        """Prints the resume card and asks with which part to resume."""
        self._front_end = ReplFrontEnd(
            open_session, open_catalog, self._printer, self._questions, self.turns, self
        )
        self.draft = DraftSaver(self._unsent)
        self.undone_text = ""
        """The message that undo put into the prompt last."""
        self.reader: LineReader | PromptReader = LineReader(self)
        if not plain:
            from ouro.frontends.plain.prompt_reader import PromptReader

            self.reader = PromptReader(
                self, lambda text: self._printer.print_line(clean(text), "bold")
            )
        self._work: set[asyncio.Task[None]] = set()
        """The tasks of the lines that are being handled, and of the opening of the session."""
        self._order_lock = asyncio.Lock()
        """Held while a line is handled, so that the next one waits."""
        self._reading: asyncio.Task[str | None] | None = None
        """Waits for the next line."""
        self._exit_code: int | None = None
        """Set when the user leaves."""
        self._failure: Exception | None = None
        """Why no session could be opened."""
        self._ctrl_c_at = -SECOND_CTRL_C
        """When Ctrl+C was last pressed at rest."""
        self._detached_host: DetachedHost | None = None
        """Hosts the session after the user has left it to the background."""

    def _make_turns(self) -> TurnQueue:
        return TurnQueue(self, holds_after_interrupt=True)

    async def _edit(self, text: str) -> str:
        return await self.reader.edit(text)

    async def run(self, request: OpenRequest, first_message: str) -> int:
        """Read lines until the user leaves; returns the exit code. Raises OuroError if no session
        could be opened.
        """
        with handle_signals(lambda number: self.leave(128 + number), *EXIT_SIGNALS):
            try:
                self._run_in_order(self._open_first_session(request, first_message))
                await self._read_lines()
            finally:
                await self._finish()
        if self._failure is not None:
            raise self._failure
        return self._exit_code or 0

    # What the turn queue reports

    def show(self, event: Event) -> None:
        """Print an event of the turn. If it is a question, ask it, and ring the bell if the turn
        has run for long.
        """
        self._printer.print_event(event)
        if self._turn_questions.handle_event(event, self._front_end.session):
            self._ring(self.turns.seconds)

    def show_background(self, event: Event) -> None:
        """Print an event of the background, and ask its question. Lines of piped input are no
        answers, so with piped input a permission is refused, and any other question is not asked.
        """
        session, has_user = self._front_end.session, sys.stdin.isatty()
        is_question = isinstance(event, PermissionAsked | QuestionAsked)
        if isinstance(event, PermissionAsked) and not has_user:
            session.answer(event.question_id, Permit("no", "the input is not a terminal"))
        if has_user or not is_question:
            self._printer.print_event(event)
            self._background_questions.handle_event(event, session)
        self.redraw()

    def turn_ended(self, outcome: Outcome, seconds: float) -> None:
        """Close the questions of the turn, and ring the bell if the turn was long. If it was
        interrupted, queued messages wait for the user, and a notice says how to edit and to send
        them.
        """
        self._turn_questions.close()
        self._ring(seconds)
        queued = len(self.turns.waiting)
        if outcome == "interrupted" and queued:
            newest, all_of_them = ("it", "it") if queued == 1 else ("the newest", "them")
            self._printer.say(
                f"{plural(queued, 'message')} queued. Up edits {newest}; the next message sends"
                f" {all_of_them}."
            )
        self.redraw()

    def queue_changed(self) -> None:
        self.draft.save_soon()
        self.redraw()

    def _unsent(self) -> str:
        """The queued messages and the text in the prompt: what would be lost if ouro were killed."""
        return join_unsent([*self.turns.waiting, self.reader.unsent], self.undone_text)

    async def run_command(self, text: str) -> bool:
        return await dispatch(self._front_end, text)

    def _ring(self, seconds: float) -> None:
        """Ring the bell after a turn that took so long, unless the settings forbid it (0)."""
        if 0 < self._settings.notify_seconds < seconds and not self._printer.plain:
            self._write("\a")

    # What the front end needs

    def redraw(self) -> None:
        """Show the prompt, unless a line is being handled and no question is open."""
        if not self._work or self._questions.open is not None:
            self.reader.redraw()

    def begin_session(self, session: Session) -> None:
        """Forget the questions of the previous session, and show the resume card of this one."""
        self._background_questions.close()
        self._cancel_offer()
        self._restore_draft(session)
        if session.resumed is not None:
            self._resume_offer = asyncio.create_task(self._offer_resume(session, session.resumed))

    def _restore_draft(self, session: Session) -> None:
        """Put the text that a killed ouro left for this session or folder into the prompt, before
        what is typed there. It is dropped if the reader cannot fill its prompt.
        """
        saved_draft = self.draft.begin(session)
        if not saved_draft:
            return
        whole_draft = "\n".join(filter(None, [saved_draft, self.reader.unsent]))
        if self.reader.fill(whole_draft):
            self._printer.say("Your unsent text of last time is back.")

    @property
    def editing(self) -> str:
        """`emacs` or `vim`."""
        return self._settings.editing

    def toggle_vim(self) -> str:
        """Change the keys of the prompt; returns `emacs` or `vim`. Raises UsageError if the
        terminal itself edits the line.
        """
        if isinstance(self.reader, LineReader):
            raise UsageError("This terminal edits the line by itself.")
        return self.reader.toggle_vim()

    def leave(self, code: int = 0) -> None:
        """Stop reading lines; `run` then ends with this exit code."""
        self._exit_code = code
        if self._reading is not None:
            self._reading.cancel()

    async def detach(self) -> None:
        """Let this process continue with the session, without the terminal. Raises UsageError if
        it cannot.
        """
        from ouro.frontends.background.detach import begin_hosting  # rarely used

        if self._detached_host is None:
            self._detached_host = await begin_hosting(self._front_end.session, self.turns, self)
            self.leave()

    # What the readers need

    def label(self) -> str:
        """The text before the cursor."""
        if question := self._questions.open:
            return question.label
        return PLAIN_PROMPT if self._printer.plain else PROMPT

    def toolbar(self) -> str:
        """The line below the prompt: what runs, what is queued, and the status."""
        if self.turns.session is None:
            return " starting …"
        busy = ""
        if self.turns.busy:
            activity = self._printer.activity or "working"
            doing = "waiting for your answer" if self.is_asking() else activity
            busy = f"● {doing} {self.turns.seconds:.0f} s, Ctrl+C interrupts │ "
        waiting = f"{len(self.turns.waiting)} queued │ " if self.turns.waiting else ""
        return f" {busy}{waiting}{self._status(self._front_end.session)}"

    def _status(self, session: Session) -> str:
        """The text of the status line: its items, and then the line that the user's status command
        printed last. If there is such a line, only ITEMS_WITH_SCRIPT are shown beside it. Each call
        starts the command again, so that the next status line has its new output.
        """
        names, script_line = self._settings.status, ""
        script = session.extensions.status_script
        if script is not None:
            script.update(script_state(session), on_end=self._warn)
            script_line = script.line
        if script_line:
            names = tuple(name for name in names if name in ITEMS_WITH_SCRIPT)
        items = status_items(session.status())
        texts = [items.get(name, "") for name in names]
        return " · ".join(filter(None, [*texts, script_line]))

    def _warn(self, text: str) -> None:
        self._printer.say(text, "warning")

    def is_asking(self) -> bool:
        """Whether the next line answers a question and is not a message."""
        return self._questions.open is not None

    def is_secret(self) -> bool:
        question = self._questions.open
        return question is not None and question.secret

    def interrupt(self) -> bool:
        """Handle Ctrl+C: end the running turn. If there is none, end the open question and the command
        that runs. If there is none of these either, a second Ctrl+C within SECOND_CTRL_C is to end
        ouro: then this returns True, otherwise False.
        """
        if self.turns.interrupt():
            return False
        has_session = self.turns.session is not None
        # Without a session the work is the opening of one, which goes on.
        if has_session and self._cancel_work():
            return False
        pressed_at = time.monotonic()
        if pressed_at - self._ctrl_c_at < SECOND_CTRL_C:
            return True
        self._ctrl_c_at = pressed_at
        self._printer.say("Press Ctrl+C again to quit.")
        return False

    def queue(self, text: str) -> None:
        """Queue a message for the next turn, and print its first line."""
        first_line = text.splitlines()[0] if text.strip() else ""
        self._printer.say(f"Queued for the next turn: {first_line}")
        self.turns.queue(Draft(text))

    def cycle_mode(self) -> None:
        if self.turns.session is not None:
            set_mode(self._front_end, next_mode(self._front_end.session.status().mode))

    async def cycle_effort(self) -> None:
        """Use the next effort. Does nothing without a session, or if its model does not think."""
        session = self.turns.session
        if session is None:
            return
        status = session.status()
        if status.can_think:
            await session.set_model(effort=next_effort(status.effort))

    # Lines

    async def _open_first_session(self, request: OpenRequest, first_message: str) -> None:
        """Open the first session, then run or send the first message. If no session could be opened,
        leave; `run` raises the error.
        """
        try:
            is_open = await self._front_end.begin(request)
        except Exception as error:  # noqa: BLE001  # `run` raises it: without a session ouro cannot continue
            self._failure, is_open = error, False
        if not is_open:
            self.leave()
            return
        if not first_message:
            await self._offer_import()
        elif not await dispatch(self._front_end, first_message):
            await self._front_end.send(first_message)

    async def _offer_import(self) -> None:
        """Print the commands that import the memory of other agents in this folder. This is done
        once for each folder, and only on a terminal, where a user can read it.
        """
        from ouro.commands.import_offer import find_offer, import_commands, note_offer

        session = self._front_end.session
        if session.resumed is not None or not sys.stdin.isatty():
            return
        offer = await find_offer(session)
        if offer is None:
            return
        description = f"{plural(offer.entries, 'entry', 'entries')} of {join_names(offer.agents)}"
        lines = "\n".join(import_commands(session, offer.paths))
        self._front_end.say(
            f"Not in memory yet: {description}. To read them, once and with undo:\n{lines}"
        )
        await note_offer(session)

    async def _read_lines(self) -> None:
        """Handle typed lines until the input ends or `leave` is called, which cancels the reading."""
        while not self._is_leaving():
            self._reading = asyncio.ensure_future(self._next_line())
            try:
                line = await self._reading
            except asyncio.CancelledError:
                if not self._is_leaving():
                    raise
                return
            if line is None:
                return
            self._handle_line(line)

    async def _next_line(self) -> str | None:
        """The next typed line; None at the end of the input.

        A line of piped input is read only when the line before it is done, or asks a question.
        """
        if sys.stdin.isatty():
            return await self.reader.read()
        while self._questions.open is None and (self._work or self.turns.busy):
            await self._questions.wait_for_question(self.turns.idle(), *self._work)
        return await self.reader.read()

    def _handle_line(self, line: str) -> None:
        """Answer the open question with a line. If there is no question, begin to handle the line in
        the background: it is a command or a message. Nothing happens if it is empty.
        """
        if self._questions.open is not None:
            hint = self._questions.answer_with(line)
            if hint:
                self._printer.say(hint, "warning")
            self.redraw()
        elif line.strip():
            self._run_in_order(self._carry_out(line))
        else:
            self.redraw()

    async def _carry_out(self, line: str) -> None:
        """Run a slash command, or send the line as a message. The terminal shows the typed message
        already, so its event is not printed later. A shell line is printed again.
        """
        if line.startswith("!"):
            await self._front_end.send(line)
        elif not await dispatch(self._front_end, line):
            self._printer.echoed.append(line)
            await self._front_end.send(line)

    def _run_in_order(self, work: Awaitable[None]) -> None:
        """Start `work` as a task, which begins when the work before it is done. Lines are read in
        the meantime, because a command may ask a question.
        """

        async def run_after_others() -> None:
            async with self._order_lock:
                await work

        task = asyncio.create_task(run_after_others())
        self._work.add(task)
        task.add_done_callback(self._finish_work)

    def _finish_work(self, task: asyncio.Task[None]) -> None:
        """Forget the task of a line that was handled. A command that fails prints its error itself.
        If the task has raised one nevertheless, it is a fault of ouro, and the error handler of the
        loop reports it.
        """
        self._work.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a command failed", "exception": error}
            )
        self.redraw()

    async def _offer_resume(self, session: Session, resumed: Resumed) -> None:
        """Print the resume card of the session, and ask with which part to resume it. This waits
        until the lines that were typed before are handled. If the user types a message instead of a
        number, the full session is resumed.

        Does nothing if the user has begun something else by then. A short card is printed as one
        line without a question, and so is any card if no user can answer.
        """
        try:
            card = await resumed.card()
        except (OuroError, OSError) as error:
            log.warning("the resume card: %s", error)
            return

        # Show the card in one line, if there is nothing to ask or no user to answer.
        await asyncio.gather(*self._work, return_exceptions=True)
        if self.turns.busy or self._questions.open is not None or self.turns.session is not session:
            return
        if not card.is_long or not sys.stdin.isatty():
            self._printer.say(card_line(card, now()))
            return

        # Show the whole card, and ask.
        for name, text in card_lines(card, now()):
            self._printer.say(f"{name:<11} {text}")
        choices = card_choices(card)
        if len(choices) == 1:
            return
        question = "Resume with which part? Type a number, or your message."
        self._printer.print_choices(question, [label for _, label in choices])
        parts = [part for part, _ in choices]
        part, message = await self._questions.ask("> ", lambda line: parse_part(line, parts))
        if part != "full":
            self.turns.start(resumed.continue_with(part))
        elif message:
            self._handle_line(message)

    def _cancel_offer(self) -> bool:
        """Stop the resume card; returns whether it or its question was open."""
        return self._resume_offer is not None and self._resume_offer.cancel()

    def _cancel_work(self) -> bool:
        """Stop the commands and messages that are being handled, and the resume card. Returns whether
        there was anything to stop.
        """
        for task in tuple(self._work):
            task.cancel()
        return self._cancel_offer() or bool(self._work)

    def _write(self, text: str) -> None:
        self.reader.write(text)

    def _is_leaving(self) -> bool:
        return self._exit_code is not None

    async def _finish(self) -> None:
        """Stop all work, close the prompt and then the session. If the user has left the session to
        the background, close only the prompt, and host the session until it ends.
        """
        if self._detached_host is not None:
            await self._leave_to_background(self._detached_host)
            return
        self.turns.stop()
        self._cancel_work()
        await asyncio.gather(*self._work, self.turns.idle(), return_exceptions=True)
        self.draft.close()
        await self.reader.close()
        if self.turns.session is not None:
            await self.turns.close()
            self._print_end_hint(self.turns.session)

    async def _leave_to_background(self, host: DetachedHost) -> None:
        """Close the prompt, then host the session in this process until it ends."""
        session = self._front_end.session
        self._cancel_offer()
        self.draft.close()
        await self.reader.close()
        self._printer.say(f"It continues in the background: ouro attach {session.id[:8]}")
        await host.run()

    def _print_end_hint(self, session: Session) -> None:
        if session.status().is_saved:
            self._printer.say(f"Continue with: ouro --resume {session.id[:8]}")
