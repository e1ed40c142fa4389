"""The idle agent is woken by what ends in the background: a turn without a message."""

import asyncio
import itertools

import pytest
from fakes.agents import say
from fakes.waiting import until

from ouro import AsyncAgent
from ouro.agent.loop import DO_NOT_SEND
from ouro.assemble import opener
from ouro.events import Notice, QuestionAsked, QuestionClosed, Reply, ToolFinished, TurnFinished
from ouro.llm import ModelSpec, ScriptedModel, ScriptedReply, call
from ouro.messages import Context
from ouro.session import WAKE_QUESTION, Draft, OpenRequest, TurnObserver, TurnQueue
from ouro.session_options import Options


@pytest.fixture(autouse=True)
def no_background_calls(no_background_calls):
    """Only the agent asks the model."""


def job(command, **more):
    return call("shell", command=command, background=True, **more)


def job_until_turn(number, command="echo made"):
    """A job whose command runs after the end of turn `number`: one that ends in it is known in it."""
    return job(f"until [ -e ended{number} ]; do sleep 0.01; done; {command}")


class FrontEnd(TurnObserver):
    """A front end that records what it shows, and writes a file at the end of each turn."""

    def __init__(self, folder, session, **options):
        self.folder, self.session, self.shown, self.outcomes = folder, session, [], []
        self.queue = TurnQueue(self, **options)
        self.queue.attach(session)

    def show(self, event):
        self.shown.append(event)

    def turn_ended(self, outcome, seconds):
        self.outcomes.append(outcome)
        (self.folder / f"ended{len(self.outcomes)}").touch()

    def said(self, words):
        return any(isinstance(event, Notice) and words in event.text for event in self.shown)

    async def ended(self, count):
        await until(lambda: len(self.outcomes) >= count and not self.queue.busy)


async def open_session(folder, replies, mode="auto", **options):
    settings = {"permissions.mode": "auto", "sandbox.enabled": False, "session.wake": mode}
    made = opener(Options(cwd=folder, settings=settings, trust=True,
                          ready_model=ScriptedModel(replies)))  # fmt: skip
    return FrontEnd(folder, await made(OpenRequest()), **options)


def news(session):
    """What ouro has told the model without a message of the user."""
    return [
        part.text
        for message in session.memory.messages()
        for part in message.parts_of(Context)
        if "The end of its output" in part.text
    ]


async def test_the_end_of_a_job_starts_a_turn_with_its_tail(tmp_path):
    command = "until [ -e go ]; do sleep 0.01; done; echo made; exit 3"
    here = await open_session(tmp_path, [job(command), "Waiting.", "The build failed."])
    here.queue.say(Draft("build"))
    await here.ended(1)
    (tmp_path / "go").touch()
    await here.ended(2)
    assert here.said("job_1 ended (exit code 3). The agent continues.")
    (told,) = news(here.session)
    assert "made" in told
    assert command in told
    assert here.session.memory.messages()[-1].text == "The build failed."
    assert here.session.wake.reasons() == ()
    await here.queue.close()


async def test_a_job_that_ends_during_a_turn_is_news_in_it_and_wakes_nobody(tmp_path):
    until_gone = 'while kill -0 "$(cat pid)" 2>/dev/null; do sleep 0.01; done; sleep 0.3'
    here = await open_session(
        tmp_path,
        [
            job("echo $$ > pid.new; mv pid.new pid; until [ -e go ]; do sleep 0.01; done; exit 3"),
            call("shell", command=f"until [ -e pid ]; do sleep 0.01; done; touch go; {until_gone}"),
            "The server has died.",
        ],
    )
    here.queue.say(Draft("serve"))
    await here.ended(1)
    (told,) = news(here.session)
    assert told.startswith("job_1 ended (exit code 3)")
    assert here.said("job_1 ended (exit code 3). The agent is informed.")
    roles = [message.role for message in here.session.memory.messages()]
    assert roles[-3:] == ["tool", "user", "assistant"]
    assert not here.session.turn.wake.reasons()


