"""E13: what a killed turn changed can be undone, and an undo that was killed is finished."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes.model_server import Call, ModelServer, Reply

from ouro.assemble import Options, open_session
from ouro.llm import ScriptedModel
from ouro.safety import Checkpoints, Undo, needs_recovery
from ouro.session import OpenRequest
from ouro.utils.ouro_paths import get_checkpoints_dir


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "work"
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / "a.py").write_text("one\n")
    (folder / "b.py").write_text("b\n")
    subprocess.run(["git", "add", "a.py"], cwd=folder, check=True)
    return folder


def opened(root: Path, session: str = "s1") -> Checkpoints:
    return Checkpoints(root, root.parent / "kept", session)


_DIE = """
import os, signal, sys, time
from pathlib import Path
from ouro.safety import Checkpoints, Undo
root = Path(sys.argv[1])
kept = Checkpoints(root, root.parent / "kept", "s1")
"""


def killed(root: Path, code: str) -> None:
    """Run code in a process that kills itself at the end."""
    done = subprocess.run(
        [sys.executable, "-c", f"{_DIE}{code}\nos.kill(os.getpid(), signal.SIGKILL)", root],
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    for journal in (root.parent / "kept").glob("*/open/s1.?"):
        died, end = journal.with_name(f"{journal.name}.died"), time.monotonic() + 30
        while "began" in journal.read_text() and not died.exists() and time.monotonic() < end:
            time.sleep(0.01)  # the watcher notes the moment
    time.sleep(0.02)


def test_e13_files_that_tools_changed_are_restored(root):
    killed(
        root,
        """
kept.keep(1, root / "a.py")
(root / "a.py").write_text("changed\\n")
kept.keep_written(1, root / "a.py")
kept.keep(1, root / "new/c.py")
(root / "new").mkdir()
(root / "new/c.py").write_text("new\\n")
""",
    )
    kept = opened(root)
    assert [cut.record.number for cut in kept.recover()] == [1]
    restored = Undo(kept).undo(kept.turns())
    assert sorted(restored.paths) == ["a.py", "new/c.py"]
    assert ((root / "a.py").read_text(), (root / "new").exists()) == ("one\n", False)
    assert kept.recover() == []


def test_e13_a_damaged_line_of_a_journal_hides_no_other(root):
    killed(
        root,
        """
kept.keep(1, root / "a.py")
(root / "a.py").write_text("changed\\n")
kept.keep(1, root / "b.py")
(root / "b.py").write_text("changed\\n")
""",
    )
    (journal,) = (root.parent / "kept").glob("*/open/s1.1")
    first, second = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(first[:20] + b"\n[1]\n" + second)
    kept = opened(root)
    assert len(kept.recover()) == 1
    assert Undo(kept).undo(kept.turns()).paths == ("b.py",)


def test_e13_a_full_disk_leaves_no_piece_of_a_line_in_the_journal(root):
    kept = opened(root)
    kept.keep(1, root / "a.py")
    (journal,) = kept.folder.glob("open/s1.1")
    before = journal.read_bytes()
    limit, hard_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard_limit))
    try:
        with pytest.raises(OSError, match="No space left"):
            kept.note_command_end(1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard_limit))
    assert journal.read_bytes() == before
    kept.take_after(1)


def test_e13_a_file_that_a_tool_was_writing_again_is_restored(root):
    killed(
        root,
        """
for text in ("first\\n", "second\\n"):
    kept.keep(1, root / "a.py")
    (root / "a.py").write_text(text)
    kept.keep(1, root / "new.py")
    (root / "new.py").write_text(text)
    if text == "first\\n":
        kept.keep_written(1, root / "a.py")
        kept.keep_written(1, root / "new.py")
""",
    )
    kept = opened(root)
    kept.recover()
    restored = Undo(kept).undo(kept.turns())
    assert sorted(restored.paths) == ["a.py", "new.py"]
    assert ((root / "a.py").read_text(), (root / "new.py").exists()) == ("one\n", False)


def test_e13_a_file_that_two_tools_were_writing_is_restored(root):
    killed(
        root,
        """
for _ in range(2):
    kept.keep(1, root / "a.py")
(root / "a.py").write_text("of the first\\n")
kept.keep_written(1, root / "a.py")
(root / "a.py").write_text("of the second\\n")
""",
    )
    kept = opened(root)
    kept.recover()
    restored = Undo(kept).undo(kept.turns())
    assert (sorted(restored.paths), restored.left) == (["a.py"], {})
    assert (root / "a.py").read_text() == "one\n"


def test_e13_a_half_written_file_is_gone_after_an_undo(home, root):
    killed(
        root,
        """
