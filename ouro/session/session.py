"""Session: send a prompt, answer a question, steer, interrupt, close."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec

from ouro.agent.compactor import Compactor, CompactorParts
from ouro.agent.instructions import NestedInstructions, Surroundings, surroundings
from ouro.agent.loop import AgentParts, LoopAgent, Prompt
from ouro.agent.requests import Requests
from ouro.agent.tool_runner import ToolRunner
from ouro.display import Todo
from ouro.errors import SaveFailed, UsageError
from ouro.events import Answer, Event, NotesRecalled, Said, TodosChanged, TurnFinished
from ouro.llm.model import Effort, Warmable
from ouro.llm.model_source import ModelChoice
from ouro.memory.backend import RewindScope
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.messages import Image, user
from ouro.safety.permissions import Mode
from ouro.session.budget import Money
from ouro.session.context_window import LOOK_UP, ContextWindow, carried
from ouro.session.parts import SessionParts, Status
from ouro.session.resume import taken_up
from ouro.session.rewind import SHELL_NOTE, Past, Undoer
from ouro.session.scrollback import Scrollback
from ouro.session.titles import Titles
from ouro.session.todo_plan import plan_of, plan_once_read
from ouro.session.turn import OwnLine, Turn
from ouro.session.turn_queue import Draft
from ouro.tools.shell_jobs import JobInfo
from ouro.utils.repository import git_branch


class _Spoken(msgspec.Struct):
    """What the person said while the agent was busy."""

    steering: list[Prompt] = msgspec.field(default_factory=list)
    outputs: list[Prompt] = msgspec.field(default_factory=list)
    """Of shell lines of their own: not words, so they are not taken back into the prompt."""

    def take(self) -> list[Prompt]:
        waiting = self.outputs or self.steering
        return [waiting.pop(0)] if waiting else []


class Session:
    """One conversation. Owns every task that is started for it."""

    def __init__(self, parts: SessionParts) -> None:
        self._parts = parts
        self._memory, self._questions, self._spoken = parts.memory, parts.questions, _Spoken()
        self._told: Surroundings | None = None
        self._turn: Turn | None = None
        self._lines: set[Turn] = set()
        self._background = parts.background
        self.notices = (*parts.notices, *parts.memory.notices)
        """What opening it had to tell; what is found while the rest is read comes with the news."""
        parts.memory.tell = lambda notice: self._background.emit(Said(notice, "warning"))
        self.memory = parts.remembers
        self.lookup = self.memory.lookup
        self._nested = NestedInstructions(parts.cwd, parts.trusts)
        self.knowledge, self.learning, self.digest = self.memory.manager, self.memory.capture, self.memory.maintenance
        self.memory.start()
        self.settled = self.memory.settled
        """Waits until what the last turn wrote into memory is committed and told, which goes on beside the next."""
        undoers: dict[RewindScope, Undoer] = {"memory": found} if (found := self.memory.rewind) else {}
        self.past = Past(parts.memory, lambda: self.running, self._begin_anew, undoers, self.settled)
        self.money = Money(parts.memory, parts.session_catalog, parts.limits)
        parts.models.afford = self.money.refuse
        self.titles = Titles(parts.memory, parts.models, self._background, by_itself=parts.titles)
        parts.plan.change(plan_of(parts.memory))
        if parts.memory.is_being_read:
            self._background.start("plan", plan_once_read(parts.plan, parts.memory, self._background.emit))
        self._runner = ToolRunner({tool.name: tool for tool in parts.tools}, parts.permissions, self._questions.inquire)
        self.scrollback = Scrollback(parts.memory, self._runner.title)
        requests = Requests(parts.instructions, self._runner)
        compactor = self._compactor = Compactor(
            CompactorParts(
                memory=parts.memory,
                models=parts.models.current,
                summarisers=lambda: parts.models.role("compact"),
                requests=requests,
                rules=parts.compaction,
                carried=self._carried,
                on_compacted=self._compacted,
            )
        )
        self.window = ContextWindow(parts.memory, parts.models.current, requests, compactor, self._play)
        if self.digest is not None:
            self.digest.play = self._play
        self.resumed = taken_up(parts, self.window, self._play, self._carried, self._tell_again)
        self._agent = LoopAgent(
            AgentParts(
                models=parts.models.current,
                memory=parts.memory,
                tools=self._runner,
                requests=requests,
                compactor=compactor,
                steering=self._spoken.take,
                instructions_for=self._nested.for_paths,
                limits=parts.limits,
                afford=self.money.check,
            )
        )

    @property
    def id(self) -> str:
        """The session's id."""
        return self._memory.session_id

    @property
    def cwd(self) -> Path:
        """The folder it works in."""
        return self._parts.cwd

    @property
    def title(self) -> str:
        """What it is called in lists."""
        return self._memory.title

    @property
    def todos(self) -> tuple[Todo, ...]:
        """The agent's plan."""
        return self._parts.plan.items

    @property
    def is_kept(self) -> bool:
        """Whether it can be taken up again later."""
        return self._parts.is_kept

    @property
    def running(self) -> bool:
        """Whether a turn is under way."""
        return self._turn is not None

    @property
    def waiting(self) -> tuple[str, ...]:
        """What was said to steer the turn and is not delivered yet."""
        return tuple(prompt.text for prompt in self._spoken.steering)

    def status(self) -> Status:
        """What the status line tells, as of now."""
        models, spec = self._parts.models, self._parts.models.current()[0].spec
        memory, branch = self._memory, git_branch(self.cwd)
        mode, notes = self._parts.permissions.mode, self.memory.recalled_count
        return Status(spec.name, models.effort, mode, branch, memory.tokens, spec.window, memory.usage, notes)

    @property
    def recalled(self) -> NotesRecalled:
        """What recall considered for the last message, and what became of it."""
        return self.memory.recalled

    def history(self) -> Iterator[Event]:
        """The transcript so far, as the events that would have shown it."""
        return self.scrollback.shown()

    def send(self, text: str, images: Sequence[Image] = ()) -> AsyncGenerator[Event, None]:
        """One turn; TurnFinished comes last, exactly once.

        Raises:
            UsageError: a turn is under way; `steer` is meant then.
        """
        return self._play(lambda: self._run(text, tuple(images)))

    def answer(self, question_id: str, answer: Answer) -> None:
        """Answer a permission or question; one that no longer waits is left alone."""
        self._questions.answer(question_id, answer)

    def steer(self, text: str, images: Sequence[Image] = ()) -> None:
        """Say something while the turn runs: delivered at the next tool boundary, as Prompted."""
        self._spoken.steering.append(Prompt(text, tuple(images)))

    def withdraw(self) -> Draft | None:
        """Remove the last steering message that was not delivered yet, and return it."""
        if not self._spoken.steering:
            return None
        prompt = self._spoken.steering.pop()
        return Draft(prompt.text, prompt.images)

    def interrupt(self) -> bool:
        """End the turn and the user's own shell lines; return whether there were any."""
        turns = [turn for turn in (self._turn, *self._lines) if turn is not None]
        for turn in turns:
            turn.interrupt()
        return bool(turns)

    def kill_children(self) -> None:
        """Kill every running shell line at once, background jobs apart."""
        self._parts.shell.kill_all()

    async def run_shell(self, line: str, share: bool) -> AsyncGenerator[Event, None]:
        """Run the person's own shell line; with `share` the model reads what it printed before its next answer."""
        turn = Turn(lambda: self._run_line(line, share))
        self._lines.add(turn)
        try:
            async with aclosing(turn.events()) as events:
                async for event in events:
                    if not isinstance(event, TurnFinished):
                        yield event
        finally:
            self._lines.discard(turn)

    def jobs(self) -> tuple[JobInfo, ...]:
        """The background jobs, running and ended."""
        return self._parts.jobs.list()

    async def kill_job(self, job_id: str) -> None:
        """End a background job."""
        await self._parts.jobs.kill(job_id)

    def set_mode(self, mode: Mode) -> None:
        """Change what is asked before it is done."""
        self._parts.permissions.mode = mode

    async def set_effort(self, effort: Effort) -> None:
        """Change how long the model thinks, from the next request on."""
        self._parts.models.change(self.status().model, effort)
        await self._release_models()

    async def set_model(self, name: str) -> None:
        """Change the model, from the next request on.

        Raises:
            NoModelError: it is not known or has no key; the one in use stays.
        """
        self._parts.models.change(name, self._parts.models.effort)
        await self._release_models()
        self._compactor.measure()
        self._memory.set_model(self.status().model)

    async def models(self) -> tuple[ModelChoice, ...]:
        """The models that are known here, usable or not."""
        return await self._parts.models.choices()

    @property
    def session_catalog(self) -> SessionCatalog:
        """The sessions that are kept, this one among them."""
        return self._parts.session_catalog

    def rename(self, title: str) -> None:
        """Call the session something else."""
        self._memory.set_title(title)

    def permission_rules(self) -> tuple[str, ...]:
        """The rules in force, as `allow shell(git status*)`."""
        return self._parts.permissions.rules

    def project_files(self) -> list[str]:
        """The project's files, for completion."""
        return self._parts.list_files()

    def warm(self) -> None:
        """Let a model that takes long to get ready begin, while the person still types."""
        model = self._parts.models.current()[0]
        if isinstance(model, Warmable):
            self._background.start("warm", model.warm())

    def news(self) -> AsyncGenerator[Event, None]:
        """What happens beside the turns (a title, a note kept, memory changed), until it is closed; for one reader."""
        return self._background.news()

    async def close(self) -> None:
        """End all that runs, and let go of the session.

        Raises:
            SaveFailed: something said in it could not be saved, and now is lost.
        """
        self.interrupt()
        for turn in (self._turn, *self._lines):
            if turn is not None:
                await turn.ended()  # it saves what was said to its last word
        await self.memory.close()
        await self._background.close()
        if self.lookup is not None:
            await self.lookup.close()
        await self._parts.jobs.close()
        await self._parts.models.close()
        await self._memory.close()

    async def _play(self, stream: Callable[[], AsyncGenerator[Event, None]]) -> AsyncGenerator[Event, None]:
        if self._turn is not None:
            raise UsageError("The agent is still at work.", "Steer it, or interrupt it first.")
        self._turn = Turn(stream)
        try:
            async with aclosing(self._turn.events()) as events:
                async for event in events:
                    yield event
        finally:
            self._turn = None
            if self.lookup is not None:
                self.lookup.note_turn()
                self._background.start("index", self.memory.once_settled(self.lookup.keep_up))

    async def _run(self, text: str, images: tuple[Image, ...]) -> AsyncGenerator[Event, None]:
        now = await surroundings(self.cwd, self._parts.permissions.mode, self._told)
        note, self._told = now.note(self._told), now
        context = "\n\n".join(filter(None, (note, await self.memory.before_turn(text))))
        shown = self.todos
        async with aclosing(self.memory.watch(self._agent.run(Prompt(text, images, context)))) as events:
            async for event in events:
                if self.todos != shown:
                    shown = self.todos
                    yield TodosChanged(shown)
                yield event
        await self._parts.models.release()
        self.titles.after_turn()

    def _begin_anew(self) -> None:
        """The conversation is another one than the model was told of: what goes by it is as after a resume."""
        self._parts.plan.change(plan_of(self._memory))
        self._parts.seen.clear()
        self._tell_again()

    def _tell_again(self) -> None:
        """What the model was told once is not before its eyes any more."""
        self._nested.clear()
        self._told = None

    def _compacted(self) -> None:
        self._tell_again()
        self.memory.compacted()

    async def _carried(self) -> str:
        """What a summary takes along beside the model's words."""
        now = await surroundings(self.cwd, self._parts.permissions.mode)
        searches = any(tool.name == "memory_search" for tool in self._parts.tools)
        return carried(now.note(None), self.todos, self.jobs(), LOOK_UP if searches else "")

    async def _run_line(self, line: str, share: bool) -> AsyncGenerator[Event, None]:
        own = OwnLine(self._parts.shell, line)
        async with aclosing(own.run()) as events:
            async for event in events:
                yield event
        yield own.finished()
        if share:
            try:
                await self._share(f"{SHELL_NOTE}{line}\n{own.result.text}")
            except SaveFailed as error:
                yield Said(str(error), "error")

    async def _release_models(self) -> None:
        if not self.running:
            await self._parts.models.release()

    async def _share(self, text: str) -> None:
        """Let the model read it before its next answer: now, or at the next tool boundary of the running turn."""
        if self.running:
            self._spoken.outputs.append(Prompt(text))
        else:
            await self._memory.add(user(text))
