"""The index follows the files: appended, edited, deleted and added."""

import sqlite3

import pytest
from fakes.entered_functions import counted_calls
from fakes.stored_sessions import AT, NOTE, StoredSession, session_id
from fakes.waiting import wait

from ouro.errors import SearchUnavailable
from ouro.memory.backend import SummaryRecord, TitleRecord
from ouro.memory.index import (
    Index,
    MemoryFolder,
    Sources,
    memory_file_indexer,
    search_sessions,
    session_indexer,
)
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, Text, Thinking, ToolCall, ToolReply, assistant, tool, user
from ouro.utils.files import lock_file


@pytest.fixture
def root(home):
    return home / ".ouro" / "sessions"


@pytest.fixture
def memory(home):
    folder = home / ".ouro" / "memory"
    folder.mkdir(mode=0o700, parents=True)
    return folder


@pytest.fixture
def index(home):
    index = Index(home / ".ouro" / "cache" / "index.db")
    yield index
    index.close()


def sources(root, memory) -> Sources:
    return Sources(root, (MemoryFolder("user", "", memory),))


def rows(index) -> list[tuple]:
    with index.reading() as database:
        return database.execute("SELECT number, role, text FROM messages ORDER BY id").fetchall()


def noted(index) -> list[tuple]:
    with index.reading() as database:
        return database.execute(
            "SELECT note, kind, text, archived FROM notes ORDER BY note"
        ).fetchall()


def session_file(root):
    [found] = root.glob("*/session.yaml")
    return found


@pytest.mark.parametrize("notes", [0, 100, 1_000])
def test_notes_whose_state_is_known_are_not_looked_at_again(index, memory, notes):
    for number in range(notes):
        (memory / f"mem_{number:08x}.md").write_text(NOTE)
    known = Sources(memories=(MemoryFolder("user", "", memory, state="one"),))
    index.update(known)
    assert len(noted(index)) == notes
    with counted_calls(
        memory_file_indexer.changed_files, memory_file_indexer._files_with_times
    ) as counts:
        index.update(known)
    assert not counts
    (memory / "mem_ffffffff.md").write_text(NOTE)
    index.update(Sources(memories=(MemoryFolder("user", "", memory, state="two"),)))
    assert len(noted(index)) == notes + 1
    index.rebuild(known)
    assert len(noted(index)) == notes + 1


def test_messages_and_tool_outputs_are_indexed_apart(index, root, memory):
    talk = StoredSession(root)
    talk.say(
        user("fix api.py", context="the date is today"),
        Message(
            "assistant",
            (Thinking("hm"), Text("I look."), ToolCall("1", "shell", {"command": "pytest -q"})),
        ),
        tool(ToolReply("1", "shell", "2 failed")),
        assistant("Two tests fail."),
    )
    talk.end()
    assert index.update(sources(root, memory)) == 1
    assert rows(index) == [
        (1, "user", "fix api.py"),
        (2, "assistant", "I look."),
        (4, "assistant", "Two tests fail."),
    ]
    with index.reading() as database:
        outputs = database.execute("SELECT number, role, text FROM outputs ORDER BY id").fetchall()
    assert outputs == [(2, "shell", "pytest -q"), (3, "shell", "2 failed")]


def test_only_appended_records_are_read(index, root, memory):
    talk = StoredSession(root)
    talk.say(user("one"))
    index.update(sources(root, memory))
    with index.reading() as database:
        before = database.execute("SELECT seq, read FROM sessions").fetchone()
    talk.say(assistant("two"))
    talk.change(TitleRecord("counting", AT))
    talk.change(SummaryRecord("They counted.", AT, 2))
    assert index.update(sources(root, memory)) == 1
    assert [text for _, _, text in rows(index)] == ["one", "two"]
    with index.reading() as database:
        row = database.execute("SELECT seq, title, summary, messages FROM sessions").fetchone()
        read = database.execute("SELECT read FROM sessions").fetchone()[0]
    assert row == (before[0], "counting", "They counted.", 2)
    assert before[1] < read == session_file(root).stat().st_size
    assert index.update(sources(root, memory)) == 0


