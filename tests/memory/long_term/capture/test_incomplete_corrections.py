"""A correction that names no subject is completed from the note that it corrects."""

import json

import pytest

from ouro.memory.long_term import categories_with
from ouro.memory.long_term.capture.incomplete_corrections import (
    is_incomplete,
    quote_changed_note,
    says_only_the_change,
)
from ouro.memory.long_term.capture.operations import MAX_OPERATIONS, OperationLimits
from ouro.memory.long_term.capture.session_parts import Spoken
from ouro.memory.long_term.capture.small_model import find_operations
from ouro.memory.long_term.notes.note import Note

SERVER = Note(id="mem_00000001", text="The development server listens on port 8000.", scope="repo")
BLACK = Note(id="mem_00000002", text="Black formats the code", scope="repo")


class Answers:
    """Writes `note`; every sentence is a fact of the user, on a subject of its own."""

    def __init__(self, note, subject=""):
        self.note, self.subject, self.asked = note, subject, []

    async def __call__(self, messages, schema=None):
        fields = schema["properties"]
        if "note" in fields:
            self.asked.append(messages[-1].text)
            return json.dumps({"note": self.note})
        if "first" in fields:
            return json.dumps({"first": self.subject or "this", "second": self.subject or "that"})
        return json.dumps({"kind": "fact", "label": "own", "about": "project", "same": False})


async def operations(said, answers, *shown):
    return await operations_of([Spoken(1, "user", said)], answers, *shown)


async def operations_of(spoken, answers, *shown):
    limits = OperationLimits(shown, categories_with({}), ("user", "repo"))
    return await find_operations(answers, spoken, limits)


async def test_correction_without_a_subject_becomes_the_note_as_it_holds_now():
    answers = Answers("The development server listens on port 8417.")
    said = "No, that was last year. It listens on 8417."

    [found] = await operations(said, answers, BLACK, SERVER)

    assert (found.verb, found.target) == ("supersede", SERVER.id)
    assert found.text == "The development server listens on port 8417."
    assert answers.asked == [f"Note: {SERVER.text}\nUser: {said}"]


@pytest.mark.parametrize(
    "note",
    [
        SERVER.text,  # unchanged: the correction is about something else
        "The development server listens on port 9000.",  # not the value that the user said
        "It is 8417.",  # nothing of the note is left
        "",
    ],
)
async def test_what_the_model_makes_up_is_not_used(note):
    said = "No, that was last year. It listens on 8417."
    assert await operations(said, Answers(note), SERVER) == ()


class Ports(Answers):
    """Writes of each correction a note with its port."""

    async def __call__(self, messages, schema=None):
        port = messages[-1].text.split()[-1]
        self.note = f"The development server listens on port {port}"
        return await super().__call__(messages, schema)


async def test_corrections_of_one_note_replace_it_once_with_the_last_value():
    spoken = [
        Spoken(number, "user", f"No, that was last year. It listens on {8400 + number}.")
        for number in range(MAX_OPERATIONS + 1)
    ]
    spoken.append(Spoken(len(spoken), "user", "Tomás bakes the bread."))

    found = await operations_of(spoken, Ports(""), SERVER)

    assert [operation.verb for operation in found] == ["supersede", "add"]
    assert found[0].target == SERVER.id
    assert found[0].text.endswith(f"{8400 + MAX_OPERATIONS}.")


async def test_correction_that_shares_no_word_with_a_note_changes_none():
    answers = Answers("Tomás formats the code")
    assert await operations("No. That's Tomás now.", answers, BLACK) == ()
    assert answers.asked == []


async def test_fault_that_is_still_there_corrects_no_note():
    answers = Answers("The basket still fails")
    assert await operations("no, that still fails", answers, SERVER) == ()
    assert answers.asked == []


async def test_replacement_that_begins_with_a_pronoun_is_completed_in_other_languages():
    known = Note(id="mem_00000003", text="Der Testserver steht in Köln", scope="repo")
    answers = Answers("Der Testserver steht in Fulda.", subject="place of the test server")

    [found] = await operations("Nein, der steht jetzt in Fulda.", answers, known)

    assert (found.verb, found.target) == ("supersede", known.id)
    assert found.text == "Der Testserver steht in Fulda."


RULES = Note(
    id="mem_00000004",
    text="from now on, always run tests with pytest -x, and keep answers to one sentence",
    scope="repo",
)


