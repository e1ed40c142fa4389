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

NO_SIGNATURE = "skip_thought_signature_validator"
"""What Google's documentation names as the signature of a call that another model made."""
MAX_STEPS = 8
"""An effort is replaced at most this often."""
_UNSET = "unset"
"""What counts as the effort of a request that names none; a refusal may ask for one."""
MAX_SCHEMA_DEPTH = 8
"""The levels of a simple schema that are kept."""
PLAIN_KEYS = frozenset(("type", "properties", "required", "items", "enum", "description"))
"""The keys of a JSON schema that every server understands."""

EFFORT_FIELDS = (("", "reasoning_effort"), ("reasoning", "effort"), ("output_config", "effort"))
"""The object and the field that hold the effort; empty: the body itself."""
OPTIONAL_AT_ANY_LEVEL = frozenset(("cache_control", "strict", "extra_content", "is_error"))
"""Optional fields that are inside of messages and tools."""


def shape_request(body: dict[str, Any], facts: ServerFacts) -> dict[str, Any]:
    """The body of a request, changed as the facts about the server say. The given body is not changed,
    and is returned itself if there are no facts.
    """
    if facts.is_empty:
        return body
    body = _replace_effort(dict(body), facts)
    body = _rename_limit(body, facts)
    if "messages" in body:
        body["messages"] = _change_messages(body["messages"], facts)
    if body.get("tools") and facts.get("tool_schema"):
        body["tools"] = [_simplify_tool(tool) for tool in body["tools"]]
    for field in facts.names_of_kind("without"):
        body = _remove_field(body, field)
    return body


def _rename_limit(body: dict[str, Any], facts: ServerFacts) -> dict[str, Any]:
    """The body with the limit of an answer under the name that the server wants; the order of the
    fields stays. Only the two names of chat completions are changed.
    """
    wanted_name = facts.get("output_limit")
    if not wanted_name:
        return body
    new_names = dict.fromkeys(LIMIT_NAMES[:2], wanted_name)
    return {new_names.get(field, field): value for field, value in body.items()}


def _replace_effort(body: dict[str, Any], facts: ServerFacts) -> dict[str, Any]:
    """The body with the effort that the server accepts instead of the one in it. If the server
    accepts none, the body has no effort. A body without an effort gets one if a refusal has asked
    for that (the fact for `unset`).
    """
    for owner, field in EFFORT_FIELDS:
        values = dictionary(body.get(owner)) if owner else body
        effort = values.get(field) or _UNSET
        accepted = _accepted_effort(effort, facts)
        if accepted == effort:
            continue
        if effort == _UNSET and owner:  # a new effort is only added at the top level of the body
            continue
        changed = {**values, field: accepted}
        if not accepted:
            del changed[field]
        body = {**body, owner: changed} if owner else changed
    return body


def _accepted_effort(effort: str, facts: ServerFacts) -> str:
    """The effort that is sent instead of this one; itself if it was not refused, empty for none. Each
    refusal has added one replacement: they are followed to the last one.
    """
    for _ in range(MAX_STEPS):
        key = f"effort.{effort}"
        if not facts.has(key):
            break
        effort = facts.get(key)
    return effort


Json = dict[str, Any]


def _change_messages(messages: Sequence[Json], facts: ServerFacts) -> list[Json]:
    """The messages, changed as the facts about the server say: the role of the system prompt, a
    text instead of null, signatures of calls, the names of tools in results, the length of the
    ids of calls, and messages of the user joined.
    """
    changed = list(messages)
    system_role = facts.get("system_role")
    if system_role:
        changed = [_with_role(message, system_role) for message in changed]
    if facts.get("empty_content"):
        changed = [_with_content(message) for message in changed]
    if facts.get("call_signatures"):
        changed = [_with_call_signature(message) for message in changed]
    if facts.get("result_names"):
        changed = _with_names(changed)
    id_length = facts.get("call_ids")
    if id_length:
        changed = [_with_short_ids(message, int(id_length)) for message in changed]
    # A system prompt in the role of the user stands before the first message of the user.
    if facts.get("roles") or system_role == "user":
        changed = _join_roles(changed)
    return changed


def _with_role(message: Json, role: str) -> Json:
    """The message; a system message in another role."""
    if message["role"] != "system":
        return message
    return {**message, "role": role}


