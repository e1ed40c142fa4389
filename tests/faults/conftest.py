"""The full screen in a terminal of its own."""

import pytest
from fakes.screen_terminal import ScreenTerminal


@pytest.fixture
def start(tmp_path):
    """Runs a scenario of `fakes.screen_program`, and gives its terminal once its session is open."""
    started = []

    def start(scenario, **options):
        started.append(ScreenTerminal(scenario, tmp_path, **options))
        terminal = started[-1]
        terminal.until(lambda: terminal.told("opened") and terminal.shows("1% of 128k"))
        return terminal

    yield start
    for terminal in started:
        terminal.close()
