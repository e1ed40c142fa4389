"""/forget: found, shown, out of use; with the way back."""

import pytest
from fakes.desks import desk_of

from ouro.errors import UsageError
from ouro.memory.long_term.entries import all_entries, note_entries
from ouro.memory.long_term.notes.note import Note, new_id
from ouro.memory.long_term.remember import find_to_forget, forget_entries, remember_text


@pytest.fixture
def ouro(home):
    return home / ".ouro"


@pytest.fixture
def desk(ouro, repository):
    return desk_of(ouro, repository)


def test_what_fits_is_found_by_its_words_in_core_and_notes(desk):
    remember_text(desk, "My heron is called Rex")
    remember_text(desk, "The heron answers on port 7777, see api.py")
    remember_text(desk, "Always answer in German")
    assert [each.text for each in find_to_forget(desk, "HERON")] == [
        "My heron is called Rex",
        "The heron answers on port 7777, see api.py",
    ]
    assert [each.text for each in find_to_forget(desk, "answering german")] == ["Always answer in German"]
    assert find_to_forget(desk, "zebra") == []
    with pytest.raises(UsageError, match="Nothing to forget"):
        find_to_forget(desk, "  ")


def test_lines_go_and_notes_are_put_away_in_one_commit_a_scope_that_can_be_undone(desk, ouro, repository):
    note = remember_text(desk, "tabs in api.py are 4 wide")
    remember_text(desk, "repo: tabs, always")
    remember_text(desk, "We always review tabs")
    done = forget_entries(desk, find_to_forget(desk, "tabs"))
    assert all_entries(desk) == []
    [change] = done
    assert not (repository / ".ouro/memory/preferences.md").exists()
    assert (repository / ".ouro/memory/archive" / note.entry.file).exists()
    scope = desk.scope("repo")
    scope.undo(change.undo, desk.moment)
    assert (repository / ".ouro/memory/preferences.md").read_text() == "- tabs, always\n- We always review tabs\n"
    assert len(all_entries(desk)) == 3


def test_all_versions_of_a_note_go_with_it(desk):
    first = desk.notebook.add(Note(id=new_id(), scope="user", text="Rex is 3"), "capture").note
    second = desk.notebook.add(
        desk.notebook.linked(Note(id=new_id(), scope="user", text="Rex is 4"), "supersede", first.id), "capture"
    ).note
    [entry] = find_to_forget(desk, "Rex")
    assert (entry.id, entry.versions) == (second.id, 2)
    forget_entries(desk, [entry])
    assert {each.id for each in note_entries(desk) if each.archived} == {first.id, second.id}


def test_a_line_that_changed_meanwhile_is_not_taken_for_another(desk, ouro):
    remember_text(desk, "Always answer in German")
    found = find_to_forget(desk, "german")
    (ouro / "memory" / "preferences.md").write_text("- Never shout\n")
    with pytest.raises(UsageError, match="has changed since it was read"):
        forget_entries(desk, found)
    assert (ouro / "memory" / "preferences.md").read_text() == "- Never shout\n"


def test_one_that_is_named_by_its_id_is_meant_alone(desk):
    remember_text(desk, "My heron is called Rex")
    remember_text(desk, "My other heron is called Max")
    assert [each.text for each in find_to_forget(desk, "user/facts.md:2")] == ["My other heron is called Max"]


def test_what_another_ouro_wrote_since_the_file_was_read_is_not_written_over(desk, ouro, repository):
    remember_text(desk, "My heron is called Rex")
    before = desk.text("user", "facts.md")
    remember_text(desk_of(ouro, repository), "My crane is called Ada")
    with pytest.raises(UsageError, match=r"facts\.md has changed meanwhile; nothing was written"):
        desk.write("user", {"facts.md": before.replace("Rex", "Max")}, "Edit facts.md")
    assert desk.text("user", "facts.md") == "- My heron is called Rex\n- My crane is called Ada\n"
