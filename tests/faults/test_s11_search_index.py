"""S11, M10, M14: a search index that is missing, damaged, older, locked or read-only; hostile and
changing files.
"""

import os
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.stored_sessions import NOTE, StoredSession, session_id

from ouro.errors import SearchUnavailable
from ouro.memory.index import (
    Index,
    MemoryFolder,
    Search,
    Sources,
    memory_file_indexer,
    search_sessions,
)
from ouro.memory.index import index as index_module
from ouro.memory.index.memory_file_indexer import index_memory_file
from ouro.messages import user

WITHOUT_RIGHTS = pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")


@pytest.fixture
def root(home):
    root = home / ".ouro" / "sessions"
    for number in (1, 2):
        talk = StoredSession(root, number)
        talk.say(user(f"heron number {number}"))
        talk.end()
    return root


@pytest.fixture
def memory(home):
    folder = home / ".ouro" / "memory"
    folder.mkdir(mode=0o700, parents=True)
    return folder


@pytest.fixture
def path(home, root):
    """The file of an index, which is closed."""
    path = home / ".ouro" / "cache" / "index.db"
    assert look(path, root) == {session_id(1), session_id(2)}
    return path


def look(path, root) -> set[str]:
    """Open an index, update it and close it; returns the ids of the sessions found."""
    index = Index(path)
    try:
        index.update(Sources(root))
        return {hit.session_id for hit in search_sessions(index, "heron")}
    finally:
        index.close()


def older(path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 1")


def without_a_table(path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE sessions")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:2_000]),
        lambda path: path.write_bytes(b"\0" * 40_000),
        lambda path: path.write_bytes(b"SQLite format 3\0" + os.urandom(40_000)),
        older,
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), path.symlink_to("/etc/hostname")),
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: [each.unlink() for each in path.parent.iterdir()] and path.parent.rmdir(),
        lambda path: (
            path.rename(f"{path}.old"),
            path.parent.joinpath("index.db-wal").write_bytes(b"\1" * 5_000),
        ),
    ],
    ids=[
        "missing",
        "empty",
        "cut",
        "NULs",
        "noise",
        "older",
        "a folder",
        "a symlink",
        "a FIFO",
        "no cache",
        "a stray WAL",
    ],
)
def test_s11_damaged_search_index_is_rebuilt_or_bypassed(path, root, spoil):
    spoil(path)
    assert look(path, root) == {session_id(1), session_id(2)}


def test_s11_set_aside_index_is_kept_once(path, root):
    for _ in range(2):
        path.write_bytes(b"no database" * 1_000)
        look(path, root)
    assert sorted(each.name for each in path.parent.iterdir() if "aside" in each.name) == [
        "index.db.aside"
    ]


def test_s11_missing_table_is_reported_and_fixed_by_a_rebuild(path, root):
    without_a_table(path)
    index = Index(path)
    with pytest.raises(SearchUnavailable):
        index.update(Sources(root))
    index.rebuild(Sources(root))
    assert {hit.session_id for hit in search_sessions(index, "heron")} == {
        session_id(1),
        session_id(2),
    }
    index.close()


def test_s11_a_page_that_is_damaged_in_use_sets_the_index_aside(path, root):
    size = path.stat().st_size
    with path.open("r+b") as file:
        for page in range(4_096, size, 4_096):
            file.seek(page)
            file.write(b"\xff" * 2_048)
    index = Index(path)
    for _ in range(3):
        try:
            index.update(Sources(root))
            found = {hit.session_id for hit in search_sessions(index, "heron")}
        except SearchUnavailable:
            continue
        if found:
            break
    assert found == {session_id(1), session_id(2)}
    index.close()


def test_s11_a_write_that_the_disk_refuses_for_a_moment_keeps_the_index(path, root):
    """Its vectors may have cost money, and `disk I/O error` passes with the cause."""
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO facts VALUES ('kept', 'yes')")
    talk = StoredSession(root, 3)
    talk.say(user("heron number 3 " + "in the reeds " * 20_000))
    talk.end()
    index = Index(path)
    index.build_id()
    _, hard_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, hard_limit))
    try:
        with pytest.raises(SearchUnavailable, match="disk I/O error"):
            index.update(Sources(root))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard_limit, hard_limit))
    index.update(Sources(root))
    assert len(search_sessions(index, "heron")) == 3
    with index.reading() as database:
        assert database.execute("SELECT value FROM facts WHERE name = 'kept'").fetchall()
    index.close()


def test_s11_locked_index_is_reported_and_recovers(path, root, monkeypatch):
    monkeypatch.setattr(index_module, "WAIT_SECONDS", 0.05)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    talk = StoredSession(root, 3)
    talk.say(user("heron number 3"))
    talk.end()
    index = Index(path)
    with pytest.raises(SearchUnavailable):
        index.update(Sources(root))
    assert len(search_sessions(index, "heron")) == 2
    holder.execute("ROLLBACK")
    holder.close()
    index.update(Sources(root))
    assert len(search_sessions(index, "heron")) == 3
    index.close()


@WITHOUT_RIGHTS
def test_s11_unwritable_cache_is_not_needed(path, root):
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.chmod(0o500)
    assert look(path, root) == {session_id(1), session_id(2)}
    assert list(path.parent.iterdir()) == []


