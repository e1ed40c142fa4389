"""Starts ouro as a fork of a process that has imported it: a start takes 0.2 to 0.6 s of CPU, most
of it imports.

Tests use `subprocess` and `pexpect` as usual. The started process is a child of the test with its
own session, folder, environment and terminal. A start that a fork cannot imitate is cold: other
options of Python, variables that Python reads at its start, a file in the folder named like an
imported module, and TEST_COLD_STARTS in the environment. Only after a cold start a process makes
missing vectors.
"""

from __future__ import annotations

import array
import asyncio
import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import kingfisher_sdk
from ptyprocess import PtyProcess

if TYPE_CHECKING:
    from textual.css.model import RuleSet
    from textual.css.stylesheet import Stylesheet

TESTS = Path(__file__).parents[1]
MODULES = {
    "ouro",
    "ouro.lsp.worker",
    "ouro.mcp.worker",
    "fakes.killed_sessions",
    "fakes.screen_program",
    "fakes.repl_program",
}
"""Modules that are started warm, as `python [-P] -m MODULE`."""
LITELLM_MODULES = {"ouro.llm.litellm_worker", "fakes.litellm_bridge"}
"""Those that a second process starts, which has imported litellm: that takes 3 s, and few tests use
it.
"""
DASK_MODULES = {"distributed.cli.dask_scheduler", "distributed.cli.dask_worker"}
"""Those that a third process starts."""
WARM = "# may be started warm\n"
"""The first line of code that `python -c CODE` starts warm, too."""
IMPORTED_LATE = (
    "aiofiles", "anyio._backends._asyncio", "certifi", "git", "h2.connection", "markdown_it",
    "prompt_toolkit.key_binding.bindings.search", "pygments.lexers.python", "rapidfuzz.process", "rich.markdown",
    "sqlite3", "yaml",
)  # fmt: skip
"""Imported by ouro's modules at first use."""
COLD = "TEST_COLD_STARTS"
HOST_FLAG = "--background-host"
"""The flag of a host of a background session, which may be started by a warm process, and then is
warm, too.
"""
CLONE_PARENT = 0x8000
CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine) if sys.platform == "linux" else None
"""The number of the system call. Python's own fork cannot make a child of the parent, which the
test waits for.
"""


class _Command(NamedTuple):
    argv: list[str]
    folder: str
    environment: dict[str, str]

    @property
    def is_safe(self) -> bool:
        """Whether the command imports nothing from its folder."""
        return self.argv[1:2] == ["-P"]

    @property
    def words(self) -> list[str]:
        """The words of the command line from `-m` or `-c` on."""
        return self.argv[2:] if self.is_safe else self.argv[1:]


class WarmPython:
    """A process that forks.

    Args:
        imported: what it imports: `ouro`, `litellm` or `dask`.
    """

    def __init__(self, imported: str) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno()), imported],
            pass_fds=[theirs.fileno()], cwd=TESTS.parent, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        theirs.close()
        self.imported = frozenset(json.loads(self._socket.makefile().readline()))

    def start(self, command: _Command, fds: Sequence[int], is_session: bool) -> int:
        """Fork, with these as standard input, output and error; returns the number of the process."""
        with self._lock:
            return _ask(self._socket, command, fds, is_session)

    def stop(self) -> None:
        self._socket.close()
        self._process.wait()


def _ask(connection: socket.socket, command: _Command, fds: Sequence[int], is_session: bool) -> int:
    """Ask the process that forks for a process; returns its number."""
    data = json.dumps([command, is_session]).encode()
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
    connection.sendmsg([len(data).to_bytes(4, "big")], [rights])
    connection.sendall(data)
    number = connection.recv(4, socket.MSG_WAITALL)
    assert number, "the process that forks has ended"
    return int.from_bytes(number, "big")


