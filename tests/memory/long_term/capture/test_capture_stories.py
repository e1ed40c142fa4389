"""The first halves of the five use cases: messages of several sessions become the right notes."""

from __future__ import annotations

import asyncio
import subprocess

import pytest
from fakes.classifier import Two, add, say, unread_events, wait_until_quiet
from fakes.knowledge import editor_of
from fakes.waiting import until

from ouro.events import QuestionAsked, Reply
from ouro.memory.long_term import remember_text
from ouro.memory.long_term.capture.observer import KEEP_BOTH, KEEP_OLD, REPLACE
from ouro.memory.long_term.notes.note import parse_note
from ouro.utils.ouro_paths import get_config_path, get_home, get_memory_dir


class Notes:
    """The notes of one repository, and those of the user."""

    def __init__(self, repository) -> None:
        self.folder = repository / ".ouro" / "memory"

    def all(self, folder=None):
        found = [
            parse_note(path.name, path.read_text()).note
            for path in (folder or self.folder).glob("mem_*.md")
        ]
        return sorted(found, key=lambda note: (note.version, note.created_at))

    def users(self):
        return self.all(get_memory_dir())


async def session_of(repository, answer, *said, replies=()) -> Two:
    """A session with these messages; the next session captures its notes."""
    two = Two(replies=replies)
    session = await two.open(repository, interactive=False)
    await say(session, *said)
    await session.close()
    two.replies = []
    two.always = answer
    later = await two.open(repository)
    await say(later, "ok")
    await wait_until_quiet(later)
    await later.close()
    return two


def shown_notes(asked: str) -> list[str]:
    """The notes in the classifier's request, in order."""
    lines = asked.partition("The session, quoted")[0].splitlines()
    return [line.partition(") ")[2] for line in lines if line.startswith("| ") and ". (" in line]


@pytest.fixture
def notes(repository):
    return Notes(repository)


async def test_repeated_user_preference_is_saved_once(repository, notes):
    text = "Answers in German, code comments in English."
    await session_of(
        repository,
        [add(text, "coding-preferences")],
        "answer in german but keep code comments in english",
    )
    preferences = get_memory_dir() / "preferences.md"
    assert (preferences.read_text(), notes.users(), notes.all()) == (f"- {text}\n", [], [])

    two = await session_of(
        repository, [add(text, "coding-preferences")], "once more: german answers, english comments"
    )
    assert shown_notes(two.captures[-1]) == [text]
    assert (preferences.read_text(), notes.users(), notes.all()) == (f"- {text}\n", [], [])


async def test_repository_convention_is_saved_with_entities_and_anchors(repository, notes):
    text = "Every handler in api.py is tested by `pytest tests/test_api.py`."
    relation = {"from": "./api.py", "rel": "tested by", "to": "cmd:pytest tests/test_api.py"}
    await session_of(
        repository,
        [add(text, relations=[{**relation, "from": "file:./api.py"}])],
        "in this repo every handler in api.py has a test",
    )
    [note] = notes.all()
    named = ("tool:pytest", "cmd:pytest tests/test_api.py", "file:api.py", "file:tests/test_api.py")
    assert (note.scope, note.category, note.entities) == ("repo", "project-conventions", named)
    assert [(each.source, each.rel, each.target) for each in note.relations] == [
        ("file:api.py", "tested_by", "cmd:pytest tests/test_api.py")
    ]
    blob = subprocess.run(
        ["git", "hash-object", "api.py"], cwd=repository, capture_output=True, text=True, check=True
    )
    assert [(each.path, each.blob) for each in note.anchors] == [("api.py", blob.stdout.strip())]


async def test_a_decision_and_its_reversal_are_a_chain_of_two(repository, notes):
    await session_of(
        repository,
        [add("Row locks for user updates in db/users.py.", "architectural-decisions")],
        "we decided on row locks for user updates in db/users.py",
    )
    [old] = notes.all()
    text = "Optimistic locking for user updates: row locks timed out under load."

    def reversal(asked):
        place = shown_notes(asked).index(old.text) + 1 if old.text in shown_notes(asked) else 0
        return (
            [{"op": "supersede", "target": place, "text": text, "said_by": "user"}] if place else []
        )

    await session_of(
        repository,
        reversal,
        "row locks timed out under load, from now on user updates use optimistic locking",
    )
    first, second = notes.all()
    assert (first.text, second.text, second.supersedes, second.version) == (
        old.text,
        text,
        old.id,
        2,
    )
    assert (second.category, second.source) == ("architectural-decisions", "user")


async def test_personal_style_is_known_in_another_repository(repository, tmp_path, notes):
    other = tmp_path / "other"
    other.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=other, check=True)
    style = "Likes early returns and short functions."
    await session_of(
        repository, [add(style, "coding-preferences")], "i like early returns and short functions"
    )

    two = await session_of(other, [], "please write it with early returns, as short functions")

    assert f"- {style}" in two.prompts[0][0].text
    assert (notes.users(), notes.all(), Notes(other).all()) == ([], [], [])


async def test_correction_is_saved_with_its_entities(repository, notes):
    text = "The models in schema.py are generated by `make schema`."
    await session_of(
        repository,
        [add(text, "corrections")],
        "change the schema please",
        "no, the models in schema.py are generated by make schema",
        replies=["I edited schema.py.", "Understood."],
    )
    [note] = notes.all()
    assert (note.category, note.source, note.turn) == ("corrections", "user", 2)
    assert "file:schema.py" in note.entities


