"""Which notes recall returns: for the cases that its thresholds are tuned on, and for a set without
tuning.
"""

import pytest
from cases import recall_unseen
from cases.recall import EVERYDAY, NOTES, WANTED

from ouro.memory.index import Index, MemoryFolder, Search, Sources, Vectors, local_embedder
from ouro.memory.long_term import GitMemoryStore, Notebook, NoteSelection, Recall, Situation
from ouro.memory.long_term.notes.note import Note, note_text

needs_weights = pytest.mark.skipif(
    local_embedder() is None, reason="ouro[vectors] is not installed"
)


@pytest.fixture
def recall_names(tmp_path, request):
    """A function that returns the names of the notes recalled for a text; with or without vectors."""
    folder = tmp_path / "memory"
    folder.mkdir(mode=0o700)
    names = {}
    for number, (name, text) in enumerate(getattr(request, "param", NOTES).items()):
        note = Note(id=f"mem_{number:08x}", text=text, scope="user")
        names[note.id] = name
        (folder / note.file_name).write_text(note_text(note))
    index = Index(tmp_path / "index.db")
    index.update(Sources(memories=(MemoryFolder("user", "", folder),)))
    notebook = Notebook({"user": GitMemoryStore(folder, "user", tmp_path / "history.git")})

    def tell(text: str, embedder=None) -> set[str]:
        vectors = Vectors(index, embedder) if embedder else None
        while vectors and vectors.fill():
            pass
        found = Recall(Search(index, vectors), NoteSelection(notebook, "memory-0")).find(
            text, Situation("")
        )
        return {names[item.id] for item in found.items if item.state == "loaded"}

    yield tell
    index.close()


@pytest.mark.parametrize("embedder", [None, pytest.param(local_embedder(), marks=needs_weights)])
def test_tuning_cases_reach_the_recall_and_precision_targets(recall_names, embedder):
    found = {text: recall_names(text, embedder) for text in WANTED}
    hits = sum(len(found[text] & wanted) for text, wanted in WANTED.items())
    junk = sum(len(found[text] - wanted) for text, wanted in WANTED.items())

    assert hits / len(WANTED) >= 0.95
    assert hits / (hits + junk) >= 0.9


@pytest.mark.parametrize("text", EVERYDAY)
def test_everyday_messages_recall_nothing(recall_names, text):
    assert recall_names(text) == set()


@pytest.mark.parametrize("recall_names", [recall_unseen.NOTES], indirect=True, ids=["252 notes"])
def test_unseen_cases_reach_the_measured_recall_and_precision(recall_names):
    """Without vectors, as measured when the set was written (docs/benchmarks.md). It detects a
    changed threshold.
    """
    wanted = recall_unseen.WANTED
    found = {text: recall_names(text) for text in wanted}
    hits = sum(bool(found[text] & right) for text, right in wanted.items())
    too_many = sum(len(found[text] - right) for text, right in wanted.items())

    assert hits / len(wanted) >= 0.35
    assert hits / (hits + too_many) >= 0.85
    assert sum(bool(recall_names(text)) for text in recall_unseen.NOTHING) <= 3


NOTES_THAT_NAME_TASKS = {
    "continuation": "The parser of continuation lines finds where the next one begins.",
    "next": "do_next continues the execution until the next line of the program.",
    "queue": "The job queue is RabbitMQ, because Redis lost jobs after a restart.",
}


@needs_weights
@pytest.mark.parametrize("recall_names", [NOTES_THAT_NAME_TASKS], indirect=True, ids=["tasks"])
@pytest.mark.parametrize("text", ["continue", "Continue, please.", "ok, next step"])
def test_message_with_only_words_of_tasks_recalls_nothing_by_meaning(recall_names, text):
    assert recall_names(text, local_embedder()) == set()
