"""A process that has imported what tests import, but nothing of ouro, and forks for each run of
pytest.

It reads requests and writes results as lines of JSON: see `Request` and `Result`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

THIRD_PARTY = (
    "_pytest.assertion.rewrite", "_pytest.debugging", "_pytest.doctest", "_pytest.junitxml", "_pytest.legacypath",
    "_pytest.pastebin", "aiohttp", "anyio.pytest_plugin", "execnet", "git", "httpx", "hypothesis.core", "jinja2",
    "jsonschema", "kingfisher_sdk", "markdown_it", "mcp", "msgspec", "numpy", "pdb", "pexpect", "pydantic", "pyte",
    "pytest_asyncio.plugin", "pytest_textual_snapshot", "pytest_timeout", "rich.console", "syrupy", "textual.app",
    "textual.pilot", "textual.widgets", "xdist.plugin", "yaml",
)  # fmt: skip
PR_SET_CHILD_SUBREAPER = 36


class Request(NamedTuple):
    """One run of pytest."""

    words: list[str]
    """The command line after `pytest`."""
    seconds: float
    """The run is killed after this time."""


class Result(NamedTuple):
    """What became of a run."""

    code: int | None
    """The exit code, negative for a signal; None after a run that was killed because of its time."""
    test: str
    """The first test that failed; without one the last test that began."""
    passed: int
    output: str
    """The last characters that the run printed."""


class _Progress:
    """A plugin of pytest: writes what happens into a file, because a run may be killed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._file.write(json.dumps(["began", nodeid]) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or (report.passed and report.when == "call"):
            self._file.write(json.dumps([report.outcome, report.nodeid]) + "\n")


def serve(folder: Path) -> None:
    """Answer requests until there are no more. Files of the runs are written into `folder`."""
    for name in THIRD_PARTY:
        importlib.import_module(name)
    assert not {"ouro", "fakes"} & set(sys.modules)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "threads are not forked"
    # Processes that tests leave behind become children of this one, which ends them.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    gc.freeze()
    for line in sys.stdin:
        result = _run(Request(*json.loads(line)), folder)
        print(json.dumps(result), flush=True)


def _run(request: Request, folder: Path) -> Result:
    progress, output = folder / "progress", folder / "output"
    child = os.fork()
    if not child:
        _run_pytest(request.words, progress, output)
    code = _wait(child, request.seconds)
    _end_children()
    return _result(code, progress, output)


def _run_pytest(words: list[str], progress: Path, output: Path) -> NoReturn:
    os.setsid()
    descriptors = [os.open(os.devnull, os.O_RDONLY)]
    descriptors += [os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)] * 2
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(3, max(descriptors) + 1)
    code = pytest.main(words, plugins=[_Progress(progress)])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _wait(child: int, seconds: float) -> int | None:
    """The exit code of the child; None if it was still running. Other processes are reaped, too:
    tests wait until they are gone.
    """
    try:
        with _alarm(seconds):
            while True:
                ended, status = os.waitpid(-1, 0)
                if ended == child:
                    return os.waitstatus_to_exitcode(status)
    except TimeoutError:
        return None


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> NoReturn:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _end_children() -> None:
    """End what the run left behind, also what becomes a child of this process meanwhile."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while numbers := children.read_text().split():
        for number in numbers:
            os.kill(int(number), signal.SIGKILL)
            os.waitpid(int(number), 0)


def _result(code: int | None, progress: Path, output: Path) -> Result:
    lines = progress.read_text().splitlines() if progress.exists() else []
    events = [tuple(json.loads(line)) for line in lines]
    progress.unlink(missing_ok=True)
    failed = [name for outcome, name in events if outcome == "failed"]
    began = [name for outcome, name in events if outcome == "began"]
    passed = sum(outcome == "passed" for outcome, _ in events)
    test = next(iter(failed), began[-1] if began else "")
    printed = output.read_text(errors="replace") if output.exists() else ""
    return Result(code, test, passed, printed[-3000:])


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
