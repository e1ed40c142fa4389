"""/copy: the last answer, a code block, an earlier answer, any message."""

import pytest
from fakes.fake_front_end import FakeFrontEnd
from fakes.fake_session import FakeSession

from ouro.commands.copy import code_blocks
from ouro.commands.slash import dispatch
from ouro.events import Prompted, Replied
from ouro.messages import assistant

CODE = "Try:\n```python\nprint(1)\nprint(2)\n```\nor\n~~~\nmake `x`\n~~~\n"


def front_end_with(*messages, picks=()):
    session = FakeSession()
    session.shown_before = list(messages)
    front_end = FakeFrontEnd(session)
    front_end.picks = list(picks)
    return front_end


def said(text):
    return Replied(assistant(text))


async def copied(line, *messages, picks=()):
    front_end = front_end_with(*messages, picks=picks)
    await dispatch(front_end, line)
    return front_end.copied


TALK = (Prompted("first?"), said("One."), Prompted("code?"), said(CODE))


@pytest.mark.parametrize(
    ("line", "picks", "text"),
    [
        ("/copy", ["whole"], CODE),
        ("/copy", ["0"], "print(1)\nprint(2)"),
        ("/copy", ["1"], "make `x`"),
        ("/copy code", ["1"], "make `x`"),
        ("/copy 2", [], "One."),
        ("/copy list", ["1"], "code?"),
        ("/copy list", ["0", "0"], "print(1)\nprint(2)"),
        ("/copy list", ["3"], "first?"),
    ],
)
async def test_an_answer_a_block_or_a_message_is_copied(line, picks, text):
    assert await copied(line, *TALK, picks=picks) == [text]


async def test_an_answer_without_code_is_copied_at_once():
    assert await copied("/copy", said("Plain."), said("  ")) == ["Plain."]


async def test_the_only_code_block_is_copied_at_once():
    assert await copied("/copy code", said("```\nx\n```")) == ["x"]


@pytest.mark.parametrize("line", ["/copy", "/copy list"])
async def test_a_cancelled_choice_copies_nothing(line):
    assert await copied(line, *TALK) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("/copy 9", "only 2 answers"),
        ("/copy 0", "only 2 answers"),
        ("/copy everything", "cannot be copied"),
        (f"/copy {'9' * 5_000}", "cannot be copied"),
        ("/copy ²", "cannot be copied"),
        ("/copy code", "no code block"),
    ],
)
async def test_what_is_not_there_is_said(line, problem):
    front_end = front_end_with(said("One."), said("Two."))
    await dispatch(front_end, line)
    assert problem in front_end.lines[-1][1]
    assert front_end.copied == []


def test_only_whole_fences_are_blocks():
    text = (
        "````md\n```py\nx\n```\n````\n``` inline ``` text\n  ```sh\nls\n  ```\n```\nnever closed\n"
    )
    assert [(block.language, block.code) for block in code_blocks(text)] == [
        ("md", "```py\nx\n```"),
        ("sh", "ls"),
    ]
