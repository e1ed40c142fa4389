"""Calls as models really write them, read where they have one reading."""

import json

import pytest
from fakes.tool_benches import ShellBench

from ouro.messages import Message, Text, ToolCall
from ouro.safety import Workspace
from ouro.tools.edit import Edit, Write
from ouro.tools.files_seen import FilesSeen
from ouro.tools.glob import Glob
from ouro.tools.grep import Grep
from ouro.tools.odd_calls import example_call, read_arguments, read_calls
from ouro.tools.read import Read
from ouro.tools.todo import TodoPlan, TodoWrite

EDIT = {"old_text": "A", "new_text": "B"}


@pytest.fixture
def tools(tmp_path):
    workspace = Workspace(tmp_path)
    seen = FilesSeen(workspace)
    found = [Read(seen), Write(seen), Edit(seen), Glob(workspace), Grep(workspace, lambda _: False)]
    found.append(TodoWrite(TodoPlan()))
    return {tool.name: tool for tool in found}


def read(tools, name, arguments):
    call = (
        ToolCall("c", name, arguments)
        if isinstance(arguments, dict)
        else ToolCall("c", name, {}, arguments)
    )
    message = read_calls(Message("assistant", (Text("Now."), call)), tools)
    return [(found.name, dict(found.arguments)) for found in message.tool_calls]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ({"timeout": 120_000}, {"timeout_seconds": 120.0}),
        ({"timeout": 90}, {"timeout_seconds": 90}),
        ({"timeout_ms": 500}, {"timeout_seconds": 0.5}),
        ({"timeout_seconds": 5000}, {"timeout_seconds": 5000}),
        ({"run_in_background": True}, {"background": True}),
        ({"workdir": "src"}, {"cwd": "src"}),
        ({"directory": "src"}, {"cwd": "src"}),
        ({"description": "Say it"}, {}),
        ({"timeout": 5, "timeout_ms": 500}, {"timeout": 5, "timeout_ms": 500}),
    ],
)
def test_fields_of_the_shells_of_other_agents_are_read(tmp_path, arguments, meant):
    tools = {"shell": ShellBench(tmp_path).shell}
    assert read(tools, "Bash", {"command": "ls", **arguments}) == [
        ("shell", {"command": "ls", **meant})
    ]


def test_fields_of_the_task_tool_of_another_agent_are_read():
    text = {"type": "string"}
    schema = {"type": "object", "properties": {"task": text, "prompt": text, "agent": text}}
    theirs = {"description": "find it", "prompt": "Find it.", "subagent_type": "explore"}
    ours = {"task": "find it", "prompt": "Find it.", "agent": "explore"}
    assert read_arguments(theirs, schema) == ours


@pytest.mark.parametrize(
    ("name", "arguments", "meant"),
    [
        ("read", {"path": "a", "offset": None, "limit": None}, {"path": "a"}),
        (
            "read",
            {"path": "a", "offset": "5", "limit": 10.0},
            {"path": "a", "offset": 5, "limit": 10},
        ),
        ("read", {"file_path": "a"}, {"path": "a"}),
        ("read", {"filePath": "a", "explanation": "to see it"}, {"path": "a"}),
        ("read", {"arguments": {"path": "a"}}, {"path": "a"}),
        ("read", {"input": '{"path": "a"}'}, {"path": "a"}),
        ("read", '{}{"path": "a"}', {"path": "a"}),
        ("read", '"{\\"path\\": \\"a\\"}"', {"path": "a"}),
        ("read", '```json\n{"path": "a"}\n```', {"path": "a"}),
        ("read", '{"path": "a"}{"path": "a"}', {"path": "a"}),
        (
            "edit",
            {"path": "a", "edits": ['{"old_text": "A", "new_text": "B"}']},
            {"path": "a", "edits": [EDIT]},
        ),
        (
            "edit",
            {"path": "a", "edits": '[{"old_text": "A", "new_text": "B"}]'},
            {"path": "a", "edits": [EDIT]},
        ),
        ("edit", {"path": "a", "edits": EDIT}, {"path": "a", "edits": [EDIT]}),
        (
            "edit",
            {"file_path": "a", "old_string": "A", "new_string": "B"},
            {"path": "a", "edits": [EDIT]},
        ),
        (
            "edit",
            {"path": "a", "edits": [{"oldText": "A", "newText": "B"}]},
            {"path": "a", "edits": [EDIT]},
        ),
        ("write", {"path": "a", "content": 5}, {"path": "a", "content": "5"}),
        ("write", {"path": "a", "content": "[1]"}, {"path": "a", "content": "[1]"}),
        ("grep", {"pattern": "x", "file_path": "src"}, {"pattern": "x", "path": "src"}),
        (
            "todo",
            {"todos": [{"content": "look", "status": "completed", "priority": "high"}]},
            {"todos": [{"text": "look", "state": "done", "priority": "high"}]},
        ),
        (
            "todo",
            {"todos": '[{"content": "x", "status": "in-progress"}]'},
            {"todos": [{"text": "x", "state": "in_progress"}]},
        ),
        (
            "todo",
            {"items": [{"title": "x", "done": True}, {"title": "y", "done": False}]},
            {"todos": [{"text": "x", "state": "done"}, {"text": "y", "state": "pending"}]},
        ),
        (
            "todo",
            '[{"text": "x", "state": "pending"}]',
            {"todos": [{"text": "x", "state": "pending"}]},
        ),
    ],
)
def test_arguments_with_one_reading_are_read(tools, name, arguments, meant):
    assert read(tools, name, arguments) == [(name, meant)]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Read", "read"),
        ("functions.read", "read"),
        ("default_api:read", "read"),
        ("read_file", "read"),
        ("ReadFile", "read"),
        ("read_tool", "read"),
        ("read<|channel|>commentary", "read"),
        (" read ", "read"),
        ("view", "read"),
    ],
)
def test_names_with_one_reading_are_read(tools, name, meant):
    assert read(tools, name, {"path": "a"}) == [(meant, {"path": "a"})]


