"""A test over its time is one failure; the run goes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from architecture.sources import ROOT
from properties import HealthCheck, examples, settings

CONFTEST = """
import time
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    if call.excinfo is not None:
        time.sleep(2)  # a slow machine needs this long for a traceback
    return (yield)
"""
SLOW = """
import time
import pytest

def test_before():
    pass

@pytest.mark.timeout(1)
def test_that_sleeps():
    time.sleep(60)

@pytest.mark.parametrize("number", range(20))
def test_after(number):
    pass
"""
HANGS = """
import asyncio
import threading
import pytest

@pytest.fixture
def hangs_at_its_end():
    yield
    threading.Event().wait()

@pytest.fixture
def catches_the_first_exception():
    yield
    try:
        threading.Event().wait()
    except BaseException:
        threading.Event().wait()

@pytest.mark.timeout(1)
def test_that_waits_for_a_task_that_catches_all():
    async def busy():
        try:
            while True:
                pass
        except BaseException:
            await asyncio.Event().wait()

    asyncio.run(busy())

def test_before():
    pass

def test_with_a_hanging_teardown(hangs_at_its_end):
    pass

def test_with_a_stubborn_teardown(catches_the_first_exception):
    pass

@pytest.mark.parametrize("number", range(20))
def test_after(number):
    pass
"""
TOTALS = "2 failed, 44 passed, 2 errors"
"""Of both files."""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of one run with two workers: each process takes half a second of CPU. Other plugins
    than the needed ones take a second.
    """
    folder = tmp_path_factory.mktemp("hanging_tests")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_slow.py").write_text(SLOW)
    (folder / "test_hangs.py").write_text(HANGS)
    line = [*(sys.executable, "-m", "pytest", "-q", "-n", "2"), "-o", "timeout_func_only=true"]
    line += ["-p", "xdist", "-p", "pytest_timeout", "-p", "fakes.time_limits"]
    own = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TEST_PHASE_SECONDS": "1",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    environment = {**os.environ, **own}
    done = subprocess.run(
        line, cwd=folder, capture_output=True, text=True, env=environment, check=False
    )
    return done.stdout + done.stderr


def test_a_test_over_its_time_is_one_failure_and_the_others_run(output: str) -> None:
    assert output.count("FAILED test_slow.py") == 1
    assert "FAILED test_slow.py::test_that_sleeps" in output
    assert TOTALS in output
    assert "INTERNALERROR" not in output


def test_a_teardown_that_hangs_is_one_failure_and_the_others_run(output: str) -> None:
    for teardown in ("test_with_a_hanging_teardown", "test_with_a_stubborn_teardown"):
        assert f"The teardown of test_hangs.py::{teardown} took over" in output
    assert "FAILED test_hangs.py::test_that_waits_for_a_task_that_catches_all" in output
    assert TOTALS in output


def test_property_tests_do_not_measure_the_machine():
    tests = [file for file in (ROOT / "tests").rglob("*.py") if file.name != "properties.py"]
    direct = [file.name for file in tests if "\nfrom hypothesis import" in file.read_text()]
    assert direct == []
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
    assert HealthCheck.filter_too_much not in settings().suppress_health_check


def test_the_nightly_run_draws_all_examples_of_properties():
    nightly = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
    jobs = nightly.partition("\n  defences:\n")[2].partition("steps:")[0]
    assert 'TEST_ALL_EXAMPLES: "1"' in jobs
    assert "pytest -n 4" in jobs
    is_nightly = bool(os.environ.get("TEST_ALL_EXAMPLES"))
    assert settings(300).max_examples == (300 if is_nightly else 30)
    assert settings(5).max_examples == 5
    assert examples(80) == (80 if is_nightly else 10)
