"""Whether ouro has become slower: its exit, first paint, headless answer, glob and lines about the
program, each as a multiple of a start of Python on the same machine.

    python -m benchmarks.drift            fails if one is 1.5 times its value in drift.json
    python -m benchmarks.drift --save     measure, and write drift.json

The programs take turns, so that each sees the same load; the least of all runs counts, which other
load changes least.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.compare import opened, wait
from benchmarks.programs import Program, programs
from benchmarks.timing import print_load
from ouro.safety import Workspace
from ouro.tools.glob import Glob, GlobArgs

BASELINE = Path(__file__).with_name("drift.json")
MAX_DRIFT = 1.5
FILES = 5_000
SETTLED = 5.0
"""Seconds until the session is open and what was warmed up is loaded, also on a slow machine."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--save", action="store_true", help="write the measured values")
    args = parser.parse_args()
    measured = measure(args.runs)
    print_load()
    if args.save:
        BASELINE.write_text(json.dumps(measured, indent=1) + "\n")
        return
    expected = json.loads(BASELINE.read_text())
    slower = [
        f"{name}: {ratio:.1f} times a start of Python, {expected[name]:.1f} expected"
        for name, ratio in measured.items()
        if ratio > MAX_DRIFT * expected[name]
    ]
    if slower:
        sys.exit("\n".join(["ouro has become slower:", *slower]))


def measure(runs: int) -> dict[str, float]:
    """The least of each figure, divided by that of a bare Python."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        homes = Path(folder)
        [program] = programs(homes, servers, homes, "ouro", mcp=False)
        many = homes / "many"
        for number in range(FILES):
            place = many / f"d{number % 50}" / f"file{number}.py"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        figures: dict[str, Callable[[], float]] = {
            "exit": lambda: _exit(program),
            "first paint": lambda: _paint(program),
            "headless": lambda: _cpu(program, [*program.headless, "hi"]),
            "--version": lambda: _cpu(program, [program.screen[0], "--version"]),
            "glob": lambda: _glob(many),
        }
        python = [sys.executable, "-c", "pass"]
        best = dict.fromkeys(["python CPU", "python", *figures], float("inf"))
        for _ in range(runs + 1):  # the first run warms the disk; it is never the least
            best["python CPU"] = min(best["python CPU"], _cpu(program, python))
            best["python"] = min(best["python"], _clock(program, python))
            for name, figure in figures.items():
                best[name] = min(best[name], figure())
    for name, milliseconds in best.items():
        print(f"{name}: {milliseconds:.1f} ms")
    by_clock = ("exit", "first paint")
    return {
        name: round(best[name] / best["python" if name in by_clock else "python CPU"], 2)
        for name in figures
    }


def _run(program: Program, command: list[str]) -> None:
    subprocess.run(
        command, check=True, cwd=program.work, env=program.full_environment(),
        stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip


def _clock(program: Program, command: list[str]) -> float:
    began = time.perf_counter()
    _run(program, command)
    return 1000 * (time.perf_counter() - began)


def _cpu(program: Program, command: list[str]) -> float:
    """Milliseconds of CPU of the process, finer than the hundredths of a second of `os.times`."""
    child = subprocess.Popen(
        command, cwd=program.work, env=program.full_environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{command} ended with {child.returncode}")
    return 1000 * (usage.ru_utime + usage.ru_stime)


def _paint(program: Program) -> float:
    with opened(program) as terminal:
        return terminal.after(lambda screen: bool(screen.strip()), 30) or float("inf")


def _exit(program: Program) -> float:
    with opened(program) as terminal:
        terminal.after(lambda screen: "Ask for anything" in screen, 30)
        wait(terminal, SETTLED)
        terminal.send(program.leave)
        wait(terminal, 0.1)
        terminal.send(program.leave)
        left = time.monotonic()
        while terminal.read(0.05):
            if time.monotonic() > left + 10:
                return float("inf")
        return 1000 * (time.monotonic() - left)


def _glob(folder: Path) -> float:
    """Milliseconds of CPU with the processes that it starts."""
    began = _cpu_with_children()
    asyncio.run(Glob(Workspace(folder)).run(GlobArgs("**/file99*.py"), None))  # type: ignore[arg-type]
    return 1000 * (_cpu_with_children() - began)


def _cpu_with_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
