"""Vectors that are searched without numpy: the same as with it."""

import sys

import numpy as np
import pytest
from properties import given, st

from ouro.memory.index import (
    Index,
    MemoryFolder,
    Search,
    SearchFilter,
    Sources,
    Vectors,
    plain_vectors,
    vector_signs,
    vectors,
)
from ouro.memory.index.plain_vectors import PlainSigns, nearest_plain
from ouro.memory.index.vector_signs import SignsOrigin, VectorSigns, nearest_ids
from ouro.utils.ouro_paths import get_memory_dir

ORIGIN = SignsOrigin(1, "index")
QUESTIONS = ("abc 4", "jj", "ceg 1", "abcdefghij", "c")


class Letters:
    """An embedder: a vector counts letters."""

    name = "letters"

    def embed(self, texts):
        rows = np.array([[text.count(letter) - 0.3 for letter in "abcdefghij"] for text in texts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def plain_of(signs, length):
    """The same signs, for plain Python."""
    by_vector = plain_vectors._by_vector(signs.signs.tobytes(), len(signs.ids))
    assert len(by_vector) == plain_vectors._bytes_of_signs(length) * len(signs.ids)
    ids = plain_vectors.array("q", signs.ids.tobytes())
    return PlainSigns(signs.origin, ids, bytearray(by_vector), signs.stamp)


@given(
    st.integers(1, 130), st.integers(1, 60), st.integers(1, 70),
    st.integers(0, 2**32), st.booleans(),
)  # fmt: skip
def test_the_nearest_are_those_of_numpy(length, rows, count, seed, is_limited):
    random = np.random.default_rng(seed)
    halves = random.normal(size=(rows, length)).round(1).astype(np.float16)
    ids = random.permutation(np.arange(3 * rows))[:rows].astype(np.int64)
    signs = VectorSigns(ids, vector_signs._signs(halves), 1, ORIGIN)
    question = random.normal(size=length).astype(np.float32)
    ranges = [(0, rows // 2), (rows, 2 * rows)] if is_limited else None
    allowed = None
    if ranges:
        allowed = np.flatnonzero([any(a <= row <= b for a, b in ranges) for row in ids])

    found = nearest_plain(plain_of(signs, length), question, count, ranges)

    assert sorted(found) == sorted(nearest_ids(signs, question, count, allowed))


@given(st.integers(1, 400), st.integers(0, 2**32))
def test_cosines_and_stored_vectors_are_those_of_numpy(length, seed):
    vector = np.random.default_rng(seed).normal(size=length).astype(np.float32)
    stored = vector.astype(np.float16).tobytes()
    assert plain_vectors.pack(plain_vectors.array("f", vector.tobytes())) == stored
    exact = float(np.frombuffer(stored, np.float16).astype(np.float32) @ vector)
    assert plain_vectors.cosine(stored, vector) == pytest.approx(exact, abs=1e-3, rel=1e-4)


@pytest.fixture
def notes(home, monkeypatch):
    monkeypatch.setattr(vector_signs, "MIN_STORED", 10)
    monkeypatch.setattr(vector_signs, "_MAX_STORED", 15)
    folder = get_memory_dir()
    folder.mkdir(parents=True)
    for number in range(40):
        (folder / f"mem_{number:08x}.md").write_text(f"{'abcdefghij'[number % 10] * 3} {number}\n")
    return folder


@pytest.fixture
def index(home, notes):
    opened = Index(home / "index.db")
    opened.update(Sources(None, (MemoryFolder("user", "", notes),)))
    filled = Vectors(opened, Letters())
    filled.fill_all()
    filled.store_signs()
    yield opened
    opened.close()


def find(index, without_numpy, monkeypatch, wanted):
    """What a new process finds, with the scores; notes with the same score by their ids."""
    monkeypatch.setattr(vectors, "_has_imported_numpy", lambda: not without_numpy)
    search = Search(index, Vectors(index, Letters()))
    return [
        sorted((-round(hit.score, 4), hit.id) for hit in search.find(question, 40, wanted))
        for question in QUESTIONS
    ]


@pytest.mark.parametrize(
    "wanted", [SearchFilter(kinds=("note",)), SearchFilter(kinds=("note",), since="2000-01-01")]
)
@pytest.mark.parametrize("state", ["stored", "damaged", "some are new", "none is stored"])
def test_a_search_finds_the_same_with_and_without_numpy(index, notes, monkeypatch, wanted, state):
    with index.writing() as database:
        match state:
            case "damaged":
                database.execute("UPDATE signs SET signs = x'00'")
            case "none is stored":
                database.execute("DROP TABLE signs")
    if state == "some are new":
        (notes / "mem_0000ffff.md").write_text("abc abc 4\n")
        index.update(Sources(None, (MemoryFolder("user", "", notes),)))
        Vectors(index, Letters()).fill_all()
    assert find(index, True, monkeypatch, wanted) == find(index, False, monkeypatch, wanted)


def test_many_vectors_are_searched_with_numpy(index, monkeypatch):
    monkeypatch.setattr(vectors, "_has_imported_numpy", lambda: False)
    monkeypatch.setattr(vectors, "_MAX_PLAIN", 5)
    monkeypatch.setattr(vectors, "nearest_plain", None)  # must not be called
    with index.reading() as database:
        found = Vectors(index, Letters())
        question = found.embed_questions(["abc"])[0]
        assert len(found.nearest(database, "notes", question, 3)) == 3
    assert "numpy" in sys.modules
