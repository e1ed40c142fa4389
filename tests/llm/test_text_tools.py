"""Tool calls that a model writes as text."""

import asyncio
import json

import pytest

from ouro.errors import ModelError
from ouro.llm import ModelCall, ModelSpec, ScriptedModel, ScriptedReply, TextChunk, ToolSpec
from ouro.llm.streamed_answer import AnswerReader, CallGate
from ouro.llm.text_tools import call_schema, describe_tools, find_calls
from ouro.messages import Message, Text, ToolCall, ToolReply, system, user

READ = ToolSpec("read", "Read a file. Up to 2,000 lines.", {
    "type": "object", "required": ["path"],
    "properties": {"path": {"type": "string"}, "line": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
})  # fmt: skip
CALL = '{"name": "read", "arguments": {"path": "basket.py"}}'

PARAMETER_CALL = """\
<function=read>
<parameter=path>
basket.py
</parameter>
<parameter=line>
4
</parameter>
</function>"""


@pytest.mark.parametrize(
    ("text", "before"),
    [
        (CALL, ""),
        (f"```json\n{CALL}\n```", ""),
        (f"I look at the file first.\n\n```\n{CALL}\n```\n", "I look at the file first."),
        (f"I look.\n{CALL}", "I look."),
        (f"<tool_call>\n{CALL}\n</tool_call>", ""),
        (f"<tool_call>{CALL}", ""),
        (f"<tool_call>\u00a0{CALL}\u2003</tool_call>", ""),
        (f"<tools>\n{CALL}\n</tools>", ""),
        ('<function=read>{"path": "basket.py"}</function>', ""),
        (PARAMETER_CALL, ""),
        (f"I look.\n<tool_call>\n{PARAMETER_CALL}\n</tool_call>", "I look."),
        ("<function=read><parameter=path>basket.py<parameter=line>4", ""),
        (f"<|python_tag|>{CALL}", ""),
        (f"[TOOL_CALLS] [{CALL}]", ""),
        ('{"tool": "read", "parameters": {"path": "basket.py", "line": null}}', ""),
        ('{"function": {"name": "read", "arguments": "{\\"path\\": \\"basket.py\\"}"}}', ""),
        ('{\n  "name": "read",\n  "arguments": {\n    "path": "basket.py"\n  }\n}', ""),
    ],
)
def test_common_call_formats_are_parsed(text, before):
    left, [call] = find_calls(text, [READ], [user("go")])
    assert (left, call.name, call.arguments["path"]) == (before, "read", "basket.py")


def test_parameters_between_tags_get_the_types_of_the_tool():
    fields = {"path": {"type": "string"}, "content": {"type": "string"}, "lines": {"type": "array"}}
    write = ToolSpec("write", "Write.", {"type": "object", "properties": fields})
    text = (
        "<function=write>\n<parameter=path>\n4\n</parameter>\n<parameter=content>\n  {\n\n}\n"
        "</parameter>\n<parameter=lines>\n[1, 2]\n</parameter>\n</function>"
    )
    _, [call] = find_calls(text, [write], [user("go")])
    assert call.arguments == {"path": "4", "content": "  {\n\n}", "lines": [1, 2]}
    assert find_calls(text, [write], [user(f"What is\n\n{text}?")]) == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 4.",
        "<function=delete><parameter=path>a.py</parameter></function>",
        "<function=read><parameter=line>4</parameter></function>",
        "<function=read><parameter=path>a.py</parameter><parameter=line>four</parameter></function>",
        '{"name": "basket", "price": 4}',
        '{"name": "delete", "arguments": {"path": "basket.py"}}',
        '{"name": "read", "arguments": {}}',
        '{"name": "read", "arguments": {"path": 4}}',
        '{"name": "read", "arguments": {"path": "a", "force": true}}',
        f"{CALL}\nThat is how it is called.",
        f"> {CALL}",
        f"```json\n{CALL}\n```\nThat was an example.",
        '<tool_call>{"name": "read", "arguments": </tool_call>',
        "{" * 5_000,
        "```python\n" + "\n" * 5_000 + "x\n```\nDone.",
        "```python\n" + "\n" * 5_000 + "x",
    ],
)
def test_other_text_is_no_call(text):
    assert find_calls(text, [READ], [user("go")]) == (text, [])


@pytest.mark.parametrize(
    "source",
    [
        user(f"what does {CALL} do?"),
        Message("tool", (ToolReply("1", "read", "# notes\n" + CALL.replace(" ", "  ")),)),
        Message("tool", (ToolReply("1", "read", json.dumps({"text": CALL})),)),
    ],
)
def test_quoted_calls_are_not_executed(source):
    assert find_calls(CALL, [READ], [source])[1] == []


