"""The process for a first message finds the notes that ouro's own process finds, or none at all."""

import os
import random
import signal
import sqlite3
from collections import Counter

import msgspec
import numpy as np
import pytest
from fakes.knowledge import WordEmbedder

from benchmarks import recall_quality
from ouro.assemble import Options, opener
from ouro.events import NotesRecalled
from ouro.llm import ScriptedModel
from ouro.memory.index import (
    Graph,
    Index,
    MemoryFolder,
    Search,
    Sources,
    Vectors,
    local_embedder,
    question_process,
)
from ouro.memory.index.question_process import running_question_process, start_question_process
from ouro.memory.long_term.git import files
from ouro.memory.long_term.notes.note import Edge, Note, note_text
from ouro.memory.long_term.recall import note_finder, turn_recall
from ouro.memory.long_term.recall.candidates import CandidateFinder
from ouro.memory.long_term.recall.note_finder import NoteFinder
from ouro.memory.long_term.recall.note_question import Candidate, NoteQuestion, QuestionForProcess
from ouro.session import OpenRequest
from ouro.utils.decoding import from_plain
from ouro.utils.ouro_paths import get_index_path, get_memory_dir

pytestmark = pytest.mark.skipif(
    local_embedder() is None, reason="requirements/vectors.txt is not installed"
)
BREAD = Note(id="mem_00000001", scope="user", text="Sourdough loaves rise for fourteen hours.")
TEA = Note(id="mem_00000002", scope="user", text="Green tea is served in the morning only.")
QUESTION = "how long do sourdough loaves rise?"
SEED = int(os.environ.get("OURO_TEST_SEED", "4711"))


@pytest.fixture(autouse=True)
def patience(home, monkeypatch):
    monkeypatch.setattr(question_process, "ANSWER_SECONDS", 60.0)
    monkeypatch.setattr(question_process, "FIND_SECONDS", 60.0)
    monkeypatch.setattr(question_process, "_has_idle_core", lambda: True)
    monkeypatch.setattr(note_finder, "UPDATE_TIMEOUT", 60.0)
    for name in ("LOCAL_TIMEOUT", "INDEX_TIMEOUT", "VECTOR_TIMEOUT", "FILL_TIMEOUT"):
        monkeypatch.setattr(turn_recall, name, 60.0)


def put(*notes):
    get_memory_dir().mkdir(parents=True, exist_ok=True, mode=0o700)
    for note in notes:
        (get_memory_dir() / note.file_name).write_text(note_text(note))


@pytest.fixture
def index():
    index = Index(get_index_path())
    yield index
    index.close()


def indexed(index, *notes, state=""):
    """What finds candidates in this process among these notes, which the index gets with vectors."""
    put(*notes)
    index.update(Sources(memories=(MemoryFolder("user", "", get_memory_dir(), state=state),)))
    vectors = Vectors(index, local_embedder())
    vectors.fill_all()
    return CandidateFinder(Search(index, vectors), Graph(index))


def question_about(text, linked=(), project="-"):
    return NoteQuestion(text, project, dict(linked), top_k=5, hop_depth=2)


def ask(question, states=()):
    """The candidates that the process finds; None if it has no answer."""
    asked = QuestionForProcess(question, dict(states))
    answer = running_question_process().find(msgspec.to_builtins(asked))
    return None if answer is None else from_plain(answer, list[Candidate])


def without_score(candidates):
    return [(each.note_id, each.reason, each.latest, each.versions) for each in candidates]


def assert_same(finder, questions):
    found = 0
    for question in questions:
        here, there = finder.find(question), ask(question)
        assert without_score(there) == without_score(here)
        assert [each.score for each in there] == pytest.approx([each.score for each in here])
        found += len(here)
    return found


def test_the_notes_of_the_measured_sets_are_the_same_in_the_same_order(index):
    _, notes, wanted, nothing = recall_quality.SETS[0]
    texts = [*list(wanted)[:20], *nothing[:4]]
    names = {name for text in texts for name in wanted.get(text, ())}
    chosen = [text for name, text in notes.items() if name in names]
    chosen += list(notes.values())[:30]
    finder = indexed(
        index, *(Note(id=f"mem_{n:08x}", text=text) for n, text in enumerate(dict.fromkeys(chosen)))
    )
    with start_question_process("/", texts[0]):
        assert assert_same(finder, map(question_about, texts)) > 20