async def test_prohibition_of_a_file_goes_to_the_core(repository, notes):
    text = "Please leave vendor/ alone, those files are copied from upstream."
    await session_of(repository, [add(text)], text)
    assert list(notes.all()) == []

    two = await session_of(repository, [], "remove the debug prints")

    assert f"| - {text} ⟨" in two.prompts[0][0].text


async def test_short_user_statements_go_to_the_core_and_file_facts_to_notes(repository, notes):
    rule, fact = "Dates are always stored in UTC.", "Business logic lives in app/interactions."
    decision = "Consumers commit by hand, because auto-commit lost orders."
    anchored = "The limits are read from app/limits.py."
    said = [add(rule), add(fact), add(decision, "architectural-decisions"), add(anchored)]
    await session_of(repository, said, f"{rule} {fact} {decision} {anchored}")
    assert [note.text for note in notes.all()] == [anchored]

    two = await session_of(repository, [], "hello")

    for line in (rule, fact, decision):
        assert f"| - {line} ⟨" in two.prompts[0][0].text


async def test_model_statement_becomes_a_note(repository, notes):
    await session_of(
        repository, [add("Tests need a running server.", by="assistant")], "why do they fail?"
    )
    assert [note.text for note in notes.all()] == ["Tests need a running server."]


async def test_statement_becomes_a_note_if_the_core_is_full(repository, notes, monkeypatch):
    monkeypatch.setattr("ouro.memory.long_term.remember.MAX_CORE_TOKENS", 10)
    first, second = "Dates are always stored in UTC.", "Invoices are rounded half to even."
    await session_of(repository, [add(first), add(second)], f"{first} {second}")
    assert ((notes.folder / "facts.md").read_text(), [note.text for note in notes.all()]) == (
        f"- {first}\n",
        [second],
    )


async def test_outdated_core_line_is_replaced(repository, notes):
    old, other, new = (
        "The app supports iOS 15 and up.",
        "The app ships on Mondays.",
        "The deployment target is iOS 17.",
    )
    await session_of(repository, [add(old), add(other)], f"{old} {other}")

    def outdated(asked):
        return [
            {
                "op": "supersede",
                "target": shown_notes(asked).index(old) + 1,
                "text": new,
                "said_by": "user",
            }
        ]

    await session_of(
        repository,
        outdated,
        "we dropped the old phones, the deployment target of the app is iOS 17",
    )
    assert (notes.folder / "facts.md").read_text() == f"- {other}\n- {new}\n"


@pytest.mark.parametrize(
    ("answer", "left", "pending"),
    [
        (Reply((KEEP_BOTH,)), "- {old}\n- {new}\n", 0),
        (Reply((REPLACE,)), "- {new}\n", 0),
        (Reply((KEEP_OLD,)), "- {old}\n", 0),
        (Reply(), "- {old}\n", 1),
    ],
)
async def test_contradiction_of_a_core_line_asks_the_user(repository, notes, answer, left, pending):
    get_config_path().parent.mkdir(exist_ok=True)
    get_config_path().write_text("memory: {cadence_turns: 1}\n")
    old, new = "The app ships on Mondays.", "The app ships on Thursdays."
    remember_text(editor_of(get_home(), repository), old)

    def unclear(asked):
        return [
            {
                "op": "contradict",
                "target": shown_notes(asked).index(old) + 1,
                "text": new,
                "said_by": "user",
            }
        ]

    session = await Two(unclear).open(repository)
    await say(session, "somebody told me that the app ships on Thursdays")
    async with asyncio.timeout(30):
        while not (
            asked := [event for event in unread_events(session) if isinstance(event, QuestionAsked)]
        ):
            await asyncio.sleep(0.01)
    assert (f"): {old}\n- now: {new}" in asked[0].question.details, len(asked)) == (True, 1)
    assert ((notes.folder / "facts.md").read_text(), notes.all()) == (f"- {old}\n", [])
    session.answer(asked[0].question_id, answer)
    await until(lambda: not session.turn.tasks._background)
    await session.close()

    assert ((notes.folder / "facts.md").read_text(), notes.all()) == (
        left.format(old=old, new=new),
        [],
    )
    assert len(editor_of(get_home(), repository).scope("repo").proposals()) == pending


async def test_unrelated_core_line_is_not_replaced(repository, notes):
    old, new = "The app ships on Mondays.", "Invoices are rounded half to even."
    await session_of(repository, [add(old)], old)

    def confused(asked):
        return [
            {
                "op": "supersede",
                "target": shown_notes(asked).index(old) + 1,
                "text": new,
                "said_by": "user",
            }
        ]

    await session_of(repository, confused, "invoices of the app are rounded half to even")
    assert (notes.folder / "facts.md").read_text() == f"- {old}\n- {new}\n"


async def test_captured_correction_replaces_the_core_line(repository, notes):
    remember_text(editor_of(get_home(), repository), "We use Redis for the job queue")
    said = "we changed our mind: RabbitMQ replaces Redis for the job queue"
    await session_of(
        repository, [add("RabbitMQ is used for the job queue.", "architectural-decisions")], said
    )
    assert (notes.folder / "facts.md").read_text() == "- RabbitMQ is used for the job queue.\n"
    assert notes.all() == []
