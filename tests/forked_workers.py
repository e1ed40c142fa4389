"""The workers of pytest-xdist as forks of one process that has collected the tests: to collect them
takes 5 s of CPU.

`ForkedWorkers` is a plugin of the run that starts the workers; `collect` is the life of the process
that forks. Without this process, as on other systems than Linux, each worker collects for itself.
"""

from __future__ import annotations

import array
import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import execnet
import pytest
from _pytest.capture import FDCapture
from _pytest.config import _prepareconfig
from execnet.gateway_io import popen_bootstrapline
from fakes.warm_python import fork_sibling

_COLLECT = f"import sys; sys.path[:0] = {[str(Path(__file__).parent)]}; import forked_workers as w; w.collect()"
_sessions: list[pytest.Session] = []
"""In the process that forks: the session that has collected the tests."""


class ForkedWorkers:
    """Starts the workers as forks. `pytest_xdist_setupnodes` is called before the first one."""

    def __init__(self) -> None:
        self._socket, self._theirs = socket.socketpair()
        self._fork_exec = subprocess._fork_exec
        self._is_ready = False

    def pytest_xdist_setupnodes(self, config: pytest.Config) -> None:
        words = json.dumps([str(word) for word in config.invocation_params.args])
        command = [sys.executable, "-c", _COLLECT, str(self._theirs.fileno()), words]
        self._process = subprocess.Popen(
            command, pass_fds=[self._theirs.fileno()], stdout=subprocess.DEVNULL
        )
        self._theirs.close()
        # Where the tests cannot be collected, each worker tries it again, and reports why.
        self._is_ready = bool(self._socket.recv(1))
        if self._is_ready:
            subprocess._fork_exec = self._start

    def pytest_xdist_getremotemodule(self) -> str | None:
        """What each worker executes; None: what xdist's workers do otherwise."""
        return (
            "import forked_workers; forked_workers.run_tests(channel)" if self._is_ready else None
        )

    def pytest_unconfigure(self) -> None:
        subprocess._fork_exec = self._fork_exec
        self._socket.close()
        self._process.wait()

    def _start(self, args: list[str], *more: Any) -> int:
        """Start a program; a worker as a fork, whose standard input and output are pipes."""
        if os.fsdecode(args[-1]) != popen_bootstrapline:
            return self._fork_exec(args, *more)
        pipes = array.array("i", (more[5], more[8]))
        self._socket.sendmsg([b"f"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, pipes)])
        number = self._socket.recv(4, socket.MSG_WAITALL)
        assert number, "the process that forks has ended"
        return int.from_bytes(number, "big")


def collect() -> None:
    """Collect the tests as a worker does, and fork workers instead of running the tests."""
    number, words = sys.argv[1:]
    del sys.argv[1:]
    forks = _Forks(socket.socket(fileno=int(number)))
    config = _prepareconfig(json.loads(words), [forks])
    import xdist.remote  # pytest rewrites the assertions of a plugin, but not after its import

    xdist.remote.setup_config(config, None)
    config.workerinput = {"workerid": "forks"}
    config.workeroutput = {}
    config.hook.pytest_cmdline_main(config=config)


class _Forks:
    """Forks a worker for each request, until the other side closes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> NoReturn:
        threads = list(Path("/proc/self/task").iterdir())
        if session.testsfailed or len(threads) > 1:
            os._exit(1)
        _sessions.append(session)
        _capture(session.config).suspend_global_capture(in_=True)
        self._connection.sendall(b"1")
        while True:
            data, ancillary, _, _ = self._connection.recvmsg(1, socket.CMSG_SPACE(2 * 4))
            if not data:
                os._exit(0)
            pipes = array.array("i", ancillary[0][2])
            if not (number := fork_sibling()):
                self._connection.close()
                _serve_worker(pipes)
            for pipe in pipes:
                os.close(pipe)
            self._connection.sendall(number.to_bytes(4, "big"))


def _capture(config: pytest.Config) -> Any:
    return config.pluginmanager.getplugin("capturemanager")


def _capture_apart(config: pytest.Config) -> None:
    """Capture output in files that no other worker has. Modules may hold the streams of the files
    that the process had when it collected the tests, so these streams stay open.
    """
    capture = _capture(config)
    for stream in (capture._global_capturing.out, capture._global_capturing.err):
        if isinstance(stream, FDCapture):
            with tempfile.TemporaryFile() as file:
                os.dup2(file.fileno(), stream.tmpfile.fileno(), inheritable=False)
    capture.resume_global_capture()


def _serve_worker(pipes: array.array[int]) -> NoReturn:
    """The life of a worker: do what execnet asks for, which is `run_tests`."""
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    exec(eval(sys.stdin.readline()), {"__name__": "__main__"})
    atexit._run_exitfuncs()
    os._exit(0)


def run_tests(channel: execnet.Channel) -> None:
    """Run tests as `xdist.remote` does, with the session that has collected them."""
    import xdist.remote

    workerinput, _, options, _ = channel.receive()
    os.environ["PYTEST_XDIST_TESTRUNUID"] = workerinput["testrunuid"]
    os.environ["PYTEST_XDIST_WORKER"] = workerinput["workerid"]
    os.environ["PYTEST_XDIST_WORKER_COUNT"] = str(workerinput["workercount"])
    [session] = _sessions
    config = session.config
    config.workerinput = workerinput
    config.option.basetemp = options["basetemp"]
    config._tmp_path_factory._given_basetemp = Path(options["basetemp"])
    interactor = xdist.remote.interactor = xdist.remote.WorkerInteractor(config, channel)
    _capture_apart(config)
    interactor.pytest_sessionstart(session)
    interactor.pytest_collection_finish(session)
    interactor.pytest_runtestloop(session)
    session.exitstatus = pytest.ExitCode.TESTS_FAILED if session.testsfailed else pytest.ExitCode.OK
    config.hook.pytest_sessionfinish(session=session, exitstatus=session.exitstatus)
    config._ensure_unconfigure()
