"""Reads tool calls that a model has not written as the tool asks, if they can mean only one thing."""

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
    "runinterminal": "shell",
    "executebash": "shell",
    "containerexec": "shell",
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
    "cwd": ("workdir", "workingdirectory", "directory", "dir", "folder"),
    "background": ("runinbackground", "isbackground"),
    "timeout_seconds": ("timeout", "timeoutms", "timeoutsec"),
    "agent": ("subagenttype", "agenttype"),
    "task": ("description",),
}  # fmt: skip
"""Fields of tools, and their names elsewhere, in lower case without separators."""
_MILLISECONDS = "timeoutms"
_MAX_SECONDS_MEANT = 3600
"""A `timeout` above this is in milliseconds, as in the shell tools of several agents."""
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
"""Values that models write for the state of a todo, in lower case without separators."""
REMARKS = frozenset(("description", "explanation", "reason", "reasoning", "thought", "intent"))
"""What models say about a call, in a field that the tool does not have."""
WRAPPERS = frozenset(("arguments", "parameters", "params", "input", "args", "kwargs"))
"""Keys under which models put all arguments of a call."""
_NAMESPACE_PREFIX = late_pattern(
    r"\A(?:functions|default_api|tools?|multi_tool_use|ouro|api)[.:/_]+"
)
_NAME_TAIL = late_pattern(r"<\|.*|[^\w.-].*\Z|(?:_tool|Tool)\Z")
"""What models write behind the name of a tool: a token of a chat template, arguments, `_tool`."""
_NUMBER_TEXT = late_pattern(r"-?\d{1,15}(?:\.\d+)?")
_HARMLESS_REST = late_pattern(r"[\s}\]]{0,20}(?:</?[\w|:]{1,40}>?\s*){0,5}`{0,3}\s*")
"""What models write behind whole arguments: a bracket too many, the tag of a chat template."""
_MARKDOWN_FENCE = late_pattern(r"\A\s*```\w*\n(.*)\n```\s*\Z", re.DOTALL)


def read_calls(message: Message, tools: Mapping[str, AnyTool]) -> Message:
    """The model's answer `message`, in which each call has the form that its tool asks for. A call
    in another form is read if it can have only one meaning; it may mean several calls. Any other
    call stays as it is, and the tool will refuse it. `message` itself if no call changes.

    Called before anything is saved or asked, so that what is shown, asked, run and saved is one
    call.
    """
    parts: list[Part] = []
    used_ids = {call.id for call in message.tool_calls}
    for part in message.parts:
        if not isinstance(part, ToolCall):
            parts.append(part)
            continue
        first, *further_calls = _read_call(part, tools)
        parts.append(first)
        parts += [replace(further, id=_new_id(further.id, used_ids)) for further in further_calls]
    return message if tuple(parts) == message.parts else replace(message, parts=tuple(parts))


def _new_id(call_id: str, taken: set[str]) -> str:
    """An id that no call has yet, for a further call that was read from the call `call_id`: `ID_2`.
    It is added to `taken`.
    """
    number = 2
    while (fresh := f"{call_id[:32]}_{number}") in taken:
        number += 1
    taken.add(fresh)
    return fresh


def _read_call(call: ToolCall, tools: Mapping[str, AnyTool]) -> Iterator[ToolCall]:
    """Yields the calls that one call means, at least one.

    Some models join several calls into one: several names with as many objects of arguments, or one
    name with several objects. If one of the joined calls is not valid, yields the call itself.
    """
    if call.name.startswith("mcp__") and call.name not in tools and "mcp_call" in tools:
        # A tool that only `tool_search` names, called as if it were in the request.
        arguments = {"tool": call.name, "arguments": call.arguments}
        yield call if call.malformed else replace(call, name="mcp_call", arguments=arguments)
        return
    names = _tools_in_name(call.name, tools)
    objects = [dict(call.arguments)] if not call.malformed else _values_in_text(call.malformed)
    if not names or not objects:
        yield call
        return
    if len(names) == 1:
        names = names * len(objects)  # the same tool is called with each object
    # If there are more names than objects, or fewer, the call stays as it is (below).
    accepted = [
        _accepted_arguments(name, value, tools) for name, value in zip(names, objects, strict=False)
    ]
    complete = [call_read for call_read in accepted if call_read is not None]
    if len(complete) < len(accepted) or len(names) != len(objects):
        # The name may be sure though the arguments are not: the error then shows the right call.
        yield replace(call, name=names[0]) if len(set(names)) == 1 else call
        return
    for name, arguments in complete:
        yield ToolCall(call.id, name, arguments)


