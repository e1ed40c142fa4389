"""A test over its time is one failure; the run goes on."""

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = """
import time
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    if call.excinfo is not None:
        time.sleep(2)  # a slow machine needs this long for a traceback
    return (yield)
"""
TESTS = """
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


def test_a_test_over_its_time_is_one_failure_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_slow.py").write_text(TESTS)
    line = [*(sys.executable, "-m", "pytest", "-q", "-n", "2"), "-o", "timeout_func_only=true"]
    done = subprocess.run(
        line, cwd=tmp_path, capture_output=True, text=True, env={**os.environ}, check=False
    )
    assert "1 failed, 21 passed" in done.stdout
    assert "INTERNALERROR" not in done.stdout + done.stderr
