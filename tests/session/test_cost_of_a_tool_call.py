"""What a tool call costs and that a long session makes it no dearer, in counts that do not depend on the machine."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

import ouro
from ouro.assemble import Options, opener
from ouro.llm import ScriptedModel, call
from ouro.llm.openai import OpenAIFormat
from ouro.session import OpenRequest

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
    _counts["functions called"] += event == "call" and frame.f_code.co_filename.startswith(_OURO)


class CountingModel(ScriptedModel):
    """Formats each request as for OpenAI, and notes what was counted since the one before."""

    def __init__(self, script):
        super().__init__(script)
        self.windows = []
        self._format = OpenAIFormat(self.spec)
        format_one = self._format._message

        def counted(message):
            _counts["messages formatted"] += 1
            return format_one(message)

        self._format._message = counted

    def stream(self, messages, tools=()):
        self._format.messages(messages)
        self.windows.append(Counter(_counts))
        _counts.clear()
        return super().stream(messages, tools)


@pytest.fixture
async def windows(repository):
    """The counts between two requests, one for each of the tool calls."""
    global _is_counting
    sys.addaudithook(_audit)  # cannot be removed
    model = CountingModel([*(call("shell", command=f"true {number}") for number in range(CALLS)), "Done."])
    session = await opener(Options(repository, ready_model=model, mode="auto"))(OpenRequest())
    try:
        _counts.clear()
        _is_counting = True
        sys.setprofile(_profile)
        async for _ in session.send("go"):
            pass
    finally:
        sys.setprofile(None)
        _is_counting = False
        await session.close()
    return model.windows[1:]


LIMITS = {"files opened": 15, "folders listed": 1, "processes": 1, "messages formatted": 6, "functions called": 2_000}
"""Twelve files, no folder, one process, five messages and 1,450 functions of ouro today."""


async def test_a_tool_call_costs_what_it_did_and_the_last_no_more_than_the_first(windows):
    early, late = (
        {name: median(window[name] for window in part) for name in LIMITS} for part in (windows[5:15], windows[30:])
    )
    assert {name: count for name, count in late.items() if count > LIMITS[name]} == {}
    # Fifty messages more: less than one call of a function for each of them.
    assert late["functions called"] - early["functions called"] < 40
