"""A resumed session has the mode that it had at its end, unless the command line sets another one."""

import pytest
from fakes.agents import say
from fakes.waiting import until

from ouro.assemble import Options, open_session
from ouro.commands.mode import next_mode
from ouro.events import QuestionAsked, QuestionClosed, Reply, ToolFinished
from ouro.frontends.session_format import card_line, card_lines, now
from ouro.llm import ScriptedModel, call
from ouro.session import OpenRequest

pytestmark = pytest.mark.usefixtures("no_titles")


async def opened(repository, *script, resume="", **options):
    options = Options(repository, ready_model=ScriptedModel(script), memory=False, **options)
    return await open_session(options, OpenRequest(resume, trust="yes"))


async def leave_in_mode(repository, change, **options):
    session = await opened(repository, "One.", "Two.", **options)
    if change:
        session.set_mode(change)
    await say(session, "a")
    await session.close()
    return session


async def test_mode_is_restored_and_shown_on_the_card(repository):
    await leave_in_mode(repository, "plan")
    again = await opened(repository, resume="latest")
    card = await again.resumed.card()
    assert again.status().mode == "plan"
    assert ("mode", "plan") in card_lines(card, now())
    assert "mode plan" in card_line(card, now())
    await again.close()


@pytest.mark.parametrize(
    ("left", "project", "restored"),
    [
        ("auto", "ask", "ask"),
        ("edit", "ask", "ask"),
        ("edit", "plan", "plan"),
        ("plan", "ask", "plan"),
    ],
)
async def test_e3_a_restored_mode_is_not_wider_than_that_of_the_project(
    repository, left, project, restored
):
    await leave_in_mode(repository, left)
    (repository / ".ouro").mkdir(exist_ok=True)
    (repository / ".ouro" / "config.yaml").write_text(f"permissions:\n  mode: {project}\n")
    again = await opened(repository, resume="latest")
    assert again.status().mode == restored
    await again.close()


async def test_the_mode_of_the_command_line_is_saved_too_and_wins_on_resume(repository):
    await leave_in_mode(repository, "", settings={"permissions.mode": "plan"})
    again = await opened(
        repository, "Three.", resume="latest", settings={"permissions.mode": "edit"}
    )
    assert again.status().mode == "edit"
    await say(again, "b")
    await again.close()
    third = await opened(repository, resume="latest")
    assert third.status().mode == "edit"
    await third.close()


async def test_mode_survives_compaction_and_mode_changes(repository):
    session = await opened(repository, "One. " * 300, "## Goal\nGo on.")
    session.set_mode("plan")
    session.set_mode("auto")
    session.set_mode("plan")
    await say(session, "a " * 3_000)
    assert [event async for event in session.window.compact("")]
    await session.close()
    again = await opened(repository, resume="latest")
    assert again.status().mode == "plan"
    await again.close()


async def test_a_session_without_a_saved_mode_opens_in_that_of_the_settings(
    repository, monkeypatch
):
    session = await leave_in_mode(repository, "")
    text = next((session.memory.outputs.parent).glob("session.yaml")).read_text()
    assert "\nmode:" not in text
    monkeypatch.setenv("OURO_PERMISSIONS_MODE", "edit")
    again = await opened(repository, resume="latest")
    assert again.status().mode == "edit"
    assert "mode" not in dict(card_lines(await again.resumed.card(), now()))
    await again.close()


async def test_a_mode_that_does_not_exist_is_ignored(repository):
    session = await leave_in_mode(repository, "plan")
    path = next((session.memory.outputs.parent).glob("session.yaml"))
    path.write_text(path.read_text().replace("mode: plan", "mode: everything"))
    again = await opened(repository, resume="latest")
    assert again.status().mode == "ask"
    await again.close()


async def test_shell_timeout_setting_limits_a_call_without_one(repository, monkeypatch):
    monkeypatch.setenv("OURO_SHELL_TIMEOUT_SECONDS", "1")
    session = await opened(
        repository,
        call("shell", command="sleep 20"),
        "Done.",
        settings={"permissions.mode": "auto", "permissions.allow": ("shell",)},
    )
    (finished,) = [event for event in await say(session, "wait") if isinstance(event, ToolFinished)]
    assert "time limit" in finished.display.summary
    await session.close()


@pytest.mark.parametrize(("answer", "mode"), [("Continue in auto", "auto"), ("Stay in ask", "ask")])
async def test_e3_auto_is_offered_on_resume_and_not_restored_in_silence(repository, answer, mode):
    await leave_in_mode(repository, "auto")
    again = await opened(repository, resume="latest")
    assert again.status().mode == "ask"
    async for event in again.events():
        if isinstance(event, QuestionAsked):
            again.answer(event.question_id, Reply((answer,)))
        elif isinstance(event, QuestionClosed):
            break
    await until(lambda: again.memory.transcript.mode == mode)
    assert again.status().mode == mode
    await again.close()


async def test_auto_of_the_settings_needs_no_question(repository, home):
    (home / ".ouro").mkdir(exist_ok=True)
    (home / ".ouro" / "config.yaml").write_text("permissions:\n  mode: auto\n")
    await leave_in_mode(repository, "auto")
    again = await opened(repository, resume="latest")
    assert again.status().mode == "auto"
    await again.close()


def test_the_key_leads_out_of_auto_but_not_into_it():
    assert [next_mode(mode) for mode in ("ask", "edit", "plan", "auto")] == [
        "edit",
        "plan",
        "ask",
        "ask",
    ]
