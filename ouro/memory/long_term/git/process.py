"""Run git on a memory's repository so that neither planted files nor user settings can start
another program.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import (
    DEVNULL,
    PIPE,
    SubprocessError,
    TimeoutExpired,
    run,
)
from types import SimpleNamespace

import msgspec

from ouro.errors import GitUnavailable, MemoryUnusable
from ouro.utils.git_process import (
    GitProfile,
    GitResult,
    OnWait,
    command_line,
    environment,
    finish_git,
)
from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import clean

DURABLE_PACKS = ("-c", "core.fsync=committed,loose-object,reference")
"""Options in front of a subcommand that makes permanent packs."""
FAST_COMMIT = ("-c", "core.compression=0")
"""Options in front of `fast-import` of one commit: to compress the tree of 10,000 notes twice takes
55 ms, to write it uncompressed 20 ms. Its objects are compressed when they are packed.
"""
_GIT_IS_MISSING = (
    "git is not installed.",
    "Install git. Changes made until then are committed later.",
)
"""A message and what to do."""
_LAST_SECOND = 4_000_000_000.0
_TIMEOUT = 15.0
_SLOW_TIMEOUT = 300.0
"""Seconds for commands that read or write a whole history."""
_SLOW_COMMANDS = {"cat-file", "fast-export", "fast-import", "fsck", "prune", "repack"}
_PAUSE = 60.0
"""Seconds after a timeout during which git is not started: each try would cost another timeout."""
_REMOTE_TIMEOUT = 120.0
_MAX_REASONS = 2
"""Lines of git's output that are shown."""
_LINE_WITHOUT_REASON = late_pattern(
    r"To |From |hint:|fatal: Could not read from remote|fatal: the remote end hung up|error: failed"
    r" to push some refs|"
    r"fatal: fetch-pack: invalid index-pack output|Please make sure you have the correct|and the"
    r" repository exists"
)
"""Lines of git's output that do not say why it failed."""
_LINE_START = late_pattern(r"(?:(?:remote|fatal|error): *)*(?:! \[[\w ]+\] \S+ -> )?")
"""The start of a line of git's output, before the reason: `remote: error: `."""
_SIGNS_OF_LOST_PUSH = ("fetch first", "non-fast-forward", "cannot lock ref")
"""Signs in git's output that another machine has pushed meanwhile, or pushes now."""
_LOCK_MESSAGE = late_pattern(r"Unable to create '([^'\n]+\.lock)': File exists")
"""What git prints if a lock file exists already."""
_PASSWORD = late_pattern(r"(?<=://)[^/@\s]*@")
"""The name and password in the address of a remote."""
_pause = SimpleNamespace(until=0.0)
"""The time until which git is not started, because it did not answer."""
_HANGS = (
    f"git did not answer in {_TIMEOUT:.0f} seconds: ouro continues without it for a minute at a"
    " time."
)
_HANGS_HINT = "Check `git version` and the disk. Changes made until then are committed later."


def run_memory_git(
    git_dir: Path,
    common_dir: Path,
    arguments: Sequence[str],
    stdin: bytes,
    index: Path | None,
    inherited: Sequence[int],
) -> GitResult:
    """Run git and return its result with any exit code. Raises GitUnavailable if git is missing or
    takes too long. After git took too long, each call in the next `_PAUSE` seconds raises it at
    once, without starting git.

    Args:
        common_dir: where git reads configuration, hooks and attributes instead of `git_dir`.
        stdin: what git reads.
        index: another index than the repository's own.
        inherited: descriptors that git inherits.
    """
    git_variables = {"GIT_COMMON_DIR": str(common_dir)}
    if index:
        git_variables["GIT_INDEX_FILE"] = str(index)
    # ouro uses no work tree: git is given its own directory as one.
    folders = (f"--git-dir={git_dir}", f"--work-tree={git_dir}")
    command = command_line(GitProfile.MEMORY, arguments, folders)
    variables = environment(GitProfile.MEMORY, git_variables)
    if time.monotonic() < _pause.until:
        raise GitUnavailable(_HANGS, _HANGS_HINT)
    try:
        if "git.cmd" not in sys.modules:  # GitPython is imported below: that starts git
            _require_answer_of_git()
        timeout = _SLOW_TIMEOUT if _SLOW_COMMANDS & {*arguments} else _TIMEOUT
        return _execute(
            GitProfile.MEMORY,
            command,
            folder=git_dir,
            variables=variables,
            stdin=stdin,
            timeout=timeout,
            inherited=inherited,
        )
    except TimeoutExpired as error:
        _pause.until = time.monotonic() + _PAUSE
        raise GitUnavailable(_HANGS, _HANGS_HINT) from error


