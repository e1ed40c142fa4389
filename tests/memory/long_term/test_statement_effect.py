"""One question decides what a statement does: for `/remember` and for what the agent writes."""

import json

import pytest
from fakes.knowledge import Conversation, editor_of, write_as_user
from fakes.waiting import until

from ouro.assemble import Options, opener
from ouro.errors import LongTermMemoryError
from ouro.events import CoreChanged, Reply
from ouro.llm import ScriptedModel
from ouro.memory.long_term import all_entries, ask_effect, open_statement, remember_text
from ouro.memory.long_term.capture.meaning_question import SCHEMA, MeaningQuestion
from ouro.memory.long_term.contradictions import (
    KEEP_BOTH,
    KEEP_OLD,
    REPLACE,
    compare_added_lines,
    compare_received_entries,
)
from ouro.memory.long_term.notes.note import CATEGORIES
from ouro.session import OpenRequest


class Answers:
    """Answers each request with operations, and records the requests."""

    def __init__(self, *operations):
        self.operations = operations
        self.asked = []

    async def __call__(self, messages, schema=None):
        assert schema == SCHEMA
        self.asked.append(messages[-1].text)
        return json.dumps({"operations": self.operations})


def question(*operations):
    return MeaningQuestion(Answers(*operations), "memory-0123", CATEGORIES)


@pytest.fixture
def editor(home, repository):
    return editor_of(home / ".ouro", repository)


@pytest.mark.parametrize(
    ("operation", "verb", "is_about_first"),
    [
        ({"op": "supersede", "target": 1, "text": "It is so now"}, "supersede", True),
        ({"op": "refine", "target": 1, "text": "It is so now"}, "refine", True),
        ({"op": "contradict", "target": 1, "text": "It is so now"}, "contradict", True),
        ({"op": "confirm", "target": 1}, "confirm", True),
        ({"op": "add", "text": "It is so now", "category": "patterns"}, "add", False),
    ],
)
async def test_model_says_what_a_statement_does_to_the_nearest_entries(
    editor, operation, verb, is_about_first
):
    remember_text(editor, "Frontend state lives in Redux", "repo")
    statement = open_statement(editor, "We moved the store over to Zustand")
    effect = await ask_effect(question(operation), statement, ("user", "repo"))
    assert effect.verb == verb
    assert (effect.entry is not None) is is_about_first
    if is_about_first:
        assert effect.entry.text == "Frontend state lives in Redux"


async def test_model_that_cannot_answer_leaves_the_question_to_the_user(editor):
    remember_text(editor, "The deploy host is heron", "repo")
    statement = open_statement(editor, "Deploys go to crane")

    async def ask(_messages, _schema=None):
        return "I cannot say."

    unusable = MeaningQuestion(ask, "memory-0123", CATEGORIES)
    assert await ask_effect(unusable, statement, ("user", "repo")) is None
    assert statement.doubtful.text == "The deploy host is heron"


def test_no_model_is_asked_where_rules_are_sure(editor):
    remember_text(editor, "We use Redis for the job queue", "repo")
    assert open_statement(editor, "RabbitMQ replaces Redis for the job queue") is None
    assert open_statement(editor, "We use Redis for the job queue") is None


async def test_line_that_the_agent_adds_removes_the_one_that_it_replaces(home, repository):
    conversation = Conversation(home / ".ouro", repository).connect()
    manager = conversation.manager
    await manager.with_editor(lambda editor: remember_text(editor, "CI runs on CircleCI", "repo"))
    await manager.with_editor(
        lambda editor: remember_text(editor, "Builds run in GitHub Actions", "repo")
    )
    replaced = question({"op": "supersede", "target": 1, "text": "It is so now"})
    added = [("repo", "Builds run in GitHub Actions")]
    await compare_added_lines(manager, conversation, replaced, added)
    left = await manager.with_editor(lambda editor: [entry.text for entry in all_entries(editor)])
    assert left == ["Builds run in GitHub Actions"]
    changed = [event for event in conversation.told if isinstance(event, CoreChanged)]
    await manager.undo(changed[-1].undo)
    left = await manager.with_editor(lambda editor: {entry.text for entry in all_entries(editor)})
    assert left == {"CI runs on CircleCI", "Builds run in GitHub Actions"}


async def test_statement_of_a_day_is_a_note_with_its_end(editor):
    done = remember_text(editor, "Never deploy before the year 2999 ends: until 2999-12-31", "repo")
    assert done.entry.kind == "note"
    assert "until: " in editor.text("repo", done.entry.file)


