"""The first page of the list of sessions: right, and flat in their number."""

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from fakes.waiting import wait

from ouro.memory.backend import LabelRecord, MessageRecord, SessionHeader, TitleRecord
from ouro.memory.sessions import index_journal, newest_sessions, session_index
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import user

PAGE = 5


def session_id(number):
    return f"{number:08}-7e1b-4d0a-9a55-3b8f0c1d2e4f"


def at(number):
    return f"2026-11-{1 + number // 1440:02}T{number // 60 % 24:02}:{number % 60:02}:00.000Z"


def add(root, number, project="/p"):
    header = SessionHeader(session_id(number), project, "m", at(number))
    records = (MessageRecord(1, at(number), user("hi")), TitleRecord(f"title {number}", at(number)))
    wait(YamlFileMemoryStore(root).import_session(header, records))


def filled(root, count):
    for number in range(count):
        add(root, number)
    wait(YamlFileMemoryStore(root).list_sessions())
    return root


def change(root, number, record):
    store = YamlFileMemoryStore(root)
    wait(store.load_session(session_id(number)))
    wait(store.save_memory(session_id(number), record))
    wait(store.save_message(session_id(number), MessageRecord(2, at(500), user("again"))))
    wait(store.close_session(session_id(number)))


def first_page(root, is_wanted=lambda _project: True):
    return [info.title for info in newest_sessions.quick_first_page(root, is_wanted, PAGE)]


@pytest.fixture
def root(tmp_path):
    return filled(tmp_path / "sessions", 20)


@pytest.fixture
def count(monkeypatch):
    """Counts the files opened and looked at."""
    counts = Counter()

    def counted(place, name, what):
        original = getattr(place, name)

        def call(*args, **options):
            counts[what] += 1
            return original(*args, **options)

        monkeypatch.setattr(place, name, call)

    counted(os, "open", "opened")
    counted(Path, "lstat", "looked at")
    counted(os, "scandir", "folders listed")
    counted(os, "pread", "read")
    return counts


def test_first_page_costs_the_same_with_many_sessions(tmp_path, count):
    costs = []
    for number in (10, 100, 1_000):
        root = filled(tmp_path / str(number), number)
        count.clear()
        newest = [f"title {place}" for place in range(number - 1, number - 1 - PAGE, -1)]
        assert first_page(root) == newest
        assert count.pop("read") <= 2, "a small index ends in its first block"
        costs.append(dict(count))
    assert costs[0] == costs[1] == costs[2]
    assert costs[0]["looked at"] == PAGE
    assert "folders listed" not in costs[0]


def test_first_page_begins_as_the_whole_list(root):
    listed = wait(YamlFileMemoryStore(root).list_sessions())
    assert first_page(root) == [info.title for info in listed[:PAGE]]


def test_sessions_that_are_written_after_the_index_are_on_the_first_page(root):
    before = (root / ".index.yaml").read_bytes()
    change(root, 3, TitleRecord("resumed", at(30)))
    store = YamlFileMemoryStore(root)
    wait(store.create_session(SessionHeader(session_id(900), "/p", "m", at(600))))
    wait(store.save_message(session_id(900), MessageRecord(1, at(600), user("new"))))
    wait(store.save_memory(session_id(900), TitleRecord("created", at(600))))

    assert (root / ".index.yaml").read_bytes() == before
    assert first_page(root)[:3] == ["created", "resumed", "title 19"]


def test_pinned_sessions_are_first_and_removed_ones_are_gone(root):
    change(root, 4, LabelRecord((), at(30), pinned=True))
    wait(YamlFileMemoryStore(root).delete_session(session_id(19)))
    assert first_page(root)[:2] == ["title 4", "title 18"]


def test_only_sessions_of_the_project_are_on_the_first_page(root):
    add(root, 30, "/elsewhere")
    wait(YamlFileMemoryStore(root).list_sessions())
    assert first_page(root, lambda project: project == "/elsewhere") == ["title 30"]
    assert first_page(root, lambda project: project == "/p")[0] == "title 19"


@pytest.mark.parametrize(
    "text", [b"", b"\0" * 999, session_index.HEAD + b"[\n{]", b"# newer\nformat: 9\n[\n]\n"]
)
def test_broken_index_gives_no_first_page_and_is_rebuilt(root, text):
    (root / ".index.yaml").write_bytes(text)
    assert first_page(root) == []
    assert len(wait(YamlFileMemoryStore(root).list_sessions())) == 20
    assert first_page(root)[0] == "title 19"


def test_index_of_an_earlier_version_gives_no_first_page_and_is_put_in_order(root):
    index = root / ".index.yaml"
    lines = index.read_bytes()[len(session_index.HEAD) :]
    entries = sorted(json.loads(lines), key=lambda entry: entry["info"]["folder"])
    by_name = b",\n".join(json.dumps(entry, separators=(",", ":")).encode() for entry in entries)
    index.write_bytes(session_index.HEAD + b"[\n" + by_name + b"\n]\n")

    assert first_page(root) == []
    assert len(wait(YamlFileMemoryStore(root).list_sessions())) == 20
    assert first_page(root)[0] == "title 19"


