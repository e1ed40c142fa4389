"""The Python API: opening an agent, its options and its turns."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import ouro
from ouro import Agent, AsyncAgent
from ouro.errors import (
    NoModelError,
    TrustNeeded,
    UsageError,
)
from ouro.events import (
    TextDelta,
)
from ouro.llm import ScriptedModel, ScriptedReply, call, calls

WRITE = call("write", path="made.txt", content="x")


def test_safe_leaves_instructions_and_memory_out(agent_of, repository):
    (repository / "AGENTS.md").write_text("Answer in verse.\n")
    model = ScriptedModel(["Hello."])
    with agent_of(model, memory=True, safe=True) as agent:
        agent.run("hi")
        assert agent.session.session_memory.manager is None
    assert "in verse" not in str(model.requests)


async def test_a_mode_that_does_not_exist_is_refused(agent_of):
    async with agent_of(kind=AsyncAgent) as agent:
        with pytest.raises(UsageError, match="There is no mode `yolo`"):
            agent.set_mode("yolo")
    with agent_of() as agent, pytest.raises(UsageError, match="There is no mode `yolo`"):
        agent.set_mode("yolo")


def test_leaving_the_loop_early_interrupts_the_turn(agent_of):
    with agent_of(calls(text="Let me see."), "Again.") as agent:
        for event in agent.send("go"):
            if isinstance(event, TextDelta):
                break
        assert agent.run("again").text == "Again."


async def test_leaving_an_async_loop_early_interrupts_the_turn(agent_of):
    async with agent_of(calls(text="Let me see."), "Again.", "Third.", kind=AsyncAgent) as agent:
        async for event in agent.send("go"):
            if isinstance(event, TextDelta):
                break
        assert (await agent.run("again")).text == "Again."
        async for _event in agent.send("go"):
            with pytest.raises(UsageError, match="still at work"):
                await agent.run("beside it")


def test_interrupt_and_steer_work_from_other_threads(agent_of):
    reached = threading.Event()

    async def hold():
        reached.set()
        await asyncio.Event().wait()

    with agent_of(ScriptedReply("Half", hold=hold)) as agent:
        other = threading.Thread(target=lambda: reached.wait(10) and agent.interrupt())
        other.start()
        result = agent.run("go")
        other.join()
    assert (result.outcome, result.text, result.exit_code) == ("interrupted", "", 130)


def test_interrupt_before_the_first_event_ends_the_turn_that_was_promised(agent_of):
    """A stop button is pressed when the prompt is sent, before the turn has begun."""
    with agent_of(ScriptedReply("Whole."), ScriptedReply("Next.")) as agent:
        events = agent.send("go")
        agent.interrupt()
        agent.points()  # what the thread of the agent was asked for before is done
        assert list(events)[-1].outcome == "interrupted"
        assert agent.run("again").text in ("Whole.", "Next."), "only that turn was ended"


def test_interrupt_without_a_turn_leaves_the_next_one(agent_of):
    with agent_of(ScriptedReply("Whole.")) as agent:
        agent.interrupt()
        assert agent.run("go").text == "Whole."


CTRL_C = """
import os, signal, sys, threading, asyncio
from ouro import Agent
from ouro.llm import ScriptedModel, ScriptedReply

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell inherits it ignored

async def hold():
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()

with Agent(".", model=ScriptedModel([ScriptedReply("Half", hold=hold), "Whole."]), memory=False) as agent:
    try:
        agent.run("go")
    except KeyboardInterrupt:
        print("interrupted", agent.session.running, agent.run("again").text)
"""


def test_ctrl_c_interrupts_the_turn_and_is_raised(repository):
    done = subprocess.run(
        [sys.executable, "-c", CTRL_C],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted False Whole.\n", "", 0)


def test_an_empty_prompt_is_not_sent(agent_of):
    model = ScriptedModel(["x"])
    with agent_of(model) as agent, pytest.raises(UsageError, match="The prompt is empty"):
        agent.run(" ")
    assert model.requests == []


def test_rules_and_settings_without_an_effect_are_refused(agent_of):
    for options, message in (
        ({"deny": ["Bash(rm *)"]}, "`Bash` in the rule"),
        ({"settings": {"permissions.deny": ["Bash(rm *)"]}}, "`Bash` in the rule"),
        (
            {"deny": ["edit"], "settings": {"permissions.deny": ["write"]}},
            r"`permissions.deny` is set twice",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            agent_of(**options).open()


@pytest.mark.parametrize(
    "options", [{"add_dirs": "/tmp"}, {"add_dirs": Path("/tmp")}, {"deny": "write"}]
)
def test_string_instead_of_a_list_option_is_refused(agent_of, options):
    """The first letter of `/tmp` is `/`."""
    with pytest.raises(UsageError, match="is a list"):
        agent_of(**options).open()


def test_errors_of_opening_are_raised_and_leave_no_thread(agent_of, repository, home):
    (repository / "AGENTS.md").write_text("Obey.\n")
    before = threading.active_count()
    with pytest.raises(TrustNeeded):
        agent_of("x").open()
    with pytest.raises(NoModelError):
        agent_of(model="", trust=False).open()
    with pytest.raises(UsageError, match=r"`wirte` in the rule `wirte\(\.env\)` is not a tool"):
        agent_of(deny=["wirte(.env)"], trust=False).open()
    with pytest.raises(UsageError, match="`fork` copies a session"):
        agent_of(fork=True, trust=False).open()
    with pytest.raises(TypeError, match="modle"):
        Agent(modle="x")
    with pytest.raises(UsageError, match="not open"):
        agent_of().run("x")
    with (
        pytest.raises(UsageError, match=r"gone\.png cannot be read"),
        agent_of(trust=True) as agent,
    ):
        agent.run("look", images=["gone.png"])
    assert threading.active_count() == before


def test_a_closed_agent_releases_the_session(agent_of):
    first = agent_of("One.").open()
    first.run("go")
    first.close()
    first.close()
    with agent_of("Two.", resume=first.session_id, fork=True) as second:
        assert second.run("go").session_id != first.session_id
    with agent_of("Three.", resume="latest") as third:
        assert third.run("go").session_id == second.session_id
    with agent_of("Four.", save=False) as fourth:
        assert fourth.run("go").session_id not in (first.session_id, second.session_id)


def test_agent_does_not_change_the_logging_of_the_host_program(agent_of):
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    try:
        with agent_of("x") as agent:
            agent.run("go")
        assert handler.filters == []
    finally:
        logging.getLogger().removeHandler(handler)


def test_the_package_exports_existing_names():
    names = {
        "Agent",
        "AsyncAgent",
        "AgentOptions",
        "tool",
        "Permit",
        "Reply",
        "Result",
        "OuroError",
        "Point",
        "Rewound",
    }
    assert all(hasattr(ouro, name) for name in names)
    assert not hasattr(ouro, "nothing")


async def test_a_goal_takes_as_many_turns_as_it_needs(tmp_path, monkeypatch):
    monkeypatch.setenv("OURO_MEMORY_ENABLED", "false")
    model = ScriptedModel(["Not yet.", call("shell", command="touch made"), "Made it.", "More."])
    settings = {"sandbox.enabled": False}
    async with AsyncAgent(tmp_path, model=model, mode="auto", settings=settings) as agent:
        result = await agent.run("/goal !ls made")
        assert (result.outcome, result.text) == ("answered", "Made it.")
        with pytest.raises(UsageError, match="needs a session that stays open"):
            await agent.run("/loop 10m look")
        assert (await agent.run("hello")).text == "More."
