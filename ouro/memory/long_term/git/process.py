"""Run git on a memory's repository so that neither planted files nor user settings can start
another program.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import (
    DEVNULL,
    PIPE,
    CompletedProcess,
    Popen,
    SubprocessError,
    TimeoutExpired,
    run,
)
from types import SimpleNamespace

from ouro.errors import MemoryUnusable
from ouro.utils.late_pattern import late_pattern
from ouro.utils.runtime import send_signal
from ouro.utils.text import clean

Ended = CompletedProcess[bytes]
OnWait = Callable[[float], None]
"""Called several times a second with the seconds that a command runs; an exception from it ends the
command, with all its processes.
"""
# A commit is on disk when the command returns. The temporary pack of fast-import need not be.
# `none` comes last: in front of others git 2.39 does not know it, warns, and flushes the pack, too.
_DURABLE_COMMIT = ("-c", "core.fsync=loose-object,reference,none")
DURABLE_PACKS = ("-c", "core.fsync=committed,loose-object,reference")
"""Options in front of a subcommand that makes permanent packs."""
FAST_COMMIT = ("-c", "core.compression=0")
"""Options in front of `fast-import` of one commit: to compress the tree of 10,000 notes twice takes
55 ms, to write it uncompressed 20 ms. Its objects are compressed when they are packed.
"""
_FLAGS = (
    "--no-pager",
    "--literal-pathspecs",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.attributesFile=/dev/null",
    "-c",
    "core.excludesFile=/dev/null",
    "-c",
    "core.autocrlf=false",
    *_DURABLE_COMMIT,
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
    "-c",
    "core.logAllRefUpdates=false",
    "-c",
    "log.showSignature=false",
    "-c",
    "log.mailmap=false",
    "-c",
    "mailmap.file=/dev/null",
    "-c",
    "diff.external=",
    "-c",
    "i18n.logOutputEncoding=UTF-8",
    "-c",
    "core.commitGraph=false",
    "-c",
    "core.splitIndex=false",
    "-c",
    "core.untrackedCache=false",
)
_REMOTE_FLAGS = (
    "--no-pager",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
    "-c",
    "fetch.recurseSubmodules=false",
    "-c",
    "core.logAllRefUpdates=false",
)
_ALWAYS = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
}
_LOCAL = {
    **_ALWAYS,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_GRAFT_FILE": "/dev/null",
    "GIT_AUTHOR_NAME": "ouro",
    "GIT_AUTHOR_EMAIL": "ouro@localhost",
    "GIT_COMMITTER_NAME": "ouro",
    "GIT_COMMITTER_EMAIL": "ouro@localhost",
}
_USER_VARIABLES = {
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_ASKPASS",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_CONFIG_GLOBAL",
    "GIT_PROXY_COMMAND",
}
_MISSING = ("git is not installed.", "Install git. Changes made until then are committed later.")
_LAST_SECOND = 4_000_000_000.0
_TIMEOUT = 15.0
_SLOW_TIMEOUT = 300.0
"""Seconds for commands that read or write a whole history."""
_SLOW = {"cat-file", "fast-export", "fast-import", "fsck", "prune", "repack"}
_PAUSE = 60.0
"""Seconds after a timeout during which git is not started: each try would cost another timeout."""
_REMOTE_TIMEOUT = 120.0
_WAIT_STEP = 0.2
"""Seconds between two calls of `OnWait`."""
_MAX_REASONS = 2
"""Lines of git's output that are shown."""
_NOT_A_REASON = late_pattern(
    r"To |From |hint:|fatal: Could not read from remote|fatal: the remote end hung up|error: failed"
    r" to push some refs|"
    r"fatal: fetch-pack: invalid index-pack output|Please make sure you have the correct|and the"
    r" repository exists"
)
_LABEL = late_pattern(r"(?:(?:remote|fatal|error): *)*(?:! \[[\w ]+\] \S+ -> )?")
_PASSWORD = late_pattern(r"(?<=://)[^/@\s]*@")
_pause = SimpleNamespace(until=0.0)
"""The time until which git is not started, because it did not answer."""
_HANGS = (
    f"git did not answer in {_TIMEOUT:.0f} seconds: ouro continues without it for a minute at a"
    " time."
)
_HANGS_HINT = "Check `git version` and the disk. Changes made until then are committed later."


