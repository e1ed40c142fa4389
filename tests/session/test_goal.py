"""A goal: turns follow each other until a command passes or a model says that the condition holds."""

import asyncio
import json

import pytest
from fakes.waiting import until

from ouro.assemble import opener
from ouro.commands.front_end import FrontEnd
from ouro.commands.slash import dispatch
from ouro.events import Notice, Prompted, ToolFinished, TurnFinished
from ouro.frontends.session_format import status_items
from ouro.llm import ScriptedModel, ScriptedReply, call
from ouro.messages import Context, Usage
from ouro.session import Draft, OpenRequest, TurnObserver, TurnQueue
from ouro.session_options import Options


@pytest.fixture(autouse=True)
def no_background_calls(no_background_calls):
    """Only the agent and the check of the goal ask the model."""


class Screen(TurnObserver, FrontEnd):
    """A front end that records what it shows and runs slash commands."""

    def __init__(self, session):
        self._session, self.shown, self.outcomes, self.lines = session, [], [], []
        self.turns = TurnQueue(self)
        self.turns.attach(session)

    @property
    def session(self):
        return self._session

    @property
    def queue(self):
        return self.turns

    def show(self, event):
        self.shown.append(event)

    def say(self, text, level="info"):
        self.lines.append(text)

    async def send(self, text):
        self.turns.say(Draft(text))

    async def run_command(self, text):
        return await dispatch(self, text)

    def turn_ended(self, outcome, seconds):
        self.outcomes.append(outcome)

    def redraw(self):
        self.redrawn = status_items(self.session.status())["goal"]

    def said(self, words):
        texts = [event.text for event in self.shown if isinstance(event, Notice)]
        details = [event.detail for event in self.shown if isinstance(event, TurnFinished)]
        return any(words in text for text in (*texts, *details, *self.lines))

    async def idle(self):
        await until(lambda: not self.turns.busy)

    async def type(self, text):
        self.turns.say(Draft(text))
        await asyncio.sleep(0)
        await self.idle()


async def open_screen(folder, replies, resume="", **settings):
    base = {"permissions.mode": "auto", "sandbox.enabled": False}
    options = Options(
        cwd=folder,
        settings=base | settings,
        trust=True,
        ready_model=ScriptedModel(replies),
        interactive=True,
    )
    return Screen(await opener(options)(OpenRequest(resume)))


def verdict(holds, reason="because"):
    return json.dumps({"holds": holds, "reason": reason})


def contexts(session):
    return [
        part.text
        for message in session.memory.messages()
        for part in message.parts_of(Context)
        if "<goal>" in part.text
    ]


async def test_turns_follow_each_other_until_a_command_passes(tmp_path):
    replies = [
        call("shell", command="echo 1 > one"),
        "One is there.",
        call("shell", command="echo 2 > two"),
        "Two is there.",
    ]
    here = await open_screen(tmp_path, replies)
    await here.type("/goal !ls one two")
    assert here.outcomes == ["answered", "answered"]
    assert here.said("The goal is reached after 2 turns")
    (context,) = contexts(here.session)
    assert "turn 2 of at most 20" in context
    assert "two" in context
    assert here.session.background.standing.goal.goal is None
    prompts = [event.text for event in here.shown if isinstance(event, Prompted)]
    assert prompts[0] == "Work until this command passes: `ls one two`"
    await here.turns.close()


async def test_a_model_says_whether_a_condition_in_any_language_holds(tmp_path):
    replies = [
        "Fast fertig.",
        verdict(False, "Es fehlt der Test."),
        "Fertig.",
        verdict(True, "Da."),
    ]
    here = await open_screen(tmp_path, replies)
    await here.type("/goal alle Tests laufen durch")
    assert here.said("Es fehlt der Test.")
    assert here.said("The goal is reached after 2 turns")
    assert "Es fehlt der Test." in contexts(here.session)[0]
    await here.turns.close()


@pytest.mark.parametrize("answers", [["?", verdict(True)], [f"```json\n{verdict(True)}\n```"]])
async def test_an_unreadable_verdict_is_asked_for_again(tmp_path, answers):
    here = await open_screen(tmp_path, ["Done.", *answers])
    await here.type("/goal 測試通過")
    assert here.said("The goal is reached")
    await here.turns.close()


async def test_at_the_cap_of_turns_it_stops_with_a_sentence_and_can_be_resumed(tmp_path):
    replies = [item for n in range(9) for item in (call("shell", command=f"echo {n}"), f"{n}.")]
    here = await open_screen(tmp_path, replies)
    await here.type("/goal --turns 2 !ls made")
    assert here.outcomes == ["answered", "limit"]
    assert here.said("The goal is paused: it has reached its cap of 2 turns")
    assert status_items(here.session.status())["goal"] == "goal paused"
    (tmp_path / "made").touch()
    await here.type("/goal resume")
    assert here.said("The goal is reached after 1 turn")
    await here.turns.close()


async def test_the_state_is_drawn_again_when_the_goal_is_ended(tmp_path):
    here = await open_screen(tmp_path, [call("shell", command="echo 0"), "Done."])
    await here.type("/goal --turns 1 !ls made")
    await here.type("/goal clear")
    assert here.redrawn == ""
    await here.turns.close()


