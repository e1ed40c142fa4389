"""Processes of the machine: whether they run, how many there are, and signals to them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether a process with this id runs, also of another user."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # no system has ids that large
        return False
    except OSError:
        pass  # it belongs to another user
    return True


def is_suspended(pid: int) -> bool:
    """Whether a process was stopped by Ctrl+Z. Linux only: elsewhere it is not known."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in ("T", "t")


def count_processes() -> int:
    """The number of processes and threads of the machine. Linux only."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def last_process_id() -> int:
    """The id of the process that was started last; 0 if it is not known. Ids rise until they begin
    again at the lowest.
    """
    try:
        return int(Path("/proc/loadavg").read_text().split()[4])
    except (OSError, IndexError, ValueError):
        return 0


def send_signal(pid: int, number: int, *, group: bool = False) -> None:
    """Signal a process or its group; nothing happens if it has ended or belongs to another user."""
    with suppress(ProcessLookupError, PermissionError):
        (os.killpg if group else os.kill)(pid, number)