def run_git(
    git_dir: Path,
    common_dir: Path,
    arguments: Sequence[str],
    given: bytes,
    index: Path | None,
    keep: Sequence[int],
) -> Ended:
    """Run git and return its result with any exit code; raises MemoryUnusable if it is missing or
    takes too long.

    Args:
        common_dir: where git reads configuration, hooks and attributes instead of `git_dir`.
        index: another index than the repository's own.
        keep: descriptors that git inherits.
    """
    environment = {**_LOCAL, "GIT_COMMON_DIR": str(common_dir)} | (
        {"GIT_INDEX_FILE": str(index)} if index else {}
    )
    command = ["git", f"--git-dir={git_dir}", f"--work-tree={git_dir}", *_FLAGS, *arguments]
    if time.monotonic() < _pause.until:
        raise MemoryUnusable(_HANGS, _HANGS_HINT)
    try:
        # GitPython asks for git's version when it is imported, without a timeout.
        if "git.cmd" not in sys.modules:
            with suppress(OSError):  # GitPython reports that git is missing
                run(
                    ["git", "version"],
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    stderr=DEVNULL,
                    timeout=_TIMEOUT,
                    check=False,
                )
        timeout = _SLOW_TIMEOUT if _SLOW & {*arguments} else _TIMEOUT
        return _execute(command, git_dir, environment, given, timeout, keep)
    except TimeoutExpired as error:
        _pause.until = time.monotonic() + _PAUSE
        raise MemoryUnusable(_HANGS, _HANGS_HINT) from error


