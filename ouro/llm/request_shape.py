"""A request in the form that its server accepts, by what is known of the server."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ouro.llm.portable import encode_json
from ouro.llm.server_facts import LIMIT_NAMES, ServerFacts
from ouro.messages import Context, Image, Message, Part, Text, Thinking, ToolCall, ToolReply
from ouro.utils.lenient_json import dictionaries, dictionary

MAX_STEPS = 8
"""Efforts that are replaced one after another."""
PLAIN_KEYS = frozenset(("type", "properties", "required", "items", "enum", "description"))
"""What every server understands of a JSON schema."""

EFFORT_FIELDS = (("", "reasoning_effort"), ("reasoning", "effort"), ("output_config", "effort"))
"""The object and the field that hold the effort; empty: the body itself."""
NESTED = frozenset(("cache_control", "strict", "extra_content", "is_error"))
"""Fields inside of messages and tools that a request can do without."""


def shape_request(body: dict[str, Any], facts: ServerFacts) -> dict[str, Any]:
    """The body of a request with everything that the facts change."""
    if facts.is_empty:
        return body
    body = _rename_limit(_replace_effort(dict(body), facts), facts)
    if "messages" in body:
        body["messages"] = _change_messages(body["messages"], facts)
    if body.get("tools") and facts.get("tool_schema"):
        body["tools"] = [_simplify_tool(tool) for tool in body["tools"]]
    for field in facts.keys("without"):
        body = _remove_field(body, field)
    return body


def _rename_limit(body: dict[str, Any], facts: ServerFacts) -> dict[str, Any]:
    """The limit of an answer, under the name that the server wants; in its place."""
    name = facts.get("output_limit")
    if not name:
        return body
    renamed = dict.fromkeys(LIMIT_NAMES[:2], name)
    return {renamed.get(field, field): value for field, value in body.items()}


def _replace_effort(body: dict[str, Any], facts: ServerFacts) -> dict[str, Any]:
    """The body with the effort that the server accepts, or without one."""
    for owner, field in EFFORT_FIELDS:
        values = dictionary(body.get(owner)) if owner else body
        sent = values.get(field) or "unset"
        wanted = _accepted_effort(sent, facts)
        if wanted == sent or (sent == "unset" and owner):
            continue
        changed = {**values, field: wanted}
        if not wanted:
            del changed[field]
        body = {**body, owner: changed} if owner else changed
    return body


def _accepted_effort(effort: str, facts: ServerFacts) -> str:
    """The effort that is sent instead; each refusal adds one step, and none leads back."""
    for _ in range(MAX_STEPS):
        key = f"effort.{effort}"
        if not facts.has(key):
            break
        effort = facts.get(key)
    return effort


Json = dict[str, Any]


def _change_messages(messages: Sequence[Json], facts: ServerFacts) -> list[Json]:
    """The messages with all changes that concern them, one after another."""
    sent = list(messages)
    if role := facts.get("system_role"):
        sent = [_with_role(message, role) for message in sent]
    if facts.get("empty_content"):
        sent = [_with_content(message) for message in sent]
    if facts.get("result_names"):
        sent = _with_names(sent)
    if length := facts.get("call_ids"):
        sent = [_with_short_ids(message, int(length)) for message in sent]
    if facts.get("roles") or facts.get("system_role") == "user":
        sent = _join_roles(sent)
    return sent


def _with_role(message: Json, role: str) -> Json:
    """A system message in another role."""
    if message["role"] != "system":
        return message
    return {**message, "role": role}


def _with_content(message: Json) -> Json:
    """A message with an empty text instead of null."""
    if message.get("content", "") is not None:
        return message
    return {**message, "content": ""}


def _with_names(messages: Sequence[Json]) -> list[Json]:
    """The messages with the name of its tool in each result."""
    names: dict[str, str] = {}
    named: list[Json] = []
    for message in messages:
        for call in dictionaries(message.get("tool_calls")):
            names[call["id"]] = dictionary(call.get("function")).get("name", "")
        is_result = message["role"] == "tool"
        name = {"name": names.get(message["tool_call_id"]) or "tool"} if is_result else {}
        named.append({**message, **name})
    return named


def _with_short_ids(message: Json, length: int) -> Json:
    """A message whose calls, or whose result, have an id of this length."""
    if calls := dictionaries(message.get("tool_calls")):
        shortened = [{**call, "id": _short_id(call.get("id"), length)} for call in calls]
        return {**message, "tool_calls": shortened}
    if "tool_call_id" in message:
        return {**message, "tool_call_id": _short_id(message["tool_call_id"], length)}
    return message


def _short_id(call_id: Any, length: int) -> str:
    return hashlib.sha256(str(call_id).encode("utf-8", "surrogatepass")).hexdigest()[:length]


def _join_roles(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of the user, and of the system as the user, joined: their roles must alternate."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        last = joined[-1] if joined else {}
        if message["role"] == last.get("role") == "user":
            joined[-1] = {**last, "content": _join_contents(last["content"], message["content"])}
        else:
            joined.append(message)
    return joined


def _join_contents(first: Any, second: Any) -> Any:
    """Two contents as one: a text if both are, else a list of parts."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _simplify_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool whose schema has only what every server understands."""
    simple = dict(tool)
    for key in ("function", "parameters", "input_schema"):
        if isinstance(simple.get(key), dict):
            is_schema = key != "function"
            simple[key] = (
                _simplify_schema(simple[key]) if is_schema else _simplify_tool(simple[key])
            )
    simple.pop("strict", None)
    return simple


