"""What a list of notes says of each, and what is told of one: badges, the confidence of now."""

from datetime import UTC, datetime, timedelta

import pytest

from ouro.memory.index import Index
from ouro.memory.long_term.git.files import blob_id
from ouro.memory.long_term.notes.note import Anchor, Edge, Note, note_text
from ouro.memory.long_term.overview import Overview
from ouro.memory.long_term.store import repo_store

BEFORE = blob_id(b"before\n")


def note(number, **other):
    return Note(**{"id": f"mem_{number:08d}", "text": f"Note {number}.", **other})


@pytest.fixture
def project(tmp_path):
    (tmp_path / "api.py").write_text("before\n")
    return tmp_path


@pytest.fixture
def overview(project, tmp_path_factory):
    place = tmp_path_factory.mktemp("home")
    store = repo_store(project, place / "history.git", lambda _text: "")
    index = Index(place / "index.db")

    def overview(*notes, **options):
        store.save_and_commit({each.file_name: note_text(each) for each in notes}, "Add")
        return Overview(index, [store], project, **options)

    yield overview
    index.close()


def badges(overview):
    return {int(each.id[-1]): each.badges for each in overview.all()}


def test_a_list_tells_what_changed_how_often_and_what_took_its_place(overview):
    found = overview(
        note(1), note(2, supersedes="mem_00000001"), note(3, supersedes="mem_00000002"), note(4, branch="feature")
    )
    assert badges(found) == {
        1: ("replaced",),
        2: ("replaced", "changed 1 time"),
        3: ("changed 2 times",),
        4: ("on feature",),
    }


def test_notes_that_supersede_each_other_end_the_count(overview):
    found = overview(note(1, supersedes="mem_00000002"), note(2, supersedes="mem_00000001"))
    assert badges(found) == dict.fromkeys((1, 2), ("replaced", "changed 1 time"))


def test_both_sides_of_a_contradiction_are_marked(overview):
    found = overview(note(1), note(2, related=(Edge("mem_00000001", "contradicts"),)))
    assert badges(found) == {1: ("contradicted",), 2: ("contradicts",)}
    assert [found.details(f"mem_0000000{n}").badges for n in (1, 2)] == [("contradicted",), ("contradicts",)]


def test_a_note_is_stale_while_its_file_is_not_as_it_was(overview, project):
    found = overview(note(1, anchors=(Anchor("api.py", BEFORE),)), note(2, anchors=(Anchor("gone.py", BEFORE),)))
    assert badges(found) == {1: (), 2: ("stale",)}
    (project / "api.py").write_text("after, and longer\n")
    assert badges(found) == {1: ("stale",), 2: ("stale",)}
    assert found.details("mem_00000001").badges == ("stale: api.py",)
    found = overview(note(1))
    assert badges(found)[1] == ()


def test_what_nobody_has_vouched_for_is_unconfirmed(overview):
    found = overview(note(1), note(2), untrusted=lambda: {("repo", "mem_00000002.md")})
    assert badges(found) == {1: (), 2: ("unconfirmed",)}
    assert found.details("mem_00000002").badges == ("unconfirmed",)


def test_confidence_fades_with_the_half_life_of_the_settings(overview):
    ago = (datetime.now(UTC) - timedelta(days=10)).isoformat()
    concluded = note(1, source="assistant", confirmed_at=ago)
    assert overview(concluded, half_life_days=10).details(concluded.id).confidence == pytest.approx(0.5, abs=0.01)
