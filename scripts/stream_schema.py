"""The JSON schema of `--output stream-json` and `--input stream-json`, made from the events and the
input's types.

    .venv/bin/python -m scripts.stream_schema     writes docs/stream-json.schema.json

A test compares the file with what this writes, and each kind of line with the schema.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, get_args

import msgspec

from ouro import events
from ouro.frontends.headless.input import Input
from ouro.messages import ToolCall, Usage
from ouro.safety import Mode
from ouro.session import ReceiptLine

FILE = Path(__file__).parents[1] / "docs" / "stream-json.schema.json"


class SessionLine(msgspec.Struct, tag_field="type", tag="session"):
    """The first line."""

    session_id: str
    model: str
    mode: Mode
    cwd: str


class MemoryLoadedLine(msgspec.Struct, tag_field="type", tag="memory_loaded"):
    """What long-term memory put into the prompt; only where it is on."""

    versions: dict[str, str]
    tokens: int
    price: float | None
    entries: list[ReceiptLine]
    waiting: list[str]


class SentImage(msgspec.Struct):
    name: str
    media_type: str
    bytes: int


class PromptedLine(msgspec.Struct, tag_field="type", tag="prompted"):
    """A user message entered the transcript: the first of the turn, or one that steers it."""

    text: str
    images: list[SentImage]


class RepliedLine(msgspec.Struct, tag_field="type", tag="replied"):
    """A model call ended. With `cut` it is only what came before the cut."""

    text: str
    thinking: str
    calls: list[ToolCall]
    usage: Usage | None
    model: str
    cut: bool


class RefusedCall(msgspec.Struct):
    tool: str
    title: str
    rule: str


class ResultLine(msgspec.Struct, tag_field="type", tag="result"):
    """The end of a prompt."""

    session_id: str
    model: str
    outcome: events.Outcome
    detail: str
    result: str
    data: Any
    usage: Usage
    turns: int
    duration_ms: int
    refused: list[RefusedCall]
    exit_code: int


OWN_LINES = {events.Prompted: PromptedLine, events.Replied: RepliedLine}
"""Events that `event_to_json` writes in another form."""
NOT_WRITTEN = {"PermissionAsked": "of_turn", "QuestionAsked": "of_turn", "FileChange": "first_line"}
OPTIONAL = {"ToolCall": {"malformed"}}


def stream_schema() -> dict[str, Any]:
    """The schema of a line of output; that of a line of input is at `#/$defs/input`."""
    output = [
        SessionLine,
        MemoryLoadedLine,
        *(OWN_LINES.get(kind, kind) for kind in get_args(events.Event)),
        ResultLine,
    ]
    given = list(get_args(Input))
    _, definitions = msgspec.json.schema_components(
        [*output, *given], ref_template="#/$defs/{name}"
    )
    inputs = _reachable(given)
    for name, definition in definitions.items():
        properties = definition.get("properties", {})
        properties.pop(NOT_WRITTEN.get(name, ""), None)
        if "description" in definition:  # Python 3.13 removes the indentation itself
            definition["description"] = inspect.cleandoc(definition["description"])
        if name not in inputs:  # every field is written; further ones may be added
            definition["required"] = [
                field for field in properties if field not in OPTIONAL.get(name, ())
            ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": (
            "A line of `ouro -p --output stream-json`; `#/$defs/input` is a line of `--input"
            " stream-json`"
        ),
        "$ref": "#/$defs/output",
        "$defs": {
            "output": {"anyOf": [{"$ref": f"#/$defs/{kind.__name__}"} for kind in output]},
            "input": {"anyOf": [{"$ref": f"#/$defs/{kind.__name__}"} for kind in given]},
            **dict(sorted(definitions.items())),
        },
    }


def _reachable(kinds: list[type]) -> set[str]:
    return set(msgspec.json.schema_components(kinds)[1])


def text() -> str:
    return json.dumps(stream_schema(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
