"""Thinking that a model writes into its text is thinking, however the stream is cut."""

import pytest
from fakes.model_server import Call, Reply
from fakes.wires import Wire

from ouro.llm.model import RevisedText, RevisedThinking, TextChunk, ThinkingChunk
from ouro.llm.think_tags import ThinkTags
from ouro.messages import Text, Thinking, user

LENGTH = {"openai": "length", "anthropic": "max_tokens"}

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
    ("我想\n</think>\n\n答案", "我想\n", "答案"),
    ("2 + 2 is easy </think>\n\n4", "2 + 2 is easy ", "4"),
    ("It ends with </think>, then it answers.", "", "It ends with </think>, then it answers."),
    ("Two tags (one is </think>) are used.", "", "Two tags (one is </think>) are used."),
    ("Look for the tag </think>.", "", "Look for the tag </think>."),
    ("模型用</think>结束思考。", "", "模型用</think>结束思考。"),
    ("Write <think>a</think> first.", "", "Write <think>a</think> first."),
    # QwenLM/qwen-code#8818: far more than 128 characters before the closing tag
    ("<think>" + "I look. " * 60 + "</think>\n\n4", "I look. " * 60, "4"),
    # QwenLM/qwen-code#10791: a balanced block alone in the content
    ("<thinking>\nThe user asks.\n</thinking>\n\nDone.", "The user asks.\n", "Done."),
    # iOfficeAI/AionUi#962, QwenLM/qwen-code#6007: MiniMax and GLM leave the opening tag out
    ("The user wants 4.\n</think>\n4", "The user wants 4.\n", "4"),
    # zai-org/feedback#36: a tag with spaces around it
    ("  <think> plan </think>  4", "plan ", "4"),
    ("<think>\n\n</think>\n\n4", "", "4"),
    ("<think>plan</think>\n<answer>4</answer>", "plan", "<answer>4</answer>"),
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
            case RevisedThinking():
                thought = ""
    return thought, text


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_thinking_and_answer_are_split(size):
    different = {}
    for written, thought, answer in CASES:
        pieces = [written[at : at + size] for at in range(0, len(written), size)]
        found = split(pieces)
        if found != (thought, answer):
            different[written] = (found, (thought, answer))
    assert different == {}


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_thinking_that_never_ends_is_the_answer_once(size):
    written = "<think>\nIt is 4."
    pieces = [written[at : at + size] for at in range(0, len(written), size)]
    assert split(pieces) == ("", "It is 4.")


def reply(written, finish="", calls=()):
    return Reply([*written], calls=list(calls), finish=finish)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_an_unclosed_tag_before_the_answer_ends_is_saved_once(kind, model_server):
    wire = Wire(kind, model_server)
    wire.server.script([reply("<think>It is 4.")])
    answer = await wire.ask(user("2+2?"))
    assert [*answer.parts] == [Text("It is 4.")]


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_an_unclosed_tag_before_a_call_is_thinking(kind, model_server):
    wire = Wire(kind, model_server)
    wire.server.script([reply("<think>I read it.", calls=[Call("read", {"path": "a"})])])
    answer = await wire.ask(user("read"))
    assert (answer.text, len(answer.tool_calls)) == ("", 1)
    assert [part.text for part in answer.parts_of(Thinking)] == ["I read it."]


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_an_unclosed_tag_at_max_output_is_no_answer(kind, model_server):
    wire = Wire(kind, model_server)
    wire.server.script([reply("<think>I could", finish=LENGTH[kind])])
    error, _ = await wire.failure(user("2+2?"))
    assert "max_output" in str(error)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize("written", ["<think>plan</think>\n\n4", "plan</think>\n\n4"])
async def test_both_wires_keep_it_apart(kind, written, model_server):
    wire = Wire(kind, model_server)
    wire.server.script([Reply([*written])])
    answer = await wire.ask(user("2+2?"))
    assert (answer.text, [part.text for part in answer.parts_of(Thinking)]) == ("4", ["plan"])


def test_the_cost_of_a_long_answer_follows_its_new_text():
    """One join of all the text at each delta would copy 800 MB."""
    tags, copied = ThinkTags(), 0

    class Counted(list):
        def __iter__(self):
            nonlocal copied
            copied += len(self)
            return super().__iter__()

    tags._possible_answer = Counted()
    for _ in range(4000):
        list(tags.feed("some words of it " * 2))
    assert copied < 4000