def _accepted_arguments(
    name: str, value: Any, tools: Mapping[str, AnyTool]
) -> tuple[str, dict[str, Any]] | None:
    """The name, and the arguments that the model means by `value`, as the tool of this name takes
    them; None if it does not accept them.
    """
    tool = tools[name]
    arguments = read_arguments(value, tool.spec().parameters)
    try:
        parse_arguments(tool, arguments)  # only for its error
    except ToolError:
        return None
    return name, arguments


def _tools_in_name(name: str, tools: Mapping[str, AnyTool]) -> list[str]:
    """The names of the tools that a name means: one, or several that were joined without a
    separator (`readgrep`); empty if it means none.
    """
    if tool := _find_tool(name, tools):
        return [tool]
    # The longest first, so that `web_fetch` is not read as another name that it begins with.
    any_name = "|".join(map(re.escape, sorted(tools, key=len, reverse=True)))
    if not re.fullmatch(f"(?:{any_name})+", name):
        return []
    # `findall` does not try a shorter name where the longest one leads to no end.
    names = re.findall(any_name, name)
    return names if "".join(names) == name else []


def _find_tool(name: str, tools: Mapping[str, AnyTool]) -> str:
    """The name of the only tool that a name can mean; empty if there is none, or several.

    The name is compared as it is; then without a prefix, a tail, separators and case; then with the
    other names of tools in TOOL_NAMES.
    """
    if name in tools:
        return name
    bare_name = _NAME_TAIL.sub("", _NAMESPACE_PREFIX.sub("", name.strip()))
    squeezed = squeeze(bare_name)
    same_names = [tool_name for tool_name in tools if squeeze(tool_name) == squeezed]
    if same_names:
        return same_names[0] if len(same_names) == 1 else ""
    known_synonym = TOOL_NAMES.get(squeezed, "")
    return known_synonym if known_synonym in tools else ""


def squeeze(name: str) -> str:
    """A name in lower case without separators: `Read-File` and `read_file` are the same."""
    return re.sub(r"[\W_]", "", name).lower()


def _values_in_text(text: str) -> list[Any]:
    """The JSON values of which a text consists, one after the other. A value that comes twice is
    returned once. Empty values are left out if there are others. Returns an empty list if the text
    has anything else, or more than MAX_JOINED values.
    """
    text = _without_fence(text).strip()
    decoder = json.JSONDecoder(strict=False)
    values: list[Any] = []
    position = 0
    while position < len(text) and len(values) <= MAX_JOINED:
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            if not values or not _HARMLESS_REST.fullmatch(text[position:]):
                return []
            break
        if value not in values:  # some models send the whole, and then the same in pieces
            values.append(_decode_json_in_text(value))
        position = len(text) - len(text[position:].lstrip(" \n\r\t,;"))
    not_empty = [value for value in values if value not in ({}, None)] or values[:1]
    return not_empty if len(not_empty) <= MAX_JOINED else []


