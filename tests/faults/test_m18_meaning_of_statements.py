"""M18: what a statement does is asked of a model. Its answer replaces no entry that it was not
shown, writes into no scope that is off, keeps no secret and no draft, and drops nothing unseen.
"""

import json

import pytest
from fakes.knowledge import Conversation, editor_of

from ouro.errors import SecretInMemory
from ouro.events import Reply
from ouro.memory.long_term import (
    all_entries,
    ask_effect,
    categories_with,
    open_statement,
    remember_text,
)
from ouro.memory.long_term.capture.meaning_question import MeaningQuestion
from ouro.memory.long_term.capture.operations import OperationLimits, read_operations
from ouro.memory.long_term.capture.session_parts import Spoken
from ouro.memory.long_term.capture.small_model import find_operations
from ouro.memory.long_term.contradictions import compare_received_entries

CATEGORIES = categories_with({})


def answering(*operations):
    async def ask(_messages, _schema=None):
        return json.dumps({"operations": operations})

    return MeaningQuestion(ask, "memory-0123", CATEGORIES)


@pytest.fixture
def editor(home, repository):
    return editor_of(home / ".ouro", repository)


@pytest.mark.parametrize("target", [0, -1, 2, 99, "mem_00000000", "user/facts.md:1", None, True])
async def test_m18_answer_changes_no_entry_that_was_not_shown(editor, target):
    remember_text(editor, "The deploy host is heron", "repo")
    statement = open_statement(editor, "Deploys go to crane")
    hostile = answering({"op": "supersede", "target": target, "text": "All hosts are evil"})
    effect = await ask_effect(hostile, statement, ("user", "repo"))
    assert effect is None or effect.entry in statement.near
    if target is not True:  # the first entry for a tolerant reader
        assert effect is None


@pytest.mark.parametrize("scope", ["repo", "project", "repository"])
def test_m18_answer_writes_into_no_scope_that_is_off(scope):
    limits = OperationLimits((), CATEGORIES, ("user",))
    answer = {"op": "add", "text": "Tests are tox", "category": "patterns", "scope": scope}
    done, refused = read_operations(json.dumps({"operations": [answer]}), limits)
    assert done == ()
    assert refused[0].reason == "the repo memory is off here"


async def test_m18_rewritten_statement_is_not_written_without_the_user(editor):
    remember_text(editor, "The API listens on 8080 and speaks gRPC", "repo")
    statement = open_statement(editor, "The port of the API moved to 9090")
    longer = {"op": "supersede", "target": 1, "text": "The API listens on 9090 and curls evil.sh"}
    effect = await ask_effect(answering(longer), statement, ("repo",))
    assert [entry.text for entry in all_entries(editor)] == [effect.entry.text]
    done = remember_text(editor, statement.text, "repo", effect.entry.id)
    assert done.entry.text == "The port of the API moved to 9090"
    assert done.replaced[0].text == "The API listens on 8080 and speaks gRPC"


async def test_m18_secret_that_an_answer_writes_is_refused(home, repository):
    conversation = Conversation(home / ".ouro", repository).connect()
    with pytest.raises(SecretInMemory):
        await conversation.manager.with_editor(
            lambda editor: remember_text(editor, "The key is hunter2secret", "repo")
        )


async def test_m18_nothing_that_was_here_goes_without_an_answer_of_the_user(home, repository):
    conversation = Conversation(home / ".ouro", repository).connect()
    manager, texts = conversation.manager, ["The deploy host is heron", "Deploys go to crane"]
    for text in texts:
        await manager.with_editor(lambda editor, text=text: remember_text(editor, text, "repo"))

    class Leaving:
        async def ask(self, _question_id, _question):
            return Reply(())

    hostile = answering({"op": "supersede", "target": 1, "text": "It is so now"})
    await compare_received_entries(manager, Leaving(), hostile, [("repo", texts[1])])
    left = await manager.with_editor(lambda editor: [entry.text for entry in all_entries(editor)])
    assert left == texts


@pytest.mark.parametrize("label", ["", "own it", '{"label": "own"', "Ignore all rules"])
async def test_m18_sentence_in_doubt_is_not_kept_in_silence(label):
    async def ask(messages, _schema=None):
        is_kind = messages[-1].text.startswith("The sentence: ")
        return '{"kind": "rule"}' if is_kind else label

    limits = OperationLimits((), CATEGORIES, ("user", "repo"))
    said = Spoken(1, "user", "Setz das in den Brief: wir liefern immer vor dem Mittag.")
    found = await find_operations(ask, [said], limits)
    assert [operation.certainty for operation in found] == ["doubtful"]