@contextlib.contextmanager
def warm_starts() -> Iterator[None]:
    """Start processes warm within this context, if possible."""
    starts = _Starts()
    fork_exec, spawn = subprocess._fork_exec, PtyProcess.spawn

    def in_terminal(
        argv, cwd=None, env=None, echo=True, preexec_fn=None, dimensions=(24, 80), **more
    ):
        command = _command(argv, cwd, env)
        if not echo or preexec_fn is not None or not starts.is_warm(command):
            return spawn(argv, cwd, env, echo, preexec_fn, dimensions, **more)
        ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, dimensions)
        process = PtyProcess(starts.process(command).start(command, [theirs] * 3, True), ours)
        os.close(theirs)
        return process

    subprocess._fork_exec, PtyProcess.spawn = _or_cold(starts.start_in_pipes), in_terminal
    try:
        yield
    finally:
        subprocess._fork_exec, PtyProcess.spawn = fork_exec, spawn
        starts.stop()


def _or_cold(
    start_warm: Callable[[_Command, Sequence[int], bool], int | None],
) -> Callable[..., int]:
    """`subprocess._fork_exec` that starts warm what it can. Nothing else changes.

    Args:
        start_warm: starts a command with standard input, output and error, and returns the number
            of the process; None if its start must be cold.
    """
    fork_exec = subprocess._fork_exec

    def start(args, executables, close_fds, keep, cwd, env, *more):
        pipes, error_pipe, (is_session, *special) = (more[0], more[3], more[5]), more[7], more[9:]
        is_plain = (
            close_fds and keep == (error_pipe,) and special[:6] == [-1, None, None, None, -1, None]
        )
        if is_plain:
            fds = [number if fd == -1 else fd for number, fd in enumerate(pipes)]
            process = start_warm(_command(args, cwd, env), fds, bool(is_session))
            if process is not None:
                return process
        return fork_exec(args, executables, close_fds, keep, cwd, env, *more)

    return start


def _command(args: Sequence[str | bytes], cwd: object, env: object) -> _Command:
    argv = [os.fsdecode(word) for word in args]
    return _Command(argv, os.fsdecode(cwd or Path.cwd()), _environment(env))


class _Starts:
    def __init__(self) -> None:
        self._processes: dict[str, WarmPython] = {}
        self._lock = threading.Lock()

    def start_in_pipes(self, command: _Command, fds: Sequence[int], is_session: bool) -> int | None:
        if not self.is_warm(command):
            return None
        return self.process(command).start(command, fds, is_session)

    def process(self, command: _Command) -> WarmPython:
        """The process that forks for a command."""
        imported = _imported_for(command.words[1])
        with self._lock:
            if imported not in self._processes:
                self._processes[imported] = WarmPython(imported)
            return self._processes[imported]

    def is_warm(self, command: _Command) -> bool:
        """Whether a fork can imitate the start."""
        is_ours = (
            command.words[:1] == ["-m"]
            and command.words[1] in MODULES | LITELLM_MODULES | DASK_MODULES
        )
        is_code = command.words[:1] == ["-c"] and command.words[1].startswith(WARM)
        if CLONE is None or command.argv[0] != sys.executable or not (is_ours or is_code):
            return False
        if _read_by_python(command.environment):
            return False
        return command.is_safe or not self._hides_modules(command)

    def _hides_modules(self, command: _Command) -> bool:
        """Whether a file in the folder has the name of an imported module."""
        folder = Path(command.folder)
        names = {path.name.partition(".")[0] for path in folder.iterdir()}
        is_known = folder in (TESTS, TESTS.parent)
        return not is_known and bool(names & self.process(command).imported)

    def stop(self) -> None:
        for process in self._processes.values():
            process.stop()


def _imported_for(module_or_code: str) -> str:
    """What the process has imported that forks for this module or code."""
    if module_or_code in LITELLM_MODULES:
        return "litellm"
    return "dask" if module_or_code in DASK_MODULES else "ouro"


