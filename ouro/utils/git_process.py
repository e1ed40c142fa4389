"""Run git: the only place that starts it, with one table of what it may do for whom.

A repository that ouro did not write can name programs in its settings, hooks and attributes. The
user's own settings can change what git writes. Each line of the tables below closes one such way;
the lines of a profile are all that protects ouro there (`docs/threats.md`, F1 and M7).
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum, auto
from io import BufferedReader
from pathlib import Path

from ouro.utils.processes import send_signal

GitResult = subprocess.CompletedProcess[bytes]
"""What git printed, and its exit code."""
OnWait = Callable[[float], None]
"""Called several times a second with the seconds that a command runs; an exception from it ends the
command, with all its processes.
"""
_PIECE = 1 << 18
"""Bytes of output that are read at once."""
_WAIT_STEP = 0.2
"""Seconds between two calls of `OnWait`."""


class GitProfile(Enum):
    """Whose repository git works on."""

    USER = auto()
    """A repository of the user, perhaps cloned from a stranger: with the user's own settings."""
    FETCH = auto()
    """A repository that is copied from an address: a plugin, a task of a batch."""
    CHECKPOINTS = auto()
    """Checkpoints: ouro's own repository with the user's files as its work tree."""
    MEMORY = auto()
    """The history of a memory folder, in which any program may have planted files."""
    REMOTE = auto()
    """The same history with a remote, which needs the keys and proxies of the user."""


_USER, _FETCH, _CHECKPOINTS, _MEMORY, _REMOTE = (
    GitProfile.USER,
    GitProfile.FETCH,
    GitProfile.CHECKPOINTS,
    GitProfile.MEMORY,
    GitProfile.REMOTE,
)
_ALL = frozenset(GitProfile)
# Whose repositories the profiles are for: the user's, ouro's own, and all but the user's.
_OF_USER = frozenset({_USER, _FETCH})
_OWN = frozenset({_CHECKPOINTS, _MEMORY})
_NOT_OF_USER = frozenset({_CHECKPOINTS, _MEMORY, _REMOTE})
_Row = tuple[str, frozenset[GitProfile]]
"""An option, setting or variable, and the profiles that have it."""

