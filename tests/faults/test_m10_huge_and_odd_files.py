"""M10: huge, binary and many files, and names that some file systems treat as equal."""

import os
import re

import pytest
from fakes.knowledge import Conversation, unapproved, write_as_user

from ouro.memory.long_term import GitMemoryStore
from ouro.memory.long_term.git.files import MAX_FILE_BYTES, FileRefused
from ouro.memory.long_term.git.values import SkippedFile
from ouro.memory.long_term.trust.change_effects import apply_edit
from ouro.memory.long_term.trust.proposals import question_about
from ouro.utils.line_changes import line_changes


@pytest.fixture
def store(tmp_path) -> GitMemoryStore:
    made = GitMemoryStore(tmp_path / "memory", "user", tmp_path / "history.git" / "user.git")
    made.save_and_commit({"preferences.md": "- tabs\n"}, "Learn")
    return made


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"a\0b", "holds NUL bytes: not text"),
        (b"\0" * 4096, "holds NUL bytes: not text"),
        (b"- caf\xe9\n", "not UTF-8 (byte 5)"),
        (b"\xff\xfe-\0 \0a\0", "holds NUL bytes: not text"),
        (b"\xed\xa0\x80", "not UTF-8 (byte 0)"),
        (
            b"x" * (MAX_FILE_BYTES + 1),
            (
                f"{MAX_FILE_BYTES + 1:,} bytes: longer than the {MAX_FILE_BYTES:,} that a memory"
                " file may have"
            ),
        ),
    ],
)
def test_m10_binary_or_overlong_file_is_skipped_with_its_reason(store, data, reason):
    (store.folder / "facts.md").write_bytes(data)

    loaded = store.load_all()

    assert loaded.skipped == (SkippedFile("facts.md", reason),)
    assert loaded.core == {"preferences": "- tabs\n"}
    assert store.commit_changes("Take in what is there") == ""


def test_m10_a_file_of_a_hundred_megabytes_is_not_read(store):
    with (store.folder / "facts.md").open("wb") as file:
        file.truncate(100_000_000)

    assert [each.reason for each in store.load_all().skipped] == [
        f"100,000,000 bytes: longer than the {MAX_FILE_BYTES:,} that a memory file may have"
    ]


def test_m10_file_growing_while_it_is_read_is_refused(store, monkeypatch):
    path, grown = store.folder / "facts.md", os.read

    def read(descriptor: int, size: int) -> bytes:
        with path.open("ab") as file:
            file.write(b"x" * 100_000)
        return grown(descriptor, size)

    path.write_text("- one\n")
    monkeypatch.setattr(os, "read", read)

    with pytest.raises(FileRefused, match="longer than"):
        store.read("facts.md")


def test_m10_total_core_size_is_limited(store):
    for name in ("decisions", "preferences", "facts"):
        (store.folder / f"{name}.md").write_text("x" * 200_000)

    loaded = store.load_all()

    assert list(loaded.core) == ["decisions", "preferences"]
    assert loaded.skipped == (SkippedFile("facts.md", "200,000 characters: too long to load"),)


def test_m10_ten_thousand_notes_are_listed_without_reading_them(store):
    for number in range(10_000):
        (store.folder / f"mem_{number:08}.md").write_text("note\n")

    loaded = store.load_all()

    assert (len(loaded.notes), loaded.core, loaded.skipped) == (
        10_000,
        {"preferences": "- tabs\n"},
        (),
    )
    assert not store.has_changed_since_load(loaded)