async def test_a_job_whose_end_the_model_has_read_does_not_wake_it(tmp_path):
    replies = [job("echo made; sleep 600"), call("shell_output", id="job_1", wait_seconds=9),
               call("shell_kill", id="job_1"), "Done."]  # fmt: skip
    here = await open_session(tmp_path, replies)
    here.queue.say(Draft("build"))
    await here.ended(1)
    await until(lambda: here.session.background.jobs.list()[0].watcher.done())
    await here.queue.idle()
    assert (here.outcomes, news(here.session)) == (["answered"], [])
    await here.queue.close()


async def test_at_most_three_turns_in_a_row_start_without_the_user(tmp_path):
    again = itertools.chain.from_iterable(
        (job_until_turn(n, f"echo {n}"), f"Started {n}.") for n in range(1, 99)
    )
    here = await open_session(tmp_path, again)
    here.queue.say(Draft("go"))
    await until(lambda: here.said("3 times without you"))
    await here.ended(4)
    assert len(here.outcomes) == 4
    here.queue.say(Draft("again"))
    await here.ended(8)
    assert len(here.outcomes) == 8
    await here.queue.close()


async def test_with_off_the_next_message_brings_the_news(tmp_path):
    here = await open_session(tmp_path, [job_until_turn(1), "Waiting.", "I see."], mode="off")
    here.queue.say(Draft("build"))
    await here.ended(1)
    await until(lambda: bool(here.session.wake.reasons()))
    assert here.outcomes == ["answered"]
    here.queue.say(Draft("and?"))
    await here.ended(2)
    assert "made" in news(here.session)[0]
    await here.queue.close()


@pytest.mark.parametrize(("answer", "turns"), [("Continue", 2), ("With my next message", 1)])
async def test_with_ask_the_user_decides(tmp_path, answer, turns):
    here = await open_session(tmp_path, [job_until_turn(1), "Waiting.", "I see."], mode="ask")
    here.queue.say(Draft("build"))
    asked = lambda kind: any(isinstance(event, kind) for event in here.shown)  # noqa: E731
    await until(lambda: asked(QuestionAsked))
    here.session.answer(WAKE_QUESTION, Reply((answer,)))
    await until(lambda: asked(QuestionClosed))
    await here.ended(turns)
    assert len(here.outcomes) == turns
    await here.queue.close()


async def test_a_message_closes_the_question_and_takes_the_news(tmp_path):
    here = await open_session(tmp_path, [job_until_turn(1), "Waiting.", "I see."], mode="ask")
    here.queue.say(Draft("build"))
    await until(lambda: any(isinstance(event, QuestionAsked) for event in here.shown))
    here.queue.say(Draft("what now?"))
    await here.ended(2)
    await until(lambda: any(isinstance(event, QuestionClosed) for event in here.shown))
    assert (len(here.outcomes), len(news(here.session))) == (2, 1)
    await here.queue.close()


async def test_after_an_interrupt_the_agent_is_not_woken(tmp_path):
    is_asked = asyncio.Event()

    async def hold():
        is_asked.set()
        await asyncio.Event().wait()

    replies = [job("until [ -e go ]; do sleep 0.01; done"), ScriptedReply("…", hold=hold)]
    here = await open_session(tmp_path, [*replies, "I see."])
    here.queue.say(Draft("build"))
    await is_asked.wait()
    here.queue.interrupt()
    await here.ended(1)
    (tmp_path / "go").touch()
    await until(lambda: bool(here.session.wake.reasons()))
    await here.queue.idle()
    assert here.outcomes == ["interrupted"]
    here.queue.say(Draft("go on"))
    await here.ended(2)
    assert len(news(here.session)) == 1
    await here.queue.close()


async def test_a_shell_line_after_an_interrupt_does_not_let_the_agent_continue(tmp_path):
    is_asked = asyncio.Event()

    async def hold():
        is_asked.set()
        await asyncio.Event().wait()

    replies = [job("until [ -e go ]; do sleep 0.01; done"), ScriptedReply("…", hold=hold)]
    here = await open_session(tmp_path, [*replies, "I see.", "Nothing more."])
    here.queue.say(Draft("build"))
    await is_asked.wait()
    here.queue.interrupt()
    await here.ended(1)
    here.queue.say(Draft("!touch go"))
    await here.ended(2)
    await until(lambda: bool(here.session.wake.reasons()))
    await here.queue.idle()
    here.queue.say(Draft("go on"))
    await here.ended(3)
    await here.queue.close()
    assert here.outcomes == ["interrupted", "answered", "answered"]
    assert len(news(here.session)) == 1


