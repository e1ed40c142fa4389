"""Tags: which processes belong to a shell command, and which ouro process has started them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterator
from pathlib import Path

from ouro.utils.processes import send_signal

TAG_BIT = 1 << 52
"""The bit that marks a soft limit of resident memory as the tag of a command. Linux does not
enforce this limit, and processes inherit it even if they change their environment, session and
descriptors. Its bits identify the ouro process that started the command, by start time (18 bits)
and process id (22), and the command (12).
"""
_STATE_FIELD, _START_TIME_FIELD, _RESIDENT_LIMIT_FIELD = 0, 19, 22
"""Positions of fields in `/proc/PID/stat`, counted after the name of the process."""
_STAT_SIZE = 1024
"""Bytes to read of `/proc/PID/stat`; it has about fifty numbers."""
HAS_PROC = Path("/proc/self/limits").exists()
"""Whether there is a /proc: only Linux has one."""


def owner_bits(pid: int) -> int:
    """The upper bits, without the number of the command, that the tags of all commands of an ouro
    process have: its start time and process id. 0 if the process is gone.
    """
    try:
        started = int(_read_stat(pid)[_START_TIME_FIELD])
    except (OSError, IndexError):
        return 0
    return TAG_BIT >> 12 | (started & 0x3_FFFF) << 22 | pid


def list_tags() -> Iterator[tuple[int, int]]:
    """Yields the living processes of commands of any ouro process, with their tags; none if there
    is no /proc.
    """
    for name in os.listdir("/proc") if HAS_PROC else ():  # noqa: PTH208 - done for every call, over every process
        if name.isdigit():
            with contextlib.suppress(OSError):
                fields = _read_stat(name)
                tag = int(fields[_RESIDENT_LIMIT_FIELD]) // 1024  # the shell uses KB
                is_tag = tag >> 52 == 1  # without a limit all bits are set
                is_dead = fields[_STATE_FIELD] in (b"Z", b"X")
                if is_tag and not is_dead:
                    yield int(name), tag


def _read_stat(pid: int | str) -> list[bytes]:
    """The fields of a process after its name: state, parent, …"""
    # This takes a third of the time of a file object.
    descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    try:
        return os.read(descriptor, _STAT_SIZE).rpartition(b")")[2].split()
    finally:
        os.close(descriptor)


def count_process_trees(pids: Collection[int]) -> int:
    """How many processes a user would count: those that were not started by another one of them. A
    server with four workers is one.
    """
    parents = {pid: parent_of(pid) for pid in pids}
    return sum(parent not in parents for parent in parents.values()) or len(pids)


def parent_of(pid: int) -> int:
    """The process id of the process that has started this one; 0 if it is not known."""
    try:
        about = Path(f"/proc/{pid}/stat").read_text()
        return int(about.rpartition(") ")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def kill_by_tag(tag: int) -> int:
    """KILL all processes with this tag. Returns how many a user would count: a process with its
    children is one. Blocks."""
    pids = [pid for pid, found_tag in list_tags() if found_tag == tag]
    count = count_process_trees(pids)
    for pid in pids:
        send_signal(pid, signal.SIGKILL)
    return count
