"""Exported sessions are continued in Claude Code and Codex, if `BENCH_PEERS` names a folder with
these programs.
"""

import base64
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from fakes.stored_sessions import at

from benchmarks.programs import programs
from ouro.memory.backend import CompactionRecord, MessageRecord, SessionHeader
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Image, Message, Text, ToolCall, ToolReply, assistant, tool, user

PEERS = Path(os.environ.get("BENCH_PEERS", "benchmarks/peers")).absolute()
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SHOT = Image("image/png", PICTURE, "shot.png")
DIFF = "--- api.py\n+++ api.py\n@@ -1 +1 @@\n-hi\n+ho"
SAID = (
    user("Keep the parser fast."),
    assistant("It is fast."),
    user("Fix api.py.", context="Date: 2026-11-22"),
    Message(
        "assistant",
        (Text("Looking."), ToolCall("1", "read", {"path": "a.py"}), ToolCall("2", "shell", {})),
    ),
    tool(ToolReply("1", "read", "print('hi')"), ToolReply("2", "shell", "1 failed", failed=True)),
    assistant("", ToolCall("3", "edit", {"path": "api.py"})),
    tool(ToolReply("3", "edit", DIFF)),
    Message("user", (Text("And this picture?"), SHOT)),
    assistant("", ToolCall("4", "read", {"path": "shot.png"})),
    tool(ToolReply("4", "read", "8 by 8", images=(SHOT,))),
    assistant("A red dot."),
)
SUMMARY = CompactionRecord(20, at(2), (1, 2), (1,), "## Goal\nA fast parser.")
SENT = (
    "A fast parser.", "Keep the parser fast.", "Fix api.py.", "Looking.", "a.py", "print('hi')", "1 failed", DIFF,
    "And this picture?", base64.b64encode(PICTURE).decode(), "8 by 8", base64.b64encode(PICTURE).decode(),
    "A red dot.", "Go on.",
)  # fmt: skip


@pytest.mark.parametrize("model", ["anthropic/claude-sonnet-4-5", "openai/gpt-5"])
@pytest.mark.parametrize("agent", ["claude", "codex"])
async def test_the_other_program_sends_all_messages_calls_and_results(agent, model, tmp_path):
    with ExitStack() as servers:
        found = programs(tmp_path, servers, PEERS, agent, mcp=False)
        if not found:
            pytest.skip(f"{agent} is not installed in {PEERS}.")
        [program] = found
        environment = program.full_environment() | {"OURO_HOME": str(tmp_path / "ouro")}
        header = SessionHeader(
            "0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", str(program.work), model, at(0)
        )
        said = [
            MessageRecord(number, at(number), message) for number, message in enumerate(SAID, 1)
        ]
        await YamlFileMemoryStore(tmp_path / "ouro/sessions").import_session(
            header, [*said[:2], SUMMARY, *said[2:]]
        )

        def run(*command: str) -> str:
            done = subprocess.run(
                command,
                cwd=program.work,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        ouro = (
            sys.executable,
            "-m",
            "ouro",
            "sessions",
            "export",
            "latest",
            "--to",
            agent,
            "--json",
        )
        shown = json.loads(run(*ouro))["command"].split()
        shown[0] = program.headless[0]
        shown[1:1] = program.headless[1:]
        run(*shown, "Go on.")
        body = program.server.asked[0].body
        sent = list(_texts(body.get("messages") or body["input"]))
    place = 0
    for text in SENT:
        place = next(number for number in range(place, len(sent)) if text in sent[number])
    assert sum("It is fast." in text for text in sent) == 0
    assert sum("Keep the parser fast." in text for text in sent) == 1


def _texts(value):
    """All strings of a request, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
