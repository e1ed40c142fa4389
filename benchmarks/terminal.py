"""A program in a real pseudo-terminal, with the times of its output and the memory of its
processes.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes import terminal

SIZE = (40, 120)


class Terminal(terminal.Terminal):
    """The terminal of the tests, with times."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], cwd: Path) -> None:
        self.arrived = 0.0
        """The time of the last output, taken before it is drawn, which takes longer."""
        super().__init__(command, environment, cwd, SIZE)

    def _answer(self, data: bytes) -> None:
        self.arrived = time.monotonic()
        super()._answer(data)

    def after(
        self, seen: Callable[[str], bool], limit: float, every: Callable[[], None] = lambda: None
    ) -> float | None:
        """Milliseconds from the start until the screen satisfies `seen`; None when it did not in
        `limit` seconds.
        """
        end = time.monotonic() + limit
        while time.monotonic() < end:
            before = len(self.raw)
            if not self.read(0.005):
                return None
            if len(self.raw) == before:
                every()
            elif seen(self.text()):
                return (self.arrived - self.started) * 1000
        return None


def processes_of(home: Path) -> list[int]:
    """The ids of all processes with this home, and of their descendants.

    The server of codex leaves the tree of its program. The server of vibe overwrites its
    environment.
    """
    processes: dict[int, None] = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"\0HOME={home}\0".encode() in b"\0" + path.read_bytes():
                processes |= dict.fromkeys(terminal.descendants(int(path.parent.name)))
    return list(processes)


def used_cpu(home: Path) -> dict[int, float]:
    """Seconds of CPU of each running process with this home."""
    used = {}
    for process in processes_of(home):
        with contextlib.suppress(OSError):
            ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
            used[process] = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return used


def spent_since(before: dict[int, float], home: Path) -> float:
    """Seconds of CPU since `before` of the running processes; one of an earlier row may have ended."""
    return sum(seconds - before.get(process, 0.0) for process, seconds in used_cpu(home).items())


def resident(home: Path) -> float:
    """MiB of memory of the processes with this home."""
    return sum(map(_resident, processes_of(home))) / 1024


def _resident(pid: int) -> int:
    """The proportional set size in KiB."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0
