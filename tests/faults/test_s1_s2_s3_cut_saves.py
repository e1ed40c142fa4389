"""S1, S2, S3: a save is killed, or the disk is full, at every byte; then the next save."""

import asyncio
import errno
import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from fakes.waiting import wait
from memory.store_contract import EVERY_CHANGE

from ouro.errors import SaveFailed
from ouro.memory.backend import MessageRecord, Record, SessionHeader, TitleRecord
from ouro.memory.sessions.session_file import OpenFile
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import ToolCall, ToolReply, assistant, tool, user

HEADER = SessionHeader(
    "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", "2026-11-21T20:14:03.120Z"
)
EARLIER = [user("one"), assistant("two\nlines", ToolCall("c", "read", {"path": "a"}))]
LATER = user("three\n...\n---\nfour ")
AFTER = user("five")


def record(number, message):
    return MessageRecord(number, "2026-11-21T20:15:00.000Z", message)


EVERY_KIND = {
    "message": record(3, LATER),
    **{f"{type(each).__name__} {place}": each for place, each in enumerate(EVERY_CHANGE)},
}


@pytest.fixture
def template(tmp_path) -> Path:
    root = tmp_path / "template"
    root.mkdir(mode=0o700)
    store = YamlFileMemoryStore(root)
    wait(store.create_session(HEADER))
    for number, message in enumerate(EARLIER, 1):
        wait(store.save_message(HEADER.id, record(number, message)))
    wait(store.close_session(HEADER.id))
    return root


def session_file(root: Path) -> Path:
    return next(root.glob("2*/session.yaml"))


def save(store: YamlFileMemoryStore, saved: Record) -> None:
    if isinstance(saved, MessageRecord):
        wait(store.save_message(HEADER.id, saved))
    else:
        wait(store.save_memory(HEADER.id, saved))


def size_of_save(template: Path, scratch: Path, saved: Record) -> tuple[int, int]:
    shutil.copytree(template, scratch)
    before = session_file(scratch).stat().st_size
    save_again(scratch, saved)
    return before, session_file(scratch).stat().st_size


def save_again(root: Path, saved: Record) -> None:
    store = YamlFileMemoryStore(root)
    wait(store.load_session(HEADER.id))
    save(store, saved)
    wait(store.close_session(HEADER.id))


def in_a_child(limit: int, on_limit: signal.Handlers, do: Callable[[], None]) -> int:
    """Run it in a process with files limited to `limit` bytes; returns the wait status (exit code
    7: SaveFailed).
    """
    child = os.fork()
    if child == 0:
        code = 9
        try:
            signal.signal(signal.SIGXFSZ, on_limit)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            try:
                do()
                code = 0
            except SaveFailed:
                code = 7
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