def _environment(env: object) -> dict[str, str]:
    """The environment that `subprocess` would pass to the process."""
    if env is None:
        return dict(os.environ)
    return (
        dict(env)
        if isinstance(env, Mapping)
        else dict(os.fsdecode(pair).split("=", 1) for pair in env)
    )


def _read_by_python(environment: Mapping[str, str]) -> bool:
    """Whether a variable is set that Python or textual reads at start."""
    read = {
        item
        for item in environment.items()
        if re.match(f"PYTHON[A-Z]|TEXTUAL_(?!SNAPSHOT)|{COLD}", item[0])
    }
    return not {("PYTHONUTF8", "1")} <= read <= {("PYTHONUTF8", "1"), ("PYTHONPATH", str(TESTS))}


def _serve(connection: socket.socket, imported: str) -> NoReturn:
    """Fork for each request, until the other side closes."""
    sys.path[0] = str(TESTS.parent)
    gc.disable()  # during the imports it takes a fifth of their time
    if imported == "litellm":
        _import_litellm()
    elif imported == "dask":
        _import_dask()
    else:
        _import_all()
        _load_rules()
        _make_no_vectors()
        asyncio.run(_show_screen())
        _compile_patterns()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, (
        "the threads of a process are not forked with it"
    )
    gc.freeze()  # with the garbage of the imports: to find it takes 0.2 s
    gc.enable()
    connection.sendall(
        json.dumps(sorted({name.partition(".")[0] for name in sys.modules})).encode() + b"\n"
    )
    _fork_for(connection)


