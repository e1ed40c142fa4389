"""S4: two processes and one session."""

import fcntl
import os
import re
import signal
import subprocess
import sys
import textwrap

import pytest
from fakes.waiting import wait
from fakes.warm_python import WARM

from ouro.errors import SessionInUse
from ouro.memory.backend import MessageRecord, SessionHeader
from ouro.memory.sessions.session_file import SessionLock
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import user

HEADER = SessionHeader(
    "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", "2026-11-21T20:14:03.120Z"
)
HOLD = """
    import asyncio, sys
    from pathlib import Path
    from ouro.memory.yaml_backend import YamlFileMemoryStore
    store = YamlFileMemoryStore(Path(sys.argv[1]))
    asyncio.run(store.load_session(sys.argv[2]))
    print("held", flush=True)
    sys.stdin.read()
"""
APPEND = """
    import sys
    from pathlib import Path
    from ouro.memory.sessions.session_file import OpenFile, SessionLock, encode_record
    (own := Path(sys.argv[1]) / sys.argv[2]).mkdir()
    file = OpenFile(Path(sys.argv[1]), SessionLock(own))
    for number in range(200):
        text = f"{sys.argv[2]}-{number}\\n" + "more of it\\n" * (number * 7 % 50)
        file.write(encode_record({"message": number, "role": "user", "text": text}))
"""


@pytest.fixture
def root(home):
    root = home / ".ouro" / "sessions"
    store = YamlFileMemoryStore(root)
    wait(store.create_session(HEADER))
    wait(store.save_message(HEADER.id, MessageRecord(1, "", user("one"))))
    wait(store.close_session(HEADER.id))
    return root


def python(code: str, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-c", WARM + textwrap.dedent(code), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_s4_second_process_hears_that_the_owner_is_suspended(root):
    with python(HOLD, str(root), HEADER.id) as holder:
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGSTOP)
        os.waitpid(holder.pid, os.WUNTRACED)
        with pytest.raises(SessionInUse, match="is suspended: `fg`"):
            wait(YamlFileMemoryStore(root).load_session(HEADER.id))
        holder.kill()


def test_s4_second_process_sees_the_owner_until_that_one_dies(root):
    with python(HOLD, str(root), HEADER.id) as holder:
        assert holder.stdout.readline() == "held\n"

        with pytest.raises(SessionInUse) as error:
            wait(YamlFileMemoryStore(root).load_session(HEADER.id))
        holder.kill()

    assert re.fullmatch(
        rf"This session is in use by process {holder.pid} since (yesterday )?\d\d:\d\d\.",
        error.value.message,
    )
    assert wait(YamlFileMemoryStore(root).load_session(HEADER.id)).records == (
        MessageRecord(1, "", user("one")),
    )


@pytest.mark.parametrize("names", ["ab", "abcd"])
def test_s4_concurrent_writers_lose_and_interleave_nothing(root, names):
    folder = str(next(root.glob("2*")))
    writers = [python(APPEND, folder, name) for name in names]
    assert [writer.communicate() and writer.returncode for writer in writers] == [0] * len(names)

    loaded = wait(YamlFileMemoryStore(root).load_session(HEADER.id))

    texts = [record.message.text.split("\n")[0] for record in loaded.records]
    assert sorted(texts) == sorted(
        ["one", *(f"{name}-{number}" for name in names for number in range(200))]
    )
    assert [record.message.text.count("more of it") for record in loaded.records] == [
        0 if text == "one" else int(text.partition("-")[2]) * 7 % 50 for text in texts
    ]
    assert loaded.notices == ()
    # Duplicate numbers were replaced, on disk too.
    assert len({record.number for record in loaded.records}) == len(texts)
    assert (
        wait(YamlFileMemoryStore(root).load_session(HEADER.id, read_only=True)).records
        == loaded.records
    )


def test_s4_session_open_elsewhere_can_be_read_and_copied(root):
    with python(HOLD, str(root), HEADER.id) as holder:
        assert holder.stdout.readline() == "held\n"
        store = YamlFileMemoryStore(root)
        copy = SessionHeader("1d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", HEADER.created_at)

        looked_at = wait(store.load_session(HEADER.id, read_only=True))
        wait(store.fork_session(HEADER.id, None, copy))
        wait(store.load_session(copy.id))
        wait(store.save_message(copy.id, MessageRecord(2, "", user("two"))))
        with pytest.raises(SessionInUse, match="--fork"):
            wait(store.delete_session(HEADER.id))
        holder.kill()

    assert (looked_at.read_only, looked_at.records) == (True, (MessageRecord(1, "", user("one")),))


REBUILD = """
    import asyncio, sys
    from pathlib import Path
    from ouro.memory.yaml_backend import YamlFileMemoryStore
    store = YamlFileMemoryStore(Path(sys.argv[1]))
    for _ in range(40):
        assert asyncio.run(store.rebuild_index()) == 1
        assert [each.messages for each in asyncio.run(store.list_sessions())] == [1]
"""


def test_s4_concurrent_index_rebuilds_work(root):
    makers = [python(REBUILD, str(root)) for _ in range(3)]

    assert [maker.communicate() and maker.returncode for maker in makers] == [0, 0, 0]
    assert [path.name for path in root.iterdir() if ".index" in path.name] == [".index.yaml"]


def test_s4_a_disk_without_locks_still_keeps_sessions(root, monkeypatch):
    import fcntl

    def refused(*_):
        raise OSError(95, os.strerror(95))

    monkeypatch.setattr(fcntl, "flock", refused)
    store = YamlFileMemoryStore(root)
    wait(store.load_session(HEADER.id))
    wait(store.save_message(HEADER.id, MessageRecord(2, "", user("two"))))
    wait(store.close_session(HEADER.id))

    assert len(wait(store.load_session(HEADER.id)).records) == 2


def test_s4_the_lock_file_of_a_dead_process_does_not_lock(root):
    folder = next(root.glob("2*"))
    (folder / "lock").write_text("1 2020-01-01T00:00:00.000Z\n")

    SessionLock(folder).close()


def test_s4_child_of_a_killed_process_holds_the_lock_only_until_exec(root):
    folder = next(root.glob("2*"))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        gone = subprocess.Popen(["true"])
        gone.wait()
        lock.write(f"{gone.pid} 2020-01-01T00:00:00.000Z\n")
        lock.flush()
        child = subprocess.Popen(["sleep", "0.3"], pass_fds=[lock.fileno()])

    SessionLock(folder).close()

    assert child.wait() == 0


def test_s4_released_session_can_be_opened_during_a_fork(root):
    """Between fork and exec a process has a copy of every descriptor."""
    lock = SessionLock(root)
    copy = os.dup(lock._descriptor)
    lock.close()
    SessionLock(root).close()
    os.close(copy)
