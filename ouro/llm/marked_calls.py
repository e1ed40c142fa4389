"""Tool calls in the own markup of a model, which its server should have read.

| model | form |
|---|---|
| MiniMax, DeepSeek 3.2 and 4 | `<invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>`, with a prefix |
| GLM | `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>` |
| Kimi | `<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}<|tool_call_end|>` |
| DeepSeek 3 | `<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>` |
| gpt-oss | `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>` |
| Mistral | `[TOOL_CALLS]NAME[ARGS]{…}` |
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from ouro.utils.late_pattern import late_pattern

_MARK = r"<[|｜][^<>\n]{1,40}[|｜]>"
"""A token that a model writes between the parts of a call."""
_INVOKE = late_pattern(
    r'<([^\s<>/"=]{0,12})invoke name="([\w.:-]{1,64})">(.*?)(?:</\1invoke>|\Z)', re.DOTALL
)
_PARAMETER = late_pattern(
    r'<([^\s<>/"=]{0,12})parameter name="([\w.:-]{1,64})"[^<>]{0,40}>\n?(.*?)\n?'
    r"(?:</\1parameter>|(?=<\1parameter name=)|\Z)",
    re.DOTALL,
)
_PAIRS_CALL = late_pattern(
    r"<tool_call>\s*([\w.-]{1,64})\s*((?:<arg_key>.*?)?)(?:</tool_call>|\Z)", re.DOTALL
)
_PAIR = late_pattern(
    r"<arg_key>\s*([\w.-]{1,64})\s*</arg_key>\s*<arg_value>\n?(.*?)\n?"
    r"(?:</arg_value>|(?=<arg_key>)|\Z)",
    re.DOTALL,
)
_BEFORE_JSON = late_pattern(
    rf"(?:(?:<\|start\|>assistant)?<\|channel\|>commentary to=|{_MARK})(?:function{_MARK})?"
    rf"(?:functions\.)?([\w.-]{{1,64}})(?::\d{{1,4}})?\s?(?:{_MARK}(?:json)?|\n```json\n){{1,3}}(?=\{{)"
    r"|\[TOOL_CALLS\]\s?([\w.-]{1,64})\s?(?:\[CALL_ID\]\w{1,64})?(?:\[ARGS\])?\s?(?=\{)"
)
"""Matches what comes before the arguments of a call, if these are a JSON object."""
_MAX_MARK = 60
"""Maximum characters of a tag around calls."""
_NOTHING_AFTER = late_pattern(r"(?:\s|```|</?[^<>\n]{1,60}>)*\Z")
"""Matches if no text follows the last call."""


class MarkedCall(NamedTuple):
    """A call and its place in the text."""

    start: int
    end: int
    value: dict[str, Any]
    """Its `name` and `arguments`."""


def find_marked_calls(text: str) -> tuple[str, list[Any]]:
    """The text before the calls, and the calls as objects with `name` and `arguments`. No calls, and the
    whole text, if it does not end with calls in one of these forms, or they are in a code block.
    """
    calls = [*_invoked_calls(text)] or [*_calls_of_pairs(text)] or [*_calls_with_json(text)]
    if not calls or not _NOTHING_AFTER.match(text, calls[-1].end):
        return text, []
    before = text[: calls[0].start]
    if before.count("```") % 2:
        return text, []
    return _without_marks(before), [call.value for call in calls]


def _without_marks(text: str) -> str:
    """The text without the tags at its end, which are around all calls."""
    text = text.rstrip()
    while text.endswith(">"):
        start = text.rfind("<", -_MAX_MARK)
        if start < 0:
            break
        text = text[:start].rstrip()
    return text


def _invoked_calls(text: str) -> Iterator[MarkedCall]:
    """Yield the calls with a tag for the tool, and one for each parameter."""
    for match in _INVOKE.finditer(text):
        parameters = {name: value for _, name, value in _PARAMETER.findall(match[3])}
        yield MarkedCall(*match.span(), {"name": match[2], "arguments": parameters})


def _calls_of_pairs(text: str) -> Iterator[MarkedCall]:
    """Yield the calls with a tag for each name of an argument, and one for its value."""
    for match in _PAIRS_CALL.finditer(text):
        arguments = dict(_PAIR.findall(match[2]))
        yield MarkedCall(*match.span(), {"name": match[1], "arguments": arguments})


def _calls_with_json(text: str) -> Iterator[MarkedCall]:
    """Yield the calls whose arguments are JSON after the name of the tool."""
    decoder = json.JSONDecoder(strict=False)
    for match in _BEFORE_JSON.finditer(text):
        try:
            arguments, end = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            continue
        yield MarkedCall(match.start(), end, {"name": match[1] or match[2], "arguments": arguments})
