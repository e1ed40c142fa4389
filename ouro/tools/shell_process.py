"""Shell commands as processes: started without a terminal, watched, and ended with all child
processes, also those that a killed ouro has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ouro.errors import ToolError
from ouro.utils.files import sweep_written_dirs
from ouro.utils.ouro_paths import get_home, get_written_dirs
from ouro.utils.processes import count_processes, last_process_id, send_signal
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.safety import CommandInside
    from ouro.tools.output_capture import OutputCapture

_TAG_BIT = 1 << 52
"""The bit that marks a soft limit of resident memory as the tag of a command. Linux does not
enforce this limit, and processes inherit it even if they change their environment, session and
descriptors. Its bits identify the ouro process that started the command, by start time (18 bits)
and process id (22), and the command (12).
"""
_STATE_FIELD, _START_TIME_FIELD, _RESIDENT_LIMIT_FIELD = 0, 19, 22
"""Positions of fields in `/proc/PID/stat`, counted after the name of the process."""
_STAT_SIZE = 1024
"""Bytes to read of `/proc/PID/stat`; it has about fifty numbers."""
_SET_LIMITS = (
    'ulimit -S -m "$1"; { ulimit -S -u "$2" || ulimit -S -p "$2"; } 2>&-; shift 2; exec "$@"'
)
"""Sets the tag and the limit of processes before the first process of the command starts (`-p`: in
dash).
"""
_SHELL_INSIDE = (
    "/bin/sh",
    "-c",
    'command -v bash >/dev/null && exec bash "$@"; exec sh "$@"',
    "sh",
)
"""bash, if the image of a container has it."""
_MORE_PROCESSES = 4096
"""Processes that the user may have besides those that run when a command is started."""
_HAS_PROC = Path("/proc/self/limits").exists()
"""Whether there is a /proc: only Linux has one."""
_POLL_INTERVAL = 0.01
"""Seconds between two looks at whether the processes of a command have ended."""
_SECONDS_OF_RISING_IDS = 1.0
"""So long after a start the ids of processes have not begun again and come back to it: Linux has at
least 32,768, and needs more than this for so many starts.
"""
_EXIT_TIMEOUT = 0.3
"""Seconds that programs like `tee` have to finish after the shell has ended."""
GRACE = 0.3
"""Seconds between TERM and KILL."""


Wrap = Callable[[Sequence[str]], Sequence[str]]
"""Confines a command: takes its words, and returns the words that run it in the sandbox."""


AtEnd = Callable[[], Awaitable[object]]
"""What is done when a command has ended."""


async def do_nothing() -> None:
    """The `AtEnd` of a command after which there is nothing to do."""


def exit_status(exit_code: int | None) -> str:
    """The state of a command in words. `exit_code` is None while it runs, and below zero if a
    signal ended it.
    """
    if exit_code is None:
        return "running"
    return f"ended by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"


def command_inside(argv: Sequence[str]) -> CommandInside | None:
    """The processes of a command in a container, if `wrap` has put it there; else None."""
    return getattr(argv, "inside", None)


class RunningCommand(ABC):
    """A running shell command, here or in a terminal of an editor. Its starter must call `end` or
    `kill`.

    Args:
        tag: what marks its processes, as `limit_command` returns it.
        capture: where its output is.
        inside: its processes in a container; None: it runs on this machine.
    """

    def __init__(
        self, tag: int, capture: OutputCapture, inside: CommandInside | None = None
    ) -> None:
        self.tag = tag
        self.capture = capture
        self.inside = inside
        self._started = time.monotonic()
        self._ended: float | None = None
        """When `kill` has ended it; None as long as it was not called."""
        running_commands.add(self)

    @property
    @abstractmethod
    def exit_code(self) -> int | None:
        """The exit code; None while it runs; below zero if a signal ended it."""

    @property
    def seconds(self) -> float:
        return (self._ended or time.monotonic()) - self._started

    @abstractmethod
    async def wait(self, seconds: float | None) -> bool:
        """Wait for the shell, not for other processes that hold its output open. Returns False if
        it takes more than `seconds` (None: no limit).
        """

    @abstractmethod
    async def end(self) -> int:
        """End the remaining processes: TERM, then KILL. Returns how many had outlived the shell."""

    def kill(self) -> None:
        """KILL the remaining processes at once, and stop reading."""
        if self._ended is None:
            self._ended = time.monotonic()
            try:
                self._kill()
            finally:
                if self.inside is not None:
                    self.inside.release()
                self.capture.close()
                running_commands.discard(self)

    @abstractmethod
    def _kill(self) -> None:
        """KILL the remaining processes, and stop reading. Called once."""


running_commands: set[RunningCommand] = set()
"""The running commands of this process; a command adds and removes itself."""
_command_numbers = itertools.count()


def is_any_running() -> bool:
    """Whether a command of the agent runs, of any session of this process, also of a subagent or in
    the background.
    """
    return bool(running_commands)


class ShellProcess(RunningCommand):
    """A command that runs here, as a child of this process."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        tag: int,
        capture: OutputCapture,
        output: int,
        report: Callable[[bytes], None],
        inside: CommandInside | None = None,
    ) -> None:
        super().__init__(tag, capture, inside)
        self._process = process
        from ouro.tools.output_capture import Pump  # a start needs none

        self._pump = Pump(output, capture, report)
        self._is_shell_alone = False
        """Whether it is known that no process lives which the shell has started."""

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    async def wait(self, seconds: float | None) -> bool:
        """Wait until the command ends. Returns False if it takes more than `seconds` (None: no
        limit).
        """
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    async def end(self) -> int:
        """End the command. A command whose shell has ended by itself first gets a moment for its
        other processes, such as `tee`. Returns how many had outlived the shell.
        """
        left_running = 0
        try:
            if self.exit_code is None:
                await self._terminate()
            elif self._ended is None:
                are_gone = await self._wait_until_gone(_EXIT_TIMEOUT)
                left_running = 0 if are_gone else count_process_trees(self._living_processes())
                if left_running:
                    self._signal(signal.SIGTERM)
                    await self._wait_until_gone(GRACE)
                self._is_shell_alone = not left_running
        finally:
            self.kill()
        await self.wait(GRACE)
        return left_running

    async def _terminate(self) -> None:
        """Ask its processes to end, and wait at most GRACE seconds for its shell."""
        if self.inside is not None:
            # The client of the engine ends when they have ended; alone it would leave them.
            await asyncio.to_thread(self.inside.signal, signal.SIGTERM)
        else:
            self._signal(signal.SIGTERM)
        await self.wait(GRACE)

    def _kill(self) -> None:
        """Read what is still in the pipe, then KILL the processes here or in the container."""
        self._pump.drain()
        # A client of the engine that runs, or was killed, leaves the processes in the container.
        if self.inside is not None and (self.exit_code is None or self.exit_code < 0):
            self.inside.signal_later(signal.SIGKILL)
        self._signal(signal.SIGKILL)
        self._pump.close()

    async def _wait_until_gone(self, seconds: float) -> bool:
        """Wait until all its processes have ended, at most `seconds`; returns whether they have."""
        until = time.monotonic() + seconds
        while self._living_processes():
            if time.monotonic() > until:
                return False
            await asyncio.sleep(_POLL_INTERVAL)
        return True

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to every process of the command."""
        send_signal(self._process.pid, number, group=True)
        # Twice, because a process that was forked during the first pass has the tag too.
        for _ in range(0 if self._is_shell_alone else 2):
            for pid in self._living_processes() - {self._process.pid}:
                send_signal(pid, number)

    def _living_processes(self) -> set[int]:
        """The living processes of the command, with its shell; without /proc only the shell."""
        if _HAS_PROC:
            first_id = self._first_id_of_processes()
            return {pid for pid, tag in _list_tags(first_id) if tag == self.tag}
        try:
            os.killpg(self._process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return set()
        return {self._process.pid}

    def _first_id_of_processes(self) -> int:
        """The lowest id that a process of the command can have: that of its shell, or 0 if ids may
        have begun again at the lowest since it was started. To read the state of a process takes
        10 microseconds, and a machine may have hundreds.
        """
        seconds = time.monotonic() - self._started
        have_risen = seconds < _SECONDS_OF_RISING_IDS and last_process_id() >= self._process.pid
        return self._process.pid if have_risen else 0


async def limit_command(
    line: str, cwd: Path, wrap: Wrap, *, in_container: bool = False
) -> tuple[Sequence[str], int]:
    """The command that runs a line with its limits, confined by `wrap`, and the tag that marks its
    processes (`_TAG_BIT`): the bits of this ouro process, and 12 bits that count its commands.

    Args:
        in_container: `wrap` runs it in a container, with the bash that is there.

    Raises:
        ToolError: the folder does not exist or cannot be entered, or its container cannot be used.
    """
    import shutil  # imported late: few sessions need it

    if not cwd.exists():
        raise ToolError(f"The folder {cwd} does not exist. Name another with `cwd`, or create it.")
    if not cwd.is_dir() or not os.access(cwd, os.X_OK):
        raise ToolError(
            f"{cwd} is not a folder that commands can be run in. Name another with `cwd`."
        )
    used_tags = {process.tag for process in running_commands}
    tags = (_owner_bits(os.getpid()) << 12 | number & 0xFFF for number in _command_numbers)
    tag = next(tag for tag in tags if tag not in used_tags)
    if in_container:
        tag |= _TAG_BIT  # the bits of the process lack it where there is no /proc
    # Without /proc here no tag can be read, but a container has a /proc of its own.
    limit_arguments = (str(tag) if in_container else "unlimited", "unlimited")
    if _HAS_PROC:
        import resource  # imported late: an answer without a command needs none

        # A limit of the number of processes, so that a fork bomb fails before it stops the machine.
        maximum = count_processes() + _MORE_PROCESSES
        limit_of_user, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        if limit_of_user != resource.RLIM_INFINITY:
            maximum = min(maximum, limit_of_user)
        limit_arguments = (str(tag), str(maximum))
    shell = _SHELL_INSIDE if in_container else (shutil.which("bash") or "/bin/sh",)
    words = ["/bin/sh", "-c", _SET_LIMITS, "sh", *limit_arguments, *shell, "-c", "--", line]
    return await asyncio.to_thread(wrap, words), tag


async def start_shell(
    argv: Sequence[str],
    tag: int,
    cwd: Path,
    environment: Mapping[str, str],
    capture: OutputCapture,
    report: Callable[[bytes], None],
) -> ShellProcess:
    """Start the result of `limit_command` in its own process session, without terminal and input.

    Raises:
        ToolError: bash cannot be started.
    """
    from ouro.tools.output_capture import PIPE_SIZE  # a start needs none

    reading, writing = os.pipe()
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # the user's limit of memory for pipes is reached
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    process = await start_process(
        argv, cwd, environment, asyncio.subprocess.DEVNULL, (reading, writing)
    )
    return ShellProcess(process, tag, capture, reading, report, command_inside(argv))


async def start_process(
    argv: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    stdin: int,
    output_ends: tuple[int, int],
) -> asyncio.subprocess.Process:
    """Start a program in its own process session.

    Args:
        output_ends: the descriptors from which its output is read and to which it is written. The second is
            closed here; the first only if the program cannot be started.

    Raises:
        ToolError: it cannot be started.
    """
    reading, writing = output_ends
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            cwd=cwd,
            env=dict(environment),
            stdin=stdin,
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
    pids = [pid for pid, found_tag in _list_tags() if found_tag == tag]
    count = count_process_trees(pids)
    for pid in pids:
        send_signal(pid, signal.SIGKILL)
    return count


def end_orphans() -> int:
    """End processes that commands of killed ouro processes left: those with the tag of an ouro
    process that is gone. Returns their number. Linux only. Blocks.
    """
    ended = 0
    for pid, tag in _list_tags():
        owner = tag >> 12
        owner_pid = owner & 0x3F_FFFF
        # Process ids of a container have no meaning outside of it.
        if _pid_namespace(pid) == _pid_namespace(os.getpid()) and owner != _owner_bits(owner_pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                ended += 1
    return ended


async def clean_up_orphans(warn: Callable[[str], None], project: Path) -> None:
    """Clean up after killed ouro processes: remove their temporary files and containers, end their
    commands, and warn about containers and commands.
    """
    await asyncio.to_thread(sweep_written_dirs, get_written_dirs(project))
    if removed := await asyncio.to_thread(_remove_old_containers):
        warn(f"Removed {plural(removed, 'container')} that a killed ouro had left.")
    if ended := await asyncio.to_thread(end_orphans):
        processes = plural(ended, "process", "processes")
        warn(f"Ended {processes} that commands of a killed ouro had left running.")
    await asyncio.to_thread(_remove_old_temp_folders)


def _remove_old_containers() -> int:
    """Remove the containers of killed ouro processes; returns how many. Blocks."""
    folder = get_home() / "sandbox"
    if not any((folder / "containers").glob("ouro-*")):
        return 0
    from ouro.safety import remove_left_containers  # only after a container

    return remove_left_containers(folder)


def _remove_old_temp_folders() -> None:
    """Remove the temporary folders of killed ouro processes. Blocks."""
    folder = get_home() / "sandbox"
    if not any((folder / "temp").glob("*")):
        return
    from ouro.safety import remove_left_temp_folders  # only after a kill, or beside another session

    remove_left_temp_folders(folder)


def _owner_bits(pid: int) -> int:
    """The upper bits, without the number of the command, that the tags of all commands of an ouro
    process have: its start time and process id. 0 if the process is gone.
    """
    try:
        started = int(_read_stat(pid)[_START_TIME_FIELD])
    except (OSError, IndexError):
        return 0
    return _TAG_BIT >> 12 | (started & 0x3_FFFF) << 22 | pid


def _list_tags(first_id: int = 0) -> Iterator[tuple[int, int]]:
    """Yields the living processes of commands of any ouro process, with their tags; none if there
    is no /proc. Processes with an id below `first_id` are left out.
    """
    for name in os.listdir("/proc") if _HAS_PROC else ():  # noqa: PTH208 - done for every call, over every process
        if name.isdigit() and int(name) >= first_id:
            with contextlib.suppress(OSError):
                fields = _read_stat(name)
                tag = int(fields[_RESIDENT_LIMIT_FIELD]) // 1024  # the shell uses KB
                # Of the highest bits only this one. Without a limit all bits are set.
                is_tag = tag & ~(_TAG_BIT - 1) == _TAG_BIT
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


def _pid_namespace(pid: int) -> int:
    """The number of the namespace of process ids; 0 if it is not known."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/ns/pid").stat().st_ino
    return 0


