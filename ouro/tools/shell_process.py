"""One shell command as processes: started without a terminal, watched, and ended with all child processes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import resource
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ouro.errors import ToolError
from ouro.tools.truncate import OutputCapture

_MARK = "OURO_SHELL"
"""An environment variable of every process of a command, to find those that left its process group.

Its value begins with the ouro that started the command: PID namespace, process and start time.
"""
_PIECE = 64 * 1024
_LAST_PIECES = 64
_MORE_PROCESSES = 4096
_REPORT_EVERY = 0.1
_REPORTED = 4096
_ENVIRONMENT = 1 << 20
_HAS_PROC = Path("/proc/self/environ").exists()
_MOMENT = 0.01
_LAST_WORDS = 0.3
"""Seconds that `tee` and its like have to finish when the shell has ended."""
GRACE = 0.3
"""Seconds between TERM and KILL."""


_running: set[ShellProcess] = set()


def is_any_running() -> bool:
    """Whether a command of the agent runs, of any session of this process, also of a subagent or in the background."""
    return bool(_running)


class ShellProcess:
    """A running shell command. The caller ends it: with `end`, or with `kill` where it cannot await."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str, pump: Pump) -> None:
        self._process = process
        self._mark = mark
        self._pump = pump
        self._started = time.monotonic()
        self._ended: float | None = None
        self._alone = False
        _running.add(self)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; below zero where a signal ended it."""
        return self._process.returncode

    @property
    def seconds(self) -> float:
        """Its running time."""
        return (self._ended or time.monotonic()) - self._started

    async def wait(self, seconds: float | None) -> bool:
        """Wait for the shell, not for other processes that hold its output open; False on timeout."""
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    async def end(self, grace: float = GRACE) -> int:
        """End its remaining processes: TERM, then KILL. Returns how many had outlived the shell."""
        left = 0
        try:
            if self.exit_code is None:
                self._signal(signal.SIGTERM)
                await self.wait(grace)
            elif self._ended is None:
                left = await self._survivors()
                if left:
                    self._signal(signal.SIGTERM)
                    await self._until_gone(grace)
                self._alone = not left
        finally:
            self.kill()
        await self.wait(GRACE)
        return left

    def kill(self) -> None:
        """KILL its remaining processes at once, and stop reading."""
        if self._ended is None:
            self._pump.drain()
            self._signal(signal.SIGKILL)
            self._pump.close()
            self._ended = time.monotonic()
            _running.discard(self)

    async def _survivors(self) -> int:
        """The number of processes that continue without the shell and do not end soon by themselves."""
        members, unsure = self._members()
        if unsure:
            # During exec, a process has no environment for a moment.
            await asyncio.sleep(_MOMENT)
            members, _ = self._members()
        if not members or await self._until_gone(_LAST_WORDS):
            return 0
        return len(self._members()[0])

    async def _until_gone(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self._members()[0]:
            if time.monotonic() > until:
                return False
            await asyncio.sleep(_MOMENT)
        return True

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
        # Twice: a process that was being forked during the first pass carries the mark, too.
        for _ in range(0 if self._alone else 2):
            for pid in self._members()[0] - {self._process.pid}:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)

    def _members(self) -> tuple[set[int], bool]:
        """The living processes of the command with its shell, and whether some are unknown."""
        if _HAS_PROC:
            return _marked(self._mark, self._process.pid)
        try:
            os.killpg(self._process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return set(), False
        return {self._process.pid}, False


class Pump:
    """Reads the output of a command into a capture and, a few times a second, into a report."""

    def __init__(self, descriptor: int, capture: OutputCapture, report: Callable[[bytes], None] | None) -> None:
        self._descriptor: int | None = descriptor
        self._capture = capture
        self._report = report
        self._fresh = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    def drain(self) -> None:
        """Read the output that is still in the pipe; bounded, as the writer may never stop."""
        for _ in range(_LAST_PIECES):
            if not self._read():
                break

    def close(self) -> None:
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
            self._tell()
            self._capture.close()

    def _read(self) -> bool:
        if self._descriptor is None:
            return False
        try:
            data = os.read(self._descriptor, _PIECE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._descriptor)
            return False
        self._capture.add(data)
        if self._report:
            self._fresh = (self._fresh + data)[-_REPORTED:]
            self._timer = self._timer or self._loop.call_later(_REPORT_EVERY, self._tell)
        return True

    def _tell(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._fresh and self._report:
            fresh, self._fresh = bytes(self._fresh), bytearray()
            self._report(fresh)


async def start_shell(
    line: str,
    cwd: Path,
    environment: Mapping[str, str],
    wrap: Callable[[Sequence[str]], Sequence[str]],
    capture: OutputCapture,
    report: Callable[[bytes], None] | None = None,
) -> ShellProcess:
    """Start `line` in a process session of its own: no terminal, no input, output into `capture`.

    Args:
        wrap: returns the command that confines a command.

    Raises:
        ToolError: the folder does not exist or cannot be entered, or bash cannot be started.
    """
    if not cwd.exists():
        raise ToolError(f"The folder {cwd} does not exist. Name another with `cwd`, or create it.")
    if not cwd.is_dir() or not os.access(cwd, os.X_OK):
        raise ToolError(f"{cwd} is not a folder that commands can be run in. Name another with `cwd`.")
    argv = [shutil.which("bash") or "/bin/sh", "-c", "--", line]
    mark = f"{_identity(os.getpid())}.{secrets.token_hex(8)}"
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *wrap(argv),
            cwd=cwd,
            env={**environment, _MARK: mark},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        os.close(reading)
        raise ToolError(f"The shell could not be started in {cwd}: {error}.") from error
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    _bound_processes(process.pid)
    return ShellProcess(process, mark, Pump(reading, capture, report))


def end_orphans() -> int:
    """End what commands of killed ouros have left running; returns the number of processes. Linux only. Blocks.

    A process that has cleared its environment and left its process group (`env -i setsid`) is not found.
    """
    ended = 0
    for pid, words in _marks() if _HAS_PROC else ():
        namespace, owner, *_ = words.split(".")
        if namespace == _namespace() and owner.isdigit() and not words.startswith(f"{_identity(int(owner))}."):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                ended += 1
    return ended


def _marks() -> Iterator[tuple[int, str]]:
    """The marks of all processes that have one."""
    needle = f"{_MARK}=".encode()
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            found = [word for word in _environment_of(name).split(b"\0") if word.startswith(needle)]
            if found and found[0].count(b".") == 3:
                yield int(name), found[0].removeprefix(needle).decode("ascii", "replace")


@functools.cache
def _namespace() -> str:
    """Of the process numbers: those of a container mean nothing outside of it."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "0"


