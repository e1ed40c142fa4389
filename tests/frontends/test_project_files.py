"""Names of files are found by a few letters, also among many, and while they are being listed."""

import asyncio
import random
import threading
import time

import pytest
from fakes.waiting import until

from ouro.frontends import file_index
from ouro.frontends.file_index import MAX_FOREGROUND_SIZE, SEGMENT, FileIndex, ProjectFiles
from ouro.frontends.saved_file_list import MAX_LISTS, SavedFileList

NAMES = [
    "README.md",
    "src/api/server.py",
    "src/api/routes.py",
    "src/İstanbul.py",
    "tests/test_server.py",
    "docs/a b.md",
]
MANY = [f"pkg{number % 97}/module_{number // 100}/file{number}.py" for number in range(60_000)]


def test_prefix_matches_rank_before_substring_and_fuzzy_ones():
    assert FileIndex(NAMES).search("server") == ["src/api/server.py", "tests/test_server.py"]
    assert FileIndex(NAMES).search("sapir") == ["src/api/routes.py", "src/api/server.py"]


def test_search_ignores_case_and_excludes_mismatches():
    assert FileIndex(["README.md", "src/Main.py"]).search("MAIN") == ["src/Main.py"]
    assert FileIndex(["README.md"]).search("xyz") == []


def test_empty_search_returns_the_outer_names_first():
    assert FileIndex(NAMES).search("", 2) == ["README.md", "src/İstanbul.py"]


def test_a_folder_is_found_by_its_name():
    assert FileIndex(["src/", "src/api/", "src/api/x.py"]).search("api")[0] == "src/api/"


def test_a_name_with_a_line_end_is_left_out():
    assert FileIndex(["a\nb.py", "b.py"]).search("b") == ["b.py"]


def test_the_order_in_which_names_are_found_does_not_matter():
    shuffled = random.Random(3).sample(MANY, len(MANY))
    at_once, in_pieces = FileIndex(MANY), FileIndex()
    for start in range(0, len(shuffled), 777):
        in_pieces.add(shuffled[start : start + 777])
    assert sorted(in_pieces.names()) == sorted(MANY)
    for text in ("file59999", "module_599/file59901", "m599f59987"):
        assert in_pieces.search(text) == at_once.search(text) != []


def test_no_piece_that_is_searched_at_once_is_long():
    index = FileIndex(MANY)
    assert index.size > 10 * SEGMENT
    assert max(map(len, index.texts())) <= SEGMENT + 100


def test_many_names_take_one_text_not_an_object_each():
    """500,000 names took 187 MiB."""
    assert len(list(FileIndex(MANY).texts())) < len(MANY) / 1_000


async def test_names_are_found_before_the_list_is_complete():
    goes_on = threading.Event()

    def read():
        yield ["src/first.py"]
        goes_on.wait(60)
        yield ["src/second.py"]

    changes = []
    files = ProjectFiles(read, lambda: changes.append(1))
    assert files.search("first", 8) is None
    await until(lambda: files.search("first", 8) == ["src/first.py"])
    assert files.search("second", 8) == []
    assert changes
    goes_on.set()
    await until(lambda: files.search("second", 8) == ["src/second.py"])


async def test_the_first_names_are_shown_when_they_are_read(monkeypatch):
    """The first look was at a fixed time, so that the names waited up to 40 ms for it."""
    monkeypatch.setattr(file_index, "FIRST_SHOW_INTERVAL", 3_600)
    goes_on = threading.Event()

    def read():
        yield ["src/first.py"]
        goes_on.wait(60)

    files = ProjectFiles(read, lambda: None)
    files.search("first", 8)
    await until(lambda: files.search("first", 8) == ["src/first.py"])
    goes_on.set()


async def test_the_rest_of_a_list_is_added_when_the_first_names_are_shown():
    """Both need the interpreter lock: the first names were drawn while 50,000 others were added."""
    added_meanwhile = []

    def draw():
        size = files._index.size
        time.sleep(0.01)  # gives the lock to the thread that reads
        added_meanwhile.append(files._index.size - size)

    files = ProjectFiles(lambda: ([name] for name in MANY[:5_000]), draw)
    files.search("first", 8)
    await until(lambda: files._read_at > 0)
    assert added_meanwhile[0] == 0
    assert len(list(files._index.names())) == 5_000


