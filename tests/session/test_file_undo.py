"""Undo and redo of the files that turns changed, in whole sessions."""

import asyncio
import os
import re
import shutil
import threading

import pytest
from fakes.agents import say
from fakes.waiting import PATIENCE

from ouro.assemble import Options, open_session
from ouro.errors import UsageError
from ouro.llm import ScriptedModel, call
from ouro.safety import Checkpoints
from ouro.session import OpenRequest

READ = call("read", path="a.txt")


@pytest.fixture(autouse=True)
def _commands_wait_for_checkpoints(monkeypatch):
    """On a busy machine a checkpoint may take longer than a command waits for it."""
    monkeypatch.setattr("ouro.session.file_undo.WAIT", PATIENCE)


async def opened(repository, *script, resume="", **options):
    model = ScriptedModel(script)
    settings = {"permissions.mode": "auto", **options.pop("settings", {})}
    return await open_session(
        Options(repository, settings, ready_model=model, **options), OpenRequest(resume)
    )


def write(path, content):
    return call("write", path=path, content=content)


async def test_undo_and_redo_cover_file_tools_and_shell_lines(repository):
    (repository / "old.txt").write_text("old\n")
    line = "echo more > made.txt && rm old.txt"
    session = await opened(
        repository, write("a.py", "1\n"), "Done.", call("shell", command=line), "Done."
    )
    await say(session, "write a.py")
    await say(session, "run it")
    assert (repository / "made.txt").exists()
    assert not (repository / "old.txt").exists()

    undone = await session.rewind.undo()
    assert undone.text == "run it"
    assert undone.notices == ("Undone: made.txt, old.txt.",)
    assert not (repository / "made.txt").exists()
    assert (repository / "old.txt").read_text() == "old\n"
    assert (repository / "a.py").exists()

    assert await session.rewind.redo() == ["Changed again: old.txt, made.txt."]
    assert (repository / "made.txt").exists()
    await session.rewind.undo()
    await session.rewind.undo()
    assert not (repository / "a.py").exists()
    await session.close()


async def test_rewind_offers_files_and_keeps_them_if_not_chosen(repository):
    session = await opened(repository, write("a.py", "1\n"), "Done.", "Fine.")
    await say(session, "write a.py")
    await say(session, "thanks")
    first, second = session.rewind.points()
    assert dict(await session.rewind.describe_undoable(first.number)) == {"files": "1 file"}
    assert dict(await session.rewind.describe_undoable(second.number)) == {}
    await session.rewind.rewind(first.number)
    assert (repository / "a.py").exists()
    await session.rewind.redo()
    assert (repository / "a.py").exists()
    await session.rewind.rewind(first.number, ("conversation", "files"))
    assert not (repository / "a.py").exists()
    await session.close()


async def test_turns_of_an_abandoned_branch_are_not_undone_again(repository):
    session = await opened(repository, write("a.py", "1\n"), "Done.", write("b.py", "2\n"), "Done.")
    await say(session, "write a.py")
    await session.rewind.undo()
    (repository / "a.py").write_text("mine\n")
    await say(session, "write b.py instead")
    await session.rewind.undo()
    assert (repository / "a.py").read_text() == "mine\n"
    assert not (repository / "b.py").exists()
    await session.close()


async def test_after_a_resume_earlier_turns_can_be_undone(repository):
    session = await opened(repository, write("a.py", "1\n"), "Done.")
    await say(session, "write a.py")
    await session.close()
    again = await opened(repository, resume=session.id)
    await again.rewind.undo()
    assert not (repository / "a.py").exists()
    await again.close()


