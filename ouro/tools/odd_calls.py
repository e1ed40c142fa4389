"""Calls that are not written as the tool asks, read where they have exactly one reasonable reading."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ouro.errors import ToolError
from ouro.messages import Message, Part, ToolCall
from ouro.tools.tool import AnyTool, parse_arguments
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import arguments_object, dictionary

MAX_JOINED = 20
"""Calls that are read in one slot."""
MAX_QUOTES = 3
"""How often JSON is read out of a text in a text."""
ABSENT = frozenset(("", "null", "none", "nil", "undefined"))
"""Texts that mean no value, where no text is meant."""
TOOL_NAMES: Mapping[str, str] = {
    "bash": "shell",
    "runcommand": "shell",
    "runshellcommand": "shell",
    "runterminalcmd": "shell",
    "executecommand": "shell",
    "execcommand": "shell",
    "localshell": "shell",
    "shellcommand": "shell",
    "terminal": "shell",
    "shellinput": "shell_output",
    "bashoutput": "shell_output",
    "writestdin": "shell_output",
    "readfile": "read",
    "openfile": "read",
    "viewfile": "read",
    "view": "read",
    "cat": "read",
    "writefile": "write",
    "writetofile": "write",
    "createfile": "write",
    "savefile": "write",
    "editfile": "edit",
    "multiedit": "edit",
    "replace": "edit",
    "replaceinfile": "edit",
    "strreplace": "edit",
    "searchreplace": "edit",
    "notebookedit": "notebook_edit",
    "editnotebook": "notebook_edit",
    "applydiff": "apply_patch",
    "ripgrep": "grep",
    "rg": "grep",
    "grepsearch": "grep",
    "searchfilecontent": "grep",
    "findfiles": "glob",
    "filesearch": "glob",
    "todowrite": "todo",
    "updateplan": "todo",
    "writetodos": "todo",
    "fetch": "web_fetch",
    "fetchurl": "web_fetch",
    "websearch": "web_search",
    "searchweb": "web_search",
    "agent": "subagent",
    "task": "subagent",
    "askuserquestion": "ask_user",
}
"""Names that models were trained on, in lower case without separators."""
FIELD_NAMES: Mapping[str, tuple[str, ...]] = {
    "path": (
        "filepath", "filename", "file", "targetfile", "absolutepath", "relativepath", "pathname",
        "notebookpath", "directory", "dir", "folder",
    ),
    "old_text": ("oldstring", "oldstr", "old", "search", "searchtext", "find", "original"),
    "new_text": ("newstring", "newstr", "new", "replace", "replacement", "replacetext", "updated"),
    "command": ("cmd", "script", "bashcommand", "shellcommand", "commandline"),
    "content": ("contents", "filetext", "filecontent", "text", "body"),
    "pattern": ("query", "regex", "regexp", "searchpattern", "globpattern"),
    "text": ("content", "step", "task", "title", "description"),
    "state": ("status", "done", "completed", "checked"),
    "todos": ("plan", "items", "tasks", "todolist"),
    "url": ("uri", "link", "address"),
    "prompt": ("instructions", "task", "message"),
    "patch": ("input", "diff", "patchtext"),
    "source": ("newsource", "cellsource"),
    "cell": ("cellnumber", "cellindex"),
    "kind": ("celltype",),
    "mode": ("editmode",),
    "edits": ("changes", "replacements"),
}  # fmt: skip
"""Fields of tools, and their names elsewhere, in lower case without separators."""
VALUE_SYNONYMS: Mapping[str, str] = {
    "completed": "done",
    "complete": "done",
    "finished": "done",
    "inprogress": "in_progress",
    "active": "in_progress",
    "doing": "in_progress",
    "todo": "pending",
    "notstarted": "pending",
    "open": "pending",
    "true": "done",
    "false": "pending",
}
REMARKS = frozenset(("description", "explanation", "reason", "reasoning", "thought", "intent"))
"""What models say about a call, in a field that the tool does not have."""
WRAPPERS = frozenset(("arguments", "parameters", "params", "input", "args", "kwargs"))
_NAMESPACE_PREFIX = late_pattern(
    r"\A(?:functions|default_api|tools?|multi_tool_use|ouro|api)[.:/_]+"
)
_NAME_TAIL = late_pattern(r"<\|.*|[^\w.-].*\Z|(?:_tool|Tool)\Z")
_NUMBER_TEXT = late_pattern(r"-?\d{1,15}(?:\.\d+)?")
_HARMLESS_REST = late_pattern(r"[\s}\]]{0,20}(?:</?[\w|:]{1,40}>?\s*){0,5}`{0,3}\s*")
"""What models write behind whole arguments: a bracket too many, the tag of a chat template."""
_MARKDOWN_FENCE = late_pattern(r"\A\s*```\w*\n(.*)\n```\s*\Z", re.DOTALL)


def read_calls(message: Message, tools: Mapping[str, AnyTool]) -> Message:
    """An answer of the model in which each call is written as its tool asks for it. A call that has no
    single reading stays.

    Called before anything is saved or asked, so that what is shown, asked, run and saved is one
    call.
    """
    parts: list[Part] = []
    used_ids = {call.id for call in message.tool_calls}
    for part in message.parts:
        calls = list(_read_call(part, tools)) if isinstance(part, ToolCall) else [part]
        parts += calls[:1]
        for further in calls[1:]:
            assert isinstance(further, ToolCall), "only calls are split"
            parts.append(replace(further, id=_new_id(further.id, used_ids)))
    return message if tuple(parts) == message.parts else replace(message, parts=tuple(parts))


def _new_id(call_id: str, taken: set[str]) -> str:
    """An id for a call that another call was joined with; it is added to `taken`."""
    number = 2
    while (fresh := f"{call_id[:32]}_{number}") in taken:
        number += 1
    taken.add(fresh)
    return fresh


def _read_call(call: ToolCall, tools: Mapping[str, AnyTool]) -> Iterator[ToolCall]:
    """Yield the calls that one call means; the call itself if it has no single reading."""
    names = _tools_in_name(call.name, tools)
    objects = [dict(call.arguments)] if not call.malformed else _values_in_text(call.malformed)
    if not names or not objects:
        yield call
        return
    if len(names) == 1:
        names *= len(objects)
    accepted = [
        _accepted_arguments(name, value, tools) for name, value in zip(names, objects, strict=False)
    ]
    complete = [call_read for call_read in accepted if call_read is not None]
    if len(complete) < len(accepted) or len(names) != len(objects):
        # The name is sure, also if the arguments are not: the error then shows the right call.
        yield replace(call, name=names[0]) if len(set(names)) == 1 else call
        return
    for name, arguments in complete:
        yield ToolCall(call.id, name, arguments)


def _accepted_arguments(
    name: str, value: Any, tools: Mapping[str, AnyTool]
) -> tuple[str, dict[str, Any]] | None:
    """The name of a tool and the arguments that are meant; None if the tool does not accept them."""
    tool = tools[name]
    arguments = read_arguments(value, tool.spec().parameters)
    try:
        parse_arguments(tool, arguments)  # only for its error
    except ToolError:
        return None
    return name, arguments


def _tools_in_name(name: str, tools: Mapping[str, AnyTool]) -> list[str]:
    """The tools that a name means: one, several that were joined, or none."""
    if tool := _find_tool(name, tools):
        return [tool]
    joined_names = re.fullmatch(f"((?:{'|'.join(map(re.escape, sorted(tools, key=len)))})+)", name)
    if not joined_names:
        return []
    parts = re.findall("|".join(map(re.escape, sorted(tools, key=len, reverse=True))), name)
    return parts if "".join(parts) == name else []


def _find_tool(name: str, tools: Mapping[str, AnyTool]) -> str:
    """The only tool that a name can mean; empty if there is none."""
    if name in tools:
        return name
    bare_name = _NAME_TAIL.sub("", _NAMESPACE_PREFIX.sub("", name.strip()))
    squeezed = squeeze(bare_name)
    same_names = [tool_name for tool_name in tools if squeeze(tool_name) == squeezed]
    if len(same_names) == 1:
        return same_names[0]
    known_synonym = TOOL_NAMES.get(squeezed, "")
    return known_synonym if known_synonym in tools and not same_names else ""


def squeeze(name: str) -> str:
    """A name in lower case without separators: `Read-File` and `read_file` are the same."""
    return re.sub(r"[\W_]", "", name).lower()


def _values_in_text(text: str) -> list[Any]:
    """The JSON values of which a text consists, one after another; empty objects are left out if there
    are others. Empty if the text has anything else.
    """
    text = _without_fence(text)
    decoder, position, values = json.JSONDecoder(strict=False), 0, list[Any]()
    text = text.strip()
    while position < len(text) and len(values) <= MAX_JOINED:
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            if not values or not _HARMLESS_REST.fullmatch(text[position:]):
                return []
            break
        if value not in values:  # the whole input, and then the same in pieces
            values.append(_decode_json_in_text(value))
        position = len(text) - len(text[position:].lstrip(" \n\r\t,;"))
    whole = [value for value in values if value not in ({}, None)] or values[:1]
    return whole if len(whole) <= MAX_JOINED else []


def _decode_json_in_text(value: Any) -> Any:
    """The JSON in a text, or the value itself."""
    for _ in range(MAX_QUOTES):
        if not isinstance(value, str):
            break
        try:
            value = json.loads(_without_fence(value), strict=False)
        except (ValueError, RecursionError):
            break
    return value


def _without_fence(text: str) -> str:
    """The text without a Markdown fence around it."""
    fenced = _MARKDOWN_FENCE.match(text)
    return fenced[1] if fenced else text


def read_arguments(value: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a model means, by the schema of the tool; unchanged where they fit."""
    fields = dictionary(schema.get("properties"))
    if isinstance(value, dict) and len(value) == 1:
        value = _unwrap_arguments(value, fields)
    if not isinstance(value, dict):
        value = _wrap_in_only_field(value, fields, schema)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    value = arguments_object(value)
    return _read_object(value, schema) if value is not None else {}