import os, signal
from ouro.utils import text_files
def die(*words, **names):
    os.kill(os.getpid(), signal.SIGKILL)
kept.keep(1, root / "new.py")
os.replace = die
text_files.save_file(os.open(root, os.O_RDONLY), "new.py", b"new\\n", expected=None)
""",
    )
    assert [path.name for path in root.glob(".new.py.*.tmp")]
    kept = opened(root)
    kept.recover()
    Undo(kept).undo(kept.turns())
    assert sorted(path.name for path in root.iterdir()) == [".git", "a.py", "b.py"]


def test_e13_a_file_in_the_middle_of_a_write_is_no_file_of_the_checkpoint(home, root):
    killed(
        root,
        """
import os, signal
from ouro.utils.files import note_written_dir, replace_file
def die():
    kept.take_before(1)
    kept.note_command_start(1)
    os.kill(os.getpid(), signal.SIGKILL)
folder = os.open(root, os.O_RDONLY)
note_written_dir(folder)
replace_file(folder, "new.py", b"new\\n", check=die)
""",
    )
    assert [path.name for path in root.glob(".new.py.*.tmp")]
    kept = opened(root)
    kept.recover()
    restored = Undo(kept).undo(kept.turns())
    assert (restored.paths, restored.left) == ((), {})
    assert sorted(path.name for path in root.iterdir()) == [".git", "a.py", "b.py"]


COMMAND = """
kept.take_before(1)
kept.note_command_start(1)
(root / "a.py").write_text("changed\\n")
(root / "b.py").unlink()
(root / "c.py").write_text("new\\n")
"""


def test_e13_files_that_a_command_changed_are_restored(root):
    killed(root, COMMAND)
    kept = opened(root)
    kept.recover()
    restored = Undo(kept).undo(kept.turns())
    assert (sorted(restored.paths), restored.left) == (["a.py", "b.py", "c.py"], {})
    assert sorted(path.name for path in root.iterdir()) == [".git", "a.py", "b.py"]
    assert (root / "a.py").read_text() == "one\n"
    Undo(kept).redo(kept.turns())
    assert (root / "c.py").read_text() == "new\n"


def test_e13_the_end_of_a_released_turn_is_noted_without_a_wait(root):
    kept = opened(root)
    kept.take_before(1)
    kept.note_command_start(1)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert kept.release() == [1]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert [path.name for path in kept.folder.glob("open/*.died")] == ["s1.1.died"]
    # A watcher that waits for the end of this process asks for it ten thousand times.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.1


def test_e13_a_file_that_the_user_changed_since_is_not_overwritten(root):
    killed(root, COMMAND)
    (root / "a.py").write_text("mine\n")
    kept = opened(root)
    kept.recover()
    restored = Undo(kept).undo(kept.turns())
    assert restored.unsure == ("a.py",)
    assert (root / "a.py").read_text() == "mine\n"
    assert (root / "b.py").read_text() == "b\n"
    Undo(kept).undo(kept.turns(), "a.py", restored.unsure)
    assert (root / "a.py").read_text() == "one\n"


def test_e13_user_edits_of_a_file_that_a_tool_wrote_are_kept(root):
    killed(
        root,
        """
kept.keep(1, root / "a.py")
(root / "a.py").write_text("changed\\n")
kept.keep_written(1, root / "a.py")
""",
    )
    (root / "a.py").write_text("mine\n")
    kept = opened(root)
    kept.recover()
    assert "you have changed it since" in Undo(kept).undo(kept.turns()).left["a.py"]
    assert (root / "a.py").read_text() == "mine\n"


def test_e13_a_file_that_a_command_and_then_a_tool_changed_is_restored(root):
    killed(
        root,
        """
kept.take_before(1)
kept.note_command_start(1)
(root / "b.py").unlink()
kept.note_command_end(1)
kept.keep(1, root / "b.py")
(root / "b.py").write_text("new\\n")
kept.keep_written(1, root / "b.py")
""",
    )
    kept = opened(root)
    kept.recover()
    assert Undo(kept).undo(kept.turns()).left == {}
    assert (root / "b.py").read_text() == "b\n"


def test_e13_a_file_that_a_command_changed_beside_a_tool_is_restored(root):
    killed(
        root,
        """
