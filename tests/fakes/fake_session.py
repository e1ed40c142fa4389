"""A session that plays given turns, for tests of front ends.

A turn is a sequence of events; it stops at a PermissionAsked or QuestionAsked until `answer` is
called, and at a `Wait` until its event is set. `send` begins each turn with Prompted and ends it
with TurnFinished, unless the turn has its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace

from msgspec.structs import replace

from fakes.fake_parts import FakeRewind
from ouro.agent.project_instructions import ProjectInstructions
from ouro.agent.subagents import Subagents
from ouro.commands.all_actions import COMMAND_NAMES
from ouro.display import CommandOutput, Display, Todo
from ouro.events import (
    Compacted,
    Compacting,
    Event,
    NotesRecalled,
    PermissionAsked,
    Prompted,
    QuestionAsked,
    QuestionClosed,
    Replied,
    TextDelta,
    TodosChanged,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    UsageUpdated,
    UserAnswer,
)
from ouro.extensions import CommandRegistry, OutputStyles, Skills
from ouro.llm import ModelChoice, ModelSpec
from ouro.memory.ephemeral_backend import DictMemoryStore
from ouro.memory.index import Lookup
from ouro.memory.long_term import LongTermMemoryManager, SessionMemory
from ouro.memory.sessions.usage import ModelUse, UsagePeriod
from ouro.messages import Image, ToolCall, Usage, assistant
from ouro.safety import Permissions, Workspace
from ouro.session import (
    ContextItem,
    Draft,
    OpenRequest,
    Outlook,
    SessionExcerpt,
    SessionHit,
    SessionInfo,
    Status,
    WindowReport,
)
from ouro.session.attachments import Attachment
from ouro.session.budget import SpendingReport
from ouro.session.scrollback import Reached
from ouro.session.session import SessionExtensions
from ouro.settings import SettingsSources, SubagentSettings
from ouro.utils.masked_writes import mask_writes


class FakeCatalog:
    """Sessions in a list; `previews` and `hits` are the results of previews and searches."""

    def __init__(self, known: Sequence[SessionInfo] = (), project: str = "/project") -> None:
        self.project = project
        self.known = list(known)
        self.first: list[SessionInfo] = []
        self.is_readable = asyncio.Event()
        """Whether the whole list can be read; otherwise only `first`."""
        self.is_readable.set()
        self.previews: dict[str, SessionExcerpt] = {}
        self.hits: list[SessionHit] = []
        self.trash: list[SessionInfo] = []
        self.searched: list[str] = []
        self.store = self
        """The catalog is its own store."""

    def is_here(self, project: str) -> bool:
        return project == self.project

    async def sessions(self, progress=None) -> list[SessionInfo]:
        await self.is_readable.wait()
        return list(self.known)

    async def first_page(self, count: int) -> list[SessionInfo]:
        return self.first[:count]

    async def list_sessions(self) -> list[SessionInfo]:
        return list(self.known)

    async def preview(self, info: SessionInfo) -> SessionExcerpt:
        return self.previews.get(info.id, SessionExcerpt())

    async def search(
        self, sessions: Sequence[SessionInfo], words: str
    ) -> AsyncGenerator[SessionHit, None]:
        self.searched.append(words)
        ids = {each.id for each in sessions}
        for hit in self.hits:
            if hit.session_id in ids and all(word in hit.snippet.lower() for word in words.split()):
                yield hit

    async def rename(self, session_id: str, title: str) -> None:
        self.known = [
            replace(each, title=title) if each.id == session_id else each for each in self.known
        ]

    async def delete_session(self, session_id: str) -> None:
        self.trash += [each for each in self.known if each.id == session_id]
        self.known = [each for each in self.known if each.id != session_id]

    async def restore_session(self, session_id: str) -> None:
        self.known = [*(each for each in self.trash if each.id == session_id), *self.known]


class FakeBudget:
    """Returns a fixed report, `given`."""

    def __init__(self) -> None:
        used = (ModelUse("fake/one", Usage(1_200, 1_000, 0, 34, 0.0123), 2),)
        self.given = SpendingReport(
            tuple(UsagePeriod(name, used) for name in ("session", "today", "month", "all")), ()
        )

    async def report(self) -> SpendingReport:
        return self.given

    async def check(self) -> str:
        return ""


class FakeScrollback:
    """Returns one of `pages` for each call: older parts of the transcript, the newest first."""

    def __init__(self) -> None:
        self.pages: list[Sequence[Event]] = []
        self.events: list[Event] = []

    def shown_events(self) -> Iterator[Event]:
        return iter(self.events)

    @property
    def has_more(self) -> bool:
        return bool(self.pages)

    async def show_more(self, _count: int = 100) -> list[Event]:
        return list(self.pages.pop(0))

    def last_prompts(self, _count: int) -> list[tuple[int, str]]:
        """Memory contains everything that is shown."""
        return []

    async def reach(self, _number: int) -> Reached:
        """The last message of the user."""
        return Reached(1)


class FakeTitles:
    """Finds one title."""

    async def find(self) -> str:
        return "Fix the import"


class FakeWindow:
    """Records calls: `keeps` has the instructions of compactions, `pins` the pinned and unpinned
    messages.
    """

    def __init__(self) -> None:
        self.messages = (
            ContextItem("1", 1, "you", "Never\x1b[2J push.", 4, False, True),
            ContextItem("2", 2, "ouro", "I will not.", 4, False, False),
            ContextItem("5", 5, "you", "Go on.", 4, False, False),
        )
        self.keeps = []
        self.summary = ""
        """If it is not empty, it is shown for review; then it is what the user made of it."""
        self.contents = (
            ContextItem("1", 1, "you", "Never\x1b[2J push.", 4, False, True),
            ContextItem("call:c1", 3, "output", "shell: 900 lines", 5_000, False),
            ContextItem("5:mem_a", 5, "note", "Use tabs.", 9, True),
        )
        self.changes = []
        self.pins = []
        self.given = WindowReport(
            (("system prompt", 900), ("your messages", 300)),
            1_200,
            128_000,
            102_400,
            Outlook(40, 3, 9_000),
            "the output of shell at message 12, about 500 tokens",
        )

    def report(self):
        return self.given

    async def compact(self, keep, review=None, *, probe=False):
        self.keeps.append(f"--probe {keep}".strip() if probe else keep)
        if self.summary and not (summary := await review(self.summary)):
            yield TurnFinished("answered")
            return
        elif self.summary:
            self.summary = summary
        yield Compacting()
        yield Compacted(80_000, 9_000, 40, 3, 0, "## Goal\nMend it.")
        yield TurnFinished("answered")

    async def aside(self, question, show):
        show(await self.ask_aside(question))
        yield TurnFinished("answered")

    async def ask_aside(self, question):
        return f"{question} It is 42."

    def items(self):
        return self.contents

    async def drop(self, ids, *, restore=False):
        self.changes.append((list(ids), restore))
        return 6_000, 1_000

    def pinnable(self):
        return self.messages

    async def pin(self, number, pinned=True):
        self.pins.append((number, pinned))
        self.messages = tuple(
            replace(item, is_pinned=pinned) if item.number == number else item
            for item in self.messages
        )


@dataclass(frozen=True)
class Wait:
    """The turn stops here until the event is set (or it is interrupted)."""

    until: asyncio.Event = field(default_factory=asyncio.Event)


Turn = Iterable[Event | Wait] | Callable[[str], Iterable[Event | Wait]]


def says(text: str, usage: Usage | None = None) -> list[Event]:
    """The events of one plain answer."""
    return [TextDelta(text), Replied(replace(assistant(text), usage=usage))]


PUSH = ToolCall("c1", "shell", {"command": "git push"})


def asks_to_push(
    question_id: str = "q1", command: str = "git push", rule: str = "shell(git push *)"
) -> PermissionAsked:
    display = Display(command, CommandOutput(command))
    return PermissionAsked(question_id, PUSH, command, display, "reaches the network", rule)


async def _never(*_functions):
    await asyncio.Event().wait()


class FakeSessionMemory(SessionMemory):
    """Long-term memory of a FakeSession; a test sets what was recalled."""

    last_recalled = ""

    recalled = NotesRecalled((), "local")

    def __init__(
        self, session: FakeSession, manager: LongTermMemoryManager | None, lookup: Lookup | None
    ) -> None:
        messages = SimpleNamespace(session_id=session.id)
        super().__init__(messages, manager, lookup, None, None, None, 30)


class FakeBackground:
    """Shows `tasks`; records calls in `lines`, `killed` (tasks) and `kills` (of all lines)."""

    def __init__(self) -> None:
        self.subagents = Subagents(
            (), SimpleNamespace(make_store=DictMemoryStore), SubagentSettings()
        )
        self.tasks: tuple = ()
        self.lines: list[tuple[str, bool]] = []
        self.killed: list[str] = []
        self.kills = 0
        self.standing = SimpleNamespace(
            goal=SimpleNamespace(is_active=False),
            repeated=SimpleNamespace(wait_for_due_message=asyncio.Event().wait),
        )

    def list(self) -> tuple:
        return self.tasks

    async def kill(self, task: str) -> None:
        self.killed.append(task)

    def move_running(self) -> int:
        """No command runs."""
        return 0

    def last_terminal(self) -> None:
        """No program runs in a terminal."""

    def kill_lines(self) -> None:
        self.kills += 1

    async def run_line(
        self, line: str, share: bool, *, in_terminal: bool = False
    ) -> AsyncGenerator[Event, None]:
        self.lines.append((line, share))
        call = ToolCall("shell-1", "shell", {"command": line})
        yield ToolStarted(call, line)
        yield ToolFinished(
            call.id, "shell", Display("exit 0", CommandOutput(line, "output\n", 0)), False, 0.1
        )


class FakePlan:
    """A plan that is saved nowhere."""

    file = folder = None

    def __init__(self, text: str = "") -> None:
        self.text = text

    def change(self, text: str) -> str:
        self.text = text
        return text


class FakeSession:
    """Plays `turns`, one for each `send`; records calls in `sent`, `steered`, `answers`."""

    def __init__(
        self, turns: Sequence[Turn] = (), *, session_id: str = "s-1", cwd: Path = Path("/project")
    ) -> None:
        self.id = session_id
        self.cwd = cwd
        self.title = ""
        self.running = False
        self.remember(None)
        self.todos: tuple[Todo, ...] = ()
        skills = Skills((), (), 0, lambda _path: True, lambda _off: None)
        instructions = ProjectInstructions(cwd, lambda _path: False)
        commands, servers = CommandRegistry((), lambda: COMMAND_NAMES), SimpleNamespace(by_name={})
        self.extensions = SessionExtensions(
            commands,
            servers,
            SimpleNamespace(),
            skills,
            instructions,
            SettingsSources(),
            OutputStyles(()),
            SimpleNamespace(checks=SimpleNamespace(list_here=list)),
        )
        self.background = FakeBackground()
        self.wake = SimpleNamespace(run=_never)
        """Nothing happens in the background."""
        commands = SimpleNamespace(tools=SimpleNamespace(judge=None))
        self.turn = SimpleNamespace(titles=FakeTitles(), commands=commands)
        self.plan = FakePlan()
        self.scrollback = FakeScrollback()
        self.rewind = FakeRewind()
        self.memory = SimpleNamespace(
            whole=lambda: self.rewind.whole(),
            outputs=Path("/sessions/one/outputs"),
            set_private=lambda *, is_private: None,
        )
        self.budget = FakeBudget()
        self.sent: list[str] = []
        self.sent_images: list[Image] = []
        self.steered: list[str] = []
        self.answers: list[tuple[str, UserAnswer]] = []
        self.interrupts = 0
        self.closed = False
        self.choices = (
            ModelChoice("fake/one", True),
            ModelChoice("fake/two", False, "no key: set TWO_KEY"),
        )
        self.attachable: list[Attachment] = []
        self.before_prompt: Wait | None = None
        """What each turn waits for before it shows its message, as for a slow hook."""
        self.files = ["api.py", "docs/guide.md", "src/main.py"]
        self.rules = ("shell(git status*)",)
        self.known: list = []
        self.resumed = None
        self.window = FakeWindow()
        self.usage = Usage(input=1200, cached=1000, output=34, cost=0.0123)
        self._status = Status(
            "fake/one",
            "off",
            "ask",
            "main",
            1200,
            128_000,
            self.usage,
            spec=ModelSpec("fake/one", thinking=True),
        )
        self._turns = list(turns)
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()

    def remember(self, manager: LongTermMemoryManager | None, lookup: Lookup | None = None) -> None:
        """Give the session a long-term memory."""
        self.session_memory = FakeSessionMemory(self, manager, lookup)
        self._interrupted = asyncio.Event()
        self._answered: dict[str, asyncio.Event] = {}

    @property
    def waiting(self) -> tuple[str, ...]:
        return tuple(self.steered)

    def status(self) -> Status:
        return self._status

    @property
    def shown_before(self) -> list[Event]:
        return self.scrollback.events

    @shown_before.setter
    def shown_before(self, events: list[Event]) -> None:
        self.scrollback.events = events

    async def send(self, text: str, images: Sequence[Image] = ()) -> AsyncGenerator[Event, None]:
        self.sent.append(text)
        self.sent_images.extend(images)
        self.running = True
        self._interrupted.clear()
        turn = self._turns.pop(0) if self._turns else []
        finished = TurnFinished("answered")
        try:
            if self.before_prompt is not None:
                await self._until(self.before_prompt.until)
            if self._interrupted.is_set():
                turn, finished = (), TurnFinished("interrupted")
            else:
                yield Prompted(text, tuple(images))
            for item in turn(text) if callable(turn) else turn:
                if isinstance(item, TurnFinished):
                    finished = item
                    break
                if isinstance(item, TodosChanged):
                    self.todos = item.todos
                async for event in self._play(item):
                    yield event
                if self._interrupted.is_set():
                    finished = TurnFinished("interrupted")
                    break
        finally:
            self.running = False
        yield finished

    async def _play(self, item: Event | Wait) -> AsyncGenerator[Event, None]:
        if isinstance(item, Wait):
            await self._until(item.until)
            return
        if isinstance(item, PermissionAsked | QuestionAsked):
            answered = self._answered.setdefault(item.question_id, asyncio.Event())
            yield item
            await self._until(answered)
            yield QuestionClosed(item.question_id)
            return
        yield item

    async def _until(self, event: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(each.wait()) for each in (event, self._interrupted)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def answer(self, question_id: str, answer: UserAnswer) -> None:
        self.answers.append((question_id, answer))
        self._answered.setdefault(question_id, asyncio.Event()).set()

    def steer(self, text: str, images: Sequence[Image] = ()) -> None:
        self.steered.append(text)

    def withdraw(self) -> Draft | None:
        return Draft(self.steered.pop()) if self.steered else None

    def interrupt(self) -> bool:
        self.interrupts += 1
        self._interrupted.set()
        return True

    def set_mode(self, mode) -> None:
        self._status = replace(self._status, mode=mode)

    async def set_model(self, name: str = "", effort=None) -> None:
        self._status = replace(
            self._status, model=name or self._status.model, effort=effort or self._status.effort
        )

    async def models(self) -> tuple[ModelChoice, ...]:
        return self.choices

    @cached_property
    def session_catalog(self) -> FakeCatalog:
        return FakeCatalog(self.known, str(self.cwd))

    def rename(self, title: str) -> None:
        self.title = title

    @cached_property
    def permissions(self) -> Permissions:
        return Permissions(Workspace(self.cwd), "ask", allow=self.rules)

    async def attachments_of(self, text: str) -> tuple[Attachment, ...]:
        return tuple(item for item in self.attachable if f"@{item.name}" in text)

    def find_files(self) -> list[list[str]]:
        return [self.files]

    async def wait_until_settled(self) -> None:
        """Return immediately: this session writes no memory."""

    def emit_event(self, event: Event) -> None:
        """Emit an event between turns."""
        self._events.put_nowait(event)

    async def events(self) -> AsyncGenerator[Event, None]:
        while (event := await self._events.get()) is not None:
            yield event

    async def close(self, on_released: Callable[[], Awaitable[None]] | None = None) -> None:
        self.closed = True
        self._events.put_nowait(None)
        if on_released is not None:
            await on_released()

    def usage_event(self) -> UsageUpdated:
        return UsageUpdated(self.usage, 1200, 128_000)


def opener(*sessions: FakeSession) -> Callable[[OpenRequest], object]:
    """An `open_session` that returns these sessions in order; `opener.requests` has the requests."""
    left = list(sessions)

    async def open_session(request: OpenRequest) -> FakeSession:
        open_session.requests.append(request)
        mask_writes(str)
        return left.pop(0)

    open_session.requests = []
    return open_session
