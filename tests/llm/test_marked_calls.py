"""Calls in the own markup of a model; each form is from a public report or a chat template."""

import json

import pytest
from fakes.model_server import Reply
from fakes.wires import READ, Wire

from ouro.llm import ModelCall, ToolSpec
from ouro.llm.marked_calls import find_marked_calls
from ouro.llm.streamed_answer import MARKED_STARTS, CallGate
from ouro.llm.text_tools import find_calls
from ouro.messages import user

WRITE = ToolSpec(
    "write",
    "Write.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "content": {"type": "string"},
            "times": {"type": "integer"},
        },
        "required": ["path", "content"],
    },
)
READ_A = ("read", {"path": "a.txt"})
FORMS = {
    "MiniMax, earendil-works/pi#368": (
        '<minimax:tool_call>\n<invoke name="read">\n<parameter name="path">a.txt</parameter>\n'
        "</invoke>\n</minimax:tool_call>",
        [READ_A],
    ),
    "two calls": (
        '<invoke name="read"><parameter name="path">a.txt</parameter></invoke>\n'
        '<invoke name="write"><parameter name="path">b</parameter>'
        '<parameter name="content">\nx <b>y</b>\n</parameter>'
        '<parameter name="times">2</parameter></invoke>',
        [READ_A, ("write", {"path": "b", "content": "x <b>y</b>", "times": 2})],
    ),
    "DeepSeek, NousResearch/hermes-agent#27834": (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="read">\n<｜DSML｜parameter name="path"'
        ' string="true">a.txt</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        [READ_A],
    ),
    "GLM": (
        "<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>a.txt</arg_value>\n</tool_call>",
        [READ_A],
    ),
    "Kimi, BerriAI/litellm#12679": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0"
        '<|tool_call_argument_begin|>{"path": "a.txt"}<|tool_call_end|><|tool_calls_section_end|>',
        [READ_A],
    ),
    "DeepSeek 3.1": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>"
        '{"path": "a.txt"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        [READ_A],
    ),
    "DeepSeek 3": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read\n```json\n"
        '{"path": "a.txt"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        [READ_A],
    ),
    "gpt-oss": (
        "<|start|>assistant<|channel|>commentary to=functions.read <|constrain|>json<|message|>"
        '{"path": "a.txt"}<|call|>',
        [READ_A],
    ),
    "Mistral": ('[TOOL_CALLS]read[ARGS]{"path": "a.txt"}', [READ_A]),
}


@pytest.mark.parametrize("before", ["", "I look into it."])
@pytest.mark.parametrize("form", FORMS)
def test_a_call_in_the_markup_of_a_model_is_found(form, before):
    text, expected = FORMS[form]
    shown, calls = find_calls(f"{before}\n{text}".strip(), [READ, WRITE], [])
    assert shown == before
    assert [(call.name, dict(call.arguments)) for call in calls] == expected


@pytest.mark.parametrize("form", FORMS)
def test_text_after_the_call_or_a_code_block_around_it_makes_it_no_call(form):
    text, _ = FORMS[form]
    for example in (f"{text}\nis how a call is written.", f"So:\n```xml\n{text}"):
        assert find_marked_calls(example) == (example, [])


def test_a_call_that_the_user_has_shown_is_not_executed():
    text, _ = FORMS["GLM"]
    assert find_calls(text, [READ], [user(f"Repeat this: {text}")]) == (text, [])


@pytest.mark.parametrize("form", FORMS)
def test_the_markup_is_held_back_while_it_arrives(form):
    text, _ = FORMS[form]
    gate = CallGate()
    assert "".join(map(gate.feed, text)) == ""
    assert gate.end() == text


@pytest.mark.parametrize("piece", ['<invoke name="a">', '<parameter name="a">', "<arg_key>", "<a>"])
def test_thousands_of_beginnings_are_no_call(piece):
    text = piece * 5_000 + "."
    assert find_calls(text, [READ], []) == (text, [])


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_an_answer_of_markup_becomes_a_call_and_is_not_shown(kind, model_server):
    wire = Wire(kind, model_server)
    text, _ = FORMS["MiniMax, earendil-works/pi#368"]
    wire.server.script([Reply([text[:30], text[30:]])])
    model = wire.model()
    answer = await ModelCall([model], [user("Look.")], [READ]).run()
    await model.close()
    assert [(call.name, json.dumps(dict(call.arguments))) for call in answer.tool_calls] == [
        ("read", '{"path": "a.txt"}')
    ]
    assert not answer.text


def test_each_beginning_is_without_spaces():
    assert all(start == "".join(start.split()) for start in MARKED_STARTS)
