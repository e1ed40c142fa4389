"""A pytest plugin: what hangs is one failure, wherever it hangs, and the run goes on.

pytest-timeout ends tests. It is told to leave setups and teardowns alone: its limit would also end
the report of a failure, and with it the whole run.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from fakes.waiting import SLOWER

PHASE = float(os.environ.get("TEST_PHASE_SECONDS", "300")) * SLOWER
"""The seconds of a setup or a teardown."""
AGAIN = 2.0
"""Seconds between two exceptions: code under test may catch the first one."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[object]:
    with _limit(f"The setup of {item.nodeid}"):
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call() -> Iterator[object]:
    """Let pytest-timeout fail the test again and again: a task of an event loop may have caught its
    exception, and the test would wait for this task for ever.
    """
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    signal.setitimer(signal.ITIMER_REAL, left, AGAIN)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[object]:
    with _limit(f"The teardown of {item.nodeid}"):
        return (yield)


@contextlib.contextmanager
def _limit(what: str) -> Iterator[None]:
    def fail(*_: object) -> None:
        pytest.fail(f"{what} took over {PHASE:.0f} seconds.")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, PHASE, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
