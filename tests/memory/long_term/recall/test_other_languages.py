"""Notes and messages in languages other than English: the local model knows none of them, so that
words decide.
"""

import pytest
from cases.recall_languages import ASKED, ENGLISH, LATER, NOTES, SMALL_TALK

from ouro.memory.index import (
    Index,
    MemoryFolder,
    Search,
    Sources,
    Vectors,
    is_in_english,
    local_embedder,
    parse_query,
)
from ouro.memory.long_term import GitMemoryStore, Notebook, NoteSelection, Recall, Situation
from ouro.memory.long_term.notes.note import Note, note_text

needs_weights = pytest.mark.skipif(
    local_embedder() is None, reason="ouro[vectors] is not installed"
)


def make_recall(folder, notes, embedder=None):
    """A function that returns the names of the notes recalled for a text."""
    folder.mkdir(mode=0o700)
    names = {}
    for number, (name, text) in enumerate(notes.items()):
        note = Note(id=f"mem_{number:08x}", text=text, scope="user")
        names[note.id] = name
        (folder / note.file_name).write_text(note_text(note))
    index = Index(folder.with_suffix(".db"))
    index.update(Sources(memories=(MemoryFolder("user", "", folder),)))
    vectors = Vectors(index, embedder) if embedder else None
    while vectors and vectors.fill():
        pass
    notebook = Notebook({"user": GitMemoryStore(folder, "user", folder.with_suffix(".git"))})
    recall = Recall(Search(index, vectors), NoteSelection(notebook, "memory-0"))

    def recall_names(text):
        items = recall.find(text, Situation("")).items
        return {names[item.id] for item in items if item.state == "loaded"}

    return recall_names


def test_notes_in_ten_languages_are_found_by_their_words(tmp_path):
    found = wrong = disturbed = 0
    for language, notes in NOTES.items():
        recall_names = make_recall(tmp_path / language, notes | ENGLISH)
        for text, wanted in [*ASKED[language], *LATER[language]]:
            names = recall_names(text)
            found += wanted in names
            wrong += len(names - {wanted})
            disturbed += wanted is None and bool(names)

    assert found >= 30, "of 50"
    assert wrong <= 5
    assert disturbed <= 4, "of 50"


@needs_weights
@pytest.mark.parametrize("language", ["fr", "es"])
def test_vectors_of_the_local_model_add_no_notes_in_other_languages(tmp_path, language):
    """With notes in English beside them, eight of ten messages of small talk got notes."""
    notes = NOTES[language] | ENGLISH
    by_words = make_recall(tmp_path / "words", notes)
    with_vectors = make_recall(tmp_path / "vectors", notes, local_embedder())

    for text in [*SMALL_TALK[language], *(text for text, _ in ASKED[language])]:
        assert with_vectors(text) == by_words(text), text
    for text in SMALL_TALK[language]:
        assert with_vectors(text) == set(), text


class TwoLanguageModel:
    """A model that knows other languages than English: a vector for each subject."""

    name = "two-languages"
    subjects = (("panier", "basket"), ("facture", "invoice"), ("mail", "courriel"))

    def embed(self, texts):
        numpy = pytest.importorskip("numpy")
        rows = [[float(any(w in text for w in words)) for words in self.subjects] for text in texts]
        matrix = numpy.array(rows, numpy.float32) + 1e-3
        return matrix / numpy.linalg.norm(matrix, axis=1, keepdims=True)

    def prepare(self):
        pass


def test_vectors_of_another_model_find_notes_in_other_languages(tmp_path):
    notes = {"basket": "Le panier est vide au début.", "invoice": "La facture part le lundi."}
    recall_names = make_recall(tmp_path / "notes", notes, TwoLanguageModel())

    assert recall_names("Où est le code du basket d'achat ?") == {"basket"}


@pytest.mark.parametrize(
    "text",
    [
        "Die Suche ignoriert Umlaute",
        "Perfetto, ottimo lavoro!",
        "Mobil uygulama Flutter ile yazıldı",
        "注文番号は十桁の数字",
        "डेटाबेस का बैकअप",
        "Übersetzung fehlt",
        "Réinitialise l'écran",
        "Raporu gönder",
    ],
)
def test_a_text_in_another_language_is_noticed(text):
    assert not is_in_english(text)


@pytest.mark.parametrize(
    "text",
    [
        "Rename the function in test.py",
        "pytest",
        "start over",
        "The café über the road is closed",
        "Add Zürich office",
        "rename Menü to menu",
        "fix the café résumé parser",
        "The naïve approach fails on São Paulo",
    ],
)
def test_a_text_in_english_or_of_names_alone_counts_as_english(text):
    assert is_in_english(text)


def test_words_with_vowel_signs_are_not_cut():
    assert parse_query("भुगतान विफल").words == (("भुगतान",), ("विफल",))


def test_long_words_are_found_with_another_ending(tmp_path):
    notes = {"endpoint": "Neue Endpunkte brauchen einen Eintrag.", "end": "Das Ende ist offen."}
    recall_names = make_recall(tmp_path / "notes", notes)

    assert recall_names("Der Endpunkt ist langsam.") == {"endpoint"}
