"""A transcript that exceeds the window is compacted: a summary, important messages word for word, a
receipt.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from fakes.agents import make_agent, make_compactor, make_runner, stream_events, turn_of

from ouro.agent.loop import DO_NOT_SEND, SEND_ALL, SUMMARIZE, Prompt
from ouro.display import Display
from ouro.errors import (
    AuthenticationFailed,
    ContextTooLong,
    PromptRefused,
    RateLimited,
    RequestRefused,
    SaveFailed,
    StreamCut,
)
from ouro.events import Compacted, Compacting, Notice, Reply, TurnFinished, UsageUpdated
from ouro.llm import ModelSpec, ScriptedModel, ScriptedReply, call
from ouro.memory.backend import CompactionRecord, CostRecord, PinRecord
from ouro.memory.ephemeral_backend import DictMemoryStore
from ouro.memory.manager import MemoryManager
from ouro.memory.tokens import estimate_messages
from ouro.messages import (
    Context,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolReply,
    Usage,
    assistant,
    system,
    tool,
    user,
)
from ouro.safety import Effect, Permissions, Workspace
from ouro.settings import CompactionSettings
from ouro.tools.tool import Tool, ToolResult

SUMMARY = "## Goal\nMend the parser.\n## Next\nRun the tests."
SMALL = ModelSpec("small", window=8_192)


class LookArgs(msgspec.Struct):
    size: int = 0


class Look(Tool[LookArgs]):
    """Output `size` characters."""

    name = "look"
    effect = Effect.NONE
    Args = LookArgs

    def title(self, args):
        return "look"

    async def run(self, args, ctx):
        return ToolResult("o" * args.size, Display("looked"))


def says(text="", *calls):
    """A reply with the usage that a provider would report."""

    def step(messages):
        return ScriptedReply(
            text,
            calls,
            usage=Usage(input=estimate_messages(messages) + 50, output=len(text) // 4, cost=0.01),
        )

    return step


def is_asked_for_summary(messages) -> bool:
    return any(
        "Write a summary that replaces it" in part.text for part in messages[-1].parts_of(Context)
    )


def steps_with_summary(*steps, summary=SUMMARY):
    """Steps of a script that also answers each request for a summary."""
    left = iter(steps)

    def step(messages):
        if is_asked_for_summary(messages):
            return says(summary)(messages)
        following = next(left)
        return following(messages) if callable(following) else following

    return [step] * 99


class World:
    def __init__(self, tmp_path, store=None):
        self.store = store or DictMemoryStore()
        self.memory = MemoryManager.start(self.store, project="/p", model="small")
        self.runner = make_runner({"look": Look()}, Permissions(Workspace(tmp_path), "auto"))
        self.told_again = 0

    def tell_again(self):
        self.told_again += 1

    def compactor(self, *models, **more):
        return make_compactor(
            self.memory, self.runner, models, on_compacted=self.tell_again, **more
        )

    async def turn(self, text, *models, **more):
        agent = make_agent(
            self.memory, self.runner, models, compactor=self.compactor(*models, **more)
        )
        return [event async for event in turn_of(agent, text)]

    async def fill(self, rounds=6, size=3_600):
        """A conversation of about `rounds` thousand tokens."""
        await self.memory.add(user("Never push. Use tabs."))
        for number in range(rounds):
            await self.memory.add(assistant("", ToolCall(f"f{number}", "look", {"size": size})))
            await self.memory.add(tool(ToolReply(f"f{number}", "look", "o" * size)))
        await self.memory.add(assistant("I have looked."))
        return self

    async def compact(self, *models, focus="", **more):
        return await stream_events(
            lambda emit: self.compactor(*models, **more).compact(focus, emit)
        )

    async def reopen(self):
        await self.memory.close()
        again = await MemoryManager.resume(self.store, self.memory.session_id, project="/p")
        await again.pager.finish_loading()
        return again


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def texts(messages):
    return [
        part.text
        for message in messages
        for part in message.parts
        if isinstance(part, Text | Context)
    ]


async def test_full_window_is_compacted_before_the_next_call_with_a_receipt(world):
    await world.fill()
    model = ScriptedModel(steps_with_summary(says("Done.")), spec=SMALL)
    seen = await world.turn("go on", model)
    [receipt] = of(Compacted, seen)
    assert receipt.after < receipt.before * 0.5
    assert (receipt.covered, receipt.kept, receipt.dropped) == (13, 1, 0)
    assert receipt.summary.startswith(SUMMARY)
    assert receipt.usage == Usage(input=receipt.usage.input, output=11, cost=0.01)
    assert seen[-1] == TurnFinished("answered")
    assert texts(model.requests[-1].messages)[1] == "Never push. Use tabs."
    assert SUMMARY in texts(model.requests[-1].messages)[2]
    assert texts(model.requests[-1].messages)[-2:] == ["I have looked.", "go on"]
    assert len(world.memory.messages()) == 16
    assert world.told_again == 1


async def test_usage_is_updated_after_compaction_and_after_the_reply(world):
    await world.fill()
    seen = await world.turn("go on", ScriptedModel(steps_with_summary(says("Done.")), spec=SMALL))
    [receipt], [early, late] = of(Compacted, seen), of(UsageUpdated, seen)
    assert early.context == receipt.after
    assert abs(late.context - early.context) < 200


async def test_summary_request_starts_with_the_unchanged_conversation(world):
    await world.fill(rounds=4)
    model = ScriptedModel([says("Fine."), says(SUMMARY)], spec=SMALL)
    await world.turn("look", model)
    await world.compact(model, focus="the tabs")
    before, asked = model.requests
    assert asked.messages[: len(before.messages)] == before.messages
    assert asked.tools == before.tools
    assert asked.messages[-2] == Message(
        "assistant", (Text("Fine."),), asked.messages[-2].usage, "small"
    )
    assert "keep in particular: the tabs" in texts(asked.messages)[-1]


async def test_turn_that_fills_the_window_is_compacted_between_calls(world):
    steps = [says("", call("look", size=9_000 + number)) for number in range(6)]
    model = ScriptedModel(steps_with_summary(*steps, says("Done.")), spec=SMALL)
    seen = await world.turn("Never push. Look everywhere.", model)
    assert seen[-1] == TurnFinished("answered")
    assert len(of(Compacted, seen)) >= 2
    for request in model.requests:
        assert estimate_messages(request.messages) < SMALL.window
        if request.messages[0] == system("Be good."):
            assert texts(request.messages)[1] == "Never push. Look everywhere."
    last = model.requests[-1].messages
    assert last[-1].parts_of(ToolReply)[0].text == "o" * 9_005, (
        "what was just asked for is not taken away unread"
    )


async def test_resumed_session_sends_the_same_context_after_compaction(world):
    await world.fill()
    await world.turn("go on", ScriptedModel(steps_with_summary(says("Done.")), spec=SMALL))
    await world.memory.record(PinRecord(1, world.memory.now()))
    sent, tokens, usage = world.memory.context(), world.memory.tokens, world.memory.usage
    again = await world.reopen()
    assert (again.context(), again.tokens, again.usage) == (sent, tokens, usage)


async def test_cost_of_the_summary_is_added_to_the_session(world):
    await world.fill()
    await world.turn("go on", ScriptedModel(steps_with_summary(says("Done.")), spec=SMALL))
    [record] = [
        each
        for each in (
            await world.store.load_session(world.memory.session_id, read_only=True)
        ).records
        if isinstance(each, CompactionRecord)
    ]
    assert (record.trigger, record.model, record.usage.cost) == ("auto", "small", 0.01)
    assert world.memory.usage.cost == pytest.approx(0.02)


async def test_plan_and_oversized_messages_are_in_the_summary(world):
    await world.fill()
    await world.memory.add(user("LOG " + "l" * 9_000 + " END"))
    await world.memory.add(assistant("I see."))
    model = ScriptedModel([says(SUMMARY)] * 9, spec=SMALL)
    [receipt] = of(Compacted, await world.compact(model, carried="## Plan\n- [>] Run the tests"))
    assert receipt.summary.startswith(SUMMARY)
    assert "too long to be kept whole\nMessage 15:\n> LOG lll" in receipt.summary
    assert receipt.summary.endswith("## Plan\n- [>] Run the tests")


async def test_compact_respects_focus_and_pinned_messages(world):
    await world.fill()
    await world.memory.record(PinRecord(14, world.memory.now()))
    await world.memory.add(user("and"))
    await world.memory.add(assistant("Yes."))
    [receipt] = of(
        Compacted, await world.compact(ScriptedModel([says(SUMMARY)], spec=SMALL), focus="tabs")
    )
    assert receipt.kept == 3
    assert "You said earlier, and it was pinned:\n\nI have looked." in texts(world.memory.context())
    assert world.memory.transcript.compaction.focus == "tabs"


async def test_there_is_nothing_to_compact_at_the_start(world):
    await world.memory.add(user("hi"))
    model = ScriptedModel([], spec=SMALL)
    assert [event.text for event in await world.compact(model)] == [
        "Nothing to compact: the newest messages stay as they are."
    ]
    assert model.requests == []


async def test_second_compaction_includes_the_first_summary(world):
    await world.fill()
    model = ScriptedModel([says(SUMMARY), says("Fine."), says("## Goal\nBoth.")], spec=SMALL)
    await world.compact(model)
    first = world.memory.context()
    assert of(Compacted, await world.compact(model)) == []
    assert world.memory.context() == first
    await world.turn("and then " + "x" * 2_000, model)
    [receipt] = of(Compacted, await world.compact(model))
    assert SUMMARY in texts(model.requests[2].messages)[2]
    assert receipt.summary == "## Goal\nBoth."
    assert texts(world.memory.context())[0] == "Never push. Use tabs."


FAILURES = {
    "nothing": [""],
    "two words": ["ok then"],
    "a refusal": ["I'm sorry, I can't help with that."],
    "a call": [call("look", size=1)],
    "refused": [RequestRefused("The provider's filter stopped the answer.")],
    "no key": [AuthenticationFailed("The key is not accepted.")],
    "broken off": [ScriptedReply("## Goal\nHalf", error=StreamCut("It broke off."))],
    "busy": [RateLimited("Too many requests.", retry_after=0.0)],
    "endless": [ScriptedReply("x" * 4_100_000)],
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_failed_summary_drops_old_outputs_and_turn_continues(world, failure):
    await world.fill()
    writer = ScriptedModel(FAILURES[failure] * 9, spec=ModelSpec("writer", window=8_192))
    model = ScriptedModel([says("Done."), says("More.")], spec=SMALL)
    seen = await world.turn("go on", model, summarisers=[writer])
    [receipt] = of(Compacted, seen)
    assert receipt.summary == ""
    assert receipt.dropped > 0
    assert receipt.after < receipt.before
    assert [event.level for event in of(Notice, seen)] == ["warning"]
    assert seen[-1] == TurnFinished("answered")
    asked = len(writer.requests)
    await world.turn("and", model, summarisers=[writer])
    assert len(writer.requests) == asked, "it is not asked again at once"
    again = await world.reopen()
    assert again.context() == world.memory.context()


async def test_overlong_summary_is_cut(world):
    await world.fill()
    model = ScriptedModel([ScriptedReply("## Goal\n" + "line\n" * 100_000)], spec=SMALL)
    [receipt] = of(Compacted, await world.compact(model))
    assert receipt.after < receipt.before
    assert receipt.summary.endswith("[the summary was longer and is cut here]")


async def test_summary_that_saves_nothing_is_discarded_but_its_cost_counted(world):
    await world.memory.add(user("Never push."))
    await world.memory.add(assistant("Fine. " * 9))
    await world.memory.add(user("Go."))
    await world.memory.add(assistant("I went."))
    before = world.memory.context()
    seen = await world.compact(ScriptedModel([says(SUMMARY * 20)], spec=SMALL))
    assert of(Compacted, seen) == []
    assert "Nothing was compacted" in of(Notice, seen)[-1].text
    assert world.memory.context() == before
    await world.memory.close()
    kept = (await world.store.load_session(world.memory.session_id, read_only=True)).records
    assert [each.purpose for each in kept if isinstance(each, CostRecord)] == ["compaction"]


async def test_compaction_model_with_smaller_window_summarizes_in_steps(world):
    await world.fill(rounds=20)
    writer = ScriptedModel(
        [says(f"## Goal\nPart {number}.") for number in range(1, 99)],
        spec=ModelSpec("writer", window=8_192),
    )
    large = ScriptedModel([says("Done.")], spec=ModelSpec("large", window=30_000))
    seen = await world.turn(
        "go on", large, summarisers=[writer], settings=CompactionSettings(at=0.5)
    )
    [receipt] = of(Compacted, seen)
    parts = of(Compacting, seen)
    assert len(writer.requests) == parts[-1].parts > 3
    assert receipt.summary == f"## Goal\nPart {len(writer.requests)}."
    assert all(estimate_messages(request.messages) < 8_192 for request in writer.requests)
    assert "Part 1." in texts(writer.requests[1].messages)[1]
    assert receipt.usage.cost == pytest.approx(0.01 * len(writer.requests))


async def test_change_to_a_model_with_a_smaller_window_compacts(world):
    large = ScriptedModel(
        [says("", call("look", size=90_000)), says("Done.")],
        spec=ModelSpec("large", window=200_000),
    )
    await world.turn("Never push.", large)
    small = ScriptedModel(steps_with_summary(says("Fine.")), spec=SMALL)
    seen = await world.turn("go on", small)
    assert len(of(Compacted, seen)) == 1
    assert seen[-1] == TurnFinished("answered")
    assert all(estimate_messages(request.messages) < 8_192 for request in small.requests)
    assert "Never push." in texts(small.requests[-1].messages)


async def test_with_auto_off_a_full_window_only_drops_outputs(world):
    await world.fill()
    model = ScriptedModel([ContextTooLong("Too long."), says("Done.")], spec=SMALL)
    seen = await world.turn("go on", model, settings=CompactionSettings(auto=False))
    [receipt] = of(Compacted, seen)
    assert (receipt.summary, receipt.dropped > 0) == ("", True)
    assert seen[-1] == TurnFinished("answered")
    assert len(model.requests) == 2


async def test_images_count_as_tokens_and_are_dropped_with_their_outputs(world):
    picture = Image("image/png", b"p")
    await world.memory.add(user("Look.", [picture]))
    for number in range(5):
        await world.memory.add(assistant("", ToolCall(f"p{number}", "look", {})))
        await world.memory.add(tool(ToolReply(f"p{number}", "look", "seen", images=(picture,))))
    model = ScriptedModel(steps_with_summary(says("Done.")), spec=SMALL)
    seen = await world.turn("go on", model)
    assert len(of(Compacted, seen)) == 1
    assert model.requests[-1].messages[1] == Message("user", (Text("Look."), picture))


async def test_cancelling_during_compaction_changes_nothing(world):
    await world.fill()
    holding = asyncio.Event()
    model = ScriptedModel([ScriptedReply(SUMMARY, hold=holding.wait)], spec=SMALL)
    before, usage = world.memory.context(), world.memory.usage
    asked = asyncio.Event()

    async def compact():
        await world.compactor(model).compact(
            "", lambda event: isinstance(event, Compacting) and asked.set()
        )

    task = asyncio.create_task(compact())
    await asked.wait()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (world.memory.context(), world.memory.usage, world.told_again) == (before, usage, 0)


async def test_compaction_that_cannot_be_saved_applies_and_is_reported(tmp_path):
    class FullDisk(DictMemoryStore):
        async def save_memory(self, session_id, change):
            if isinstance(change, CompactionRecord):
                raise SaveFailed("The disk is full.")
            await super().save_memory(session_id, change)

    world = await World(tmp_path, FullDisk()).fill()
    seen = await world.compact(ScriptedModel([says(SUMMARY)], spec=SMALL))
    assert len(of(Compacted, seen)) == 1
    assert Notice("The disk is full.", "error") in seen
    assert SUMMARY in texts(world.memory.context())[1]


async def test_thinking_and_calls_of_the_kept_part_are_unchanged(world):
    await world.fill()
    thought = Message(
        "assistant",
        (Thinking("hm", "seal"), ToolCall("t", "look", {})),
        Usage(9_000, output=9),
        "small",
    )
    await world.memory.add(thought)
    await world.memory.add(tool(ToolReply("t", "look", "fresh")))
    await world.compact(ScriptedModel([says(SUMMARY)], spec=SMALL))
    assert world.memory.context()[-2:] == [thought, tool(ToolReply("t", "look", "fresh"))]


async def test_failed_compaction_is_retried_only_after_the_context_grew(world):
    for number in range(7):
        await world.memory.add(user(f"{number} " + "w" * 3_600))
        await world.memory.add(assistant("I see."))
    writer = ScriptedModel([RequestRefused("No.")] * 9, spec=ModelSpec("writer", window=64_000))
    model = ScriptedModel(
        [says("", call("look", size=9)), says("", call("look", size=4_000)), says("Done.")],
        spec=SMALL,
    )
    seen = await world.turn("go on", model, summarisers=[writer])
    assert seen[-1] == TurnFinished("answered")
    assert len(writer.requests) == 2, "at first, and when it had grown by a tenth"
    assert len(of(Notice, seen)) == 2


LONG = "Why is this slow?\n" + "x" * 9_000


async def send_long_message(world, answer, text=LONG, spec=SMALL):
    """Send a long message; returns the events and the model. `world.asked` gets the questions."""
    asked = []

    async def ask_user(question, _emit):
        asked.append(question)
        return Reply((answer,) if answer else ())

    world.runner = msgspec.structs.replace(world.runner, ask_user=ask_user)
    model = ScriptedModel(steps_with_summary(says("Done.")), spec=spec)
    agent = make_agent(world.memory, world.runner, [model], compactor=world.compactor(model))
    events: list = []
    try:
        await agent.confirm_long_message(Prompt(text), events.append)
        events += [event async for event in turn_of(agent, text)]
    finally:
        world.asked = [(question.question.text, question.question.choices) for question in asked]
    return events, model


@pytest.mark.parametrize(("answer", "compacted"), [(SUMMARIZE, 1), (SEND_ALL, 0), ("", 1)])
async def test_long_message_that_would_trigger_compaction_asks_the_user(world, answer, compacted):
    await world.fill(rounds=4)
    events, model = await send_long_message(world, answer)
    [(text, choices)] = world.asked
    assert "and the window 8,192" in text
    assert choices == (SUMMARIZE, SEND_ALL, DO_NOT_SEND)
    assert len(of(Compacted, events)) == compacted
    assert texts(model.requests[-1].messages)[-1] == LONG
    assert events[-1] == TurnFinished("answered")


async def test_long_message_held_back_by_the_user_is_not_in_the_session(world):
    await world.fill(rounds=4)
    before = world.memory.messages()
    with pytest.raises(PromptRefused):
        await send_long_message(world, DO_NOT_SEND)
    assert world.memory.messages() == before


@pytest.mark.parametrize("text", ["go on", "x" * 2_000], ids=["short", "room"])
async def test_message_that_does_not_trigger_compaction_asks_nothing(world, text):
    await world.fill(rounds=4 if len(text) > 9 else 8)
    await send_long_message(world, "", text)
    assert world.asked == []


@pytest.mark.parametrize("rounds", [0, 4])
async def test_message_larger_than_the_window_asks_the_user_also_in_a_new_session(world, rounds):
    if rounds:
        await world.fill(rounds=rounds)
    before = world.memory.messages()
    with pytest.raises(PromptRefused):
        await send_long_message(world, DO_NOT_SEND, text="x" * 60_000)
    [(text, choices)] = world.asked
    assert "and the window 8,192" in text
    assert "in a file" in text
    assert choices == (DO_NOT_SEND, SEND_ALL)
    assert world.memory.messages() == before


async def test_user_message_larger_than_the_window_is_never_cut(world):
    await world.fill(rounds=2)
    text = "Why?\n" + "x" * 40_000
    await world.memory.add(user(text))
    plan = world.compactor(ScriptedModel(["a"], spec=SMALL)).plan("auto")
    assert [entry.message.text for entry in plan.tail] == [text]
