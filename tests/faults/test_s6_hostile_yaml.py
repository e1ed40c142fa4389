"""S6: hostile session files. Each causes a clear message with the file's name, and the list of
sessions still works.
"""

import pytest
from fakes.waiting import wait

from ouro.errors import SessionDamaged
from ouro.memory.backend import MessageRecord, SessionHeader
from ouro.memory.manager import MemoryManager
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import user

GOOD = SessionHeader("aaaaaaaa-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", "2026-11-21T20:14:03.120Z")
ID = "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f"
HEAD = f"session: {{format: 1, id: {ID}, created_at: 2026-11-21T20:14:03.120Z}}\n".encode()

HOSTILE = {
    "alias bomb": b"a: &a [x,x]\nb: &b [*a,*a,*a]\nc: [*b,*b,*b]",
    "merge bomb": b"a: &a {k: v}\nb:\n  <<: *a",
    "nested brackets": b"[" * 100_000,
    "nested braces": b"{a: " * 100_000,
    "nested sequences": b"- " * 100_000,
    "python object": b"text: !!python/object/apply:os.system [id]",
    "own tag": b"text: !thing x",
    "verbatim tag": b"text: !<tag:yaml.org,2002:python/name:os.system> x",
    "bad timestamp": (
        b"session: {format: 1, id: x, created_at: 2026-99-99T99:99:99Z, created_at: 1}"
    ),
    "huge integer": b"message: " + b"9" * 10_000,
    "self reference": b"a: &a [*a]",
    "NUL": b"text: \x00",
    "bad UTF-8": b"text: \xff\xfe",
    "UTF-16": "text: x".encode("utf-16"),
    "wrong root: list": b"- a\n- b",
    "wrong root: text": b"hello",
    "duplicate keys": b"session: 1\nsession: 2",
    "10 MB scalar": b"x" * 10_000_000,
    "10 MB key": b"? " + b"x" * 10_000_000 + b"\n: 1",
    "only NULs": b"\x00" * 4096,
    "tabs": b"\ttext: 1",
    "list as key": b"? [a, b]\n: c",
    "unclosed quote": b'text: "abc',
    "header of another kind": b"session: [1, 2]",
}


def write(root, content: bytes):
    folder = root / "2026-11-21_0d9f3c52"
    folder.mkdir(mode=0o700)
    (folder / "session.yaml").write_bytes(content)
    (folder / "outputs").mkdir(mode=0o700)
    (root / "secret.txt").write_text("root: secret")


@pytest.fixture
def root(home):
    root = home / ".ouro" / "sessions"
    store = YamlFileMemoryStore(root)
    wait(store.create_session(GOOD))
    wait(store.save_message(GOOD.id, MessageRecord(1, "2026-11-21T20:14:03.120Z", user("one"))))
    wait(store.close_session(GOOD.id))
    return root


@pytest.mark.parametrize("content", [*HOSTILE.values(), None], ids=[*HOSTILE, "empty file"])
def test_s6_hostile_first_record_is_refused_and_the_list_works(root, content):
    write(root, b"" if content is None else b"---\n" + content + b"\n...\n")
    store = YamlFileMemoryStore(root)

    with pytest.raises(SessionDamaged, match=r"2026-11-21_0d9f3c52/session\.yaml"):
        wait(store.load_session(ID))

    listed = {each.id: each.title for each in wait(store.list_sessions())}
    assert listed.keys() == {GOOD.id, "0d9f3c52"}
    assert listed["0d9f3c52"].startswith("[cannot be read: ")


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_s6_hostile_record_in_the_middle_is_skipped_and_reported(root, content):
    good = b"---\nmessage: %d\nrole: user\ntext: good\n...\n"
    write(root, b"---\n" + HEAD + b"...\n" + good % 1 + b"---\n" + content + b"\n...\n" + good % 2)
    before = (root / "2026-11-21_0d9f3c52" / "session.yaml").read_bytes()

    loaded = wait(YamlFileMemoryStore(root).load_session(ID))

    assert [record.number for record in loaded.records] == [1, 2]
    assert [ID[:8] in notice or "newer ouro" in notice for notice in loaded.notices] == [True]
    assert (root / "2026-11-21_0d9f3c52" / "session.yaml").read_bytes() == before


