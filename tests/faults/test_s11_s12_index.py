"""S11, S12: an index that is missing, stale, damaged, newer or read-only; many sessions; a very
long session.
"""

import os
import shutil
from pathlib import Path

import pytest
from fakes.waiting import wait

from ouro.errors import SessionError
from ouro.memory.backend import MessageRecord, SessionHeader, TitleRecord
from ouro.memory.sessions import session_index
from ouro.memory.sessions import session_index as session_survey
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, Text, Usage, user

AT = "2026-11-21T20:14:03.120Z"


@pytest.fixture
def root(home):
    root = home / ".ouro" / "sessions"
    for number in range(5):
        add_session(root, number)
    return root


def session_id(number: int) -> str:
    return f"{number:08}-7e1b-4d0a-9a55-3b8f0c1d2e4f"


def add_session(root, number: int) -> None:
    store = YamlFileMemoryStore(root)
    wait(store.create_session(SessionHeader(session_id(number), "/p", "m", AT)))
    wait(store.save_message(session_id(number), MessageRecord(1, AT, user(f"words {number}"))))
    wait(store.save_memory(session_id(number), TitleRecord(f"title {number}", AT)))
    wait(store.close_session(session_id(number)))


def titles(root) -> list[str]:
    return sorted(each.title for each in wait(YamlFileMemoryStore(root).list_sessions()))


ALL = [f"title {number}" for number in range(5)]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda index: index.unlink(),
        lambda index: index.write_bytes(b""),
        lambda index: index.write_bytes(index.read_bytes()[:-30]),
        lambda index: index.write_bytes(b"\x00" * 4096),
        lambda index: index.write_text(index.read_text().replace("format: 1", "format: 999")),
        lambda index: index.write_text("a: &a [*a]"),
        lambda index: index.write_text(
            index.read_text().replace('"messages":1', '"messages":"many"')
        ),
        lambda index: (index.unlink(), index.mkdir()),
        lambda index: (index.unlink(), index.symlink_to("/etc/hostname")),
        lambda index: (index.unlink(), os.mkfifo(index)),
    ],
    ids=[
        "missing",
        "empty",
        "cut",
        "NULs",
        "newer",
        "hostile",
        "wrong type",
        "a folder",
        "a symlink",
        "a FIFO",
    ],
)
def test_s11_damaged_session_index_is_rebuilt(root, spoil):
    assert titles(root) == ALL
    good = (root / ".index.yaml").read_text()
    spoil(root / ".index.yaml")

    assert titles(root) == ALL
    assert (root / ".index.yaml").is_dir() or (root / ".index.yaml").read_text() == good


def test_s11_stale_session_index_is_corrected(root):
    assert titles(root) == ALL
    add_session(root, 7)
    shutil.rmtree(root / f"2026-11-21_{session_id(0)[:8]}")
    store = YamlFileMemoryStore(root)
    wait(store.load_session(session_id(1)))
    wait(store.save_memory(session_id(1), TitleRecord("renamed", AT)))
    by_hand = root / f"2026-11-21_{session_id(2)[:8]}" / "session.yaml"
    by_hand.write_text(by_hand.read_text().replace("title: title 2", "title: by hand"))

    assert titles(root) == ["by hand", "renamed", "title 3", "title 4", "title 7"]


def test_s11_a_folder_that_cannot_be_written_is_still_listed(root, monkeypatch):
    def read_only(*_):
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr(session_index, "rewrite_file", read_only)

    assert titles(root) == ALL
    assert not (root / ".index.yaml").exists()


def test_s11_missing_sessions_folder_lists_nothing(tmp_path):
    assert wait(YamlFileMemoryStore(tmp_path / "nowhere").list_sessions()) == []


def test_s11_other_files_are_ignored(root):
    (root / "notes.txt").write_text("mine")
    (root / "empty folder").mkdir()

    assert titles(root) == ALL


def test_s12_a_list_opens_no_session(root, monkeypatch):
    assert titles(root) == ALL
    seen = []
    opened = os.open
    monkeypatch.setattr(
        os,
        "open",
        lambda path, *rest, **more: seen.append(str(path)) or opened(path, *rest, **more),
    )

    assert titles(root) == ALL
    assert [path for path in seen if "session.yaml" in path] == []


@pytest.fixture
def long_session(root):
    """A session file of 900 MB, most of it a hole."""
    add_session(root, 9)
    path = root / f"2026-11-21_{session_id(9)[:8]}" / "session.yaml"
    with path.open("r+b") as file:
        file.truncate(900 << 20)
        file.seek(0, 2)
        file.write(
            b"\n...\n---\nmessage: 70001\nat: 2026-11-22T00:00:00.000Z\nrole: user\ntext: the"
            b" end\n...\n"
        )
    return path


def test_s12_session_of_900_mb_opens_from_its_end(root, long_session):
    loaded = wait(YamlFileMemoryStore(root).load_session(session_id(9)))

    assert [record.message for record in loaded.records] == [user("the end")]
    assert loaded.header.id == session_id(9)
    assert loaded.notices == (
        (
            "The session has 900 MB: only its last 256 MB were read. The rest stays in"
            f" {long_session}."
        ),
    )


def test_s12_a_session_of_900_mb_is_listed_by_its_start_and_its_end(root, long_session):
    found = wait(YamlFileMemoryStore(root).list_sessions())[0]

    assert (found.title, found.messages, found.size) == (
        "title 9",
        70001,
        long_session.stat().st_size,
    )


def test_s12_only_new_records_of_a_long_session_are_read(root, monkeypatch):
    monkeypatch.setattr(session_survey, "_MAX_READ_WHOLE", 100)
    assert titles(root) == ALL
    store = YamlFileMemoryStore(root)
    wait(store.load_session(session_id(1)))
    wait(
        store.save_message(
            session_id(1),
            MessageRecord(2, AT, Message("assistant", (Text("x"),), Usage(cost=0.25))),
        )
    )
    seen = []
    read_range = session_survey.read_range
    monkeypatch.setattr(
        session_survey,
        "read_range",
        lambda *given: seen.append(given[2] - given[1]) or read_range(*given),
    )

    found = next(
        each for each in wait(YamlFileMemoryStore(root).list_sessions()) if each.id == session_id(1)
    )

    assert (found.messages, found.cost, found.title) == (2, 0.25, "title 1")
    assert len(seen) == 1
    assert seen[0] < 130


@pytest.mark.parametrize(
    "make",
    [Path.touch, os.mkfifo, lambda path: path.symlink_to(path)],
    ids=["file", "FIFO", "loop"],
)
def test_s11_sessions_folder_that_is_no_folder_is_reported(tmp_path, make):
    make(tmp_path / "sessions")

    with pytest.raises(SessionError, match=r"The sessions in .*/sessions cannot be read: "):
        wait(YamlFileMemoryStore(tmp_path / "sessions").list_sessions())
    with pytest.raises(SessionError, match=r"The sessions in .*/sessions cannot be read: "):
        session_index.find_info(tmp_path / "sessions", "2026-11-21_0d9f3c52")
