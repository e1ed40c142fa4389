"""/forget: find, show and archive, and how to restore."""

import pytest
from fakes.knowledge import editor_of

from ouro.errors import UsageError
from ouro.memory.long_term import (
    all_entries,
    find_to_forget,
    forget_entries,
    note_entries,
    remember_text,
)
from ouro.memory.long_term.notes.note import Note, new_id


@pytest.fixture
def ouro(home):
    return home / ".ouro"


@pytest.fixture
def editor(ouro, repository):
    return editor_of(ouro, repository)


def test_matches_are_found_in_core_lines_and_notes(editor):
    remember_text(editor, "My heron is called Rex")
    remember_text(editor, "The heron answers on port 7777, see api.py")
    remember_text(editor, "Always answer in German")
    assert [each.text for each in find_to_forget(editor, "HERON")] == [
        "My heron is called Rex",
        "The heron answers on port 7777, see api.py",
    ]
    assert [each.text for each in find_to_forget(editor, "answering german")] == [
        "Always answer in German"
    ]
    [heron] = find_to_forget(editor, "7777")
    assert (
        find_to_forget(editor, heron.id[:12]) == find_to_forget(editor, heron.id[4:12]) == [heron]
    )
    assert find_to_forget(editor, "zebra") == []
    with pytest.raises(UsageError, match="Nothing to forget"):
        find_to_forget(editor, "  ")


def test_forget_removes_lines_and_archives_notes_in_undoable_commits(editor, ouro, repository):
    note = remember_text(editor, "tabs in api.py are 4 wide")
    remember_text(editor, "repo: always use tabs")
    remember_text(editor, "repo: never review tabs")
    done = forget_entries(editor, find_to_forget(editor, "tabs"))
    assert all_entries(editor) == []
    [change] = done
    assert not (repository / ".ouro/memory/preferences.md").exists()
    assert (repository / ".ouro/memory/archive" / note.entry.file).exists()
    scope = editor.scope("repo")
    scope.undo(change.undo, editor.moment)
    assert (
        repository / ".ouro/memory/preferences.md"
    ).read_text() == "- always use tabs\n- never review tabs\n"
    assert len(all_entries(editor)) == 3


def test_all_versions_of_a_note_are_forgotten(editor):
    first = editor.notebook.add(Note(id=new_id(), scope="user", text="Rex is 3"), "capture").note
    second = editor.notebook.add(
        editor.notebook.link(
            Note(id=new_id(), scope="user", text="Rex is 4"), "supersede", first.id
        ),
        "capture",
    ).note
    [entry] = find_to_forget(editor, "Rex")
    assert (entry.id, entry.versions) == (second.id, 2)
    forget_entries(editor, [entry])
    assert {each.id for each in note_entries(editor) if each.archived} == {first.id, second.id}


def test_line_changed_meanwhile_is_not_removed(editor, ouro):
    remember_text(editor, "Always answer in German")
    found = find_to_forget(editor, "german")
    (ouro / "memory" / "preferences.md").write_text("- Never shout\n")
    with pytest.raises(UsageError, match="has changed since it was read"):
        forget_entries(editor, found)
    assert (ouro / "memory" / "preferences.md").read_text() == "- Never shout\n"


def test_id_selects_a_single_entry(editor):
    remember_text(editor, "My heron is called Rex")
    remember_text(editor, "My other heron is called Max")
    assert [each.text for each in find_to_forget(editor, "user/facts.md:2")] == [
        "My other heron is called Max"
    ]


def test_concurrent_change_is_not_overwritten(editor, ouro, repository):
    remember_text(editor, "My heron is called Rex")
    before = editor.text("user", "facts.md")
    remember_text(editor_of(ouro, repository), "My crane is called Ada")
    with pytest.raises(UsageError, match=r"facts\.md has changed meanwhile; nothing was written"):
        editor.write("user", {"facts.md": before.replace("Rex", "Max")}, "Edit facts.md")
    assert editor.text("user", "facts.md") == "- My heron is called Rex\n- My crane is called Ada\n"
