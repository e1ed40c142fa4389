"""From an entry of memory to its source message, on the full screen with real sessions."""

import pytest
from fakes.screens import opened, screen_of, screen_text, until
from fakes.waiting import wait

from ouro.assemble import Options
from ouro.assemble import opener as real_opener
from ouro.frontends.tui.screens.browser import PageView
from ouro.frontends.tui.screens.memory_browser import MemoryBrowser
from ouro.frontends.tui.screens.picker import Picker
from ouro.llm import ScriptedModel
from ouro.memory.backend import MessageRecord, RewindRecord, SessionHeader
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.memory.long_term.store import user_store
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import assistant, user
from ouro.session import OpenRequest
from ouro.utils.ouro_paths import get_history_dir, get_memory_dir, get_sessions_dir

OLD, AT = "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "2026-11-20T10:00:00.000Z"
TURNS = 90
"""More than one page above the target, and far more than a resume reads first."""


def words(turn):
    return f"This is message {turn} of the person."


@pytest.fixture
def sessions(repository):
    store = YamlFileMemoryStore(get_sessions_dir(), str)
    wait(store.create_session(SessionHeader(OLD, str(repository), "m", AT)))
    for turn in range(1, TURNS + 1):
        wait(store.save_memory(OLD, MessageRecord(2 * turn - 1, AT, user(words(turn)))))
        wait(
            store.save_memory(
                OLD,
                MessageRecord(2 * turn, AT, assistant(f"Answer {turn}. " + "More of it. " * 250)),
            )
        )
    yield store
    wait(store.close_session(OLD))


def commit_memory(name, text, turn, message):
    marks = {
        "Ouro-Origin": "agent",
        "Ouro-Session": OLD,
        "Ouro-Turn": str(turn),
        "Ouro-Message": str(message),
    }
    user_store(get_memory_dir(), get_history_dir(), lambda _text: "").save_and_commit(
        {name: text}, "Learn", marks
    )


@pytest.fixture
def app(repository):
    def make(request=None):
        open_session = real_opener(Options(repository, ready_model=ScriptedModel([])))
        return screen_of(open_session=open_session, request=request)

    return make


async def assert_message_at_top(pilot, turn):
    """The message is at the top of the screen, and the transcript does not follow its end."""
    await until(pilot, lambda: words(turn) in screen_text(pilot.app))
    lines = [line for line in screen_text(pilot.app).splitlines() if line.strip()]
    assert any(words(turn) in line for line in lines[:4]), screen_text(pilot.app)
    assert not pilot.app.conversation.transcript.following


async def run_command(pilot, line):
    await opened(pilot)
    await pilot.press(*line, "enter")


async def test_blame_opens_the_session_at_the_source_message(app, sessions):
    commit_memory("facts.md", "- One.\n", 7, 13)
    await sessions.close_session(OLD)
    async with app().run_test(size=(100, 30)) as pilot:
        await run_command(pilot, "/memory blame facts 1")
        await until(pilot, lambda: isinstance(pilot.app.screen, Picker))
        await pilot.press("down", "enter")
        await until(pilot, lambda: pilot.app.turns.session.id == OLD)
        await assert_message_at_top(pilot, 7)


async def test_evidence_of_a_note_opens_its_turn(app, sessions):
    note = Note(id="mem_00000001", scope="user", session_id=OLD, turn=40, text="Use tox.")
    commit_memory(note.file_name, note_text(note), 40, 79)
    await sessions.close_session(OLD)
    async with app().run_test(size=(100, 30)) as pilot:
        await run_command(pilot, "/memory evidence mem_00000001")
        await until(pilot, lambda: isinstance(pilot.app.screen, Picker))
        await pilot.press("down", "enter")
        await until(pilot, lambda: pilot.app.turns.session.id == OLD)
        await assert_message_at_top(pilot, 40)


async def test_why_jumps_to_a_turn_of_the_current_session(app, sessions):
    await sessions.close_session(OLD)
    async with app(OpenRequest(OLD)).run_test(size=(100, 30)) as pilot:
        await run_command(pilot, "/memory why 12")
        await until(pilot, lambda: isinstance(pilot.app.screen, Picker))
        await pilot.press("down", "enter")
        await assert_message_at_top(pilot, 12)


async def test_memory_browser_opens_the_source_turn(app, sessions):
    commit_memory("facts.md", "- One.\n", 30, 59)
    await sessions.close_session(OLD)
    async with app().run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("f4")
        await until(pilot, lambda: isinstance(pilot.app.screen, MemoryBrowser))
        await until(pilot, lambda: pilot.app.screen.is_loaded)
        await pilot.press("tab", "right", "right")
        await until(pilot, lambda: f"session {OLD[:8]}, turn 30" in screen_text(pilot.app))
        page = pilot.app.screen.query_one(PageView)
        await pilot.press("enter")
        await until(pilot, lambda: page.has_focus and page.link is not None)
        await pilot.press("enter")
        await until(pilot, lambda: "Enter opens it" in screen_text(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.turns.session.id == OLD)
        await assert_message_at_top(pilot, 30)


async def test_message_of_an_abandoned_branch_is_shown_with_a_notice(app, sessions):
    await sessions.save_memory(OLD, RewindRecord(100, AT, ("conversation",)))
    await sessions.save_memory(OLD, MessageRecord(2 * TURNS + 1, AT, user("Another way.")))
    await sessions.close_session(OLD)
    commit_memory("facts.md", "- One.\n", 85, 169)
    async with app().run_test(size=(100, 30)) as pilot:
        await run_command(pilot, "/memory blame facts 1")
        await until(pilot, lambda: isinstance(pilot.app.screen, Picker))
        assert "on a branch that a rewind left" in pilot.app.conversation.transcript.as_markdown()
        await pilot.press("down", "enter")
        await until(pilot, lambda: pilot.app.turns.session.id == OLD)
        await assert_message_at_top(pilot, 85)
        assert "on a branch that was left" in pilot.app.conversation.transcript.as_markdown()
    last = (await sessions.load_session(OLD, read_only=True)).records[-1]
    assert last == MessageRecord(
        2 * TURNS + 1, AT, user("Another way.")
    )  # opening has changed nothing


async def test_missing_message_is_reported_and_the_session_shown(app, sessions):
    await sessions.close_session(OLD)
    async with app(OpenRequest(OLD, read_only=True, message=9_999)).run_test(
        size=(100, 30)
    ) as pilot:
        await until(
            pilot, lambda: "Message 9999 is not in this session any more." in screen_text(pilot.app)
        )
        assert f"Answer {TURNS}." in pilot.app.conversation.transcript.as_markdown()
