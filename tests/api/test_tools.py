"""The Python API: functions of a program as tools."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ouro import tool
from ouro.errors import (
    UsageError,
)
from ouro.events import (
    ToolFinished,
)
from ouro.llm import ScriptedModel, call, calls


@tool(writes="path", name="stamp")
def stamp_file(path: str, words: list[str]) -> None:
    """Write words into a file."""
    Path(path).write_text(" ".join(words))


@tool
async def fail(code: int) -> dict[str, int]:
    """Fail, unless the code is 0."""
    if code:
        raise LookupError(f"no such code: {code}")
    return {"code": code}


def results_of(model):
    return [
        part.text
        for message in model.requests[-1].messages
        if message.role == "tool"
        for part in message.parts
    ]


def test_a_tool_of_a_file_follows_mode_and_rules(agent_of, repository, tmp_path):
    script = [call("stamp", path="a.txt", words=["x"]), "Done."]
    for options, outcome in (
        ({"mode": "plan"}, "Plan mode is on"),
        ({}, "neither by a rule"),
        ({"mode": "edit"}, "Done."),
    ):
        model = ScriptedModel(script)
        with agent_of(model, tools=[stamp_file], **options) as agent:
            agent.run("go")
        assert outcome in results_of(model)[0]
    assert (repository / "a.txt").read_text() == "x"
    stamp_file(str(tmp_path / "b.txt"), ["it", "stays", "a", "function"])


def test_a_tool_that_asks_is_refused_in_every_mode_without_a_callback(agent_of):
    called = []

    @tool(asks=True)
    def pay(cents: int) -> None:
        """Pay."""
        called.append(cents)

    model = ScriptedModel([call("pay", cents=5), "Done."])
    with agent_of(model, tools=[pay], mode="auto", allow=["pay"]) as agent:
        agent.run("go")
    assert "neither by a rule" in results_of(model)[0]
    with agent_of(
        call("pay", cents=7), "Done.", tools=[pay], on_permission=lambda _asked: True
    ) as agent:
        agent.run("go")
    assert called == [7]


def test_model_gets_the_return_value_or_the_exception_of_a_tool(agent_of):
    model = ScriptedModel(
        [calls(call("fail", code=3), call("fail", code=0), call("fail", code="x")), "Done."]
    )
    with agent_of(model, tools=[fail]) as agent:
        failed = [event.failed for event in agent.send("go") if isinstance(event, ToolFinished)]
    assert results_of(model)[:2] == ["fail failed: LookupError: no such code: 3", '{"code":0}']
    assert "Expected `int`" in results_of(model)[2]
    assert sorted(failed) == [False, True, True]
    [spec] = [spec for spec in model.requests[0].tools if spec.name == "fail"]
    assert (spec.description, spec.parameters["required"]) == (
        "Fail, unless the code is 0.",
        ["code"],
    )


def test_invalid_tools_are_refused_when_they_are_defined(agent_of):
    def no_hint(path):
        """Do it."""

    def no_words(path: str):
        pass

    def no_schema(path: threading.Thread):
        """Do it."""

    def many(*paths: str):
        """Do it."""

    for function, message in ((no_hint, "no type hint"), (no_words, "no docstring"),
                              (no_schema, "no JSON schema: type .*Thread'> is not"), (many, r"\*paths")):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            tool(function)
    with pytest.raises(UsageError, match="no argument `file`"):
        tool(reads="file")(stamp_file.function)
    with pytest.raises(UsageError, match=r"no_hint.* is not a tool"):
        agent_of(tools=[no_hint]).open()
    with pytest.raises(UsageError, match="two tools with the name `read`"):
        agent_of(tools=[tool(name="read")(stamp_file.function)]).open()
