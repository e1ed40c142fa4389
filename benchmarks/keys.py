"""A key while an answer streams in: from the terminal to the screen, in a real terminal.

    python -m benchmarks.keys --keys 200

The session is the tests' (`fakes.screen_program stream`): a word each 5 ms. CPU is that of the whole process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from select import select

from benchmarks.terminal import Terminal, cpu

GAP = 0.03
"""Seconds between two keys."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=200)
    args = parser.parse_args()
    tests = Path(__file__).parents[1] / "tests"
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(tests)}
    took: list[float] = []
    while len(took) < args.keys:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "fakes.screen_program", "stream", folder]
            terminal = Terminal(command, environment, tests.parent)
            terminal.until_shows("of 128")
            terminal.send("go\r")
            terminal.until_shows("word3")
            while b"word290" not in terminal.raw and len(took) < args.keys:
                took.append(press(terminal, chr(0x4E00 + len(took))))
                read(terminal, GAP)
            used = cpu(terminal.pid)
            terminal.close()
    took.sort()
    p95, load = took[len(took) * 95 // 100], " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"| key while streaming, ms | p50 {statistics.median(took):.1f} | p95 {p95:.1f} | max {took[-1]:.1f} |")
    print(f"CPU of a run {used:.0f} ms; load average {load}")


def press(terminal: Terminal, key: str) -> float:
    """Milliseconds until the terminal is sent a character that is nowhere else on the screen."""
    seen, began = len(terminal.raw), time.monotonic()
    terminal.send(key)
    while key.encode() not in terminal.raw[seen:]:
        read(terminal, 0)
        if time.monotonic() > began + 5:
            raise SystemExit(f"{key} was not drawn: {terminal.raw[seen:]!r}")
    return (time.monotonic() - began) * 1000


def read(terminal: Terminal, seconds: float) -> None:
    """Read for some time, without making a picture of it, which takes longer than a key."""
    end = time.monotonic() + seconds
    while True:
        if select([terminal.child.child_fd], [], [], max(0.001, end - time.monotonic()))[0]:
            terminal.raw += os.read(terminal.child.child_fd, 1 << 16)
        if time.monotonic() >= end:
            return


if __name__ == "__main__":
    main()