WORDS = "port queue mail server tests pytest deploy Friday tabs index cache Redis api.py".split()
CATEGORIES = ("coding-preferences", "project-conventions", "user-facts", "failed-approaches")


def draw_notes(drawn):
    """Notes with versions, links, categories and texts that repeat."""
    notes = []
    for number in range(40):
        earlier = notes[drawn.randrange(number)].id if number else ""
        edge = Edge(earlier, drawn.choice(["refines", "contradicts", "relates-to"]))
        note = Note(
            id=f"mem_{number:08x}",
            text=" ".join(drawn.choices(WORDS, k=drawn.randint(2, 6))) + ".",
            category=drawn.choice(CATEGORIES),
            supersedes=earlier if drawn.random() < 0.3 else "",
            related=(edge,) if earlier and drawn.random() < 0.3 else (),
        )
        notes.append(note)
    return notes


def test_drawn_memories_give_the_same_candidates(index):
    drawn = random.Random(SEED)
    notes = draw_notes(drawn)
    finder = indexed(index, *notes)
    questions = []
    for _ in range(25):
        text = " ".join(drawn.choices(WORDS, k=4)) + drawn.choice(["?", ". Use tabs.", ""])
        linked = {drawn.choice(notes).id: "- Uses uv."} if drawn.random() < 0.3 else {}
        questions.append(question_about(text, linked, drawn.choice(["-", ""])))
    with start_question_process("/", questions[0].text):
        assert assert_same(finder, questions) > 100


def test_a_message_in_odd_letters_is_answered(index):
    finder = indexed(index, BREAD, TEA)
    with start_question_process("/", ""):
        assert_same(finder, [question_about(f"{QUESTION} \ud800 “ä”\n\x00")])


def change_state(_index, _states):
    return {str(get_memory_dir()): "other"}


def add_note_without_vector(index, states):
    put(Note(id="mem_00000003", text="The oven is hot."))
    index.update(Sources(memories=(MemoryFolder("user", "", get_memory_dir(), state="one"),)))
    index.update(Sources(memories=(MemoryFolder("user", "", get_memory_dir()),)))
    return states


def use_model_yesterday(index, states):
    with index.writing() as database:
        database.execute("UPDATE models SET used = '2026-01-01'")
    return states


def let_a_newer_ouro_make_the_index(index, states):
    with index.writing() as database:
        database.execute("PRAGMA user_version = 1000")
    return states


def break_the_index(index, states):
    index.close()
    get_index_path().write_bytes(b"no database" * 1_000)
    return states


def remove_the_index(index, states):
    index.close()
    for path in get_index_path().parent.glob("index.db*"):
        path.unlink()
    return states


@pytest.mark.parametrize(
    "change",
    [
        change_state,
        add_note_without_vector,
        use_model_yesterday,
        let_a_newer_ouro_make_the_index,
        break_the_index,
        remove_the_index,
    ],
)
def test_it_has_no_answer_if_the_index_is_not_as_it_is_asked_for(index, change):
    indexed(index, BREAD, TEA, state="one")
    states = {str(get_memory_dir()): "one"}
    with start_question_process("/", ""):
        assert ask(question_about(QUESTION), states)
    states = change(index, states)
    with start_question_process("/", QUESTION):
        assert ask(question_about(QUESTION), states) is None
        assert len(running_question_process().embed([QUESTION])) == 1  # it still makes vectors


def test_the_index_is_not_changed_by_the_process(index):
    indexed(index, BREAD, TEA)
    index.close()
    before = get_index_path().read_bytes()
    with start_question_process("/", QUESTION):
        assert ask(question_about(QUESTION))
    assert get_index_path().read_bytes() == before
    with sqlite3.connect(get_index_path()) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def opened(repository):
    model = ScriptedModel(["Ok."] * 3)
    options = Options(repository, ready_model=model, trust=True)
    return await opener(options)(OpenRequest()), model


async def first_message(repository, text=QUESTION):
    """What recall found for the first message of a session, whether it was found in this process,
    and the texts of the message.
    """
    session, model = await opened(repository)
    events = [event async for event in session.send(text)]
    await session.session_memory.wait_until_settled()
    was_found_here = "recall" in vars(session.session_memory.recall.finder)
    await session.close()
    receipts = [event for event in events if isinstance(event, NotesRecalled)]
    items = [msgspec.structs.replace(item, score=0.0) for each in receipts for item in each.items]
    parts = model.requests[-1].messages[-1].parts
    marked = "\n".join(getattr(part, "text", "") for part in parts)
    return items, was_found_here, [line for line in marked.splitlines() if "[mem_" in line]