def run_remote_git(
    git_dir: Path,
    common_dir: Path,
    arguments: Sequence[str],
    max_bytes: int,
    timeout: float = 0,
    on_wait: OnWait | None = None,
) -> Ended:
    """As `run_git`, for a command that contacts a remote.

    It uses the user's own settings and agents (keys, credentials, proxies), but neither hooks nor
    transports that run a program named in a URL, and it does not ask for a password. If one file
    has more than `max_bytes` it fails with "File too large"; 0 is no limit. `timeout` is in
    seconds; 0: the usual one.
    """
    own = {name: value for name, value in os.environ.items() if name in _USER_VARIABLES}
    allowed = {"GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh", "GIT_COMMON_DIR": str(common_dir)}
    command = ["git", f"--git-dir={git_dir}", *_REMOTE_FLAGS, *arguments]
    timeout = timeout or _REMOTE_TIMEOUT
    if max_bytes:
        # A shell sets it: between fork and exec Python is not safe with threads. Without the trap
        # git dies silently.
        command = [
            "sh",
            "-c",
            'trap "" XFSZ; ulimit -f "$0"; exec "$@"',
            str(max_bytes // 512),
            *command,
        ]
    try:
        variables = {**own, **_ALWAYS, **allowed}
        return _execute(command, git_dir, variables, b"", timeout, on_wait=on_wait)
    except TimeoutExpired as error:
        text = f"git did not answer in {timeout:.0f} seconds."
        raise MemoryUnusable(text, "Check the remote and the network, then try again.") from error


def _execute(
    command: list[str],
    folder: Path,
    variables: dict[str, str],
    given: bytes,
    timeout: float,
    keep: Sequence[int] = (),
    on_wait: OnWait | None = None,
) -> Ended:
    """Run a command with GitPython in its own process group, which a timeout or an interrupt kills
    completely.

    Raises TimeoutExpired; MemoryUnusable if there is no git.
    """
    try:
        from git.cmd import Git  # 150 ms
        from git.exc import GitCommandNotFound
    except ImportError as error:  # GitPython looks for git
        raise MemoryUnusable(*_MISSING) from error
    # GitPython extends the environment of ouro. `env` removes variables that another git has set
    # there.
    foreign = [name for name in os.environ if name.startswith("GIT_") and name not in variables]
    if foreign:
        command = ["env", *(word for name in foreign for word in ("-u", name)), *command]
    try:
        running = Git(folder).execute(
            command,
            istream=PIPE,
            as_process=True,
            env=variables,
            shell=False,
            start_new_session=True,
            pass_fds=keep,
        )
    except GitCommandNotFound as error:
        raise MemoryUnusable(*_MISSING) from error
    except (OSError, SubprocessError, ValueError) as error:
        raise MemoryUnusable(f"git could not be run: {error}") from error
    process = running.proc
    assert process is not None
    try:
        if on_wait is None:
            output, errors = process.communicate(given, timeout)
        else:
            output, errors = _communicate(process, given, timeout, on_wait)
    except BaseException:
        # Also ssh, which would wait for a silent remote.
        send_signal(process.pid, signal.SIGKILL, group=True)
        process.wait()
        raise
    if process.returncode == 127 and command[0] == "env":
        raise MemoryUnusable(*_MISSING)
    return CompletedProcess(command, process.returncode, output, errors)


def _communicate(
    process: Popen[bytes], given: bytes, timeout: float, on_wait: OnWait
) -> tuple[bytes, bytes]:
    """The output of a process; raises TimeoutExpired, and what `on_wait` raises."""
    began = time.monotonic()
    while True:
        try:
            return process.communicate(given, _WAIT_STEP)
        except TimeoutExpired:
            seconds = time.monotonic() - began
            if seconds >= timeout:
                raise
            on_wait(seconds)


def import_stream(
    ref: str,
    parents: Sequence[str],
    changes: Mapping[str, bytes | None],
    message: str,
    at: float = 0,
    who: str = "",
) -> bytes:
    """The input of `git fast-import` for one commit on a branch, on top of its parents (none: the
    first commit).

    git prints the id of the commit.

    Args:
        at: the time of the commit by ouro, in seconds since 1970.
        who: another committer, with the time, as `git var GIT_COMMITTER_IDENT` prints it.
    """
    # The clock may be wrong; git and Python read no dates outside of this range.
    at = min(max(at, 0), _LAST_SECOND)
    who = who or f"ouro <ouro@localhost> {int(at)} {time.strftime('%z', time.localtime(at))}"
    parts = [
        b"commit ",
        ref.encode(),
        b"\nmark :1\ncommitter ",
        who.encode(),
        b"\n",
        _data(message.encode()),
    ]
    for word, parent in zip((b"from ", b"merge "), parents, strict=False):
        parts += [word, parent.encode(), b"\n"]
    for name, content in sorted(changes.items(), key=lambda change: change[0]):
        quoted = b'"%s"' % os.fsencode(name).replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        parts += (
            [b"D ", quoted, b"\n"]
            if content is None
            else [b"M 100644 inline ", quoted, b"\n", _data(content)]
        )
    return b"".join([*parts, b"\nget-mark :1\ndone\n"])


def _data(content: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(content), content)


def last_line(output: bytes) -> str:
    """The last line that git printed, for an error message."""
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "no reason given"


def remote_failure(remote: str, output: bytes) -> tuple[str, str]:
    """Why git could not reach a remote, from its output, in one line without passwords; and what to
    do.
    """
    lines = [line.strip() for line in output.decode(errors="replace").splitlines()]
    words = [
        _LABEL.sub("", line, count=1).rstrip(".") for line in lines if not _NOT_A_REASON.match(line)
    ]
    reasons = (
        list(dict.fromkeys(filter(None, words)))[:_MAX_REASONS]
        or lines[-1:]
        or ["git gave no reason"]
    )
    is_folder = Path(remote).is_absolute() and b"does not appear to be a git repository" in output
    what = (
        f", or make it with `git init --bare {remote}`" if is_folder else " when it can be reached"
    )
    return without_password("; ".join(reasons))[:300], f"What is here is kept. Try again{what}."


def without_password(address: str) -> str:
    """A text with the addresses of remotes in it as they may be shown: without passwords."""
    return _PASSWORD.sub("", clean(address))
