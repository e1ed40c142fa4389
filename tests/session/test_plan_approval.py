"""Plan mode ends with a plan and a question, in a session as the program assembles it."""

import pytest
from fakes.waiting import until

from ouro.assemble import Options, opener
from ouro.display import Todo
from ouro.events import Notice, Prompted, QuestionAsked, Reply, TurnFinished
from ouro.llm import ScriptedModel, call
from ouro.session import OpenRequest
from ouro.session.plan_approval import CARRY_OUT, CARRY_OUT_ASKING, CARRY_OUT_EDITING, KEEP_PLANNING

PLAN = "# Plan: A cache\n\n1. **Add** a dictionary\n2. Use it\n"
TODOS = [{"text": "Add a dictionary", "state": "done"}, {"text": "Use it", "state": "pending"}]

pytestmark = pytest.mark.usefixtures("no_background_calls")


async def opened(repository, *script, request=None, mode="plan", **options):
    model = ScriptedModel(script)
    settings = {"permissions.mode": mode} if mode else {}
    options = {"interactive": True, "settings": settings, **options}
    return await opener(Options(repository, ready_model=model, **options))(
        request or OpenRequest()
    ), model


async def play(session, text, *answers):
    """Send a text, answer the questions about the plan in order; returns the events."""
    seen, waiting = [], list(answers)
    async for event in session.send(text):
        seen.append(event)
        if isinstance(event, QuestionAsked):
            answer = waiting.pop(0)
            session.answer(event.question_id, await answer() if callable(answer) else answer)
    assert not waiting
    return seen


def plans(repository):
    return [path.read_text() for path in (repository / ".ouro" / "plans").glob("*.md")]


def said(model):
    """The messages of the user in the last request, with their context."""
    messages = [message for message in model.requests[-1].messages if message.role == "user"]
    return ["\n".join(part.text for part in message.parts) for message in messages]


@pytest.mark.parametrize(
    ("answer", "mode"), [(CARRY_OUT_ASKING, "ask"), (CARRY_OUT_EDITING, "edit")]
)
async def test_an_approved_plan_is_carried_out_in_the_chosen_mode_and_ticked_off(
    repository, answer, mode
):
    session, model = await opened(repository, PLAN, call("todo", todos=TODOS), "Done.")
    seen = await play(session, "cache it", Reply((answer,)))
    assert session.status().mode == mode
    assert [event.text for event in seen if isinstance(event, Prompted)] == ["cache it", CARRY_OUT]
    assert "one todo for each step" in said(model)[-1]
    assert f"Permission mode: {mode}" in said(model)[-1]
    assert isinstance(seen[-1], TurnFinished)
    (text,) = plans(repository)
    assert "state: approved" in text
    assert "1. [x] **Add** a dictionary\n2. [ ] Use it" in text
    await session.close()


@pytest.mark.parametrize("answer", [Reply(), Reply((KEEP_PLANNING,))])
async def test_a_plan_that_is_not_approved_stays_a_draft_in_plan_mode(repository, answer):
    session, _ = await opened(repository, PLAN)
    await play(session, "cache it", answer)
    assert session.status().mode == "plan"
    assert "state: draft" in plans(repository)[0]
    await session.close()


async def test_a_comment_is_sent_and_the_next_plan_replaces_the_draft(repository):
    other = PLAN.replace("A cache", "A small cache")
    session, model = await opened(repository, PLAN, other)
    await play(session, "cache it", Reply(("3: why?",)), Reply())
    assert "> 3: 1. [ ] **Add** a dictionary\n\nwhy?" in said(model)[-1]
    (text,) = plans(repository)
    assert "A small cache" in text
    await session.close()


async def test_what_the_user_edits_in_the_file_is_carried_out(repository):
    session, model = await opened(repository, PLAN, "Done.")

    async def edit():
        path = session.plan.file.path
        path.write_text(path.read_text().replace("2. [ ] Use it", "2. [ ] Use it twice"))
        return Reply((CARRY_OUT_EDITING,))

    await play(session, "cache it", edit)
    assert "Use it twice" in said(model)[-1]
    assert "has edited the plan" in said(model)[-1]
    await session.close()