_NO_INPUT = 'exec "$@" </dev/null'
"""Runs a command without input, although the terminal has some."""


class Terminals(Protocol):
    """An editor that runs commands in its own terminals, where the user sees them. It may
    disconnect at any time.
    """

    async def create(self, call_id: str, argv: Sequence[str], cwd: Path) -> str:
        """Run a command for a tool call; returns the id of the terminal, empty if the editor opened
        none.
        """
        ...

    async def wait(self, terminal_id: str) -> int:
        """Wait for the exit code: below zero if a signal ended it, or the editor is gone."""
        ...

    async def kill(self, terminal_id: str) -> None: ...

    async def release(self, terminal_id: str) -> str:
        """Return the output; the terminal is not used afterwards."""
        ...


def terminal_command(argv: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The command for a terminal: without input, and without the keys that the editor has in its
    environment.
    """
    variables = (f"{name}={value}" for name, value in environment.items())
    return ["env", "-i", *variables, "sh", "-c", _NO_INPUT, "sh", *argv]


class TerminalCommand(RunningCommand):
    """A command that runs in a terminal of an editor."""

    def __init__(
        self,
        terminals: Terminals,
        terminal_id: str,
        tag: int,
        capture: OutputCapture,
        inside: CommandInside | None = None,
    ) -> None:
        super().__init__(tag, capture, inside)
        self._terminals = terminals
        self._id = terminal_id
        self._exit_code: int | None = None
        self._exit = asyncio.create_task(self._wait_for_exit())

    @property
    def exit_code(self) -> int | None:
        return self._exit_code

    async def wait(self, seconds: float | None) -> bool:
        await asyncio.wait({self._exit}, timeout=seconds)
        return self._exit.done()

    async def end(self) -> int:
        """End the command with everything that it started, and read its output. Returns how many
        processes a command that has ended by itself had left running.
        """
        try:
            has_ended = self._exit.done()
            if not has_ended:
                if self.inside is not None:
                    await asyncio.to_thread(self.inside.signal, signal.SIGKILL)
                await self._terminals.kill(self._id)
            left_running = await asyncio.to_thread(kill_by_tag, self.tag)
            await self.wait(GRACE)
            output = await self._terminals.release(self._id)
            self.capture.add(output.replace("\r\n", "\n").encode())
        finally:
            self.kill()
        return left_running if has_ended else 0

    def _kill(self) -> None:
        """Kill the command and its child processes, and do not wait for its exit code."""
        if self.inside is not None and not self._exit.done():
            self.inside.signal_later(signal.SIGKILL)
        kill_by_tag(self.tag)
        self._exit.cancel()
        self._exit_code = -signal.SIGKILL if self._exit_code is None else self._exit_code

    async def _wait_for_exit(self) -> None:
        """Wait for the exit code, and keep it."""
        self._exit_code = await self._terminals.wait(self._id)