async def test_undo_names_the_folder_in_which_a_session_changed_files_before(repository):
    (repository / "sub").mkdir()
    session = await opened(repository / "sub", write("a.py", "1\n"), "Done.")
    await say(session, "write a.py")
    await session.close()
    again = await opened(repository, write("b.py", "1\n"), "Done.", resume=session.id)
    await say(again, "write b.py")
    assert (await again.rewind.undo()).notices == ("Undone: b.py.",)
    point = (await again.rewind.last_turn()).number
    assert dict(await again.rewind.describe_undoable(point)) == {"files": "0 files here"}
    (notice,) = (await again.rewind.undo()).notices
    folder = repository / "sub"
    assert notice.startswith(f"Not undone: what the session changed in {folder}.")
    assert f"`ouro --cd {folder} --resume {session.id[:8]}`" in notice
    assert (folder / "a.py").exists()
    await again.rewind.redo()
    await again.close()
    there = await opened(folder, resume=session.id)
    assert (await there.rewind.undo()).notices[0] == "Undone: a.py."
    assert not (folder / "a.py").exists()
    await there.close()


async def test_user_edit_is_kept_and_reported(repository):
    session = await opened(repository, write("a.py", "1\n"), "Done.")
    await say(session, "write a.py")
    (repository / "a.py").write_text("mine\n")
    notices = (await session.rewind.undo()).notices
    assert notices == ("a.py is left as it is: you have changed it since.",)
    assert (repository / "a.py").read_text() == "mine\n"
    await session.close()


async def test_a_turn_that_is_interrupted_can_be_undone(repository):
    session = await opened(repository, call("shell", command="echo x > a.py; echo began; sleep 60"))

    async def turn():
        async for event in session.send("run"):
            if type(event).__name__ == "ToolProgress":
                session.interrupt()

    async with asyncio.timeout(30):
        await turn()
    assert (repository / "a.py").exists()
    await session.rewind.undo()
    assert not (repository / "a.py").exists()
    await session.close()


async def test_undo_takes_the_turn_and_rewind_a_message_that_steered_it(repository):
    session = await opened(
        repository, write("a.py", "1\n"), lambda _: steer(), write("b.py", "3\n"), "Done."
    )

    def steer():
        session.steer("and b.py")
        return write("a.py", "2\n")

    await say(session, "write a.py")
    first, second = session.rewind.points()
    assert second.text == "and b.py"
    assert dict(await session.rewind.describe_undoable(second.number)) == {"files": "1 file"}
    undone = await session.rewind.rewind(second.number, ("files",))
    assert undone.notices == ("Undone: b.py.",)
    assert (repository / "a.py").read_text() == "2\n"
    assert not (repository / "b.py").exists()
    assert not first.is_steered
    await session.close()

    again = await opened(repository, resume="latest")  # it is in the session's file
    assert [point.is_steered for point in again.rewind.points()] == [False, True]
    assert (await again.rewind.undo()).text == "write a.py"
    assert not (repository / "a.py").exists()
    await again.close()


async def test_the_last_turn_with_changes_is_found_behind_turns_that_talked(repository):
    script = [write("a.py", "1\n"), "Done.", write("b.py", "2\n"), "Done.", "Fine.", "Yes.", "No."]
    session = await opened(repository, *script)
    for text in ("write a", "write b", "thanks", "why?", "sure?"):
        await say(session, text)
    point, what = await session.rewind.last_change(("files",))
    assert (point.text, what) == ("write b", "1 file")
    await session.rewind.rewind(point.number, ("files",))
    point, what = await session.rewind.last_change(("files",))
    assert (point.text, what) == ("write a", "1 file")
    await session.rewind.rewind(point.number, ("files",))
    assert await session.rewind.last_change(("files",)) is None
    await session.close()


@pytest.mark.parametrize(
    "options", [{"ephemeral": True}, {"settings": {"checkpoints.enabled": False}}]
)
async def test_file_undo_can_be_disabled(repository, home, options):
    session = await opened(repository, write("a.py", "1\n"), "Done.", **options)
    await say(session, "write a.py")
    await session.rewind.undo()
    assert (repository / "a.py").exists()
    assert not (home / ".ouro" / "checkpoints").exists()
    await session.close()


