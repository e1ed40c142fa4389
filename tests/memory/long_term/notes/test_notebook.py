import pytest
from msgspec.structs import replace

from ouro.errors import NoteError, SecretInMemory
from ouro.memory.long_term import GitMemoryStore, Notebook
from ouro.memory.long_term.notes.note import Anchor, Edge, Note, note_text
from ouro.memory.long_term.notes.notebook import NoteFile
from ouro.memory.long_term.notes.validity import Anchors

NOW = "2026-11-21T20:31:00Z"


@pytest.fixture
def stores(tmp_path):
    return {
        scope: GitMemoryStore(
            tmp_path / scope,
            scope,
            tmp_path / "history" / f"{scope}.git",
            finds_secret=lambda text: "a password" if "hunter2" in text else "",
        )
        for scope in ("user", "repo")
    }


@pytest.fixture
def notebook(stores, monkeypatch):
    monkeypatch.setattr("ouro.memory.long_term.notes.notebook.timestamp", lambda: NOW)
    return Notebook(stores)


def note(number: int = 1, **fields) -> Note:
    return Note(
        id=f"mem_0000000{number}", text=f"Thing {number}.", session_id="s-1", turn=7, **fields
    )


def with_dates(one: Note, **fields) -> Note:
    return replace(one, created_at=NOW, updated_at=NOW, confirmed_at=NOW, **fields)


def test_note_is_committed_in_the_folder_of_its_scope_with_its_source(notebook, stores):
    written = notebook.add(note(scope="user"), "capture")

    assert (stores["user"].folder / "mem_00000001.md").read_text() == note_text(
        with_dates(note(scope="user"))
    )
    assert list(notebook.all()) == [
        NoteFile(with_dates(note(scope="user")), "user", "mem_00000001.md")
    ]
    (commit,) = stores["user"].log()
    assert (commit.id, commit.subject) == (written.commit, "Add: Thing 1.")
    assert commit.trailers == {"Ouro-Origin": "capture", "Ouro-Session": "s-1", "Ouro-Turn": "7"}


def test_superseding_note_follows_the_latest_version(stores):
    latest: dict[str, str] = {}
    notebook = Notebook(stores, latest=lambda note_id: latest.get(note_id, note_id))
    notebook.add(note(1), "capture")
    notebook.add(notebook.link(note(2), "supersede", "mem_00000001"), "capture", change="supersede")
    latest["mem_00000001"] = "mem_00000002"

    written = notebook.add(
        notebook.link(note(3), "supersede", "mem_00000001"), "capture", change="supersede"
    )

    assert (written.note.supersedes, written.note.version) == ("mem_00000002", 3)
    assert [kept.note.id for kept in notebook.all()] == [
        "mem_00000001",
        "mem_00000002",
        "mem_00000003",
    ]


def test_refining_note_is_linked_to_its_target(notebook):
    notebook.add(note(1), "capture")

    written = notebook.add(
        notebook.link(note(2), "refine", "mem_00000001"), "capture", change="refine"
    )

    assert (written.change, notebook.find("mem_00000002").note.related) == (
        "refine",
        (Edge("mem_00000001", "refines"),),
    )


def test_confirmation_raises_confidence_and_updates_the_time(notebook):
    notebook.add(
        note(1, source="assistant", confidence=0.6, confirmed_at="2020-01-01T00:00:00Z"), "capture"
    )

    notebook.confirm("mem_00000001", "capture")

    found = notebook.find("mem_00000001").note
    assert (found.confidence, found.confirmed_at) == (0.75, NOW)


def test_archived_note_is_kept_and_restored_by_a_confirmation(notebook):
    notebook.add(note(1), "capture")
    notebook.add(note(2, scope="user"), "capture")

    done = notebook.archive(["mem_00000001", "mem_00000002"], "capture")

    assert [(each.change, each.scope) for each in done] == [
        ("archive", "user"),
        ("archive", "repo"),
    ]
    assert list(notebook.all()) == []
    assert {kept.name for kept in notebook.all(archived=True)} == {
        "archive/mem_00000001.md",
        "archive/mem_00000002.md",
    }
    assert notebook.archive(["mem_00000001"], "capture") == []

    notebook.confirm("mem_00000001", "person")
    assert [kept.name for kept in notebook.all()] == ["mem_00000001.md"]
    notebook.confirm("mem_00000002", "person")
    assert [kept.name for kept in notebook.all()] == ["mem_00000002.md", "mem_00000001.md"]


def test_a_rewritten_note_moves_with_its_scope(notebook):
    notebook.add(note(1), "capture")

    notebook.rewrite(
        replace(notebook.find("mem_00000001").note, scope="user", text="Other."), "person"
    )

    found = notebook.find("mem_00000001")
    assert (found.scope, found.note.text) == ("user", "Other.")
    assert len(list(notebook.all())) == 1


def test_secret_is_refused(notebook, stores):
    with pytest.raises(SecretInMemory):
        notebook.add(replace(note(1), text="The password is hunter2."), "capture")

    assert not stores["repo"].folder.exists()


@pytest.mark.parametrize("note_id", ["mem_99999999", "../facts", "facts", ""])
def test_missing_note_raises(notebook, note_id):
    for change in (
        notebook.find,
        lambda one: notebook.confirm(one, "person"),
        lambda one: notebook.archive([one], "person"),
    ):
        with pytest.raises(NoteError):
            change(note_id)


def test_disabled_scope_raises(stores):
    with pytest.raises(NoteError, match="The repo memory is off here"):
        Notebook({"user": stores["user"]}).add(note(1), "capture")


def test_broken_note_file_keeps_its_text(notebook, stores):
    notebook.add(note(1), "capture")
    (stores["repo"].folder / "mem_00000001.md").write_text("---\nid: [\n---\nWords.\n")

    (kept,) = notebook.all()

    assert kept.note == Note(id="mem_00000001", text="Words.")
    assert len(kept.problems) == 1


def test_related_notes_are_linked_once_to_their_latest_version(stores):
    notebook = Notebook(stores, latest=lambda note_id: note_id.replace("1", "3"))
    for number in (1, 2, 3):
        notebook.add(note(number), "capture")

    linked = notebook.link(
        note(4), "refine", "mem_00000002", ["mem_00000001", "mem_00000003", "mem_00000002"]
    )

    assert linked.related == (Edge("mem_00000002", "refines"), Edge("mem_00000003", "relates-to"))


def test_note_confirmed_by_the_user_gets_user_source_and_new_anchors(stores, tmp_path):
    (tmp_path / "api.py").write_text("new")
    notebook = Notebook(stores, anchors=Anchors(tmp_path))
    concluded = note(1, source="assistant", confidence=0.4, entities=("file:api.py",))
    notebook.add(replace(concluded, anchors=(Anchor("api.py", "0"),)), "capture")

    notebook.confirm("mem_00000001", "person")

    found = notebook.find("mem_00000001").note
    assert (found.source, found.confidence, Anchors(tmp_path).changed_paths(found.anchors)) == (
        "user",
        0.9,
        (),
    )


def test_note_that_supersedes_a_missing_one_is_not_written(notebook):
    note = Note(id="mem_00000001", scope="user", text="x", supersedes="mem_00000002")
    with pytest.raises(NoteError):
        notebook.add(note, "person")
    assert not list(notebook.all())
