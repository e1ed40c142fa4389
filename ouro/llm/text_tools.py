"""TextToolsModel: finds tool calls in the text of an answer, and describes the tools to very small
models.

Forms of a call: a JSON object `{"name": …, "arguments": {…}}`, plain or fenced;
`<tool_call>…</tool_call>` (Hermes, Qwen); `<tools>…</tools>` (small Qwen models write this
instead); `<function=NAME>…</function>` and `<|python_tag|>…` (Llama); `[TOOL_CALLS] […]` (Mistral).
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import chain, islice, product
from typing import Any

import msgspec

from ouro.errors import ToolsRefused
from ouro.llm.model import (
    CallChunk,
    Chunk,
    EndChunk,
    Model,
    RevisedText,
    TextChunk,
    ThinkingChunk,
    ToolSpec,
    UsageChunk,
    constrain,
)
from ouro.llm.streamed_answer import StreamedAnswer
from ouro.messages import Context, Message, Text, ToolCall, ToolReply, Usage, user
from ouro.utils.late_pattern import late_pattern

_LANGUAGE = late_pattern(r"\A\w*")
# These match at each beginning of a call, to its end or that of the text: 50 KB of beginnings took
# 0.7 s otherwise.
_TAGGED = late_pattern(r"<tool(?:_call|s)>(.*?)(?:</tool(?:_call|s)>|\Z)", re.DOTALL)
_FUNCTION = late_pattern(r"<function=([\w.-]+)>\s*(\{.*?)(?:</function>|\Z)", re.DOTALL)
_MARKED = late_pattern(r"(?:<\|python_tag\|>|\[TOOL_CALLS\])\s*(.*)\Z", re.DOTALL)
_MAX_LINES_TRIED = 1_000
_NAMES = ("name", "tool", "tool_name", "function", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input")
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_HOW = """\
# Tools
Answer with one JSON object and nothing else:
{"name": "<tool>", "arguments": {"<argument>": <value>}}
To answer a question that you can answer from what you know or from memory, use `answer` at once, and say what memory \
says. For a task use the other tools, and get their results: you do not know what is in a file before you have read \
it, and nothing is done before a tool has done it. A `?` marks an optional argument. The tools:
"""
_NEXT = "\n\nIf the task is done, use `answer` now with the result, otherwise the next tool."
"""Follows each result: without it small models repeat their last call."""
ANSWER = ToolSpec(
    "answer",
    "Answer the user: a question that needs no tool at once, a task when the tools above have"
    " done it.",
    {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    },
)
"""The tool by which a model answers the user if the tools are described in the prompt.

