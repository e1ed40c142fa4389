"""The fields of records as plain data, and how they are read: a record is not lost because of one
wrong value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal, TypeVar

import msgspec

from ouro.display import TodoState
from ouro.messages import Incomplete, Thinking, Usage
from ouro.utils.decoding import from_plain
from ouro.utils.late_pattern import late_pattern

Fields = TypeVar("Fields", bound=msgspec.Struct)
Path = tuple[str | int, ...]
"""The keys and positions that lead from a record to one of its values."""
_MAX_NUMBER = 1 << 53
_MAX_REPAIRS = 100
_ERROR_PATH = late_pattern(r" - at `\$(.*)`$")
_PATH_STEP = late_pattern(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
"""A key or a position in such a path: `.usage`, `[3]`."""


class BadRecordError(ValueError):
    """Plain data that is not a valid record; the message names the error."""


class ImageFields(msgspec.Struct, omit_defaults=True):
    """An image, whose bytes are in a file."""

    file: str
    media_type: str
    name: str = ""


class CallFields(msgspec.Struct, omit_defaults=True):
    """A tool call."""

    id: str
    name: str
    arguments: dict[str, Any] | None = None
    """None: there are none, or they are in `arguments_json`."""
    arguments_json: str = ""
    """Arguments that YAML cannot hold, as JSON."""
    malformed: str = ""
    """What the model sent as arguments, if it was not a JSON object."""


class BodyFields(msgspec.Struct, omit_defaults=True):
    """The body below a result's summary. If `text` is None and `file` empty, it is the result's
    text, or its first `lines`; all of it if `lines` is None.
    """

    kind: Literal["plain", "command", "picture", "todos"]
    language: str = ""
    command: str = ""
    exit_code: int | None = None
    """None: the command still ran, or a signal or the time limit ended it."""
    text: str | None = None
    file: str = ""
    """The file with the text, below the session's folder, if the text is too long for the record.
    """
    lines: int | None = None
    name: str = ""
    media_type: str = ""
    bytes: int = 0
    items: list[tuple[TodoState, str]] = []


class ReplyFields(msgspec.Struct, omit_defaults=True):
    """A tool result."""

    id: str
    name: str
    text: str | None = None
    """None: it is in `file`; without a file there is none."""
    file: str = ""
    bytes: int = 0
    failed: bool = False
    images: list[ImageFields] = []
    summary: str | None = None
    """What the user sees of it, in a line; None: nothing, as of a result without a display."""
    body: BodyFields | None = None
    """What the user sees below the summary; None: nothing."""


class MessageFields(msgspec.Struct, omit_defaults=True):
    """A message record."""

    role: Literal["user", "assistant", "tool"]
    """Never `system`: ouro writes no such message, so one in a planted file must not be sent."""
    model: str = ""
    cut: bool = False
    incomplete: Incomplete = ""
    private: bool = False
    steered: bool = False
    message: int = 0
    """The number of the message; 0: a user added it by hand without a number."""
    at: str = ""
    context: list[str] = []
    thinking: list[Thinking] = []
    text: str | None = None
    images: list[ImageFields] = []
    tool_calls: list[CallFields] = []
    replies: list[ReplyFields] = []
    parts: list[dict[str, Any]] = []
    """Parts in another order than these fields; each part names its kind."""
    usage: Usage | None = None


def read_fields(
    data: dict[str, Any], kind: type[Fields], numbers: Iterable[str]
) -> tuple[Fields, tuple[str, ...]]:
    """Returns the fields of a record, and the names of those that were repaired.

    A value of a wrong type is converted if its meaning is clear (`7` for a text, `12.0` for a
    count), otherwise it is left out. Older versions wrote what a provider sent without a check.

    Args:
        data: the plain data; it is not changed.
        kind: the class of the fields.
        numbers: the fields in which every number must be finite and not negative, because the index
            and sums hold no other.

    Raises:
        BadRecordError: a required value cannot be read, or too many values are wrong.
    """
    first_problem, repaired = "", dict[str, None]()
    for _ in range(_MAX_REPAIRS):  # each round repairs one value
        problem = "an impossible number"
        path = _find_impossible({name: data.get(name) for name in numbers})
        if path is None:
            try:
                return from_plain(data, kind), tuple(repaired)
            except msgspec.ValidationError as error:
                problem = str(error)
                path = _path_in(problem)
        first_problem = first_problem or problem
        if not path:  # the record itself is wrong
            break
        repaired[str(path[0])] = None
        data = _repair(data, path, problem)
    raise BadRecordError(first_problem)


def _path_in(problem: str) -> Path:
    """Returns the path of the value that msgspec refuses, from its message. If msgspec does not
    name the key (`...`), it is the path of the mapping. Empty if the message has no path.
    """
    match = _ERROR_PATH.search(problem)
    steps = _PATH_STEP.findall(match[1]) if match else []
    path: list[str | int] = []
    for key, position in steps:  # one of the two is empty
        if position == "...":
            break
        path.append(key or int(position))
    return tuple(path)


def _find_impossible(value: Any, path: Path = ()) -> Path | None:
    """Returns the path of the first number in plain data that is negative, infinite, too large or
    NaN; None if there is none. `path` is that of `value`.
    """
    if isinstance(value, int | float):
        is_possible = 0 <= value < _MAX_NUMBER  # False for NaN
        return None if is_possible else path
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        inner_path = _find_impossible(item, (*path, key))
        if inner_path is not None:
            return inner_path
    return None


def _is_lost_count(fields: Any, path: Path, problem: str) -> bool:
    """Whether the value at `path` is a count of tokens or calls that is lost: it cannot be
    converted to a number. A cost is not a count. False if the value is not in a usage.

    Args:
        fields: the fields of the record.
        path: the keys that lead to the value.
        problem: the message about the value.
    """
    key: Any = path[0]
    if key not in ("usage", "spent") or not isinstance(fields[key], dict):
        return False
    return path[1] != "cost" and _convert(fields[key], path[1:], problem) is None


def _repair(value: Any, path: Path, problem: str) -> Any:
    """Returns a copy of `value`, a mapping or list, in which the value at `path` is converted or
    left out. `problem` is the message about it.
    """
    copy = dict(value) if isinstance(value, dict) else list(value)
    key: Any = path[0]
    if len(path) > 1 and _is_lost_count(copy, path, problem):
        # All counts are left out: without one of them the others would be shown as the total.
        copy[key] = {name: item for name, item in copy[key].items() if name == "cost"}
    elif len(path) > 1:
        copy[key] = _repair(copy[key], path[1:], problem)
    elif key == "private":
        copy[key] = True  # in doubt, no memory is made from a message
    elif (converted := _convert(copy, path, problem)) is not None:
        copy[key] = converted
    else:
        del copy[key]
    return copy


def _convert(value: Any, path: Path, problem: str) -> str | int | None:
    """Returns the value at `path` in the type that msgspec expected, as `problem` says; None if its
    meaning is not clear.
    """
    for key in path:
        value = value[key]
    if problem.startswith("Expected `str") and isinstance(value, bool | int | float):
        return json.dumps(value)
    if problem.startswith("Expected `int") and isinstance(value, float) and value.is_integer():
        return int(value)
    return None
