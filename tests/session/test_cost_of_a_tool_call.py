"""The cost of a tool call, which must not grow in a long session, in counts that do not depend on
the machine.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from statistics import median

import msgspec
import pytest

import ouro
from ouro.assemble import Options, opener
from ouro.llm import ScriptedModel, call
from ouro.llm.openai import OpenAIFormat
from ouro.session import OpenRequest
from ouro.utils.ouro_paths import get_home

CALLS = 40
_counts = Counter()
_is_counting = False
_OURO = f"{Path(ouro.__file__).parent}/"


def _audit(event, arguments):
    if not _is_counting:
        return
    if event == "open" and not str(arguments[0]).startswith("/proc/"):
        _counts["files opened"] += 1
    elif event in {"os.listdir", "os.scandir"} and str(arguments[0]) != "/proc":
        _counts["folders listed"] += 1
    elif event == "subprocess.Popen":
        _counts["processes"] += 1


def _profile(frame, event, _argument):
    if _is_counting and event == "call" and frame.f_code.co_filename.startswith(_OURO):
        is_main = threading.current_thread() is threading.main_thread()
        _counts["functions called" if is_main else "functions called in threads"] += 1


class CountingModel(ScriptedModel):
    """Formats each request as for OpenAI, and records the counts since the previous request."""

    def __init__(self, script):
        super().__init__(script)
        self.windows = []
        self.blocks = []
        """Blocks of memory that Python has allocated, at each request."""
        self._format = OpenAIFormat(self.spec)
        format_one = self._format._format_message

        def counted(message):
            formatted = list(format_one(message))
            _counts["messages formatted"] += 1
            _counts["bytes formatted"] += len(msgspec.json.encode(formatted))
            return formatted

        self._format._format_message = counted

    def stream(self, messages, tools=()):
        self._format.messages(messages)
        self.windows.append(Counter(_counts))
        self.blocks.append(sys.getallocatedblocks())
        _counts.clear()
        return super().stream(messages, tools)


async def _counted_to_thread(*arguments, _to_thread=asyncio.to_thread, **named):
    if _is_counting:
        _counts["waits for a thread"] += 1
    return await _to_thread(*arguments, **named)


@pytest.fixture
async def model(repository, monkeypatch):
    """A model with one request for each tool call, one after them, and one in a second turn."""
    global _is_counting
    sys.addaudithook(_audit)  # a hook cannot be removed
    model = CountingModel(
        [*(call("shell", command=f"true {number}") for number in range(CALLS)), "Done.", "Yes."]
    )
    # Old checkpoints are deleted once a day: not in these turns.
    cleaned = get_home() / "checkpoints" / "cleaned"
    cleaned.parent.mkdir(mode=0o700, parents=True)
    cleaned.touch()
    monkeypatch.setattr(asyncio, "to_thread", _counted_to_thread)
    threading.setprofile(_profile)
    session = await opener(Options(repository, {"permissions.mode": "auto"}, ready_model=model))(
        OpenRequest()
    )
    try:
        _counts.clear()
        _is_counting = True
        sys.setprofile(_profile)
        for text in ("go", "Done?"):
            async for _ in session.send(text):
                pass
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        _is_counting = False
        await session.close()
    return model


LIMITS = {"files opened": 26, "folders listed": 4, "processes": 1, "messages formatted": 5, "bytes formatted": 700,
          "functions called": 1_760, "functions called in threads": 1_500, "waits for a thread": 8}  # fmt: skip
"""Currently 24 files, three folders, one process, four messages of 488 bytes, 1,637 and 1,163
functions: the secret scanner asks for each of its rules whether it may apply, and the judge follows what
a line fetches from the network. Places of keys are looked for by listing their folders: each is one file opened.
Each socket of the machine is some more functions in threads.
"""
TURN = {
    "files opened": 80,
    "folders listed": 16,
    "processes": 9,
    "bytes formatted": 1_500,
    "functions called": 1_500,
}
"""From the last answer to the request of the next turn, with the work after a turn: 50, 6, 5, 400
and 1,006 now.
"""
BLOCKS = 300
"""Blocks of memory that Python keeps for a call and its two messages: 200 now."""


async def test_tool_call_cost_does_not_grow_with_the_session(model):
    windows = model.windows[1:-1]
    early, late = (
        {name: median(window[name] for window in part) for name in LIMITS}
        for part in (windows[5:15], windows[30:])
    )
    assert {name: count for name, count in late.items() if count > LIMITS[name]} == {}
    # Fifty messages later: less than one function call more for each message.
    for name in ("functions called", "functions called in threads"):
        assert late[name] - early[name] < 40, name
    assert {
        name: count for name, count in model.windows[-1].items() if count > TURN.get(name, count)
    } == {}
    kept = (model.blocks[CALLS] - model.blocks[CALLS // 2]) / (CALLS // 2)
    assert kept < BLOCKS


PROGRAM = """
import asyncio, sys
from pathlib import Path
from ouro.assemble import Options, opener
from ouro.llm import ScriptedModel, call
from ouro.session import OpenRequest

async def run(calls):
    model = ScriptedModel([*(call("shell", command=f"true {number}") for number in range(calls)), "Done."])
    session = await opener(Options(Path.cwd(), {"permissions.mode": "auto"}, ready_model=model))(OpenRequest())
    async for _ in session.send("go"):
        pass
    await session.close()

asyncio.run(run(int(sys.argv[1])))
"""
SYSTEM_CALLS = "%%stat,mkdir,epoll_wait,sendto,clone3,clone,vfork"
"""Calls of stat, event loop turns, switches to threads, processes; reads of /proc depend on other
processes.
"""


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_system_calls_per_tool_call_are_limited(repository, home, tmp_path):
    """142 calls of the main thread now, in a folder with a shorter path; 517 in an earlier version."""
    totals = []
    for calls in (2, 12):
        trace = [
            "strace",
            "-c",
            "-U",
            "calls",
            "-o",
            tmp_path / "out",
            "-e",
            f"trace={SYSTEM_CALLS}",
        ]
        subprocess.run(
            [*trace, sys.executable, "-c", PROGRAM, str(calls)], cwd=repository, check=True
        )
        totals.append(
            sum(
                int(number) for number in (tmp_path / "out").read_text().split() if number.isdigit()
            )
            // 2
        )
    assert (totals[1] - totals[0]) / 10 < 230