async def texts_of(manager):
    return await manager.with_editor(lambda editor: {entry.text for entry in all_entries(editor)})


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (KEEP_BOTH, {"The deploy host is heron", "Deploys go to crane"}),
        (REPLACE, {"Deploys go to crane"}),
        (KEEP_OLD, {"The deploy host is heron"}),
        (None, {"The deploy host is heron", "Deploys go to crane"}),
    ],
)
async def test_user_decides_about_what_a_sync_brings_on_the_same_subject(
    home, repository, answer, left
):
    conversation = Conversation(home / ".ouro", repository, answer=answer).connect()
    manager = conversation.manager
    for text in ("The deploy host is heron", "Deploys go to crane"):
        await manager.with_editor(lambda editor, text=text: remember_text(editor, text, "repo"))
    replaced = question({"op": "supersede", "target": 1, "text": "It is so now"})
    work = compare_received_entries(
        manager, conversation, replaced, [("repo", "Deploys go to crane")]
    )
    conversation.start("compare", work)
    await conversation.settle()
    assert await texts_of(manager) == left


async def test_received_entries_are_compared_by_words_without_a_model(home, repository):
    conversation = Conversation(home / ".ouro", repository, answer=REPLACE).connect()
    manager = conversation.manager
    for text in ("La API escucha en el puerto 8080", "La API escucha en el puerto 9090"):
        await manager.with_editor(lambda editor, text=text: remember_text(editor, text, "repo"))
    received = [("repo", "La API escucha en el puerto 9090")]
    await compare_received_entries(manager, conversation, None, received)
    assert await texts_of(manager) == {"La API escucha en el puerto 9090"}


async def test_what_a_failed_sync_has_received_is_compared(repository, monkeypatch):
    compared = []

    async def compare(_manager, _channel, _question, received):
        compared.extend(received)

    monkeypatch.setattr("ouro.memory.long_term.contradictions.compare_received_entries", compare)
    options = Options(repository, {}, ready_model=ScriptedModel([]), trust=True, interactive=True)
    session = await opener(options)(OpenRequest())
    memory = session.session_memory

    async def receive():
        async with memory.receiving():
            await memory.with_editor(lambda editor: remember_text(editor, "I live in Oslo", "user"))
            raise LongTermMemoryError("the remote refuses what is sent")

    with pytest.raises(LongTermMemoryError):
        await receive()
    await until(lambda: compared)
    assert compared == [("user", "I live in Oslo")]
    await session.close()


async def test_received_entry_of_another_scope_removes_nothing(home, repository):
    conversation = Conversation(home / ".ouro", repository, answer=REPLACE).connect()
    manager = conversation.manager
    for scope, text in (("user", "I answer in German"), ("repo", "I answer in French")):
        await manager.with_editor(lambda editor, s=scope, t=text: remember_text(editor, t, s))
    await compare_received_entries(manager, conversation, None, [("repo", "I answer in French")])
    assert await texts_of(manager) == {"I answer in German", "I answer in French"}


async def test_rewritten_statement_is_offered_only_if_the_old_one_says_more(editor):
    remember_text(editor, "The API listens on 8080 and speaks gRPC", "repo")
    statement = open_statement(editor, "The port of the API moved to 9090")
    longer = {"op": "supersede", "target": 1, "text": "The API listens on 9090 and speaks gRPC"}
    effect = await ask_effect(question(longer), statement, ("repo",))
    assert effect.rewritten == "The API listens on 9090 and speaks gRPC"
    same = {"op": "supersede", "target": 1, "text": "The port of the API is 9090"}
    assert (await ask_effect(question(same), statement, ("repo",))).rewritten == ""


async def test_contradicted_line_is_removed_although_it_has_moved_meanwhile(home, repository):
    conversation = Conversation(home / ".ouro", repository).connect()
    manager = conversation.manager
    lines = "- CI runs on CircleCI\n- Builds run in GitHub Actions\n"
    await write_as_user(manager, "repo", {"facts.md": f"# Facts\n{lines}"}, "Write")

    async def answer(_question_id, _question):
        await write_as_user(manager, "repo", {"facts.md": lines}, "Remove the heading")
        return Reply((REPLACE,))

    conversation.ask = answer
    contradicted = question({"op": "contradict", "target": 1, "text": "It is so now"})
    added = [("repo", "Builds run in GitHub Actions")]
    await compare_added_lines(manager, conversation, contradicted, added)
    assert await texts_of(manager) == {"Builds run in GitHub Actions"}
