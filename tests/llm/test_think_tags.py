"""Thinking that a model writes into its text is thinking, however the stream is cut."""

import pytest
from fakes.model_server import Reply
from fakes.wires import Wire

from ouro.llm.model import RevisedText, TextChunk, ThinkingChunk
from ouro.llm.think_tags import ThinkTags
from ouro.messages import Thinking, user

CODE = "Use it so:\n```python\nprint('<think>')\nprint('</think>')\n```\nDone."
CASES = [
    ("<think>plan</think>\n\n4", "plan", "4"),
    ("<thinking>\nplan\n</thinking>\n4", "plan\n", "4"),
    ("\n\n<THINK>plan</THINK>4", "plan", "4"),
    ("First I add.</think>\n\n4", "First I add.", "4"),
    ("First I add.\n</thinking>4", "First I add.\n", "4"),
    ("<think></think>\n4", "", "4"),
    ("<think>a</think>\n<think>b</think>4", "ab", "4"),
    ("<think>plan</think>" + CODE, "plan", CODE),
    (CODE, "", CODE),
    ("The tag `</think>` ends it.", "", "The tag `</think>` ends it."),
    ("hello </think> world", "", "hello </think> world"),
    ("a < b and <b>bold</b>", "", "a < b and <b>bold</b>"),
    ("我想。</think>答案", "我想。", "答案"),
    ("<thinkpad> is a name", "", "<thinkpad> is a name"),
]


def split(pieces):
    tags, thought, text = ThinkTags(), "", ""
    found = [chunk for piece in pieces for chunk in tags.feed(piece)]
    for chunk in [*found, *tags.end()]:
        match chunk:
            case TextChunk(piece):
                text += piece
            case ThinkingChunk(piece):
                thought += piece
            case RevisedText(piece):
                text = piece
    return thought, text


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(("written", "thought", "answer"), CASES)
def test_thinking_and_answer_are_split(written, thought, answer, size):
    pieces = [written[at : at + size] for at in range(0, len(written), size)]
    assert split(pieces) == (thought, answer)


def test_thinking_that_never_ends_is_the_answer():
    assert split(["<think>", "It is 4."])[1] == "It is 4."


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize("written", ["<think>plan</think>\n\n4", "plan</think>\n\n4"])
async def test_both_wires_keep_it_apart(kind, written, model_server):
    wire = Wire(kind, model_server)
    wire.server.script([Reply([*written])])
    answer = await wire.ask(user("2+2?"))
    assert (answer.text, [part.text for part in answer.parts_of(Thinking)]) == ("4", ["plan"])