def _simplify_schema(schema: Any) -> Any:
    """The schema with only the first of several options, and without keys that not every server
    understands.
    """
    if not isinstance(schema, dict):
        return schema
    options = dictionaries(schema.get("anyOf") or schema.get("oneOf"))
    if options:
        schema = {**options[0], **schema}
    simple = {key: value for key, value in schema.items() if key in PLAIN_KEYS}
    if isinstance(kind := simple.get("type"), list):
        simple["type"] = next((name for name in kind if name != "null"), "string")
    if "properties" in simple:
        fields = dictionary(simple["properties"])
        simple["properties"] = {name: _simplify_schema(field) for name, field in fields.items()}
    if "items" in simple:
        simple["items"] = _simplify_schema(simple["items"])
    return simple


def _remove_field(body: dict[str, Any], field: str) -> dict[str, Any]:
    """The body without a field; `reasoning.summary` is a field inside of another one."""
    owner, _, inner = field.partition(".")
    if inner and isinstance(body.get(owner), dict):
        return {**body, owner: _remove_everywhere(body[owner], inner)}
    left = {key: value for key, value in body.items() if key != field}
    return _remove_everywhere(left, field) if field in NESTED else left


def _remove_everywhere(value: Any, field: str) -> Any:
    """`value` without a field, at every level."""
    if isinstance(value, dict):
        return {key: _remove_everywhere(item, field) for key, item in value.items() if key != field}
    return [_remove_everywhere(item, field) for item in value] if isinstance(value, list) else value


TOKENS_OF_A_PICTURE = 1_500
ASCII_A_TOKEN = 3.5
"""Characters; each other character counts as a token."""
REFUSED_PICTURE = "[picture {}: the server refused it]"


def request_size(messages: Sequence[Message], body: Mapping[str, Any]) -> int:
    """About how many tokens a request has."""
    tools = encode_json(body.get("tools") or []).decode()
    size = len(tools) / ASCII_A_TOKEN
    for message in messages:
        text = "".join(map(_part_as_text, message.parts))
        narrow = len(text.encode("ascii", "ignore"))
        size += narrow / ASCII_A_TOKEN + len(text) - narrow
        size += len(_images_in(message)) * TOKENS_OF_A_PICTURE
    return int(size)


def _part_as_text(part: Part) -> str:
    """What a part adds to the size of a request."""
    match part:
        case Text(text) | Context(text) | Thinking(text) | ToolReply(text=text):
            return text
        case ToolCall(arguments=arguments):
            return encode_json(dict(arguments)).decode()
        case _:
            return ""


def visible_pictures(messages: Sequence[Message], facts: ServerFacts) -> list[set[int]]:
    """The hashes of the pictures that are sent, by message; messages without pictures are left
    out.
    """
    shown: list[set[int]] = []
    for message in messages:
        found = {hash(image.data) for image in _images_in(message)}
        if found := found - facts.hidden:
            shown.append(found)
    return shown


def _images_in(message: Message) -> list[Image]:
    """The images of a message, also those of its tool results."""
    images = list(message.parts_of(Image))
    for reply in message.parts_of(ToolReply):
        images += reply.images
    return images


def hide_pictures(message: Message, hidden: set[int]) -> Message:
    """The message with a description instead of each hidden picture; the same object if it has
    none.
    """
    found = {hash(image.data) for image in _images_in(message)}
    if found.isdisjoint(hidden):
        return message
    return replace(message, parts=tuple(_hide_in(part, hidden) for part in message.parts))


def _hide_in(part: Part, hidden: set[int]) -> Part:
    """A part without its hidden pictures."""
    if isinstance(part, Image):
        return _shown_or_note(part, hidden)
    if not isinstance(part, ToolReply):
        return part
    text, left = part.text, list[Image]()
    for image in part.images:
        shown = _shown_or_note(image, hidden)
        if isinstance(shown, Text):
            text += f"\n{shown.text}"
        else:
            left.append(image)
    return replace(part, text=text, images=tuple(left))


def _shown_or_note(image: Image, hidden: set[int]) -> Image | Text:
    """The image, or a note instead of a hidden one."""
    if hash(image.data) not in hidden:
        return image
    return Text(REFUSED_PICTURE.format(image.name or image.media_type))