def _require_answer_of_git() -> None:
    """Raise TimeoutExpired if git does not answer. Called before GitPython is imported, which asks
    for git's version without a timeout.
    """
    with suppress(OSError):  # GitPython reports that git is missing
        run(
            ["git", "version"],
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            timeout=_TIMEOUT,
            check=False,
        )


def run_remote_git(
    git_dir: Path,
    common_dir: Path,
    arguments: Sequence[str],
    max_bytes: int,
    timeout: float = 0,
    on_wait: OnWait | None = None,
) -> GitResult:
    """Run a git command that contacts a remote, and return its result with any exit code. Raises
    MemoryUnusable if git is missing or takes too long.

    It uses the user's own settings and agents (keys, credentials, proxies), but neither hooks nor
    transports that run a program named in a URL, and it does not ask for a password.

    Args:
        max_bytes: git fails with "File too large" if one file gets larger; 0: no limit.
        timeout: in seconds; 0: the usual one.
        on_wait: called while git runs.
    """
    command = command_line(GitProfile.REMOTE, arguments, (f"--git-dir={git_dir}",))
    variables = environment(GitProfile.REMOTE, {"GIT_COMMON_DIR": str(common_dir)})
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
        return _execute(
            GitProfile.REMOTE,
            command,
            folder=git_dir,
            variables=variables,
            stdin=b"",
            timeout=timeout,
            on_wait=on_wait,
        )
    except TimeoutExpired as error:
        text = f"git did not answer in {timeout:.0f} seconds."
        raise MemoryUnusable(text, "Check the remote and the network, then try again.") from error


def _execute(
    profile: GitProfile,
    command: list[str],
    folder: Path,
    variables: dict[str, str],
    stdin: bytes,
    timeout: float,
    inherited: Sequence[int] = (),
    on_wait: OnWait | None = None,
) -> GitResult:
    """Run a command with GitPython in its own process group, which a timeout or an interrupt kills
    completely, and return its result with any exit code. The command gets only these variables.

    Raises TimeoutExpired; GitUnavailable if there is no git; MemoryUnusable if it cannot be run.
    """
    try:
        from git.cmd import Git  # 150 ms
        from git.exc import GitCommandNotFound
    except ImportError as error:  # GitPython looks for git
        raise GitUnavailable(*_GIT_IS_MISSING) from error
    command = _without_other_variables(command, variables)
    try:
        running = Git(folder).execute(
            command,
            istream=PIPE,
            as_process=True,
            env=variables,
            shell=False,
            start_new_session=True,
            pass_fds=inherited,
        )
    except GitCommandNotFound as error:
        raise GitUnavailable(*_GIT_IS_MISSING) from error
    except (OSError, SubprocessError, ValueError) as error:
        raise MemoryUnusable(f"git could not be run: {error}") from error
    process = running.proc
    assert process is not None
    result = finish_git(profile, process, data=stdin, timeout=timeout, on_wait=on_wait)
    # `env` was found, but not the git that it should start.
    if result.returncode == 127 and command[0] == "env":
        raise GitUnavailable(*_GIT_IS_MISSING)
    return result