def _unwrap_arguments(value: dict[str, Any], fields: Mapping[str, Any]) -> Any:
    """The arguments inside of `{"arguments": {…}}`."""
    [(key, inner)] = value.items()
    inner = _decode_json_in_text(inner)
    is_wrapper = key in WRAPPERS and key not in fields
    return inner if is_wrapper and isinstance(inner, dict) else value


def _wrap_in_only_field(value: Any, fields: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """A list or a text that is not in an object, as the value of the only required field that takes
    one; unchanged if there are several such fields.
    """
    kind = "array" if isinstance(value, list) else "string"
    required = [name for name in schema.get("required", ()) if kind in kinds_of(fields.get(name))]
    if len(required) != 1 or not isinstance(value, list | str):
        return value
    return {required[0]: value}


def _read_object(value: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """An object with the fields of its schema under their own names, and with values that fit."""
    fields = dictionary(schema.get("properties"))
    if not fields:
        return dict(value)
    named = _with_known_names(value, fields)
    named = _gather_item(named, fields, schema)
    read: dict[str, Any] = {}
    for key, item in named.items():
        field = dictionary(fields.get(key))
        if key not in fields and key in REMARKS:
            continue
        if key not in schema.get("required", ()) and _is_absent(item, kinds_of(field)):
            continue
        read[key] = read_value(_unwrap_list(key, item, field), field) if key in fields else item
    return read


def _is_absent(value: Any, kinds: Sequence[str]) -> bool:
    """Whether a model has written that an optional field has no value."""
    if value is None:
        return "null" not in kinds
    is_text_meant = not kinds or "string" in kinds
    return isinstance(value, str) and not is_text_meant and value.strip().lower() in ABSENT


def _unwrap_list(key: str, value: Any, field: Mapping[str, Any]) -> Any:
    """The list of `{"edits": {"edits": […]}}`, where the name of the field was written twice."""
    kinds = kinds_of(field)
    if "array" not in kinds or "string" in kinds or "object" in kinds:
        return value
    inner, items = (
        _decode_json_in_text(value),
        dictionary(dictionary(field.get("items")).get("properties")),
    )
    is_twice = isinstance(inner, dict) and list(inner) == [key] and key not in items
    return inner[key] if is_twice else value


def _with_known_names(value: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The object with the names of the schema; a name with two meanings stays."""
    known_names = {key: key if key in fields else _find_field(key, fields) for key in value}
    targets = list(known_names.values())
    return {
        known_names[key] if targets.count(known_names[key]) == 1 else key: item
        for key, item in value.items()
    }


def _find_field(key: str, fields: Mapping[str, Any]) -> str:
    """The only field that a name can mean; the name itself if there is none."""
    squeezed = squeeze(key)
    matching_fields = [name for name in fields if squeeze(name) == squeezed]
    matching_fields = matching_fields or [
        name for name in fields if squeezed in FIELD_NAMES.get(name, ())
    ]
    return matching_fields[0] if len(matching_fields) == 1 else key


def _gather_item(
    value: dict[str, Any], fields: Mapping[str, Any], schema: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of one item, written beside the others, as the list that they belong to."""
    for name in schema.get("required", ()):
        items = dictionary(dictionary(fields.get(name)).get("items"))
        inner = dictionary(items.get("properties"))
        if name in value or not inner:
            continue
        item = _with_known_names({k: v for k, v in value.items() if k not in fields}, inner)
        item = {key: value_of_key for key, value_of_key in item.items() if key in inner}
        if item.keys() >= set(items.get("required", ())):
            rest = {key: found for key, found in value.items() if key in fields}
            return {**rest, name: [item]}
    return value


def kinds_of(schema: Any) -> list[str]:
    """The JSON types that a schema names."""
    schema = dictionary(schema)
    kind = schema.get("type", ())
    kinds = [kind] if isinstance(kind, str) else list(kind)
    for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        kinds += kinds_of(option)
    return kinds


def read_value(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value as its schema asks for it; the value itself if it fits, or has no single reading."""
    kinds, choices = kinds_of(schema), schema.get("enum", ())
    if isinstance(value, bool) and choices:
        value = _find_choice(json.dumps(value), choices)
    elif isinstance(value, str):
        value = _read_text_value(value, kinds, schema)
    elif "string" in kinds and _is_scalar(value) and _type_of(value) not in kinds:
        value = value if value is None else json.dumps(value)
    if isinstance(value, float) and value.is_integer() and kinds == ["integer"]:
        value = int(value)
    return _read_nested_values(value, kinds, schema)


def _read_nested_values(value: Any, kinds: Sequence[str], schema: Mapping[str, Any]) -> Any:
    """A list or an object whose inner values are as the schema asks for them. A single value becomes a
    list if the schema asks for one.
    """
    is_list_meant = "array" in kinds and "object" not in kinds
    if is_list_meant and value is not None and not isinstance(value, list):
        value = [value]
    if isinstance(value, list) and "array" in kinds:
        items = dictionary(schema.get("items"))
        return [read_value(item, items) for item in value]
    if isinstance(value, list) and len(value) == 1 and kinds == ["object"]:
        value = value[0]
    return _read_object(value, schema) if isinstance(value, dict) else value


def _read_text_value(value: str, kinds: Sequence[str], schema: Mapping[str, Any]) -> Any:
    """The number, boolean, list or object that was written as a text; the text itself if the schema
    asks for one, or it is none of them.
    """
    if choices := schema.get("enum"):
        return _find_choice(value, choices)
    if "string" in kinds or not kinds:
        return value
    text = value.strip()
    if "boolean" in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if {"integer", "number"} & set(kinds) and _NUMBER_TEXT.fullmatch(text):
        return json.loads(text) if not re.match(r"-?0\d", text) else value
    if {"array", "object"} & set(kinds):
        inner = _decode_json_in_text(text)
        return inner if isinstance(inner, list | dict) else value
    return value


def _find_choice(value: str, choices: Sequence[Any]) -> Any:
    """The only choice of an enumeration that a text means; the text itself if there is none."""
    if value in choices:
        return value
    squeezed = squeeze(value)
    matching_choices = [choice for choice in choices if squeeze(str(choice)) == squeezed]
    synonym = VALUE_SYNONYMS.get(squeezed)
    if len(matching_choices) == 1:
        return matching_choices[0]
    return synonym if synonym in choices else value


def _is_scalar(value: Any) -> bool:
    """Whether a value is a number or a boolean."""
    return isinstance(value, int | float | bool)


def _type_of(value: Any) -> str:
    """The JSON type of a number or a boolean."""
    if isinstance(value, bool):
        return "boolean"
    return "integer" if isinstance(value, int) else "number"


def example_call(tool: AnyTool) -> str:
    """A call of a tool as JSON, with its required arguments: what an error shows the model."""
    schema = tool.spec().parameters
    return msgspec.json.encode(_example_value(schema)).decode()


def _example_value(schema: Any) -> Any:
    """A value of a schema, with the required fields."""
    schema = dictionary(schema)
    kind = next(iter(kinds_of(schema)), "string")
    if kind == "object":
        fields = dictionary(schema.get("properties"))
        return {name: _example_value(fields.get(name)) for name in schema.get("required", ())}
    if kind == "array":
        return [_example_value(schema.get("items"))]
    simple: Mapping[str, Any] = {"integer": 1, "number": 1, "boolean": True}
    return next(iter(schema.get("enum", ())), simple.get(kind, "…"))
