"""Rewinds, redo and branches in a session that is assembled as in the program."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from ouro.assemble import Options, opener
from ouro.display import Todo
from ouro.errors import ToolError, UsageError
from ouro.events import Prompted, Replied, ToolFinished
from ouro.llm import ScriptedModel, ScriptedReply, call
from ouro.memory.backend import RewindRecord, Undoable
from ouro.messages import Context, Image, Usage
from ouro.session import OpenRequest
from ouro.session.rewind import Rewind


def make(repository, *script, **options):
    model = ScriptedModel(script)
    return (
        opener(Options(repository, {"permissions.mode": "auto"}, ready_model=model, **options)),
        model,
    )


async def collect(events):
    return [event async for event in events]


async def say(session, *texts):
    for text in texts:
        await collect(session.send(text))


def words(session):
    """The texts of the user and the agent on the screen."""
    texts = [each.text if isinstance(each, Prompted) else each.message.text for each in session.scrollback.shown_events()
             if isinstance(each, Prompted | Replied)]  # fmt: skip
    return [text for text in texts if text]


def sent_texts(model):
    """The texts of the last request, without those of ouro."""
    return [message.text for message in model.requests[-1].messages[1:] if message.text]


async def test_rewind_points_are_user_messages_with_message_and_call_counts(repository):
    open_session, _ = make(repository, "One.", call("glob", pattern="*.py"), "Two.", "Three.")
    session = await open_session(OpenRequest())
    await say(session, "first", "second", "third")
    assert [(each.text, each.messages, each.calls) for each in session.rewind.points()] == [
        ("first", 8, 1),
        ("second", 6, 1),
        ("third", 2, 0),
    ]
    await session.close()


async def test_rewind_removes_later_messages_and_returns_the_message(repository):
    open_session, model = make(repository, "One.", "Two.", "Three.", "Another.")
    session = await open_session(OpenRequest())
    picture = Image("image/png", b"\x89PNG")
    await say(session, "first")
    await collect(session.send("second", [picture]))
    await say(session, "third")
    rewound = await session.rewind.rewind(session.rewind.points()[1].number)
    assert (rewound.text, rewound.images, rewound.notices) == ("second", (picture,), ())
    assert words(session) == ["first", "One."]
    await say(session, "second, but better")
    assert sent_texts(model) == ["first", "One.", "second, but better"]
    assert words(session) == ["first", "One.", "second, but better", "Another."]
    await session.close()


async def test_rewound_messages_stay_in_the_file(repository, home):
    open_session, _ = make(repository, "One.", "Two.", "Three.")
    session = await open_session(OpenRequest())
    await say(session, "first", "second")
    await session.rewind.undo()
    await say(session, "instead")
    await session.close()
    [file] = (home / ".ouro" / "sessions").glob("*/session.yaml")
    text = file.read_text()
    assert all(
        each in text
        for each in ("first", "One.", "second", "Two.", "rewind: 2", "instead", "Three.")
    )


async def test_resume_starts_at_the_rewound_position(repository):
    open_session, model = make(repository, "One.", "Two.", "Three.")
    session = await open_session(OpenRequest())
    await say(session, "first", "second")
    await session.rewind.undo()
    await session.close()
    again = await open_session(OpenRequest("latest"))
    assert words(again) == ["first", "One."]
    assert [each.texts for each in again.rewind.branches()] == [("second",)]
    await again.rewind.redo()
    assert words(again) == ["first", "One.", "second", "Two."]
    await say(again, "third")
    assert sent_texts(model) == ["first", "One.", "second", "Two.", "third"]
    await again.close()


async def test_undo_and_redo_step_and_a_new_message_ends_redo(repository):
    open_session, _ = make(repository, "One.", "Two.", "Three.", "Four.")
    session = await open_session(OpenRequest())
    await say(session, "a", "b", "c")
    assert (await session.rewind.undo()).text == "c"
    assert (await session.rewind.undo()).text == "b"
    await session.rewind.redo()
    assert words(session) == ["a", "One.", "b", "Two."]
    await session.rewind.redo()
    assert words(session) == ["a", "One.", "b", "Two.", "c", "Three."]
    with pytest.raises(UsageError, match="nothing to redo"):
        await session.rewind.redo()
    await session.rewind.undo()
    await say(session, "d")
    with pytest.raises(UsageError, match="nothing to redo"):
        await session.rewind.redo()
    await session.close()


async def test_the_very_first_message_can_be_undone(repository):
    open_session, model = make(repository, "One.", "Two.")
    session = await open_session(OpenRequest())
    await say(session, "first")
    await session.rewind.undo()
    assert (words(session), session.rewind.points()) == ([], ())
    with pytest.raises(UsageError, match="nothing to undo"):
        await session.rewind.undo()
    await say(session, "afresh")
    assert sent_texts(model) == ["afresh"]
    await session.close()


async def test_branch_can_be_visited_and_left_again(repository):
    open_session, _ = make(repository, "One.", "Two.", "Three.", "Four.")
    session = await open_session(OpenRequest())
    await say(session, "a", "b")
    await session.rewind.undo()
    await say(session, "c", "d")
    [branch] = session.rewind.branches()
    assert (branch.texts, branch.since, branch.messages, branch.calls) == (("b",), 2, 2, 0)
    await session.rewind.visit(branch.number)
    assert words(session) == ["a", "One.", "b", "Two."]
    assert [each.texts for each in session.rewind.branches()] == [("c", "d")]
    await session.rewind.redo()
    assert words(session) == ["a", "One.", "c", "Three.", "d", "Four."]
    with pytest.raises(UsageError, match="no branch"):
        await session.rewind.visit(1)
    await session.close()


async def test_compaction_omits_older_branches_and_reports_it(repository):
    open_session, _ = make(repository, *["So it is."] * 28, "## Goal\nNone.")
    session = await open_session(OpenRequest())
    await say(session, "a", "b")
    await session.rewind.undo()
    await say(session, *["a word and another, " * 300] * 26)
    assert ([each.texts for each in session.rewind.branches()], session.rewind.lacks_branches) == (
        [("b",)],
        False,
    )
    await collect(session.window.compact(""))
    assert (session.rewind.branches(), session.rewind.lacks_branches) == ((), True)
    await session.close()


async def test_todo_plan_follows_the_current_branch(repository):
    first = call("todo", todos=[{"text": "look"}])
    second = call("todo", todos=[{"text": "look", "state": "done"}, {"text": "mend"}])
    open_session, _ = make(repository, first, "One.", second, "Two.")
    session = await open_session(OpenRequest())
    await say(session, "plan", "go on")
    await session.rewind.undo()
    assert session.todos == (Todo("look"),)
    await session.rewind.redo()
    assert session.todos == (Todo("look", "done"), Todo("mend"))
    await session.rewind.rewind(1)
    assert session.todos == ()
    await session.close()


async def test_rewound_cost_stays_counted(repository):
    used = Usage(input=100, output=10, cost=0.5)
    open_session, _ = make(
        repository, ScriptedReply("One.", usage=used), ScriptedReply("Two.", usage=used)
    )
    session = await open_session(OpenRequest())
    await say(session, "a", "b")
    await session.rewind.undo()
    assert session.status().usage.cost == 1.0
    await session.close()
    again = await open_session(OpenRequest("latest"))
    assert again.status().usage.cost == 1.0
    await again.close()


async def test_context_size_shrinks_after_undo(repository):
    open_session, _ = make(repository, ScriptedReply("One.", usage=Usage(input=100, output=10)),
                           ScriptedReply("Two.", usage=Usage(input=5000, output=10)))  # fmt: skip
    session = await open_session(OpenRequest())
    await say(session, "a")
    before = session.status().context
    await say(session, "b")
    assert session.status().context > 5000
    await session.rewind.undo()
    assert session.status().context == before
    await session.close()


async def test_file_read_only_in_rewound_messages_must_be_read_again(repository):
    write = call("write", path="api.py", content="greeting = 'hi '\n")
    open_session, _ = make(
        repository, "Yes?", call("read", path="api.py"), "Read.", write, "Not read."
    )
    session = await open_session(OpenRequest())
    await say(session, "hello", "look at it")
    await session.rewind.undo()
    seen = await collect(session.send("change it"))
    [finished] = [each for each in seen if isinstance(each, ToolFinished)]
    assert finished.failed
    assert "has not been read yet" in str(finished.display)
    await session.close()


async def test_environment_context_is_sent_again_after_undo(repository):
    open_session, model = make(repository, "One.", "Two.")
    session = await open_session(OpenRequest())
    await say(session, "a")
    await session.rewind.undo()
    await say(session, "b")
    [note] = [
        part.text for message in model.requests[-1].messages for part in message.parts_of(Context)
    ]
    assert "Git branch" in note
    await session.close()


async def test_rewind_is_refused_during_a_turn(repository):
    open_session, _ = make(repository, "One.", ScriptedReply("Wait.", hold=asyncio.Event().wait))
    session = await open_session(OpenRequest())
    await say(session, "a")
    turn = session.send("b")
    await anext(turn)
    for way in (
        session.rewind.undo(),
        session.rewind.rewind(1),
        session.rewind.redo(),
        session.rewind.visit(2),
    ):
        with pytest.raises(UsageError, match="The agent is at work"):
            await way
    await turn.aclose()
    await session.close()


async def test_read_only_session_cannot_be_rewound_but_forked(repository):
    open_session, _ = make(repository, "One.")
    session = await open_session(OpenRequest())
    await say(session, "a")
    looked_at = await open_session(OpenRequest(session.id, read_only=True))
    for way in (looked_at.rewind.undo(), looked_at.rewind.rewind(1), looked_at.rewind.redo()):
        with pytest.raises(UsageError, match="read-only"):
            await way
    copy = await looked_at.rewind.fork()
    await looked_at.close()
    forked = await open_session(OpenRequest(copy))
    assert words(forked) == ["a", "One."]
    await forked.close()
    await session.close()


@pytest.mark.parametrize("number", [0, 2, 3, 99])
async def test_rewind_to_a_non_user_message_is_refused(repository, number):
    open_session, _ = make(repository, call("glob", pattern="*"), "One.")
    session = await open_session(OpenRequest())
    await say(session, "a")
    with pytest.raises(UsageError, match="not one of your messages"):
        await session.rewind.rewind(number)
    await session.close()


async def test_user_shell_line_is_undone_with_the_message_before_it(repository):
    open_session, model = make(repository, "One.", "Two.", "Three.")
    session = await open_session(OpenRequest())
    await say(session, "a")
    await collect(session.background.run_line("echo beside", share=True))
    await say(session, "b")
    assert [each.text for each in session.rewind.points()] == ["a", "b"]
    await session.rewind.undo()
    await say(session, "c")
    assert "beside" in str(model.requests[-1].messages)
    await session.rewind.undo()
    await session.rewind.undo()
    assert words(session) == []
    await session.close()


async def test_fork_is_an_independent_session_with_all_messages(repository, home):
    open_session, model = make(repository, "One.", "Two.", "There.", "Here.")
    session = await open_session(OpenRequest())
    await say(session, "a", "b")
    copy = await session.rewind.fork(title="Another way")
    forked = await open_session(OpenRequest(copy))
    assert (forked.title, words(forked)) == ("Another way", ["a", "One.", "b", "Two."])
    await say(forked, "there")
    await say(session, "here")
    assert sent_texts(model) == ["a", "One.", "b", "Two.", "here"]
    assert words(forked) == ["a", "One.", "b", "Two.", "there", "There."]
    assert forked.status().usage != session.status().usage or forked.status().usage == Usage()
    await forked.close()
    await session.close()


async def test_a_fork_at_a_message_ends_before_it(repository):
    open_session, _ = make(repository, "One.", "Two.")
    session = await open_session(OpenRequest())
    await say(session, "a", "b")
    forked = await open_session(
        OpenRequest(await session.rewind.fork(session.rewind.points()[1].number))
    )
    assert words(forked) == ["a", "One."]
    await forked.close()
    assert await session.rewind.fork(session.rewind.points()[0].number) == ""
    await session.close()


async def test_fork_copies_saved_outputs(repository, home):
    open_session, _ = make(repository, call("shell", command="seq 100000"), "Long.")
    session = await open_session(OpenRequest())
    await say(session, "count")
    copy = await session.rewind.fork()
    await session.close()
    forked = await open_session(OpenRequest(copy))
    kept = (home / ".ouro" / "sessions").glob(f"*{copy[:8]}/outputs/output-*")
    assert [each.read_text().split()[-1] for each in kept] == ["100000"]
    await forked.close()


async def test_empty_session_cannot_be_forked(repository):
    open_session, _ = make(repository)
    session = await open_session(OpenRequest())
    with pytest.raises(UsageError, match="nothing to fork"):
        await session.rewind.fork()
    await session.close()


async def test_open_request_can_fork_a_session_open_elsewhere(repository):
    open_session, _ = make(repository, "One.", "Two.")
    session = await open_session(OpenRequest())
    await say(session, "a")
    copy = await open_session(OpenRequest("latest", fork=True))
    assert copy.id != session.id
    await say(copy, "b")
    assert (words(session), words(copy)) == (["a", "One."], ["a", "One.", "b", "Two."])
    await copy.close()
    await session.close()


async def test_an_ephemeral_session_can_be_rewound_and_forked(repository, home):
    open_session, _ = make(repository, "One.", "Two.", ephemeral=True)
    session = await open_session(OpenRequest())
    await say(session, "a", "b")
    await session.rewind.undo()
    copy = await open_session(OpenRequest(await session.rewind.fork()))
    assert words(copy) == ["a", "One."]
    await copy.close()
    await session.close()
    assert not (home / ".ouro" / "sessions").exists()


class Files:
    """Finds and undoes changed files, if there are any."""

    def __init__(self, what="2 files", failing=""):
        self.what, self.failing, self.taken = what, failing, []

    async def find_undoable(self, number):
        if self.failing == "find":
            raise ToolError("git is gone")
        return Undoable(self.what, partial(self.undo, number)) if self.what else None

    async def find_redoable(self, numbers):
        if self.failing == "find":
            raise ToolError("git is gone")
        return

    async def undo(self, number):
        self.taken.append(number)
        if self.failing:
            raise ToolError("git is gone")
        return ("api.py was changed since by another program: it stays.",)


at_once = partial(asyncio.sleep, 0)


async def test_rewind_undoes_files_only_if_chosen(repository):
    open_session, _ = make(repository, "One.", "Two.", "Three.")
    session = await open_session(OpenRequest())
    await say(session, "a", "b")
    files, memory = Files(), Files("")
    past = Rewind(
        session.memory, lambda: False, lambda: None, {"files": files, "memory": memory}, at_once
    )
    assert await past.describe_undoable(3) == {"files": "2 files"}
    rewound = await past.rewind(3, ("conversation", "files"))
    assert rewound.notices == ("api.py was changed since by another program: it stays.",)
    assert (files.taken, memory.taken) == ([3], [])
    await past.redo()
    assert (await past.rewind(3)).notices == ()
    assert files.taken == [3]
    await session.close()
    loaded = await session.memory._store.load_session(session.id, read_only=True)
    scopes = [each.scopes for each in loaded.records if isinstance(each, RewindRecord)]
    assert scopes == [("conversation", "files"), ("conversation",), ("conversation",)]


async def test_failed_file_undo_is_reported_and_messages_are_rewound(repository):
    open_session, _ = make(repository, "One.", "Two.")
    session = await open_session(OpenRequest())
    await say(session, "a", "b")
    for failing in ("find", "undo"):
        past = Rewind(
            session.memory,
            lambda: False,
            lambda: None,
            {"files": Files(failing=failing)},
            at_once,
        )
        assert await past.describe_undoable(3) == (
            {} if failing == "find" else {"files": "2 files"}
        )
        rewound = await past.rewind(3, ("conversation", "files"))
        assert rewound.notices == ("Not undone in files: git is gone",)
        assert words(session) == ["a", "One."]
        again = await past.redo()
        assert list(again) == (
            ["Not done again in files: git is gone"] if failing == "find" else []
        )
    past = Rewind(
        session.memory, lambda: False, lambda: None, {"files": Files(failing="find")}, at_once
    )
    with pytest.raises(UsageError, match="Not undone in files: git is gone"):
        await past.rewind(3, ("files",))
    await session.close()


async def test_a_number_back_that_is_too_large_names_how_many_there_are(repository):
    open_session, _model = make(repository, "One.", "Two.")
    session = await open_session(OpenRequest())
    await say(session, "first")
    with pytest.raises(UsageError, match="messages back is 1: there is only one message"):
        await session.rewind.find_number_back(5)
    await say(session, "second")
    with pytest.raises(UsageError, match=r"messages back is 1 to 2\."):
        await session.rewind.find_number_back(5)
    await session.close()