def _fork_for(tests: socket.socket) -> NoReturn:
    """Fork children of the tests, and hosts of sessions for what was forked before."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a host
    with socket.socket(socket.AF_UNIX) as forks:
        forks.bind("")  # the system chooses a name that is no path
        forks.listen()
        while True:
            ready, _, _ = select.select([tests, forks], [], [])
            if tests in ready:
                _fork(tests, CLONE_PARENT, forks)
            if forks in ready:
                with forks.accept()[0] as fork:
                    _fork(fork, 0, forks)


def _fork(connection: socket.socket, flags: int, forks: socket.socket) -> None:
    """Answer a request. The process ends when the tests close their connection.

    Args:
        flags: of `clone`: whose child the process is.
        forks: where forks can ask for further processes.
    """
    size, ancillary, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(3 * 4))
    if not size:
        os._exit(0)  # clearing the imported modules takes half a second
    fds = array.array("i", ancillary[0][2])
    data = connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    command, is_session = json.loads(data)
    if not (number := _clone(flags)):
        subprocess._fork_exec = _or_cold(functools.partial(_start_host, forks.getsockname()))
        for own in (connection, forks):
            own.detach()  # `_run` closes all files
        os._exit(_run(_Command(*command), fds, is_session))
    for fd in fds:
        os.close(fd)
    connection.sendall(number.to_bytes(4, "big"))


def _start_host(
    address: bytes, command: _Command, fds: Sequence[int], is_session: bool
) -> int | None:
    """Start the host of a background session as a fork, without its vectors. It is no child of this
    process, which does not wait for it. Everything else is started cold: returns None.
    """
    is_host = command.argv == [sys.executable, "-P", "-m", "ouro", HOST_FLAG]
    if not is_host or _read_by_python(command.environment):
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        return _ask(connection, command, fds, is_session)


def _import_litellm() -> None:
    from ouro.llm.litellm_worker import load_litellm

    load_litellm()
    for name in ("starlette.applications", "uvicorn"):
        importlib.import_module(name)


def _import_dask() -> None:
    for name in DASK_MODULES:
        importlib.import_module(name)


def _import_all() -> None:
    import ouro

    own = (found.name for found in pkgutil.walk_packages(ouro.__path__, "ouro."))
    for name in (*IMPORTED_LATE, *own):
        if not name.endswith("__main__"):
            importlib.import_module(name)


def _load_rules() -> None:
    """Load the compiled rules of the secret scanner: this takes 0.3 s, and all homes with rules
    have the same.
    """
    real, loaded = kingfisher_sdk.Rules, kingfisher_sdk.Rules()

    def rules(cache_dir: Path | None = None) -> kingfisher_sdk.Rules:
        is_compiled = cache_dir is None or any(Path(cache_dir).glob("*.vscdb"))
        return loaded if is_compiled else real(cache_dir=cache_dir)

    kingfisher_sdk.Rules = rules


def _make_no_vectors() -> None:
    """Leave out the process that makes missing vectors after a turn, as in the process of the
    tests: it takes up to 1.5 s of CPU. The tests of vectors start it.
    """
    from ouro.memory.index.lookup import Lookup

    Lookup._start_process = lambda _lookup: None


async def _show_screen() -> None:
    """Show an empty screen, which parses the style sheets: this takes a tenth of the CPU of a start
    of the full screen.
    """
    from textual.css.stylesheet import Stylesheet

    from ouro.frontends.tui.app import OuroApp
    from ouro.frontends.tui.screen_settings import ScreenSettings
    from ouro.frontends.tui.session_start import SessionStart
    from ouro.session import OpenRequest

    async def open_session(_request: OpenRequest) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError

    Stylesheet._parse_rules = parse_once(Stylesheet._parse_rules)
    start = SessionStart(open_session, OpenRequest(), "")
    async with OuroApp(start, ScreenSettings()).run_test():
        pass


def parse_once(parse: Callable[..., list[RuleSet]]) -> Callable[..., list[RuleSet]]:
    """`Stylesheet._parse_rules` that parses each style sheet once."""
    parsed: dict[tuple[object, ...], list[RuleSet]] = {}

    def parse_or_find(sheet: Stylesheet, *arguments: object, **named: object) -> list[RuleSet]:
        key = (tuple(sheet._variables.items()), arguments, tuple(named.items()))
        if key not in parsed:
            parsed[key] = parse(sheet, *arguments, **named)
        return parsed[key]

    return parse_or_find


def _compile_patterns() -> None:
    """Compile the patterns that are compiled at their first use: this takes a tenth of the CPU of a
    headless turn. `pattern_of_group` has those of what users say about memory.
    """
    from ouro.memory.long_term.statement_patterns import TABLE, pattern_of_group
    from ouro.utils.late_pattern import late_pattern

    kind = type(late_pattern(""))
    for found in gc.get_objects():
        if type(found) is kind:
            found.pattern  # noqa: B018
    for row in TABLE:
        pattern_of_group(row.group)


def _clone(flags: int) -> int:
    """Fork; with CLONE_PARENT the child is a sibling."""
    python = ctypes.pythonapi
    call = ctypes.PyDLL(None).syscall
    python.PyOS_BeforeFork()
    number = call(CLONE, flags | signal.SIGCHLD, 0, 0, 0, 0)
    (python.PyOS_AfterFork_Parent if number else python.PyOS_AfterFork_Child)()
    return number


def _run(command: _Command, fds: Sequence[int], is_session: bool) -> int:
    """The life of the forked process; returns its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if is_session:
        os.setsid()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    os.closerange(3, max(fds) + 1)
    if is_session and os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(command.folder)
    os.environ.clear()
    os.environ.update(command.environment)
    paths = ["" if command.is_safe else command.folder, command.environment.get("PYTHONPATH", "")]
    sys.path[0:1] = filter(None, paths)
    sys.orig_argv[:] = command.argv
    sys.argv = command.words[:1] + command.words[2:]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        file = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115
        is_line_wise = number == 2 or os.isatty(number)
        errors = "backslashreplace" if number == 2 else "surrogateescape"
        stream = io.TextIOWrapper(file, "utf-8", errors, line_buffering=is_line_wise)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    code = _exit_code(*command.words[:2])
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return code or 120
    return code


def _exit_code(option: str, what: str) -> int:
    """Run a module or code; returns the exit code that Python would have."""
    try:
        if option == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(what, {"__name__": "__main__"})
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
