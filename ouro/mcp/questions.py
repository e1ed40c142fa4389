"""Elicitation: the questions of an MCP server to the user; and the arguments of its prompts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ouro.display import Question
from ouro.errors import UsageError
from ouro.mcp.definition import ServerPrompt
from ouro.utils.lenient_json import count, dictionaries, dictionary
from ouro.utils.text import one_line, shell_words
from ouro.utils.worker import JsonObject

MAX_FIELDS = 20
MAX_LENGTH = 100_000
_YES_NO = ("yes", "no")
AskUser = Callable[[Question], Awaitable[tuple[str, ...]]]


async def answer_elicitation(server: str, about: JsonObject, ask: AskUser) -> JsonObject:
    """Ask the user to open a URL or to fill in a form; returns the result for the protocol."""
    message = one_line(str(about.get("message", "")), 500)
    intro = f"The MCP server {server} asks: {message}"
    if about.get("mode") == "url":
        url = one_line(str(about.get("url", "")), 1_000)
        question = Question(
            f"{intro}\nIt wants you to open an address in your browser. Do you?",
            _YES_NO,
            details=url,
        )
        return {"action": "accept" if await ask(question) == ("yes",) else "decline"}
    schema = dictionary(about.get("requestedSchema"))
    fields = dict(list(dictionary(schema.get("properties")).items())[:MAX_FIELDS])
    if not fields:
        return (
            {"action": "accept", "content": {}}
            if await ask(Question(intro, _YES_NO)) == ("yes",)
            else _DECLINED
        )
    required = schema.get("required")
    content: dict[str, Any] = {}
    for name, field in fields.items():
        value = await _ask_field(intro, name, dictionary(field), ask)
        if value is None and isinstance(required, list) and name in required:
            return _DECLINED
        if value is not None:
            content[name] = value
        intro = f"{server}:"
    return {"action": "accept", "content": content}


_DECLINED: JsonObject = {"action": "decline"}


async def _ask_field(intro: str, name: str, field: JsonObject, ask: AskUser) -> Any:
    """Ask for one field until the answer is valid; without an answer returns its default, or None."""
    kind = field.get("type", "string")
    label = one_line(
        f"{field.get('title') or name}: {field.get('description', '')}".rstrip(": "), 300
    )
    choices = (
        _choices(field)
        or _choices(dictionary(field.get("items")))
        or (_YES_NO if kind == "boolean" else ())
    )
    problem = ""
    while True:
        answers = await ask(
            Question(f"{intro}\n{problem}{label}", choices, several=kind == "array")
        )
        if not answers:
            return field.get("default")
        try:
            return _value(kind, answers, field)
        except (KeyError, ValueError):
            problem = f"`{one_line(answers[0], 40)}` does not fit ({kind}). "


def _choices(field: JsonObject) -> tuple[str, ...]:
    """The values that a field allows; empty if any value may be given."""
    options = dictionaries(field.get("oneOf")) or dictionaries(field.get("anyOf"))
    listed = field.get("enum")
    found = (
        listed
        if isinstance(listed, list) and listed
        else [option.get("const") for option in options]
    )
    return tuple(str(value) for value in found if value is not None)


def _value(kind: str, answers: tuple[str, ...], field: JsonObject) -> Any:
    """The answer as the type of the field. Raises an error if it is not one."""
    match kind:
        case "array":
            return list(answers)
        case "boolean":
            return {"yes": True, "true": True, "no": False, "false": False}[answers[0].lower()]
        case "integer":
            return int(answers[0])
        case "number":
            return float(answers[0])
    least, most = count(field.get("minLength")), count(field.get("maxLength"))
    if not (least or 0) <= len(answers[0]) <= (MAX_LENGTH if most is None else most):
        raise ValueError(answers[0])
    return answers[0]


def _named_values(words: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """The values that are given as `NAME=value`."""
    values: dict[str, str] = {}
    for word in words:
        name, is_named, value = word.partition("=")
        if is_named and name in names:
            values[name] = value
    return values


def parse_prompt_arguments(prompt: ServerPrompt, typed: str) -> dict[str, str]:
    """Parse the arguments of a prompt: `NAME=value`, or in their order.

    Raises:
        UsageError: a required one is missing.
    """
    words = shell_words(typed)
    names = [argument.name for argument in prompt.arguments]
    values = _named_values(words, names)
    free = [word for word in words if word.partition("=")[0] not in values]
    open_names = [name for name in names if name not in values]
    if len(open_names) == 1 and free:
        free = [" ".join(free)]
    values |= dict(zip(open_names, free, strict=False))
    missing = [item.name for item in prompt.arguments if item.required and item.name not in values]
    if missing:
        raise UsageError(f"The prompt {prompt.name} needs {', '.join(missing)}.")
    return values
