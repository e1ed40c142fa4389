"""Lists of notes, and the details of one note: badges, links, the current confidence."""

from datetime import UTC, datetime, timedelta

import pytest
from fakes.knowledge import editor_of

from ouro.errors import UsageError
from ouro.memory.index import memory_file_indexer
from ouro.memory.index.memory_file_indexer import changed_files
from ouro.memory.long_term import MemoryEditor, details_of, list_entries, note_entries, open_file
from ouro.memory.long_term.git.files import blob_id
from ouro.memory.long_term.notes.note import Anchor, Edge, Note, note_text

BEFORE = blob_id(b"before\n")


def note(number, **other):
    return Note(**{"id": f"mem_{number:08d}", "text": f"Note {number}.", **other})


@pytest.fixture
def project(tmp_path):
    (tmp_path / "api.py").write_text("before\n")
    return tmp_path


@pytest.fixture(params=["index", "files", "index, as a command"])
def editor_with(request, project, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")

    def editor_with(*notes):
        editor = editor_of(
            home,
            project,
            indexed=request.param != "files",
            lists_files=request.param != "index, as a command",
        )
        editor.write("repo", {note.file_name: note_text(note) for note in notes}, "Add")
        return editor

    return editor_with


def badges(editor):
    return {int(entry.id[-1]): entry.badges for entry in note_entries(editor, stale=True)}


def versions(editor):
    return {int(entry.id[-1]): entry.versions for entry in note_entries(editor)}


def test_without_memory_in_use_no_entry_and_no_file_is_found():
    editor = MemoryEditor([])
    with pytest.raises(UsageError, match="There is no scope or category foo"):
        list_entries(editor, "foo")
    with pytest.raises(UsageError, match="There is no entry facts"):
        open_file(editor, "facts")


def test_list_shows_badges_and_version_counts(editor_with):
    editor = editor_with(
        note(1),
        note(2, supersedes="mem_00000001"),
        note(3, supersedes="mem_00000002"),
        note(4, branch="feature"),
    )
    assert badges(editor) == {1: ("replaced",), 2: ("replaced",), 3: (), 4: ("on feature",)}
    assert versions(editor) == {1: 1, 2: 2, 3: 3, 4: 1}
    assert [entry.id[-1] for entry in details_of(editor, "mem_00000002", 30).chain] == [
        "1",
        "2",
        "3",
    ]


def test_a_command_looks_at_no_file_that_was_listed_when_it_began(project, tmp_path, monkeypatch):
    """With 10,000 notes the second look at each was a seventh of `memory list`."""
    folders = []

    def changed(database, folder):
        folders.append(folder.scope)
        return changed_files(database, folder)

    monkeypatch.setattr(memory_file_indexer, "changed_files", changed)
    first = editor_of(tmp_path / "home", project, lists_files=False)
    first.write("repo", {note(1).file_name: note_text(note(1))}, "Add")
    assert len(note_entries(first)) == 1
    folders.clear()
    editor = editor_of(tmp_path / "home", project, lists_files=False)
    assert len(note_entries(editor)) == 1
    assert folders == []
    (editor.scope("repo").store.folder / note(2).file_name).write_text("Written meanwhile.\n")
    assert len(note_entries(editor_of(tmp_path / "home", project, lists_files=False))) == 2
    assert folders == ["repo"]


def test_cyclic_supersession_does_not_loop(editor_with):
    editor = editor_with(note(1, supersedes="mem_00000002"), note(2, supersedes="mem_00000001"))
    assert badges(editor) == dict.fromkeys((1, 2), ("replaced",))
    assert versions(editor) == {1: 2, 2: 2}


def test_both_sides_of_a_contradiction_are_marked(editor_with):
    editor = editor_with(note(1), note(2, related=(Edge("mem_00000001", "contradicts"),)))
    assert badges(editor) == {1: ("contradicted",), 2: ("contradicts",)}
    links = [details_of(editor, f"mem_0000000{number}", 30).links for number in (1, 2)]
    assert [[(link.relationship, link.text) for link in found] for found in links] == [
        [("contradicts, by", "Note 2.")],
        [("contradicts", "Note 1.")],
    ]


def test_note_is_stale_while_its_file_differs(editor_with, project):
    editor = editor_with(
        note(1, anchors=(Anchor("api.py", BEFORE),)), note(2, anchors=(Anchor("gone.py", BEFORE),))
    )
    assert badges(editor) == {1: (), 2: ("stale",)}
    (project / "api.py").write_text("after, and longer\n")
    assert badges(editor) == {1: ("stale",), 2: ("stale",)}
    assert details_of(editor, "mem_00000001", 30).stale == ("api.py",)


def test_unapproved_note_is_marked_unconfirmed(editor_with):
    editor = editor_with(note(1), note(2))
    scope = editor.scope("repo")
    (scope.store.folder / "mem_00000002.md").write_text(note_text(note(2, text="Other words.")))
    scope.refresh(agent_was_idle=False)
    assert badges(editor) == {1: (), 2: ("unconfirmed",)}
    assert details_of(editor, "mem_00000002", 30).entry.badges == ("unconfirmed",)


def test_confidence_decays_with_the_half_life_setting(editor_with):
    ago = (datetime.now(UTC) - timedelta(days=10)).isoformat()
    inferred = note(1, source="assistant", confirmed_at=ago)
    assert details_of(editor_with(inferred), inferred.id, 10).confidence == pytest.approx(
        0.5, abs=0.01
    )
