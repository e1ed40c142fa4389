"""The cost of many notes, in counts that do not depend on the machine: files read, calls of stat,
git processes.
"""

import os
from collections import Counter

import pytest
from fakes.knowledge import Conversation, unapproved, write_as_user

from ouro.memory.long_term import GitMemoryStore, ScopeMemory, listing_schedule
from ouro.memory.long_term.git import files, repository
from ouro.memory.long_term.scope import TurnRef
from ouro.memory.long_term.trust.provenance import Provenance
from ouro.messages import user

NOTES = 120
AT = TurnRef("s" * 8, 1)


@pytest.fixture
def notes(tmp_path):
    """A folder with notes that were not written by ouro."""
    folder = tmp_path / "memory"
    folder.mkdir()
    for number in range(NOTES):
        (folder / f"mem_{number:08x}.md").write_text(f"note {number}\n")
    return folder


@pytest.fixture
def count(monkeypatch):
    """Counts the files read, the calls of stat, and the git processes."""
    counts = Counter()

    def counted(place, name, what):
        original = getattr(place, name)

        def call(*args, **options):
            counts[what] += 1
            return original(*args, **options)

        monkeypatch.setattr(place, name, call)

    counted(files, "_read_file", "read")
    counted(os, "stat", "looked at")
    counted(repository, "run_memory_git", "git")
    monkeypatch.setattr(files, "TIME_STEP_NS", -(10**18))  # all files are old enough
    return counts


def open_memory(folder):
    """The memory as a new process opens it."""
    scope = ScopeMemory(GitMemoryStore(folder, "user", folder.parent / "history" / "user.git"))
    scope.open()
    return scope


def accepted(folder):
    scope = open_memory(folder)
    (waiting,) = scope.proposals()
    scope.accept(waiting, AT)
    return scope


def test_untrusted_notes_are_read_once_not_at_each_start(notes, count):
    open_memory(notes)
    assert count["read"] == NOTES
    count.clear()

    assert len(open_memory(notes).untrusted) == NOTES
    assert count["read"] == 0


def test_changed_note_with_same_size_and_times_is_detected(notes, count):
    accepted(notes)
    note = notes / "mem_00000007.md"
    found = note.stat()
    note.write_text("note Z\n")
    os.utime(note, ns=(found.st_atime_ns, found.st_mtime_ns))

    assert open_memory(notes).untrusted == ("mem_00000007.md",)


def test_damaged_read_cache_does_not_make_a_note_trusted(notes, count):
    accepted(notes)
    (notes / "mem_00000007.md").write_text("note Z\n")
    (notes.parent / "history" / "user.blobs").write_text("{")

    assert open_memory(notes).untrusted == ("mem_00000007.md",)


def test_writing_a_line_takes_two_git_processes_and_reads_no_note(notes, count):
    accepted(notes)
    open_memory(notes).write({"facts.md": "- One.\n"}, "Learn", AT, "person")
    scope = open_memory(notes)
    count.clear()

    scope.write({"facts.md": "- One.\n- Two.\n"}, "Learn", AT, "person")

    assert count["git"] <= 3  # the files of the last commit, the new commit, the index of plain git
    assert count["read"] < 10
    count.clear()
    scope.write({"facts.md": "- One.\n- Two.\n- Three.\n"}, "Learn", AT, "person")
    assert count["git"] == 2


def test_an_accepted_text_is_read_from_the_history_once(notes, count):
    store = accepted(notes).store
    note, other = sorted(path.name for path in notes.glob("*.md"))[:2]
    text = (notes / note).read_text()
    assert store.accepted_texts([note]) == {note: text}
    (notes / note).write_text("changed\n")
    count.clear()

    assert store.accepted_texts([note]) == {note: text}
    [edit] = store.edits_since(store.accepted)
    assert (edit.before, edit.after) == (text, "changed\n")
    assert count["git"] == 0
    assert store.accepted_texts([note, other]).keys() == {note, other}
    assert count["git"] == 1


def test_start_stats_each_note_once_and_a_tool_call_none(notes, count):
    accepted(notes)
    count.clear()

    scope = open_memory(notes)

    assert count["looked at"] - NOTES < 40
    assert (count["read"], count["git"]) == (0, 0)
    count.clear()
    scope.tool_ended(lambda: Provenance([user("hello")], (notes,), is_whole=True), AT, asks=False)
    assert count["looked at"] < 20


def test_accepting_many_notes_reads_each_a_few_times(notes, count):
    scope = open_memory(notes)
    (waiting,) = scope.proposals()
    count.clear()

    scope.accept(waiting, AT)

    assert count["read"] <= 6 * NOTES
    assert count["git"] <= 6
    assert open_memory(notes).untrusted == ()


@pytest.fixture
async def session(home):
    session = Conversation(home / ".ouro").connect()
    notes = {f"mem_{number:032x}.md": f"note {number}\n" for number in range(5)}
    await write_as_user(session.manager, "user", {**notes, "facts.md": "- One.\n"}, "notes")
    await session.begin("Look at the README.")
    return session


async def test_a_tool_call_that_wrote_no_memory_lists_no_folder(session, monkeypatch):
    monkeypatch.setattr(os, "listdir", None)
    await session.call("shell", {"command": "make"})


@pytest.mark.parametrize("name", ["facts.md", "mem_new.md"])
async def test_memory_written_by_a_tool_call_is_noticed_at_once(session, name):
    await session.begin("I use uv.")
    path = session.folder / name
    text = f"{path.read_text() if path.exists() else ''}- Uses uv.\n"
    await session.call("shell", {"command": "make"}, act=lambda: path.write_text(text))
    assert unapproved(session.scopes["user"].store) == ()


async def test_note_overwritten_by_a_command_is_found_at_the_turn_end(session):
    path = session.folder / f"mem_{3:032x}.md"
    await session.call("shell", {"command": "make"}, act=lambda: path.write_text("evil 3\n"))
    await session.end()
    assert [each.origin for each in session.manager.proposals()] == ["outside"]


async def test_a_first_turn_without_tools_lists_the_folder_once(home, session, monkeypatch):
    await session.end()
    listed = []
    list_folder = files._list_folder

    def count(*arguments):
        listed.append(arguments)
        return list_folder(*arguments)

    monkeypatch.setattr(files, "_list_folder", count)
    monkeypatch.setattr(listing_schedule, "_MAX_AGE_OF_START", 600.0)
    other = Conversation(home / ".ouro", session="s-2").connect()
    await other.begin("What is the port?")
    await other.end()
    assert len(listed) == 1


async def test_note_overwritten_in_a_turn_without_tools_is_found_at_the_next(session, monkeypatch):
    monkeypatch.setattr(listing_schedule, "_MAX_AGE_OF_START", 0.0)
    note = session.folder / f"mem_{3:032x}.md"
    await session.end()
    note.write_text("evil 3\n")
    version = session.scopes["user"].loaded
    await session.begin("What is the port?")
    assert session.scopes["user"].loaded.files[note.name] != version.files[note.name]


async def test_the_fingerprint_of_memory_is_made_once(session):
    loaded = session.scopes["user"].loaded
    assert loaded.fingerprint is loaded.fingerprint


async def test_a_line_is_committed_without_listing_the_folder(session, monkeypatch):
    monkeypatch.setattr(os, "listdir", None)
    store = session.scopes["user"].store
    assert store.save_and_commit({"facts.md": "- One.\n- Two.\n"}, "Learn")
    assert store.accepted == store.get_current_head()
