"""X5: an interrupt ends any phase of a turn, also a second interrupt or a closing session; no
message is lost.
"""

import asyncio
import contextlib
import threading
from contextlib import aclosing
from pathlib import Path

import pytest
from fakes.waiting import PATIENCE

from ouro.assemble import Options, open_session, opener
from ouro.errors import ConfigError, ModelUnavailable
from ouro.events import (
    Compacted,
    Compacting,
    PermissionAsked,
    Permit,
    Retrying,
    TextDelta,
    ToolProgress,
    TurnFinished,
)
from ouro.llm import ScriptedModel, ScriptedReply, call
from ouro.memory.sessions.session_file import OpenFile
from ouro.messages import ToolReply, Usage
from ouro.session import OpenRequest

INTERRUPTED = TurnFinished("interrupted")


async def opened(repository, *script, **options):
    model = ScriptedModel(script)
    return (
        await open_session(Options(repository, ready_model=model, **options), OpenRequest()),
        model,
    )


async def resume_latest(repository):
    return await open_session(
        Options(repository, ready_model=ScriptedModel([])), OpenRequest("latest")
    )


def transcript_lines(session) -> list[str]:
    """The transcript in short form: role, text, and the tool results."""
    return [
        f"{message.role}:"
        f" {message.text}{' | '.join(reply.text[:11] for reply in message.parts_of(ToolReply))}"
        for message in session.memory.messages()
    ]


class SilentModel(ScriptedModel):
    """A model that sends nothing; the request itself triggers an interrupt."""

    session = None

    async def stream(self, messages, tools=()):
        asyncio.get_running_loop().call_soon(self.session.interrupt)
        await asyncio.Event().wait()
        yield  # pragma: no cover


