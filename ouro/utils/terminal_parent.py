"""The process that a terminal waits for: it ends when the session in its child does, or leaves.

A shell waits for the process that it has started, and nothing can take that role over later. So an
interactive ouro runs in a child from its first moment on: `/bg` then needs to move nothing, and the
turn, its commands, questions and servers go on as they are.
"""

from __future__ import annotations

# Nothing else is imported here: it is loaded before the first frame.
import _signal as signal  # type: ignore[import-not-found]  # `signal` imports `enum`: 2 ms
import _thread
import os
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_PATIENCE = 4
"""Seconds from the death of the launcher until its child ends, even if something hangs."""
_HANDLED_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT)
"""The signals at which a session itself restores its terminal."""
_AWAITED_SIGNALS = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGCHLD,
)
"""The signals for which the launcher waits. SIGINT is not one: the terminal sends it to the child as
well.
"""
_KILLED = "ouro was killed. Continue with: ouro --resume latest\n"
_launcher: Launcher | None = None


class Launcher:
    """The launcher as its child sees it."""

    def __init__(self, pid: int, alive: int, released: int) -> None:
        self._pid = pid
        self._alive = alive
        """A pipe that ends when the launcher does, because only the launcher can write to it."""
        self._released = released
        """A pipe to the launcher: a byte tells it to leave, with this exit code."""
        self._is_free = False
        """Whether the launcher was told to leave: then its end means nothing."""
        _thread.start_new_thread(self._watch, ())

    def release(self, code: int = 0) -> None:
        """Let the launcher end with this exit code, which the shell gets. This process continues in
        a process session of its own.
        """
        global _launcher
        self._is_free, _launcher = True, None
        os.setsid()
        os.write(self._released, bytes([code]))
        os.kill(self._pid, signal.SIGUSR1)

    def _watch(self) -> None:
        """Wait until the launcher ends. If it was killed, end this process, because its terminal is
        used by others from now on: first with SIGHUP, and by force `_PATIENCE` seconds later.
        """
        try:
            os.read(self._alive, 1)
        except OSError:
            return
        if self._is_free:
            return
        os.kill(os.getpid(), signal.SIGHUP)
        import time  # not at a start

        time.sleep(_PATIENCE)
        os._exit(128 + signal.SIGHUP)


def current_launcher() -> Launcher | None:
    """The launcher that waits for this process; None if no launcher waits, or it was told to leave."""
    return _launcher


def close_terminal(descriptors: Sequence[int]) -> None:
    """Let these descriptors lead to nothing: the terminal belongs to another process from now on."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(null, descriptor)
    os.close(null)


def continue_in_child(
    reset: str,
    modes: list[Any] | None = None,
    *,
    may_leave: bool = True,
    killed_text: str = _KILLED,
) -> None:
    """Fork. It returns only in the child; this process waits for the child's end, and ends with its
    exit code. Standard input and output are the terminal.

    No thread may run yet.

    Args:
        reset: what undoes on the terminal what the child sets there. It is written if the child is
            killed, for example because the machine has no memory left.
        modes: the modes that the terminal gets then; None: those that it has now.
        may_leave: whether the child may leave the terminal: if not, it has no `current_launcher`.
        killed_text: what the user reads then.
    """
    global _launcher
    alive_reader, alive_writer = os.pipe()
    release_reader, release_writer = os.pipe()
    # Blocked until the launcher waits for them, and the child is complete: a handler would run too
    # late, or in only one of the two processes, and the child may leave at once.
    mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_AWAITED_SIGNALS, signal.SIGINT))
    modes = modes or _terminal_modes()
    launcher, child = os.getpid(), os.fork()
    if child:
        os.close(alive_reader)
        os.close(release_writer)
        number = _wait_for(child, release_reader)
        if number not in _HANDLED_SIGNALS:
            _restore_terminal(reset + killed_text, modes)
        _die_by(number)
    os.close(alive_writer)
    os.close(release_reader)
    child_side = Launcher(launcher, alive_reader, release_writer)
    if may_leave:
        _launcher = child_side
    signal.pthread_sigmask(signal.SIG_SETMASK, mask_before)


def _wait_for(child: int, release: int) -> int:
    """Pass signals on to the child, and wait for its end. Returns the signal that ended it. Otherwise
    this process ends as the child does; or, if the child has released it, with the exit code that
    is a byte in the pipe `release`.

    The signals are blocked. A handler would not do: a signal just before `waitpid` would be handled
    after the child's end.
    """
    os.set_blocking(release, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # some systems drop a signal without a handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        ended_by = _check_child(child)
        if ended_by is not None:
            return ended_by
        number = signal.sigwait(_AWAITED_SIGNALS)
        if number == signal.SIGUSR1:
            _leave_if_released(release)
        elif number != signal.SIGCHLD:
            os.kill(child, number)


def _check_child(child: int) -> int | None:
    """Stop this process as long as the child is stopped. If the child has ended, return the signal that
    ended it, or end this process with its exit code. None if it runs.
    """
    while True:
        changed, status = os.waitpid(child, os.WUNTRACED | os.WNOHANG)
        if not changed:
            return None
        if os.WIFSIGNALED(status):
            return os.WTERMSIG(status)
        if not os.WIFSTOPPED(status):
            os._exit(os.waitstatus_to_exitcode(status))
        # Ctrl+Z: the shell must see that this job has stopped.
        os.kill(os.getpid(), signal.SIGSTOP)
        os.kill(child, signal.SIGCONT)


def _leave_if_released(release: int) -> None:
    """End this process with the exit code that its child has written into the pipe. If the pipe is
    empty or closed, the signal means nothing.
    """
    try:
        if code := os.read(release, 1):
            os._exit(code[0])
    except BlockingIOError:  # a signal of another process
        pass


def _terminal_modes() -> list[Any] | None:
    """The modes of the terminal on standard input; None if it is none."""
    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None


def _restore_terminal(text: str, modes: list[Any] | None) -> None:
    """Leave the terminal as it was before the child, which could not do that itself. `text` is
    written first.
    """
    if modes is None:
        return
    try:
        os.write(1, text.encode())
        termios.tcsetattr(0, termios.TCSANOW, modes)
    except (OSError, termios.error):  # the terminal is gone
        pass


def _die_by(number: int) -> None:
    """End this process by the signal that ended its child, without a core dump of its own."""
    import resource  # rare

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    os._exit(128 + number)