def test_edited_session_is_reindexed(index, root, memory):
    talk = StoredSession(root)
    talk.say(user("the colour is red"), assistant("noted"))
    talk.end()
    index.update(sources(root, memory))
    file = session_file(root)
    file.write_text(file.read_text().replace("red", "teal"))
    index.update(sources(root, memory))
    assert rows(index) == [(1, "user", "the colour is teal"), (2, "assistant", "noted")]
    with index.reading() as database:
        hits = database.execute(
            "SELECT count(*) FROM messages_words WHERE messages_words MATCH 'red'"
        ).fetchone()
    assert hits == (0,)


def test_long_session_is_indexed_in_portions_and_resumed(index, root, memory, monkeypatch):
    monkeypatch.setattr(session_indexer, "_PORTION_BYTES", 400)
    monkeypatch.setattr(session_indexer, "_MAX_REMOVED_ROWS", 2)

    class Stopped(Exception):
        pass

    def stop_after(portions):
        calls = iter(range(portions))

        def check(_done, _all):
            if next(calls, None) is None:
                raise Stopped

        with pytest.raises(Stopped):
            index.update(sources(root, memory), check)
        return [text for _, _, text in rows(index)]

    talk = StoredSession(root)
    texts = [f"message {number}" for number in range(12)]
    talk.say(*(user(text) for text in texts))
    talk.end()
    begun = stop_after(1)
    assert begun == texts[: len(begun)] != texts
    assert index.update(sources(root, memory)) == 1
    assert [text for _, _, text in rows(index)] == texts
    assert index.update(sources(root, memory)) == 0

    file = session_file(root)
    file.write_text(file.read_text().replace("message 0", "changed"))
    assert stop_after(2) == texts[4:]
    index.update(sources(root, memory))
    assert [text for _, _, text in rows(index)] == ["changed", *texts[1:]]
    wait(YamlFileMemoryStore(root).delete_session(session_id(1)))
    assert stop_after(1) == texts[2:]
    assert (index.update(sources(root, memory)), rows(index)) == (1, [])


def test_deleted_session_is_removed(index, root, memory):
    for number in (1, 2):
        talk = StoredSession(root, number)
        talk.say(user(f"session {number}"))
        talk.end()
    index.update(sources(root, memory))
    wait(YamlFileMemoryStore(root).delete_session(session_id(1)))
    index.update(sources(root, memory))
    assert rows(index) == [(1, "user", "session 2")]


def test_incomplete_record_is_read_once_it_is_complete(index, root, memory):
    talk = StoredSession(root)
    talk.say(user("whole"))
    talk.end()
    file = session_file(root)
    with file.open("ab") as end:
        end.write(f"---\nmessage: 2\nat: {AT}\nrole: user\ntext: half".encode())
    index.update(sources(root, memory))
    assert [text for _, _, text in rows(index)] == ["whole"]
    with file.open("ab") as end:
        end.write(b" and half\n...\n")
    index.update(sources(root, memory))
    assert [text for _, _, text in rows(index)] == ["whole", "half and half"]


def test_a_long_message_is_found_by_any_of_its_passages(index, root, memory):
    talk = StoredSession(root)
    talk.say(
        user(
            "\n\n".join(f"Paragraph {number}. " + "words " * 60 for number in range(12))
            + " zanzibar"
        )
    )
    talk.end()
    index.update(sources(root, memory))
    assert {number for number, _, _ in rows(index)} == {1}
    assert len(rows(index)) > 3
    [hit] = search_sessions(index, "zanzibar")
    assert (hit.session_id, hit.number) == (session_id(1), 1)


def test_notes_and_core_lines_are_indexed_with_all_fields(index, root, memory):
    (memory / "facts.md").write_text("# Facts\n\n- likes tea\n- uses vim\n")
    (memory / "mem_3f6c1e00.md").write_text(NOTE.format(id="3f6c1e00", text="Use flask."))
    (memory / "README.md").write_text("not memory")
    index.update(sources(root, memory))
    assert noted(index) == [
        ("facts.md:3", "core", "- likes tea", 0),
        ("facts.md:4", "core", "- uses vim", 0),
        ("mem_3f6c1e00", "note", "Use flask.", 0),
    ]
    with index.reading() as database:
        assert database.execute("SELECT entity FROM entities ORDER BY 1").fetchall() == [
            ("file:api.py",),
            ("pkg:flask",),
        ]
        edges = database.execute("SELECT note, relationship, other FROM edges").fetchall()
        relations = database.execute("SELECT source, relation, target FROM relations").fetchall()
        row = database.execute(
            "SELECT scope, category, confidence, session, turn, supersedes, at FROM notes WHERE"
            " kind = 'note'"
        ).fetchone()
    assert edges == [("mem_3f6c1e00", "refines", "mem_77777777")]
    assert relations == [("file:api.py", "uses", "pkg:flask")]
    assert row == (
        "user",
        "coding-preferences",
        0.9,
        "s",
        2,
        "mem_00000000",
        "2026-11-20T10:00:00Z",
    )


