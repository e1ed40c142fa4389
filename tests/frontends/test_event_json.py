import json
import re
from pathlib import Path
from typing import get_args

import pytest

from ouro.display import (
    CommandOutput,
    Diff,
    Display,
    FileChange,
    Picture,
    Plain,
    Question,
    Todo,
    Todos,
)
from ouro.events import (
    Compacted,
    Compacting,
    CoreChanged,
    Event,
    NoteKept,
    NotesRecalled,
    Notice,
    PermissionAsked,
    Prompted,
    QuestionAsked,
    QuestionClosed,
    RecalledNote,
    Replied,
    Retrying,
    SubagentProgress,
    TextDelta,
    ThinkingDelta,
    Titled,
    TodosChanged,
    ToolFinished,
    ToolProgress,
    ToolRunning,
    ToolStarted,
    TurnFinished,
    UsageUpdated,
)
from ouro.frontends.headless.output import event_to_json, json_line
from ouro.messages import Image, Message, Text, Thinking, ToolCall, Usage

CALL = ToolCall("call_1", "edit", {"path": "api.py"})
CALL_JSON = {"id": "call_1", "name": "edit", "arguments": {"path": "api.py"}}
USAGE = Usage(input=120, cached=100, cache_written=5, output=8, cost=0.002)
USAGE_JSON = {"input": 120, "cached": 100, "cache_written": 5, "output": 8, "cost": 0.002}
CHANGE = Diff((FileChange("api.py", "a\n", "b\n"),))
CHANGE_JSON = {
    "kind": "diff",
    "changes": [{"path": "api.py", "before": "a\n", "after": "b\n", "moved_to": ""}],
}

CASES = [
    (
        Prompted("hi", (Image("image/png", b"1234", "shot.png"),)),
        {
            "type": "prompted",
            "text": "hi",
            "images": [{"name": "shot.png", "media_type": "image/png", "bytes": 4}],
        },
    ),
    (TextDelta("It "), {"type": "text_delta", "text": "It "}),
    (ThinkingDelta("Hm"), {"type": "thinking_delta", "text": "Hm"}),
    (
        Replied(
            Message("assistant", (Thinking("Hm", "seal"), Text("It is."), CALL), USAGE, "fake/one")
        ),
        {
            "type": "replied",
            "text": "It is.",
            "thinking": "Hm",
            "calls": [CALL_JSON],
            "usage": USAGE_JSON,
            "model": "fake/one",
            "cut": False,
        },
    ),
    (
        ToolStarted(CALL, "edit api.py"),
        {"type": "tool_started", "call": CALL_JSON, "title": "edit api.py"},
    ),
    (ToolRunning("call_1"), {"type": "tool_running", "call_id": "call_1"}),
    (
        ToolProgress("call_1", "ok\n"),
        {"type": "tool_progress", "call_id": "call_1", "text": "ok\n"},
    ),
    (
        ToolFinished("call_1", "edit", Display("+1 -1", CHANGE), False, 0.12345),
        {
            "type": "tool_finished",
            "call_id": "call_1",
            "name": "edit",
            "display": {"summary": "+1 -1", "body": CHANGE_JSON},
            "failed": False,
            "seconds": 0.123,
        },
    ),
    (
        PermissionAsked(
            "q1", CALL, "edit api.py", Display("edit", CHANGE), "it changes a file", "edit(api.py)"
        ),
        {
            "type": "permission_asked",
            "question_id": "q1",
            "call": CALL_JSON,
            "title": "edit api.py",
            "display": {"summary": "edit", "body": CHANGE_JSON},
            "reason": "it changes a file",
            "rule": "edit(api.py)",
            "edits": False,
        },
    ),
    (
        QuestionAsked("q2", Question("Which?", ("a", "b"))),
        {
            "type": "question_asked",
            "question_id": "q2",
            "question": {"text": "Which?", "choices": ["a", "b"], "several": False, "details": ""},
        },
    ),
    (QuestionClosed("q2"), {"type": "question_closed", "question_id": "q2"}),
    (
        TodosChanged((Todo("look", "done"),)),
        {"type": "todos_changed", "todos": [{"text": "look", "state": "done"}]},
    ),
    (
        Retrying("Overloaded.", 2, 1.5, "fake/one"),
        {
            "type": "retrying",
            "reason": "Overloaded.",
            "attempt": 2,
            "wait": 1.5,
            "model": "fake/one",
            "max_waited": 0.0,
        },
    ),
    (
        UsageUpdated(USAGE, 1200, 128_000),
        {"type": "usage_updated", "session": USAGE_JSON, "context": 1200, "window": 128_000},
    ),
    (Compacting(800, 2, 3), {"type": "compacting", "written": 800, "part": 2, "parts": 3}),
    (
        Compacted(80_000, 12_000, 40, 3, 0, "We mended it.", USAGE),
        {
            "type": "compacted",
            "before": 80_000,
            "after": 12_000,
            "covered": 40,
            "kept": 3,
            "dropped": 0,
            "summary": "We mended it.",
            "usage": USAGE_JSON,
        },
    ),
    (Titled("Mend the import"), {"type": "titled", "title": "Mend the import"}),
    (
        NotesRecalled(
            (RecalledNote("mem_1", "Use uv.", "loaded", "names uv", "repo", 0.8, 12, 3),),
            "local",
            4.26,
        ),
        {
            "type": "notes_recalled",
            "items": [
                {
                    "id": "mem_1",
                    "text": "Use uv.",
                    "state": "loaded",
                    "reason": "names uv",
                    "scope": "repo",
                    "score": 0.8,
                    "tokens": 12,
                    "chain": 3,
                }
            ],
            "way": "local",
            "milliseconds": 4.3,
        },
    ),
    (
        NoteKept("add", "mem_1", "Use uv.", "repo", "project-conventions", "4be1c0d"),
        {
            "type": "note_kept",
            "operation": "add",
            "note_id": "mem_1",
            "text": "Use uv.",
            "scope": "repo",
            "category": "project-conventions",
            "undo": "4be1c0d",
            "session": "",
        },
    ),
    (
        CoreChanged(
            "user",
            "agent",
            "preferences.md: + Answer in German",
            Display("+1 -0", CHANGE),
            "4be1c0d",
        ),
        {
            "type": "core_changed",
            "scope": "user",
            "origin": "agent",
            "summary": "preferences.md: + Answer in German",
            "display": {"summary": "+1 -0", "body": CHANGE_JSON},
            "undo": "4be1c0d",
            "proposal": "",
        },
    ),
    (
        SubagentProgress(
            "call_1",
            "explore-1",
            "find parse",
            "running",
            "grep parse",
            3,
            Usage(900, 0, 0, 80, 0.01),
        ),
        {
            "type": "subagent_progress",
            "call_id": "call_1",
            "id": "explore-1",
            "task": "find parse",
            "state": "running",
            "activity": "grep parse",
            "calls": 3,
            "usage": {"input": 900, "cached": 0, "cache_written": 0, "output": 80, "cost": 0.01},
            "background": False,
        },
    ),
    (Notice("Careful.", "warning"), {"type": "said", "text": "Careful.", "level": "warning"}),
    (
        TurnFinished("limit", "Stopped."),
        {"type": "turn_finished", "outcome": "limit", "detail": "Stopped."},
    ),
]


