"""Removes the defences of docs/threats.md one by one, and expects a failing test: `python -m
tests.mutate [CODE …]`.

It works on copies of the tree, beside the checkout. A process in each copy has imported what tests
import of others, and forks for each run (see `tests.pytest_forks`). A defence whose removal no test
detects is a failure, and so is an entry whose text is not in its file exactly once. The test that
detects a removal must pass with all defences.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import json
import os
import py_compile
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.defences import DEFENCES
from tests.defences.defence import Defence
from tests.pytest_forks import Request, Result

PROJECT = Path(__file__).parents[1]
LIMIT = 600.0 * float(os.environ.get("TEST_TIME_FACTOR", "1"))
"""Seconds for the tests of one defence. A test that hangs without it has detected its removal. Nearly
always a limit of the test itself ends it before.
"""
_NOT_FOUND = 4
"""The exit code of pytest for a test that it does not find."""


def stale(project: Path = PROJECT) -> Iterator[str]:
    """Why entries of the table no longer match the tree."""
    for defence in DEFENCES:
        count = (project / defence.file).read_text().count(defence.old)
        if count != 1:
            yield f"{defence.code}: {defence.old!r} is {count} times in {defence.file}"
        missing = [name for name in _files(defence) if not (project / name).is_file()]
        yield from (f"{defence.code}: {name} does not exist" for name in missing)
        chosen = re.search(r" -k (\w+)", defence.tests)
        texts = "" if missing else "".join((project / name).read_text() for name in _files(defence))
        if chosen and not missing and not re.search(rf"def test_\w*{chosen[1]}", texts):
            yield f"{defence.code}: no test fits {defence.tests}"


def _files(defence: Defence) -> list[str]:
    return [f"tests/faults/{name}" for name in re.findall(r"\S+\.py", defence.tests)]


class Copy:
    """A copy of the tree, with a Python that imports it also in the processes that tests start, and
    a process that runs its tests.
    """

    def __init__(self, folder: Path, project: Path = PROJECT) -> None:
        self.folder = folder / "tree"
        digest = hashlib.sha256()
        for name in _files_of_the_tree(project):
            content = (project / name).read_bytes()
            digest.update(f"{name} {len(content)}\n".encode() + content)
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(content)
        self.digest = digest.hexdigest()
        self._make_environment()
        # Bytecode that is valid by the content of its source: the time of a file that is changed and
        # restored within a second says nothing.
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        for name in ("ouro", ".github"):
            compileall.compile_dir(self.folder / name, quiet=2, workers=0, invalidation_mode=mode)
        self._process = subprocess.Popen(
            [self.folder / ".venv" / "bin" / "python", "-m", "tests.pytest_forks", str(folder)],
            cwd=self.folder, env=_environment(), start_new_session=True, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def _make_environment(self) -> None:
        venv.create(self.folder / ".venv", symlinks=True)
        ripgrep = Path(sys.executable).with_name("rg")
        if ripgrep.exists():  # next to Python, where ouro looks first
            (self.folder / ".venv" / "bin" / "rg").symlink_to(ripgrep)
        (packages,) = (self.folder / ".venv").glob("lib/python*/site-packages")
        own = [path for path in sys.path if path.endswith("site-packages")]
        (packages / "tree.pth").write_text("\n".join([str(self.folder), *own]) + "\n")

    def run(self, tests: list[str], limit: float) -> Result:
        """Run tests until the first failure, for at most `limit` seconds."""
        words = ["-q", "-x", "-p", "no:randomly", *tests]
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(Request(words, limit)) + "\n")
        self._process.stdin.flush()
        return Result(*json.loads(self._process.stdout.readline()))

    def run_without(self, defence: Defence, limit: float) -> Result:
        """`run` without the defence."""
        path = self.folder / defence.file
        whole = path.read_text()
        path.write_text(whole.replace(defence.old, defence.new))
        try:
            return self.run(_words(defence), limit)
        finally:
            path.write_text(whole)

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def _environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    own.pop("PYTHONDONTWRITEBYTECODE", None)
    # What starts ouro warm takes 3 s of CPU itself: too much for the few starts of one test.
    return own | {
        "OPENBLAS_NUM_THREADS": "1",
        "TEST_COLD_STARTS": "1",
        "TEST_ALL_EXAMPLES": "1",
    }


def _files_of_the_tree(project: Path) -> Iterator[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=project, capture_output=True, check=True, text=True,
    )  # fmt: skip
    names = filter(None, listed.stdout.split("\0"))
    return (name for name in sorted(names) if (project / name).is_file())


def _words(defence: Defence) -> list[str]:
    words = defence.tests.split()
    return [f"tests/faults/{word}" if word.endswith(".py") else word for word in words]


class Outcome(NamedTuple):
    """What the removal of a defence led to."""

    word: str
    """`red`, or why the entry is a failure."""
    test: str
    """The test that detected the removal."""
    why: str = ""


class Mutations:
    """Removes defences in copies of the tree."""

    def __init__(self, copies: list[Copy], limit: float = LIMIT) -> None:
        self._limit = limit
        self._copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for copy in copies:
            self._copies.put(copy)
        self._passes: dict[str, bool] = {}
        """Whether a test passes with all defences."""
        self._lock = threading.Lock()

    def try_without(self, defence: Defence) -> Outcome:
        """Run the tests of a defence without it, and the one that fails with all defences."""
        copy = self._copies.get()
        try:
            result = copy.run_without(defence, self._limit)
            if result.code == 0:
                why = "" if result.passed else "all its tests are skipped on this machine"
                return Outcome("UNNOTICED", "", why)
            if not result.test or (result.code or 0) > 1:
                return Outcome("BROKEN", "", " ".join(result.output.split())[-300:])
            if not self._passes_with_all(copy, result.test):
                return Outcome("RED WITH ALL DEFENCES", result.test)
            return Outcome("red", result.test, "hangs" if result.code is None else "")
        finally:
            self._copies.put(copy)

    def _passes_with_all(self, copy: Copy, test: str) -> bool:
        with self._lock:
            known = self._passes.get(test)
        if known is None:
            result = copy.run([test], self._limit)
            if result.code == _NOT_FOUND:  # pytest cannot read the parameters in some names
                result = copy.run([test.partition("[")[0]], self._limit)
            known = result.code == 0 and result.passed > 0
            with self._lock:
                self._passes[test] = known
        return known


class Report:
    """The lines of a run: on the screen, and in a file from which the next run of the same tree
    continues.
    """

    def __init__(self, path: Path | None, digest: str) -> None:
        first = f"tree {digest}"
        lines = path.read_text().splitlines() if path and path.exists() else []
        self._path = path
        self._known = lines if lines[:1] == [first] else []
        if path and not self._known:
            path.write_text(first + "\n")

    def is_red(self, defence: Defence) -> bool:
        """Whether an earlier run of the same tree saw a test fail without the defence."""
        start = f"red {_name(defence)} "
        return any(line.startswith(start) for line in self._known)

    def add(self, defence: Defence, outcome: Outcome, seconds: float) -> None:
        test = outcome.test.removeprefix("tests/faults/")[:120]
        line = f"{outcome.word} {_name(defence)}  {seconds:.1f} s  {test} {outcome.why}".rstrip()
        print(line, flush=True)
        if self._path:
            with self._path.open("a") as file:
                file.write(line + "\n")


def _name(defence: Defence) -> str:
    shown = defence.old.strip().partition("\n")[0][:70]
    digest = hashlib.sha256(f"{defence.old}\0{defence.new}".encode()).hexdigest()[:6]
    return f"{defence.code} {defence.file} {digest}: {shown}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutate", description=(__doc__ or "").partition(":")[0]
    )
    parser.add_argument(
        "codes", nargs="*", metavar="CODE", help="only the defences of these faults, such as X10"
    )
    parser.add_argument("--list", action="store_true", help="print the table and run nothing")
    parser.add_argument("--jobs", type=int, default=2, help="copies of the tree (default: 2)")
    parser.add_argument(
        "--results", type=Path, metavar="FILE",
        help="write the results there; what is red in it already is not repeated for the same tree",
    )  # fmt: skip
    options = parser.parse_args()
    chosen = [defence for defence in DEFENCES if not options.codes or defence.code in options.codes]
    if options.list:
        print("\n".join(_name(defence) for defence in chosen))
        return 0
    failures = list(stale())
    print("\n".join(failures), end="\n" if failures else "")
    # Not in /tmp: the sandbox hides /tmp from commands, and the tests of the sandbox would fail.
    with tempfile.TemporaryDirectory(prefix="ouro-mutate-", dir=PROJECT.parent) as folder:
        copies = [Copy(Path(folder).resolve() / str(number)) for number in range(options.jobs)]
        report = Report(options.results, copies[0].digest)
        mutations = Mutations(copies)

        def run(defence: Defence) -> bool:
            began = time.monotonic()
            outcome = mutations.try_without(defence)
            report.add(defence, outcome, time.monotonic() - began)
            return outcome.word == "red"

        left = [defence for defence in chosen if not report.is_red(defence)]
        with ThreadPoolExecutor(options.jobs) as pool:
            failed = [
                defence for defence, red in zip(left, pool.map(run, left), strict=True) if not red
            ]
        for copy in copies:
            copy.close()
    print(f"{len(chosen) - len(failed)} of {len(chosen)} are red", *map(_name, failed), sep="\n")
    return bool(failures or failed)


if __name__ == "__main__":
    sys.exit(main())
