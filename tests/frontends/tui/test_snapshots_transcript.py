"""Snapshots of the transcript, one for each state."""

import pytest
from fakes.screens import TranscriptApp

from ouro.display import CommandOutput, Diff, Display, FileChange, Plain
from ouro.events import (
    Notice,
    PermissionAsked,
    Prompted,
    Replied,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolProgress,
    ToolRunning,
    ToolStarted,
    TurnFinished,
)
from ouro.messages import ToolCall, assistant

SIZE = (100, 30)
MARKDOWN = """The test fails because **`hello`** drops the name. See [the docs](https://example.com/docs).

1. read `api.py`
2. fix it
   - and run the tests

```python
def hello(name: str) -> str:
    return f"hello {name}"  # the name was lost
```

| case | before | after |
|------|-------:|------:|
| 日本 | 0 | 1 |
"""
BEFORE = "import os\n\n\ndef hello(name):\n    return 'hello ' + nam\n\n\ndef bye():\n    pass\n"
AFTER = BEFORE.replace("'hello ' + nam", "f'hello {name}'").replace("import os\n\n\n", "")


def call(call_id, name="shell"):
    return ToolCall(call_id, name, {})


TURN = (
    Prompted("Fix the failing test in api.py"),
    ThinkingDelta("The user wants the test fixed. " * 12),
    Replied(assistant("")),
    ToolStarted(call("1", "read"), "read api.py"),
    ToolFinished("1", "read", Display("9 lines", Plain(BEFORE, "python")), False, 0.02),
)
EDIT = (
    ToolStarted(call("2", "edit"), "edit api.py"),
    ToolFinished(
        "2", "edit", Display("2 edits", Diff((FileChange("api.py", BEFORE, AFTER),))), False, 0.1
    ),
)
STATES = {
    "streaming": (*TURN, TextDelta(MARKDOWN[:300])),
    "answered": (*TURN, TextDelta(MARKDOWN), Replied(assistant(MARKDOWN))),
    "tool_running": (
        *TURN,
        ToolStarted(call("3"), "shell pytest -q"),
        ToolRunning("3"),
        ToolProgress("3", "".join(f"tests/test_{n}.py ok\n" for n in range(9))),
    ),
    "waiting": (
        *TURN,
        ToolStarted(call("3"), "shell git push"),
        PermissionAsked("q", call("3"), "", Display(""), "", ""),
    ),
    "diff": (*TURN, *EDIT),
    "error": (
        *TURN,
        ToolStarted(call("3"), "shell pytest -q"),
        ToolFinished(
            "3",
            "shell",
            Display("exit code 1", CommandOutput("pytest -q", "E  NameError: nam\n1 failed\n", 1)),
            True,
            12.0,
        ),
        Notice("The session could not be saved; it is kept and tried again.", "warning"),
        TurnFinished("failed", "The model does not answer."),
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_state(snap_compare, state):
    assert snap_compare(TranscriptApp(*STATES[state]), terminal_size=SIZE)


def test_wide_diff(snap_compare):
    assert snap_compare(TranscriptApp(*EDIT), terminal_size=(170, 14))


def test_light_theme(snap_compare):
    assert snap_compare(
        TranscriptApp(*STATES["answered"], *EDIT, theme="textual-light"), terminal_size=(100, 45)
    )


def test_narrow(snap_compare):
    assert snap_compare(TranscriptApp(*STATES["answered"], *EDIT), terminal_size=(40, 10))
