"""The five laws, over many random sequences of tools, refusals, failures and interrupts."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import msgspec
import pytest
from fakes.agents import make_agent, make_runner
from properties import examples

from ouro.agent.loop import Prompt
from ouro.display import Display
from ouro.errors import StreamCut, ToolError
from ouro.events import (
    PermissionAsked,
    Permit,
    Replied,
    ToolFinished,
    ToolRunning,
    ToolStarted,
    TurnFinished,
)
from ouro.llm import ScriptedModel, ScriptedReply, call
from ouro.memory.ephemeral_backend import DictMemoryStore
from ouro.memory.manager import MemoryManager
from ouro.memory.short_term import make_sendable
from ouro.messages import ToolCall, ToolReply
from ouro.safety import Effect, Permissions, Workspace
from ouro.session.session_tasks import SessionTasks
from ouro.settings import LimitSettings
from ouro.tools.tool import Tool, ToolContext, ToolResult

SEEDS = range(examples(60))


class StepArgs(msgspec.Struct):
    what: str = "ok"


class Step(Tool[StepArgs]):
    """Succeeds or fails as its argument demands."""

    name = "step"
    effect = Effect.NONE
    Args = StepArgs

    def __init__(self):
        self.running = 0

    def title(self, args):
        return f"step {args.what}"

    async def run(self, args, ctx: ToolContext) -> ToolResult:
        self.running += 1
        try:
            for _ in range(random.randrange(4)):
                ctx.report("on the way")
                await asyncio.sleep(0)
            match args.what:
                case "refuses":
                    raise ToolError("It cannot be done.")
                case "breaks":
                    raise ZeroDivisionError("a defect")
                case "hangs":
                    await asyncio.Event().wait()
                case "asks":
                    await ctx.ask(None)
            return ToolResult(f"did {args.what}", Display("done"))
        finally:
            self.running -= 1


class Guarded(Step):
    """The same tool, with a permission question."""

    name = "guarded"
    effect = Effect.RUN

    def targets(self, args):
        return ("make everything",)


def draw_call(chance: random.Random) -> ToolCall:
    kind = chance.choice(
        [
            "ok",
            "ok",
            "refuses",
            "breaks",
            "hangs",
            "asks",
            "unknown",
            "malformed",
            "guarded",
            "wrong",
        ]
    )
    match kind:
        case "unknown":
            return call("nothing_like_it", x=1)
        case "malformed":
            return ToolCall("", "step", {}, malformed='{"what": ')
        case "guarded":
            return call("guarded", what="ok")
        case "wrong":
            return call("step", what=7)
        case _:
            return call("step", what=kind)


def draw_script(chance: random.Random) -> list:
    steps = []
    for _ in range(chance.randrange(1, 5)):
        calls = tuple(draw_call(chance) for _ in range(chance.randrange(1, 5)))
        error = StreamCut("the line fell") if chance.random() < 0.15 else None
        steps.append(ScriptedReply("Working on it.", calls, thinking="Hm.", error=error))
    return [*steps, *["Done."] * 20]


class World:
    def __init__(self, script, tmp_path: Path):
        self.memory = MemoryManager.start(
            DictMemoryStore(), project=str(tmp_path), model="scripted"
        )
        self.tasks = SessionTasks()
        self.steering: list[Prompt] = []
        self.tools = {"step": Step(), "guarded": Guarded()}
        self.refused: set[str] = set()
        self.model = ScriptedModel(script)
        runner = make_runner(self.tools, Permissions(Workspace(tmp_path), "ask"), self.tasks)
        self.agent = make_agent(
            self.memory,
            runner,
            [self.model],
            steering=self.take,
            limits=LimitSettings(max_turns=12),
        )

    def take(self):
        taken, self.steering = self.steering, []
        return taken

    async def play(self, chance: random.Random) -> list:
        """One turn with random answers and interrupts."""
        seen, end = [], chance.randrange(5, 60)
        async for event in self.tasks.run(lambda emit: self.agent.run(Prompt("do it"), emit)):
            seen.append(event)
            if isinstance(event, PermissionAsked):
                choice = chance.choice(["yes", "always", "no"])
                self.refused |= {event.call.id} if choice == "no" else set()
                self.tasks.answer(event.question_id, Permit(choice))
            if chance.random() < 0.05:
                self.steering.append(Prompt("and mind the tests"))
            if len(seen) == end:
                self.tasks.interrupt()
            if any(tool.running for tool in self.tools.values()) and chance.random() < 0.1:
                asyncio.get_running_loop().call_later(0.01, self.tasks.interrupt)
            stuck = asyncio.get_running_loop().call_later(0.3, self.tasks.interrupt)
        stuck.cancel()
        return seen


def check_sendable(messages):
    """Each call is answered in the next message, in the order of the calls; no tool result is
    without its call.
    """
    expected: list[str] = []
    for message in messages:
        replies = [part.call_id for part in message.parts_of(ToolReply)]
        if message.role == "tool":
            assert replies == expected
            expected = []
        else:
            assert not replies
            assert not expected, "a call was not answered before the next message"
            expected = [each.id for each in message.tool_calls]
    assert not expected


@pytest.mark.parametrize("seed", SEEDS)
async def test_loop_invariants_hold_for_random_interleavings(seed, tmp_path):
    chance = random.Random(seed)
    random.seed(seed)
    world = World(draw_script(chance), tmp_path)
    for _ in range(2):
        seen = await world.play(chance)
        # 1: the transcript can be sent; in memory each result is a message, in the order in which
        # the calls ended
        check_sendable(make_sendable(world.memory.messages()))
        results = [
            part.call_id
            for message in world.memory.messages()
            for part in message.parts_of(ToolReply)
        ]
        asked = [
            each.id
            for message in world.memory.messages()
            if not message.cut
            for each in message.tool_calls
        ]
        assert sorted(results) == sorted(asked)
        check_sendable(world.memory.context())
        for request in world.model.requests:
            check_sendable(request.messages)
        # 2: a failed tool returns a result: every started call finishes, unless the turn was
        # interrupted
        started = [event.call.id for event in seen if isinstance(event, ToolStarted)]
        finished = [event.call_id for event in seen if isinstance(event, ToolFinished)]
        assert set(finished) <= set(started)
        if seen[-1].outcome == "answered":
            assert sorted(finished) == sorted(started)
        # no call runs before its permission: it has none yet, or it is refused
        running = [event.call_id for event in seen if isinstance(event, ToolRunning)]
        assert set(running) <= set(started)
        assert not world.refused & set(running)
        # 3: TurnFinished comes last, exactly once
        assert [event for event in seen if isinstance(event, TurnFinished)] == [seen[-1]]
        # 4: no tool is still running
        assert all(tool.running == 0 for tool in world.tools.values())
        # 5: every complete reply that was reported is in memory
        replies = [event.message for event in seen if isinstance(event, Replied)]
        assert all(reply in world.memory.messages() for reply in replies)
    await world.memory.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
