"""The Python API: undo, redo and rewind."""

from __future__ import annotations

import re

import pytest

from ouro import Agent, AsyncAgent
from ouro.errors import (
    UsageError,
)
from ouro.llm import ScriptedModel, call, calls

WRITE = call("write", path="made.txt", content="x")

WRITE_AGAIN = call("write", path="made.txt", content="y")


def test_undo_restores_the_files_of_the_last_turn_and_redo_brings_them_back(agent_of, repository):
    made = repository / "made.txt"
    with agent_of(WRITE, "One.", WRITE_AGAIN, "Two.", mode="edit") as agent:
        agent.run("first")
        agent.run("second")
        undone = agent.undo()
        assert (undone.text, undone.notices) == ("second", ("Undone: made.txt.",))
        assert made.read_text() == "x"
        assert [point.text for point in agent.points()] == ["first"]
        assert agent.redo() == ("Changed again: made.txt.",)
        assert made.read_text() == "y"
        agent.undo()
        agent.undo()
        assert not made.exists()
        with pytest.raises(UsageError, match="nothing to undo"):
            agent.undo()


def test_a_change_of_the_user_stays_when_a_turn_is_undone(agent_of, repository):
    made = repository / "made.txt"
    with agent_of(WRITE, "Done.", mode="edit") as agent:
        agent.run("go")
        made.write_text("mine")
        assert "made.txt" in " ".join(agent.undo(["files"]).notices)
    assert made.read_text() == "mine"


def test_one_file_or_one_hunk_is_undone_and_the_messages_stay(agent_of, repository):
    other = call("write", path="sub/other.txt", content="z")
    with agent_of(calls(WRITE, other), "Done.", mode="edit") as agent:
        agent.run("go")
        [hunk] = re.findall(
            r"^@@ .* @@ #(\w+)$", agent.diff().partition("sub/other.txt")[0], re.MULTILINE
        )
        assert agent.undo_file("made.txt", hunk=hunk) == ("Undone: made.txt.",)
        assert not (repository / "made.txt").exists()
        assert agent.undo_file(repository / "sub" / "other.txt") == ("Undone: sub/other.txt.",)
        assert not (repository / "sub/other.txt").exists()
        assert len(agent.points()) == 1
        with pytest.raises(UsageError, match=r"No turn since then changed a file `a\.py`"):
            agent.undo_file("a.py")


def test_names_of_files_are_relative_to_the_folder_of_the_agent(agent_of, repository):
    folder = repository / "sub"
    folder.mkdir()
    (repository / "link").symlink_to(folder)
    model = ScriptedModel([WRITE, "Done.", WRITE, "Done."])
    with Agent(folder, model=model, memory=False, mode="edit") as agent:
        agent.run("go")
        assert agent.undo_file(repository / "link" / "made.txt") == ("Undone: made.txt.",)
        agent.run("again")
        assert agent.undo_file("../sub/made.txt") == ("Undone: made.txt.",)


async def test_rewind_goes_to_before_an_earlier_message(agent_of, repository):
    model = ScriptedModel([WRITE, "One.", WRITE_AGAIN, "Two.", "Three.", "Four."])
    async with agent_of(model, kind=AsyncAgent, mode="edit") as agent:
        for text in ("first", "second", "third"):
            await agent.run(text)
        second = (await agent.points())[1]
        rewound = await agent.rewind(second, ["conversation", "files"])
        assert (rewound.text, rewound.notices) == ("second", ("Undone: made.txt.",))
        assert (repository / "made.txt").read_text() == "x"
        await agent.run("second, but better")
        assert "third" not in str(model.requests[-1].messages)
        with pytest.raises(UsageError):
            await agent.rewind(99)
        first = (await agent.points())[0].number
        await agent.rewind(first, ["files"])
        assert not (repository / "made.txt").exists()
        assert len(await agent.points()) == 2


def test_undo_in_an_unknown_scope_or_without_kept_files_is_refused(agent_of, repository):
    with agent_of(WRITE, "Done.", mode="edit", save=False) as agent:
        agent.run("go")
        with pytest.raises(UsageError, match="There is no scope `history`"):
            agent.undo(["history"])
        with pytest.raises(UsageError, match="is a list"):
            agent.rewind(1, "files")
        with pytest.raises(UsageError, match="Files are not kept for undo"):
            agent.undo()
        assert agent.undo(["conversation"]).text == "go"
    assert (repository / "made.txt").exists()
    with pytest.raises(UsageError, match="not open"):
        agent.undo()


async def test_undo_during_a_turn_is_refused_and_after_a_left_loop_it_waits(agent_of, repository):
    script = (calls(text="Let me see."), WRITE, "Done.")
    async with agent_of(*script, kind=AsyncAgent, mode="edit") as agent:
        async for _event in agent.send("go"):
            with pytest.raises(UsageError):
                await agent.undo()
            break
        assert (await agent.undo(["conversation"])).text == "go"
        await agent.run("again")
        assert (await agent.undo()).notices == ("Undone: made.txt.",)
