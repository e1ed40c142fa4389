"""TextToolsModel: finds tool calls in the text of an answer, and describes the tools to very small
models.

Forms of a call: a JSON object `{"name": …, "arguments": {…}}`, plain or fenced;
`<tool_call>…</tool_call>` (Hermes, Qwen); `<tools>…</tools>` (small Qwen models write this
instead); `<function=NAME>{…}</function>` and `<|python_tag|>…` (Llama); `[TOOL_CALLS] […]` (Mistral);
`<function=NAME><parameter=KEY>…</parameter></function>` (Qwen3-Coder), also in `<tool_call>`; and
those of `marked_calls.py`.
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

_FENCE_LANGUAGE = late_pattern(r"\A\w*")
"""Matches the language after a fence."""
# These match at each beginning of a call, to its end or that of the text: 50 KB of beginnings took
# 0.7 s otherwise.
_TAGGED_CALL = late_pattern(r"<tool(?:_call|s)>(.*?)(?:</tool(?:_call|s)>|\Z)", re.DOTALL)
"""Matches `<tool_call>…</tool_call>`."""
_FUNCTION_CALL = late_pattern(r"<function=([\w.-]+)>\s*(\{.*?)(?:</function>|\Z)", re.DOTALL)
"""Matches `<function=NAME>{…}</function>`."""
_PARAMETER_CALL = late_pattern(
    r"(?:<tool_call>\s*)?<function=([\w.-]+)>\s*(<parameter=.*?)(?:</function>|\Z)", re.DOTALL
)
"""Matches `<function=NAME><parameter=KEY>…</parameter></function>`."""
_PARAMETER = late_pattern(
    r"<parameter=([\w.-]+)>\n?(.*?)\n?(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL
)
"""Matches `<parameter=KEY>…</parameter>`; small models leave the end out."""
_MARKED_CALLS = late_pattern(r"(?:<\|python_tag\|>|\[TOOL_CALLS\])\s*(.*)\Z", re.DOTALL)
"""Matches `[TOOL_CALLS] […]` and `<|python_tag|>…` up to the end."""
_MAX_STARTS_TRIED = 1_000
"""Maximum lines that begin with a brace from which JSON is read."""
_NAME_KEYS = ("name", "tool", "tool_name", "function", "action")
"""The keys under which models write the name of a tool."""
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "action_input")
"""The keys under which they write its arguments."""
_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
"""A type of JSON Schema -> the types of its values in Python."""
_INSTRUCTIONS = """\
# Tools
Answer with one JSON object and nothing else:
{"name": "<tool>", "arguments": {"<argument>": <value>}}
To answer a question that you can answer from what you know or from memory, use `answer` at once, and say what memory \
says. For a task use the other tools, and get their results: you do not know what is in a file before you have read \
it, and nothing is done before a tool has done it. A `?` marks an optional argument. The tools:
"""
"""What comes before the description of the tools."""
_NEXT_TOOL = "\n\nIf the task is done, use `answer` now with the result, otherwise the next tool."
"""The text after each result: without it small models repeat their last call."""
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
    """Another model, for one answer: tool calls in its text are streamed as tool calls.

    A very small model is given the tools in the prompt, and asked one step at a time
    (`small_model_steps.py`).
    """

    def __init__(self, model: Model) -> None:
        self.spec = model.spec
        self._model = model
        self._has_failed_step = False
        """Whether the answer to a step cannot be used: another attempt would get the same answer.
        """
        self._step_usage: Usage | None = None
        """The usage of requests whose answers were not used; it is added to that of the answer."""
        self._forbidden: tuple[str, ToolCall] | None = None
        """The line of memory that forbids the first chosen call, and that call; None: it is allowed."""
        self._added_messages: list[Message] = []
        """Messages at the end of the request: what follows a forbidden call."""

    async def close(self) -> None:
        """Close the other model."""
        await self._model.close()

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of the answer. The tools are described in the prompt for a very small model,
        and if the server refuses tools in the request.
        """
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
        """Yield the answer of a model that gets the tools in a field of the request. Tool calls
        that it writes as text become calls, too.
        """
        source = self._model.stream(messages, tools)
        async with (
            aclosing(source),
            aclosing(self._convert_calls(source, messages, tools)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    async def _stream_with_described_tools(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the answer of a model that gets the tools in its prompt. If the next step is known,
        the answer is the call of this step. Otherwise the model chooses; if it chooses a call that
        a line of memory forbids, it is asked once more.
        """
        from ouro.llm.small_model_memory import ask_again  # imported late: few answers need it
        from ouro.llm.small_model_steps import small_tools  # imported late: few answers need it

        step_chunks = await self._ask_for_step(messages, tools)
        for chunk in step_chunks:
            yield chunk
        if step_chunks:
            return
        offered = small_tools(messages, tools)
        source = self._ask_small(messages, offered)
        answer = self._convert_calls(source, messages, offered)
        async with aclosing(source), aclosing(answer) as chunks:
            async for chunk in chunks:
                yield chunk
        if self._forbidden is None:  # `_convert_calls` sets it at a forbidden call
            return
        self._added_messages = ask_again(*self._forbidden)
        source = self._ask_small(messages, offered)
        answer = self._convert_calls(source, messages, offered)
        async with aclosing(source), aclosing(answer) as chunks:
            async for chunk in chunks:
                yield chunk

    def _ask_small(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Chunk, None]:
        """The stream of a very small model. The lines of memory are written around the text of the
        last message of the user. Its answers are constrained to the schema of one call.
        """
        from ouro.llm.small_model_memory import (
            put_lines_beside,  # imported late: few answers need it
        )
        from ouro.llm.small_model_steps import hide_steps  # imported late: few answers need it

        model = constrain(self._model, call_schema(tools))
        prompt_messages = put_lines_beside(hide_steps(messages), "Keep to what I have told you.")
        return model.stream([*describe_tools(prompt_messages, tools), *self._added_messages])

    async def _ask_for_step(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> list[Chunk]:
        """The chunks of the call of the next step; for some steps the model is asked in a separate
        request. Empty if there is no such step, or the answer to the request cannot be used: then
        the model must be asked for the next tool. After an answer that cannot be used no further
        step is asked for, and its usage is kept in `_step_usage`.
        """
        # Imported late: few answers need it.
        from ouro.llm.small_model_steps import StepRequest, next_step

        step = next_step(messages, tools)
        if step is None:
            return []
        if not isinstance(step, StepRequest):  # a call that needs no request, so it has no usage
            return [_call_chunk(index=0, call=step), UsageChunk(usage=None), EndChunk("tools")]
        if self._has_failed_step:
            return []
        answer, usage = await self._answer_step(step.text, step.schema)
        call = step.call(answer)
        if call is None:
            self._has_failed_step, self._step_usage = True, usage
            return []
        return [_call_chunk(index=0, call=call), UsageChunk(usage), EndChunk("tools")]

    async def _answer_step(
        self, request: str, schema: Mapping[str, Any]
    ) -> tuple[str, Usage | None]:
        """Ask the model about one step; returns the text of its answer and the usage, which is None
        if the server does not report it.
        """
        answer, usage = "", None
        source = constrain(self._model, schema).stream([user(request)])
        async with aclosing(source) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, TextChunk):
                    answer += chunk.text
                elif isinstance(chunk, UsageChunk):
                    usage = chunk.usage
        return answer, usage

    async def _convert_calls(
        self,
        source: AsyncGenerator[Chunk, None],
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of an answer. Calls that the model wrote as text become chunks of calls.
        Text that may become a call is held back until the end. An answer that repeats itself ends
        where the repetition begins.
        """
        answer = StreamedAnswer(tools, is_described=self.spec.describes_tools)
        usage: Usage | None = None
        async for source_chunk in source:
            chunk: Chunk = source_chunk  # what is yielded for it
            match source_chunk:
                case TextChunk(piece):
                    yield TextChunk(answer.add(piece))
                    before_repetition = answer.cut_repetition()
                    if before_repetition is None:
                        continue
                    yield RevisedText(before_repetition)
                    chunk = EndChunk("stop")
                case RevisedText(revised):  # the text before was thinking: this replaces it
                    answer.revise(revised)
                case UsageChunk(new_usage) if new_usage:
                    usage = self._step_usage + new_usage if self._step_usage else new_usage
                    chunk = UsageChunk(usage)
                case ThinkingChunk():
                    yield TextChunk(answer.interrupt())  # the text that was held back
                case CallChunk():
                    yield TextChunk(answer.interrupt())  # the text that was held back
                    answer.tools = ()  # beside a real call, text is no call
            if isinstance(chunk, EndChunk):
                for last_chunk in self._end_answer(
                    answer, end=chunk, messages=messages, usage=usage
                ):
                    yield last_chunk
                return
            yield chunk

    def _end_answer(
        self,
        answer: StreamedAnswer,
        end: EndChunk,
        messages: Sequence[Message],
        usage: Usage | None,
    ) -> list[Chunk]:
        """The last chunks of an answer. If it has calls, these are the text before them and the
        calls; else the text that was held back. A text that was shown already as an answer holds no
        calls.

        For a model that reads its tools as text, a call that a line of memory forbids is refused,
        and a change begins with a call that reads the file. `usage` is that of the answer; None if
        it is not known.
        """
        if answer.is_shown:
            return [end]
        before, calls = find_calls(answer.text, answer.tools, messages)
        if self.spec.describes_tools:
            from ouro.llm.small_model_steps import begin_change  # imported late: few models need it

            if forbidden := _find_forbidden_call(calls, messages):
                return self._refuse_call(forbidden, usage)
            calls = [begin_change(call, messages) for call in calls]
        if not calls:
            return [TextChunk(answer.release()), end]
        call_chunks = [_call_chunk(index, call) for index, call in enumerate(calls)]
        return [RevisedText(before), *call_chunks, end]

    def _refuse_call(self, forbidden: tuple[str, ToolCall], usage: Usage | None) -> list[Chunk]:
        """The chunks instead of a forbidden call. The first time the answer is emptied and not ended:
        the model is asked again. The second time it is an answer that asks the user.

        Args:
            forbidden: the line of memory, and the call.
            usage: that of the answer with the call; None if it is not known. The first time it
                is kept, and added to that of the next answer.
        """
        from ouro.llm.small_model_memory import refusal_text  # imported late: few answers need it

        if self._forbidden is None:
            self._forbidden, self._step_usage = forbidden, usage
            return [RevisedText(text="")]
        return [RevisedText(refusal_text(*forbidden)), EndChunk("stop")]


def _find_forbidden_call(
    calls: Sequence[ToolCall], messages: Sequence[Message]
) -> tuple[str, ToolCall] | None:
    """The line of memory that forbids a call, and the first such call; None if all are allowed."""
    from ouro.llm.small_model_memory import (
        find_forbidding_line,  # imported late: few answers need it
    )

    for call in calls:
        line = find_forbidding_line(call, messages)
        if line:
            return line, call
    return None


def _call_chunk(index: int, call: ToolCall) -> CallChunk:
    """A call as one chunk."""
    return CallChunk(index, call.id, call.name, arguments=json.dumps(dict(call.arguments)))


def find_calls(
    text: str, tools: Sequence[ToolSpec], messages: Sequence[Message]
) -> tuple[str, list[ToolCall]]:
    """Find the calls that an answer consists of or ends with.

    Returns the text before them, and these calls, without ids. If one of them does not fit a tool,
    or is quoted from a message of the user or a tool result, there are none: then it returns the
    whole text.
    """
    before, values = _split_at_calls(text.strip())
    calls = [call for value in values if (call := _parse_call(value, tools))]
    are_all_calls = bool(calls) and len(calls) == len(values)
    sources = [json.dumps(value, ensure_ascii=False) for value in values]
    sources.append(text.strip()[len(before) :])
    if not are_all_calls or _is_any_quoted(sources, messages):
        return text, []
    return before, calls


def describe_tools(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
    """The messages, with the tools described in the prompt, and calls and results as text.

    Without `tools` nothing is described, and answers are plain text.
    """
    description: tuple[Text, ...] = ()
    if tools:
        tool_lines = "\n".join(map(_describe_tool, _with_answer_tool(tools)))
        description = (Text(_INSTRUCTIONS + tool_lines),)
    changed: list[Message] = []
    for message in messages:
        if message.role == "system":
            # The tools come before memory, the last part, which changes more often: a server has
            # the rest in its cache.
            parts = (*message.parts[:1], *description, *message.parts[1:])
            changed.append(Message("system", parts))
            description = ()  # only once
        elif message.role == "tool":
            results = "\n".join(
                f"Result of {reply.name}:\n{reply.text}" for reply in message.parts_of(ToolReply)
            )
            next_tool = _NEXT_TOOL if tools else ""
            changed.append(Message("user", (Text(results + next_tool),)))
        elif message.role == "assistant":
            calls = "\n".join(_call_text(part.name, part.arguments) for part in message.tool_calls)
            answer = _call_text("answer", {"text": message.text}) if tools else message.text
            changed.append(Message("assistant", (Text(calls or answer),)))
        else:
            changed.append(message)
    return changed


def call_schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The JSON schema of an answer that consists of one call, of a tool or of `answer`."""
    calls = [
        {"name": {"const": tool.name}, "arguments": tool.parameters}
        for tool in _with_answer_tool(tools)
    ]
    one_call = {"type": "object", "required": ["name", "arguments"], "additionalProperties": False}
    return {"anyOf": [{**one_call, "properties": properties} for properties in calls]}


def _split_at_calls(text: str) -> tuple[str, list[Any]]:
    """The text before the calls, and the JSON values of the calls. If there are no values, the text
    has no meaning: the answer has no calls.

    The first of these forms that the text has counts: the own markup of a model, functions with
    parameters, tags, functions, marks, a code block at the end, JSON from the beginning of a line to
    the end.
    """
    if "<" in text or "[TOOL_CALLS]" in text:
        from ouro.llm.marked_calls import find_marked_calls  # imported late: few answers need it

        before, marked_calls = find_marked_calls(text)
        if marked_calls:
            return before, marked_calls
    with_parameters = list(_PARAMETER_CALL.finditer(text))
    if with_parameters:
        calls = [
            {"name": match[1], "arguments": dict(_PARAMETER.findall(match[2]))}
            for match in with_parameters
        ]
        return text[: with_parameters[0].start()].rstrip(), calls
    tagged = list(_TAGGED_CALL.finditer(text))
    if tagged:
        values = chain.from_iterable(_parse_values(match[1]) for match in tagged)
        return text[: tagged[0].start()].rstrip(), list(values)
    functions = list(_FUNCTION_CALL.finditer(text))
    if functions:
        calls = [{"name": match[1], "arguments": match[2]} for match in functions]
        return text[: functions[0].start()].rstrip(), calls
    marked = _MARKED_CALLS.search(text)
    if marked:
        return text[: marked.start()].rstrip(), _parse_values(marked[1])
    # Not by a pattern: one that finds the block took 3 s where an answer has 1,500 empty lines.
    fence = text.rfind("```", 0, -3) if text.endswith("```") else -1
    if fence >= 0:
        block = _FENCE_LANGUAGE.sub("", text[fence + 3 : -3])
        return text[:fence].rstrip(), _parse_values(block)
    for brace in islice(re.finditer(r"^\{", text, re.MULTILINE), _MAX_STARTS_TRIED):
        values_at_end = _parse_values(text[brace.start() :])
        if values_at_end:
            return text[: brace.start()].rstrip(), values_at_end
    return text, []


def _parse_values(text: str) -> list[Any]:
    """The JSON values that a text consists of: those of a list, or the only one. Empty if it is not
    JSON.
    """
    try:
        value = json.loads(text.strip(), strict=False)  # `json` itself skips only spaces of ASCII
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else [value]


def _parse_call(value: Any, tools: Sequence[ToolSpec]) -> ToolCall | None:
    """The call in a JSON value; None if it is not one of a known tool, with arguments that fit its
    schema.
    """
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("function"), dict):  # OpenAI's format, where the call is inside
        value = value["function"]
    name = next((value[key] for key in _NAME_KEYS if isinstance(value.get(key), str)), "")
    arguments = _arguments_in(value)
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None or not isinstance(arguments, dict):
        return None
    arguments = _read_texts(arguments, tool)
    return (
        ToolCall(id="", name=name, arguments=arguments) if _fits_schema(arguments, tool) else None
    )


def _read_texts(arguments: Mapping[str, Any], tool: ToolSpec) -> dict[str, Any]:
    """The arguments; a text where the tool takes none is read as JSON: `4` between tags is a text."""
    fields = tool.parameters.get("properties", {})
    read_arguments = dict(arguments)
    for name, value in arguments.items():
        types = _json_types(fields.get(name, {}))
        if isinstance(value, str) and types and "string" not in types:
            values = _parse_values(f"[{value}]")
            read_arguments[name] = values[0] if len(values) == 1 else value
    return read_arguments


def _arguments_in(value: Mapping[str, Any]) -> Any:
    """The arguments in a call, decoded if they are a text; an empty object if it names none, None if
    the text is not JSON.
    """
    arguments: Any = next((value[key] for key in _ARGUMENT_KEYS if key in value), {})
    if isinstance(arguments, str):
        return next(iter(_parse_values(arguments)), None)
    return arguments


def _fits_schema(arguments: Mapping[str, Any], tool: ToolSpec) -> bool:
    """Whether the arguments fit the tool: all required ones are there, no others, and of the right
    types.
    """
    fields = tool.parameters.get("properties", {})
    required = set(tool.parameters.get("required", ()))
    has_unknown = not arguments.keys() <= fields.keys()
    if has_unknown or not required <= arguments.keys():
        return False
    for name, value in arguments.items():  # the outermost type: the tool itself checks the rest
        types = _json_types(fields[name])
        if isinstance(value, bool):  # in Python it is also an int
            fits = "boolean" in types
        else:
            fits = any(isinstance(value, _PYTHON_TYPES.get(kind, object)) for kind in types)
        if types and not fits:
            return False
    return True


def _json_types(schema: Mapping[str, Any]) -> list[str]:
    """The names of the JSON types that a schema allows; empty if it does not say."""
    types = list(chain.from_iterable(map(_json_types, schema.get("anyOf", ()))))
    own_types = schema.get("type", ())
    if isinstance(own_types, str):
        own_types = [own_types]
    return [*types, *own_types]


def _is_any_quoted(sources: Sequence[str], messages: Sequence[Message]) -> bool:
    """Whether one of the sources of calls is quoted from a message of the user or a tool result, in
    whatever layout.
    """
    of_others = (message for message in messages if message.role in ("user", "tool"))
    parts = chain.from_iterable(message.parts for message in of_others)
    texts = [
        _without_spaces(part.text) for part in parts if isinstance(part, Text | Context | ToolReply)
    ]
    calls = [_without_spaces(source) for source in sources]
    return any(call in text for call, text in product(calls, texts))


def _without_spaces(text: str) -> str:
    """A text without spaces, newlines and escapes, to find a call in another layout."""
    return "".join(text.replace("\\n", "").replace("\\", "").split())


def _with_answer_tool(tools: Sequence[ToolSpec]) -> Iterator[ToolSpec]:
    """Yield the tools, then `answer`, without their optional arguments: small models fill them in
    even if that is wrong. A tool that has only optional arguments keeps them.

    What these arguments do, such as `offset` of `read` for a long file, the shell can do, too.
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
    """The fields of an object with types, `?` at optional ones: `path: string, all?: boolean`."""
    required = set(schema.get("required", ()))
    descriptions: list[str] = []
    for name, field in schema.get("properties", {}).items():
        mark = "" if name in required else "?"
        descriptions.append(f"{name}{mark}: {_describe_type(field)}")
    return ", ".join(descriptions)


def _describe_type(schema: Mapping[str, Any]) -> str:
    """A type as a small model reads it: `string`, `"a"|"b"`, `[{old_text: string}]`."""
    choices, values = schema.get("anyOf"), schema.get("enum")
    if choices:
        return "|".join(map(_describe_type, choices))
    if values:
        return "|".join(map(json.dumps, values))
    if schema.get("type") == "array":
        return f"[{_describe_type(schema.get('items', {}))}]"
    if schema.get("type") == "object" and "properties" in schema:
        return f"{{{_describe_fields(schema)}}}"
    return "|".join(_json_types(schema)) or "any"


def _call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as a very small model writes it."""
    return json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)
