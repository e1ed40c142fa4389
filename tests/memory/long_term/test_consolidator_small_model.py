"""Merging with a small model: its requests, and which answers are used."""

import json

import pytest

from ouro.memory.long_term import LongTermMemoryConsolidator
from ouro.memory.long_term.core_consolidator import (
    find_covered_notes,
    remove_repeated_lines,
    says_all,
)
from ouro.memory.long_term.notes.note import Note


class Same:
    """Answers that two lines mean the same if they have the same words, in any order."""

    def __init__(self, answer=None):
        self.answer, self.asked = answer, []

    async def __call__(self, messages, schema):
        assert schema["required"] == ["same"]
        first, second = messages[-1].text.removeprefix("First: ").split("\nSecond: ")
        self.asked.append((first, second))
        words, others = ({*text.lower().rstrip(".").split()} for text in (first, second))
        return json.dumps({"same": words <= others}) if self.answer is None else self.answer


CORE = """\
# Facts

- The API listens on port 8417.
- Dates are stored in UTC.

- On port 8417 listens the API.
- The API listens on port 8418.
- Dates are always stored in UTC.
"""


async def test_fuller_or_later_of_two_repeated_lines_is_kept():
    model = Same()
    gone = ("- The API listens on port 8417.\n", "- Dates are stored in UTC.\n")
    assert await remove_repeated_lines(model, CORE) == CORE.replace(gone[0], "").replace(
        gone[1], ""
    )
    assert all(
        "8418" not in text for pair in model.asked for text in pair
    )  # the numbers differ: no model is asked


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Never commit generated files.", "Never commit secrets."),
        ("Alice reviews the changes of Bob.", "Bob reviews the changes of Alice."),
        ("Use mocks in tests.", "Never use mocks in tests."),
        ("The limit is 20 MB.", "The limit is 30 MB."),
        ("The limit is 20 MB.", "The limit is 200 MB."),
        ("The limit is < 20 MB.", "The limit is > 20 MB."),
        ("The parser is written in C++.", "The parser is written in C."),
        ("Errors return -1.", "Errors return 1."),
        ("See api.py for the limit.", "See apis.py for the limit."),
    ],
)
async def test_pairs_decided_by_rules_need_no_model(first, second):
    model = Same('{"same": true}')
    assert not await says_all(model, second, first)
    assert model.asked == []
    assert await says_all(
        model, "We hash passwords with argon2.", "Passwords are hashed with argon2."
    )


@pytest.mark.parametrize("answer", ["", "yes", '{"same": 1}', "{", '{"relation": "same"}'])
async def test_invalid_answer_removes_nothing(answer):
    assert await remove_repeated_lines(Same(answer), CORE) == CORE


async def test_note_covering_others_is_chosen():
    texts = ("Run pytest -q.", "Run pytest -q before each commit.", "Run ruff before each commit.")
    notes = [Note(id=f"mem_0000000{number}", text=text) for number, text in enumerate(texts)]
    best, covered = await find_covered_notes(Same(), notes)
    assert (best, covered) == (notes[1], notes[:2])


async def test_small_model_consolidates_the_core_without_writing_text():
    small = LongTermMemoryConsolidator(
        Same(), lambda _: "", lambda: True
    )  # `Same` refuses a request for a text
    done = await small.consolidate({"facts": CORE, "decisions": "- Redis is the queue.\n"})
    assert set(done.texts) == {"facts"}
    assert done.summary.endswith("tokens")
    two = {"facts": "- The API listens on port 8417.\n- The API listens on port 8418.\n"}
    done = await small.consolidate(two)
    assert (done.summary, done.texts) == ("no line says what another one says", {})
    many = (
        "".join(f"- The port of host{number} is {number}.\n" for number in range(30))
        + "- The port of host7 is 7.\n"
    )
    done = await small.consolidate({"facts": many})
    assert len(done.texts["facts"].splitlines()) == 30  # it would save only 3 %
