"""S4: two processes and one session."""

import os
import re
import subprocess
import sys
import textwrap

import pytest

from ouro.errors import SessionInUse
from ouro.memory.backend import MessageRecord, SessionHeader
from ouro.memory.session_lock import SessionLock
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import user

HEADER = SessionHeader("0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", "2026-11-21T20:14:03.120Z")
HOLD = """
    import sys
    from pathlib import Path
    from ouro.memory.yaml_backend import YamlFileMemoryStore
    store = YamlFileMemoryStore(Path(sys.argv[1]))
    store.load_session(sys.argv[2])
    print("held", flush=True)
    sys.stdin.read()
"""
APPEND = """
    import sys
    from pathlib import Path
    from ouro.memory.session_file import append
    for number in range(200):
        append(Path(sys.argv[1]), f"message: {number}\\nrole: user\\ntext: {sys.argv[2]}-{number}\\n".encode())
"""


@pytest.fixture
def root(home):
    root = home / ".ouro" / "sessions"
    store = YamlFileMemoryStore(root)
    store.create_session(HEADER)
    store.save_message(HEADER.id, MessageRecord(1, "", user("one")))
    store.close_session(HEADER.id)
    return root


def python(code: str, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_s4_the_second_process_is_told_who_has_it_and_since_when_until_that_one_dies(root):
    with python(HOLD, str(root), HEADER.id) as holder:
        assert holder.stdout.readline() == "held\n"

        with pytest.raises(SessionInUse) as error:
            YamlFileMemoryStore(root).load_session(HEADER.id)
        holder.kill()

    assert re.fullmatch(
        rf"This session is in use by process {holder.pid} since \d{{4}}-\d\d-\d\dT[\d:.]+Z\.", error.value.message
    )
    assert YamlFileMemoryStore(root).load_session(HEADER.id).records == (MessageRecord(1, "", user("one")),)


def test_s4_if_both_write_anyway_nothing_is_lost(root):
    folder = str(next(root.glob("2*")))
    writers = [python(APPEND, folder, name) for name in ("a", "b")]
    assert [writer.communicate() and writer.returncode for writer in writers] == [0, 0]

    loaded = YamlFileMemoryStore(root).load_session(HEADER.id)

    texts = [record.message.text for record in loaded.records]
    assert sorted(texts) == sorted(["one", *(f"{name}-{number}" for name in ("a", "b") for number in range(200))])
    assert loaded.notices == ()


def test_s4_a_disk_without_locks_still_keeps_sessions(root, monkeypatch):
    import fcntl

    def refused(*_):
        raise OSError(95, os.strerror(95))

    monkeypatch.setattr(fcntl, "flock", refused)
    store = YamlFileMemoryStore(root)
    store.load_session(HEADER.id)
    store.save_message(HEADER.id, MessageRecord(2, "", user("two")))
    store.close_session(HEADER.id)

    assert len(store.load_session(HEADER.id).records) == 2


def test_s4_the_lock_file_of_a_dead_process_does_not_lock(root):
    folder = next(root.glob("2*"))
    (folder / "lock").write_text("1 2020-01-01T00:00:00.000Z\n")

    SessionLock(folder).release()
