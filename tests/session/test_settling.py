"""The end of a turn does not wait for memory, and later events do not come too early."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, aclosing, asynccontextmanager

import pytest
from fakes.agents import say
from fakes.knowledge import git_held

from ouro.assemble import Options, opener
from ouro.events import CoreChanged, ToolFinished, TurnFinished
from ouro.llm import ScriptedModel, call
from ouro.session import OpenRequest
from ouro.utils.ouro_paths import get_history_dir, get_memory_dir


def write_preferences(text):
    """The agent writes a file of the user's memory."""
    return call("write", path=str(get_memory_dir() / "preferences.md"), content=text)


def head():
    ref = get_memory_dir() / ".git" / "refs" / "heads" / "main"
    return ref.read_text() if ref.exists() else ""


@pytest.fixture(autouse=True)
def short_patience(monkeypatch):
    for module in ("scope", "trust.running_turns"):
        monkeypatch.setattr(f"ouro.memory.long_term.{module}.PATIENCE", 0.05)


@pytest.fixture
async def talk(repository):
    """A session that has learned something; `script` is the rest of the model's script."""
    opened = []

    async def begin(*script):
        model = ScriptedModel([write_preferences("Answer in German.\n"), "Noted.", *script])
        session = await opener(
            Options(repository, {"permissions.mode": "auto"}, ready_model=model)
        )(OpenRequest())
        opened.append(session)
        await say(session, "answer in German")
        await session.session_memory.wait_until_settled()
        return session, model

    yield begin
    for session in opened:
        await session.close()


@asynccontextmanager
async def send_with_commit_lock(session, text):
    """After the first tool call another ouro has the commit lock, until the block ends."""
    with ExitStack() as held:
        events = []
        async for event in session.send(text):
            events.append(event)
            if isinstance(event, ToolFinished):
                held.enter_context(git_held(get_history_dir()))
        yield events


async def core_changes(session):
    """The changes of memory that were reported between turns, until the session ends."""
    return [event.summary async for event in session.events() if isinstance(event, CoreChanged)]


async def test_turn_ends_before_the_memory_commit(talk):
    session, _ = await talk(write_preferences("Answer in German.\nBe short.\n"), "Noted.")
    before = head()
    async with send_with_commit_lock(session, "be short") as events:
        assert isinstance(events[-1], TurnFinished)
        assert (session.running, head()) == (False, before)
    await session.session_memory.wait_until_settled()
    assert head() != before


async def test_memory_write_is_refused_while_another_ouro_commits(talk):
    session, model = await talk(write_preferences("Answer in German.\nBe short.\n"), "It failed.")
    with git_held(get_history_dir()):
        await say(session, "be short")
    assert "another ouro is changing this memory" in str(model.requests[-1].messages[-1])
    assert (get_memory_dir() / "preferences.md").read_text() == "Answer in German.\n"


async def test_next_turn_sees_the_memory_written_by_the_last(talk):
    session, model = await talk(
        write_preferences("Answer in German.\nBe short.\n"), "Noted.", "Ja."
    )
    async with send_with_commit_lock(session, "be short"):
        asked = len(model.requests)
        following = asyncio.create_task(say(session, "and?"))
        await asyncio.wait([following], timeout=0.05)
        assert len(model.requests) == asked  # it waits, because its prompt depends on the commit
    await following
    assert "+Be short." in str(model.requests[asked].messages[-1])


async def test_interrupt_and_close_keep_memory_changes(talk):
    session, _ = await talk(
        write_preferences("Answer in German.\nBe short.\n"), call("shell", command="sleep 60")
    )
    before = head()
    with ExitStack() as held:
        async with aclosing(session.send("be short")) as events:
            async for event in events:
                if isinstance(event, ToolFinished):
                    held.enter_context(git_held(get_history_dir()))
                if getattr(event, "title", "").endswith("sleep 60"):
                    session.interrupt()
        assert event == TurnFinished("interrupted")
        closing = asyncio.create_task(session.close())
        await asyncio.wait([closing], timeout=0.05)
        assert (closing.done(), head()) == (False, before)
    await closing
    assert head() != before
    assert await core_changes(session) == [
        "preferences.md: + Answer in German.",
        "preferences.md: + Be short.",
    ]


async def test_rewind_waits_for_the_memory_commit(talk):
    session, _ = await talk(write_preferences("Answer in German.\nBe short.\n"), "Noted.")
    async with send_with_commit_lock(session, "be short"):
        last = session.rewind.points()[-1].number
        looking = asyncio.create_task(session.rewind.describe_undoable(last))
        await asyncio.wait([looking], timeout=0.05)
        assert not looking.done()
    assert await looking == {"memory": "1 change"}
    await session.rewind.rewind(last, ("conversation", "memory"))
    assert (get_memory_dir() / "preferences.md").read_text() == "Answer in German.\n"


async def test_failed_memory_commit_is_reported_and_the_session_continues(talk, monkeypatch):
    session, _ = await talk(write_preferences("Answer in German.\nBe short.\n"), "Noted.", "Ja.")
    monkeypatch.setattr(
        session.session_memory.manager.__class__, "_decide_about_turn", lambda *_: 1 / 0
    )
    await say(session, "be short")
    await session.session_memory.wait_until_settled()
    monkeypatch.undo()
    assert isinstance((await say(session, "and?"))[-1], TurnFinished)
    await session.close()
    said = [str(event) for event in [event async for event in session.events()]]
    assert any("is not committed (division by zero)" in each for each in said)
