"""Removes the defences of docs/threats.md one by one, and expects a failing test: `python -m
tests.mutate [CODE …]`.

It works on a copy of the tree, beside the checkout. A defence whose removal no test detects is a failure, and so is an
entry whose text is not in its file exactly once.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

from tests.defences import DEFENCES
from tests.defences.defence import Defence

PROJECT = Path(__file__).parents[1]
_LIMIT = 150
"""The minimum of seconds for the tests of one defence; a test that hangs without it has detected
its removal.
"""
_MAX_SLOWER = 10
"""For loaded machines: tests hang if they take this many times as long as with all defences."""


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
    """A copy of the tree, with a Python that imports it also in the processes that tests start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tree"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=PROJECT, capture_output=True, check=True, text=True,
        )  # fmt: skip
        for name in filter(None, listed.stdout.split("\0")):
            if (PROJECT / name).is_file():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).write_bytes((PROJECT / name).read_bytes())
        venv.create(self.folder / ".venv", symlinks=True)
        ripgrep = Path(sys.executable).with_name("rg")
        if ripgrep.exists():  # next to Python, where ouro looks first
            (self.folder / ".venv" / "bin" / "rg").symlink_to(ripgrep)
        (packages,) = (self.folder / ".venv").glob("lib/python*/site-packages")
        own = [path for path in sys.path if path.endswith("site-packages")]
        (packages / "tree.pth").write_text("\n".join([str(self.folder), *own]) + "\n")

    def run(self, tests: str, limit: float | None) -> str:
        """The test that fails, `hangs` after `limit` seconds, or nothing. Raises RuntimeError if
        tests cannot run.
        """
        words = [f"tests/faults/{word}" if word.endswith(".py") else word for word in tests.split()]
        python = self.folder / ".venv" / "bin" / "python"
        command = [str(python), "-m", "pytest", "-q", "-x", "-p", "no:randomly", *words]
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTEST")
        }
        environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            command, cwd=self.folder, env=environment, start_new_session=True, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return "hangs"
        if process.returncode > 1:
            raise RuntimeError(output[-2000:])
        failed = re.search(r"^(?:FAILED|ERROR) [\w./]*/(\S+)", output, re.MULTILINE)
        # A negative exit code: without the defence it used all memory.
        return (
            (failed[1][:90] if failed else f"exit code {process.returncode}")
            if process.returncode
            else ""
        )

    def run_without(self, defence: Defence, limit: float) -> str:
        """`run` without the defence."""
        path = self.folder / defence.file
        whole = path.read_text()
        path.write_text(whole.replace(defence.old, defence.new))
        try:
            return self.run(defence.tests, limit)
        finally:
            path.write_text(whole)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutate", description=(__doc__ or "").partition(":")[0]
    )
    parser.add_argument(
        "codes", nargs="*", metavar="CODE", help="only the defences of these faults, such as X10"
    )
    parser.add_argument("--list", action="store_true", help="print the table and run nothing")
    options = parser.parse_args()
    chosen = [defence for defence in DEFENCES if not options.codes or defence.code in options.codes]
    if options.list:
        print(
            "\n".join(
                f"{item.code:4} {item.file}: {item.old.partition(chr(10))[0]}" for item in chosen
            )
        )
        return 0
    failures = list(stale())
    print("\n".join(failures), end="\n" if failures else "")
    # Not in /tmp: the sandbox hides /tmp from commands, and the tests of the sandbox would fail.
    with tempfile.TemporaryDirectory(prefix="ouro-mutate-", dir=PROJECT.parent) as folder:
        copy = Copy(Path(folder).resolve())
        limits: dict[str, float] = {}
        for defence in chosen:
            began = time.monotonic()
            if defence.tests not in limits:
                try:
                    failed = copy.run(defence.tests, None)
                except RuntimeError as error:
                    failed = f"{defence.tests}: {error}"
                if failed:
                    failures.append(defence.tests)
                    print(f"red with all defences: {failed}", flush=True)
                limits[defence.tests] = max(_LIMIT, _MAX_SLOWER * (time.monotonic() - began))
                began = time.monotonic()
            noticed = defence.tests not in failures and copy.run_without(
                defence, limits[defence.tests]
            )
            result = "red" if noticed else "UNNOTICED"
            failures += [] if noticed else [defence.code]
            shown = defence.old.partition("\n")[0][:70]
            took = time.monotonic() - began
            print(
                f"{defence.code:4} {result:9} {took:5.1f} s  {defence.file}: {shown}  {noticed}",
                flush=True,
            )
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
