"""Elicitation: the questions of an MCP server to the user; and the arguments of its prompts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ouro.display import Question
from ouro.errors import UsageError
from ouro.mcp.definition import ServerPrompt
from ouro.utils.json_object import JsonObject
from ouro.utils.lenient_json import count, dictionaries, dictionary
from ouro.utils.text import one_line, shell_words

MAX_FIELDS = 20
"""Maximum fields of a form; the others are not asked."""
MAX_LENGTH = 100_000
"""Maximum characters of an answer, if the field names no limit."""
_YES_NO = ("yes", "no")
_DECLINED: JsonObject = {"action": "decline"}
AskUser = Callable[[Question], Awaitable[tuple[str, ...]]]
"""Asks the user a question; returns the answers, empty if there are none."""


async def answer_elicitation(server: str, about: JsonObject, ask: AskUser) -> JsonObject:
    """Ask the user for a server: to open a URL, to agree to something, or to fill in a form, field
    by field. Returns the result for the protocol. It is `decline` if the user does not agree, or
    leaves out a required field; an optional field that is left out is not in the result.

    Args:
        about: the parameters of the question.
    """
    message = one_line(str(about.get("message", "")), 500)
    intro = f"The MCP server {server} asks: {message}"
    if about.get("mode") == "url":
        return await _ask_to_open(intro, str(about.get("url", "")), ask)
    schema = dictionary(about.get("requestedSchema"))
    fields = dict(list(dictionary(schema.get("properties")).items())[:MAX_FIELDS])
    if not fields:
        is_accepted = await ask(Question(intro, _YES_NO)) == ("yes",)
        return {"action": "accept", "content": {}} if is_accepted else _DECLINED
    required = schema.get("required")
    content: dict[str, Any] = {}
    for name, field in fields.items():
        value = await _ask_field(intro, name, field=dictionary(field), ask=ask)
        if value is None and isinstance(required, list) and name in required:
            return _DECLINED
        if value is not None:
            content[name] = value
        intro = f"{server}:"  # the message of the server is shown once
    return {"action": "accept", "content": content}


async def _ask_to_open(intro: str, url: str, ask: AskUser) -> JsonObject:
    """Ask the user to open a URL. ouro does not open it itself. Returns the result for the
    protocol: whether the user has agreed.
    """
    question = Question(
        f"{intro}\nIt wants you to open an address in your browser. Do you?",
        _YES_NO,
        details=one_line(url, 1_000),
    )
    return {"action": "accept"} if await ask(question) == ("yes",) else _DECLINED


async def _ask_field(intro: str, name: str, field: JsonObject, ask: AskUser) -> Any:
    """Ask for one field of a form until the answer is valid, and return its value. If the user
    gives no answer, returns the default of the field; None if it has no default.

    Args:
        intro: the first line of the question.
        field: its schema.
    """
    kind = field.get("type", "string")
    title = field.get("title") or name
    label = one_line(f"{title}: {field.get('description', '')}".rstrip(": "), 300)
    choices = _choices(field) or _choices(dictionary(field.get("items")))  # of one value, of a list
    if not choices and kind == "boolean":
        choices = _YES_NO
    problem = ""
    while True:
        answers = await ask(
            Question(f"{intro}\n{problem}{label}", choices, several=kind == "array")
        )
        if not answers:
            return field.get("default")
        try:
            return _parse_answer(kind, answers, field)
        except (KeyError, ValueError):
            problem = f"`{one_line(answers[0], 40)}` does not fit ({kind}). "


def _choices(field: JsonObject) -> tuple[str, ...]:
    """The values that the schema of a field allows: the values of `enum`, or the constants of
    `oneOf` or `anyOf`. Empty if it does not name any.
    """
    values = field.get("enum")
    if not isinstance(values, list) or not values:
        options = dictionaries(field.get("oneOf")) or dictionaries(field.get("anyOf"))
        values = [option.get("const") for option in options]
    return tuple(str(value) for value in values if value is not None)


def _parse_answer(kind: str, answers: tuple[str, ...], field: JsonObject) -> Any:
    """The answer of the user as a value of the type `kind`, which the field has. Raises KeyError or
    ValueError if it is not a value of this type, or a text is too short or too long.
    """
    match kind:
        case "array":
            return list(answers)
        case "boolean":
            return {"yes": True, "true": True, "no": False, "false": False}[answers[0].lower()]
        case "integer":
            return int(answers[0])
        case "number":
            return float(answers[0])
    text = answers[0]
    min_length = count(field.get("minLength")) or 0
    max_length = count(field.get("maxLength"))
    if max_length is None:
        max_length = MAX_LENGTH
    if not min_length <= len(text) <= max_length:
        raise ValueError(text)
    return text


def _named_values(words: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """The values in words of the form `NAME=value`, by name. Other words, and names that are not in
    `names`, are left out.
    """
    values: dict[str, str] = {}
    for word in words:
        name, is_named, value = word.partition("=")
        if is_named and name in names:
            values[name] = value
    return values


def parse_prompt_arguments(prompt: ServerPrompt, typed: str) -> dict[str, str]:
    """The arguments of a prompt, by name, from the text that was typed after its name. Each word is
    `NAME=value`, or a value alone, which belongs to the next argument that has no value yet.

    Raises:
        UsageError: a required one is missing.
    """
    words = shell_words(typed)
    names = [argument.name for argument in prompt.arguments]
    values = _named_values(words, names)
    positional = [word for word in words if word.partition("=")[0] not in values]
    open_names = [name for name in names if name not in values]
    if len(open_names) == 1 and positional:  # one value with blanks needs no quotes
        positional = [" ".join(positional)]
    values |= dict(zip(open_names, positional, strict=False))
    missing = [item.name for item in prompt.arguments if item.required and item.name not in values]
    if missing:
        raise UsageError(f"The prompt {prompt.name} needs {', '.join(missing)}.")
    return values
