"""S26: an older ouro in the home of a newer one: each store says so, and nothing in it changes."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from fakes.files import git
from fakes.knowledge import editor_of

from ouro.memory.index.schema import VERSION
from ouro.memory.long_term import remember_text

NEWER = "written by a newer ouro (0.3)"
HINT = "Update ouro, or set OURO_HOME to another folder."
MARKS = {
    "memory": ("memory/.git/.layout",),
    "history": ("history.git/user.git/ouro/.layout",),
    "sessions": ("sessions/.layout",),
    "checkpoints": ("checkpoints/.layout",),
    "spending": ("sessions/.spent.json.layout",),
}
ASKED = {
    "memory": ("memory", "list", "--json"),
    "history": ("memory", "remember", "Always use tabs"),
    "sessions": ("sessions", "list", "--json"),
    "checkpoints": ("checkpoints",),
    "spending": ("usage",),
}


def use(ouro):
    """Use each store of a home."""
    remember_text(editor_of(ouro.home, indexed=False), "Always answer in German")
    done = ouro.headless("-p", 'call: write {"path": "new.txt", "content": "x"}', "--mode", "auto")
    assert done.code == 0, done.err


@pytest.fixture(scope="module")
def kept_home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("used") / "home"


@pytest.fixture
def used(ouro, kept_home):
    """A home in which each store was used: the first test makes it, and the others copy it. Its
    session is of another folder.
    """
    if kept_home.exists():
        shutil.copytree(kept_home, ouro.home, symlinks=True, dirs_exist_ok=True)
        link_history_to_memory(ouro.home)
        return ouro
    use(ouro)
    settled(ouro.home / "checkpoints")
    is_own = shutil.ignore_patterns("models.yaml")
    shutil.copytree(ouro.home, kept_home, symlinks=True, ignore=is_own)
    return ouro


def link_history_to_memory(home: Path) -> None:
    """Let the links of a copied history show its own memory: they are absolute."""
    for link in (home / "history.git/user.git/common").iterdir():
        if link.is_symlink():
            link.unlink()
            link.symlink_to(home / "memory/.git" / link.name)


def bytes_below(folder: Path) -> dict[str, bytes]:
    is_kept = [path for path in folder.rglob("*") if path.is_file() and "lock" not in path.name]
    return {str(path.relative_to(folder)): path.read_bytes() for path in is_kept}


def newer(home: Path, store: str, words: str = "2 0.3") -> None:
    for name in MARKS[store]:
        mark = home / name
        assert mark.parent.is_dir()
        mark.write_text(f"{words}\n")


@pytest.mark.parametrize("store", ["memory", "history", "sessions"])
def test_s26_each_store_has_a_mark(used, store):
    for name in MARKS[store]:
        assert (used.home / name).read_text().split()[0] == "1"


@pytest.mark.parametrize("words", ["2 0.3", "17 0.3", "next 0.3"])
@pytest.mark.parametrize("store", ["memory", "history", "sessions"])
def test_s26_action_on_a_newer_store_says_so_and_changes_nothing(used, store, words):
    newer(used.home, store, words)
    folder = used.home / MARKS[store][0].partition("/")[0]
    before = bytes_below(folder)

    done = used.headless(*ASKED[store])

    assert done.code > 0
    assert NEWER in done.err
    assert HINT in done.err
    assert done.out == ""
    assert bytes_below(folder) == before


@pytest.mark.parametrize("store", ["memory", "history"])
def test_s26_reading_action_on_a_newer_memory_says_so(used, store):
    newer(used.home, store, "2 0.3")
    done = used.headless("memory", "list", "--json")
    assert done.code > 0
    assert NEWER in done.err
    assert done.out == ""


@pytest.mark.parametrize("store", ["memory", "history"])
def test_s26_session_works_without_the_newer_memory(used, store):
    newer(used.home, store)
    before = bytes_below(used.home / "memory")

    done = used.headless("-p", "say: hello")

    assert (done.code, done.out) == (0, "hello\n")
    assert NEWER in done.err
    assert "German" not in str(used.server.requests[-1].messages[0])
    assert bytes_below(used.home / "memory") == before


def test_s26_no_session_is_written_among_newer_ones(used):
    newer(used.home, "sessions")
    before = bytes_below(used.home / "sessions")

    done = used.headless("-p", "say: hello")

    assert done.code > 0
    assert NEWER in done.err
    assert bytes_below(used.home / "sessions") == before


def settled(folder: Path) -> dict[str, bytes]:
    """What is in a folder when nothing changes any more: a turn is finished after its answer."""
    before: dict[str, bytes] = {}
    while before != (now := bytes_below(folder)) or not now:
        before = now
        time.sleep(0.5)
    return before


def assert_newer_checkpoints_stay(ouro):
    before = settled(ouro.home / "checkpoints")

    done = ouro.headless("-p", 'call: write {"path": "b.txt", "content": "x"}', "--mode", "auto")

    assert done.code == 0
    assert "cannot be undone" in done.err
    assert NEWER in done.err
    assert bytes_below(ouro.home / "checkpoints") == before


def test_s26_newer_checkpoints_are_not_touched(ouro):
    use(ouro)
    newer(ouro.home, "checkpoints")
    assert_newer_checkpoints_stay(ouro)


def test_s26_a_folder_gets_no_checkpoints_among_newer_ones(ouro):
    (ouro.home / "checkpoints").mkdir()
    newer(ouro.home, "checkpoints")
    assert_newer_checkpoints_stay(ouro)


def test_s26_newer_spending_is_not_counted_from_zero(used):
    newer(used.home, "spending")

    done = used.headless("usage")

    assert done.code > 0
    assert NEWER in done.err
    assert HINT in done.err


def test_s26_newer_index_is_neither_read_nor_built_again(used):
    assert used.headless("memory", "search", "German").code == 0
    path = used.home / "cache" / "index.db"
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
        database.execute("INSERT OR REPLACE INTO facts VALUES ('ouro', '0.3')")
        database.execute("CREATE TABLE of_the_future (x)")
    database.close()

    done = used.headless("memory", "search", "German")

    assert NEWER in done.err
    assert HINT in done.err
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (VERSION + 1,)
        database.execute("SELECT * FROM of_the_future")
    database.close()
    assert used.headless("-p", "say: hello").out == "hello\n"


def test_s26_home_without_marks_opens_unchanged(ouro):
    """The home of the version before."""
    use(ouro)
    for mark in ouro.home.rglob(".*layout"):
        mark.unlink()
    before = bytes_below(ouro.home / "memory")

    assert "Always answer in German" in ouro.headless("memory", "list").out
    assert ouro.headless("sessions", "list").code == 0
    assert bytes_below(ouro.home / "memory") == before
    assert ouro.headless("-p", "say: hello", "--resume", "latest").out == "hello\n"
    assert ouro.headless("memory", "remember", "Always use tabs").code == 0


@pytest.mark.parametrize("text", ["", "\n", "1", "0 0.0", "1 1.2.3 more"])
def test_s26_known_marks_and_empty_ones_are_no_obstacle(used, text):
    (used.home / "sessions/.layout").write_text(text)
    (used.home / "memory/.git/.layout").write_text(text)

    assert used.headless("sessions", "list").code == 0
    assert "German" in used.headless("memory", "list").out
    assert git(used.home / "memory", "status", "--short") == ""
    assert os.listdir(used.home / "memory").count(".layout") == 0  # noqa: PTH208
