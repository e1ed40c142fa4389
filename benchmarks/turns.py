"""Headless: start to answer without a tool, then twenty turns with one shell call each, beside other programs.

    python -m benchmarks.turns --runs 5 --peers FOLDER

FOLDER as in benchmarks/README.md. Every program talks to the same model server on loopback, which answers at once.
`a tool call` is the time from the end of an answer to the next request: the call itself (`true` in a shell) and all
that the program does beside it. `bare` is a call alone: `bash -c true`, started and waited for by Python.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.programs import Program, programs, report
from benchmarks.server import AnsweringServer
from benchmarks.terminal import resident

CALLS = 20


def run(program: Program, server: AnsweringServer, calls: int) -> tuple[float, float]:
    """Seconds from the start to the end of the process, and MiB of it and its children before the last answer."""
    memory: list[float] = []
    started = time.monotonic()
    process = subprocess.Popen(
        [*program.headless, "Say hello."], cwd=program.work, env=program.full_environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    server.begin(calls, lambda: memory.append(resident(process.pid) if calls else 0.0))
    output, _ = process.communicate(timeout=120)
    took = time.monotonic() - started
    if process.returncode or len(server.asked) < calls + 1:
        raise SystemExit(f"{program.name} failed ({len(server.asked)} requests):\n{output.decode(errors='replace')}")
    return took, memory[-1]


def measure(program: Program, server: AnsweringServer) -> None:
    took, _ = run(program, server, 0)
    program.note("start to answer ms", took * 1000)
    _, memory = run(program, server, CALLS)
    asked = server.asked[: CALLS + 1]
    gaps = [(after.came - before.answered) * 1000 for before, after in pairwise(asked)]
    program.note("a tool call ms", statistics.median(gaps))
    program.note("memory MiB", memory)


def bare(*command: str) -> str:
    """How long a command takes."""
    took = []
    for _ in range(30):
        started = time.monotonic()
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        took.append((time.monotonic() - started) * 1000)
    return f"{statistics.median(took):.1f} ms ({min(took):.1f}–{max(took):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peers", type=Path, default=Path("benchmarks/peers"))
    parser.add_argument("--only", default="", help="only programs whose name holds this")
    args = parser.parse_args()
    homes = Path(tempfile.mkdtemp())
    with AnsweringServer() as server:
        measured = programs(homes, server.url, args.peers.absolute(), args.only)
        for number in range(args.runs + 1):
            for program in measured:
                measure(program, server)
                if number == 0:
                    program.figures.clear()  # the first run warms the disk
    shutil.rmtree(homes, ignore_errors=True)
    report(measured, ["start to answer ms", "a tool call ms", "memory MiB"])
    print(f"`bash -c true`: {bare('bash', '-c', 'true')}.")
    command = str(Path(sys.executable).with_name("ouro"))
    for flag in ("--version", "--help"):
        print(f"`ouro {flag}`: {bare(command, flag)}.")


if __name__ == "__main__":
    main()