async def test_a_job_that_the_user_ends_wakes_nobody(tmp_path):
    here = await open_session(tmp_path, [job("sleep 600"), "Waiting."])
    here.queue.say(Draft("serve"))
    await here.ended(1)
    await here.session.background.kill("job_1")
    await until(lambda: here.session.background.jobs.list()[0].watcher.done())
    assert here.session.wake.reasons() == ()
    await here.queue.close()


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("listening on .*:[0-9]+", "listening on 127.0.0.1:80"),
        ("(?i)bereit", "Server BEREIT"),
        (r"\bfehler\b|エラー", "エラー: 失敗"),
        (r"^\d+ passed", "12 passed in 3 s"),
        ("(a+)+$", "a" * 60 + "!aaaa"),
    ],
)
async def test_a_line_that_matches_wakes_while_the_job_goes_on(tmp_path, pattern, line):
    (tmp_path / "line").write_text(f"nothing yet\n{line}\n", encoding="utf-8")
    command = "until [ -e go ]; do sleep 0.01; done; cat line; sleep 600"
    here = await open_session(tmp_path, [job(command, watch=pattern), "Waiting.", "It is up."])
    here.queue.say(Draft("serve"))
    await here.ended(1)
    (tmp_path / "go").touch()
    await here.ended(2)
    assert line in news(here.session)[0]
    assert here.session.background.jobs.list()[0].running
    await here.queue.close()


async def test_a_wrong_expression_starts_no_job(tmp_path):
    here = await open_session(tmp_path, [job("echo made", watch="(open"), "Waiting."])
    here.queue.say(Draft("serve"))
    await here.ended(1)
    failed = [event for event in here.shown if isinstance(event, ToolFinished) and event.failed]
    assert "regular expression" in failed[0].display.summary
    assert here.session.background.jobs.list() == ()
    await here.queue.close()


async def test_an_agent_of_a_program_is_woken_and_shows_it_to_on_background(tmp_path):
    shown = []
    command = "until [ -e go ]; do sleep 0.01; done; echo made"
    model = ScriptedModel([job(command), "Waiting.", "It is made.", "Yes."])
    options = {"mode": "auto", "trust": True, "settings": {"sandbox.enabled": False}}
    async with AsyncAgent(tmp_path, model=model, on_background=shown.append, **options) as agent:
        await agent.run("build")
        (tmp_path / "go").touch()
        await until(lambda: any(isinstance(event, TurnFinished) for event in shown))
        assert "made" in news(agent.session)[0]
        assert (await agent.run("made?")).text == "Yes."


async def test_a_withdrawn_message_leaves_news_environment_and_instructions(tmp_path):
    """They are sent once: a message that is not sent must not take them with it."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "AGENTS.md").write_text("Use tabs here.\n")
    (tmp_path / "src" / "a.py").write_text("x = 1\n")
    model = ScriptedModel(
        [job_until_turn(1), "Waiting.", "I see."], spec=ModelSpec("scripted", window=100_000)
    )
    settings = {"permissions.mode": "auto", "sandbox.enabled": False, "session.wake": "off"}
    made = opener(Options(tmp_path, settings=settings, trust=True, ready_model=model))
    session = await made(OpenRequest())
    await say(session, "build")
    (tmp_path / "ended1").touch()
    await until(lambda: bool(session.wake.reasons()))
    session.set_mode("edit")

    async for event in session.send("See @src/a.py. " + "long " * 100_000):
        if isinstance(event, QuestionAsked):
            session.answer(event.question_id, Reply((DO_NOT_SEND,)))
    assert event.outcome == "refused"
    assert len(session.memory.messages()) == 4

    await say(session, "And @src/a.py?")
    sent = "\n".join(part.text for part in session.memory.messages()[-2].parts_of(Context))
    assert "The end of its output:\nmade" in sent
    assert "Permission mode: edit" in sent
    assert "src/AGENTS.md holds instructions that the user has not approved" in sent
    await session.close()