SKIPPED = {
    "compaction that covers backwards": b"compaction: 3\ncovers: [9, 1]\nkept: []\nsummary: x",
    "compaction that covers a word": b"compaction: 3\ncovers: all\nkept: []\nsummary: x",
    "compaction that covers three": b"compaction: 3\ncovers: [1, 2, 3]\nkept: []\nsummary: x",
    "compaction without what it covers": b"compaction: 3\nsummary: x",
    "compaction below zero": b"compaction: -3\ncovers: [1, 2]\nkept: []\nsummary: x",
    "compaction of an endless number": (
        b"compaction: 3\ncovers: [1, 99999999999999999999]\nkept: []\nsummary: x"
    ),
    "compaction with a list for a summary": (
        b"compaction: 3\ncovers: [1, 2]\nkept: []\nsummary: [x]"
    ),
    "rewind to nowhere": b"rewind: 99999",
    "rewind to a word": b"rewind: start",
    "rewind below zero": b"rewind: -1",
    "pin of a word": b"pin: that one",
    "pin below zero": b"pin: -5",
    "fork at a word": b"fork: other\nnumber: end",
    "cost of endless tokens": b"cost: title\nmodel: m\nusage: {input: 99999999999999999999}",
    "cost of no number": b"cost: title\nmodel: m\nusage: {cost: .nan}",
    "recalled without items": b"recalled: 1",
    "captured below zero": b"captured: -1",
    "summary of a list": b"summary: [x]\nmessage: 2",
    "message of an endless number": b"message: 99999999999999999999\nrole: user\ntext: x",
    "message with endless usage": (
        b"message: 3\nrole: assistant\nusage: {input: 99999999999999999999}"
    ),
    "outputs outside": (
        b"message: 3\nrole: tool\nreplies:\n- {id: a, name: b, file: [../../../etc/passwd]}"
    ),
}
TAKEN = {
    "compaction that covers beyond all": (
        b"compaction: 3\ncovers: [1, 999999]\nkept: [99999, 1, 1]\nsummary: x"
    ),
    "compaction that keeps what comes later": (
        b"compaction: 3\ncovers: [1, 2]\nkept: [4, 3]\nsummary: x"
    ),
    "compaction whose hints are nonsense": (
        b"compaction: 3\ncovers: [1, 2]\nkept: [1, 2]\nsummary: x\nbytes_back: [99999999, -7,"
        b" [1], 0]"
    ),
    "compaction with the number of a message": (
        b"compaction: 1\ncovers: [1, 1]\nkept: [1]\nsummary: x"
    ),
    "pin of nothing": b"pin: 12345",
    "recalled for nothing": b"recalled: 12345\nitems: []",
    "fork of itself": b"fork: " + ID.encode() + b"\nnumber: 99",
    "many rewinds": b"\n...\n---\n".join([b"rewind: 1", b"rewind: 2"] * 1000),
    "many compactions": b"\n...\n---\n".join(
        b"compaction: %d\ncovers: [1, %d]\nkept: [1]\nsummary: x" % (number, number - 1)
        for number in range(3, 500)
    ),
    "output outside": (
        b"message: 3\nrole: tool\nreplies:\n- {id: a, name: b, file: ../../secret.txt}"
    ),
    "output that is gone": (
        b"message: 3\nrole: tool\nreplies:\n- {id: a, name: b, file: outputs/x.txt}"
    ),
}


def message(number: int) -> bytes:
    return b"---\nmessage: %d\nat: 2026-11-21T20:15:00.000Z\nrole: user\ntext: good %d\n...\n" % (
        number,
        number,
    )


@pytest.mark.parametrize("content", [*SKIPPED.values(), *TAKEN.values()], ids=[*SKIPPED, *TAKEN])
async def test_s6_a_hostile_record_of_any_kind_is_skipped_or_does_no_harm(root, content):
    write(
        root,
        b"---\n"
        + HEAD
        + b"...\n"
        + message(1)
        + message(2)
        + b"---\n"
        + content
        + b"\n...\n"
        + message(600),
    )
    store = YamlFileMemoryStore(root)
    assert {each.id for each in await store.list_sessions()} == {ID, GOOD.id}

    memory = await MemoryManager.resume(store, ID, project="/p")
    await memory.add(user("more"))
    sent = [each.text for each in memory.context() if each.text]
    usage = memory.usage
    await memory.close()

    assert sent[-2:] == ["good 600", "more"]
    is_told = (
        content in SKIPPED.values() or b"file: " in content
    )  # a missing output is reported too
    assert (bool(memory.notices), usage.input) == (is_told, 0)
    whole = await store.load_session(ID, read_only=True)
    assert "root: secret" not in str(whole.records)
    assert [each.message.text for each in whole.records if isinstance(each, MessageRecord)][
        -2:
    ] == ["good 600", "more"]
    again = await MemoryManager.resume(store, ID, project="/p", fork=True)
    assert [each.text for each in again.context() if each.text] == sent
    await again.close()


@pytest.mark.parametrize(
    "value",
    [
        "&a x", "*a", "!!str x", "!thing x", "[&a x]", "{a: *a}", "!!seq [x]", "[" * 70 + "]" * 70, "{a: 1, a: 2}",
        "9" * 101, "{1: x}", "{[a]: x}", "? ", '"\\ud800"', "a: b: c",
    ],
)  # fmt: skip
def test_s6_record_with_one_bad_value_is_skipped(root, value):
    """One bad value at a time, so that each check is tested alone."""
    content = (
        b"message: 2\nat: x\nrole: tool\nreplies:\n- {id: a, name: b, text: c}\nmore: "
        + value.encode()
    )
    write(
        root, b"---\n" + HEAD + b"...\n" + message(1) + b"---\n" + content + b"\n...\n" + message(3)
    )

    loaded = wait(YamlFileMemoryStore(root).load_session(ID))

    assert [record.number for record in loaded.records] == [1, 3]
    assert [notice for notice in loaded.notices if "cannot be read" in notice]
