"""Problems of a memory are found, and reported with what to do."""

import shutil

import pytest
from fakes.knowledge import editor_of

from ouro.memory.long_term import diagnose, remember_text
from ouro.memory.long_term.notes.note import Edge, Note, note_text


@pytest.fixture
def ouro(home):
    return home / ".ouro"


def put(ouro, note: Note) -> None:
    (ouro / "memory" / note.file_name).write_text(note_text(note))


def found(ouro, **options):
    return [(each.level, each.what) for each in diagnose(editor_of(ouro), **options)]


def test_sound_memory_has_only_ok_findings(ouro):
    remember_text(editor_of(ouro), "Always answer in German")
    findings = diagnose(editor_of(ouro))
    assert {each.level for each in findings} == {"ok"}
    assert "1 core file, 0 notes: no problems" in [each.what for each in findings]


def test_each_problem_is_reported(ouro):
    remember_text(editor_of(ouro), "Always answer in German")
    memory = ouro / "memory"
    (memory / "mem_00000001.md").write_text("---\ncolour: red\nturn: many\n---\nBroken\n")
    put(ouro, Note(id="mem_00000002", scope="user", supersedes="mem_00000003", text="A"))
    put(ouro, Note(id="mem_00000003", scope="user", supersedes="mem_00000002", text="B"))
    put(ouro, Note(id="mem_00000004", scope="user", supersedes="mem_0000dead", text="C"))
    put(
        ouro,
        Note(
            id="mem_00000005",
            scope="user",
            category="birds",
            related=(Edge("mem_0000beef", "refines"),),
            text="D",
        ),
    )
    put(ouro, Note(id="mem_00000006", scope="repo", text="d."))
    (memory / "notes.txt").write_text("x")
    (memory / "facts.md").write_bytes(b"a\0b")
    said = found(ouro, threshold=3)
    for level, words in [
        ("problem", "mem_00000001.md: `turn` cannot be read"),
        ("warning", "mem_00000001.md: unknown fields, which are kept: colour"),
        ("problem", "mem_00000002.md supersedes itself"),
        ("warning", "mem_00000004.md supersedes mem_0000dead, which does not exist"),
        ("warning", "unknown category birds"),
        ("warning", "mem_00000005.md refines mem_0000beef, which does not exist"),
        ("warning", "mem_00000006.md: its scope is repo, but it is in user"),
        ("warning", "written 2 times: D"),
        ("problem", "notes.txt: "),
        ("problem", "facts.md: holds NUL bytes"),
        ("warning", "waiting for approval: mem_"),
        ("warning", "the core has 7 tokens; the limit is 3"),
    ]:
        assert any(each[0] == level and words in each[1] for each in said), (words, said)


def test_renamed_note_is_reported_with_its_name(ouro):
    remember_text(editor_of(ouro), "Always answer in German")
    note = Note(id="mem_0000000a", scope="user", text="The old printer has no fonts")
    (ouro / "memory" / "printer.md").write_text(note_text(note))
    advice = {each.what: each.advice for each in diagnose(editor_of(ouro))}
    assert "mem_0000000a.md" in advice["printer.md: neither a core file nor a note"]
    put(ouro, note)  # the name is taken: the renamed file is a copy
    advice = {each.what: each.advice for each in diagnose(editor_of(ouro))}
    assert "mem_0000000a.md" not in advice["printer.md: neither a core file nor a note"]


def test_extra_fields_of_a_promoted_note_are_accepted(ouro):
    remember_text(editor_of(ouro), "Always answer in German")
    fields = {"owner": "ada@example.org", "expires": "2027-01-01"}
    put(ouro, Note(id="mem_00000007", scope="user", text="E", extra=fields))
    assert not any("unknown fields" in each[1] for each in found(ouro))


def test_unreadable_history_is_reported(ouro):
    remember_text(editor_of(ouro), "Always answer in German")
    editor = editor_of(ouro)
    (ouro / "memory" / ".git" / "HEAD").write_text("nonsense\n")
    assert [each.where for each in diagnose(editor) if each.level == "problem"] == ["user"]


@pytest.mark.parametrize("planted", [".git/hooks", ".git/config", ".gitattributes"])
def test_what_was_planted_in_the_history_can_be_deleted(ouro, planted):
    remember_text(editor_of(ouro), "Always answer in German")
    path = ouro / "memory" / planted
    path.mkdir() if planted == ".git/hooks" else path.write_text("[core]\n\tfsmonitor = evil\n")

    [problem] = [each for each in diagnose(editor_of(ouro, is_sound=False)) if planted in each.what]
    assert problem.advice == "Delete it; the history stays."
    shutil.rmtree(path) if planted == ".git/hooks" else path.unlink()
    remember_text(editor_of(ouro, is_sound=planted != ".git/config"), "Never use tabs")

    assert not [each for each in diagnose(editor_of(ouro)) if planted in each.what]
    assert len(editor_of(ouro).scopes[0].store.log()) == 2


def test_unknown_file_that_is_no_text_is_reported(ouro):
    remember_text(editor_of(ouro), "Always answer in German")
    (ouro / "memory" / "picture.md").write_bytes(b"a\0b")
    assert ("problem", "picture.md: neither a core file nor a note") in found(ouro)
