"""One turn, as a stream of events."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from fakes.agents import make_agent, make_runner, stream_events, turn_of

from ouro.agent.compactor import TOO_LONG_HINT
from ouro.agent.loop import LAST_CHECK_SECONDS, Prompt
from ouro.display import Display, Plain
from ouro.errors import AuthenticationFailed, ContextTooLong, RateLimited, SaveFailed, ToolError
from ouro.events import (
    Compacted,
    Notice,
    PermissionAsked,
    Permit,
    Prompted,
    Replied,
    Retrying,
    TextDelta,
    ToolFinished,
    ToolRunning,
    ToolStarted,
    TurnFinished,
    UsageUpdated,
)
from ouro.llm import ModelSpec, ScriptedModel, ScriptedReply, call, calls
from ouro.memory.ephemeral_backend import DictMemoryStore
from ouro.memory.manager import MemoryManager
from ouro.messages import Context, Image, Message, Text, ToolReply
from ouro.safety import Effect, Permissions, Workspace
from ouro.session.session_tasks import SessionTasks
from ouro.settings import LimitSettings
from ouro.tools.tool import Tool, ToolResult

BIG = "x" * 5000


class StepArgs(msgspec.Struct):
    what: str = "ok"


class Echo(Tool[StepArgs]):
    """Returns its argument."""

    name = "echo"
    effect = Effect.NONE
    Args = StepArgs

    def title(self, args):
        return f"echo {args.what}"

    async def run(self, args, ctx):
        if args.what == "late":
            await asyncio.sleep(0.02)
        return ToolResult(BIG if args.what == "big" else args.what, Display(args.what))


@pytest.fixture
def world(tmp_path):
    return make_world(tmp_path)


def make_world(tmp_path, store=None):
    class World:
        def __init__(self):
            self.steering = []
            self.memory = MemoryManager.start(
                store or DictMemoryStore(), project=str(tmp_path), model="scripted"
            )

        def agent(self, *models, limits=None, instructions_for=lambda _: "", **options):
            runner = make_runner({"echo": Echo()}, Permissions(Workspace(tmp_path), "auto"))
            return make_agent(
                self.memory,
                runner,
                models,
                steering=self.take,
                instructions_for=instructions_for,
                limits=limits,
                **options,
            )

        def take(self):
            taken, self.steering = self.steering, []
            return taken

    return World()


async def play(agent, text="hi"):
    return [event async for event in turn_of(agent, text)]


async def test_plain_answer_emits_its_events_in_order(world):
    seen = await play(world.agent(ScriptedModel(["Hello there."])))
    reply = world.memory.messages()[-1]
    assert seen == [
        Prompted("hi"),
        TextDelta("Hello "),
        TextDelta("there."),
        Replied(reply),
        UsageUpdated(reply.usage, world.memory.tokens, 128_000),
        TurnFinished("answered"),
    ]
    assert reply.text == "Hello there."


async def test_tool_results_are_sent_in_the_order_of_the_calls(world):
    """Each result is saved as its call ends, and all are sent in the order of the calls."""
    model = ScriptedModel([calls(call("echo", what="late"), call("echo", what="b")), "Done."])
    seen = await play(world.agent(model))
    assert [event.title for event in seen if isinstance(event, ToolStarted)] == [
        "echo late",
        "echo b",
    ]
    saved = [
        part.text for message in world.memory.messages() for part in message.parts_of(ToolReply)
    ]
    assert saved == ["b", "late"]
    assert [part.text for part in model.requests[1].messages[-1].parts_of(ToolReply)] == [
        "late",
        "b",
    ]


async def test_call_behind_a_question_runs_only_after_its_own(world, tmp_path):
    """Two calls, each with its question: the second did not look as if it ran while the first was
    asked.
    """
    tasks, tool, seen = SessionTasks(), Echo(), []
    tool.effect, tool.targets = Effect.RUN, lambda args: (args.what,)
    runner = make_runner({"echo": tool}, Permissions(Workspace(tmp_path), "ask"), tasks)
    model = ScriptedModel(
        [calls(call("echo", what="touch a1"), call("echo", what="git push")), "Done."]
    )
    agent = make_agent(world.memory, runner, [model])
    async for event in tasks.run(lambda emit: agent.run(Prompt("hi"), emit)):
        seen.append(event)
        if isinstance(event, PermissionAsked):
            tasks.answer(
                event.question_id, Permit("no" if event.title == "echo git push" else "yes")
            )
    first, second = (event.call.id for event in seen if isinstance(event, ToolStarted))
    asked = next(place for place, event in enumerate(seen) if isinstance(event, PermissionAsked))
    assert [event for event in seen if isinstance(event, ToolRunning)] == [ToolRunning(first)]
    assert seen.index(ToolRunning(first)) > asked
    assert [
        event.call_id for event in seen if isinstance(event, ToolFinished) and event.failed
    ] == [second]


async def test_the_system_prompt_and_tools_are_the_same_in_every_request(world):
    model = ScriptedModel([call("echo", what="a"), call("echo", what="b"), "Done."])
    await play(world.agent(model))
    assert len({(request.messages[0], str(request.tools)) for request in model.requests}) == 1


async def test_steering_enters_at_the_next_tool_boundary(world):
    def first(_messages):
        world.steering.append(Prompt("and be quick"))
        return call("echo", what="a")

    model = ScriptedModel([first, "Done."])
    seen = await play(world.agent(model))
    assert Prompted("and be quick") in seen
    assert [message.role for message in model.requests[1].messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
    ]


async def test_steering_after_the_last_answer_continues_the_same_turn(world):
    def first(_messages):
        world.steering.append(Prompt("one more thing"))
        return "Done."

    seen = await play(world.agent(ScriptedModel([first, "That too."])))
    assert [event.text for event in seen if isinstance(event, Prompted)] == ["hi", "one more thing"]
    assert [event for event in seen if isinstance(event, TurnFinished)] == [
        TurnFinished("answered")
    ]


async def test_an_interrupt_while_attachments_are_read_loses_no_message(world):
    is_reading = asyncio.Event()

    async def read_attachments(prompt, emit):
        is_reading.set()
        await asyncio.Event().wait()

    world.steering = [Prompt("See @a.py.")]
    agent = world.agent(ScriptedModel(["Yes?"]), add_attachments=read_attachments)
    turn = asyncio.create_task(play(agent))
    await is_reading.wait()
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    assert world.memory.messages()[-1].text == "See @a.py."


@pytest.mark.parametrize("sees_pictures", [True, False])
async def test_a_model_that_gets_no_pictures_is_named_in_a_warning(world, sees_pictures):
    def first(_messages):
        world.steering.append(Prompt("and this?", (Image("image/png", b"second"),)))
        return "Done."

    spec = ModelSpec("scripted", images=sees_pictures)
    agent = world.agent(ScriptedModel([first, "That too."], spec=spec))
    prompt = Prompt("what is this?", (Image("image/png", b"first"),))
    seen = await stream_events(lambda emit: agent.run(prompt, emit))
    warnings = [event.text for event in seen if isinstance(event, Notice)]
    assert len(warnings) == (0 if sees_pictures else 2)
    assert all("only their names were sent" in warning for warning in warnings)


class LateErrors:
    """Errors that are found so many questions after the change."""

    def __init__(self, *found):
        self.found = list(found)
        self.waited = []

    async def __call__(self, seconds):
        self.waited.append(seconds)
        return self.found.pop(0) if self.found else ""


async def test_errors_that_came_late_follow_the_next_tool_result(world):
    errors = LateErrors("", "a.py:1: wrong")
    model = ScriptedModel([call("echo", what="a"), "Done."])
    seen = await play(world.agent(model, late_errors=errors))
    assert model.requests[1].messages[-1] == Message("user", (Context("a.py:1: wrong"),))
    assert not [event for event in seen if isinstance(event, Notice)]


async def test_errors_found_after_the_last_change_continue_the_turn_once(world):
    errors = LateErrors("", "a.py:1: wrong")
    model = ScriptedModel(["Done.", "Repaired."])
    seen = await play(world.agent(model, late_errors=errors))
    assert model.requests[1].messages[-1] == Message("user", (Context("a.py:1: wrong"),))
    assert [event.text for event in seen if isinstance(event, Notice)] == [
        "New errors were found after the last change. The agent looks at them."
    ]
    assert errors.waited == [0, LAST_CHECK_SECONDS, LAST_CHECK_SECONDS]
    assert seen[-1] == TurnFinished("answered")


async def test_errors_of_the_turn_before_come_with_the_next_message(world):
    model = ScriptedModel(["Done."])
    await play(world.agent(model, late_errors=LateErrors("a.py:1: wrong")))
    assert [message.role for message in model.requests[0].messages] == ["system", "user", "user"]


async def test_failed_attempt_is_marked_cut_and_retried(world):
    model = ScriptedModel(
        [ScriptedReply("Half an ans", error=RateLimited("Too many requests.")), "Whole."]
    )
    seen = await play(world.agent(model))
    assert any(isinstance(event, Retrying) for event in seen)
    kept = [message for message in world.memory.messages() if message.role == "assistant"]
    assert [(message.text, message.cut) for message in kept] == [
        ("Half an ans", True),
        ("Whole.", False),
    ]
    assert [message.text for message in world.memory.context() if message.role == "assistant"] == [
        "Whole."
    ]


async def test_a_fallback_answers_when_the_first_model_cannot(world):
    first = ScriptedModel([RateLimited("No.")] * 9, spec=ModelSpec("first"))
    second = ScriptedModel(["Here."], spec=ModelSpec("second", window=9000))
    seen = await play(world.agent(first, second))
    assert world.memory.messages()[-1].model == "second"
    assert [event.window for event in seen if isinstance(event, UsageUpdated)] == [9000]


async def test_refused_key_ends_the_turn_with_a_hint(world):
    seen = await play(
        world.agent(
            ScriptedModel([AuthenticationFailed("The key is not accepted.", "Set another.")])
        )
    )
    assert seen[-1] == TurnFinished("unauthorized", "The key is not accepted.\nSet another.")
    assert [message.role for message in world.memory.messages()] == ["user"]


async def test_full_window_is_compacted_once_and_the_turn_continues(world):
    parts = ["## Goal\nEcho."] * 4
    model = ScriptedModel(
        [call("echo", what="big"), call("echo", what="y"), ContextTooLong("Too."), *parts, "Done."]
    )
    seen = await play(world.agent(model))
    assert seen[-1] == TurnFinished("answered")
    assert [event.kept for event in seen if isinstance(event, Compacted)] == [1]
    assert BIG in str(model.requests[2].messages)
    assert BIG not in str(model.requests[-1].messages)


async def test_window_that_stays_full_ends_the_turn_with_a_hint(world):
    seen = await play(world.agent(ScriptedModel([ContextTooLong("Too long.")] * 3)))
    assert seen[-1] == TurnFinished("failed", f"Too long.\n{TOO_LONG_HINT}")


async def test_turn_limit_ends_the_turn_and_leaves_a_valid_transcript(world):
    model = ScriptedModel([call("echo", what=str(number)) for number in range(9)])
    seen = await play(world.agent(model, limits=LimitSettings(max_turns=3)))
    assert seen[-1].outcome == "limit"
    assert len(model.requests) == 3
    assert world.memory.messages()[-1].role == "tool"


async def test_repeated_identical_call_is_stopped(world):
    seen = await play(world.agent(ScriptedModel([call("echo", what="same") for _ in range(99)])))
    assert seen[-1].outcome == "limit"
    warned = [message for message in world.memory.messages() if message.parts_of(Context)]
    assert len(warned) == 3


async def test_folder_instructions_follow_the_first_file_of_that_folder(world):
    model = ScriptedModel([call("echo", what="a"), "Done."])
    await play(world.agent(model, instructions_for=lambda _: "Here we use tabs."))
    assert model.requests[1].messages[-1] == Message("user", (Context("Here we use tabs."),))


async def test_a_path_that_became_unclear_since_its_call_is_left_out(world, tmp_path):
    class Moved(Echo):
        effect = Effect.READ
        has_run = False

        def targets(self, args):
            return (args.what,)

        def resolve(self, args):
            if args.what == "unclear" and self.has_run:
                raise ToolError("Several names look like it.")
            return self, args

        async def run(self, args, ctx):
            result = await super().run(args, ctx)
            self.has_run = True
            return result

    asked = []
    agent = world.agent(
        ScriptedModel([calls(call("echo", what="unclear"), call("echo", what="b.py")), "Done."]),
        instructions_for=lambda paths: asked.extend(paths) or "",
    )
    agent.tools.tools["echo"] = Moved()
    seen = await play(agent)
    assert seen[-1] == TurnFinished("answered")
    assert asked == ["b.py"]


async def test_failed_save_is_reported_and_the_turn_continues(tmp_path):
    class FullDisk(DictMemoryStore):
        async def save_message(self, session_id, record):
            raise SaveFailed("The disk is full.")

    seen = await play(make_world(tmp_path, FullDisk()).agent(ScriptedModel(["Hello."])))
    assert Notice("The disk is full.", "error") in seen
    assert seen[-1] == TurnFinished("answered")


async def test_cancelling_mid_stream_keeps_the_partial_text(world):
    holding = asyncio.Event()
    model = ScriptedModel(
        [ScriptedReply("So far ", calls=(call("echo", what="a"),), hold=holding.wait)]
    )

    async def consume():
        async for event in turn_of(world.agent(model)):
            if event == TextDelta("far "):
                reached.set()

    reached = asyncio.Event()
    task = asyncio.create_task(consume())
    await reached.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert world.memory.messages()[-1] == Message(
        "assistant", (Text("So far "),), model="scripted", cut=True
    )


async def test_call_of_an_unknown_tool_returns_an_error_to_the_model(world):
    seen = await play(world.agent(ScriptedModel([call("nothing"), "I see."])))
    finished = [event for event in seen if isinstance(event, ToolFinished)]
    assert finished[0].failed
    assert finished[0].display == Display("There is no tool `nothing`. There are: echo.", None)
    assert isinstance(finished[0].display.body, Plain | None)
