"""Search words of a note: a search finds the note by them, and its text stays as it is."""

import sqlite3
from contextlib import closing

import pytest

from ouro.llm import Embedded
from ouro.memory.index import Index, MemoryFolder, Search, Sources, Vectors
from ouro.memory.index.embeddings import RemoteEmbedder
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.messages import Usage

TEXT = "Die Nachtsicherung läuft um drei."
NOTE = Note(id="mem_00000001", scope="user", text=TEXT, search_words=("backup time", "nightly job"))
TABLES_OF_VERSION_5 = (
    "DROP VIEW core",
    "DROP TRIGGER notes_added",
    "DROP TRIGGER notes_removed",
    "ALTER TABLE notes DROP COLUMN search_words",
    "CREATE VIEW core AS SELECT * FROM notes WHERE kind = 'core'",
    "CREATE TRIGGER notes_added AFTER INSERT ON notes BEGIN"
    " INSERT INTO notes_words (rowid, text) VALUES (new.id, findable(new.text)); END",
    "CREATE TRIGGER notes_removed AFTER DELETE ON notes BEGIN INSERT INTO notes_words"
    " (notes_words, rowid, text) VALUES ('delete', old.id, findable(old.text)); END",
    "PRAGMA user_version = 5",
)


@pytest.fixture
def memory(home):
    folder = home / ".ouro" / "memory"
    folder.mkdir(mode=0o700, parents=True)
    return folder


@pytest.fixture
def path(home):
    return home / ".ouro" / "cache" / "index.db"


def sources(memory):
    return Sources(None, (MemoryFolder("user", "", memory),))


def keep(memory, note):
    (memory / note.file_name).write_text(note_text(note))


def found(index, query):
    return [hit.text for hit in Search(index, None).find(query)]


def test_note_is_found_by_its_search_words_and_shown_without_them(path, memory):
    keep(memory, NOTE)
    with closing(Index(path)) as index:
        index.update(sources(memory))
        assert found(index, "When is the nightly backup?") == [TEXT]
        (memory / NOTE.file_name).unlink()
        index.update(sources(memory))
        assert found(index, "When is the nightly backup?") == []
        with index.writing() as database:
            database.execute("INSERT INTO notes_words (notes_words) VALUES ('integrity-check')")


def test_vector_of_a_note_is_made_of_its_text_and_its_search_words(path, memory):
    asked = []

    class Model:
        def embed(self, texts):
            asked.extend(texts)
            return Embedded([[1.0, 0.0]] * len(texts), Usage())

        def close(self):
            pass

    keep(memory, NOTE)
    keep(memory, Note(id="mem_00000002", scope="user", text="Tabs."))
    with closing(Index(path)) as index:
        index.update(sources(memory))
        Vectors(index, RemoteEmbedder("letters", Model())).fill_all()
    assert sorted(asked) == [f"{TEXT}\nbackup time, nightly job", "Tabs."]


def test_index_of_the_version_before_is_completed_and_not_made_again(path, memory):
    keep(memory, Note(id="mem_00000001", scope="user", text="Use flask."))
    with closing(Index(path)) as index:
        index.update(sources(memory))
        with index.reading() as database:
            build = database.execute("SELECT value FROM facts WHERE name = 'made'").fetchone()
    with closing(sqlite3.connect(path)) as database:
        for statement in TABLES_OF_VERSION_5:
            database.execute(statement)
        database.commit()

    keep(memory, NOTE)
    with closing(Index(path)) as index:
        index.update(sources(memory))
        with index.reading() as database:
            assert (
                database.execute("SELECT value FROM facts WHERE name = 'made'").fetchone() == build
            )
        assert found(index, "flask") == []  # the note has another text now
        assert found(index, "backup") == [TEXT]
    assert not path.with_name("index.db.aside").exists()


def test_search_words_are_in_the_front_matter_only_if_there_are_any():
    assert "search_words" in note_text(NOTE)
    assert "search_words" not in note_text(Note(id="mem_00000001", text=TEXT))
