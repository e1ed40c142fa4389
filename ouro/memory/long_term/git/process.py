"""git, run on a memory's history so that nothing in it, and nobody's settings, can make it run another program."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ouro.errors import MemoryUnusable

# What a commit leaves is on disk when it returns; the pack that fast-import makes on the way there need not be.
_ON_DISK = ("-c", "core.fsync=none,loose-object,reference")
PACKS_ON_DISK = ("-c", "core.fsync=committed,loose-object,reference")
"""Goes before a subcommand that makes packs which stay."""
_FLAGS = (
    "--no-pager", "--literal-pathspecs", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null",
    "-c", "core.attributesFile=/dev/null", "-c", "core.excludesFile=/dev/null", "-c", "core.autocrlf=false",
    *_ON_DISK, "-c", "gc.auto=0", "-c", "maintenance.auto=false",
    "-c", "log.showSignature=false", "-c", "log.mailmap=false", "-c", "mailmap.file=/dev/null", "-c", "diff.external=",
    "-c", "i18n.logOutputEncoding=UTF-8", "-c", "core.splitIndex=false", "-c", "core.untrackedCache=false",
)  # fmt: skip
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_ATTR_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0",
    "GIT_AUTHOR_NAME": "ouro", "GIT_AUTHOR_EMAIL": "ouro@localhost",
    "GIT_COMMITTER_NAME": "ouro", "GIT_COMMITTER_EMAIL": "ouro@localhost", "LC_ALL": "C",
}  # fmt: skip
_SECONDS = 30.0
_SECONDS_ABROAD = 120.0
_OF_THE_USER = {
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_ASKPASS",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_CONFIG_GLOBAL",
    "GIT_PROXY_COMMAND",
}


class GitMissing(MemoryUnusable):
    """git is not installed, or does not start."""


def run_git(
    git_dir: Path, arguments: Sequence[str], given: bytes = b"", index: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run git, whatever its exit code.

    Args:
        index: another index than the history's own.

    Raises:
        MemoryUnusable: git is not there, took too long, or there is no history.
    """
    if not git_dir.is_dir():
        raise MemoryUnusable(f"The history of memory in {git_dir} is not there.", "The next write begins one.")
    # The environment is made, not cleaned: no GIT_*, and nothing that makes a program run another.
    environment = {**_ENVIRONMENT, "PATH": os.environ.get("PATH", os.defpath)}
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    command = ["git", f"--git-dir={git_dir}", f"--work-tree={git_dir}", *_FLAGS, *arguments]
    try:
        return subprocess.run(
            command, cwd=git_dir, env=environment, input=given, capture_output=True, timeout=_SECONDS, check=False
        )
    except FileNotFoundError as error:
        raise GitMissing("git is not installed.", "Install git; what is there is then taken in.") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise MemoryUnusable(f"git could not be run: {error}") from error


def run_remote_git(git_dir: Path, arguments: Sequence[str], most_bytes: int = 0) -> subprocess.CompletedProcess[bytes]:
    """Run a git that speaks with a remote, whatever its exit code.

    Args:
        most_bytes: of one file that it writes; beyond that it fails, and says "File too large". 0: no limit.

    It has the user's own settings and agents (keys, credentials, proxies), but neither hooks nor transports that run
    a program which a URL names; nobody is asked for a password.

    Raises:
        MemoryUnusable: git is not there, or took too long.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _OF_THE_USER}
    environment = {
        **kept,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C",
    }
    command = ["git", f"--git-dir={git_dir}", "--no-pager", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0"]
    if most_bytes:
        # By a shell: between fork and exec Python is not safe beside threads. Without the trap git would die silently.
        command = ["sh", "-c", 'trap "" XFSZ; ulimit -f "$0"; exec "$@"', str(most_bytes // 512), *command]
    command += ["-c", "maintenance.auto=false", "-c", "fetch.recurseSubmodules=false", *arguments]
    try:
        with subprocess.Popen(
            command, cwd=git_dir, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,  # without a terminal ssh cannot ask amid the screen
        ) as process:  # fmt: skip
            try:
                said, complained = process.communicate(timeout=_SECONDS_ABROAD)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # ssh, too: it would wait for ever for who does not answer
                raise
        return subprocess.CompletedProcess(command, process.returncode, said, complained)
    except subprocess.TimeoutExpired as error:
        raise MemoryUnusable(f"The remote did not answer in {_SECONDS_ABROAD:.0f} seconds.", "Try again.") from error
    except FileNotFoundError as error:
        raise GitMissing("git is not installed: memory cannot be synchronised.", "Install git.") from error
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise MemoryUnusable(f"git could not be run: {error}") from error


def import_stream(
    ref: str, parents: Sequence[str], changes: Mapping[str, bytes | None], message: str, at: float
) -> bytes:
    """What `git fast-import` is told: one commit on a branch, on top of its parents (none: the first)."""
    who = b"ouro <ouro@localhost> %d %s" % (int(at), time.strftime("%z", time.localtime(at)).encode())
    parts = [b"commit ", ref.encode(), b"\nmark :1\ncommitter ", who, b"\n", _data(message.encode())]
    for word, parent in zip((b"from ", b"merge "), parents, strict=False):
        parts += [word, parent.encode(), b"\n"]
    for name, content in sorted(changes.items(), key=lambda each: each[0]):
        quoted = b'"%s"' % os.fsencode(name).replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        parts += [b"D ", quoted, b"\n"] if content is None else [b"M 100644 inline ", quoted, b"\n", _data(content)]
    return b"".join([*parts, b"\nget-mark :1\ndone\n"])


def _data(content: bytes) -> bytes:
    return b"data %d\n%s\n" % (len(content), content)


def last_line(said: bytes) -> str:
    """What git said last, for an error of ours."""
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "no reason given"
