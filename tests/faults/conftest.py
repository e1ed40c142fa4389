"""The full screen in its own terminal, and the shell tool."""

import pytest
from fakes.terminal import ScreenTerminal
from fakes.tool_benches import ShellBench


@pytest.fixture
def start(tmp_path):
    """Run a scenario of `fakes.screen_program`; returns its terminal when its session is open."""
    started = []

    def start(scenario, **options):
        started.append(ScreenTerminal(scenario, tmp_path, **options))
        terminal = started[-1]
        terminal.until(lambda: terminal.calls("opened") and terminal.shows("1% of 128k"))
        return terminal

    yield start
    for terminal in started:
        terminal.close()


@pytest.fixture
def bench(tmp_path) -> ShellBench:
    """The shell tool in a folder of its own."""
    return ShellBench(tmp_path)