@pytest.mark.parametrize("notes", [b"..\n../../etc\n.trash\n\0\n\xff\n", b"nothing here\n" * 9_000])
def test_hostile_and_stale_notes_are_ignored(root, notes):
    (root / index_journal.OPENED_NAME).write_bytes(notes)
    (root / index_journal.OPENED_NAME).chmod(0o600)
    assert first_page(root)[0] == "title 19"
    change(root, 3, TitleRecord("resumed", at(30)))
    assert first_page(root)[0] == "resumed"
    assert (root / index_journal.OPENED_NAME).stat().st_size < 100_000


def test_without_an_index_nothing_is_noted(tmp_path):
    root = tmp_path / "sessions"
    store = YamlFileMemoryStore(root)
    wait(store.create_session(SessionHeader(session_id(1), "/p", "m", at(1))))
    assert not (root / index_journal.OPENED_NAME).exists()
    assert first_page(root) == []


def command_page(root, is_wanted=lambda _project: True, count=PAGE):
    """What a command prints, which may lack nothing; None: it makes the whole list."""
    found = newest_sessions.exact_first_page(root, is_wanted, count)
    return None if found is None else [info.title for info in found]


def whole_list(root, count=PAGE):
    listed = wait(YamlFileMemoryStore(root).list_sessions())
    return [info.title for info in sorted(listed, key=lambda info: not info.pinned)][:count]


def test_page_of_a_command_looks_at_its_own_sessions_only(tmp_path, count):
    costs = []
    for number in (10, 100, 1_000):
        root = filled(tmp_path / str(number), number)
        count.clear()
        assert command_page(root)[0] == f"title {number - 1}"
        count.pop("read")  # the index is read whole, in blocks
        costs.append(dict(count))
    assert costs[0] == costs[1] == costs[2]
    assert costs[0]["looked at"] == PAGE


@pytest.mark.parametrize("project", ["/p", "/rare", 'a "quoted" ü\\folder'])
def test_page_of_a_command_has_what_the_whole_list_has(root, project):
    add(root, 1_400, project)
    add(root, 21, "/elsewhere")
    wait(YamlFileMemoryStore(root).list_sessions())
    change(root, 3, TitleRecord("resumed", at(30)))
    change(root, 4, LabelRecord((), at(31), pinned=True))
    wait(YamlFileMemoryStore(root).delete_session(session_id(19)))
    add(root, 25, project)  # no note, as of a folder that was copied here
    page = command_page(root, lambda found: found == project, 40)
    listed = wait(YamlFileMemoryStore(root).list_sessions(project))
    ordered = [info.title for info in sorted(listed, key=lambda info: not info.pinned)]
    assert page == ordered[:40]
    assert "title 25" in page


def test_page_of_a_command_has_a_session_that_was_resumed_many_sessions_ago(root):
    change(root, 3, TitleRecord("resumed", at(30)))
    for number in range(150):
        index_journal.note_opened(root, f"2026-11-01_{number:08}")
    assert "resumed" not in first_page(root)
    assert command_page(root)[0] == "resumed"


def test_after_many_notes_the_index_is_written_again_and_they_are_dropped(root):
    held = YamlFileMemoryStore(root)
    wait(held.load_session(session_id(5)))
    change(root, 3, TitleRecord("resumed", at(30)))
    for number in range(900):
        index_journal.note_opened(root, f"2026-11-01_{number:08}")
    assert command_page(root) is None
    assert whole_list(root)[0] == "resumed"
    notes = (root / index_journal.OPENED_NAME).read_text()
    assert notes.splitlines() == ["2026-11-01_00000005"], "it is open, so it may still change"
    assert command_page(root)[0] == "resumed"
    wait(held.save_message(session_id(5), MessageRecord(2, at(900), user("again"))))
    wait(held.close_session(session_id(5)))
    assert command_page(root)[0] == "title 5"


def test_notes_that_nobody_reads_stay_small(root):
    for number in range(3_000):
        index_journal.note_opened(root, f"2026-11-01_{number:08}")
    assert (root / index_journal.OPENED_NAME).stat().st_size < 100_000
    assert command_page(root) is None


def test_copy_made_by_hand_needs_the_whole_list(root):
    shutil.copytree(root / "2026-11-01_00000019", root / "2026-11-01_00000019 copy")
    assert command_page(root) is None
    assert len(whole_list(root, 40)) == 21


@pytest.mark.parametrize(
    "text", [b"", b"\0" * 999, session_index.HEAD + b"[\n{]", b"# newer\nformat: 9\n[\n]\n"]
)
def test_broken_index_gives_no_page_of_a_command(root, text):
    (root / ".index.yaml").write_bytes(text)
    assert command_page(root) is None