def _with_content(message: Json) -> Json:
    """The message, with an empty text instead of null."""
    if message.get("content", "") is not None:
        return message
    return {**message, "content": ""}


def _with_call_signature(message: Json) -> Json:
    """The message; if none of its calls has a signature of Gemini, the first one gets the placeholder."""
    calls = dictionaries(message.get("tool_calls"))
    if not calls or any("extra_content" in call for call in calls):
        return message
    signature = {"google": {"thought_signature": NO_SIGNATURE}}
    return {**message, "tool_calls": [{**calls[0], "extra_content": signature}, *calls[1:]]}


def _with_names(messages: Sequence[Json]) -> list[Json]:
    """The messages, in which each result has the name of its tool; `tool` if its call is not there."""
    name_of_call: dict[str, str] = {}
    changed: list[Json] = []
    for message in messages:
        for call in dictionaries(message.get("tool_calls")):
            name_of_call[call["id"]] = dictionary(call.get("function")).get("name", "")
        named = dict(message)
        if message["role"] == "tool":
            named["name"] = name_of_call.get(message["tool_call_id"]) or "tool"
        changed.append(named)
    return changed


def _with_short_ids(message: Json, length: int) -> Json:
    """The message; the ids of its calls, or of its result, have this length."""
    calls = dictionaries(message.get("tool_calls"))
    if calls:
        changed_calls = [{**call, "id": _short_id(call.get("id"), length)} for call in calls]
        return {**message, "tool_calls": changed_calls}
    if "tool_call_id" in message:
        return {**message, "tool_call_id": _short_id(message["tool_call_id"], length)}
    return message


def _short_id(call_id: Any, length: int) -> str:
    """An id of this length that is always the same for a call."""
    return hashlib.sha256(str(call_id).encode("utf-8", "surrogatepass")).hexdigest()[:length]


