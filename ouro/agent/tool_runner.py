"""Check, ask and run one batch of tool calls, side by side; results in the order asked."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ouro.display import Display, Plain, Question
from ouro.errors import OuroError, ToolError
from ouro.events import (
    Answer,
    Event,
    PermissionAsked,
    Permit,
    QuestionAsked,
    QuestionClosed,
    Reply,
    Said,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from ouro.llm.model import ToolSpec
from ouro.messages import ToolCall, ToolReply
from ouro.safety.access import Effect
from ouro.safety.permissions import Ask, Decision, Deny, Permissions
from ouro.tools.tool import AnyTool, ToolContext, ToolResult, parse_arguments, spec_of
from ouro.utils.log import log

MAX_SIDE_BY_SIDE = 8
INTERRUPTED = "Interrupted by the person before it was done."
SAID_NO = "The person said no. Ask what they would prefer, or go on without it."

Inquire = Callable[[str], Awaitable[Answer]]
"""Wait for the person's answer to the question with this id."""


class RefusedError(ToolError):
    """The person, a rule or the mode said no."""


@dataclass(frozen=True, slots=True)
class ToolRunner:
    """Runs tool calls. A tool's failure is an answer to the model: only here is one turned into the other."""

    tools: Mapping[str, AnyTool]
    permissions: Permissions
    inquire: Inquire

    def specs(self, without: Sequence[str] = ()) -> tuple[ToolSpec, ...]:
        """What a model is told of the tools, in a fixed order."""
        return tuple(spec_of(tool) for name, tool in self.tools.items() if name not in without)

    def title(self, call: ToolCall) -> str:
        """A call in a few words, for the reader."""
        try:
            tool, args = self.understand(call)
        except ToolError:
            return call.name
        return tool.title(args)

    def understand(self, call: ToolCall) -> tuple[AnyTool, Any]:
        """The tool that is called, and its arguments.

        Raises:
            ToolError: no such tool, or arguments that do not fit it.
        """
        tool = self.tools.get(call.name)
        if tool is None:
            raise ToolError(f"There is no tool `{call.name}`. There are: {', '.join(self.tools)}.")
        if call.malformed:
            raise ToolError(f"The arguments were not a JSON object, so nothing was run: {call.malformed[:200]!r}")
        return tool, parse_arguments(tool, call.arguments)

    def batch(self, calls: Sequence[ToolCall]) -> Batch:
        """The calls of one reply, ready to run."""
        return Batch(self, calls)


