"""Processes of ouro that work on after it has ended, one of a kind at a time."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LOWEST_PRIORITY = 19
"""The priority of such a process."""
# The search path is that of this process: a module of the workspace is never imported.
_PROGRAM = """
import sys
from importlib import import_module
module, count = sys.argv[1], int(sys.argv[2])
arguments, sys.path[:] = sys.argv[3:3 + count], sys.argv[3 + count:]
import_module(module).main(*arguments)
"""
"""What the process runs: the arguments are the module, the number of the arguments of its function
`main`, these, and the search path.
"""


def start_detached(
    module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> bool:
    """Start a process that calls `main` of a module with these arguments. Returns whether it was
    started. `environment`: its variables; None: those of this process.
    """
    words = [module, str(len(arguments)), *arguments, *filter(None, sys.path)]
    try:
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *words],
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    return True


def hold_lock(path: Path) -> None:
    """Lock a file until this process ends. Raises OSError if another process has locked it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(path: Path) -> bool:
    """Whether a process has locked a file with `hold_lock`. To find out, the lock is taken for a
    moment.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