def _identity(pid: int) -> str:
    """A process, also after its number was given to another one; without a start time if it is gone."""
    try:
        start = _bytes_of(f"/proc/{pid}/stat").rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        start = ""
    return f"{_namespace()}.{pid}.{start}"


def _bound_processes(pid: int) -> None:
    """Limit the number of processes, so that a fork bomb fails before the machine does."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError, IndexError):
            running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
            soft, hard = resource.prlimit(pid, resource.RLIMIT_NPROC)
            wall = running + _MORE_PROCESSES
            if soft == resource.RLIM_INFINITY or wall < soft:
                resource.prlimit(pid, resource.RLIMIT_NPROC, (wall, hard))


def _marked(mark: str, shell: int) -> tuple[set[int], bool]:
    """The processes with the mark in their environment, in any process group or session."""
    needle = f"{_MARK}={mark}".encode()
    found, unsure = set(), False
    for name in os.listdir("/proc"):  # noqa: PTH208 - done for every call, over every process
        if name.isdigit():
            environment = _environment_of(name)
            if needle in environment:
                found.add(int(name))
            unsure = unsure or (not environment and int(name) > shell)
    return found, unsure


def _environment_of(pid: str) -> bytes:
    """The environment of a process; a space if it can never be read, empty if it cannot be read now."""
    try:
        if environment := _bytes_of(f"/proc/{pid}/environ"):
            return environment
        state, parent = _bytes_of(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return b" "
    # Dead processes and kernel threads have none.
    return b" " if state in b"ZX" or parent in (b"0", b"2") else b""


def _bytes_of(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _ENVIRONMENT)
    finally:
        os.close(descriptor)
