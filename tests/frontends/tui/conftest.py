"""The full screen from its first moment."""

import pytest
from fakes.terminal import ScreenTerminal


@pytest.fixture
def start(tmp_path):
    """Run a scenario of `fakes.screen_program` with a cold start; returns its terminal at once."""
    started = []

    def start(scenario, **options):
        started.append(ScreenTerminal(scenario, tmp_path, TEST_COLD_STARTS="1", **options))
        return started[-1]

    yield start
    for terminal in started:
        terminal.close()
