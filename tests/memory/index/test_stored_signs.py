"""The signs of vectors that are stored in the index: which vectors a process still reads."""

import sqlite3

import numpy as np
import pytest

from ouro.memory.index import (
    Index,
    MemoryFolder,
    Search,
    SearchFilter,
    Sources,
    Vectors,
    vector_signs,
)
from ouro.utils.ouro_paths import get_memory_dir

NOTES = 40
ONE_NOTE = SearchFilter(kinds=("note",))


class Letters:
    """An embedder: a vector counts letters."""

    def __init__(self, name="letters") -> None:
        self.name = name

    def embed(self, texts):
        rows = np.array([[text.count(letter) + 0.01 for letter in "abcdefghij"] for text in texts])
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def notes(home, monkeypatch):
    """A folder with `NOTES` notes."""
    monkeypatch.setattr(vector_signs, "MIN_STORED", 10)
    monkeypatch.setattr(vector_signs, "_MAX_STORED", 15)
    folder = get_memory_dir()
    folder.mkdir(parents=True)
    for number in range(NOTES):
        write(folder, number, "abcdefghij"[number % 10] * 3)
    return folder


@pytest.fixture
def index(home, notes):
    opened = Index(home / "index.db")
    yield opened
    opened.close()


def write(folder, number, text):
    (folder / f"mem_{number:08x}.md").write_text(f"{text} {number}\n")


def fill(index, notes, embedder=None):
    """Index the notes and make all vectors, as the background does."""
    index.update(Sources(None, (MemoryFolder("user", "", notes),)))
    vectors = Vectors(index, embedder or Letters())
    vectors.fill_all()
    return vectors


@pytest.fixture
def read_vectors(monkeypatch):
    """The number of vectors that were read, in each portion."""
    counts = []
    make = vector_signs._make_signs

    def counted(*arguments):
        signs = make(*arguments)
        counts.append(0 if signs is None else len(signs.ids))
        return signs

    monkeypatch.setattr(vector_signs, "_make_signs", counted)
    return counts


def find(index, text, count=1, embedder=None):
    """The texts of the notes nearest to `text`, as a new process finds them."""
    search = Search(index, Vectors(index, embedder or Letters()))
    return [hit.text for hit in search.nearest_notes([text], count, [ONE_NOTE])]


def stored(index):
    with index.reading() as database:
        return database.execute("SELECT count(*), sum(length(ids)) / 8 FROM signs").fetchone()


def test_a_new_process_reads_no_vector_for_its_signs(index, notes, read_vectors):
    fill(index, notes).store_signs()
    assert stored(index) == (3, NOTES)
    read_vectors.clear()
    assert find(index, "ccc")[0].startswith("ccc")
    assert sum(read_vectors) == 0


def test_stored_signs_find_what_the_vectors_find(index, notes, monkeypatch):
    vectors = fill(index, notes)
    from_vectors = [sorted(find(index, letter, 7)) for letter in "abcdefghij"]
    vectors.store_signs()
    assert [sorted(find(index, letter, 7)) for letter in "abcdefghij"] == from_vectors


def test_a_note_added_afterwards_is_read_from_its_vector(index, notes, read_vectors):
    fill(index, notes).store_signs()
    write(notes, NOTES, "hhhhii")
    fill(index, notes)
    read_vectors.clear()
    assert find(index, "hhhhii") == [f"hhhhii {NOTES}"]
    assert sum(read_vectors) == 1


def test_the_newest_note_is_found_after_it_was_edited(index, notes):
    """The row with the highest stamp is removed: the stamp is not used again."""
    vectors = fill(index, notes)
    vectors.store_signs()
    running = Search(index, Vectors(index, Letters()))
    running.nearest_notes(["a"], 1, [ONE_NOTE])
    write(notes, 0, "jjjjjaaaaa")
    fill(index, notes)
    write(notes, 0, "bbbbbeeeee")
    fill(index, notes)
    assert find(index, "bbbbbeeeee") == ["bbbbbeeeee 0"]
    assert running.nearest_notes(["bbbbbeeeee"], 1, [ONE_NOTE])[0].text == "bbbbbeeeee 0"


def test_removed_notes_are_not_stored_for_ever(index, notes):
    fill(index, notes).store_signs()
    for number in range(25):
        (notes / f"mem_{number:08x}.md").unlink()
    for number in range(100, 115):
        write(notes, number, "aj")
    vectors = fill(index, notes)
    assert vectors.has_work()
    vectors.store_signs()
    assert stored(index)[1] == 30


def test_signs_of_another_model_are_not_used(index, notes, read_vectors):
    fill(index, notes).store_signs()
    fill(index, notes, Letters("other"))
    read_vectors.clear()
    assert find(index, "ddd", embedder=Letters("other"))[0].startswith("ddd")
    assert sum(read_vectors) == NOTES


def test_signs_of_an_index_that_was_made_again_are_not_used(index, notes):
    fill(index, notes).store_signs()
    index.rebuild(Sources(None, (MemoryFolder("user", "", notes),)))
    assert fill(index, notes).has_work()
    assert find(index, "eee")[0].startswith("eee")


@pytest.mark.parametrize(
    "damage", ["signs = x'00'", "ids = x'0001'", "signs = 'text'", "signs = zeroblob(24)"]
)
def test_damaged_signs_are_made_from_the_vectors(index, notes, damage, read_vectors):
    fill(index, notes).store_signs()
    with index.writing() as database:
        database.execute(f"UPDATE signs SET {damage}")
    read_vectors.clear()
    assert find(index, "fff")[0].startswith("fff")
    assert sum(read_vectors) == NOTES


def test_a_process_that_is_killed_while_it_stores_leaves_a_whole_index(index, notes):
    vectors = fill(index, notes)
    store, calls = vector_signs.store_next_signs, []

    def killed(*arguments):
        store(*arguments)
        calls.append(arguments)
        if len(calls) == 2:
            raise sqlite3.OperationalError("interrupted")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ouro.memory.index.vectors.store_next_signs", killed)
        with pytest.raises(Exception, match="interrupted"):
            vectors.store_signs()
    assert stored(index) == (1, 15)
    assert find(index, "ggg")[0].startswith("ggg")
    vectors.store_signs()
    assert stored(index) == (3, NOTES)


def test_few_vectors_are_not_stored(index, notes, monkeypatch):
    monkeypatch.setattr(vector_signs, "MIN_STORED", NOTES + 1)
    vectors = fill(index, notes)
    assert not vectors.has_work()
    vectors.store_signs()
    with index.reading() as database:
        assert not database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'signs'").fetchone()