@pytest.mark.parametrize(
    ("git", "told"),
    [
        ("exit 1", "cannot be undone in this turn: git ls-files failed"),
        ('exec {git} "$@"', "`/undo` does not restore big: it is over 1 MB now"),
    ],
)
async def test_what_cannot_be_undone_is_reported_once_and_the_turn_runs(
    repository, tmp_path, monkeypatch, git, told
):
    (tmp_path / "tools").mkdir()
    program = tmp_path / "tools" / "git"
    program.write_text("#!/bin/sh\n" + git.format(git=shutil.which("git")))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    big = call("shell", command="head -c 1500000 /dev/zero > big")
    again = call("shell", command="head -c 1600000 /dev/zero > big")
    settings = {"checkpoints.max_file_mb": 1}
    session = await opened(repository, big, "Done.", again, "Done.", settings=settings)
    await say(session, "write big")
    await say(session, "write it again")
    await session.rewind.describe_undoable(1)
    assert (repository / "big").stat().st_size == 1_600_000
    heard = []

    async def listen():
        async for event in session.events():
            heard.append(getattr(event, "text", ""))

    listening = asyncio.create_task(listen())
    await session.close()
    await listening
    assert sum(told in text for text in heard) == 1


async def test_turns_after_one_whose_checkpoint_failed_can_be_undone(
    repository, tmp_path, monkeypatch
):
    (tmp_path / "tools").mkdir()
    program = tmp_path / "tools" / "git"
    fails = tmp_path / "fails"
    program.write_text(f'#!/bin/sh\n[ -e {fails} ] && exit 1\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    fails.touch()
    script = [READ, write("a.txt", "1\n"), "Done.", write("b.txt", "2\n"), "Done."]
    session = await opened(repository, *script)
    await say(session, "write a.txt")
    with pytest.raises(UsageError, match="Not undone in files: git for-each-ref failed"):
        await session.rewind.undo(("files",))
    fails.unlink()
    await say(session, "write b.txt")
    assert (await session.rewind.undo(("files",))).notices == ("Undone: b.txt.",)
    assert not (repository / "b.txt").exists()
    await session.close()


async def test_diff_since_a_message_lists_hunks_that_can_be_undone(repository):
    before = "".join(f"{number}\n" for number in range(30))
    after = before.replace("2\n3\n", "two\n3\n", 1).replace("25\n", "") + "end"
    (repository / "a.txt").write_text(before)
    session = await opened(
        repository, READ, write("a.txt", after), write("b.txt", "b\n"), "Done.", "Fine."
    )
    await say(session, "write a.txt")
    await say(session, "thanks")
    diff = await session.rewind.diff(2)
    ids = re.findall(r"^@@ .* @@ #(\w{4})$", diff, re.MULTILINE)
    assert len(ids) == 3
    assert await session.rewind.undo_file("a.txt", ids[1], 2) == ["Undone: a.txt."]
    assert (repository / "a.txt").read_text() == before.replace("2\n3\n", "two\n3\n", 1)
    with pytest.raises(UsageError, match="no hunk"):
        await session.rewind.undo_file("a.txt", ids[1], 2)
    assert await session.rewind.undo_file("a.txt", ids[0], 2) == ["Undone: a.txt."]
    assert (repository / "a.txt").read_text() == before
    assert (repository / "b.txt").exists()
    assert await session.rewind.undo_file("b.txt", "", 2) == ["Undone: b.txt."]
    assert not (repository / "b.txt").exists()
    with pytest.raises(UsageError, match="messages back is 1 to 2"):
        await session.rewind.diff(3)
    await session.close()


async def test_e10_undo_of_one_file_keeps_user_edits(repository):
    (repository / "a.txt").write_text("1\n2\n3\n4\n5\n6\n7\n")
    session = await opened(repository, READ, write("a.txt", "one\n2\n3\n4\n5\n6\n7\n"), "Done.")
    await say(session, "write a.txt")
    await session.rewind.diff(1)
    (repository / "a.txt").write_text("one\n2\n3\n4\n5\n6\nmine\n")
    assert await session.rewind.undo_file("a.txt", "", 1) == ["Your own changes stay in a.txt."]
    assert (repository / "a.txt").read_text() == "1\n2\n3\n4\n5\n6\nmine\n"
    await session.close()


async def test_undo_of_files_without_changes_is_refused(repository):
    session = await opened(repository, "Hello.")
    await say(session, "hello")
    with pytest.raises(UsageError, match="Nothing was changed there"):
        await session.rewind.undo(("files",))
    assert await session.rewind.describe_redoable() == {}
    await session.close()


async def test_files_can_be_undone_and_redone_alone(repository):
    session = await opened(repository, write("a.py", "1\n"), "Done.")
    await say(session, "write a.py")
    undone = await session.rewind.undo(("files",))
    assert (undone.text, undone.notices) == ("", ("Undone: a.py.",))
    assert not (repository / "a.py").exists()
    assert [point.text for point in session.rewind.points()] == ["write a.py"]
    assert await session.rewind.redo() == ["Changed again: a.py."]
    assert (repository / "a.py").exists()
    with pytest.raises(UsageError, match="nothing to redo"):
        await session.rewind.redo()
    await session.close()


async def test_files_can_be_redone_without_messages_or_with_a_branch(repository):
    session = await opened(repository, write("a.py", "1\n"), "Done.", write("b.py", "2\n"), "Done.")
    await say(session, "write a.py")
    await say(session, "write b.py")
    await session.rewind.undo()
    assert await session.rewind.describe_redoable() == {
        "conversation": "4 messages",
        "files": "1 file",
    }
    assert await session.rewind.redo(("files",)) == ["Changed again: b.py."]
    assert [point.text for point in session.rewind.points()] == ["write a.py"]
    assert await session.rewind.describe_redoable() == {"conversation": "4 messages"}
    assert await session.rewind.redo() == []
    assert await session.rewind.describe_redoable() == {}
    await session.rewind.undo()
    assert not (repository / "b.py").exists()

    [branch] = session.rewind.branches()
    assert dict(await session.rewind.describe_redoable(branch.number)) == {
        "conversation": "4 messages",
        "files": "1 file",
    }
    assert await session.rewind.visit(branch.number, ("files",)) == ["Changed again: b.py."]
    assert (repository / "b.py").exists()
    await session.rewind.undo()
    await session.rewind.undo()
    assert sorted(path.name for path in repository.glob("?.py")) == []
    assert await session.rewind.redo(("conversation",)) == []
    assert not (repository / "a.py").exists()
    assert await session.rewind.describe_redoable() == {
        "conversation": "4 messages",
        "files": "2 files",
    }
    await session.close()
    again = await opened(repository, resume=session.id)
    assert await again.rewind.redo() == ["Changed again: a.py, b.py."]
    await again.close()


async def test_slow_checkpoint_does_not_delay_a_turn(repository, monkeypatch):
    monkeypatch.setattr("ouro.session.file_undo.WAIT", 0.01)
    taken, released = [], threading.Event()

    def slowed(moment, take):
        def slow(self, number):
            assert released.wait(30)
            taken.append(moment)
            return take(self, number)

        return slow

    monkeypatch.setattr(Checkpoints, "take_before", slowed("before", Checkpoints.take_before))
    monkeypatch.setattr(Checkpoints, "take_after", slowed("after", Checkpoints.take_after))
    line = call("shell", command="echo 1 > b.py")
    session = await opened(repository, "Hello.", write("a.py", "1\n"), line, "Done.", "Nothing.")
    await say(session, "hello")
    await say(session, "write a.py and b.py")
    assert taken == []
    released.set()
    assert (await session.rewind.undo()).notices
    assert taken == ["before", "after"]
    assert not (repository / "a.py").exists()
    await session.close()
