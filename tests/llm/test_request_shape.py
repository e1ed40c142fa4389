"""Schemas of tools in the form that every server understands."""

import pytest

from ouro.llm.request_shape import shape_request
from ouro.llm.server_facts import ServerFacts

ITEM = {"type": "object", "properties": {"name": {"type": "string", "minLength": 1}}}
PLAIN_ITEM = {"type": "object", "properties": {"name": {"type": "string"}}}


def simplified(field, **definitions):
    """The simple schema of a field of a tool."""
    schema = {"type": "object", "properties": {"field": field}, **definitions}
    tools = [{"type": "function", "function": {"name": "t", "parameters": schema}}]
    body = shape_request({"tools": tools}, ServerFacts({"tool_schema": "simple"}))
    return body["tools"][0]["function"]["parameters"]["properties"]["field"]


@pytest.mark.parametrize(
    ("field", "simple"),
    [
        ({"$ref": "#/$defs/Item"}, PLAIN_ITEM),
        ({"anyOf": [{"$ref": "#/$defs/Item"}, {"type": "null"}]}, PLAIN_ITEM),
        (
            {"allOf": [{"$ref": "#/$defs/Item"}], "description": "It."},
            {**PLAIN_ITEM, "description": "It."},
        ),
        ({"items": {"$ref": "#/properties/other"}}, {"type": "array", "items": PLAIN_ITEM}),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}),
        ({"const": "x"}, {"enum": ["x"], "type": "string"}),
        ({}, {"type": "string"}),
        ({"$ref": "#/nowhere"}, {"type": "string"}),
        ({"type": ["null", "integer"], "exclusiveMinimum": 0}, {"type": "integer"}),
    ],
)
def test_a_simple_schema_keeps_what_its_references_say(field, simple):
    """google-gemini/gemini-cli#13326, DEEIX-AI/DEEIX-Chat#546: Gemini takes no `$ref`, and no array
    without `items`.
    """
    schema = {
        "type": "object",
        "properties": {"field": field, "other": ITEM},
        "$defs": {"Item": ITEM},
    }
    tools = [{"type": "function", "function": {"name": "t", "parameters": schema}}]
    body = shape_request({"tools": tools}, ServerFacts({"tool_schema": "simple"}))
    assert body["tools"][0]["function"]["parameters"]["properties"]["field"] == simple


def test_a_definition_that_contains_itself_ends():
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/Node"}, "a": {"type": "string"}},
    }
    simple = simplified({"$ref": "#/$defs/Node"}, **{"$defs": {"Node": node}})
    assert simple["properties"]["next"]["properties"]["a"] == {"type": "string"}
    assert simplified({"$ref": "#/$defs/A"}, **{"$defs": {"A": {"$ref": "#/$defs/A"}}}) == {
        "type": "string"
    }