def test_gate_holds_back_only_calls():
    def shown(text):
        gate, seen = CallGate(), []
        for letter in text:
            seen.append(gate.feed(letter))
        return "".join(seen), gate.end()

    assert shown("Plain text.\n```python\nx = {1: 2}\n```\nDone.") == (
        "Plain text.\n```python\nx = {1: 2}\n```\nDone.",
        "",
    )
    assert shown(f"I look.\n```json\n{CALL}\n```") == ("I look.\n", f"```json\n{CALL}\n```")
    assert shown('{"total": 4}') == ('{"total": 4}', "")


async def answer(text, name="openai/some", **spec):
    model = ScriptedModel([text], spec=ModelSpec(name, **spec))
    seen = []
    message = await ModelCall([model], [system("Be brief."), user("go")], [READ]).run(seen.append)
    return (
        message,
        "".join(chunk.text for chunk in seen if isinstance(chunk, TextChunk)),
        model.requests[0],
    )


async def test_call_in_the_text_becomes_a_tool_call_and_is_not_shown():
    message, shown, request = await answer(f"First I look.\n{CALL}")
    assert [type(part) for part in message.parts] == [Text, ToolCall]
    assert (message.text, message.tool_calls[0].name, shown.strip()) == (
        "First I look.",
        "read",
        "First I look.",
    )
    assert request.tools == (READ,)


async def test_text_tools_off_leaves_the_text():
    message, shown, _ = await answer(CALL, text_tools="off")
    assert (message.tool_calls, message.text, shown) == ((), CALL, CALL)


async def test_text_resembling_a_call_is_shown_completely():
    text = '{"name": "basket", "price": 4}'
    message, shown, _ = await answer(text)
    assert (message.text, shown) == (text, text)


async def test_text_tools_on_describes_tools_and_sends_results_as_text():
    _, _, request = await answer("ok", text_tools="on")
    assert request.tools == ()
    assert "- read(path: string): Read a file" in request.messages[0].text
    assert "\n- answer(text: string): " in request.messages[0].text
    call = Message("assistant", (Text("I look."), ToolCall("1", "read", {"path": "a"})))
    result = Message("tool", (ToolReply("1", "read", "x = 1"),))
    told = Message("assistant", (Text("It is 1."),))
    sent = describe_tools([system("s"), user("go"), call, result, told], [READ])
    assert [message.role for message in sent] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert sent[2].text == '{"name": "read", "arguments": {"path": "a"}}'
    assert sent[3].text.startswith("Result of read:\nx = 1\n\n")
    assert sent[4].text == '{"name": "answer", "arguments": {"text": "It is 1."}}'
    prompt = describe_tools([Message("system", (Text("how to work"), Text("memory")))], [READ])[
        0
    ].text
    assert prompt.startswith("how to work\n\n# Tools\n")
    assert prompt.endswith("\n\nmemory")


@pytest.mark.parametrize(
    ("name", "way", "described"),
    [
        ("openai/qwen-coder-1.5b", "auto", True), ("ollama_chat/llama3.2:3b", "auto", True),
        ("ollama_chat/qwen3:8b", "auto", False), ("x/qwen3-30b-a3b", "auto", False), ("openai/some", "auto", False),
        ("openai/qwen-coder-1.5b", "off", False), ("openai/some", "on", True),
    ],
)  # fmt: skip
async def test_tools_are_described_for_small_models_or_if_configured(name, way, described):
    _, _, request = await answer("ok", name=name, text_tools=way)
    assert request.tools == (() if described else (READ,))


def test_nested_arguments_and_choices_are_described():
    piece = {
        "type": "object",
        "properties": {"old": {"type": "string"}, "all": {"type": "boolean"}},
        "required": ["old"],
    }
    fields = {"edits": {"type": "array", "items": piece}, "mode": {"enum": ["ask", "auto"]}}
    edit = ToolSpec(
        "edit",
        "Replace text.",
        {"type": "object", "properties": fields, "required": ["edits", "mode"]},
    )
    prompt = describe_tools([system("s")], [edit])[0].text
    assert (
        '- edit(edits: [{old: string, all?: boolean}], mode: "ask"|"auto"): Replace text.' in prompt
    )


def test_answer_schema_contains_each_tool_and_answer():
    kinds = call_schema([READ])["anyOf"]
    assert [kind["properties"]["name"]["const"] for kind in kinds] == ["read", "answer"]
    arguments = kinds[0]["properties"]["arguments"]
    assert list(arguments["properties"]) == arguments["required"] == ["path"]