PHASES = {
    "before the first token": (None, None),
    "in the middle of the words": (ScriptedReply("So far ", hold=asyncio.Event().wait), TextDelta),
    "in the middle of a call's arguments": (
        ScriptedReply("So far ", (call("shell", command="echo " + "x" * 99),), cut=True),
        Retrying,
    ),
    "while it waits to ask again": (ModelUnavailable("The server is busy."), Retrying),
    "while a question waits": (call("shell", command="make deploy"), PermissionAsked),
    "while a tool runs": (call("shell", command="echo begun; sleep 600"), ToolProgress),
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("times", [1, 2])
async def test_x5_interrupt_ends_the_turn_in_each_phase(repository, phase, times):
    step, kind = PHASES[phase]
    session, _ = await opened(
        repository, step, settings={"permissions.mode": "auto" if "runs" in phase else "ask"}
    )
    if step is None:
        silent = SilentModel([])
        silent.session = session
        session.model_source._models = [silent]
    seen = []
    async with asyncio.timeout(PATIENCE):
        async for event in session.send("do it"):
            seen.append(event)
            if kind is not None and isinstance(event, kind):
                for _ in range(times):
                    session.interrupt()
                    await asyncio.sleep(0)
    assert seen[-1] == INTERRUPTED
    assert seen.count(INTERRUPTED) == 1
    for message in session.memory.context():
        assert not (message.tool_calls and message.cut)
    session.model_source._models = [ScriptedModel(["Fine."])]
    assert [event async for event in session.send("go on")][-1] == TurnFinished("answered")
    await session.close()


async def test_x5_interrupt_before_the_turn_starts_ends_it(repository):
    session, _ = await opened(repository, "Hello.")
    seen = []

    async def listen():
        seen.extend([event async for event in session.send("hi")])

    listening = asyncio.create_task(listen())
    asyncio.get_running_loop().call_soon(session.interrupt)  # the turn exists, but has not run yet
    async with asyncio.timeout(PATIENCE):
        await listening
    assert seen == [INTERRUPTED]
    assert not session.running
    await session.close()


async def test_x5_closing_during_an_answer_keeps_its_text(repository):
    session, _ = await opened(repository, ScriptedReply("So far ", hold=asyncio.Event().wait))
    async with aclosing(session.send("talk")) as events:
        async for event in events:
            if event == TextDelta("far "):
                await session.close()
                break
    again = await resume_latest(repository)
    assert transcript_lines(again) == ["user: talk", "assistant: So far "]
    await again.close()


async def test_x5_closing_during_a_tool_call_ends_it_with_a_result(repository):
    line = "echo begun; exec sleep 86411"
    session, _ = await opened(
        repository, call("shell", command=line), settings={"permissions.mode": "auto"}
    )
    async with aclosing(session.send("wait")) as events:
        async for event in events:
            if isinstance(event, ToolProgress):
                await session.close()
                break
    assert not _running("86411")
    again = await resume_latest(repository)
    assert transcript_lines(again) == ["user: wait", "assistant: ", "tool: Interrupted"]
    await again.close()


def _running(word: str) -> bool:
    """Whether a process has `word` on its command line; in a sandbox the process has another id."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in file.read_bytes().split(b"\0"):
                return True
    return False


async def test_x5_answer_to_a_closed_question_is_dropped(repository):
    session, _ = await opened(repository, call("shell", command="touch made"), "Fine.")
    asked = []
    async for event in session.send("do it"):
        if isinstance(event, PermissionAsked):
            asked.append(event.question_id)
            session.interrupt()
    session.answer(asked[0], Permit("always"))
    session.answer("nothing", Permit("yes"))
    assert not (repository / "made").exists()
    assert session.permissions.rules == ()
    await session.close()


async def test_x5_model_change_during_an_answer_does_not_break_it(repository):
    going = asyncio.Event()
    session, model = await opened(repository, ScriptedReply("So far so good", hold=going.wait))
    new = ScriptedModel(["Fine."])
    session.model_source._make = lambda _name, _effort: [new]
    seen = []
    async for event in session.send("talk"):
        seen.append(event)
        if event == TextDelta("good"):
            await session.set_model("scripted")
            assert not model.closed
            going.set()
    assert seen[-1] == TurnFinished("answered")
    assert model.closed
    assert not new.closed
    await session.close()
    assert new.closed


async def test_x5_user_shell_line_that_cannot_be_saved_is_reported(repository, home, monkeypatch):
    session, _ = await opened(repository, "Hello.")
    assert [event async for event in session.send("hi")]

    def full(*_, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(OpenFile, "write", full)
    seen = [event async for event in session.background.run_line("echo out", share=True)]
    kinds = [type(event).__name__ for event in seen if not isinstance(event, ToolProgress)]
    assert kinds == ["ToolStarted", "ToolRunning", "ToolFinished", "Notice"]
    assert "No space left on device" in seen[-1].text
    monkeypatch.undo()
    await session.close()


async def test_x5_session_that_failed_to_open_is_released(repository, home):
    session, _ = await opened(repository, "Hello.")
    assert [event async for event in session.send("hi")]
    await session.close()
    open_again = opener(Options(repository, ready_model=ScriptedModel([])))
    (home / ".ouro" / "permissions.yaml").write_text("[")
    with pytest.raises(ConfigError):
        await open_again(OpenRequest("latest"))
    (home / ".ouro" / "permissions.yaml").unlink()
    again = await open_again(OpenRequest("latest"))
    assert again.id == session.id
    await again.close()


async def test_x5_interrupt_while_steering_is_saved_loses_no_message(repository, monkeypatch):
    going, saving, saved = asyncio.Event(), threading.Event(), threading.Event()
    session, _ = await opened(repository, ScriptedReply("So far ", hold=going.wait), "Fine.")
    write = OpenFile.write

    def slow(file, record):
        if b"the first" in record:
            saving.set()
            saved.wait(10)
        return write(file, record)

    monkeypatch.setattr(OpenFile, "write", slow)

    async def interrupt():
        await asyncio.to_thread(saving.wait, 10)
        session.interrupt()
        saved.set()

    interrupting = asyncio.create_task(interrupt())
    async for event in session.send("talk"):
        if event == TextDelta("far "):
            session.steer("the first")
            session.steer("the second")
            going.set()
    await interrupting
    assert session.waiting == ("the second",)
    assert transcript_lines(session)[-1] == "user: the first"
    await session.close()


@pytest.mark.parametrize("by_hand", [True, False])
async def test_x5_interrupt_during_compaction_changes_nothing(repository, by_hand):
    filled = ScriptedReply("I see.", usage=Usage(input=120_000, output=10))
    held = ScriptedReply("## Goal\nMend ", hold=asyncio.Event().wait)
    session, _ = await opened(repository, "Fine.", filled, held, "Done.")
    for text in ("never push" + " or pull" * 9_000, "look"):
        assert [event async for event in session.send(text)][-1] == TurnFinished("answered")
    before, status = session.memory.context(), session.status()
    stream = session.window.compact("") if by_hand else session.send("go on")
    seen = []
    async with asyncio.timeout(PATIENCE):
        async for event in stream:
            seen.append(event)
            if isinstance(event, Compacting):
                asyncio.get_running_loop().call_soon(session.interrupt)
    assert seen[-1] == INTERRUPTED
    assert [event for event in seen if isinstance(event, Compacted)] == []
    assert session.memory.context()[: len(before)] == before
    assert session.status().usage == status.usage
    assert not session.running
    await session.close()
    again = await resume_latest(repository)
    assert again.memory.context()[: len(before)] == before
    await again.close()