async def test_an_interrupt_before_the_first_names_are_shown_leaves_no_thread_that_waits():
    before = set(threading.enumerate())
    files = ProjectFiles(lambda: iter([["src/first.py"], ["src/second.py"]]), lambda: None)
    files.search("first", 8)
    await until(lambda: files._index is not None)
    files._reading.cancel()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert set(threading.enumerate()) == before


async def test_a_text_is_searched_once_while_the_list_stays_the_same(monkeypatch):
    searched = []
    search = FileIndex.search
    monkeypatch.setattr(
        FileIndex,
        "search",
        lambda self, text, limit: searched.append(text) or search(self, text, limit),
    )
    files = ProjectFiles(lambda: [NAMES], lambda: None)
    files.search("", 8)
    await until(lambda: files._read_at > 0)
    for _event in range(4):
        assert files.search("server", 8) == ["src/api/server.py", "tests/test_server.py"]
    assert searched.count("server") == 1


async def test_a_long_list_is_searched_in_the_background():
    """A search of 500,000 names took 240 ms for each key."""
    changes = []
    files = ProjectFiles(lambda: [MANY], lambda: changes.append(1))
    files.search("", 8)
    await until(lambda: files._read_at > 0)
    assert files._index.size > MAX_FOREGROUND_SIZE
    changes.clear()
    assert files.search("file59999", 8) == []
    await until(lambda: changes)
    [found] = files.search("file59999", 8)
    assert found.endswith("/file59999.py")
    assert files.search("file5999", 8) == [found], "until the search has ended, the last names stay"


async def test_of_many_keys_the_last_is_searched(monkeypatch):
    searched = []
    search = FileIndex.search
    monkeypatch.setattr(
        FileIndex,
        "search",
        lambda self, text, limit: searched.append(text) or search(self, text, limit),
    )
    files = ProjectFiles(lambda: [MANY], lambda: None)
    files.search("", 8)
    await until(lambda: files._read_at > 0)
    for end in range(1, 10):
        files.search("file59999"[:end], 8)
    await until(lambda: files._last_search[0] == "file59999")
    assert len(searched) <= 2


async def test_the_list_of_an_earlier_session_is_used_until_the_new_one_is_read(tmp_path):
    goes_on = threading.Event()

    def read():
        goes_on.wait(60)
        yield ["new.py"]

    kept = SavedFileList(tmp_path / "lists", tmp_path)
    before = FileIndex(MANY)
    kept.save(before.texts(), before.size)
    files = ProjectFiles(read, lambda: None, lambda: kept)
    files.search("file59999", 8)
    await until(lambda: files.search("file59999", 8))
    goes_on.set()
    await until(lambda: files.search("new", 8) == ["new.py"])
    assert files.search("file59999", 8) == []
    await asyncio.wait([files._reading])
    assert not list(kept.load()), "a short list is not kept"


def test_a_kept_list_is_private_and_complete(tmp_path):
    folder = tmp_path / "lists"
    names = [*MANY, "ü/b\udcff.py"]
    index = FileIndex(names)
    kept = SavedFileList(folder, tmp_path)
    kept.save(index.texts(), index.size)
    assert sorted(name for found in kept.load() for name in found) == sorted(names)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_only_the_newest_lists_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("ouro.frontends.saved_file_list.MIN_SAVED_SIZE", 1)
    for number in range(MAX_LISTS + 3):
        SavedFileList(tmp_path / "lists", tmp_path / str(number)).save(["a.py"], 4)
    assert len(list((tmp_path / "lists").iterdir())) == MAX_LISTS


@pytest.mark.parametrize("damage", ["missing", "folder"])
def test_a_list_that_cannot_be_read_or_written_is_not_used(tmp_path, damage):
    kept = SavedFileList(tmp_path / "lists", tmp_path)
    if damage == "folder":
        (tmp_path / "lists").mkdir()
        kept._path.mkdir()
    assert list(kept.load()) == []
    kept.save(["a.py"], file_index.MAX_FOREGROUND_SIZE)
