"""docs/stream-json.schema.json: it describes each line that is written and read."""

from __future__ import annotations

import copy
import io
import json
import re
from pathlib import Path

import jsonschema
import pytest

from ouro.assemble import opener
from ouro.errors import UsageError
from ouro.frontends.headless.headless import HeadlessOptions, Streams, run_headless
from ouro.frontends.headless.input import parse_input
from ouro.frontends.headless.output import event_to_json, json_line
from ouro.llm import ScriptedModel, call
from ouro.session import OpenRequest
from ouro.session_options import Options
from scripts import stream_schema

from .test_event_json import CASES

PAGE = (Path(__file__).parents[2] / "docs/headless.md").read_text()
SCHEMA = json.loads(stream_schema.FILE.read_text())


def strict(schema):
    """The schema without additional properties: it fails for a field that it does not name."""
    schema = copy.deepcopy(schema)
    for definition in schema["$defs"].values():
        if definition.get("type") == "object":
            definition["additionalProperties"] = False
    return jsonschema.Draft202012Validator(schema)


OUTPUT = strict(SCHEMA)
INPUT = strict({"$ref": "#/$defs/input", "$defs": SCHEMA["$defs"]})


def test_schema_file_is_generated_from_the_program():
    assert stream_schema.FILE.read_text() == stream_schema.text(), (
        "run `python -m scripts.stream_schema`"
    )


@pytest.mark.parametrize(
    "event", [event for event, _ in CASES], ids=[data["type"] for _, data in CASES]
)
def test_each_event_is_valid(event):
    line = json.loads(json_line(event_to_json(event)))
    OUTPUT.validate(line)
    for field in line:
        with pytest.raises(jsonschema.ValidationError):
            OUTPUT.validate({name: value for name, value in line.items() if name != field})


def test_each_documented_line_is_valid():
    given, written = PAGE.partition("## Events")[::2]
    _, _, given = given.partition("## Standard input")
    inputs, lines = (
        [json.loads(line) for line in re.findall(r"^\{.*\}$", text, re.MULTILINE)]
        for text in (given, written)
    )
    assert (len(inputs), len(lines)) == (5, 25)
    for line in lines:
        OUTPUT.validate(line)
    for line in inputs:
        INPUT.validate(line)


@pytest.mark.parametrize(
    "line",
    [
        {
            "type": "user",
            "text": "x",
            "images": [{"media_type": "image/png", "data": "aGk="}],
            "queue": True,
        },
        {"type": "user"},
        {"type": "user", "text": "x", "colour": "red"},
        {"type": "permission", "question_id": "q", "choice": "perhaps"},
        {"type": "permission", "question_id": "q", "choice": "always"},
        {"type": "interrupt"},
        {"type": "unknown"},
    ],
)
def test_schema_accepts_exactly_the_input_that_is_parsed(line):
    try:
        parse_input(json.dumps(line).encode())
    except UsageError:
        assert not INPUT.is_valid(line)
    else:
        INPUT.validate(line)


async def test_each_line_of_a_run_is_valid(repository):
    """A run with long-term memory, a tool, a refusal and an answer with a schema."""
    schema = repository / "schema.json"
    schema.write_text('{"type": "integer"}')
    model = ScriptedModel([call("read", path="api.py"), call("write", path="x", content="y"), "7"])
    options = HeadlessOptions("How many?", output="stream-json", schema=str(schema))
    out = io.StringIO()
    await run_headless(
        opener(Options(repository, ready_model=model)),
        OpenRequest(),
        options,
        Streams(None, out, None),
    )
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    for line in lines:
        OUTPUT.validate(line)
    assert {"session", "memory_loaded", "permission_asked", "result"} <= {
        line["type"] for line in lines
    }