kept.take_before(1)
kept.keep(1, root / "b.py")
kept.note_command_start(1)
kept.keep_written(1, root / "b.py")
(root / "b.py").unlink()
""",
    )
    kept = opened(root)
    kept.recover()
    assert Undo(kept).undo(kept.turns()).paths == ("b.py",)
    assert (root / "b.py").read_text() == "b\n"


def test_e13_a_file_whose_past_is_not_known_is_not_deleted(root):
    """The command began before the checkpoint was complete, and moved a file."""
    killed(root, 'kept.note_command_start(1, is_early=True)\n(root / "b.py").rename(root / "c.py")')
    kept = opened(root)
    kept.recover()
    (turn,) = kept.turns()
    assert "may have been there before the turn" in kept.turn_changes(turn).lost["c.py"]
    unsure = Undo(kept).undo([turn]).unsure
    Undo(kept).undo([turn], sure=unsure)
    assert (root / "c.py").read_text() == "b\n"


def test_e13_a_repository_that_was_killed_while_it_was_made_is_made_whole(root):
    whole = opened(root)
    whole.repository.create()
    (whole.folder / "HEAD").unlink()
    kept = opened(root)
    assert (kept.turns(), kept.recover()) == ((), [])
    kept.take_before(1)
    assert [turn.number for turn in kept.turns()] == [1]


def test_e13_a_session_of_another_process_is_left_alone(root):
    kept = opened(root)
    kept.keep(1, root / "a.py")
    assert opened(root, "s2").recover() == []


_HOLD = """
import fcntl, sys, time
with open(sys.argv[1], "rb") as journal:
    fcntl.flock(journal, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.readline()
    time.sleep(0.3)
"""


def test_e13_a_turn_that_is_kept_in_the_background_is_waited_for(root):
    killed(root, 'kept.keep(1, root / "a.py")\n(root / "a.py").write_text("changed\\n")')
    [journal] = (root.parent / "kept").glob("*/open/s1.1")
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, journal],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as background:  # fmt: skip
        assert background.stdout.readline() == "held\n"
        assert opened(root, "s2").recover() == []  # another session does not wait
        assert not needs_recovery(opened(root, "s2"))
        assert needs_recovery(opened(root))
        background.stdin.write("\n")
        background.stdin.flush()
        kept = opened(root)
        assert [cut.record.number for cut in kept.recover()] == [1]
    Undo(kept).undo(kept.turns())
    assert (root / "a.py").read_text() == "one\n"


_UNDO_AND_DIE = """
for number in (1, 2, 3):
    for name in ("a.py", "b.py", "c.py"):
        kept.keep(number, root / name)
        (root / name).write_text(f"{number} {name}\\n")
        kept.keep_written(number, root / name)
    kept.take_after(number)
undo = Undo(kept)
restore, count = undo.restore, [0]
def restore_some(change):
    if count[0] == int(sys.argv[2] if sys.argv[2:] else STOP):
        os.kill(os.getpid(), signal.SIGKILL)
    count[0] += 1
    return restore(change)
undo.restore = restore_some
undo.undo(kept.turns())
"""


@pytest.mark.parametrize("stop", range(9))
def test_e13_an_undo_that_was_killed_is_finished(root, stop):
    killed(root, _UNDO_AND_DIE.replace("STOP", str(stop)))
    kept = opened(root)
    restored = Undo(kept).finish()
    assert restored is not None
    assert restored.left == {}
    assert (root / "a.py").read_text() == "one\n"
    assert (root / "b.py").read_text() == "b\n"
    assert not (root / "c.py").exists()
    assert all(turn.undone for turn in kept.turns())
    assert Undo(kept).finish() is None


def test_e13_the_question_about_a_file_survives_a_kill(root):
    killed(root, COMMAND)
    (root / "a.py").write_text("mine\n")
    killed(root, "kept.recover()\nUndo(kept).undo(kept.turns())")
    kept = opened(root)
    undo = Undo(kept)
    assert (undo.finish(), undo.open_questions()) == (None, {"a.py": (1,)})
    undo.undo(kept.turns(), sure=undo.open_questions())
    assert (root / "a.py").read_text() == "one\n"
    undo.note_answers(["a.py"])
    assert undo.open_questions() == {}
    assert not list((root.parent / "kept").glob("*/undoing/*"))


_UNDO_IN_SESSION = """
import asyncio, os, signal, sys
from pathlib import Path
from ouro.assemble import Options, open_session
from ouro.llm import ScriptedModel
from ouro.session import OpenRequest
async def main():
    options = Options(Path(sys.argv[1]), {}, ready_model=ScriptedModel([]))
    session = await open_session(options, OpenRequest("latest"))
    record = session.rewind.memory.record
    async def record_and_die(entry):
        STEPS
    type(session.rewind.memory).record = lambda _memory, entry: record_and_die(entry)
    await session.rewind.undo()
asyncio.run(main())
"""
DIE = "os.kill(os.getpid(), signal.SIGKILL)"


def a_turn_that_wrote(root: Path) -> None:
    """A whole `ouro -p` that changes one file and makes another one."""
    calls = [
        Call("shell", {"command": "echo more >> a.py; echo new > made.txt"}, id="call_1"),
    ]
    replies = iter([Reply("", calls=calls), Reply("Done.")])
    server = ModelServer(lambda _request: next(replies))
    server.start()
    try:
        model = {"api_base": server.openai_url, "api_key": "sk-test", "window": 100_000}
        models = Path(os.environ["HOME"], ".ouro", "models.yaml")
        models.parent.mkdir(exist_ok=True)
        models.write_text(f"default: openai/m\nmodels:\n  openai/m: {model}\n")
        models.chmod(0o600)
        words = [sys.executable, "-m", "ouro", "-p", "do it", "--mode", "auto", "--trust"]
        subprocess.run(words, cwd=root, check=True, capture_output=True)
    finally:
        server.stop()


async def told_at_the_next_start(root: Path) -> str:
    options = Options(root, {}, ready_model=ScriptedModel([]))
    session = await open_session(options, OpenRequest("latest"))
    heard = []

    async def listen():
        async for event in session.events():
            heard.append(getattr(event, "text", ""))

    listening = asyncio.create_task(listen())
    await session.rewind.describe_redoable()
    await session.close()
    await listening
    return "\n".join(heard)


@pytest.mark.parametrize("steps", [DIE, f"await record(entry); {DIE}"], ids=["before", "after"])
async def test_e13_an_undo_that_was_killed_as_the_messages_went_is_finished(home, root, steps):
    a_turn_that_wrote(root)
    code = _UNDO_IN_SESSION.replace("STEPS", steps)
    done = subprocess.run([sys.executable, "-c", code, root], cwd=root, check=False)
    assert done.returncode == -signal.SIGKILL
    assert "An undo that was cut off is finished now." in await told_at_the_next_start(root)
    assert (root / "a.py").read_text() == "one\n"
    assert not (root / "made.txt").exists()


async def test_e13_an_undo_whose_record_cannot_be_saved_changes_no_file(home, root):
    a_turn_that_wrote(root)
    code = _UNDO_IN_SESSION.replace("STEPS", "raise OSError('full')")
    done = subprocess.run(
        [sys.executable, "-c", code, root], cwd=root, check=False, capture_output=True, text=True
    )
    assert done.stderr.endswith("OSError: full\n")
    assert "cut off" not in await told_at_the_next_start(root)
    assert (root / "a.py").read_text() == "one\nmore\n"
    assert (root / "made.txt").exists()


async def test_e13_the_next_start_restores_a_killed_session(home, repository, tmp_path):
    """With a whole `ouro -p`, killed while its command runs."""
    before = {path.name: path.read_bytes() for path in repository.iterdir() if path.is_file()}
    line = "echo more >> api.py; rm -f README.md; echo new > made.txt; touch started; sleep 60"

    def reply(_request):
        return Reply("", calls=[Call("shell", {"command": line}, id="call_1")])

    server = ModelServer(reply)
    server.start()
    try:
        model = {"api_base": server.openai_url, "api_key": "sk-test", "window": 100_000}
        models = home / ".ouro" / "models.yaml"
        models.parent.mkdir(exist_ok=True)
        models.write_text(f"default: openai/m\nmodels:\n  openai/m: {model}\n")
        models.chmod(0o600)
        words = [sys.executable, "-m", "ouro", "-p", "do it", "--mode", "auto", "--trust"]
        with subprocess.Popen(words, cwd=repository, stdout=subprocess.DEVNULL) as ouro:
            end = time.monotonic() + 60
            while not (repository / "started").exists() and time.monotonic() < end:
                time.sleep(0.02)
            os.kill(ouro.pid, signal.SIGKILL)
    finally:
        server.stop()
    time.sleep(0.2)
    session = await open_session(
        Options(repository, {}, ready_model=ScriptedModel([])), OpenRequest("latest")
    )
    undone = await session.rewind.undo()
    assert any(text.startswith("Undone:") for text in undone.notices)
    after = {path.name: path.read_bytes() for path in repository.iterdir() if path.is_file()}
    assert after == before
    await session.close()
    assert not list(get_checkpoints_dir().glob("*/open/*"))
