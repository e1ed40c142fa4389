"""The Python API: answers of a requested type."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Annotated

import msgspec
import pydantic
import pytest
from fakes.model_server import failure

from ouro.errors import (
    AuthenticationFailed,
    LimitReached,
    ModelError,
    UsageError,
)
from ouro.frontends.headless.answer_schema import AnswerMisfit
from ouro.llm import ScriptedModel, call


@dataclass
class Point:
    x: int
    y: int


class Size(msgspec.Struct):
    width: Annotated[int, msgspec.Meta(ge=0)]


class Colour(pydantic.BaseModel):
    name: str

    @pydantic.field_validator("name")
    @classmethod
    def known(cls, name):
        if name != "red":
            raise ValueError(f"{name} is no colour")
        return name


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (Size, '{"width": 3}', Size(3)),
        (Colour, '{"name": "red"}', Colour(name="red")),
        (list[str], '["a"]', ["a"]),
        (int, "7", 7),
    ],
)
def test_ask_returns_a_value_of_the_requested_type(agent_of, kind, text, value):
    with agent_of(text) as agent:
        assert agent.ask("which?", kind) == value


def test_model_gets_the_type_validation_error_and_retries(agent_of):
    model = ScriptedModel(['{"name": "rod"}', '{"name": "red"}'])
    with agent_of(model) as agent:
        assert agent.ask("which?", Colour).name == "red"
    assert "rod is no colour" in model.requests[1].messages[-1].text
    assert "rod is no colour" in str(model.requests[1].messages)


def test_an_answer_that_never_matches_is_an_error(agent_of):
    with (
        agent_of("-1", '{"width": -1}', "no") as agent,
        pytest.raises(AnswerMisfit, match="not JSON"),
    ):
        agent.ask("how wide?", Size)
    with (
        agent_of("a", "b", "c") as agent,
        pytest.raises(AnswerMisfit, match=r"does not match list\[int\]:"),
    ):
        agent.ask("how many?", list[int])
    with agent_of() as agent, pytest.raises(UsageError, match="cannot be the type of an answer"):
        agent.ask("what?", threading.Thread)


def test_each_cause_of_a_missing_answer_raises_its_own_error(agent_of, project, model_server):
    with (
        agent_of(call("glob", pattern="*"), max_turns=1) as agent,
        pytest.raises(LimitReached, match="Stopped after 1 model call"),
    ):
        agent.ask("how many?", int)
    for status, kind in ((401, AuthenticationFailed), (400, ModelError)):
        model_server.script([failure(status, "no")])
        with agent_of(model="test-model") as agent, pytest.raises(kind):
            agent.ask("how many?", int)