_OPTIONS: tuple[_Row, ...] = (
    # Reading must not write: another git may hold the lock of the index.
    ("--no-optional-locks", _OF_USER),
    # A pager is a program.
    ("--no-pager", _ALL - {_CHECKPOINTS}),
    # Names of notes are names, not patterns.
    ("--literal-pathspecs", frozenset({_MEMORY})),
)
_SETTINGS: tuple[_Row, ...] = (
    # Programs that the repository can name.
    ("core.hooksPath=/dev/null", _ALL),
    ("core.fsmonitor=false", _ALL - {_REMOTE}),
    ("log.showSignature=false", _OF_USER | {_MEMORY}),
    ("diff.external=", frozenset({_MEMORY})),
    ("commit.gpgSign=false", frozenset({_CHECKPOINTS})),
    ("filter.lfs.process=", frozenset({_FETCH})),
    ("filter.lfs.smudge=", frozenset({_FETCH})),
    ("fetch.recurseSubmodules=false", frozenset({_REMOTE})),
    # Files that would change what is read or written.
    ("core.attributesFile=/dev/null", _OWN),
    ("core.excludesFile=/dev/null", _OWN),
    ("mailmap.file=/dev/null", frozenset({_MEMORY})),
    ("log.mailmap=false", frozenset({_MEMORY})),
    ("core.commitGraph=false", frozenset({_MEMORY})),
    # Bytes stay as they are.
    ("core.autocrlf=false", _OWN),
    ("core.safecrlf=false", frozenset({_CHECKPOINTS})),
    ("core.quotePath=false", frozenset({_CHECKPOINTS})),
    ("core.fileMode=true", frozenset({_CHECKPOINTS})),
    ("core.symlinks=true", frozenset({_CHECKPOINTS})),
    ("i18n.logOutputEncoding=UTF-8", frozenset({_MEMORY})),
    # One index, in the format that ouro reads.
    ("core.splitIndex=false", _OWN),
    ("core.untrackedCache=true", frozenset({_CHECKPOINTS})),
    ("core.untrackedCache=false", frozenset({_MEMORY})),
    # No process stays behind, and no log holds what was forgotten.
    ("gc.auto=0", _NOT_OF_USER),
    ("maintenance.auto=false", _NOT_OF_USER),
    ("core.logAllRefUpdates=false", _NOT_OF_USER),
    # Checkpoints may be lost in a power failure. A commit of memory is on disk when the command
    # returns; the temporary pack of fast-import need not be. `none` comes last: in front of others
    # git 2.39 does not know it, warns, and flushes the pack, too.
    ("core.fsync=none", frozenset({_CHECKPOINTS})),
    ("core.fsync=loose-object,reference,none", frozenset({_MEMORY})),
    ("core.compression=1", frozenset({_CHECKPOINTS})),
    ("user.name=ouro", frozenset({_CHECKPOINTS})),
    ("user.email=ouro@localhost", frozenset({_CHECKPOINTS})),
)
_VARIABLES: tuple[_Row, ...] = (
    # A question would block: there may be no terminal, or the screen has it.
    ("GIT_TERMINAL_PROMPT=0", _ALL),
    # A transport is a program, and programs that the repository names would fetch a missing object.
    ("GIT_NO_LAZY_FETCH=1", _ALL),
    ("GIT_ALLOW_PROTOCOL=none", frozenset({_USER, _CHECKPOINTS, _MEMORY})),
    ("GIT_ALLOW_PROTOCOL=https:ssh:file", frozenset({_FETCH})),
    ("GIT_ALLOW_PROTOCOL=file:git:http:https:ssh", frozenset({_REMOTE})),
    ("GIT_LFS_SKIP_SMUDGE=1", frozenset({_FETCH})),
    # Settings of the user and of the system.
    ("GIT_CONFIG_NOSYSTEM=1", _OWN),
    ("GIT_CONFIG_GLOBAL=/dev/null", _OWN),
    ("GIT_ATTR_NOSYSTEM=1", _OWN),
    # A commit is what its id names, not what a planted ref or file puts in its place.
    ("GIT_NO_REPLACE_OBJECTS=1", _NOT_OF_USER),
    ("GIT_GRAFT_FILE=/dev/null", frozenset({_MEMORY})),
    ("GIT_OPTIONAL_LOCKS=0", frozenset({_MEMORY})),
    ("GIT_LITERAL_PATHSPECS=1", frozenset({_CHECKPOINTS})),
    # ouro reads messages of git.
    ("LC_ALL=C", _NOT_OF_USER),
    ("GIT_AUTHOR_NAME=ouro", frozenset({_MEMORY})),
    ("GIT_AUTHOR_EMAIL=ouro@localhost", frozenset({_MEMORY})),
    ("GIT_COMMITTER_NAME=ouro", frozenset({_MEMORY})),
    ("GIT_COMMITTER_EMAIL=ouro@localhost", frozenset({_MEMORY})),
    # zlib allocates and frees 256 KB for each file. If the process keeps this memory, a first
    # checkpoint of 50,000 files takes 4.1 s of CPU instead of 5.6 (8.6 with git's default
    # compression).
    ("MALLOC_MMAP_THRESHOLD_=1000000000", frozenset({_CHECKPOINTS})),
    ("MALLOC_TRIM_THRESHOLD_=1000000000", frozenset({_CHECKPOINTS})),
    ("MALLOC_TOP_PAD_=10000000", frozenset({_CHECKPOINTS})),
)
_INHERITED: tuple[_Row, ...] = (
    # All other variables GIT_… are removed: a hook that starts ouro has set some for its own
    # repository (M6).
    ("GIT_CONFIG_NOSYSTEM", _OF_USER | {_REMOTE}),
    ("GIT_CONFIG_GLOBAL", _OF_USER | {_REMOTE}),
    ("GIT_CONFIG_SYSTEM", _OF_USER),
    ("GIT_CEILING_DIRECTORIES", _OF_USER),
    ("GIT_SSH", frozenset({_REMOTE})),
    ("GIT_SSH_COMMAND", frozenset({_REMOTE})),
    ("GIT_ASKPASS", frozenset({_REMOTE})),
    ("GIT_PROXY_COMMAND", frozenset({_REMOTE})),
)
_OWN_GROUP = _NOT_OF_USER
"""Profiles whose processes have their own group, which a time limit kills completely: also ssh. A
git of the user keeps the terminal, on which ssh may ask for a passphrase.
"""
_PRIVATE = frozenset({_CHECKPOINTS})
"""Profiles whose new files only the user can read."""