def _without_other_variables(command: list[str], variables: Mapping[str, str]) -> list[str]:
    """The command, started by `env`, which removes all environment variables that are not in
    `variables`. This is needed because GitPython passes all variables of ouro, also those that
    another git has set. The command is unchanged if there are none to remove.
    """
    env_options: list[str] = []
    for name in os.environ:
        if name not in variables:
            env_options += ["-u", name]
    return ["env", *env_options, *command] if env_options else command


def import_stream(
    ref: str,
    parents: Sequence[str],
    changes: Mapping[str, bytes | None],
    message: str,
    seconds: float = 0,
    committer: str = "",
) -> bytes:
    """The input of `git fast-import` for one commit on a branch. git prints the id of the commit.

    Args:
        parents: at most two; empty for the first commit.
        changes: the contents of files; None removes one. Other files stay.
        seconds: the time of the commit by ouro, in seconds since 1970.
        committer: another committer, with the time, as `git var GIT_COMMITTER_IDENT` prints it.
    """
    if not committer:
        # The clock may be wrong; git and Python read no dates outside of this range.
        seconds = min(max(seconds, 0), _LAST_SECOND)
        zone = time.strftime("%z", time.localtime(seconds))
        committer = f"ouro <ouro@localhost> {int(seconds)} {zone}"
    parts = [
        b"commit ",
        ref.encode(),
        b"\nmark :1\ncommitter ",
        committer.encode(),
        b"\n",
        _data_block(message.encode()),
    ]
    for word, parent in zip((b"from ", b"merge "), parents, strict=False):
        parts += [word, parent.encode(), b"\n"]
    for name, content in sorted(changes.items(), key=lambda change: change[0]):
        quoted = b'"%s"' % os.fsencode(name).replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        if content is None:
            parts += [b"D ", quoted, b"\n"]
        else:
            parts += [b"M 100644 inline ", quoted, b"\n", _data_block(content)]
    return b"".join([*parts, b"\nget-mark :1\ndone\n"])


def _data_block(content: bytes) -> bytes:
    """The bytes of a message or a file as `git fast-import` reads them: with their number before."""
    return b"data %d\n%s\n" % (len(content), content)


def last_line(output: bytes) -> str:
    """The last line that git printed, for an error message: at most 200 characters, and `no reason
    given` if it printed nothing.
    """
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "no reason given"


def explain_remote_failure(remote: str, output: bytes) -> tuple[str, str]:
    """From what git printed: the reason why it could not reach a remote, in one line without
    passwords, and a hint what to do.
    """
    lines = [line.strip() for line in output.decode(errors="replace").splitlines()]
    messages = [
        _LINE_START.sub("", line, count=1).rstrip(".")
        for line in lines
        if not _LINE_WITHOUT_REASON.match(line)
    ]
    reasons = list(dict.fromkeys(filter(None, messages)))[:_MAX_REASONS]
    reasons = reasons or lines[-1:] or ["git gave no reason"]
    reason = without_password("; ".join(reasons))[:300]
    is_folder = Path(remote).is_absolute() and b"does not appear to be a git repository" in output
    if is_folder:
        hint = f"What is here is kept. Try again, or make it with `git init --bare {remote}`."
    else:
        hint = "What is here is kept. Try again when it can be reached."
    return reason, hint


class LostPush(msgspec.Struct, frozen=True):
    """Why a push may succeed at another try, and what to do if it does not."""

    reason: str
    hint: str


OTHERS_PUSH = LostPush("other machines kept pushing", "Try again.")


def read_lost_push(output: bytes) -> LostPush | None:
    """The reason why a push lost against another one, from what git printed; None if it failed for
    another reason.
    """
    text = output.decode(errors="replace")
    if not any(sign in text for sign in _SIGNS_OF_LOST_PUSH):
        return None
    if lock_match := _LOCK_MESSAGE.search(text):
        return LostPush(
            f"the repository is locked there by {clean(lock_match[1])}",
            "If no git runs there, one that was killed has left this file: remove it.",
        )
    return OTHERS_PUSH


def without_password(address: str) -> str:
    """A text with the addresses of remotes in it as they may be shown: without passwords."""
    return _PASSWORD.sub("", clean(address))