@pytest.mark.parametrize(
    ("written", "remembered"),
    [
        (
            "Always run tests with pytest -q, and keep answers to one sentence",
            "Always run tests with pytest -q, and keep answers to one sentence",
        ),
        # Without the value that the user said, their own words are remembered beside the note.
        (
            "Always run tests with pytest, and keep answers to one sentence",
            "Ab jetzt nicht mehr mit -x, sondern mit -q. (before: from now on, always run tests with"
            " pytest -x, and keep answers to one sentence)",
        ),
    ],
)
async def test_a_correction_of_one_value_keeps_the_rest_of_the_note(written, remembered):
    answers = Answers(written, subject="options of the tests")
    said = "Ab jetzt nicht mehr mit -x, sondern mit -q."

    [found] = await operations(said, answers, RULES)

    assert (found.verb, found.target, found.text) == ("supersede", RULES.id, remembered)
    assert answers.asked[0].startswith("Note: Always run tests")


BACKEND = Note(
    id="mem_00000005", text="The backend is FastAPI with SQLAlchemy, Python 3.12.", scope="repo"
)


@pytest.mark.parametrize(
    ("written", "remembered"),
    [
        (
            "The backend is FastAPI with SQLAlchemy, Python 3.13.",
            "The backend is FastAPI with SQLAlchemy, Python 3.13.",
        ),
        # The model wrote only one clause of the note: what the user said is beside the whole note.
        (
            "The backend is Python 3.13, no longer Python 3.12.",
            "We no longer support Python 3.12, it is 3.13 now. (before: The backend is FastAPI with"
            " SQLAlchemy, Python 3.12.)",
        ),
    ],
)
async def test_a_longer_correction_of_one_clause_keeps_the_others(written, remembered):
    answers = Answers(written, subject="Python version")
    said = "We no longer support Python 3.12, it is 3.13 now."

    [found] = await operations(said, answers, BACKEND)

    assert (found.verb, found.target, found.text) == ("supersede", BACKEND.id, remembered)


async def test_a_correction_without_a_value_is_not_put_into_one_clause_of_the_note():
    wish = Note(
        id="mem_00000006", text="Please give short answers, my screen is small.", scope="user"
    )
    answers = Answers("Please give short answers, my screen is big.", subject="length of answers")
    said = "From now on long answers again, as the screen is big."

    [found] = await operations(said, answers, wish)

    assert (found.verb, found.target, answers.asked) == ("supersede", wish.id, [])
    assert found.text.endswith(f"ong answers again, as the screen is big. (before: {wish.text})")


def test_a_note_is_quoted_once():
    once = quote_changed_note("with -q", "run tests with pytest -x (slow)")
    assert once == "with -q (before: run tests with pytest -x (slow))"
    assert quote_changed_note("with -v", once) == (
        "with -v (before: run tests with pytest -x (slow))"
    )


@pytest.mark.parametrize(
    ("statement", "note", "expected"),
    [
        ("not with -x any more, with -q", "run tests with pytest -x, in one process", True),
        ("we use pnpm, not npm", "Install all packages with npm", True),
        ("we use pnpm in all projects, not npm", "Install packages with npm", False),
        ("Deploys go out on Friday now", "Deploys go out on Monday", False),
        ("The office is in Fulda", "Kim cuts the releases on Thursday", False),
        (
            "Das Amt nimmt keine PDF mehr, die Berichte sind jetzt CSV",
            "Berichte gehen als PDF ans Amt, jeden Freitag",
            True,
        ),
        ("报告现在改成用表格格式发送了", "报告用文档格式发送，星期五开会", True),
    ],
)
def test_a_statement_that_says_less_than_the_note_is_completed(statement, note, expected):
    assert says_only_the_change(statement, note) is expected


@pytest.mark.parametrize(
    ("sentence", "before", "expected"),
    [
        ("It listens on 8417.", "No, that was last year.", True),
        ("It's 20 seconds, not 10.", "", True),
        ("It works.", "", False),
        ("No, that is wrong: the basket is never negative.", "", False),
        ("The server listens on 8417, not on 8000.", "", False),
        ("It listens on 8417.", "The server is new.", False),
    ],
)
def test_only_a_correction_is_completed(sentence, before, expected):
    assert is_incomplete(sentence, before) is expected
