"""The Python API: permissions and questions that a program answers."""

from __future__ import annotations

import pytest

from ouro import AsyncAgent, Permit
from ouro.errors import (
    UsageError,
)
from ouro.events import (
    PermissionAsked,
    Prompted,
    QuestionAsked,
    TurnFinished,
)
from ouro.llm import ScriptedModel, call

WRITE = call("write", path="made.txt", content="x")


async def test_async_on_permission_callback_decides_a_tool_call(agent_of, repository):
    async def decide(asked):
        return asked.title == "write made.txt"

    async with agent_of(WRITE, "Done.", kind=AsyncAgent, on_permission=decide) as agent:
        kinds = [type(event) async for event in agent.send("go")]
    assert (repository / "made.txt").read_text() == "x"
    assert kinds[0] is Prompted
    assert PermissionAsked in kinds
    assert kinds[-1] is TurnFinished


def test_without_a_callback_permission_and_questions_are_refused(agent_of, repository):
    model = ScriptedModel([WRITE, call("ask_user", question="Which?"), "Done."])
    with agent_of(model) as agent:
        events = list(agent.send("go"))
    assert not (repository / "made.txt").exists()
    assert "neither by a rule nor by a callback" in model.requests[1].messages[-1].parts[0].text
    assert any(isinstance(event, QuestionAsked) for event in events)
    assert events[-1] == TurnFinished("answered")


def test_questions_of_the_agent_are_answered(agent_of):
    model = ScriptedModel([call("ask_user", question="Which?"), "Done."])
    with agent_of(model, on_question=lambda asked: f"{asked.question.text} B") as agent:
        agent.run("go")
    assert "Which? B" in model.requests[1].messages[-1].parts[0].text


def test_an_empty_answer_is_no_answer(agent_of):
    model = ScriptedModel([call("ask_user", question="Which?"), "Done."])
    with agent_of(model, on_question=lambda _asked: "") as agent:
        agent.run("go")
    with agent_of(
        without := ScriptedModel([call("ask_user", question="Which?"), "Done."])
    ) as agent:
        agent.run("go")
    answers = [each.requests[1].messages[-1].parts[0].text for each in (model, without)]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_permission": lambda _asked: Permit("never")}, "on_permission returned Permit"),
        ({"on_question": lambda _asked: 5}, "on_question returned 5"),
        ({"on_question": lambda _asked: None}, ""),
    ],
)
def test_wrong_return_value_of_a_callback_raises_usage_error(
    agent_of, repository, options, message
):
    with agent_of(WRITE, call("ask_user", question="Which?"), "Done.", **options) as agent:
        if message:
            with pytest.raises(UsageError, match=message):
                agent.run("go")
        else:
            assert agent.run("go").text == "Done."
    assert not (repository / "made.txt").exists()


def test_an_exception_of_a_callback_is_raised_and_ends_the_turn(agent_of, repository):
    def decide(_asked):
        raise RuntimeError("broken")

    with agent_of(WRITE, "Again.", on_permission=decide) as agent:
        with pytest.raises(RuntimeError, match="broken"):
            agent.run("go")
        assert not agent.session.running
        assert agent.run("again").text == "Again."
    with (
        agent_of(WRITE, on_permission=lambda _asked: "yes") as agent,
        pytest.raises(UsageError, match="'yes'"),
    ):
        agent.run("go")
    assert not (repository / "made.txt").exists()


def test_a_callback_may_steer(agent_of):
    model = ScriptedModel([WRITE, "Done."])
    with agent_of(model, on_permission=lambda _asked: agent.steer("in English") or True) as agent:
        list(agent.send("go"))
    assert "in English" in str(model.requests[1].messages)