Small models choose between tools more reliably than between a tool and an answer."""


class TextToolsModel:
    """A model for one answer: streams the tool calls in its text as tool calls.

    A very small model is given the tools in the prompt, and asked one step at a time
    (`small_steps.py`).
    """

    def __init__(self, model: Model) -> None:
        self.spec = model.spec
        self._model = model
        self._has_failed_step = False
        """Whether the answer to a step cannot be used: another attempt would get the same answer.
        """
        self._step_usage: Usage | None = None
        """The usage of that answer."""
        self._broken: tuple[str, ToolCall] | None = None
        """The remembered line that the first chosen call would break, and that call."""
        self._added: list[Message] = []

    async def close(self) -> None:
        await self._model.close()

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> AsyncGenerator[Chunk, None]:
        if not self.spec.describes_tools:
            try:
                async with aclosing(self._stream_with_tools(messages, tools)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except ToolsRefused:
                self.spec = self._model.spec
                if not self.spec.describes_tools:  # the user has switched it off
                    raise
        async with aclosing(self._stream_with_described_tools(messages, tools)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _stream_with_tools(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Chunk, None]:
        """The answer of a model that is sent the tools in the request."""
        source = self._model.stream(messages, tools)
        async with aclosing(source), aclosing(self._with_calls(source, messages, tools)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _stream_with_described_tools(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Chunk, None]:
        """The answer of a model that is given the tools in its prompt."""
        from ouro.llm.remembered_lines import ask_again  # imported late: few answers need it
        from ouro.llm.small_steps import small_tools  # imported late: few answers need it

        if call := await self._take_step(messages, tools):
            for chunk in call:
                yield chunk
            return
        tools = small_tools(messages, tools)
        source = self._ask_small(messages, tools)
        async with aclosing(source), aclosing(self._with_calls(source, messages, tools)) as chunks:
            async for chunk in chunks:
                yield chunk
        if self._broken is None:
            return
        self._added = ask_again(*self._broken)
        source = self._ask_small(messages, tools)
        async with aclosing(source), aclosing(self._with_calls(source, messages, tools)) as chunks:
            async for chunk in chunks:
                yield chunk

    def _ask_small(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Chunk, None]:
        """The answer of a very small model, which has what it was told beside the message."""
        from ouro.llm.remembered_lines import put_lines_beside  # imported late: few answers need it
        from ouro.llm.small_steps import hide_steps  # imported late: few answers need it

        model = constrain(self._model, call_schema(tools))
        sent = put_lines_beside(hide_steps(messages), "Keep to what I have told you.")
        return model.stream([*describe_tools(sent, tools), *self._added])

    async def _take_step(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> list[Chunk]:
        """The call of the next step; nothing if the model must be asked for the next tool."""
        # Imported late: few answers need it.
        from ouro.llm.small_steps import StepRequest, next_step

        step = next_step(messages, tools)
        usage: Usage | None = None
        if isinstance(step, StepRequest):
            if self._has_failed_step:
                return []
            answer = ""
            async with aclosing(
                constrain(self._model, step.schema).stream([user(step.text)])
            ) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, TextChunk):
                        answer += chunk.text
                    elif isinstance(chunk, UsageChunk):
                        usage = chunk.usage
            step = step.call(answer)
            if step is None:
                self._has_failed_step, self._step_usage = True, usage
        if step is None:
            return []
        return [_call_chunk(0, step), UsageChunk(usage), EndChunk("tools")]

    async def _with_calls(
        self,
        source: AsyncGenerator[Chunk, None],
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
    ) -> AsyncGenerator[Chunk, None]:
        """The chunks of an answer; text that may become a call is held back until its end."""
        answer = StreamedAnswer(tools, is_described=self.spec.describes_tools)
        usage: Usage | None = None
        async for received in source:
            chunk: Chunk = received
            match received:
                case TextChunk(piece):
                    yield TextChunk(answer.add(piece))
                    before = answer.before_repetition()
                    if before is None:
                        continue
                    yield RevisedText(before)
                    chunk = EndChunk("stop")
                case RevisedText(revised):  # what came before was thinking
                    answer.revise(revised)
                case UsageChunk(new_usage) if new_usage:
                    usage = self._step_usage + new_usage if self._step_usage else new_usage
                    chunk = UsageChunk(usage)
                case ThinkingChunk():
                    yield TextChunk(answer.interrupt())
                case CallChunk():
                    yield TextChunk(answer.interrupt())
                    answer.tools = ()
            if isinstance(chunk, EndChunk):
                for last in self._end_answer(answer, chunk, messages, usage):
                    yield last
                return
            yield chunk

    def _end_answer(
        self,
        answer: StreamedAnswer,
        end: EndChunk,
        messages: Sequence[Message],
        usage: Usage | None,
    ) -> list[Chunk]:
        """The last chunks of an answer: the calls in its text, or what of it was held back."""
        if answer.is_shown:
            return [end]
        before, calls = find_calls(answer.text, answer.tools, messages)
        if self.spec.describes_tools:
            from ouro.llm.small_steps import begin_change  # imported late, as above

            if broken := _find_broken_rule(calls, messages):
                return self._refuse_call(broken, usage)
            calls = [begin_change(call, messages) for call in calls]
        if not calls:
            return [TextChunk(answer.release()), end]
        call_chunks = [_call_chunk(index, call) for index, call in enumerate(calls)]
        return [RevisedText(before), *call_chunks, end]

    def _refuse_call(self, broken: tuple[str, ToolCall], usage: Usage | None) -> list[Chunk]:
        """The chunks instead of a forbidden call: none for the first, which is asked again; the
        second time an answer that asks the user.
        """
        from ouro.llm.remembered_lines import refusal_text  # imported late: few answers need it

        if self._broken is None:
            self._broken, self._step_usage = broken, usage
            return [RevisedText("")]
        return [RevisedText(refusal_text(*broken)), EndChunk("stop")]


def _find_broken_rule(
    calls: Sequence[ToolCall], messages: Sequence[Message]
) -> tuple[str, ToolCall] | None:
    """The first call that a remembered line forbids, with that line."""
    from ouro.llm.remembered_lines import find_forbidding_line  # imported late: few answers need it

    for call in calls:
        if rule := find_forbidding_line(call, messages):
            return rule, call
    return None


def _call_chunk(index: int, call: ToolCall) -> CallChunk:
    return CallChunk(index, call.id, call.name, json.dumps(dict(call.arguments)))


def find_calls(
    text: str, tools: Sequence[ToolSpec], sent: Sequence[Message]
) -> tuple[str, list[ToolCall]]:
    """The text before the calls that an answer consists of or ends with, and these calls, without
    ids.

    Returns no calls if one of them does not fit a tool, or is quoted from a message of the user or
    a tool result.
    """
    before, written = _split_at_calls(text.strip())
    calls = [call for value in written if (call := _parse_call(value, tools))]
    if not calls or len(calls) != len(written) or _is_any_quoted(written, sent):
        return text, []
    return before, calls


def describe_tools(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
    """The messages with the tools described in the prompt, and with calls and results as text.

    Without `tools` nothing is described, and answers are plain text.
    """
    described: tuple[Text, ...] = (
        (Text(_HOW + "\n".join(map(_describe_tool, _with_answer_tool(tools)))),) if tools else ()
    )
    sent: list[Message] = []
    for message in messages:
        if message.role == "system":
            # The tools come before memory, the last part, which changes more often: a server has
            # the rest in its cache.
            sent.append(Message("system", (*message.parts[:1], *described, *message.parts[1:])))
            described = ()
        elif message.role == "tool":
            results = "\n".join(
                f"Result of {reply.name}:\n{reply.text}" for reply in message.parts_of(ToolReply)
            )
            sent.append(Message("user", (Text(results + (_NEXT if tools else "")),)))
        elif message.role == "assistant":
            calls = "\n".join(_call_text(part.name, part.arguments) for part in message.tool_calls)
            answer = _call_text("answer", {"text": message.text}) if tools else message.text
            sent.append(Message("assistant", (Text(calls or answer),)))
        else:
            sent.append(message)
    return sent


def call_schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The JSON schema of an answer that consists of one call, of a tool or of `answer`."""
    fields = [
        {"name": {"const": tool.name}, "arguments": tool.parameters}
        for tool in _with_answer_tool(tools)
    ]
    closed = {"type": "object", "required": ["name", "arguments"], "additionalProperties": False}
    return {"anyOf": [{**closed, "properties": properties} for properties in fields]}