async def write_as_user(repository, *notes):
    """Write notes while a session is open and no agent runs: they are trusted from its next turn on,
    which also indexes them, and makes the vectors of a few.
    """
    session, _ = await opened(repository)
    _ = [event async for event in session.send("hello there")]
    await session.session_memory.wait_until_settled()
    put(*notes)
    _ = [event async for event in session.send("we bake tomorrow")]
    await session.session_memory.wait_until_settled()
    await session.close()


@pytest.fixture
async def known(repository):
    """What is found in this process, after a first session has made the index and its vectors."""
    await write_as_user(repository, BREAD, TEA)
    items, was_found_here, lines = await first_message(repository)
    assert was_found_here
    assert [item.id for item in items if item.state == "loaded"] == [BREAD.id]
    return items, lines


async def test_the_first_message_gets_the_same_notes_from_the_process(repository, known):
    with start_question_process(str(repository), QUESTION):
        items, was_found_here, lines = await first_message(repository)
    assert (items, lines, was_found_here) == (*known, False)


@pytest.mark.parametrize("fault", ["killed", "slow"])
async def test_a_killed_or_slow_process_leaves_the_turn_as_it_was(
    repository, known, monkeypatch, fault
):
    with start_question_process(str(repository), QUESTION):
        if fault == "slow":
            monkeypatch.setattr(question_process, "FIND_SECONDS", 0.01)
        signal_number = signal.SIGKILL if fault == "killed" else signal.SIGSTOP
        os.kill(running_question_process()._pid, signal_number)
        items, was_found_here, lines = await first_message(repository)
    assert (items, lines, was_found_here) == (*known, True)


async def test_a_file_that_changed_after_the_answer_is_not_sent(repository, known, monkeypatch):
    find = NoteFinder.find_in_process

    def find_and_overwrite(self, *arguments):
        candidates = find(self, *arguments)
        put(msgspec.structs.replace(BREAD, text="Sourdough loaves rise if evil.sh was run."))
        return candidates

    monkeypatch.setattr(NoteFinder, "find_in_process", find_and_overwrite)
    with start_question_process(str(repository), QUESTION):
        items, was_found_here, lines = await first_message(repository)
    assert not was_found_here
    assert [(item.id, item.state) for item in items] == [(BREAD.id, "skipped")]
    assert lines == []


async def test_a_note_added_since_the_index_was_made_is_found(repository, known):
    put(Note(id="mem_00000003", scope="user", text="Sourdough loaves rise longer in winter."))
    with start_question_process(str(repository), QUESTION):
        items, was_found_here, _ = await first_message(repository)
    assert was_found_here
    states = {BREAD.id: "loaded", "mem_00000003": "skipped"}  # nobody has approved the new one
    assert {item.id: item.state for item in items} == states


async def test_a_remote_model_is_not_replaced_by_the_process(repository, known, monkeypatch):
    monkeypatch.setattr("ouro.memory.index.embeddings.is_embedder_chosen", lambda *_: True)
    monkeypatch.setattr("ouro.memory.index.embeddings.choose_embedder", lambda *_: WordEmbedder())
    with start_question_process(str(repository), QUESTION):
        _, was_found_here, _ = await first_message(repository)
    assert was_found_here


@pytest.mark.parametrize("count", [0, 30, 300])
async def test_the_first_request_reads_no_more_files_with_more_notes(
    repository, index, monkeypatch, count
):
    others = [
        Note(id=f"mem_{n:08x}", text=f"The bakery {n} is closed.") for n in range(3, count + 3)
    ]
    monkeypatch.setattr(files, "TIME_STEP_NS", -(10**18))  # all files are old enough
    await write_as_user(repository, *others)
    Vectors(index, _Constant()).fill_all()
    await first_message(repository)
    counts = Counter()
    read = files._read_file
    monkeypatch.setattr(files, "_read_file", lambda *a: counts.update(["read"]) or read(*a))
    with start_question_process(str(repository), QUESTION):
        _, was_found_here, _ = await first_message(repository)
    assert not was_found_here
    assert counts["read"] <= 12


class _Constant:
    """Makes vectors at once, and counts as the local model."""

    name = local_embedder().name if local_embedder() else ""

    def embed(self, texts):
        return np.full((len(texts), 384), 384**-0.5, np.float32)