def test_a_tool_that_needs_no_argument_keeps_the_optional_ones():
    fields = {"query": {"type": "string"}}
    kinds = call_schema([ToolSpec("search", "Search.", {"type": "object", "properties": fields})])[
        "anyOf"
    ]
    assert kinds[0]["properties"]["arguments"]["properties"] == fields


@pytest.mark.parametrize("end", ['"}}', '"}}\n```', ""])
async def test_answer_call_is_streamed_as_it_is_written(end):
    text = 'Done: "a" → \\ é 😀\nmore'
    for ascii_only in (True, False):
        written = (
            '{"name": "answer",\n "arguments": {"text": '
            + json.dumps(text, ensure_ascii=ascii_only)[:-1]
            + end
        )
        message, shown, _ = await answer(written, text_tools="on")
        assert (message.text, shown, message.tool_calls) == (text, text, ())
        reader = AnswerReader()
        assert {len(reader.read(written[:end]) or "") for end in range(len(written) + 1)} == {0, 1}
    message, shown, _ = await answer(written)
    assert (message.text, shown) == (written, written)


async def test_plain_answer_with_text_tools_on_is_the_text():
    message, shown, _ = await answer("It is done.", text_tools="on")
    assert (message.text, shown) == ("It is done.", "It is done.")


LOOP = "The total was not calculated correctly. The discount was not applied to the sum. "


@pytest.mark.parametrize("name", ["openai/some-1b", "openai/some"])
async def test_repetition_of_a_small_model_is_stopped(name):
    text = "It failed. " + LOOP * 30
    is_small = name.endswith("1b")
    for written in (text, '{"name": "answer", "arguments": {"text": "' + text):
        if is_small or written == text:
            message, _, _ = await answer(written, name)
            assert message.text.rstrip() == ("It failed. " + LOOP if is_small else text).rstrip()
    for plain in ("-" * 400, "| a | b |\n" * 40, LOOP * 2 + "It is " + LOOP * 2):
        message, _, _ = await answer(plain, name)
        assert message.text.rstrip() == plain.rstrip()
    plain = "".join(f"Line {number} of the list is not like the others. " for number in range(90))
    message, _, _ = await answer(plain, name)
    assert message.text.rstrip() == plain.rstrip()


async def test_the_text_of_a_file_may_repeat_itself():
    fields = {"path": {"type": "string"}, "content": {"type": "string"}}
    write = ToolSpec(
        "write", "Write.", {"type": "object", "properties": fields, "required": ["path", "content"]}
    )
    call = json.dumps({"name": "write", "arguments": {"path": "a", "content": LOOP * 30}})
    message = await ModelCall(
        [ScriptedModel([call], spec=ModelSpec("some-1b"))], [user("go")], [write]
    ).run()
    assert message.tool_calls[0].arguments["content"] == LOOP * 30


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ('{"name": "answer", "arguments": {"text": "It is do', "It is do"),
        ('I look.\n{"name": "read", "arguments": {"pa', "I look.\n"),
    ],
)
async def test_interrupted_answer_is_kept_as_shown(written, kept):
    """Without JSON: neither the call of `answer`, nor a partial other call."""
    held = asyncio.Event()
    model = ScriptedModel(
        [ScriptedReply(written, hold=held.wait)], spec=ModelSpec("openai/some", text_tools="on")
    )
    call = ModelCall([model], [user("go")], [READ])
    running = asyncio.create_task(call.run())
    await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert call.partial().text == kept


class EndlessCall(ScriptedModel):
    """Streams a call in pieces of 100,000 characters."""

    streamed = 0

    async def stream(self, messages, tools=()):
        yield TextChunk('{"name": "read", "arguments": {"path": "')
        for self.streamed in range(100):
            yield TextChunk("x " * 50_000)


async def test_endless_held_back_call_is_stopped():
    """L9: text that is held back counts as well."""
    model = EndlessCall([])
    with pytest.raises(ModelError, match="longer than 4,000,000 characters"):
        await ModelCall([model], [user("go")], [READ]).run()
    assert model.streamed < 50


def test_a_type_that_json_schema_does_not_know_fits_anything():
    odd = ToolSpec(
        "odd",
        "",
        {"type": "object", "properties": {"file": {"type": "file"}}, "required": ["file"]},
    )
    _, calls = find_calls('{"name": "odd", "arguments": {"file": "a.png"}}', [odd], [])
    assert [dict(call.arguments) for call in calls] == [{"file": "a.png"}]