@pytest.mark.parametrize("name", ["Bash", "execute_bash", "run_in_terminal", "container.exec"])
def test_names_of_the_shell_elsewhere_are_read(tools, name):
    tools["shell"] = tools["read"]  # only its name counts here
    assert read(tools, name, {"path": "a"}) == [("shell", {"path": "a"})]


def test_two_calls_in_one_slot_are_two_calls(tools):
    two = read(tools, "read", '{"path": "a"}{"path": "b"}')
    assert two == [("read", {"path": "a"}), ("read", {"path": "b"})]
    assert read(tools, "readglob", '{"path": "a"}{"pattern": "*"}') == [
        ("read", {"path": "a"}),
        ("glob", {"pattern": "*"}),
    ]
    message = Message("assistant", (ToolCall("c", "read", {}, '{"path": "a"}{"path": "b"}'),))
    ids = [call.id for call in read_calls(message, tools).tool_calls]
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read", {}),
        ("read", {"offset": "soon", "path": "a"}),
        ("read", {"file": "a", "filename": "b"}),
        ("remove_everything", {"path": "a"}),
        ("edit", {"path": "a", "edits": "replace A"}),
        ("read", '{"path": "a'),
        ("read", '{"path": "a"} and then'),
    ],
)
def test_a_call_with_no_single_reading_stays(tools, name, arguments):
    given = arguments if isinstance(arguments, dict) else {}
    assert read(tools, name, arguments) == [(name, given)]


def test_an_ordinary_answer_is_the_same_object(tools):
    message = Message("assistant", (Text("x"), ToolCall("c", "read", {"path": "a", "offset": 2})))
    assert read_calls(message, tools) is message


def test_an_error_shows_a_right_call(tools):
    assert example_call(tools["edit"]) == ('{"path":"…","edits":[{"old_text":"…","new_text":"…"}]}')


MULTILINE = {"old_text": "def f():\n\treturn 1", "new_text": "def f():\n\treturn 2"}
RAW = json.dumps([MULTILINE]).replace("\\n", "\n").replace("\\t", "\t")
REPORTED = {
    "earendil-works/pi#8962: a list of texts": ("edit", [json.dumps(EDIT)], [EDIT]),
    "earendil-works/pi#3370: a text": ("edit", json.dumps([EDIT]), [EDIT]),
    "earendil-works/pi#7904: a text with one object": ("edit", json.dumps(EDIT), [EDIT]),
    "earendil-works/pi#8521: lines that are not escaped": ("edit", RAW, [MULTILINE]),
    "openclaw/openclaw#100811: the field again": ("edit", json.dumps({"edits": [EDIT]}), [EDIT]),
    "the field again, as an object": ("edit", {"edits": [EDIT]}, [EDIT]),
    "a text in a text": ("edit", json.dumps(json.dumps([EDIT])), [EDIT]),
    "a list in a list": ("edit", [[EDIT]], [EDIT]),
    "in a fence": ("edit", f"```json\n{json.dumps([EDIT])}\n```", [EDIT]),
}
OPTIONAL = {
    "mastra-ai/mastra#17655": {"offset": None, "limit": None},
    "null as text": {"offset": "null", "limit": "null"},
    "None as text": {"offset": "None"},
    "undefined as text": {"limit": "undefined"},
    "an empty text": {"offset": "", "limit": " "},
    "superzent#27, a null of an unknown field": {"mode": None},
}
JOINED = {
    "a brace too many": '{"path": "a"}}',
    "a closing tag": '{"path": "a"}</tool_call>',
    "a list of one": '[{"path": "a"}]',
    "a null before it": 'null{"path": "a"}',
}


@pytest.mark.parametrize("name", REPORTED)
def test_edits_that_were_reported_are_read(tools, name):
    tool, edits, meant = REPORTED[name]
    assert read(tools, tool, {"path": "a", "edits": edits}) == [
        (tool, {"path": "a", "edits": meant})
    ]


@pytest.mark.parametrize("name", OPTIONAL)
def test_an_optional_field_without_a_value_is_left_out(tools, name):
    assert read(tools, "read", {"path": "a", **OPTIONAL[name]}) == [("read", {"path": "a"})]


@pytest.mark.parametrize("name", JOINED)
def test_what_stands_around_the_arguments_is_left_out(tools, name):
    assert read(tools, "read", JOINED[name]) == [("read", {"path": "a"})]


def test_a_text_field_keeps_the_word_null(tools):
    given = {"path": "null", "content": "undefined"}
    assert read(tools, "write", given) == [("write", given)]
    assert read(tools, "grep", {"pattern": "None"}) == [("grep", {"pattern": "None"})]
