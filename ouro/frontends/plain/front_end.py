"""ReplFrontEnd: the plain prompt as the commands see it; and its questions, which the next typed
line answers.
"""

from __future__ import annotations

import asyncio
import base64
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ouro.commands.front_end import FrontEnd, choice_line
from ouro.display import Choice, Question
from ouro.errors import OuroError, UsageError
from ouro.events import (
    PLAN_QUESTION,
    Event,
    Level,
    PermissionAsked,
    Permit,
    PermitChoice,
    Prompted,
    QuestionAsked,
    QuestionClosed,
    Reply,
)
from ouro.frontends.clipboard import SENT_TO_TERMINAL, copy_with_program
from ouro.frontends.plain.printer import Printer
from ouro.frontends.session_format import (
    ALL,
    LEFT_BRANCH,
    SessionMatch,
    SessionMatches,
    format_figures,
    now,
    preview_lines,
    title_of,
)
from ouro.frontends.welcome import is_first_start, welcome
from ouro.messages import Image
from ouro.session import Draft, Session, SessionCatalog, TurnQueue
from ouro.session.opening import OpenCatalog, OpenRequest, OpenSession, Part, open_interactively
from ouro.session.plan_file import number_lines
from ouro.utils.text import clean, escaped, one_line

if TYPE_CHECKING:
    from ouro.frontends.plain.repl import Repl
    from ouro.session.plan_approval import PlanApproval

