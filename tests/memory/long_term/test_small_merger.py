"""Merging by a small model: what it is asked, and what of its answers counts."""

import json

import pytest

from ouro.memory.long_term.consolidator import LongTermMemoryConsolidator
from ouro.memory.long_term.notes.note import Note
from ouro.memory.long_term.small_merger import SmallMerger


class Same:
    """Says that two lines are the same where they have the same words, in any order."""

    def __init__(self, answer=None):
        self.answer, self.asked = answer, []

    async def __call__(self, messages, schema):
        assert schema["required"] == ["same"]
        first, second = messages[-1].text.removeprefix("First: ").split("\nSecond: ")
        self.asked.append((first, second))
        words, others = ({*text.lower().rstrip(".").split()} for text in (first, second))
        return json.dumps({"same": words <= others}) if self.answer is None else self.answer


def merger(model):
    return SmallMerger(model, lambda: True)


CORE = """\
# Facts

- The API listens on port 8417.
- Dates are stored in UTC.

- On port 8417 listens the API.
- The API listens on port 8418.
- Dates are always stored in UTC.
"""


async def test_of_lines_that_say_the_same_the_one_that_says_more_or_is_later_stays():
    model = Same()
    gone = ("- The API listens on port 8417.\n", "- Dates are stored in UTC.\n")
    assert await merger(model).without_repeated(CORE) == CORE.replace(gone[0], "").replace(gone[1], "")
    assert all("8418" not in text for pair in model.asked for text in pair)  # another number: no model is asked


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
async def test_what_rules_know_to_differ_needs_no_model(first, second):
    model = Same('{"same": true}')
    assert not await merger(model).says_all(second, first)
    assert model.asked == []
    assert await merger(model).says_all("We hash passwords with argon2.", "Passwords are hashed with argon2.")


@pytest.mark.parametrize("answer", ["", "yes", '{"same": 1}', "{", '{"relation": "same"}'])
async def test_what_is_no_answer_removes_nothing(answer):
    assert await merger(Same(answer)).without_repeated(CORE) == CORE


async def test_of_notes_one_covers_those_of_which_it_says_everything():
    texts = ("Run pytest -q.", "Run pytest -q before each commit.", "Run ruff before each commit.")
    notes = [Note(id=f"mem_0000000{number}", text=text) for number, text in enumerate(texts)]
    best, covered = await merger(Same()).covered(notes)
    assert (best, covered) == (notes[1], notes[:2])


async def test_a_core_is_consolidated_without_a_text_of_the_small_model():
    async def no_text(_messages):
        raise AssertionError("it is not asked for a text")

    small = merger(Same())
    done = await LongTermMemoryConsolidator(no_text, lambda _: "", small).consolidate(
        {"facts": CORE, "decisions": "- Redis is the queue.\n"}
    )
    assert set(done.texts) == {"facts"}
    assert done.said.endswith("tokens")
    two = {"facts": "- The API listens on port 8417.\n- The API listens on port 8418.\n"}
    done = await LongTermMemoryConsolidator(no_text, lambda _: "", small).consolidate(two)
    assert (done.said, done.texts) == ("no line says what another one says", {})
    many = "".join(f"- The port of host{number} is {number}.\n" for number in range(30)) + "- The port of host7 is 7.\n"
    done = await LongTermMemoryConsolidator(no_text, lambda _: "", small).consolidate({"facts": many})
    assert len(done.texts["facts"].splitlines()) == 30  # it saves 3 %, and loses nothing