@pytest.mark.parametrize(("event", "data"), CASES, ids=[data["type"] for _, data in CASES])
def test_event_has_its_documented_form(event, data):
    assert json.loads(json_line(event_to_json(event))) == data
    assert json.loads(json_line(data)) == data


def test_every_event_type_is_tested():
    assert {type(event) for event, _ in CASES} == set(get_args(Event))


def test_json_lines_match_the_previous_version():
    """`event_lines.jsonl` was written by a version that serialized each field by hand."""
    lines = (Path(__file__).with_name("event_lines.jsonl")).read_text().splitlines(keepends=True)
    assert [json_line(event_to_json(event)) for event, _ in CASES] == lines


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (Plain("x", "python"), {"kind": "plain", "text": "x", "language": "python"}),
        (
            CommandOutput("ls", "a", 0),
            {"kind": "command", "command": "ls", "output": "a", "exit_code": 0},
        ),
        (
            Picture("a.png", "image/png", 9),
            {"kind": "picture", "name": "a.png", "media_type": "image/png", "bytes": 9},
        ),
        (Todos((Todo("x"),)), {"kind": "todos", "items": [{"text": "x", "state": "pending"}]}),
    ],
)
def test_display_bodies_have_their_documented_form(body, data):
    event = ToolFinished("c", "t", Display("s", body), True, 1.0)
    assert json.loads(json_line(event_to_json(event)))["display"]["body"] == data


def test_malformed_arguments_are_included():
    event = ToolStarted(ToolCall("c", "read", {}, malformed="{"), "read")
    assert event_to_json(event)["call"]["malformed"] == "{"


def test_json_line_is_ascii_and_a_single_line():
    line = json_line({"text": "a\nb\u2028\x9b31m\ud800é"})
    assert line.isascii()
    assert line.count("\n") == 1
    assert line.endswith("\n")
    assert json.loads(line)["text"] == "a\nb\u2028\x9b31m\ud800é"


def test_every_type_is_in_the_documentation_with_an_example():
    page = (Path(__file__).parents[2] / "docs" / "headless.md").read_text()
    shown = set(re.findall(r'^\{"type": ?"(\w+)"', page, re.MULTILINE))
    assert {data["type"] for _, data in CASES} <= shown