T = TypeVar("T")
_PERMIT = re.compile(
    r"(y|yes|s|session|a|always|n|no|d|deny)(?:[\s,:;.]+(.*))?\Z", re.IGNORECASE | re.DOTALL
)
_DESCRIBED: Mapping[PermitChoice, str] = {
    "yes": "y yes",
    "session": "s yes, for this session",
    "edits": "s yes, and all edits in this session",
    "always": "a always: {rule}",
    "stop": "n no, stop",
    "no": "d no, continue",
}
_LETTERS: Mapping[str, tuple[PermitChoice, ...]] = {
    "y": ("yes",),
    "s": ("edits", "session"),
    "a": ("always",),
    "n": ("stop", "no"),
    "d": ("no",),
}
SHOWN_AGAIN = 3
"""User messages, with their turns, that are printed on resume."""
_KEYS = (
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
MAX_LISTED = 15
_HELP = (
    "Type a number to open a session, `copy N` for a copy, `look N` to preview it, words to search,"
    " `all` for {}."
)
_NUMBERED = re.compile(r"(?:(copy|look)\s+)?(\d{1,3})")


_PLAN_HINT = (
    "a number, or what to change; e: your editor; l: line numbers, then `3: text` comments on line"
    " 3; empty line: stay in plan mode"
)


class NotUnderstood(ValueError):
    """The line does not answer the question; the message says what to type."""


@dataclass(frozen=True, slots=True)
class OpenQuestion(Generic[T]):
    label: str
    """The text before the cursor."""
    parse: Callable[[str], T]
    answer: asyncio.Future[T]
    secret: bool = False
    """Whether the typed text is not shown."""


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
        question = OpenQuestion(label, parse, asyncio.get_running_loop().create_future(), secret)
        self._waiting.append(question)
        self._asked.set()
        self._changed()
        try:
            answer: T = await question.answer
            return answer
        finally:
            self._waiting.remove(question)
            self._changed()

    async def wait_for_question(self, *work: Awaitable[Any]) -> None:
        """Wait until all the work is done, or a question is asked."""
        self._asked.clear()
        asked = asyncio.ensure_future(self._asked.wait())
        done = asyncio.gather(*(asyncio.shield(item) for item in work), return_exceptions=True)
        try:
            await asyncio.wait((asked, done), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            done.cancel()
            await asyncio.gather(asked, done, return_exceptions=True)

    def take(self, line: str) -> str:
        """Answer the open question; returns a hint if the line does not answer it."""
        question = self.open
        if question is None:
            return ""
        try:
            question.answer.set_result(question.parse(line))
        except NotUnderstood as error:
            return str(error)
        return ""


def parse_permit(line: str, choices: Sequence[PermitChoice]) -> Permit:
    match = _PERMIT.match(line.strip())
    if match is None:
        raise NotUnderstood(
            "Type y (yes), s (for this session), a (always), n (no) or d (no, continue); text"
            " after the letter goes to the model."
        )
    letter, comment = match[1][0].lower(), (match[2] or "").strip()
    if letter == "n" and comment:  # the agent continues with what the user says
        return Permit("no", comment)
    choice = next((choice for choice in _LETTERS[letter] if choice in choices), None)
    if choice is None:
        raise NotUnderstood("There is no rule for this call. Type y (yes) or n (no).")
    return Permit(choice, comment)


def parse_reply(line: str, question: Question) -> Reply:
    """Numbers of choices, or an answer in words; an empty line is no answer."""
    words = line.split("," if "," in line else None)
    is_words = not words or not all(word.strip().isdigit() for word in words)
    if is_words:
        return Reply((line.strip(),) if line.strip() else ())
    numbers = [int(word) for word in words]
    if len(numbers) > 1 and not question.several:
        raise NotUnderstood("Choose only one.")
    choices = question.choices
    if not choices:
        return Reply((line.strip(),))
    if min(numbers) < 1 or max(numbers) > len(choices):
        raise NotUnderstood(f"Type a number from 1 to {len(choices)}, or your own answer.")
    return Reply(tuple(choices[number - 1] for number in numbers))


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
    """Asks the questions of a session at the prompt, and passes the answers to it."""

    def __init__(
        self, questions: LineQuestions, printer: Printer, edit: Callable[[str], Awaitable[str]]
    ) -> None:
        self._questions = questions
        self._edit = edit
        self._printer = printer
        self._asking: dict[str, asyncio.Task[None]] = {}

    def take(self, event: Event, session: Session) -> bool:
        """Start or end a question, if the event is one; returns True when one starts."""
        match event:
            case PermissionAsked() | QuestionAsked():
                self._print(event)
                self._asking[event.question_id] = asyncio.create_task(self._ask(event, session))
            case QuestionClosed():
                if task := self._asking.pop(event.question_id, None):
                    task.cancel()
            case _:
                pass
        return isinstance(event, PermissionAsked | QuestionAsked)

    def close(self) -> None:
        for task in self._asking.values():
            task.cancel()
        self._asking.clear()

    def _print(self, event: PermissionAsked | QuestionAsked) -> None:
        if isinstance(event, PermissionAsked):
            self._printer.seen.add(event.call.id)
            self._printer.line(f"? {escaped(one_line(event.title))}", "bold yellow")
            self._printer.question_body(event.display)
            self._printer.line(f"  {escaped(event.reason)}", "dim")
            choices = [_DESCRIBED[choice] for choice in event.choices]
            shown = " · ".join(choices).format(rule=escaped(event.rule))
            self._printer.line(f"  {shown}    (text after the letter goes to the model)")
            return
        question = event.question
        self._printer.markdown(question.text)
        if question.details:
            self._printer.markdown(question.details)
        self._printer.choices("", question.choices)
        several = "numbers" if question.several else "a number"
        if event.question_id.startswith(PLAN_QUESTION):
            self._printer.line(f"  {_PLAN_HINT}", "dim")
            return
        self._printer.line(
            f"  {several}, or your own answer; empty line: no answer" if question.choices else "",
            "dim",
        )

    async def _ask(self, event: PermissionAsked | QuestionAsked, session: Session) -> None:
        answer: Permit | Reply
        if isinstance(event, PermissionAsked):
            letters = "/".join(_DESCRIBED[choice][0] for choice in event.choices)
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
        """Ask until the user decides; `e` edits the plan, `l` shows it with the numbers of its
        lines.
        """
        while True:
            reply = await self._questions.ask("answer: ", lambda line: parse_reply(line, question))
            act = reply.answers[0].lower() if reply.answers else ""
            if act not in ("e", "l"):
                return reply
            if act == "l":
                self._printer.line(clean(number_lines(plan.text)), "dim")
                continue
            try:
                self._printer.markdown(plan.change(await self._edit(plan.text)))
            except (UsageError, OSError) as error:
                self._printer.say(str(error), "warning")


def parse_part(line: str, parts: list[Part]) -> tuple[Part, str]:
    """A number is a choice; any other text is a message, sent with the full session."""
    text = line.strip()
    if text.isdigit() and 1 <= int(text) <= len(parts):
        return parts[int(text) - 1], ""
    return "full", text and line


async def ask_session(
    printer: Printer, questions: LineQuestions, catalog: SessionCatalog, only: Collection[str] = ()
) -> OpenRequest | None:
    """Ask for a session until one is picked or the line is empty."""
    matches = SessionMatches(await catalog.sessions(), catalog.is_here, only)
    listed = await _list_sessions(printer, catalog, matches, "")
    while True:
        line = await questions.ask("session: ", str.strip)
        chosen = _NUMBERED.fullmatch(line)
        if not line:
            return None
        if chosen and 1 <= int(chosen[2]) <= len(listed):
            info = listed[int(chosen[2]) - 1].info
            if chosen[1] != "look":
                return OpenRequest(info.id, fork=chosen[1] == "copy")
            try:
                preview = await catalog.preview(info)
            except (OuroError, OSError) as error:
                printer.say(str(error), "warning")
                continue
            for who, words in preview_lines(preview, 80):
                printer.say(f"{who}: {words}" if who else words)
        elif chosen:
            printer.say(f"Type a number from 1 to {len(listed)}.", "warning")
        elif line == "all":
            matches.next_scope()
            listed = await _list_sessions(printer, catalog, matches, matches.query)
        else:
            listed = await _list_sessions(printer, catalog, matches, line)


async def _list_sessions(
    printer: Printer, catalog: SessionCatalog, matches: SessionMatches, words: str
) -> Sequence[SessionMatch]:
    matches.look_for(words)
    if matches.query:
        async for hit in catalog.search(matches.in_scope, matches.query):
            matches.add(hit)
    found = matches.matches()
    listed = found[:MAX_LISTED]
    heading = f"Sessions, {matches.scope}" + (f", with “{matches.query}”" if matches.query else "")
    printer.choices(f"{heading}: {len(found):,}", [_line(match) for match in listed])
    if len(found) > MAX_LISTED:
        printer.say(f"… and {len(found) - MAX_LISTED:,} more. Type words of a title or message.")
    printer.say(
        _HELP.format("the sessions of this project" if matches.scope == ALL else "all projects")
    )
    return listed


def _line(match: SessionMatch) -> str:
    said = f" — … {match.snippet} …" if match.snippet else ""
    return f"{title_of(match.info)} ({format_figures(match.info, now())}){said}"


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

    def show(self, markdown: str, page: str = "") -> None:  # noqa: ARG002 (for screens)
        self._printer.markdown(markdown)

    def say(self, text: str, level: Level = "info") -> None:
        self._printer.say(text, level)

    async def choose(self, title: str, choices: Sequence[Choice], current: str = "") -> str | None:
        values = [choice.value for choice in choices]
        self._printer.choices(title, [choice_line(choice, current) for choice in choices])
        return await self._questions.ask("number: ", lambda line: parse_choice(line, values))

    @property
    def queue(self) -> TurnQueue:
        return self._turns

    async def edit(self, text: str) -> str:
        return await self._repl.reader.edit(text)

    def show_again(self, draft: str = "", images: Sequence[Image] = ()) -> None:
        """Print the end of the transcript, and put the draft into the prompt. Images of the draft
        are lost.
        """
        self._replay(list(self.session.scrollback.shown()))
        self.redraw()
        if images:
            self.say(
                "The images of this message are lost: the plain prompt cannot send images.",
                "warning",
            )
        if draft and not self._repl.reader.fill(draft):
            self.say(f"The message was:\n{draft}")

    async def pick_session(
        self, session_catalog: SessionCatalog, only: Collection[str] = ()
    ) -> OpenRequest | None:
        return await ask_session(self._printer, self._questions, session_catalog, only)

    async def begin(self, request: OpenRequest) -> bool:
        """Open the first session; returns False when the user cancels. Raises OuroError: it cannot
        be opened.
        """
        greets = is_first_start() and sys.stdin.isatty()
        session = await self._open(request)
        if session is not None and greets and session.resumed is None:
            self.show(welcome(session))
        return session is not None

    async def open(self, request: OpenRequest) -> None:
        before = self.session
        if await self._open(request) is not None:
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
        if self._turns.busy:  # the command itself was queued
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
        if how := copy_with_program(text):
            return how
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
        if self._turns.session is not None:
            catalog = self._turns.session.session_catalog
        elif self._open_catalog is not None:
            catalog = await self._open_catalog()
        else:
            return OpenRequest()
        return await self.pick_session(catalog, only=ids)

    async def set_up_model(self) -> str:
        from ouro.commands.models import (
            set_up_and_test,
        )  # imported late: needed only without a model

        return await set_up_and_test(self)

    async def _open(self, request: OpenRequest) -> Session | None:
        # With piped input no user can answer: the error is raised.
        session = await open_interactively(
            self._open_session,
            request,
            self if sys.stdin.isatty() else None,
            keeps=self._turns.session is not None,
        )
        if session is None:
            return None
        self._turns.attach(session)
        self._repl.begin_session(session)
        if request.message:
            await self.go_to(request.message)
        else:
            self._replay(list(session.scrollback.shown()))
        self.redraw()
        return session

    def _replay(self, events: Sequence[Event]) -> None:
        starts = [place for place, event in enumerate(events) if isinstance(event, Prompted)]
        if len(starts) > SHOWN_AGAIN:
            self.say(
                f"{len(starts) - SHOWN_AGAIN} earlier messages are not shown. Use /export to write"
                " all."
            )
            events = events[starts[-SHOWN_AGAIN] :]
        self._printer.replay(events)