def test_edited_notes_are_reindexed(index, root, memory):
    note = memory / "mem_3f6c1e00.md"
    note.write_text(NOTE.format(id="3f6c1e00", text="Use flask."))
    (memory / "facts.md").write_text("- likes tea\n")
    index.update(sources(root, memory))
    note.write_text(NOTE.format(id="3f6c1e00", text="Use django."))
    (memory / "facts.md").unlink()
    index.update(sources(root, memory))
    assert noted(index) == [("mem_3f6c1e00", "note", "Use django.", 0)]
    (memory / "archive").mkdir(mode=0o700)
    note.rename(memory / "archive" / note.name)
    index.update(sources(root, memory))
    assert noted(index) == [("mem_3f6c1e00", "note", "Use django.", 1)]
    with index.reading() as database:
        assert database.execute("SELECT count(*) FROM edges").fetchone() == (1,)


def test_rebuild_gives_the_same_index_and_reports_progress(index, root, memory):
    for number in range(1, 4):
        talk = StoredSession(root, number)
        talk.say(user(f"session {number}"))
        talk.end()
    (memory / "facts.md").write_text("- likes tea\n")
    index.update(sources(root, memory))
    before, told = (rows(index), noted(index)), []
    assert index.rebuild(sources(root, memory), lambda done, whole: told.append((done, whole))) == 4
    assert (rows(index), noted(index)) == before
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]


def test_index_deleted_while_open_is_recreated(index, root, memory, home):
    talk = StoredSession(root)
    talk.say(user("one"))
    talk.end()
    index.update(sources(root, memory))
    for file in (home / ".ouro" / "cache").iterdir():
        file.unlink()
    index.update(sources(root, memory))
    assert rows(index) == [(1, "user", "one")]
    with sqlite3.connect(home / ".ouro" / "cache" / "index.db") as other:
        assert other.execute("SELECT text FROM messages").fetchall() == [("one",)]


def test_index_files_are_private(index, root, memory, home):
    index.update(sources(root, memory))
    cache = home / ".ouro" / "cache"
    assert {oct(file.stat().st_mode & 0o777) for file in (cache, *cache.iterdir())} == {
        "0o700",
        "0o600",
    }


def test_sessions_are_found_by_words_and_prefixes(index, root, memory):
    for number, (words, project) in enumerate(
        [("sqlite locks", "/a"), ("sqlite pages", "/b"), ("tea", "/a")], 1
    ):
        talk = StoredSession(root, number, project)
        talk.say(user("hello"), assistant(f"we spoke of {words} here"))
        talk.end()
    index.update(sources(root, memory))
    found = search_sessions(index, "spoke sqli")
    assert sorted((hit.session_id, hit.number, hit.snippet) for hit in found) == [
        (session_id(1), 2, "we spoke of sqlite locks here"),
        (session_id(2), 2, "we spoke of sqlite pages here"),
    ]
    assert search_sessions(index, '"* OR ') == []
    assert len(search_sessions(index, "spoke", limit=2)) == 2


def test_lock_error_names_another_process_only_if_there_is_one(index, root, memory, monkeypatch):
    monkeypatch.setattr("ouro.memory.index.index.WAIT_SECONDS", 0)
    index.build_id()
    lock = index._path.with_name("index.db.feed.lock")
    with lock_file(lock), pytest.raises(SearchUnavailable, match="Another process"):
        index.update(sources(root, memory))
    lock.unlink()
    lock.mkdir()
    with pytest.raises(SearchUnavailable, match=r"cannot be written: .*Is a directory"):
        index.update(sources(root, memory))


def test_an_index_closed_by_another_thread_is_unavailable_for_writing(index, root, memory):
    index.update(sources(root, memory))
    opened = index._open_writer

    def open_and_close():
        opened()
        index.close()

    index._open_writer = open_and_close
    with pytest.raises(SearchUnavailable), index.writing():
        pass
    index._open_writer = opened
    with index.writing() as database:
        assert database.execute("SELECT count(*) FROM notes").fetchone() == (0,)
