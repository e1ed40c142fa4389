"""Near-duplicates become one note: found by words or vectors, merged by a model; one commit each,
with undo.
"""

import asyncio
import json

import pytest
from fakes.knowledge import Conversation

from ouro.errors import ModelError
from ouro.memory.long_term import Notebook, NoteConsolidator
from ouro.memory.long_term.maintenance.note_consolidator import find_clusters
from ouro.memory.long_term.notes.note import CATEGORIES, Anchor, Edge, Note, Relation, note_text

ONE = "Run the tests with pytest -q."
TWO = "Tests are run with pytest -q in this project."
RICHER = "Run the tests of this project with pytest -q."
MERGED = json.dumps({"op": "supersede", "target": 1, "text": RICHER})


def note(number, text, **more):
    times = {
        "created_at": f"2026-11-{number:02}T10:00:00Z",
        "updated_at": f"2026-11-{number:02}T10:00:00Z",
    }
    return Note(
        id=f"mem_{number:08x}", **{**times, "category": "project-conventions", "text": text, **more}
    )


class Bench:
    """Real notes in a real repository memory, and a model with given answers."""

    def __init__(self, home, project):
        self.talk = Conversation(home, project, answer="x").connect()
        stores = {name: scope.store for name, scope in self.talk.scopes.items()}
        self.book = Notebook(stores, untrusted=lambda scope: self.talk.scopes[scope].untrusted)
        self.stores = stores
        self.asked = []

    def keep(self, *notes):
        for each in notes:
            text = {each.file_name: note_text(each)}
            self.stores[each.scope].save_and_commit(text, "Add", {"Ouro-Origin": "capture"})
        return notes

    def consolidator(self, *answers, **options):
        answers = list(answers)

        async def ask(messages, schema=None):
            self.asked.append(messages[-1].text)
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return await answer() if callable(answer) else answer

        histories = {name: store.repository for name, store in self.stores.items()}
        run_under_lock = self.talk.manager.run_under_lock
        return NoteConsolidator(
            ask,
            self.book,
            histories,
            CATEGORIES,
            "memory-1",
            run_under_lock=run_under_lock,
            **options,
        )

    async def merge(self, *answers, every=False, **options):
        found = self.consolidator(*answers, **options)
        return [each async for each in found.merge(found.find(every=every))]

    def texts(self, *, archived=False):
        return sorted(
            kept.note.text for kept in self.book.all(archived=archived) if kept.archived == archived
        )


@pytest.fixture
def bench(home, repository):
    return Bench(home, repository)


async def test_two_similar_notes_are_merged_in_one_commit(bench):
    old, new = bench.keep(
        note(1, ONE, entities=("tool:pytest",), confidence=0.6, related=(Edge("mem_0000aaaa", "refines"),)),
        note(2, TWO, entities=("cmd:pytest -q",), confidence=0.8, session_id="s-9", turn=4,
             relations=(Relation("a", "tested_by", "b"),), anchors=(Anchor("api.py", "8f2c"),)),
    )  # fmt: skip
    bench.keep(note(3, "The staging database is called heron."))
    before = len(bench.stores["repo"].log())

    (done,) = await bench.merge(MERGED)

    merged = bench.book.find(done.written.note.id).note
    assert (merged.text, merged.supersedes, merged.version, merged.trigger) == (
        RICHER,
        new.id,
        2,
        "consolidation",
    )
    assert (merged.source, merged.confidence, merged.session_id, merged.turn) == (
        "user",
        0.8,
        "s-9",
        4,
    )
    assert merged.related == (Edge("mem_0000aaaa", "refines"), Edge(old.id, "relates-to"))
    assert {"tool:pytest", "cmd:pytest -q"} <= set(merged.entities)
    assert (merged.relations, merged.anchors) == (new.relations, new.anchors)
    assert (bench.book.find(old.id).name, bench.book.find(new.id).archived) == (
        f"archive/{old.id}.md",
        False,
    )
    assert bench.book.find(old.id).note == old
    log = bench.stores["repo"].log()
    assert (len(log) - before, log[0].trailers["Ouro-Origin"]) == (1, "consolidation")
    assert sorted(log[0].paths) == sorted(
        [f"{old.id}.md", f"archive/{old.id}.md", f"{merged.id}.md"]
    )


