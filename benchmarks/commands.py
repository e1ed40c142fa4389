"""Commands with many notes, grep and checkpoints with many files: milliseconds by the clock and of
CPU.

    python -m benchmarks.commands --notes 0,1000,10000,50000 --files 50000 --runs 5

On a busy machine read only the CPU. The notes are written as files and accepted once; `remember`
makes vectors.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.programs import ouro
from benchmarks.timing import print_load, timed
from ouro.safety import Checkpoints, Workspace
from ouro.tools.grep import Grep
from ouro.tools.grep_search import GrepArgs, find_ripgrep

COMMANDS = ("sessions list", "doctor", "memory list", "memory stats", "memory search port 4711")
NOTE = (
    "The service number {0} of the mail queue listens on port {0}. "
    + "It was decided to keep this as it is. " * 9
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--notes", default="0,1000,10000")
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    print("| what | ms | CPU ms |\n|---|---|---|")
    for count in map(int, args.notes.split(",")):
        commands(folder / str(count), count, args.runs)
    searches(folder / "files", args.files, args.runs)
    checkpoints(folder / "files", args.files, args.runs)
    shutil.rmtree(folder)
    print_load()


def commands(home: Path, count: int, runs: int) -> None:
    """The commands, in a home with `count` notes."""
    (home / "work").mkdir(parents=True)
    program = ouro(home, "http://127.0.0.1:9", Path())
    notes = home / ".ouro/memory"
    notes.mkdir()
    for number in range(count):
        (notes / f"mem_{number:08x}.md").write_text(NOTE.format(number) + "\n")

    def run(line: str) -> None:
        command, environment = [program.screen[0], *line.split()], program.full_environment()
        done = subprocess.run(
            command, cwd=program.work, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode > 1:  # 1: nothing was found
            raise SystemExit(f"{line}: {done.stderr}")

    if count:
        print_row(f"memory accept, {count:,} notes", lambda: run("memory accept"), 1)
    for line in COMMANDS:
        print_row(f"{line}, {count:,} notes", lambda line=line: run(line), runs)
    numbers = iter(range(1000))
    print_row(
        f"memory remember, {count:,} notes",
        lambda: run(f"memory remember Queue {next(numbers)} is slow."),
        runs,
    )


def searches(root: Path, count: int, runs: int) -> None:
    """grep, and ripgrep alone."""
    chance, words = (
        random.Random(1),
        "alpha beta gamma delta import return class self value".split(),
    )
    for number in range(count):
        place = root / f"d{number // 500}/f{number}.{('py', 'md', 'ts', 'txt')[number % 4]}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(
            "\n".join(" ".join(chance.choices(words, k=8)) for _ in range(33))
            + "\nneedle" * (number % 5000 == 0)
        )
    rg = [str(find_ripgrep()), "--hidden", "--json", "needle", str(root)]
    print_row("rg, a rare word", lambda: subprocess.run(rg, capture_output=True, check=True), runs)
    tool = Grep(Workspace(root))
    for arguments in (GrepArgs("needle"), GrepArgs("needle", glob="*.py"), GrepArgs("gamma")):
        name = f"grep {arguments.pattern} {arguments.glob}"
        print_row(name, lambda arguments=arguments: asyncio.run(tool.run(arguments, None)), runs)


def checkpoints(root: Path, count: int, runs: int) -> None:
    """The first checkpoint of the files that `searches` wrote, and one after ten of them changed."""
    store, numbers = (
        Checkpoints(root, root.parent / "checkpoints", "session"),
        iter(range(1, 10_000)),
    )

    def change_and_take() -> None:
        for number in range(10):
            (root / "d0" / f"new{number}.py").write_text(f"{next(numbers)}\n")
        store.take(next(numbers), "after")

    print_row(f"checkpoint, {count:,} files, the first", lambda: store.take(0, "before"), 1)
    print_row(f"checkpoint, {count:,} files, 10 changed", change_and_take, runs)


def print_row(name: str, work: Callable[[], object], runs: int) -> None:
    """Print the medians. The first run warms the disk and is not counted, unless there is only one."""
    clock, cpu = timed(work, runs, warm_up=runs > 1)
    print(f"| {name} | {statistics.median(clock):.0f} | {statistics.median(cpu):.0f} |", flush=True)


if __name__ == "__main__":
    main()