def _join_roles(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, with consecutive ones of the user as one: roles must alternate."""
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
    """A content as a list of parts."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _simplify_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool, in the format of any wire, whose schema has only what every server understands."""
    simple = dict(tool)
    if isinstance(simple.get("function"), dict):  # chat completions have the tool inside of it
        simple["function"] = _simplify_tool(simple["function"])
    for key in ("parameters", "input_schema"):
        if isinstance(simple.get(key), dict):
            simple[key] = _simplify_schema(simple[key], root=simple[key])
    simple.pop("strict", None)
    return simple


def _simplify_schema(schema: Any, root: Mapping[str, Any], depth: int = MAX_SCHEMA_DEPTH) -> Any:
    """The schema, with all schemas inside of it, reduced to keys that every server understands. Of
    several options only the first is left, and of several types the first that is not `null`; a
    reference is replaced by what it stands for, and a constant by the only value of an `enum`.

    Args:
        root: the schema of the tool, in which references are looked up.
        depth: the levels that are kept; a definition may contain itself.
    """
    if not isinstance(schema, dict):
        return schema
    merged = _merge_options(schema, root)
    simple = {key: value for key, value in merged.items() if key in PLAIN_KEYS}
    if "const" in merged:
        simple["enum"] = [merged["const"]]
    simple["type"] = _simple_type(simple)
    if depth == 0:
        return {"type": simple["type"]}
    if "properties" in simple:
        fields = dictionary(simple["properties"])
        simple["properties"] = {
            name: _simplify_schema(field, root, depth - 1) for name, field in fields.items()
        }
    if simple["type"] == "array":
        simple["items"] = _simplify_schema(dictionary(simple.get("items")), root, depth - 1)
    return simple


def _merge_options(schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a schema, over those of the first of its options, of all its parts (`allOf`) and of
    what it refers to.
    """
    merged = dict(schema)
    for _ in range(MAX_SCHEMA_DEPTH):
        options = dictionaries(merged.pop("anyOf", None)) or dictionaries(merged.pop("oneOf", None))
        parts = [*options[:1], *dictionaries(merged.pop("allOf", None))]
        reference = merged.pop("$ref", None)
        if isinstance(reference, str):
            parts.append(_find_definition(reference, root))
        if not parts:
            break
        for part in parts:
            merged = {**part, **merged}
    return merged


def _find_definition(reference: str, root: Mapping[str, Any]) -> dict[str, Any]:
    """The schema to which a reference such as `#/$defs/Item` points; empty if there is none."""
    place: Any = root
    for name in reference.removeprefix("#/").split("/"):
        place = dictionary(place).get(name.replace("~1", "/").replace("~0", "~"))
    return dictionary(place)


def _simple_type(schema: Mapping[str, Any]) -> str:
    """The type of a schema; what its other keys mean if it names none."""
    types = schema.get("type")
    if isinstance(types, list):
        return next((name for name in types if name != "null"), "string")
    if isinstance(types, str):
        return types
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema else "string"


def _remove_field(body: dict[str, Any], field: str) -> dict[str, Any]:
    """The body without a field: `reasoning.summary` at every level below `reasoning`, a field of
    OPTIONAL_AT_ANY_LEVEL wherever it occurs, any other field only at the top level.
    """
    owner, _, inner = field.partition(".")
    if inner and isinstance(body.get(owner), dict):
        return {**body, owner: _remove_everywhere(body[owner], inner)}
    if field in OPTIONAL_AT_ANY_LEVEL:
        shaped: dict[str, Any] = _remove_everywhere(body, field)
        return shaped
    return {key: value for key, value in body.items() if key != field}


def _remove_everywhere(value: Any, field: str) -> Any:
    """A JSON value without a field, at every level."""
    if isinstance(value, dict):
        return {key: _remove_everywhere(item, field) for key, item in value.items() if key != field}
    if isinstance(value, list):
        return [_remove_everywhere(item, field) for item in value]
    return value


TOKENS_PER_IMAGE = 1_500
"""About how many tokens an image has."""
ASCII_PER_TOKEN = 3.5
"""Characters; each other character counts as a token."""
REFUSED_IMAGE = "[picture {}: the server refused it]"
"""The text instead of an image that the server refused."""


def request_size(messages: Sequence[Message], body: Mapping[str, Any]) -> int:
    """About how many tokens a request has: these messages, and the tools in its body."""
    tools = encode_json(body.get("tools") or []).decode()
    tokens = len(tools) / ASCII_PER_TOKEN
    for message in messages:
        text = "".join(map(_part_as_text, message.parts))
        ascii_count = len(text.encode("ascii", "ignore"))
        other_count = len(text) - ascii_count
        tokens += ascii_count / ASCII_PER_TOKEN + other_count
        tokens += len(_images_in(message)) * TOKENS_PER_IMAGE
    return int(tokens)


def _part_as_text(part: Part) -> str:
    """The text of a part that counts for the size of a request; empty for an image, which is
    counted by itself.
    """
    match part:
        case Text(text) | Context(text) | Thinking(text) | ToolReply(text=text):
            return text
        case ToolCall(arguments=arguments):
            return encode_json(dict(arguments)).decode()
        case _:
            return ""


def visible_images(messages: Sequence[Message], facts: ServerFacts) -> list[set[int]]:
    """The hashes of the images that are sent: a set for each message that has any."""
    visible: list[set[int]] = []
    for message in messages:
        hashes = {hash(image.data) for image in _images_in(message)} - facts.hidden
        if hashes:
            visible.append(hashes)
    return visible


def _images_in(message: Message) -> list[Image]:
    """The images of a message, also those of its tool results."""
    images = list(message.parts_of(Image))
    for reply in message.parts_of(ToolReply):
        images += reply.images
    return images


def hide_images(message: Message, hidden: set[int]) -> Message:
    """The message with a description instead of each hidden image; the same object if it has none."""
    hashes = {hash(image.data) for image in _images_in(message)}
    if hashes.isdisjoint(hidden):
        return message
    return replace(message, parts=tuple(_hide_in(part, hidden) for part in message.parts))


def _hide_in(part: Part, hidden: set[int]) -> Part:
    """A part, in which a note replaces each hidden image; in a tool result the notes follow its
    text. `hidden` has the hashes of images.
    """
    if isinstance(part, Image):
        return _image_or_note(part, hidden)
    if not isinstance(part, ToolReply):
        return part
    text, images = part.text, list[Image]()
    for image in part.images:
        replacement = _image_or_note(image, hidden)
        if isinstance(replacement, Text):
            text += f"\n{replacement.text}"
        else:
            images.append(image)
    return replace(part, text=text, images=tuple(images))


def _image_or_note(image: Image, hidden: set[int]) -> Image | Text:
    """The image, or a note instead of a hidden one."""
    if hash(image.data) not in hidden:
        return image
    return Text(REFUSED_IMAGE.format(image.name or image.media_type))