@contextmanager
def disk_full_at(limit: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def load_records(root: Path):
    store = YamlFileMemoryStore(root)
    found = wait(store.load_session(HEADER.id))
    wait(store.close_session(HEADER.id))
    return list(found.records), found.notices


KEPT = [record(number, message) for number, message in enumerate(EARLIER, 1)]


@pytest.mark.parametrize("saved", EVERY_KIND.values(), ids=EVERY_KIND)
def test_s1_s3_killed_at_any_byte_of_a_save(template, tmp_path, saved):
    before, after = size_of_save(template, tmp_path / "whole", saved)
    path, original = session_file(template), session_file(template).read_bytes()
    # Only a sample, because each byte needs a process: `test_s1_every_byte.py` tests every byte.
    step = 3 if isinstance(saved, MessageRecord) else 31
    for limit in sorted({*range(before, after, step), after - 1}):
        store = YamlFileMemoryStore(template)
        wait(store.load_session(HEADER.id))
        assert (
            os.WTERMSIG(in_a_child(limit, signal.SIG_DFL, partial(save, store, saved)))
            == signal.SIGXFSZ
        )
        wait(store.close_session(HEADER.id))

        found, notices = load_records(template)
        torn = list(template.glob("2*/*.torn"))
        complete = (
            limit == after - 1
        )  # only the last newline is missing: the end mark itself is complete
        assert found == ([*KEPT, saved] if complete else KEPT), limit
        assert [each.stat().st_size for each in torn] == (
            [limit - before] if before < limit and not complete else []
        ), limit
        assert bool(notices) == bool(torn)
        save_again(template, record(4, AFTER))
        assert load_records(template) == ([*found, record(4, AFTER)], ()), limit
        path.write_bytes(original)
        for each in torn:
            each.unlink()


@pytest.mark.parametrize("saved", EVERY_KIND.values(), ids=EVERY_KIND)
def test_s2_a_full_disk_at_any_byte_of_a_save(template, tmp_path, saved):
    before, after = size_of_save(template, tmp_path / "whole", saved)
    original = session_file(template).read_bytes()
    store = YamlFileMemoryStore(template)
    wait(store.load_session(HEADER.id))
    for limit in range(before, after):
        with disk_full_at(limit), pytest.raises(SaveFailed):
            save(store, saved)

        assert session_file(template).read_bytes() == original, limit
    save(store, saved)
    wait(store.close_session(HEADER.id))
    assert load_records(template) == ([*KEPT, saved], ())


@pytest.mark.parametrize("on_limit", [signal.SIG_DFL, signal.SIG_IGN], ids=["killed", "disk full"])
def test_s1_s2_save_with_a_long_output_interrupted_anywhere(template, on_limit):
    long = record(3, tool(ToolReply("c", "read", "a line of output\n" * 2000)))
    path, original = session_file(template), session_file(template).read_bytes()
    for limit in (0, 1, 100, 4096, 16385, 33000, 33999):
        store = YamlFileMemoryStore(template)
        wait(store.load_session(HEADER.id))
        assert in_a_child(limit, on_limit, partial(save, store, long)) != 0
        wait(store.close_session(HEADER.id))

        assert path.read_bytes() == original
        save_again(template, long)
        assert load_records(template) == ([*KEPT, long], ())
        path.write_bytes(original)
        shutil.rmtree(path.parent / "outputs")


COPY = SessionHeader("1d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", "2026-11-22T20:14:03.120Z")


# Only a sample: each byte needs a process.
@pytest.mark.parametrize(
    ("on_limit", "step"), [(signal.SIG_DFL, 17), (signal.SIG_IGN, 3)], ids=["killed", "disk full"]
)
@pytest.mark.parametrize(
    "make",
    [
        lambda store: wait(store.fork_session(HEADER.id, None, COPY, "copy")),
        lambda store: wait(store.import_session(COPY, [*KEPT, TitleRecord("copy", KEPT[0].at)])),
    ],
    ids=["fork", "import"],
)
def test_s1_s2_session_created_as_a_whole_exists_completely_or_not(
    template, tmp_path, make, on_limit, step
):
    whole = tmp_path / "whole"
    shutil.copytree(template, whole)
    make(YamlFileMemoryStore(whole))
    size = wait(YamlFileMemoryStore(whole).get_session_stats(COPY.id)).size
    for limit in range(0, size, step):
        if on_limit is signal.SIG_IGN:
            with disk_full_at(limit), pytest.raises(SaveFailed):
                make(YamlFileMemoryStore(template))
        else:
            assert in_a_child(limit, on_limit, lambda: make(YamlFileMemoryStore(template))) != 0

        assert [each.id for each in wait(YamlFileMemoryStore(template).list_sessions())] == [
            HEADER.id
        ], limit
    store = YamlFileMemoryStore(template)
    make(store)
    wait(store.rebuild_index())
    assert [each.id for each in wait(store.list_sessions())] == [COPY.id, HEADER.id]
    assert [path.name for path in template.glob(".unfinished*")] == []


async def test_s1_cancelled_save_is_finished_although_its_session_is_closed(template, monkeypatch):
    store, writing, closed, done = (
        YamlFileMemoryStore(template),
        *(threading.Event() for _ in range(3)),
    )
    await store.load_session(HEADER.id)
    write = os.write

    def slow(descriptor, data):
        writing.set()
        closed.wait(10)
        return write(descriptor, data)

    append = OpenFile.write
    monkeypatch.setattr(OpenFile, "write", lambda file, data: append(file, data) and done.set())
    monkeypatch.setattr(os, "write", slow)
    saving = asyncio.create_task(store.save_message(HEADER.id, record(3, LATER)))
    assert await asyncio.to_thread(writing.wait, 10)
    saving.cancel()
    await asyncio.wait([saving])
    await store.close_session(HEADER.id)
    closed.set()
    assert await asyncio.to_thread(done.wait, 10)

    monkeypatch.undo()
    assert (await YamlFileMemoryStore(template).load_session(HEADER.id)).records == (
        *KEPT,
        record(3, LATER),
    )


async def test_s1_save_after_a_cancelled_one_waits_for_it(template, monkeypatch):
    store, writing, waited, write = (
        YamlFileMemoryStore(template),
        threading.Event(),
        threading.Event(),
        os.write,
    )
    await store.load_session(HEADER.id)

    def slow_once(descriptor, data):
        if not writing.is_set():
            writing.set()
            waited.wait(10)
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", slow_once)
    first = asyncio.create_task(store.save_message(HEADER.id, record(3, LATER)))
    assert await asyncio.to_thread(writing.wait, 10)
    first.cancel()
    second = asyncio.create_task(store.save_message(HEADER.id, record(4, LATER)))
    await asyncio.wait([second], timeout=0.2)
    waited.set()
    await second
    await asyncio.gather(
        *(store.save_message(HEADER.id, record(number, LATER)) for number in range(5, 100))
    )
    await store.close_session(HEADER.id)

    loaded = await store.load_session(HEADER.id, read_only=True)
    assert loaded.records[: len(KEPT) + 2] == (*KEPT, record(3, LATER), record(4, LATER))
    assert {item.number for item in loaded.records if isinstance(item, MessageRecord)} == set(
        range(1, 100)
    )
    assert loaded.notices == ()


def test_s2_session_that_could_not_be_created_leaves_no_file_open(tmp_path):
    store = YamlFileMemoryStore(tmp_path / "sessions")
    with disk_full_at(20), pytest.raises(SaveFailed) as caught:
        wait(store.create_session(HEADER))
    assert caught.value.__traceback__ is not None  # its frames keep every object alive
    opened = (os.path.realpath(place) for place in Path("/proc/self/fd").iterdir())
    assert not [name for name in opened if name.startswith(str(tmp_path))]
    wait(store.create_session(HEADER))


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (errno.ENOSPC, "Free some disk space. ouro tries again with the next message."),
        (errno.EROFS, "Set OURO_HOME to a folder that can be written, or start with --ephemeral."),
    ],
)
def test_s2_the_error_says_what_to_do(template, monkeypatch, code, hint):
    store = YamlFileMemoryStore(template)
    wait(store.load_session(HEADER.id))

    def no_room(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", no_room)
    with pytest.raises(SaveFailed) as error:
        wait(store.save_message(HEADER.id, record(3, LATER)))

    assert (
        error.value.message == f"Not saved in {session_file(template).parent}: {os.strerror(code)}."
    )
    assert error.value.hint == hint


def test_s3_a_tail_left_by_another_writer_is_set_aside_by_the_next_save(template):
    store = YamlFileMemoryStore(template)
    wait(store.load_session(HEADER.id))
    with session_file(template).open("ab") as file:
        file.write(b"---\nmessage: 3\nrole: user\ntext: |-\n  half a sen")
    wait(store.save_message(HEADER.id, record(4, AFTER)))
    wait(store.close_session(HEADER.id))

    assert load_records(template) == ([*KEPT, record(4, AFTER)], ())
    assert [path.read_bytes()[-10:] for path in template.glob("2*/session-1.torn")] == [
        b"half a sen"
    ]
