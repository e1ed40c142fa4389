"""The agent's plan after a resume: from messages that are read later, and from before a compaction."""

import pytest

from ouro.assemble import Options, open_session
from ouro.display import Todo
from ouro.events import TodosChanged
from ouro.llm import ModelSpec, ScriptedModel, call
from ouro.session import OpenRequest
from ouro.session.context_window import format_plan

pytestmark = pytest.mark.usefixtures("no_titles")

PLAN = (Todo("look", "done"), Todo("mend it [now]", "in_progress"), Todo("tell"))


async def opened(repository, *script, resume=""):
    model = ScriptedModel(script, spec=ModelSpec("anthropic/claude-test", window=500_000))
    return await open_session(
        Options(repository, {"permissions.mode": "auto"}, ready_model=model),
        OpenRequest(resume, trust="yes"),
    )


async def planned(repository):
    """A session whose agent has made the plan PLAN."""
    todos = [{"text": each.text, "state": each.state} for each in PLAN]
    session = await opened(
        repository, call("todo", todos=todos), "Planned.", *["So it is."] * 3, "## Goal\nMend it."
    )
    assert [event async for event in session.send("Plan it.")]
    assert session.todos == PLAN
    return session


async def test_plan_from_earlier_messages_is_restored_when_they_are_read(repository):
    session = await planned(repository)
    for _ in range(3):
        assert [event async for event in session.send("a word and another, " * 5_000)]
    await session.close()
    again = await opened(repository, resume="latest")
    events = again.events()
    if again.todos != PLAN:  # otherwise everything was already read
        assert await anext(
            event async for event in events if isinstance(event, TodosChanged)
        ) == TodosChanged(PLAN)
    assert (await again.resumed.card()).todos == PLAN[1:]
    assert again.todos == PLAN
    await again.close()


async def test_a_plan_from_before_a_compaction_is_found_in_its_summary(repository):
    session = await planned(repository)
    for _ in range(3):
        assert [event async for event in session.send("a word and another, " * 5_000)]
    assert [event async for event in session.window.compact("")]
    await session.close()
    again = await opened(repository, resume="latest")
    await again.resumed.card()
    assert format_plan(again.todos) == format_plan(PLAN)
    await again.close()
