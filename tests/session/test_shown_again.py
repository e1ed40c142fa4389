"""A resumed session shows again what it showed before: compactions, models, rewinds."""

from __future__ import annotations

import pytest
from fakes.agents import say
from fakes.screens import TranscriptApp

from ouro.assemble import Options, open_session
from ouro.events import (
    Compacted,
    NotesRecalled,
    Notice,
    Prompted,
    Titled,
    ToolFinished,
    ToolStarted,
)
from ouro.frontends.plain.printer import Printer
from ouro.llm import ModelSpec, ScriptedModel, ScriptedReply, call
from ouro.messages import Usage
from ouro.session import OpenRequest

pytestmark = pytest.mark.usefixtures("no_background_calls")

SUMMARY = "## Goal\nMend the greeting."


async def opened(repository, *script, resume="", part="full"):
    model = ScriptedModel(script, spec=ModelSpec("scripted", window=60_000))
    return await open_session(
        Options(repository, {"permissions.mode": "auto"}, ready_model=model),
        OpenRequest(resume, part=part),
    )


def marks(session):
    return [
        event
        for event in session.scrollback.shown_events()
        if isinstance(event, Compacted | Notice | NotesRecalled | Titled)
    ]


async def compacted_session(repository):
    """A session with a compaction in the middle, and the event of the compaction."""
    (repository / "long.txt").write_text("a line of text\n" * 2_000)
    summary = ScriptedReply(SUMMARY, usage=Usage(900, 800, 0, 50, 0.01))
    session = await opened(
        repository, call("read", path="long.txt"), "Long.", "Yes.", summary, "Fine."
    )
    await say(session, "Look at it.")
    await say(session, "Sure?")
    [told] = [event async for event in session.window.compact("") if isinstance(event, Compacted)]
    await say(session, "Go on.")
    return session, told


async def test_compaction_receipt_is_shown_again_on_resume(repository):
    session, told = await compacted_session(repository)
    assert told.covered > told.kept > 0
    assert marks(session) == [told]
    await session.close()

    again = await opened(repository, resume="latest")
    assert marks(again) == [told]
    places = [
        type(event)
        for event in again.scrollback.shown_events()
        if isinstance(event, Compacted | Prompted)
    ]
    assert places == [Prompted, Prompted, Compacted, Prompted]
    await again.close()


async def test_shell_line_of_the_user_is_shown_again_as_when_it_ran(repository):
    session = await opened(repository, "I see.")
    lines = ("printf 'a\\n[b]\\n'", "true", "echo out; exit 3", "kill -9 $$")
    ran = [event for line in lines async for event in session.background.run_line(line, share=True)]
    await say(session, "What was that?")
    await session.close()

    again = await opened(repository, resume="latest")
    shown = list(again.scrollback.shown_events())
    assert [event.text for event in shown if isinstance(event, Prompted)] == ["What was that?"]
    results = [
        [(event.display, event.failed) for event in events if isinstance(event, ToolFinished)]
        for events in (ran, shown)
    ]
    assert results[0] == results[1]
    assert [event.title for event in shown if isinstance(event, ToolStarted)] == list(lines)
    assert [text for _, text in again.scrollback.last_prompts(9)] == ["What was that?"]
    await again.close()


async def test_full_screen_shows_the_compaction_receipt_on_resume(repository):
    session, told = await compacted_session(repository)
    await session.close()
    again = await opened(repository, resume="latest")
    events = list(again.scrollback.shown_events())
    await again.close()

    app = TranscriptApp(*events)
    async with app.run_test(size=(100, 60)):
        lines = app.lines()
    [card] = [line for line in lines if "compact the session" in line]
    [figures] = [line for line in lines if "messages summarized" in line]
    assert f"{told.before:,} → {told.after:,} tokens" in figures
    assert f"{told.covered} messages summarized, {told.kept} kept" in figures
    assert card.strip().startswith("✓")


async def test_plain_prompt_prints_the_compaction_receipt_on_resume(repository):
    session, told = await compacted_session(repository)
    await session.close()
    again = await opened(repository, resume="latest")
    printed: list[str] = []
    Printer(printed.append, plain=True).replay(again.scrollback.shown_events())
    await again.close()
    line = f"Compacted: {told.before:,} → {told.after:,} tokens; {told.covered} messages summarized"
    assert line in "".join(printed)


async def test_dropped_messages_notice_is_shown_again_on_resume(repository):
    answers = [
        ScriptedReply("So it is.", usage=Usage(input=6_000 * number)) for number in range(1, 5)
    ]
    session = await opened(repository, *answers)
    for number in range(4):
        await say(session, f"Question {number}. " + "and what of it? " * 1_000)
    await session.close()
    session = await opened(repository, resume="latest")
    told = [
        event async for event in session.resumed.continue_with("tail") if isinstance(event, Notice)
    ]
    assert "earlier messages are not sent any more" in told[0].text
    assert marks(session) == told
    await session.close()
    again = await opened(repository, resume="latest")
    assert marks(again) == told
    await again.close()


async def test_model_change_and_rewind_are_shown_again_but_titles_are_not(repository):
    session = await opened(repository, "One.", "Two.", "Three.", "Four.")
    await say(session, "a")
    session.rename("another title")
    session.memory.set_model("other/model")
    await say(session, "b")
    await session.rewind.undo()
    await say(session, "c")
    expected = [
        Notice("Model: other/model"),
        Notice("Rewound to here. What followed is kept: /rewind lists it."),
    ]
    assert marks(session) == expected

    await session.rewind.undo()
    await session.rewind.redo()
    assert marks(session) == expected, (
        "what was left stands on the line again: there is nothing to tell"
    )
    await session.close()
    again = await opened(repository, resume="latest")
    assert marks(again)[:2] == expected
    await again.close()


async def test_rewind_to_the_start_and_redo_leaves_no_mark(repository):
    session = await opened(repository, "One.")
    await say(session, "a")
    await session.rewind.undo()
    await session.rewind.redo()
    assert marks(session) == []
    await session.close()