def command_line(
    profile: GitProfile, words: Sequence[str], places: Sequence[str] = ()
) -> list[str]:
    """A command line of git.

    Args:
        words: the subcommand and its arguments; options may be in front of it.
        places: where the repository is: `--git-dir=…`, `--work-tree=…`.
    """
    line = ["git", *places, *_lines_for(_OPTIONS, profile)]
    for setting in _lines_for(_SETTINGS, profile):
        line += ["-c", setting]
    return [*line, *words]


def environment(profile: GitProfile, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """All variables of a git process: the inherited ones, those of its profile, and `extra`, which
    count most.
    """
    inherited = set(_lines_for(_INHERITED, profile))
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name in inherited
    }
    for line in _lines_for(_VARIABLES, profile):
        name, _, value = line.partition("=")
        variables[name] = value
    return variables | dict(extra or {})


def start_git(
    profile: GitProfile,
    words: Sequence[str],
    folder: Path,
    *,
    places: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    keep: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    """Start git in a folder, with pipes; it inherits the descriptors `keep`. `places` are those of
    `command_line`, `variables` further ones of its environment (None: there are none).

    Raises:
        OSError, ValueError: it cannot be started.
    """
    return subprocess.Popen(
        command_line(profile, words, places),
        cwd=folder,
        env=environment(profile, variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        umask=0o077 if profile in _PRIVATE else -1,
        start_new_session=profile in _OWN_GROUP,
        pass_fds=keep,
    )


def finish_git(
    profile: GitProfile,
    process: subprocess.Popen[bytes],
    data: bytes,
    timeout: float,
    on_wait: OnWait | None = None,
) -> GitResult:
    """Give git its input, and wait for its end; returns its output, with any exit code. `on_wait`
    is called meanwhile; None: nothing is.

    Whatever interrupts this ends the process.

    Raises:
        TimeoutExpired: it took longer than `timeout` seconds.
    """
    try:
        if on_wait is None:
            output, errors = process.communicate(data, timeout)
        else:
            output, errors = _communicate(process, data, timeout, on_wait)
    except BaseException:
        _kill(profile, process)
        _close_pipes(process)
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def run_git(
    profile: GitProfile,
    words: Sequence[str],
    folder: Path,
    *,
    timeout: float,
    variables: Mapping[str, str] | None = None,
    data: bytes = b"",
) -> GitResult:
    """Run git in a folder; returns its output, with any exit code.

    Args:
        variables: further variables of its environment; None: there are none.
        data: its input.

    Raises:
        OSError, ValueError: it cannot be started.
        TimeoutExpired: it took longer than `timeout` seconds.
    """
    process = start_git(profile, words, folder, variables=variables)
    return finish_git(profile, process, data, timeout)


@contextmanager
def streaming_git(
    profile: GitProfile, words: Sequence[str], folder: Path, *, timeout: float
) -> Iterator[Iterator[bytes]]:
    """In this context git runs in a folder, and its output can be read as it comes. At its end the
    output raises CalledProcessError if git failed or took longer than `timeout` seconds.

    Raises:
        OSError, ValueError: it cannot be started.
    """
    process = start_git(profile, words, folder)
    assert process.stdin is not None
    process.stdin.close()
    timer = threading.Timer(timeout, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield _read_output(process)
    finally:
        timer.cancel()
        if process.poll() is None:
            _kill(profile, process)
        _close_pipes(process)


def _read_output(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Yields the output of a process as it comes, then waits for its end. Raises CalledProcessError:
    it failed.
    """
    assert isinstance(process.stdout, BufferedReader)
    assert process.stderr is not None
    while data := process.stdout.read1(_PIECE):
        yield data
    errors = process.stderr.read()
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, process.args, stderr=errors)


def _kill(profile: GitProfile, process: subprocess.Popen[bytes]) -> None:
    """KILL a git process, and its group if it has its own; wait for its end."""
    send_signal(process.pid, signal.SIGKILL, group=profile in _OWN_GROUP)
    process.wait()


def _lines_for(rows: Sequence[_Row], profile: GitProfile) -> list[str]:
    return [text for text, profiles in rows if profile in profiles]


def _communicate(
    process: subprocess.Popen[bytes], data: bytes, timeout: float, on_wait: OnWait
) -> tuple[bytes, bytes]:
    """The output and errors of a process. Calls `on_wait` until it ends. Raises TimeoutExpired
    after `timeout` seconds, and what `on_wait` raises.
    """
    began = time.monotonic()
    while True:
        try:
            return process.communicate(data, _WAIT_STEP)
        except subprocess.TimeoutExpired:
            seconds = time.monotonic() - began
            if seconds >= timeout:
                raise
            on_wait(seconds)


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