async def test_the_cap_of_cost_stops_in_the_middle_of_a_turn(tmp_path):
    costly = [
        ScriptedReply(calls=(call("shell", command=f"echo {n}"),), usage=Usage(9, 0, 0, 9, 0.6))
        for n in range(9)
    ]
    here = await open_screen(tmp_path, costly)
    await here.type("/goal --cost 1 !ls made")
    assert here.outcomes == ["limit"]
    assert here.said("it has reached its cap of $1.00")
    await here.turns.close()


async def test_the_cap_of_time_stops_it(tmp_path):
    here = await open_screen(tmp_path, [call("shell", command="true"), "Done."])
    here.session.background.standing.goal.caps = type(here.session.background.standing.goal.caps)(
        20, None, 0.0
    )
    await here.type("/goal !ls made")
    assert here.outcomes == ["limit"]
    assert here.said("its cap of 0 min")
    await here.turns.close()


async def test_an_agent_that_only_talks_is_not_asked_for_ever(tmp_path):
    here = await open_screen(tmp_path, (f"Which one? {n}" for n in range(9)))
    await here.type("/goal !ls made")
    assert here.outcomes == ["answered", "answered", "limit"]
    assert here.said("the agent has used no tool in 3 turns")
    await here.turns.close()


async def test_an_interrupt_pauses_the_goal_and_later_messages_are_plain_turns(tmp_path):
    replies = [call("shell", command="touch began; sleep 30"), "Yes?", "Again.", "x"]
    here = await open_screen(tmp_path, replies)
    here.turns.say(Draft("/goal !ls made"))
    await until((tmp_path / "began").exists)
    here.turns.interrupt()
    await here.idle()
    assert here.outcomes == ["interrupted"]
    assert here.said("The goal is paused")
    await here.type("hello")
    assert here.outcomes == ["interrupted", "answered"]
    (tmp_path / "made").touch()
    await here.type("/goal resume")
    assert here.said("The goal is reached after 1 turn")
    await here.turns.close()


async def test_the_check_itself_can_be_interrupted(tmp_path):
    here = await open_screen(tmp_path, ["Done."])
    here.turns.say(Draft("/goal !touch began; sleep 30"))
    await until((tmp_path / "began").exists)
    here.turns.interrupt()
    await here.idle()
    assert here.outcomes == ["interrupted"]
    assert [event.failed for event in here.shown if isinstance(event, ToolFinished)] == [True]
    assert here.session.background.standing.goal.goal.is_paused
    await here.turns.close()


async def test_a_queued_message_comes_before_the_next_turn_of_the_goal(tmp_path):
    replies = [
        call("shell", command="touch began; until [ -e go ]; do sleep 0.01; done"),
        "First.",
        "To you.",
        call("shell", command="touch made"),
        "Made.",
    ]
    here = await open_screen(tmp_path, replies)
    here.turns.say(Draft("/goal !ls made"))
    await until((tmp_path / "began").exists)
    here.turns.queue(Draft("a question"))
    (tmp_path / "go").touch()
    await here.idle()
    texts = [message.text for message in here.session.memory.messages()]
    assert texts.index("a question") == texts.index("First.") + 1
    assert here.said("The goal is reached after 3 turns")
    await here.turns.close()


async def test_tasks_lists_and_ends_the_goal_during_a_turn(tmp_path):
    replies = [call("shell", command="touch began; until [ -e go ]; do sleep 0.01; done"), "Done."]
    here = await open_screen(tmp_path, replies)
    here.turns.say(Draft("/goal the build passes"))
    await until((tmp_path / "began").exists)
    (task,) = here.session.background.list()
    assert (task.id, task.title, task.is_running) == ("goal", "the build passes", True)
    assert status_items(here.session.status())["goal"].startswith("goal 0/20 0/60 min")
    here.turns.say(Draft("/tasks kill goal"))
    await until(lambda: here.session.background.standing.goal.goal is None)
    (tmp_path / "go").touch()
    await here.idle()
    assert here.outcomes == ["answered"]
    await here.turns.close()


async def test_only_a_goal_with_keep_is_there_paused_after_a_resume(tmp_path):
    for flag, is_there in (("", False), ("--keep ", True)):
        here = await open_screen(tmp_path, [call("shell", command="true"), "a", "b", "c"])
        await here.type(f"/goal {flag}--turns 1 !ls made")
        await here.turns.close()
        again = await open_screen(tmp_path, ["Made."], resume=here.session.id)
        assert (again.session.background.standing.goal.goal is not None) == is_there
        if is_there:
            assert again.session.background.standing.goal.state.startswith("paused")
            await until(lambda: again.said("`/goal resume` continues it"))  # noqa: B023
            (tmp_path / "made").touch()
            await again.type("/goal resume")
            assert again.said("The goal is reached")
        await again.turns.close()


async def test_a_failed_check_by_the_model_pauses_the_goal(tmp_path):
    here = await open_screen(tmp_path, ["Done."])  # the script has no second answer
    await here.type("/goal it works")
    assert here.outcomes == ["failed"]
    assert here.said("The goal could not be checked")
    assert here.session.background.standing.goal.goal.is_paused
    await here.turns.close()