@pytest.mark.parametrize(
    "name",
    [
        "a\nb.md", "a\x1b[31m.md", "notes.txt", "README", "x.MD", "cafe\u0301.md", "mem_\x7f.md", "sub",
        "a" * 251 + ".md", os.fsdecode(b"mem_\xff.md"),
    ],
)  # fmt: skip
def test_m10_odd_names_are_skipped_and_reported(store, name):
    (store.folder / name).write_text("x\n")

    loaded = store.load_all()

    assert [each.name for each in loaded.skipped] == [name]
    assert loaded.notes == ()
    store.commit_changes("Take in what is there")
    assert set(store.repository.tree(store.get_current_head())) == {"preferences.md"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("mem_A.md", "mem_a.md"),
        ("Facts.md", "facts.md"),
        ("mem_\uff41.md", "mem_a.md"),
        ("mem_\u00df.md", "mem_ss.md"),
    ],
)
def test_m10_names_equal_on_some_disks_are_reported(store, first, second):
    if not _both(store.folder, first, second):
        pytest.skip("this disk takes the two for one")
    one, other = sorted(
        (first, second), key=lambda name: (not re.fullmatch("[a-z0-9_]+[.]md", name), name)
    )

    loaded = store.load_all()

    assert (other, f"its name is the same as {one} on some disks") in {
        (each.name, each.reason) for each in loaded.skipped
    }


def _both(folder, first: str, second: str) -> bool:
    (folder / first).write_text("first\n")
    (folder / second).write_text("second\n")
    return (folder / first).read_text() == "first\n"


def test_m10_a_text_keeps_its_bytes_through_history(store):
    data = (
        "\ufeff- caf\u00e9 \u65e5\u672c\r\n- e\u0301 \U0001f469\u200d\U0001f680\n\n  tail"
        " without end".encode()
    )
    (store.folder / "facts.md").write_bytes(data)

    commit = store.commit_changes("By hand")

    assert (
        store.repository.read_blobs([store.repository.tree(commit)["facts.md"]]).popitem()[1]
        == data
    )
    assert store.load_all().core["facts"] == data.decode("utf-8-sig").replace("\r\n", "\n")


def test_m10_case_variant_of_a_core_file_does_not_hide_it(store):
    (store.folder / "Preferences.md").write_text("- spaces\n")

    assert store.load_all().core == {"preferences": "- tabs\n"}


def test_m10_file_removed_during_listing_does_not_affect_the_others(store, monkeypatch):
    store.save_and_commit({"mem_12345678.md": "a note\n"}, "Learn")
    found = os.listdir

    def listdir(folder):
        names = found(folder)
        (store.folder / "mem_12345678.md").unlink(missing_ok=True)
        return names

    monkeypatch.setattr(os, "listdir", listdir)

    assert [each.name for each in unapproved(store)] == ["mem_12345678.md"]
    assert store.load_all().core == {"preferences": "- tabs\n"}


def test_m10_many_repeated_lines_are_diffed_fast():
    some, others = ["a"] * 2_000, ["b"] * 2_000

    assert line_changes(["start", *some, *others, "end"], ["start", *others, *some, "end"]) == [
        (1, 1, 1, 2001),
        (2001, 4001, 4001, 4001),
    ]
    assert line_changes(["start", *some * 15, "b", "end"], ["start", "b", *some * 15, "end"]) == [
        (1, 30_002, 1, 30_002)
    ]
    assert line_changes(["a", "b", "c"], ["a", "x", "c", "d"]) == [(1, 2, 1, 2), (3, 3, 3, 4)]
    assert line_changes(some, [*some, "a"]) == [(2_000, 2_000, 2_000, 2_001)]


async def test_m10_huge_external_file_is_asked_about_quickly(home):
    """Each of these took minutes when every line was compared with every other."""
    first = Conversation(home / ".ouro").connect()
    await write_as_user(
        first.manager, "user", {"facts.md": "a\n" * 60_000 + "b\n" * 60_000}, "by the person"
    )
    (first.folder / "facts.md").write_text("b\n" * 60_000 + "a\n" * 60_000)

    [waiting] = Conversation(home / ".ouro", session="s-2").manager.proposals()
    question = question_about(waiting)

    assert question.details.splitlines()[1:3] == ["- a", "- a"]
    assert apply_edit(waiting.edits[0], waiting.edits[0].before) == waiting.edits[0].after
