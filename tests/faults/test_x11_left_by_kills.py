"""X11: the next start ends or removes what a killed ouro has left."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
from fakes.synced_homes import Machine, git
from fakes.tool_benches import living
from fakes.waiting import until, wait

from ouro.memory.backend import MessageRecord, SessionHeader
from ouro.memory.long_term import GitMemoryStore, synchronize
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import user
from ouro.tools.shell_process import clean_up_orphans

_JOBS = """
import asyncio, sys
from pathlib import Path
from ouro.tools.shell_jobs import ShellJobs
async def main():
    jobs = ShellJobs(Path(sys.argv[1]))
    for line in (f"sleep {sys.argv[2]}", f"env -i setsid sleep {sys.argv[3]} & disown; sleep {sys.argv[4]}"):
        await jobs.start(line, Path("/"), {"PATH": "/usr/bin:/bin"}, list)
    print("started", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
_KILLED_AND_CLEANED = """
import asyncio, os, subprocess, sys
from fakes.tool_benches import living
from fakes.waiting import until
from ouro.tools.shell_process import end_orphans
jobs, folder = sys.argv[1:]
numbers = os.environ["NUMBERS"].split()  # not in the command line, where `living` looks
command = [sys.executable, "-c", jobs, folder, *numbers]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ouro:
    assert ouro.stdout.readline() == "started\\n"
    asyncio.run(until(lambda: all(map(living, numbers))))
    assert end_orphans() == 0
    assert all(map(living, numbers))
    ouro.kill()
    ouro.wait()
    assert any(map(living, numbers))
    end_orphans()  # without processes of its own, an ouro that starts now may have ended some
    asyncio.run(until(lambda: not any(map(living, numbers))))
"""
_OWN_PROCESSES = [
    *("bwrap", "--die-with-parent", "--dev-bind", "/", "/"),
    *("--unshare-pid", "--proc", "/proc", "--"),
]
"""Starts a command where other programs of this machine, such as another ouro, have no part."""
NUMBERS = tuple(f"{number}{os.getpid()}" for number in (871, 872, 873))


def has_own_processes() -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run([*_OWN_PROCESSES, "true"], check=False).returncode == 0
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc")
def test_x11_commands_of_a_killed_ouro_are_ended_and_others_kept(tmp_path):
    command = [sys.executable, "-c", _KILLED_AND_CLEANED, _JOBS, str(tmp_path)]
    done = subprocess.run(
        [*(_OWN_PROCESSES if has_own_processes() else ()), *command],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "NUMBERS": " ".join(NUMBERS),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def header(number: int) -> SessionHeader:
    return SessionHeader(
        f"{number}d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", "2026-11-21T20:14:03.120Z"
    )


async def test_x11_temporary_files_are_removed_unless_their_process_runs(home, tmp_path):
    memory, state = home / ".ouro" / "memory", home / ".ouro" / "history.git" / "user.git" / "ouro"
    checkpoints = home / ".ouro" / "checkpoints" / "project-1" / "info"
    for folder in (memory, state, checkpoints):
        folder.mkdir(parents=True, exist_ok=True)
        for name in (
            ".facts.md.4190000.0123abcd.tmp",
            f".facts.md.{os.getpid()}.0123abcd.tmp",
            ".mine.12.tmp",
        ):
            (folder / name).touch()
    scanner = home / ".ouro" / "cache" / "secret-rules"
    scanner.mkdir(parents=True)
    (scanner / ".e1.vscdb.4190000.62378abd-62ef-448c-a692-10523027d523.tmp").touch()
    await clean_up_orphans(lambda _text: None, tmp_path)
    assert [*scanner.iterdir()] == []
    for folder in (memory, state, checkpoints):
        assert sorted(path.name for path in folder.glob(".*.tmp")) == sorted(
            [f".facts.md.{os.getpid()}.0123abcd.tmp", ".mine.12.tmp"]
        )


_WRITE = """
import os, signal, sys
from pathlib import Path
from ouro.memory.sessions.session_file import rewrite_file
from ouro.utils.files import open_folder
from ouro.utils.text_files import save_file
os.replace = lambda *_a, **_b: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "session":
    rewrite_file(Path(sys.argv[1]), "a.txt", b"text")
with open_folder(Path(sys.argv[1])) as folder:
    save_file(folder, "a.txt", b"text", expected=None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the path of an open folder is found by /proc")
@pytest.mark.parametrize("by", ["tool", "session"])
async def test_x11_leftovers_of_a_kill_are_removed_and_other_files_kept(home, tmp_path, by):
    folder = tmp_path / "src" / "deep"
    folder.mkdir(parents=True)
    (folder / ".theirs.4190000.0123abcd.tmp").touch()
    done = subprocess.run([sys.executable, "-c", _WRITE, str(folder), by], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len([*folder.iterdir()]) == 2

    await clean_up_orphans(lambda _text: None, tmp_path)

    assert [path.name for path in folder.iterdir()] == [".theirs.4190000.0123abcd.tmp"]
    assert [*(home / ".ouro" / "cache" / "written").iterdir()] == []


_CHECKPOINT = """
import os, signal, sys
from pathlib import Path
from ouro.safety import Checkpoints
kept = Checkpoints(Path(sys.argv[1]), Path(sys.argv[2]), "s1")
kept.take_before(1)
Path(sys.argv[1], "new").touch()
os.replace = lambda *_a, **_b: os.kill(os.getpid(), signal.SIGKILL)
kept.take_before(2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the path of an open folder is found by /proc")
async def test_x11_leftovers_of_a_killed_checkpoint_are_removed(home, repository):
    checkpoints = home / ".ouro" / "checkpoints"
    done = subprocess.run(
        [sys.executable, "-c", _CHECKPOINT, str(repository), str(checkpoints)], check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert len([*checkpoints.rglob(".*.tmp")]) == 1

    await clean_up_orphans(lambda _text: None, repository)

    assert [*checkpoints.rglob(".*.tmp")] == []


def test_x11_unfinished_folders_and_sessions_without_a_message_are_removed(home):
    root = home / ".ouro" / "sessions"
    first = YamlFileMemoryStore()
    for number in (1, 2, 3):
        wait(first.create_session(header(number)))
        wait(first.close_session(header(number).id))  # a kill releases the lock as well
    empty, said, hand = sorted(root.glob("2*"))
    wait(first.load_session(header(2).id))
    wait(first.save_message(header(2).id, MessageRecord(1, "", user("kept"))))
    wait(first.create_session(header(4)))  # this session is open, and gets its first message later
    (hand / "notes.txt").write_text("put here by hand")
    (said / "outputs").mkdir()
    (said / "outputs" / ".01.txt.4190000.0123abcd.tmp").touch()
    (said / ".session.yaml.4190000.0123abcd").touch()
    for name, age in (
        ("2026-11-21_71111111", 99),
        ("2026-11-21_82222222", 0),
    ):  # killed before the file was created
        (root / name).mkdir()
        os.utime(root / name, (time.time() - age,) * 2)
    (root / "..index.yaml.4190000.0123abcd.tmp").touch()
    for name in (".unfinished-x.4190000.0123abcd", f".unfinished-y.{os.getpid()}.ab"):
        (root / name).mkdir()

    wait(YamlFileMemoryStore().create_session(header(5)))

    assert not empty.exists()
    assert [*root.glob("*.tmp")] == []
    assert [path.name for path in root.glob("2026-11-21_[78]*")] == ["2026-11-21_82222222"]
    assert [path for path in said.rglob(".*") if path.name != ".lock"] == []
    assert [folder.exists() for folder in (said, hand)] == [True, True]
    assert len(list(root.glob("2*_4*"))) == 1
    assert [path.name for path in root.glob(".unfinished-*")] == [f".unfinished-y.{os.getpid()}.ab"]


def test_x11_empty_session_killed_long_ago_is_removed(home):
    root = home / ".ouro" / "sessions"
    store = YamlFileMemoryStore()
    wait(store.create_session(header(1)))
    wait(store.close_session(header(1).id))
    (killed,) = root.glob("2*")
    (root / "2026-11-21_20000000").mkdir()
    os.utime(root / "2026-11-21_20000000", (0, 0))
    for number in range(100):
        (root / f"2026-11-21_9{number:07}").mkdir()
        (root / f"2026-11-21_9{number:07}" / "session.yaml").write_bytes(b"#" * 5_000)

    wait(YamlFileMemoryStore().create_session(header(5)))

    assert [killed.exists(), (root / "2026-11-21_20000000").exists()] == [False, False]


_COMMITS = """
import sys
from pathlib import Path
from ouro.memory.long_term.git.repository import GitRepository
repo = GitRepository(Path(sys.argv[1]))
with repo.hold_lock():
    print("locked", flush=True)
    repo.git("hash-object", sys.argv[2])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc")
async def test_x11_a_git_that_outlives_its_ouro_keeps_the_lock_of_the_history(tmp_path):
    """Otherwise `prune` would remove objects of a commit that another ouro is creating."""
    repo, pipe = GitRepository(tmp_path / "user.git"), tmp_path / "pipe"
    repo.create()
    os.mkfifo(pipe)  # git waits for its input
    with subprocess.Popen(
        [sys.executable, "-c", _COMMITS, repo.state_dir, pipe], stdout=subprocess.PIPE
    ) as ouro:
        assert ouro.stdout.readline() == b"locked\n"
        await until(
            lambda: living(f"hash-object\0{pipe}")
        )  # this process, not `git version`, which runs before it
        ouro.kill()
    with pytest.raises(BlockingIOError), repo.hold_lock(timeout=0):
        pass
    await until(lambda: _has_reader(pipe))
    with repo.hold_lock(timeout=30):
        pass


def _has_reader(pipe):
    """Open and close a pipe for writing, so that its reader ends; False if nothing reads it yet."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def _leave(git_dir, age):
    """The files of a fetch that was killed `age` seconds ago."""
    left = [git_dir / "objects" / name for name in ("70/tmp_obj_znYwJj", "pack/tmp_pack_i2kFih")]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.utime(path, (time.time() - age,) * 2)
    return left


@pytest.mark.parametrize(("age", "stays"), [(4_000, False), (60, True)])
def test_x11_a_sync_of_sessions_removes_what_killed_fetches_left(tmp_path, age, stays):
    git(tmp_path, "init", "-q", "--bare", "remote.git")
    machine = Machine(tmp_path / "one", tmp_path / "remote.git")
    machine.sync()
    left = _leave(machine.root / "sessions.git", age)
    machine.sync()
    assert [path.exists() for path in left] == [stays, stays]


@pytest.mark.parametrize("name", ["ouro-sessions", "sending"])
def test_x11_a_sync_of_sessions_removes_the_lock_of_a_killed_git(tmp_path, name):
    git(tmp_path, "init", "-q", "--bare", "remote.git")
    machine = Machine(tmp_path / "one", tmp_path / "remote.git")
    machine.sync()
    lock = machine.root / "sessions.git" / "refs" / "heads" / f"{name}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    os.utime(lock, (time.time() - 4,) * 2)  # a moment ago: it is stale in a second
    machine.sync()
    assert not lock.exists()


@pytest.mark.parametrize(("age", "stays"), [(4_000, False), (60, True)])
def test_x11_a_sync_of_memory_removes_what_killed_fetches_left(tmp_path, age, stays):
    git(tmp_path, "init", "-q", "--bare", "remote.git")
    store = GitMemoryStore(tmp_path / "memory", "user", tmp_path / "user.git")
    store.save_and_commit({"facts.md": "- Tea.\n"}, "Change", {})
    synchronize(store, str(tmp_path / "remote.git"))
    left = _leave(store.repository.git_dir, age)
    synchronize(store, str(tmp_path / "remote.git"))
    assert [path.exists() for path in left] == [stays, stays]
