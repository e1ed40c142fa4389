import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest
from fakes.knowledge import editor_of

from ouro.memory.index import Lookup
from ouro.memory.long_term import SessionNotes
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.memory.long_term.notes.validity import confidence_now, has_decayed

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def conclusion(**fields) -> Note:
    return Note(id="mem_00000000", source="assistant", confidence=0.8, **fields)


@pytest.mark.parametrize(
    ("confirmed", "confidence", "faded"),
    [
        ("2026-11-21T00:00:00Z", 0.8, False),
        ("2026-10-22T00:00:00Z", 0.4, False),
        ("2026-09-22T00:00:00Z", 0.2, True),
        ("2027-11-21T00:00:00Z", 0.8, False),
        ("yesterday", 0.8, False),
        ("2026-10-22", 0.4, False),
    ],
)
def test_confidence_of_a_conclusion_halves_per_half_life(confirmed, confidence, faded):
    note = conclusion(confirmed_at=confirmed)

    assert confidence_now(note, NOW, 30) == pytest.approx(confidence)
    assert has_decayed(note, NOW, 30) is faded


def test_unconfirmed_note_decays_from_its_creation():
    assert confidence_now(conclusion(created_at="2026-10-22T00:00:00Z"), NOW, 30) == pytest.approx(
        0.4
    )


def test_user_note_does_not_decay():
    note = Note(
        id="mem_00000000", source="user", confidence=0.2, confirmed_at="2020-01-01T00:00:00Z"
    )

    assert (confidence_now(note, NOW, 30), has_decayed(note, NOW, 30)) == (0.2, False)


def test_notes_are_not_read_one_by_one_to_find_old_ones_if_the_index_is_locked(home, monkeypatch):
    monkeypatch.setattr("ouro.memory.index.index.WAIT_SECONDS", 0)
    memory, index = home / ".ouro", home / "index.db"
    old = conclusion(scope="user", text="The API is old.", created_at="2020-01-01")
    editor_of(memory).write("user", {old.file_name: note_text(old)}, "Add a note")
    editor = editor_of(memory)
    notes = SessionNotes(editor.scopes, Lookup(index, lambda: None, lambda: None), home, home, 30)

    Lookup(index, lambda: None, lambda: None).search().index.build_id()
    with closing(sqlite3.connect(index)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert notes.find_outdated() == ([], [])
    assert notes.find_outdated() == (["mem_00000000"], [])