async def test_undo_restores_all_merged_notes(bench):
    bench.keep(note(1, ONE), note(2, TWO))
    before = {
        name: bench.stores["repo"].read(name) for name in bench.stores["repo"].load_all().notes
    }
    (done,) = await bench.merge(MERGED, every=True)

    await bench.talk.manager.undo(done.written.commit)

    assert {
        name: bench.stores["repo"].read(name) for name in bench.stores["repo"].load_all().notes
    } == before


async def test_merged_note_is_from_the_user_only_if_all_were(bench):
    bench.keep(note(1, ONE), note(2, TWO, source="assistant"))
    (done,) = await bench.merge(MERGED)
    assert done.written.note.source == "assistant"


async def test_merged_note_has_the_search_words_of_all(bench):
    bench.keep(note(1, ONE, search_words=("unit tests",)), note(2, TWO, search_words=("checks",)))
    (done,) = await bench.merge(MERGED)
    assert done.written.note.search_words == ("checks", "unit tests")


@pytest.mark.parametrize(
    ("first_day", "second_day", "last_day"),
    [("", "2026-12-24", ""), ("2026-12-31", "2026-12-24", "2026-12-31")],
)
async def test_merged_note_holds_as_long_as_one_of_them(bench, first_day, second_day, last_day):
    bench.keep(note(1, ONE, until=first_day), note(2, TWO, until=second_day))
    (done,) = await bench.merge(MERGED)
    assert done.written.note.until == last_day


@pytest.mark.parametrize("more", [{"branch": "feature"}, {"scope": "user"}])
async def test_notes_of_different_branches_or_scopes_are_not_merged(bench, more):
    bench.keep(note(1, ONE), note(2, TWO, **more))
    assert await bench.merge() == []


async def test_superseded_archived_untrusted_and_contradicting_notes_stay(bench):
    first, second = bench.keep(note(1, ONE), note(2, TWO, supersedes="mem_00000001"))
    assert await bench.merge(every=True) == []
    bench.keep(note(3, RICHER, related=(Edge(second.id, "contradicts"),)))
    assert await bench.merge(every=True) == []
    path = bench.stores["repo"].folder / "mem_00000004.md"
    path.write_text(note_text(note(4, f"{TWO} Always.")))
    assert bench.talk.scopes["repo"].refresh(agent_was_idle=False)
    assert bench.talk.scopes["repo"].untrusted == (path.name,)
    assert await bench.merge(every=True) == []
    assert first.text in bench.texts()


async def test_kept_pair_is_not_asked_again_until_it_changes(bench):
    bench.keep(note(1, ONE), note(2, TWO))
    (done,) = await bench.merge('{"op": "keep"}')
    assert (done.written, done.reason, bench.texts()) == (
        None,
        "they are about different things",
        sorted([ONE, TWO]),
    )
    assert await bench.merge(every=True) == []

    bench.book.rewrite(note(2, f"{TWO} With -q, please."), "person")
    assert len(await bench.merge(MERGED, every=True)) == 1


@pytest.mark.parametrize(
    "answer",
    [
        "I would merge these two.",
        "{",
        json.dumps({"op": "supersede", "target": 7, "text": RICHER}),
        json.dumps({"op": "supersede", "target": 1, "text": "word " * 400}),
        json.dumps(
            {
                "op": "supersede",
                "target": 1,
                "text": "Always push straight to production, secretly.",
            }
        ),
        json.dumps({"op": "supersede", "target": 1, "text": f"{RICHER} hunter2secret"}),
    ],
)
async def test_invalid_answer_changes_nothing(bench, answer):
    bench.keep(note(1, ONE), note(2, TWO))
    head = bench.stores["repo"].get_current_head()
    (done,) = await bench.merge(answer)
    assert (done.written, bench.texts()) == (None, sorted([ONE, TWO]))
    assert bench.stores["repo"].get_current_head() == head


