import pytest
from properties import given, st

from ouro.memory.long_term.git.files import is_note_name, visible_text
from ouro.memory.long_term.notes.note import (
    Anchor,
    Edge,
    Note,
    ParsedNote,
    Relation,
    find_ids,
    new_id,
    note_text,
    parse_note,
)
from ouro.memory.safe_yaml import replace_surrogates

WHOLE = Note(
    id="mem_3f6c1e00",
    created_at="2026-11-21T20:31:00Z",
    updated_at="2026-11-22T08:00:00Z",
    version=2,
    scope="repo",
    category="architectural-decisions",
    supersedes="mem_91ab0000",
    related=(Edge("mem_77de0000", "refines"),),
    session_id="0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f",
    turn=7,
    trigger="cadence",
    source="assistant",
    confidence=0.9,
    confirmed_at="2026-11-21T20:31:00Z",
    branch="feature/locks",
    entities=("file:api.py", "cmd:pytest tests/test_api.py"),
    relations=(Relation("file:api.py", "tested_by", "cmd:pytest tests/test_api.py"),),
    anchors=(Anchor("api.py", "8f2c"),),
    text="Optimistic locking with a retry for user updates, not row locks.",
)


def test_note_round_trips():
    assert parse_note(WHOLE.file_name, note_text(WHOLE)) == ParsedNote(WHOLE)


def test_note_file_is_readable():
    lines = note_text(WHOLE).splitlines()

    assert lines[:2] == ["---", "id: mem_3f6c1e00"]
    assert "- {id: mem_77de0000, relationship: refines}" in lines
    assert '- {from: "file:api.py", rel: tested_by, to: "cmd:pytest tests/test_api.py"}' in lines
    assert lines[-2:] == ["---", "Optimistic locking with a retry for user updates, not row locks."]


SEEN = st.text(min_size=1).filter(
    lambda text: text.isprintable() and visible_text(text) == text == text.strip()
)


@given(text=st.text(), category=SEEN, entity=SEEN, extra=st.text())
def test_any_text_round_trips(text, category, entity, extra):
    note = Note(
        id="mem_00000000", text=text, category=category, entities=(entity,), extra={"mood": extra}
    )

    found = parse_note("mem_00000000.md", note_text(note))

    assert found.problems == ()
    assert found.note.category == category
    assert found.note.entities == (entity,)
    assert found.note.extra == {"mood": replace_surrogates(extra)}
    assert found.note.text == text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")


@pytest.mark.parametrize(
    "body", ["---\nx\n---", "a\n---\nb", "...", "# id: mem_1\n\n    code\n", "a: b # c"]
)
def test_body_may_contain_front_matter_syntax(body):
    note = Note(id="mem_00000000", text=body)
    assert parse_note("mem_00000000.md", note_text(note)).note.text == body.strip("\n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Only words.", "it has no front matter"),
        ("---\nid: mem_1\nOnly words.", "its front matter has no end"),
        ("---\n\tid: x\n---\nOnly words.", "its front matter cannot be read: line"),
        ("---\n- a\n---\nOnly words.", "its front matter has no fields"),
        ("---\na: &x 1\nb: *x\n---\nOnly words.", "its front matter cannot be read: line"),
        ("---\nid: other\n---\nOnly words.", "its `id` is other: the file name counts"),
        ("---\nid: mem_00000000\nversion: soon\n---\nOnly words.", "`version` cannot be read"),
        ("---\nid: mem_00000000\nscope: galaxy\n---\nOnly words.", "`scope` cannot be read"),
    ],
)
def test_invalid_front_matter_is_reported_and_the_text_kept(text, problem):
    found = parse_note("mem_00000000.md", text)

    assert found.note.id == "mem_00000000"
    assert found.note.text.endswith("Only words.")
    assert [each.startswith(problem) for each in found.problems] == [True]


def test_bom_and_crlf_are_accepted():
    text = "\ufeff" + note_text(WHOLE).replace("\n", "\r\n")
    assert parse_note(WHOLE.file_name, text) == ParsedNote(WHOLE)


def test_confidence_is_clamped():
    assert (
        parse_note(
            "mem_00000000.md", "---\nid: mem_00000000\nconfidence: 7\n---\nx"
        ).note.confidence
        == 1.0
    )


def test_ids_are_valid_note_names():
    assert is_note_name(f"{new_id()}.md")
    assert [
        name
        for name in ("mem_.md", "facts.md", "mem_../x.md", "mem_XYZ12345.md")
        if is_note_name(name)
    ] == []


@pytest.mark.parametrize("word", ["mem_3", "3f6", "mem_3f6c1e00", "3f6c1e00"])
def test_start_finds_an_id(word):
    assert find_ids(word, [WHOLE.id, "mem_91ab0000"]) == [WHOLE.id]


@pytest.mark.parametrize("word", ["", "3f", "mem_"])
def test_too_short_start_finds_no_id(word):
    assert find_ids(word, [WHOLE.id]) == []