def _split_at_calls(text: str) -> tuple[str, list[Any]]:
    """The text before the calls, and the JSON values of these."""
    if found := list(_TAGGED.finditer(text)):
        called = chain.from_iterable(_parse_values(tagged[1]) for tagged in found)
        return text[: found[0].start()].rstrip(), list(called)
    if found := list(_FUNCTION.finditer(text)):
        return text[: found[0].start()].rstrip(), [
            {"name": one[1], "arguments": one[2]} for one in found
        ]
    if marked := _MARKED.search(text):
        return text[: marked.start()].rstrip(), _parse_values(marked[1])
    # No pattern: one that finds the block took 3 s where an answer holds 1,500 empty lines.
    if text.endswith("```") and (fence := text.rfind("```", 0, -3)) >= 0:
        return text[:fence].rstrip(), _parse_values(_LANGUAGE.sub("", text[fence + 3 : -3]))
    for begin in islice(re.finditer(r"^\{", text, re.MULTILINE), _MAX_LINES_TRIED):
        if values := _parse_values(text[begin.start() :]):
            return text[: begin.start()].rstrip(), values
    return text, []


def _parse_values(text: str) -> list[Any]:
    """The JSON values that a text consists of; none if there is anything else."""
    try:
        value = json.loads(text.strip(), strict=False)  # `json` itself skips only spaces of ASCII
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else [value]


