"""S1, S2, S3: a save killed, or a disk full, at every byte; and what the next save makes of it."""

import os
import resource
import shutil
import signal
from pathlib import Path

import pytest

from ouro.errors import SaveFailed
from ouro.memory.backend import MessageRecord, SessionHeader
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import ToolCall, assistant, user

HEADER = SessionHeader("0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", "2026-11-21T20:14:03.120Z")
EARLIER = [user("one"), assistant("two\nlines", ToolCall("c", "read", {"path": "a"}))]
LATER = user("three\n...\n---\nfour ")
AFTER = user("five")


def record(number, message):
    return MessageRecord(number, "2026-11-21T20:15:00.000Z", message)


@pytest.fixture
def template(tmp_path) -> Path:
    root = tmp_path / "template"
    root.mkdir(mode=0o700)
    store = YamlFileMemoryStore(root)
    store.create_session(HEADER)
    for number, message in enumerate(EARLIER, 1):
        store.save_message(HEADER.id, record(number, message))
    store.close_session(HEADER.id)
    return root


def session_file(root: Path) -> Path:
    return next(root.glob("2*/session.yaml"))


def size_of_save(template: Path, scratch: Path) -> tuple[int, int]:
    shutil.copytree(template, scratch)
    before = session_file(scratch).stat().st_size
    store = YamlFileMemoryStore(scratch)
    store.load_session(HEADER.id)
    store.save_message(HEADER.id, record(3, LATER))
    store.close_session(HEADER.id)
    return before, session_file(scratch).stat().st_size


def save_in_a_child(root: Path, limit: int, on_limit: signal.Handlers) -> int:
    """Save in a process that may not let a file grow past `limit`; gives how it ended."""
    child = os.fork()
    if child == 0:
        code = 9
        try:
            store = YamlFileMemoryStore(root)
            store.load_session(HEADER.id)
            signal.signal(signal.SIGXFSZ, on_limit)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            try:
                store.save_message(HEADER.id, record(3, LATER))
                code = 0
            except SaveFailed:
                code = 7
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def loaded(root: Path):
    store = YamlFileMemoryStore(root)
    found = store.load_session(HEADER.id)
    store.close_session(HEADER.id)
    return [each.message for each in found.records], found.notices


def test_s1_s3_killed_at_any_byte_of_a_save(template, tmp_path):
    before, after = size_of_save(template, tmp_path / "whole")
    for limit in range(before, after):
        root = tmp_path / str(limit)
        shutil.copytree(template, root)

        assert os.WTERMSIG(save_in_a_child(root, limit, signal.SIG_DFL)) == signal.SIGXFSZ

        found, notices = loaded(root)
        torn = list(root.glob("2*/*.torn"))
        complete = limit == after - 1  # only the last newline is missing: the end mark itself is there
        assert found == ([*EARLIER, LATER] if complete else EARLIER), limit
        assert [path.stat().st_size for path in torn] == (
            [limit - before] if before < limit and not complete else []
        ), limit
        assert bool(notices) == bool(torn)
        store = YamlFileMemoryStore(root)
        store.load_session(HEADER.id)
        store.save_message(HEADER.id, record(4, AFTER))
        store.close_session(HEADER.id)
        assert loaded(root) == ([*found, AFTER], ()), limit
        shutil.rmtree(root)


def test_s2_a_full_disk_at_any_byte_of_a_save(template, tmp_path):
    before, after = size_of_save(template, tmp_path / "whole")
    original = session_file(template).read_bytes()
    for limit in range(before, after, 3):
        root = tmp_path / str(limit)
        shutil.copytree(template, root)

        assert os.WEXITSTATUS(save_in_a_child(root, limit, signal.SIG_IGN)) == 7

        assert session_file(root).read_bytes() == original, limit
        assert loaded(root) == (EARLIER, ())
        shutil.rmtree(root)


def test_s2_the_error_says_what_to_do(template, monkeypatch):
    store = YamlFileMemoryStore(template)
    store.load_session(HEADER.id)

    def no_room(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "write", no_room)
    with pytest.raises(SaveFailed) as error:
        store.save_message(HEADER.id, record(3, LATER))

    assert error.value.message == f"Not saved in {session_file(template).parent}: No space left on device."
    assert error.value.hint == "Make room on the disk; ouro tries again with the next message."


def test_s3_a_tail_left_by_another_writer_is_set_aside_by_the_next_save(template):
    store = YamlFileMemoryStore(template)
    store.load_session(HEADER.id)
    with session_file(template).open("ab") as file:
        file.write(b"---\nmessage: 3\nrole: user\ntext: |-\n  half a sen")
    store.save_message(HEADER.id, record(4, AFTER))
    store.close_session(HEADER.id)

    assert loaded(template) == ([*EARLIER, AFTER], ())
    assert [path.read_bytes()[-10:] for path in template.glob("2*/session-1.torn")] == [b"half a sen"]