FOLLOW = """
import sys
from pathlib import Path
from ouro.memory.index import Index, Sources
index = Index(Path(sys.argv[1]))
for _ in range(5):
    index.update(Sources(Path(sys.argv[2])))
with index.reading() as database:
    print(database.execute("SELECT count(*), count(DISTINCT text) FROM messages").fetchone())
"""


def test_s11_three_processes_at_once_make_one_index(home, root):
    for number in range(3, 23):
        talk = StoredSession(root, number)
        talk.say(user(f"heron number {number}"))
        talk.end()
    path = home / ".ouro" / "cache" / "index.db"
    command = [sys.executable, "-c", FOLLOW, str(path), str(root)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    done = [each.communicate() for each in running]
    assert [(out.strip(), error) for out, error in done] == [("(22, 22)", "")] * 3


def test_s11_a_session_that_cannot_be_read_hides_no_other(path, root):
    (broken,) = root.glob("*00000001*")
    (broken / "session.yaml").write_text("---\nsession: [\n...\n---\na: &a [*a]\n...\n")
    assert look(path, root) == {session_id(2)}


def notes_of(memory) -> list[tuple[str, str]]:
    index = Index(memory.parent / "cache" / "index.db")
    try:
        index.update(Sources(None, (MemoryFolder("user", "", memory),)))
        with index.reading() as database:
            return database.execute("SELECT note, text FROM notes ORDER BY note").fetchall()
    finally:
        index.close()


def test_m10_hostile_files_are_skipped(memory):
    (memory / "facts.md").write_bytes(b"- tea \x00\xff\xfe\n")
    with (memory / "preferences.md").open("wb") as file:
        file.truncate(100 << 20)
    (memory / "decisions.md").symlink_to("/etc/passwd")
    os.mkfifo(memory / "mem_00000001.md")
    (memory / "mem_00000002.md").write_text("---\na: &a [*a]\n---\nbody")
    (memory / "mem_x\ny.md").write_text("a name of two lines")
    (memory / "MEM_00000002.md").write_text("a twin")
    assert notes_of(memory) == [("facts.md:1", "- tea \ufffd\ufffd"), ("mem_00000002", "body")]


def test_m10_ten_thousand_facts_are_indexed(memory):
    (memory / "facts.md").write_text("".join(f"- fact {number}\n" for number in range(10_000)))
    assert len(notes_of(memory)) == 10_000


def test_m14_manually_reverted_or_removed_text_leaves_the_index(memory):
    note, facts = memory / "mem_3f6c1e00.md", memory / "facts.md"
    note.write_text(NOTE.format(id="3f6c1e00", text="Use the heron."))
    facts.write_text("- one\n- two\n")
    assert notes_of(memory) == [
        ("facts.md:1", "- one"),
        ("facts.md:2", "- two"),
        ("mem_3f6c1e00", "Use the heron."),
    ]
    note.unlink()
    facts.write_text("- two\n")
    assert notes_of(memory) == [("facts.md:1", "- two")]
    index = Index(memory.parent / "cache" / "index.db")
    assert [hit.text for hit in Search(index).find("heron one two", 9)] == ["- two"]
    index.close()


def test_m14_a_file_that_is_restored_with_its_old_time_is_seen(memory):
    """As `git checkout` may leave it: another text of the same size."""
    facts = memory / "facts.md"
    facts.write_text("- tea\n")
    assert notes_of(memory) == [("facts.md:1", "- tea")]
    kept = facts.stat()
    facts.write_text("- rum\n")
    os.utime(facts, ns=(kept.st_atime_ns, kept.st_mtime_ns + 1))
    assert notes_of(memory) == [("facts.md:1", "- rum")]


@pytest.mark.parametrize("number", ["99999999999999999999999", "-1", "9223372036854775808"])
def test_m10_note_with_an_out_of_range_number_hides_no_other(memory, number):
    (memory / "mem_3f6c1e00.md").write_text(
        f"---\nturn: {number}\nversion: {number}\n---\nUse the heron.\n"
    )
    (memory / "mem_3f6c1e01.md").write_text(NOTE.format(id="3f6c1e01", text="Use the crane."))
    assert notes_of(memory) == [
        ("mem_3f6c1e00", "Use the heron."),
        ("mem_3f6c1e01", "Use the crane."),
    ]


def test_m10_a_project_whose_name_is_no_text_hides_no_other(memory, home):
    (memory / "mem_3f6c1e00.md").write_text(NOTE.format(id="3f6c1e00", text="Use the heron."))
    odd = Path(os.fsdecode(bytes(home) + b"/caf\xe9"))
    odd.mkdir()
    (odd / "facts.md").write_text("- It is there.\n")
    index = Index(memory.parent / "cache" / "index.db")
    index.update(
        Sources(None, (MemoryFolder("repo", str(odd), odd), MemoryFolder("user", "", memory)))
    )
    with index.reading() as database:
        assert database.execute("SELECT text FROM notes").fetchall() == [("Use the heron.",)]
    index.close()


def test_m10_file_that_cannot_be_indexed_hides_no_other(memory, monkeypatch):
    for number in range(2):
        (memory / f"mem_3f6c1e0{number}.md").write_text(
            NOTE.format(id=f"3f6c1e0{number}", text=f"Note {number}.")
        )

    def feed(database, folder, path):
        if path.endswith("00.md"):
            raise OverflowError
        index_memory_file(database, folder, path)

    monkeypatch.setattr(memory_file_indexer, "index_memory_file", feed)
    assert notes_of(memory) == [("mem_3f6c1e01", "Note 1.")]