def _parse_call(value: Any, tools: Sequence[ToolSpec]) -> ToolCall | None:
    """The call of a known tool with arguments that fit its schema."""
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), "")
    arguments = _arguments_in(value)
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None or not isinstance(arguments, dict) or not _fits_schema(arguments, tool):
        return None
    return ToolCall("", name, arguments)


def _arguments_in(value: Mapping[str, Any]) -> Any:
    """The arguments of a call; none if it names none."""
    found: Any = next((value[key] for key in _ARGUMENTS if key in value), {})
    return next(iter(_parse_values(found)), None) if isinstance(found, str) else found


def _fits_schema(arguments: Mapping[str, Any], tool: ToolSpec) -> bool:
    """Whether the arguments are those of the tool, all required ones and no others, of the right
    types.
    """
    known = tool.parameters.get("properties", {})
    if not known.keys() >= arguments.keys() or not arguments.keys() >= set(
        tool.parameters.get("required", ())
    ):
        return False
    for name, value in arguments.items():  # the outermost type: the tool itself checks the rest
        kinds = _kinds(known[name])
        if isinstance(value, bool):
            fits = "boolean" in kinds
        else:
            fits = any(isinstance(value, _TYPES.get(kind, object)) for kind in kinds)
        if kinds and not fits:
            return False
    return True


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    """The JSON types that a schema allows."""
    found = list(chain.from_iterable(map(_kinds, schema.get("anyOf", ()))))
    named = schema.get("type", ())
    return [*found, *([named] if isinstance(named, str) else named)]


def _is_any_quoted(values: Sequence[Any], sent: Sequence[Message]) -> bool:
    """Whether one of the calls is quoted from a message of the user or a tool result."""
    said = (message for message in sent if message.role in ("user", "tool"))
    parts = chain.from_iterable(message.parts for message in said)
    texts = [
        _without_spaces(part.text) for part in parts if isinstance(part, Text | Context | ToolReply)
    ]
    written = [_without_spaces(json.dumps(value, ensure_ascii=False)) for value in values]
    return any(call in text for call, text in product(written, texts))


def _without_spaces(text: str) -> str:
    """A text without spaces, newlines and escapes, to find a call in another layout."""
    return "".join(text.replace("\\n", "").replace("\\", "").split())


def _with_answer_tool(tools: Sequence[ToolSpec]) -> Iterator[ToolSpec]:
    """The tools and `answer`, without optional arguments, because small models fill them in even if
    that is wrong.

    The shell can do what these arguments do, such as `offset` of `read` for a long file.
    """
    for tool in (*tools, ANSWER):
        fields = tool.parameters.get("properties", {})
        needed = {name: fields[name] for name in tool.parameters.get("required", ())} or fields
        yield msgspec.structs.replace(tool, parameters={**tool.parameters, "properties": needed})


def _describe_tool(tool: ToolSpec) -> str:
    """A tool as one line for a small model: name, arguments, first sentence."""
    first_sentence = tool.description.strip().partition(". ")[0].partition("\n")[0]
    return f"- {tool.name}({_describe_fields(tool.parameters)}): {first_sentence}"


def _describe_fields(schema: Mapping[str, Any]) -> str:
    """The fields of an object; `?` marks an optional one."""
    required = set(schema.get("required", ()))
    named = schema.get("properties", {}).items()
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {_describe_type(field)}" for name, field in named
    )


def _describe_type(schema: Mapping[str, Any]) -> str:
    """A type as a small model reads it: `string`, `"a"|"b"`, `[{old_text: string}]`."""
    if choices := schema.get("anyOf"):
        return "|".join(_describe_type(choice) for choice in choices)
    if values := schema.get("enum"):
        return "|".join(map(json.dumps, values))
    if schema.get("type") == "array":
        return f"[{_describe_type(schema.get('items', {}))}]"
    if schema.get("type") == "object" and "properties" in schema:
        return f"{{{_describe_fields(schema)}}}"
    return "|".join(_kinds(schema)) or "any"


def _call_text(name: str, arguments: Mapping[str, Any]) -> str:
    return json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)
