"""The workers of a run are forks of one process that has collected the tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.warm_python import CLONE

pytestmark = pytest.mark.skipif(CLONE is None, reason="the workers are not forks")
CONFTEST = """
def pytest_configure(config):
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        from forked_workers import ForkedWorkers
        config.pluginmanager.register(ForkedWorkers())
"""
TESTS = """
import os
import sys
import pytest

errors_at_import = sys.stderr

with open("imports", "a") as file:
    file.write("imported\\n")

@pytest.mark.parametrize("number", range(20))
def test_of_a_worker(number, tmp_path):
    worker = os.environ["PYTEST_XDIST_WORKER"]
    assert f"popen-{worker}" in str(tmp_path)
    print(f"this is number {number}")
    os.system(f"echo this is the child of number {number}")
    assert not errors_at_import.closed
    assert number != 10

def test_that_ends_its_worker():
    os._exit(3)
"""


def run_pytest(folder: Path) -> str:
    """The output of a run with two workers."""
    plugins = ("-p", "xdist", "-p", "no:cacheprovider")
    environment = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(Path(__file__).parent),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *plugins]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=environment, check=False
    )
    return done.stdout + done.stderr


def test_tests_are_collected_once_and_run_in_workers_of_their_own(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_here.py").write_text(TESTS)
    output = run_pytest(tmp_path)
    assert (tmp_path / "imports").read_text() == "imported\n"
    assert "2 failed, 19 passed" in output
    assert "crashed while running 'test_here.py::test_that_ends_its_worker'" in output
    captured = output.partition("Captured stdout call")[2].partition("short test summary")[0]
    assert captured.splitlines()[1:3] == ["this is number 10", "this is the child of number 10"]


def test_a_module_that_cannot_be_collected_is_reported(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_here.py").write_text("def test_passes():\n    pass\n")
    (tmp_path / "test_wrong.py").write_text("import no_such_module\n")
    output = run_pytest(tmp_path)
    assert "No module named 'no_such_module'" in output
    assert "1 error" in output
