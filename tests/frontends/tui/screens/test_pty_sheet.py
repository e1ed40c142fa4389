"""The sheet with a program in a terminal: its screen, keys, colors and end."""

import sys

import pytest
from fakes.screens import opened, screen_of, screen_text, type_text, until
from fakes.tool_benches import ShellBench
from textual.app import App

from ouro.assemble import Options, opener
from ouro.frontends.tui.screens.pty_screen import PtySheet
from ouro.llm import ScriptedModel


@pytest.fixture
async def bench(tmp_path):
    bench = ShellBench(tmp_path, PYTHON_COLORS="0", PYTHON_BASIC_REPL="1")
    yield bench
    await bench.jobs.close()


async def test_keys_go_to_the_program_and_its_screen_is_drawn(bench):
    await bench.run(f"{sys.executable} -q", pty=True)
    (job,) = bench.jobs.list()
    app = App()
    async with app.run_test(size=(80, 24)) as pilot:
        app.push_screen(PtySheet(job.command, job.pty))
        await pilot.pause()
        await until(pilot, lambda: ">>>" in job.pty.screen.text())
        await pilot.press(*"6*7", "enter")
        await until(pilot, lambda: "42" in job.pty.screen.text())
        await pilot.press("ctrl+c", "escape", "up")
        assert isinstance(app.screen, PtySheet)
        await pilot.press("ctrl+right_square_bracket")
        assert not isinstance(app.screen, PtySheet)
        assert job.running


async def test_x19_what_the_user_types_in_secret_is_not_shown(home, repository):
    """A question for a secret: what is typed is neither shown nor saved."""
    open_session = opener(Options(repository, ready_model=ScriptedModel([])))
    async with screen_of(open_session=open_session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        session = pilot.app.turns.session
        await type_text(pilot, '!read -s -p "Password: " word; echo "${#word} letters"')
        await pilot.press("enter")
        background = session.background
        await until(pilot, lambda: background.last_terminal() is not None)
        await until(pilot, lambda: "Password" in background.last_terminal().pty.screen.text())
        await pilot.press("f8")
        await until(pilot, lambda: isinstance(pilot.app.screen, PtySheet))
        await pilot.press(*"hunter2", "enter")
        await until(pilot, lambda: not isinstance(pilot.app.screen, PtySheet))
        await until(pilot, lambda: "7 letters" in screen_text(pilot.app))
        assert "hunter2" not in screen_text(pilot.app)
        await until(pilot, lambda: "7 letters" in saved_text(home))
    assert "hunter2" not in saved_text(home)


def saved_text(home) -> str:
    return "".join(path.read_text() for path in home.rglob("session.yaml"))