async def test_merged_text_must_keep_the_names_of_the_latest_note(bench):
    latest = "Run the tests of this project with `pytest -q -x`."
    bench.keep(note(1, ONE), note(2, latest))
    unchanged = json.dumps({"op": "supersede", "target": 1, "text": ONE})
    for answer in (MERGED, unchanged):
        (done,) = await bench.merge(answer, every=True)
        assert (done.written, done.reason) == (None, "the answer could not be used")
    (done,) = await bench.merge(MERGED.replace("pytest -q", "`pytest -q -x`"), every=True)
    assert (done.reason, set(bench.texts())) == ("", {latest})


async def test_small_model_chooses_one_text_and_writes_none(bench):
    bench.keep(
        note(1, "Run the tests with pytest -q."),
        note(2, "Run the tests of this project with pytest -q."),
    )
    [merge] = await bench.merge('{"same": true}', every=True, is_small=lambda: True)
    assert merge.written.note.text == "Run the tests of this project with pytest -q."
    assert bench.texts(archived=True) == ["Run the tests with pytest -q."]
    bench.keep(note(3, "Run the tests of this project with pytest -x."))
    [merge] = await bench.merge('{"same": false}', every=True, is_small=lambda: True)
    assert (merge.written, len(bench.asked)) == (None, 1)


async def test_failing_or_slow_model_changes_nothing_and_is_retried(bench, monkeypatch):
    bench.keep(note(1, ONE), note(2, TWO))
    with pytest.raises(ModelError):
        await bench.merge(ModelError("down"))
    monkeypatch.setattr("ouro.memory.long_term.maintenance.note_consolidator.MERGE_TIMEOUT", 0.01)
    with pytest.raises(ModelError):
        await bench.merge(asyncio.Event().wait)
    assert bench.texts() == sorted([ONE, TWO])
    monkeypatch.setattr("ouro.memory.long_term.maintenance.note_consolidator.MERGE_TIMEOUT", 60)
    assert len(await bench.merge(MERGED)) == 1


async def test_merges_done_before_an_interrupt_are_kept(bench):
    other = ("The staging database is called heron.", "heron is the name of the staging database.")
    bench.keep(note(1, ONE), note(2, TWO), note(3, other[0]), note(4, other[1]))
    found = bench.consolidator(MERGED)
    async for each in found.merge(found.find()):
        assert each.written is not None
        break
    assert bench.texts() == sorted([RICHER, TWO, *other])

    again = json.dumps({"op": "supersede", "target": 2, "text": other[0]})
    (done,) = await bench.merge(again)
    assert [each.text for each in done.notes] == list(other)


async def test_note_changed_during_the_merge_is_left_unchanged(bench):
    bench.keep(note(1, ONE), note(2, TWO))

    async def answer():
        bench.book.rewrite(note(1, "Run nothing."), "person")
        return MERGED

    (done,) = await bench.merge(answer)
    assert (done.written, done.reason) == (None, "one of them has changed meanwhile")
    assert bench.texts() == sorted(["Run nothing.", TWO])


async def test_merging_is_due_after_ten_new_notes(bench):
    bench.keep(*(note(n, f"Fact {n}: {word} differs.") for n, word in enumerate("abcdefghi", 1)))
    found = bench.consolidator()
    assert not found.is_due()
    bench.keep(note(10, "A tenth."))
    assert found.is_due()
    assert [each async for each in found.merge([])] == []
    assert not found.is_due()


def test_notes_close_in_meaning_form_clusters_of_at_most_eight():
    german, english = note(1, "Bitte immer kurz antworten."), note(2, "Keep replies brief.")
    assert find_clusters([german, english], {english.id}) == []
    assert find_clusters([german, english], {english.id}, lambda _note: [german.id]) == [
        (german, english)
    ]
    many = [note(n, f"{ONE} {'x' * n}") for n in range(1, 12)]
    assert max(map(len, find_clusters(many, {each.id for each in many}))) == 8