class Batch:
    """The tool calls of one reply: run side by side, answered in the order asked."""

    def __init__(self, runner: ToolRunner, calls: Sequence[ToolCall]) -> None:
        self._runner = runner
        self._calls = calls
        self._replies: dict[str, ToolReply] = {}
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._began: dict[str, float] = {}
        self._numbers = itertools.count(1)
        self._places = asyncio.Semaphore(MAX_SIDE_BY_SIDE)
        self._asking = asyncio.Lock()

    def replies(self) -> tuple[ToolReply, ...]:
        """One reply a call, in the order asked; a call that was not finished is answered as interrupted."""
        return tuple(self._replies.get(call.id) or _interrupted(call) for call in self._calls)

    def touched(self) -> tuple[str, ...]:
        """The paths that the calls have read or written."""
        paths: list[str] = []
        for call in self._calls:
            tool = self._runner.tools.get(call.name)
            reply = self._replies.get(call.id)
            if tool and reply and not reply.failed and tool.effect in (Effect.READ, Effect.WRITE):
                paths.extend(tool.targets(parse_arguments(tool, call.arguments)))
        return tuple(paths)

    async def run(self) -> AsyncGenerator[Event, None]:
        """Run all calls; ends when each has its reply. Closing it ends what still runs."""
        work = asyncio.create_task(self._run_all())
        try:
            while (event := await self._events.get()) is not None:
                yield event
            await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _run_all(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for call in self._calls:
                    group.create_task(self._run_one(call))
        finally:
            self._events.put_nowait(None)

    async def _run_one(self, call: ToolCall) -> None:
        self._began[call.id] = time.monotonic()
        self._events.put_nowait(ToolStarted(call, self._runner.title(call)))
        async with self._places:
            result = await self._result(call)
        self._replies[call.id] = ToolReply(
            call.id, call.name, result.text, result.failed, result.images, result.display
        )
        seconds = time.monotonic() - self._began[call.id]
        self._events.put_nowait(ToolFinished(call.id, call.name, result.display, result.failed, seconds))

    async def _result(self, call: ToolCall) -> ToolResult:
        try:
            tool, args = self._runner.understand(call)
            comment = await self._permit(call, tool, args)
            self._began[call.id] = time.monotonic()  # the person's time is not the tool's
            result = await tool.run(args, self._context(call))
        except OuroError as error:
            return _failure(str(error), type(error) is RefusedError)
        except Exception as error:  # noqa: BLE001  # a defect in a tool must not end the conversation
            log.exception("tool %s failed", call.name)
            return _failure(f"{call.name} failed inside ouro: {type(error).__name__}: {error}")
        if comment:
            return replace(result, text=f"{result.text}\n\nThe person adds: {comment}")
        return result

    async def _permit(self, call: ToolCall, tool: AnyTool, args: Any) -> str:
        """Return once the call may run, with what the person adds to it.

        Raises:
            RefusedError: it may not.
        """
        decision, comment = self._decide(tool, args), ""
        if isinstance(decision, Ask):
            async with self._asking:  # one question at a time: "always" to the first may answer the second
                decision, comment = await self._settle(call, tool, args)
        if isinstance(decision, Deny):
            raise RefusedError(decision.reason)
        self._runner.permissions.admit(tool.effect, tool.targets(args))
        return comment

    async def _settle(self, call: ToolCall, tool: AnyTool, args: Any) -> tuple[Decision, str]:
        """Ask until the question that was answered is still the question: meanwhile a path may lead elsewhere."""
        decision, answered, comment = self._decide(tool, args), None, ""
        while isinstance(decision, Ask) and decision != answered:
            comment = await self._ask_permission(call, tool, args, decision)
            decision, answered = self._decide(tool, args), decision
        return decision, comment

    def _decide(self, tool: AnyTool, args: Any) -> Decision:
        return self._runner.permissions.decide(tool.name, tool.effect, tool.targets(args))

    async def _ask_permission(self, call: ToolCall, tool: AnyTool, args: Any, ask: Ask) -> str:
        display = await tool.preview(args)
        question_id = f"{call.id}:{next(self._numbers)}"
        permit = await self._inquire(
            PermissionAsked(question_id, call, tool.title(args), display, ask.reason, ask.rule)
        )
        if not isinstance(permit, Permit):
            raise RefusedError(SAID_NO)
        if permit.choice == "no":
            raise RefusedError(f"Refused: {permit.comment}" if permit.comment else SAID_NO)
        if permit.choice == "always" and ask.rule:
            try:
                self._runner.permissions.remember(ask.rule)
            except (OSError, OuroError) as error:
                self._events.put_nowait(Said(f"`{ask.rule}` holds for this session only: {error}", "warning"))
        return permit.comment

    async def _inquire(self, asked: PermissionAsked | QuestionAsked) -> Answer:
        self._events.put_nowait(asked)
        try:
            return await self._runner.inquire(asked.question_id)
        finally:
            self._events.put_nowait(QuestionClosed(asked.question_id))

    def _context(self, call: ToolCall) -> ToolContext:
        async def ask(question: Question) -> tuple[str, ...]:
            reply = await self._inquire(QuestionAsked(f"{call.id}:{next(self._numbers)}", question))
            return reply.answers if isinstance(reply, Reply) else ()

        return ToolContext(lambda text: self._events.put_nowait(ToolProgress(call.id, text)), ask)


def _interrupted(call: ToolCall) -> ToolReply:
    return ToolReply(call.id, call.name, INTERRUPTED, failed=True, display=Display("interrupted"))


def _failure(text: str, refused: bool = False) -> ToolResult:
    first_line = text.partition("\n")[0]
    summary = "refused" if refused else first_line
    return ToolResult(text, Display(summary, Plain(text) if text != summary else None), failed=True)
