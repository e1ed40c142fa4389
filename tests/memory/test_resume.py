"""A session after a resume: with few messages in memory, read page by page, edited by hand, copied,
or read-only.
"""

import asyncio
import os
import re
import shutil
from pathlib import Path

import pytest
from fakes.waiting import wait
from msgspec.structs import replace

from ouro.errors import SessionDamaged, SessionInUse, SessionNotFound
from ouro.memory.backend import (
    CompactionRecord,
    MessageRecord,
    PinRecord,
    Record,
    RewindRecord,
    SessionHeader,
    TitleRecord,
)
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions import session_reader
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, Text, Usage, user

AT = "2026-11-21T20:14:03.120Z"
HEADER = SessionHeader("0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "a/b", AT)
CHECK = CompactionRecord(301, AT, (1, 290), (7, 210), "What was said.", tokens=(900, 90))


def said(number: int, text: str = "") -> MessageRecord:
    return MessageRecord(number, AT, user(text or f"m{number}"))


def long_session() -> list[Record]:
    """300 messages, a compaction that keeps two of them, two more messages."""
    return [*map(said, range(1, 301)), TitleRecord("long", AT), CHECK, said(302), said(303)]


@pytest.fixture
def root(home) -> Path:
    return home / ".ouro" / "sessions"


@pytest.fixture
def store(root) -> YamlFileMemoryStore:
    store = YamlFileMemoryStore(root)
    wait(store.import_session(HEADER, long_session()))
    return store


@pytest.fixture
def path(store, root) -> Path:
    return next(root.glob("2*/session.yaml"))


async def reopen(store, session_id: str = HEADER.id, **how) -> MemoryManager:
    return await MemoryManager.resume(store, session_id, project="/p", **how)


def texts(messages) -> list[str]:
    """The texts of messages, or of the messages among records."""
    said = [each.message if isinstance(each, MessageRecord) else each for each in messages]
    return [each.text for each in said if isinstance(each, Message)]


async def test_resume_sends_the_same_messages(root):
    store = YamlFileMemoryStore(root)
    memory = MemoryManager.start(store, project="/p", model="a/b")
    for number in range(1, 120):
        await memory.add(user(f"m{number}"))
    await memory.record(
        CompactionRecord(
            memory.next_number, memory.now(), (1, 110), (3, 50), "Said before.", tokens=(9, 5)
        )
    )
    await memory.add(Message("assistant", (Text("so"),), Usage(50, 0, 0, 5), "a/b"))
    sent, usage, tokens = memory.context(), memory.usage, memory.tokens
    await memory.close()

    again = await reopen(YamlFileMemoryStore(root), memory.session_id)

    assert again.context() == sent
    assert texts(sent[:2]) == ["m3", "m50"]
    assert (again.title, again.usage, again.tokens, again.next_number) == (
        "m1",
        usage,
        tokens,
        memory.next_number,
    )
    await again.close()


async def test_kept_messages_are_read_at_their_recorded_offsets(store, path, monkeypatch):
    memory = await reopen(store)
    await memory.record(CompactionRecord(304, AT, (1, 303), (7, 210, 302), "Again."))
    sent = memory.context()
    await memory.close()
    scanned = []
    scan = session_reader._SessionReader._scan_for_messages
    monkeypatch.setattr(
        session_reader._SessionReader,
        "_scan_for_messages",
        lambda *given: scanned.append(given) or scan(*given),
    )

    again = await reopen(store)
    assert (again.context(), scanned) == (sent, [])
    await again.close()
    for edited_message, scans in (("m3", 0), ("m220", 1)):
        by_hand = path.read_text().replace(
            f"text: {edited_message}\n", "text: another one, of another length\n"
        )
        path.write_text(by_hand)
        edited = await reopen(store)
        assert (edited.context(), len(scanned)) == (sent, scans)
        await edited.close()


async def test_older_messages_are_loaded_by_page(store):
    memory = await reopen(store)
    shown = len(texts(memory.pager.shown()))
    pages = []
    while memory.pager.has_hidden:
        pages.append(texts(await memory.pager.show_more(100)))

    assert (shown, [len(page) for page in pages]) == (40, [100, 100, 62])
    assert [*pages[2], *pages[1], *pages[0]] == [f"m{number}" for number in range(1, 263)]
    assert texts(memory.pager.shown()) == [
        each.message.text for each in long_session() if isinstance(each, MessageRecord)
    ]
    assert (await memory.pager.show_more(10), memory.pager.has_earlier) == ((), False)
    await memory.close()


async def test_messages_loaded_for_other_reasons_are_shown_on_scrolling(store):
    memory = await reopen(store)
    shown = memory.pager.shown()
    await memory.pager.load_earlier(150)

    assert memory.pager.shown() == shown
    assert texts(await memory.pager.show_more(60)) == [f"m{number}" for number in range(203, 263)]
    assert texts(await memory.pager.show_more(90)) == [f"m{number}" for number in range(113, 203)]
    assert texts(await memory.pager.show_more(1000)) == [f"m{number}" for number in range(1, 113)]
    assert not memory.pager.has_hidden
    await memory.close()


async def test_rewind_to_before_the_compaction_survives_a_resume(store):
    memory = await reopen(store)
    await memory.record(RewindRecord(5, memory.now()))
    await memory.add(user("else"))
    expected = [user(f"m{number}") for number in range(1, 6)] + [user("else")]
    assert memory.context() == expected
    await memory.close()

    again = await reopen(store)
    assert (again.context(), again.pager.has_earlier) == (expected, False)
    assert [(each.since, each.entries[-1].number) for each in again.transcript.branches] == [
        (5, 303)
    ]
    await again.record(RewindRecord(303, again.now()))
    assert again.transcript.compaction == CHECK
    await again.close()


class UnreadableOnce(YamlFileMemoryStore):
    """A store of which one read for a rewind fails, as on a disk that is gone for a moment."""

    fails = False

    async def load_session(self, session_id, *, read_only=False, reach="whole"):
        if self.fails and read_only:
            self.fails = False
            raise SessionDamaged("The disk is gone.")
        return await super().load_session(session_id, read_only=read_only, reach=reach)


async def test_rewind_to_an_unloaded_message_continues_there_when_the_user_scrolls(root, store):
    store, notices = UnreadableOnce(root), []
    memory = await reopen(store, on_notice=notices.append)
    store.fails = True
    await memory.record(RewindRecord(150, memory.now()))

    assert notices == ["Earlier messages could not be read: The disk is gone."]
    assert (memory.context(), memory.transcript.is_whole, memory.pager.has_earlier) == (
        [],
        False,
        True,
    )
    while memory.pager.has_earlier:
        await memory.pager.load_earlier(100)
    assert texts(memory.context()) == [f"m{number}" for number in range(1, 151)]
    await memory.record(RewindRecord(3, memory.now()))
    await memory.add(user("else"))
    assert texts(memory.context()) == ["m1", "m2", "m3", "else"]
    await memory.record(RewindRecord(303, memory.now()))
    assert memory.transcript.compaction == CHECK
    sent = memory.context()
    await memory.close()
    again = await reopen(store)
    assert again.context() == sent
    await again.close()


async def test_rewind_below_the_loaded_messages_after_a_compaction_released_them(root):
    store = UnreadableOnce(root)
    memory = MemoryManager.start(store, project="/p", model="m")
    for number in range(1, 101):
        await memory.add(user(f"m{number}"))
    await memory.record(CompactionRecord(101, memory.now(), (1, 90), (), "What was said."))
    store.fails = True
    await memory.record(RewindRecord(8, memory.now()))

    assert (memory.transcript.is_whole, memory.pager.has_earlier) == (False, True)
    while memory.pager.has_earlier:
        await memory.pager.load_earlier(20)
    assert texts(memory.context()) == [f"m{number}" for number in range(1, 9)]
    await memory.close()


async def test_long_branches_are_read_partly_until_visited(root, monkeypatch):
    monkeypatch.setattr("ouro.memory.sessions.session_reader.MAX_BRANCH_BYTES", 5000)
    store = YamlFileMemoryStore(root)
    records = [*map(said, range(1, 301)), RewindRecord(10, AT), said(301)]
    await store.import_session(HEADER, records)

    memory = await reopen(store)
    assert len(memory.transcript.branches[0].entries) < 100
    await memory.record(RewindRecord(300, memory.now()))

    assert texts(memory.context()) == [f"m{number}" for number in range(1, 301)]
    await memory.close()


async def test_read_only_session_rewinds_to_a_long_branch_and_stays_there(root, monkeypatch):
    monkeypatch.setattr("ouro.memory.sessions.session_reader.MAX_BRANCH_BYTES", 5000)
    store = YamlFileMemoryStore(root)
    await store.import_session(HEADER, [*map(said, range(1, 301)), RewindRecord(10, AT), said(301)])

    memory = await reopen(store, read_only=True)
    memory.set_title("only here")
    await memory.add(user("added"))
    await memory.record(RewindRecord(200, memory.now()))
    await memory.add(user("more"))

    assert texts(memory.context()) == [*(f"m{number}" for number in range(1, 201)), "more"]
    assert memory.title == "only here"
    await memory.record(RewindRecord(302, memory.now()))
    assert texts(memory.context()) == [*(f"m{number}" for number in range(1, 11)), "m301", "added"]
    await memory.close()


async def test_without_a_compaction_the_end_is_loaded_first(root, monkeypatch):
    monkeypatch.setattr(session_reader, "MAX_SHOWN", 4000)
    store = YamlFileMemoryStore(root)
    answers = [
        MessageRecord(n, AT, Message("assistant", (Text(f"m{n}"),), Usage(1, cost=1.0)))
        for n in range(1, 301)
    ]
    await store.import_session(HEADER, [TitleRecord("named", AT), *answers])

    memory = await reopen(store)
    shown = texts(memory.pager.shown())
    memory.set_title("renamed meanwhile")
    first = (len(shown) < 100, memory.title, memory.usage)
    await memory.add(user("more"))

    assert first == (True, "renamed meanwhile", Usage(300, cost=300.0))
    assert texts(memory.messages()) == [*(f"m{number}" for number in range(1, 301)), "more"]
    assert texts(memory.pager.shown()) == [*shown, "more"]
    assert len(await memory.pager.show_more(1000)) == 300 - len(shown)
    assert (memory.title, memory.usage, memory.pager.has_earlier) == (
        "renamed meanwhile",
        Usage(300, cost=300.0),
        False,
    )
    await memory.close()
    assert (await store.get_session_stats(HEADER.id)).title == "renamed meanwhile"


async def test_session_longer_than_any_window_is_read_partly_with_a_notice(root, monkeypatch):
    monkeypatch.setattr(session_reader, "MAX_SHOWN", 1000)
    monkeypatch.setattr(session_reader, "MAX_SENT", 9000)
    store = YamlFileMemoryStore(root)
    await store.import_session(HEADER, [*map(said, range(1, 301))])

    memory = await reopen(store)
    await memory.add(user("more"))

    assert 100 < len(memory.messages()) < 200
    assert any("longer than any context window" in notice for notice in memory.notices)
    assert memory.pager.has_earlier
    await memory.close()


async def test_manually_added_message_gets_a_permanent_number(store, path):
    by_hand = (
        "---\nrole: user\ntext: added\n...\n---\nmessage: 299\nrole: user\ntext: copied\n...\n"
    )
    before = path.read_text().replace("---\nmessage: 300\n", by_hand + "---\nmessage: 300\n")
    path.write_text(before)

    memory = await reopen(store)
    await memory.record(PinRecord(304, memory.now()))
    names = [(each.number, each.message.text) for each in memory.transcript.entries[-7:]]
    await memory.close()

    assert names == [(298, "m298"), (299, "m299"), (304, "added"), (305, "copied"), (300, "m300"), (302, "m302"),
                     (303, "m303")]  # fmt: skip
    after = path.read_text()
    assert after.startswith(
        before.replace(
            "---\nrole: user\ntext: added", "---\nmessage: 304\nrole: user\ntext: added"
        ).replace(
            "message: 299\nrole: user\ntext: copied", "message: 305\nrole: user\ntext: copied"
        )
    )
    again = await reopen(store)
    assert [(each.number, each.message.text) for each in again.transcript.entries[-7:]] == names
    assert (again.transcript.pins, again.notices) == ({304}, ())
    await again.close()


async def test_manually_deleted_message_is_removed_everywhere(store, path):
    text = path.read_text()
    for number in (7, 290, 303):
        text = re.sub(rf"---\nmessage: {number}\n.*?\n\.\.\.\n", "", text, flags=re.DOTALL)
    path.write_text(text)

    memory = await reopen(store)

    assert [entry.number for entry in memory.transcript.sent_entries()] == [
        210,
        *range(291, 301),
        302,
    ]
    assert (memory.next_number, memory.notices) == (303, ())
    await memory.close()


async def test_read_only_session_may_be_open_elsewhere_and_is_unchanged(store, path):
    holder = await reopen(YamlFileMemoryStore(path.parents[1]))
    before = path.read_bytes()

    with pytest.raises(SessionInUse):
        await reopen(store)
    looker = await reopen(store, read_only=True)
    await looker.add(user("not kept"))
    await looker.close()

    assert (looker.read_only, looker.messages()[-1].text) == (True, "not kept")
    assert path.read_bytes() == before
    await holder.close()


async def test_a_copy_is_continued_while_the_session_is_open_elsewhere(store, path):
    holder = await reopen(YamlFileMemoryStore(path.parents[1]))

    copy = await reopen(store, fork=True)
    await copy.add(user("here"))
    await holder.add(user("there"))

    assert (texts(copy.context())[:-1], texts(holder.context())[-1]) == (
        texts(holder.context())[:-1],
        "there",
    )
    assert copy.transcript.fork is not None
    assert (copy.transcript.fork.session, copy.usage) == (HEADER.id, Usage())
    await asyncio.gather(copy.close(), holder.close())


@pytest.mark.parametrize(
    "name",
    ["2026-11-21_0d9f3c52 copy", "2099-01-01_0d9f3c52", "a name as long as the id of sessions"],
)
async def test_manually_copied_folder_is_opened_by_its_name(store, path, name):
    folder = path.parent
    copy = shutil.copytree(folder, folder.with_name(name))
    before = (copy / "session.yaml").read_bytes()
    listed = {each.folder: each for each in await store.list_sessions()}
    assert (listed[folder.name].id, listed[name].id, listed[name].fork_of) == (
        HEADER.id,
        name,
        HEADER.id,
    )
    assert name in listed[name].title

    original = await reopen(store)
    again = await reopen(store, name)
    assert original.session_id == HEADER.id
    assert again.session_id not in (HEADER.id, name)
    assert again.context() == original.context()
    await again.add(user("only here"))
    await again.close()
    await original.close()
    assert (copy / "session.yaml").read_bytes() == before
    assert b"only here" not in (folder / "session.yaml").read_bytes()
    assert len(await store.list_sessions()) == 3


async def test_a_fork_at_a_message_ends_with_it(store):
    memory = await reopen(store)
    number = memory.transcript.entries[-4].number
    session_id = await memory.fork(number, "other")
    with pytest.raises(SessionNotFound):
        await memory.fork(4000)
    await memory.close()

    copy = await reopen(store, session_id)
    assert (copy.transcript.last_number, copy.title, copy.project) == (number, "other", "/p")
    await copy.close()


async def test_page_of_a_file_changed_by_another_program_is_refused(store, path):
    memory = await reopen(store)
    path.write_text(path.read_text().replace("text: m3\n", "text: m3, and longer than it was\n"))

    with pytest.raises(SessionDamaged, match="changed by another program"):
        await memory.pager.load_earlier(10)
    await memory.close()


async def test_resume_reads_only_the_needed_part_of_a_long_session(store, path, monkeypatch):
    filler = "x" * 2000
    records = [
        replace(said(number), message=user(f"m{number} {filler}")) for number in range(1, 3001)
    ]
    check = CompactionRecord(
        3001, AT, (1, 2995), (7, 210), "What was said.", pins=(7,), spent=Usage(5)
    )
    header = replace(HEADER, id="1d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f")
    await store.import_session(header, records)
    await store.load_session(header.id)
    await store.save_memory(header.id, check)
    await store.close_session(header.id)
    await store.list_sessions()
    read = []
    pread = os.pread
    monkeypatch.setattr(
        os,
        "pread",
        lambda descriptor, size, place: (
            read.append(len(data := pread(descriptor, size, place))) or data
        ),
    )

    memory = await reopen(store, header.id)

    assert texts(memory.context()[:2]) == [f"m7 {filler}", f"m210 {filler}"]
    assert sum(read) < 2_500_000 < (await store.get_session_stats(header.id)).size
    await memory.close()
