"""Embedding models whose vectors are all close to each other."""

import numpy as np
import pytest

from ouro.llm import Embedded
from ouro.memory.index import Index, Search, SearchFilter, Vectors
from ouro.memory.index.embeddings import RemoteEmbedder
from ouro.memory.index.session_indexer import IndexedSession, add_words, save_session
from ouro.messages import Usage

SUBJECTS = ("parser", "deploy", "invoice", "camera", "mutex", "haiku")
TEXTS = [f"{subject} number {number}" for subject in SUBJECTS for number in range(5)]


class Subjects:
    """A model with a dimension for each subject, one for the text, and one that all texts share."""

    def __init__(self, shared):
        self._shared = shared

    def embed(self, texts):
        return Embedded(self.rows(texts).tolist(), Usage())

    def rows(self, texts):
        rows = np.zeros((len(texts), 64), np.float32)
        rows[:, 0] = self._shared
        for row, text in zip(rows, texts, strict=True):
            row[1 + SUBJECTS.index(text.split()[0])] = 1
            row[10 + sum(text.encode()) % 50] = 0.5
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def close(self):
        pass


def similarities(tmp_path, shared, texts):
    """The similarity of the first text to each text, as the search sees it."""
    index = Index(tmp_path / f"{shared} {len(texts)}.db")
    with index.writing() as database:
        session = IndexedSession(0, "one", "one", "")
        save_session(database, session)
        for turn, text in enumerate(texts, 1):
            add_words(database, session, turn, "user", "2026-11-28", text)
        save_session(database, session)
    vectors = Vectors(index, RemoteEmbedder(f"subjects {shared}", Subjects(shared)))
    vectors.fill_all()
    question = vectors.embed_questions([texts[0]])[0]
    with index.reading() as database:
        rows = database.execute("SELECT id, text FROM messages").fetchall()
        found = vectors.cosines(database, "messages", question, [place for place, _ in rows])
    hits = Search(index, vectors).find(texts[0], 5, SearchFilter(kinds=("message",)))
    assert hits[0].text == texts[0]
    index.close()
    return {text: found[place] for place, text in rows}


@pytest.mark.parametrize("shared", [2.0, 4.0])
def test_similarities_of_a_narrow_model_are_spread(tmp_path, shared):
    found = similarities(tmp_path, shared, TEXTS)
    others = [found[text] for text in TEXTS if not text.startswith("parser")]
    same = [found[text] for text in TEXTS[1:5]]
    assert found[TEXTS[0]] == pytest.approx(1.0, abs=0.01)
    assert max(others) < 0.3
    assert min(same) > max(others) + 0.3


def test_similarities_of_a_wide_model_stay(tmp_path):
    found = similarities(tmp_path, 0.2, TEXTS)
    vectors = Subjects(0.2).rows(TEXTS)
    expected = dict(zip(TEXTS, (vectors @ vectors[0]).tolist(), strict=True))
    assert found == pytest.approx(expected, abs=0.002)


def test_similarities_stay_while_there_are_too_few_vectors_to_judge_a_model(tmp_path):
    found = similarities(tmp_path, 4.0, TEXTS[:10])
    assert min(found.values()) > 0.8
