"""What a tool call and a commit cost does not grow with the number of notes."""

import os

import pytest
from fakes.knowledge import Conversation


@pytest.fixture
async def session(home):
    session = Conversation(home / ".ouro").connect()
    notes = {f"mem_{number:032x}.md": f"note {number}\n" for number in range(5)}
    await session.manager.write("user", {**notes, "facts.md": "- One.\n"}, "notes")
    await session.begin("Look at the README.")
    return session


async def test_a_tool_call_that_wrote_no_memory_lists_no_folder(session, monkeypatch):
    monkeypatch.setattr(os, "scandir", None)
    await session.call("shell", {"command": "make"})


@pytest.mark.parametrize("name", ["facts.md", "mem_new.md"])
async def test_what_a_tool_call_wrote_is_noticed_at_once(session, name):
    await session.begin("I use uv.")
    path = session.folder / name
    text = f"{path.read_text() if path.exists() else ''}- Uses uv.\n"
    await session.call("shell", {"command": "make"}, act=lambda: path.write_text(text))
    assert session.scopes["user"].store.outside_edits() == ()


async def test_a_note_that_a_command_wrote_in_place_is_found_at_the_end_of_the_turn(session):
    path = session.folder / f"mem_{3:032x}.md"
    await session.call("shell", {"command": "make"}, act=lambda: path.write_text("evil 3\n"))
    await session.end()
    assert [each.origin for each in session.manager.proposals()] == ["outside"]


async def test_a_line_is_committed_without_listing_the_folder(session, monkeypatch):
    monkeypatch.setattr(os, "scandir", None)
    store = session.scopes["user"].store
    assert store.rewrite("facts.md", lambda text: f"{text}- Two.\n", "Learn")
    assert store.accepted == store.get_current_head()
