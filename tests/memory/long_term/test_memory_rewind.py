"""A rewind offers to undo what memory learned in the removed turns, and nothing else."""

from __future__ import annotations

import pytest
from fakes.classifier import say

from ouro.assemble import Options, opener
from ouro.errors import UsageError
from ouro.llm import ScriptedModel, call
from ouro.session import OpenRequest
from ouro.utils.ouro_paths import get_memory_dir


@pytest.fixture
def read_memory(home):
    """A function that returns a file of the user's memory; "" if there is none."""
    return lambda name="preferences": (
        (get_memory_dir() / f"{name}.md").read_text()
        if (get_memory_dir() / f"{name}.md").exists()
        else ""
    )


def make(repository, *script):
    model = ScriptedModel(script)
    return opener(Options(repository, {"permissions.mode": "auto"}, ready_model=model))


def learn(text, name="preferences"):
    """The agent writes a file of the user's memory."""
    return call("write", path=str(get_memory_dir() / f"{name}.md"), content=text)


async def test_memory_change_of_rewound_turns_is_offered_and_undone(repository, read_memory):
    session = await make(repository, "Hello.", learn("Answer in German.\n"), "Noted.", "Ja.")(
        OpenRequest()
    )
    await say(session, "hi", "answer in German from now on", "yes?")
    assert session.memory.long_term is session.session_memory.manager is not None
    first, second, third = (each.number for each in session.rewind.points())
    assert read_memory() == "Answer in German.\n"
    assert await session.rewind.describe_undoable(third) == {}
    assert await session.rewind.describe_undoable(second) == {"memory": "1 change"}
    assert await session.rewind.describe_undoable(first) == {"memory": "1 change"}
    rewound = await session.rewind.rewind(second, ("conversation", "memory"))
    assert (rewound.notices, read_memory()) == ((), "")
    assert await session.rewind.redo() == ["Memory: 1 change again."]
    assert read_memory() == "Answer in German.\n"
    assert await session.rewind.describe_undoable(second) == {"memory": "1 change"}
    only = await session.rewind.rewind(second, ("memory",))
    assert (only.text, read_memory(), len(session.rewind.points())) == ("", "", 3)
    assert await session.rewind.redo() == ["Memory: 1 change again."]
    assert read_memory() == "Answer in German.\n"
    await session.close()


async def test_memory_is_kept_if_not_chosen(repository, read_memory):
    session = await make(repository, learn("Answer in German.\n"), "Noted.")(OpenRequest())
    await say(session, "answer in German from now on")
    await session.rewind.undo()
    assert read_memory() == "Answer in German.\n"
    await session.close()


async def test_memory_learned_on_a_branch_is_kept_when_another_is_rewound(repository, read_memory):
    script = [
        "Hello.",
        learn("Answer in German.\n"),
        "Noted.",
        learn("Use tabs.\n", "decisions"),
        "Noted.",
    ]
    session = await make(repository, *script)(OpenRequest())
    await say(session, "hi", "answer in German")
    await session.rewind.undo()
    await say(session, "use tabs")
    last = session.rewind.points()[-1].number
    assert await session.rewind.describe_undoable(last) == {"memory": "1 change"}
    await session.rewind.rewind(last, ("conversation", "memory"))
    assert (read_memory(), read_memory("decisions")) == ("Answer in German.\n", "")
    await session.close()


async def test_user_edits_and_other_sessions_memory_are_kept(repository, read_memory):
    open_session = make(
        repository,
        learn("Answer in German.\n"),
        "Noted.",
        learn("Use tabs.\n", "decisions"),
        "Noted.",
    )
    session = await open_session(OpenRequest())
    await say(session, "answer in German")
    other = await open_session(OpenRequest())
    await say(other, "use tabs")
    await other.close()
    preferences = get_memory_dir() / "preferences.md"
    preferences.write_text(preferences.read_text() + "Be short.\n")
    await session.rewind.rewind(session.rewind.points()[0].number, ("memory",))
    assert (read_memory(), read_memory("decisions")) == ("Be short.\n", "Use tabs.\n")
    await session.close()


async def test_memory_rewind_works_after_a_resume(repository, read_memory):
    open_session = make(repository, "Hello.", learn("Answer in German.\n"), "Noted.")
    session = await open_session(OpenRequest())
    await say(session, "hi", "answer in German")
    await session.close()
    again = await open_session(OpenRequest("latest"))
    last = again.rewind.points()[-1].number
    assert await again.rewind.describe_undoable(last) == {"memory": "1 change"}
    await again.rewind.rewind(last, ("conversation", "memory"))
    assert read_memory() == ""
    await again.close()
    third = await open_session(OpenRequest("latest"))
    assert await third.rewind.redo() == ["Memory: 1 change again."]
    assert (read_memory(), len(third.rewind.points())) == ("Answer in German.\n", 2)
    with pytest.raises(UsageError):
        await third.rewind.redo()
    await third.close()


async def test_all_commits_of_a_turn_are_undone_at_once(repository, read_memory):
    commit = call(
        "shell",
        command=(
            f'git -C "{get_memory_dir()}" add -A && git -C "{get_memory_dir()}" commit -qm mine'
        ),
    )
    script = [
        learn("Answer in German.\n"),
        commit,
        learn("Use tabs.\n", "decisions"),
        "Noted.",
        "Ja.",
    ]
    session = await make(repository, *script)(OpenRequest())
    await say(session, "answer in German, use tabs", "so?")
    first = session.rewind.points()[0].number
    assert await session.rewind.describe_undoable(first) == {"memory": "2 changes"}
    assert (await session.rewind.rewind(first, ("conversation", "memory"))).notices == ()
    assert (read_memory(), read_memory("decisions")) == ("", "")
    log = session.session_memory.manager.timeline().log()
    assert [entry.commit.origin for entry in log] == ["undo", "agent", "agent"]
    await session.rewind.redo()
    assert (read_memory(), read_memory("decisions")) == ("Answer in German.\n", "Use tabs.\n")
    assert await session.rewind.describe_undoable(first) == {"memory": "2 changes"}
    await session.close()


async def test_remaining_hunks_are_offered_after_one_was_undone(repository, read_memory):
    lines = "".join(f"Rule {number}.\n" for number in range(20))
    script = [learn(lines), "Noted.", learn("First.\n" + lines + "Last.\n"), "Noted."]
    session = await make(repository, *script)(OpenRequest())
    await say(session, "keep these rules", "two more")
    last = session.rewind.points()[-1].number
    assert await session.rewind.describe_undoable(last) == {"memory": "1 change"}
    commit = session.session_memory.manager.timeline().log()[0].commit.id
    await session.session_memory.manager.undo(commit, 1)
    assert read_memory() == lines + "Last.\n"
    assert await session.rewind.describe_undoable(last) == {"memory": "1 change"}
    await session.rewind.rewind(last, ("conversation", "memory"))
    assert read_memory() == lines
    await session.close()
