"""Ctrl+B: background jobs and subagents in one list."""

import pytest
from fakes.fake_session import FakeSession
from fakes.screens import opened, screen_of, screen_text, shown, until

from ouro.errors import ToolError
from ouro.frontends.tui.screens.list_sheets import TasksSheet
from ouro.session import BackgroundTask

SERVER = BackgroundTask(
    "job_1", "npm run dev", "running, 12 s", True, True, "ready\nGET /index.html"
)
AGENT = BackgroundTask(
    "explore-1", "find the callers", "running: grep total", True, True, "grep total"
)


async def test_jobs_and_subagents_are_listed_with_their_output_and_ended_by_x():
    session = FakeSession()
    session.background.tasks = (AGENT, SERVER)
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("ctrl+b")
        await until(pilot, lambda: "❯ explore-1  find the callers" in screen_text(pilot.app))
        assert "running: grep total" in screen_text(pilot.app)
        assert "GET /index.html" not in screen_text(pilot.app)
        await pilot.press("down")
        await until(pilot, lambda: "GET /index.html" in screen_text(pilot.app))
        assert "❯ job_1  npm run dev" in screen_text(pilot.app)
        await pilot.press("x")
        await until(pilot, lambda: session.background.killed == ["job_1"])
        session.background.tasks = ()
        await until(pilot, lambda: "No background jobs and no subagents." in screen_text(pilot.app))
        await pilot.press("x", "ctrl+b")
        await until(pilot, lambda: not isinstance(pilot.app.screen, TasksSheet))
    assert session.background.killed == ["job_1"]


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 10)])
@pytest.mark.parametrize("count", [1, 12])
async def test_a_long_output_leaves_room_for_the_keys(size, count):
    session = FakeSession()
    output = "\n".join(map(str, range(200)))
    session.background.tasks = tuple(
        BackgroundTask(f"job_{n}", "seq 200", "running, 1 s", True, True, output)
        for n in range(count)
    )
    async with screen_of(session).run_test(size=size) as pilot:
        await opened(pilot)
        await pilot.press("ctrl+b")
        await until(pilot, lambda: "❯ job_0" in screen_text(pilot.app))
        await until(pilot, lambda: "199" in screen_text(pilot.app))
        await until(pilot, lambda: "x ends it" in screen_text(pilot.app))


async def test_running_tasks_are_first_and_x_says_that_a_task_has_ended():
    session = FakeSession()
    ended = BackgroundTask("job_0", "seq 300", "exit code 0, 0 s", False, True, "300")
    session.background.tasks = (ended, SERVER)
    async with screen_of(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press("ctrl+b")
        await until(pilot, lambda: "❯ job_1  npm run dev" in screen_text(pilot.app))
        await pilot.press("down", "x")
        await until(pilot, lambda: "job_0 has ended already." in screen_text(pilot.app))
        await pilot.press("up")
        await until(pilot, lambda: "x ends it" in screen_text(pilot.app))
    assert session.background.killed == []


async def test_the_reason_of_a_goal_is_a_sentence_without_backticks():
    session = FakeSession()
    goal = BackgroundTask("goal", "`make`", "paused", True, True, "`make` failed.")
    session.background.tasks = (goal,)
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("ctrl+b")
        await until(pilot, lambda: "make failed." in screen_text(pilot.app))
        assert "`" not in screen_text(pilot.app)


async def test_the_command_opens_the_list_if_there_is_one():
    session = FakeSession()
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press(*"/tasks", "enter")
        await until(pilot, lambda: "No background jobs and no subagents." in shown(pilot.app))
        session.background.tasks = (AGENT, SERVER)
        await pilot.press(*"/tasks", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, TasksSheet))
        await until(pilot, lambda: "❯ explore-1" in screen_text(pilot.app))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, TasksSheet))
        assert "explore-1" not in shown(pilot.app)


async def test_a_task_that_has_just_ended_is_not_an_error(monkeypatch):
    session = FakeSession()
    session.background.tasks = (AGENT,)

    async def kill(task):
        raise ToolError(f"No task `{task}` is running.")

    monkeypatch.setattr(session.background, "kill", kill)
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("ctrl+b")
        await until(pilot, lambda: "explore-1" in screen_text(pilot.app))
        await pilot.press("x", "down")
        await until(pilot, lambda: isinstance(pilot.app.screen, TasksSheet))
