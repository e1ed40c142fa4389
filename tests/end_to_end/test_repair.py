"""ouro fixes a failing test in a real third-party package, fetched from the package registry and
pinned by its hash.

The package is as published, with one fault added (FAULT), for which two of its own tests fail. The
model is a script; the package, the suite and the changes are real: it searches, runs the suite with
the shell tool, reads the function, edits it, and runs the suite again. Without the registry this
test fails; it is not skipped.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from fakes.model_server import Call, Reply
from fakes.ouro_program import ANTHROPIC, OuroProgram

ORIGINAL_ENVIRONMENT = dict(os.environ)
"""The environment of the test run: it names the registry and how to reach it."""
PINNED = Path(__file__).with_name("repair-package.txt")
NO_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Importing the plugins of ouro's own suite takes longer than the package's suite."""
SUITE = "python -B -m pytest -q -p no:cacheprovider"
FAULT = """\
--- a/parse.py
+++ b/parse.py
@@ -231,9 +231,6 @@
         if am == "AM" and H == 12:
             # correction for "12" hour functioning as "0" hour: 12:15 AM = 00:15 by 24 hr clock
             H -= 12
-        elif am == "PM" and H == 12:
-            # no correction needed: 12PM is midday, 12:00 by 24 hour clock
-            pass
         elif am == "PM":
             H += 12

"""
BEFORE = '        elif am == "PM":\n'
AFTER = '        elif am == "PM" and H != 12:\n'
TASK = "Two tests fail: find out why, and fix it."


@pytest.fixture(scope="module")
def faulty(tmp_path_factory) -> Path:
    """The source distribution of the package, unpacked, with the fault."""
    folder = tmp_path_factory.mktemp("published")
    # Only the package itself is fetched as source: pip builds it with its own setuptools to find
    # its name.
    command = [
        *(
            python_with_pip(),
            "-m",
            "pip",
            "download",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
        ),
        *("--no-binary", "parse", "--require-hashes", "-r", PINNED, "--dest", folder),
    ]
    run = subprocess.run(
        command, env=ORIGINAL_ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120
    )
    assert run.returncode == 0, f"the package registry could not be reached:\n{run.stderr}"
    with tarfile.open(folder / "parse-1.20.2.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    folder /= "parse-1.20.2"
    subprocess.run(["git", "apply", "-"], cwd=folder, input=FAULT, text=True, check=True)
    return folder


def python_with_pip() -> str:
    """The Python of the test run, or the Python that created its environment."""
    for python in (sys.executable, sys._base_executable):
        if (
            subprocess.run(
                [python, "-m", "pip", "--version"], capture_output=True, check=False
            ).returncode
            == 0
        ):
            return python
    raise AssertionError("neither Python has pip")


@pytest.fixture
def package(faulty, tmp_path) -> Path:
    """A repository with the package."""
    folder = shutil.copytree(faulty, tmp_path / "parse")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "import"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    return folder


@pytest.fixture
def ouro(model_server, package):
    model_server.script(model)
    program = OuroProgram(model_server, package, NO_PLUGINS)
    yield program
    program.close()


def suite(folder: Path) -> tuple[int, str]:
    """The exit code and the counts of the package's test suite."""
    environment = {
        **os.environ,
        **NO_PLUGINS,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    run = subprocess.run(
        SUITE.split(), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return run.returncode, re.sub(r" in [\d.]+s.*", "", run.stdout.strip().splitlines()[-1])


def model(request):
    """The next step of the model, from the results so far."""
    results = request.results
    match len(results):
        case 0:
            return Reply("I will run the suite, and look for the code.", [
                Call("shell", {"command": SUITE}),
                Call("grep", {"pattern": "def date_convert", "glob": "*.py"}),
            ])  # fmt: skip
        case 2:
            assert "hour must be in 0..23" in results[0]
            line = int(re.search(r"^(\d+):def date_convert", results[1], re.MULTILINE)[1])
            return Call("read", {"path": "parse.py", "offset": line, "limit": 70})
        case 3:
            assert BEFORE.strip() in results[2]
            return Call(
                "edit", {"path": "parse.py", "edits": [{"old_text": BEFORE, "new_text": AFTER}]}
            )
        case 4:
            return Call("shell", {"command": SUITE})
        case _:
            count = re.search(r"\d+ passed.*(?= in )", results[4])[0]
            return f"**12 PM is midday**, so nothing is added to it. The suite says: {count}."


def test_a_failing_test_is_repaired_on_the_full_screen(ouro, package):
    terminal = ouro.screen(size=(50, 100))
    terminal.say(TASK)
    terminal.answer("y", "Allow?  shell", SUITE)
    terminal.until_shows("2 failed, 94 passed, 1 skipped")
    terminal.until_shows("Allow?  edit", 'elif am == "PM" and H != 12:')
    terminal.answer("y", "Allow?  edit")
    terminal.answer("y", "Allow?  shell", SUITE)
    terminal.until_shows(
        "12 PM is midday, so nothing is added to it. The suite says: 96 passed, 1 skipped."
    )
    assert terminal.leave() == 0
    assert suite(package) == (0, "96 passed, 1 skipped")
    assert {request.wire for request in ouro.server.requests} == {"openai"}
    assert changed_files(package) == ["parse.py"]


def test_a_failing_test_is_repaired_headless_over_the_other_wire(ouro, package):
    done = ouro.headless(
        "-p", TASK, "-m", ANTHROPIC, "--mode", "edit", "--allow", f"shell({SUITE})"
    )
    assert done.code == 0, done.err
    assert done.out.endswith("The suite says: 96 passed, 1 skipped.\n")
    assert {request.wire for request in ouro.server.requests} == {"anthropic"}
    assert changed_files(package) == ["parse.py"]


def changed_files(folder: Path) -> list[str]:
    run = subprocess.run(
        ["git", "status", "--porcelain"], cwd=folder, capture_output=True, text=True, check=True
    )
    return [line[3:] for line in run.stdout.splitlines()]
