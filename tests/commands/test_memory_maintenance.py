"""/memory consolidate, crystallize and lessons: a question with a price, a line for each result,
undo.
"""

import itertools
import json

import pytest
from fakes.fake_front_end import FakeFrontEnd, memory
from fakes.knowledge import write_as_user
from fakes.stored_sessions import old_session, session_id

from ouro.assemble import Options, opener
from ouro.errors import UsageError
from ouro.events import Notice, TurnFinished
from ouro.llm import ModelSpec, Prices, ScriptedModel, ScriptedReply
from ouro.memory.long_term import CRYSTALLIZE_INSTRUCTIONS
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.messages import Usage, assistant, user
from ouro.session import OpenRequest

TALK = [user("In this project always run the tests with pytest -q, please."), assistant("I will.")]
TESTS = {
    "op": "add",
    "text": "Run the tests with pytest -q.",
    "category": "corrections",
    "said_by": "user",
}
MERGED = {"op": "supersede", "target": 1, "text": "Run the tests of this project with pytest -q."}
SPEC = ModelSpec("scripted", 100_000, prices=Prices(1.0, 1.0))
USED = Usage(input=900, output=20, cost=0.0012)


def answer(messages):
    text = [TESTS] if messages[0].text.endswith(CRYSTALLIZE_INSTRUCTIONS) else MERGED
    return ScriptedReply(json.dumps(text), usage=USED)


@pytest.fixture
async def front_end(repository):
    model = ScriptedModel(itertools.repeat(answer), spec=SPEC)
    session = await opener(Options(repository, ready_model=model))(OpenRequest())
    yield FakeFrontEnd(session)
    await session.close()


async def keep(front_end, *texts):
    for number, text in enumerate(texts, 1):
        note = Note(
            id=f"mem_{number:08x}",
            text=text,
            category="corrections",
            updated_at=f"2026-11-{number:02}",
        )
        await write_as_user(
            front_end.session.session_memory.manager,
            "repo",
            {note.file_name: note_text(note)},
            "Add",
            "capture",
        )


def lines(front_end):
    return [each.text for each in front_end.events if isinstance(each, Notice)]


async def test_old_sessions_are_read_after_confirmation_with_a_receipt(front_end, repository):
    old_session(repository, 1, 30, *TALK)
    old_session(repository, 2, 30, user("hi"), memory=False)
    front_end.picks = ["yes"]
    await memory(front_end, "crystallize")
    (asked,) = front_end.asked
    assert asked[0].startswith("1 session to read, 1 session left out; about 1,5")
    assert "$0.00" in asked[0]
    assert lines(front_end) == [
        "1 of 1 · 00000001 Session 1: kept 1",
        (
            "1 session read: kept 1, proposed 0, refused 0; 900 tokens read, 20 written, $0.0012.\n"
            "Left out: 00000002 Session 2 (it cannot be read, or memory was off in it)"
        ),
    ]
    assert front_end.events[-1] == TurnFinished("answered")


async def test_crystallize_without_confirmation_reads_nothing(front_end, repository):
    old_session(repository, 1, 30, *TALK)
    await memory(front_end, "crystallize 20")
    assert (front_end.events, len(front_end.asked)) == ([], 1)
    await memory(front_end, "crystallize 40")
    assert front_end.lines == [("info", "Every old session here was already read.")]
    with pytest.raises(UsageError):
        await memory(front_end, "crystallize yesterday")


async def test_notes_are_merged_after_confirmation_and_merges_are_undoable(front_end):
    await keep(
        front_end, "Run the tests with pytest -q.", "Tests are run with pytest -q in this project."
    )
    front_end.picks = ["yes"]
    await memory(front_end, "consolidate notes")
    assert front_end.asked[0][0].startswith("1 cluster of notes that say about the same; about ")
    merged, whole = lines(front_end)
    assert merged.startswith(
        "1 of 1 · 2 notes merged: Run the tests of this project with pytest -q. · /memory undo "
    )
    assert whole == "1 cluster merged, 1 note fewer; 900 tokens read, 20 written, $0.0012."
    await memory(front_end, "consolidate notes")
    assert front_end.lines == [("info", "No notes say the same.")]
    await front_end.session.session_memory.manager.undo(merged.rpartition(" ")[2])
    folder = front_end.session.session_memory.manager.stores[-1].folder
    assert sorted(path.name for path in folder.rglob("mem_*.md")) == [
        "mem_00000001.md",
        "mem_00000002.md",
    ]


async def test_both_flags_together_consolidate_both(front_end):
    await memory(front_end, "consolidate --core --notes")
    assert [text for _, text in front_end.lines] == [
        "Memory (user): there is nothing to merge.",
        "Memory (repo): there is nothing to merge.",
        "No notes say the same.",
    ]


async def test_the_core_of_a_scope_or_of_all_is_consolidated_too(front_end):
    await memory(front_end, "consolidate repo")
    await memory(front_end, "consolidate core")
    assert [text for _, text in front_end.lines] == [
        "Memory (repo): there is nothing to merge.",
        "Memory (user): there is nothing to merge.",
        "Memory (repo): there is nothing to merge.",
    ]
    with pytest.raises(UsageError, match="`facts` cannot be consolidated"):
        await memory(front_end, "consolidate facts")


async def test_lessons_are_listed_newest_first_with_their_source(front_end):
    await memory(front_end, "lessons")
    assert front_end.lines == [("info", "There are no lessons yet.")]
    await keep(front_end, "Never migrate by hand.", "The linter needs node.")
    await memory(front_end, "lessons")
    (shown,) = front_end.shown
    assert shown.index("The linter needs node.") < shown.index("Never migrate by hand.")
    assert "2026-11-02" in shown
    assert session_id(1) not in shown