def _decode_json_in_text(value: Any) -> Any:
    """What a text says that is JSON. If the result is again such a text, it is decoded too, up to
    MAX_QUOTES times. Any other value is returned as it is.
    """
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
    """The arguments that a model means by `value`, as the schema of the tool asks for them. What
    fits already stays unchanged. Empty if `value` cannot be read as an object.

    Some models wrap the object in `{"arguments": …}` or in a list with one item. Others write only
    the value of the one required field.
    """
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
    """The inner object of `{"arguments": {…}}`. `value`, an object with one key, is returned
    unchanged if this key is a field of the tool or not one of WRAPPERS, or if it holds no object.
    """
    [(key, inner)] = value.items()
    inner = _decode_json_in_text(inner)
    is_wrapper = key in WRAPPERS and key not in fields
    return inner if is_wrapper and isinstance(inner, dict) else value


def _wrap_in_only_field(value: Any, fields: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """A list or a text that should be an object, as an object. It becomes the value of the only
    required field that takes a list, or a text. Unchanged if there is no such field, or more than
    one.
    """
    kind = "array" if isinstance(value, list) else "string"
    required = [name for name in schema.get("required", ()) if kind in kinds_of(fields.get(name))]
    if len(required) != 1 or not isinstance(value, list | str):
        return value
    return {required[0]: value}


def _read_object(value: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """An object whose keys are the names of the fields in its schema, and whose values are as the
    schema asks for them. Remarks, and optional fields without a value, are left out. Any other key
    stays: the tool will refuse it.
    """
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
    """Whether a value in an optional field means that it has none: null, unless the field has the
    type `null`; or a text such as `none`, if the field has types and none of them is `string`.

    Args:
        kinds: the JSON types of the field.
    """
    if value is None:
        return "null" not in kinds
    is_text_meant = not kinds or "string" in kinds
    return isinstance(value, str) and not is_text_meant and value.strip().lower() in ABSENT


def _unwrap_list(key: str, value: Any, field: Mapping[str, Any]) -> Any:
    """The value of the field `key`. If the field takes a list, and its name was written twice, as
    in `{"edits": {"edits": […]}}`, the inner list is returned; otherwise `value`.
    """
    kinds = kinds_of(field)
    if "array" not in kinds or "string" in kinds or "object" in kinds:
        return value
    inner = _decode_json_in_text(value)
    fields_of_item = dictionary(dictionary(field.get("items")).get("properties"))
    has_only_key = isinstance(inner, dict) and list(inner) == [key]
    is_name_written_twice = has_only_key and key not in fields_of_item
    return inner[key] if is_name_written_twice else value


def _with_known_names(value: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The object with the names of `fields` instead of other names for them. If two keys mean the
    same field, both stay as they are.
    """
    meant = {key: key if key in fields else _find_field(key, fields) for key in value}
    all_meant = list(meant.values())
    renamed: dict[str, Any] = {}
    for key, item in value.items():
        name = meant[key] if all_meant.count(meant[key]) == 1 else key
        renamed[name] = _as_seconds(key, item) if name == "timeout_seconds" else item
    return renamed


def _as_seconds(key: str, value: Any) -> Any:
    """A time limit in seconds. A number is in milliseconds if its key says so, or if it is too
    large for seconds. A value that is no number, and any in `timeout_seconds`, is unchanged.
    """
    if key == "timeout_seconds" or not isinstance(value, int | float):
        return value
    is_milliseconds = squeeze(key) == _MILLISECONDS or value > _MAX_SECONDS_MEANT
    return value / 1000 if is_milliseconds else value


def _find_field(key: str, fields: Mapping[str, Any]) -> str:
    """The name of the only field that `key` can mean. It is the same name but for case and
    separators; or FIELD_NAMES has `key` as another name for it. `key` itself if there is no such
    field, or more than one.
    """
    squeezed = squeeze(key)
    matching_fields = [name for name in fields if squeeze(name) == squeezed]
    if not matching_fields:
        matching_fields = [name for name in fields if squeezed in FIELD_NAMES.get(name, ())]
    return matching_fields[0] if len(matching_fields) == 1 else key


def _gather_item(
    value: dict[str, Any], fields: Mapping[str, Any], schema: Mapping[str, Any]
) -> dict[str, Any]:
    """The object with its required list. Some models leave the list out and write the fields of its
    only item instead: `{"path": A, "old_text": B}` is read as `{"path": A, "edits": [{"old_text":
    B}]}`. Unchanged if the list is there, or if a required field of an item is missing.
    """
    own_fields = {key: item for key, item in value.items() if key in fields}
    others = {key: item for key, item in value.items() if key not in fields}
    for name in schema.get("required", ()):
        items = dictionary(dictionary(fields.get(name)).get("items"))
        fields_of_item = dictionary(items.get("properties"))
        if name in value or not fields_of_item:
            continue
        named = _with_known_names(others, fields_of_item)
        only_item = {key: item for key, item in named.items() if key in fields_of_item}
        if only_item.keys() >= set(items.get("required", ())):
            return {**own_fields, name: [only_item]}
    return value


def kinds_of(schema: Any) -> list[str]:
    """The JSON types that a schema allows, also those of its alternatives."""
    schema = dictionary(schema)
    kind = schema.get("type", ())
    kinds = [kind] if isinstance(kind, str) else list(kind)
    for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        kinds += kinds_of(option)
    return kinds


def read_value(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value as its schema asks for it: a number that was written as a text, a text that was
    written as a number, one of several choices in other words, `3.0` for an integer. The value
    itself if it fits already, or could mean more than one thing.
    """
    kinds, choices = kinds_of(schema), schema.get("enum", ())
    if isinstance(value, bool) and choices:  # `done: true` instead of a state
        value = _find_choice(json.dumps(value), choices)
    elif isinstance(value, str):
        value = _read_text_value(value, kinds, schema)
    elif "string" in kinds and _is_scalar(value) and _type_of(value) not in kinds:
        value = json.dumps(value)
    if isinstance(value, float) and value.is_integer() and kinds == ["integer"]:
        value = int(value)
    return _read_nested_values(value, kinds, schema)


def _read_nested_values(value: Any, kinds: Sequence[str], schema: Mapping[str, Any]) -> Any:
    """A list or an object with inner values as the schema asks for them. If the schema asks for a
    list, a single value becomes a list; if it asks for an object, a list of one becomes its item.
    Any other value stays.
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
    """The choice, number, boolean, list or object that was written as the text `value`. The text
    itself if the schema asks for a text, or if it is none of these.
    """
    if choices := schema.get("enum"):
        return _find_choice(value, choices)
    if "string" in kinds or not kinds:
        return value
    text = value.strip()
    if "boolean" in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if {"integer", "number"} & set(kinds) and _NUMBER_TEXT.fullmatch(text):
        has_leading_zero = re.match(r"-?0\d", text)  # JSON has no such number
        return value if has_leading_zero else json.loads(text)
    if {"array", "object"} & set(kinds):
        inner = _decode_json_in_text(text)
        return inner if isinstance(inner, list | dict) else value
    return value


def _find_choice(value: str, choices: Sequence[Any]) -> Any:
    """The only one of the choices that a text means: it is the same text but for case and
    separators, or VALUE_SYNONYMS has the text for it. The text itself if there is none.
    """
    if value in choices:
        return value
    squeezed = squeeze(value)
    matching_choices = [choice for choice in choices if squeeze(str(choice)) == squeezed]
    if len(matching_choices) == 1:
        return matching_choices[0]
    synonym = VALUE_SYNONYMS.get(squeezed)
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
    """An example of a value that fits a schema: an object with its required fields, a list of one
    item, a choice, 1, true, or a text `…`.
    """
    schema = dictionary(schema)
    kind = next(iter(kinds_of(schema)), "string")
    if kind == "object":
        fields = dictionary(schema.get("properties"))
        return {name: _example_value(fields.get(name)) for name in schema.get("required", ())}
    if kind == "array":
        return [_example_value(schema.get("items"))]
    if choices := schema.get("enum"):
        return choices[0]
    examples: Mapping[str, Any] = {"integer": 1, "number": 1, "boolean": True}
    return examples.get(kind, "…")
