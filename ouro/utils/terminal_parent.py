"""The process that a terminal waits for: it ends when the session in its child does, or leaves.

A shell waits for the process that it has started, and nothing can take that role over later. So an
interactive ouro runs in a child from its first moment on: `/bg` then needs to move nothing, and the
turn, its commands, questions and servers go on as they are.
"""

from __future__ import annotations

# Nothing else is imported here: it runs before the first frame.
import _thread
import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

_PATIENCE = 4
"""Seconds from the death of the launcher until its child ends, even if something hangs."""
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


def continue_in_child() -> None:
    """Fork. It returns only in the child; this process waits for the child's end, and ends with its
    exit code.

    No thread may run yet.
    """
    global _launcher
    alive_reader, alive_writer = os.pipe()
    release_reader, release_writer = os.pipe()
    # Blocked until the launcher handles it: a child may leave at once, and its signal would kill
    # the launcher.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    launcher, child = os.getpid(), os.fork()
    if child:
        os.close(alive_reader)
        os.close(release_writer)
        _wait_for(child, release_reader)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    os.close(alive_writer)
    os.close(release_reader)
    _launcher = Launcher(launcher, alive_reader, release_writer)


def _wait_for(child: int, release: int) -> None:
    """Pass signals on to the child, and wait for its end; never returns. This process ends as the child
    does; or, if the child has released it, with the exit code that is a byte in the pipe `release`.
    """
    os.set_blocking(release, False)

    def forward(number: int, _frame: FrameType | None) -> None:
        os.kill(child, number)

    def leave(_number: int, _frame: FrameType | None) -> None:
        """End this process with the exit code that its child has written into the pipe. If the pipe
        is empty or closed, the signal means nothing.
        """
        try:
            if code := os.read(release, 1):
                os._exit(code[0])
        except BlockingIOError:  # a signal of another process
            pass

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, forward)
    signal.signal(signal.SIGUSR1, leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the child as well
    while True:
        _, status = os.waitpid(child, os.WUNTRACED)
        if os.WIFSTOPPED(status):  # Ctrl+Z: the shell must see that this job has stopped
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(child, signal.SIGCONT)
        elif os.WIFSIGNALED(status):
            _die_by(os.WTERMSIG(status))
        else:
            os._exit(os.waitstatus_to_exitcode(status))


def _die_by(number: int) -> None:
    """End this process by the signal that ended its child, without a core dump of its own."""
    import resource  # rare

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)