async def test_an_edited_plan_is_carried_out_though_it_cannot_be_saved(repository):
    session, model = await opened(repository, PLAN, "Done.")

    async def edit():
        session.plan.change(PLAN.replace("Use it", "Use it twice"))
        folder = repository / ".ouro" / "plans"
        folder.rename(folder.with_name("moved"))
        folder.write_text("a file where the folder should be")
        return Reply((CARRY_OUT_EDITING,))

    seen = await play(session, "cache it", edit)
    assert any("could not be saved" in event.text for event in seen if isinstance(event, Notice))
    assert "Use it twice" in said(model)[-1]
    await session.close()


async def test_an_answer_that_is_no_plan_asks_nothing(repository):
    session, _ = await opened(repository, "It is in parser.py.")
    await play(session, "where is it?")
    assert plans(repository) == []
    await session.close()


async def test_outside_of_plan_mode_a_plan_asks_nothing(repository):
    session, _ = await opened(repository, PLAN, mode="ask")
    await play(session, "plan it")
    assert plans(repository) == []
    await session.close()


async def test_a_program_saves_a_plan_only_when_it_is_approved(repository):
    session, _ = await opened(repository, PLAN, PLAN, "Done.", interactive=False)
    await play(session, "cache it", Reply())
    assert plans(repository) == []
    await play(session, "cache it", Reply((CARRY_OUT_EDITING,)))
    assert "state: approved" in plans(repository)[0]
    await session.close()


async def test_an_ephemeral_session_asks_and_saves_nothing(repository):
    session, model = await opened(repository, PLAN, "Done.", ephemeral=True)

    async def edit():
        session.plan.change(PLAN.replace("Use it", "Use it twice"))
        return Reply((CARRY_OUT_EDITING,))

    await play(session, "cache it", edit)
    assert "Use it twice" in said(model)[-1]
    assert plans(repository) == []
    await session.close()


async def test_a_resumed_session_names_its_plan_and_continues_to_tick_it_off(repository):
    session, _ = await opened(repository, PLAN, call("todo", todos=TODOS), "Started.")
    await play(session, "cache it", Reply((CARRY_OUT_EDITING,)))
    await session.close()
    done = [{**todo, "state": "done"} for todo in TODOS]
    again, _ = await opened(
        repository, call("todo", todos=done), "Done.", request=OpenRequest("latest"), mode=""
    )
    notices = []

    async def read():
        async for event in again.events():
            notices.append(event)

    again.turn.tasks.start("read", read())
    await until(lambda: any(isinstance(event, Notice) for event in notices))
    shown = " ".join(event.text for event in notices if isinstance(event, Notice))
    assert "Plan “A cache”: 1 of 2 steps done (.ouro/plans/" in shown
    await play(again, "continue")
    assert "state: done" in plans(repository)[0]
    await again.close()


async def test_a_plan_of_another_session_is_sent_whole_when_it_is_adopted(repository):
    session, _ = await opened(repository, PLAN)
    await play(session, "cache it", Reply())
    plan = session.plan.file
    await session.close()
    again, _ = await opened(repository, call("todo", todos=TODOS), "Done.", mode="ask")
    message = await again.plan.adopt(plan, "edit")
    assert "1. [ ] **Add** a dictionary" in message
    await play(again, message)
    assert again.todos[0] == Todo("Add a dictionary", "done")
    assert f"session: {again.id}" in plans(repository)[0]
    assert "1. [x]" in plans(repository)[0]
    await again.close()


async def test_undo_of_files_leaves_plans_alone(repository):
    session, _ = await opened(repository, PLAN)
    await play(session, "cache it", Reply())
    assert [point.files for point in session.rewind.points() if getattr(point, "files", 0)] == []
    await session.close()
