"""Confinement: the sandbox of one session, and what each of its commands may touch."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from itertools import product, starmap
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro.errors import ToolError
from ouro.safety import protected
from ouro.safety.rules import Limits
from ouro.safety.sandbox.reverted_files import ACTING_IN_GIT, ActingFiles, RevertedFile
from ouro.safety.sandbox.sandboxes import (
    LEFT_RUNNING,
    WATCHED,
    ChosenSandbox,
    Sandbox,
    SandboxPolicy,
    Tier,
    choose_sandbox,
    existing,
    is_private,
)
from ouro.settings import SandboxSettings
from ouro.utils.agent_homes import moved_agent_homes
from ouro.utils.git import find_root
from ouro.utils.late_pattern import late_pattern
from ouro.utils.log import log
from ouro.utils.ouro_paths import ensure_private_dir, expand_home
from ouro.utils.processes import count_processes

if TYPE_CHECKING:
    from ouro.safety.sandbox.proxy import NetworkProxy
    from ouro.safety.sandbox.temp_folder import TempFolder

_PROTECTED_NAMES = (
    ".git",
    ".ouro",
    ".vscode",
    ".idea",
    ".husky",
    ".mcp.json",
    ".gitmodules",
    ".envrc",
)
"""The protected names directly in a folder of `sandbox.writable`, which is not searched."""
_WORKSPACE_LIMITS = ("workspace", "repository")
"""The limits of commands that may change the workspace."""
_NO_CALL = ""
"""The call id of a hook or server: it belongs to no tool call, and its end is not known here."""
NO_TOKEN = "-"  # noqa: S105 - not a secret
"""The token of a command that belongs to no tool call: nobody asks what it left running."""
_MAX_MOUNTS = 200
"""Maximum acting files that are read-only mounts; further ones are compared after the command."""
_DENIALS = (
    "Read-only file system",
    "Operation not permitted",
    "Permission denied",
    "Network is unreachable",
    "Could not resolve host",
    "Temporary failure in name resolution",
    "Name or service not known",
    "EROFS",
    "EACCES",
    "ENETUNREACH",
    "EAI_AGAIN",
    "Address family not supported",
    "NewConnectionError",
    "unable to access",
    # git signs with a key, and each place of keys is hidden.
    "failed to sign the data",
    "Couldn't load public key",
)
"""Texts of a line by which a program reports that it was refused something."""
SET_LIMITS = (
    'token=$1; { ulimit -n "$2"; ulimit -d "$3"; ulimit -u "$4" || ulimit -p "$4"; } 2>&-; '
    "shift 4; "
)
"""Sets the limits of a command inside its sandbox; `-d` counts a process's private memory, not
reserved memory.
"""
_OUT_OF_MEMORY = late_pattern(
    r"MemoryError|Cannot allocate memory|bad_alloc|[Oo]ut of memory|ENOMEM"
)
_MAX_FOLDERS_NAMED = 5
"""Folders that the advice about Landlock names."""
_LOCAL_ADDRESS = late_pattern(r"(localhost|127\.0\.0\.1):\d+")
_RELAY = Path(os.path.realpath(__file__)).with_name("relay.py")
_PYTHON = Path(os.path.realpath(sys.executable))
_choose_once = cache(choose_sandbox)
_command_numbers = itertools.count()
_MAX_LEFT_RUNNING = 65_536
"""Bytes of the file of processes left running before it is emptied."""


class Confinement:
    """Confines the commands of one session.

    Args:
        root: the workspace.
        state_dir: a private folder of ouro for filters and self-tests.
        settings: whether commands are confined, what they reach, and their limits.
        also_writable: more folders of the workspace.
        memory: the folders of long-term memory, which only commands on memory may change.
        visible: folders that can be read although they are in a hidden one, such as saved output.
        unreadable: returns the paths that rules deny to read; `wrap` raises its OSError.
    """

    def __init__(
        self,
        root: Path,
        state_dir: Path,
        settings: SandboxSettings = SandboxSettings(),  # noqa: B008 - frozen
        *,
        also_writable: Sequence[Path] = (),
        memory: Sequence[Path] = (),
        visible: Sequence[Path] = (),
        unreadable: Callable[[], Sequence[Path]] = tuple,
    ) -> None:
        self._root = Path(os.path.realpath(root))
        self._state_dir = state_dir
        self.settings = settings
        self._lock = threading.Lock()
        self._proxy: NetworkProxy | None = None
        """The way to the hosts of the settings; None until a command needs it."""
        opened = tuple(expand_home(name) for name in settings.writable)
        self._also_writable = (*also_writable, *opened)
        self._opened = opened
        """The folders of `sandbox.writable`. One that does not exist yet may be made meanwhile."""
        self._acting = ActingFiles(existing((self._root, *also_writable)), state_dir / "reverted")
        """The files of the workspace that other programs obey."""
        self._confined_calls: set[str] = set()
        """The calls that run confined, with the right to change the workspace."""
        self._memory = tuple(memory)
        self._visible = tuple(visible)
        self._unreadable = unreadable
        self._hidden_by_rules: Sequence[Path] = ()
        """The paths that were last hidden from a command because rules deny to read them."""
        self._temp: TempFolder | None = None
        """The /tmp of the commands; None until a command needs it."""
        self._chosen: ChosenSandbox | None = None
        """The sandbox of this machine; None until it is tested."""
        self._kept_from_memory: set[str] = set()
        """The calls whose last command could not write into long-term memory."""
        self._has_warned = False
        """Whether `take_warning` has returned its warning."""
        self._tokens: dict[str, str] = {}
        """What identifies the last command of a call in the file of processes left running."""

    in_container = False
    """Whether commands run in a container, and nowhere else."""

    def describe_container(self) -> str:
        """Where commands run, as text for the model; empty if on this machine."""
        return ""

    def add_writable(self, folder: Path) -> None:
        """Let commands change a further folder of the workspace."""
        if folder not in self._also_writable:
            self._also_writable = (*self._also_writable, folder)
            self._acting.add_root(folder)

    def chosen(self) -> ChosenSandbox:
        """The sandbox of this machine; the first call tests it, which takes 20 to 50 ms."""
        if not self.settings.enabled:
            return ChosenSandbox(Sandbox())
        if self._chosen is None:
            try:
                self._chosen = _choose_once(ensure_private_dir(self._state_dir))
            except OSError as error:
                return ChosenSandbox(Sandbox(), (f"{self._state_dir} cannot be used: {error}",))
        return self._chosen

    def take_warning(self) -> str:
        """Returns a warning for the user if a stronger sandbox could not be used (B4).

        Empty if the strongest one is used, and if the warning was returned before.
        """
        chosen = self.chosen()
        if self._has_warned or not chosen.refused:
            return ""
        self._has_warned = True
        open_ways, why = "; ".join(chosen.sandbox.leaves_open), "; ".join(chosen.refused)
        what = (
            "no sandbox"
            if chosen.sandbox.tier == "none"
            else f"a weaker sandbox ({chosen.sandbox.tier})"
        )
        return f"Commands run in {what}, which leaves open: {open_ways}. Why: {why}."

    @property
    def known_tier(self) -> str:
        """The tier of the sandbox, without testing it. In a container it is the name of the engine.

        `off` if the settings disable the sandbox. Empty as long as no command has tested it.
        """
        if not self.settings.enabled:
            return "off"
        return self._chosen.sandbox.tier if self._chosen else ""

    @property
    def is_on(self) -> bool:
        """Whether commands are confined."""
        return self.chosen().sandbox.tier != "none"

    def is_on_or_disabled(self) -> bool:
        """Whether commands are confined, or the user wants them unconfined."""
        return self.is_on or not self.settings.enabled

    def wrap(self, argv: Sequence[str], limits: Limits, call_id: str = "") -> list[str]:
        """Returns the command line that starts `argv` confined to these limits. Inside the sandbox
        a shell sets the limits on files, memory and processes, and then runs `argv`. The first
        argument of the shell is a token. In bubblewrap the shell writes the token, and how many
        processes `argv` has left running, to a file (`take_left_running`).

        With the limits `off` the command line is `argv`. Also records whether the command of this
        call can write into long-term memory, for `was_kept_from_memory`.

        Args:
            call_id: the tool call that runs the command; empty: it is a hook or a server.
        """
        with self._lock:  # several commands may start at the same time
            self._kept_from_memory.discard(call_id)  # call ids may be repeated
            if limits == "off":
                return list(argv)
            sandbox, policy = self.chosen().sandbox, self._policy(limits)
            if sandbox.tier != "none":
                policy = self._record_call(policy, limits, sandbox.tier, call_id)

            # What the shell runs after it has set the limits: `script` with `words` as arguments.
            is_script = _is_script(argv)
            if is_script:
                # `SET_LIMITS` is put before the script, so that one shell runs both.
                script, words = argv[2], argv[4:]
            else:
                # Descriptor 8, the file of processes left running, is not for the command.
                script, words = 'exec "$@" 8>&-', argv
            is_watched = is_script and sandbox.tier == "bubblewrap"
            if is_watched:
                # `WATCHED` runs the same as the last command of the script, and counts what it
                # leaves running.
                script = script.removesuffix('exec "$@"') + WATCHED
            limit_arguments = (self._new_token(call_id), *self._ulimit_arguments(sandbox.tier))

            if is_script and sandbox.tier == "landlock":
                # The script runs outside of the sandbox, and enters it only with its last command.
                # It sets a limit that marks its processes: Landlock's filter refuses to set that.
                from shlex import join  # not at a start

                inner = "exec " + join(sandbox.wrap([], policy))
                script = script.removesuffix('exec "$@"') + f'{inner} "$@"'
                return ["/bin/sh", "-c", SET_LIMITS + script, "sh", *limit_arguments, *words]

            argv = ["/bin/sh", "-c", SET_LIMITS + script, "sh", *limit_arguments, *words]
            if self._reaches_hosts(policy) and sandbox.tier == "bubblewrap":
                argv, policy = self._behind_proxy(argv, policy)
            elif is_watched:
                policy = msgspec.structs.replace(policy, reaps=True)
            return sandbox.wrap(argv, self._without_sockets(policy, sandbox.tier))

    def wrap_command(
        self,
        argv: Sequence[str],
        limits: Limits,
        call_id: str,
        cwd: Path,  # noqa: ARG002 - of a container
        *,
        pty: bool = False,  # noqa: ARG002
    ) -> Sequence[str]:
        """Returns the command line that starts a command of the agent with these limits.

        The command runs on this machine; `ContainerConfinement` lets it run in a container instead,
        and needs `cwd` and `pty` for that. `argv` is the result of `limit_command`.

        Raises:
            ToolError: the container cannot be used, or the settings want one and there is none.
        """
        if self.settings.in_container:
            raise ToolError("The settings want a container, but there is none here: nothing ran.")
        return self.wrap(argv, limits, call_id)

    def take_setup(self) -> str:
        """Returns the shell line that prepares the container for commands.

        Empty if there is nothing to prepare, and after the first call. Here it is always empty: the
        subclass for containers has one. That one blocks, and may raise ToolError.
        """
        return ""

    def _record_call(
        self, policy: SandboxPolicy, limits: Limits, tier: Tier, call_id: str
    ) -> SandboxPolicy:
        """Record whether a call can change the workspace, and whether it can write into memory.

        Returns the policy of its command. If the command can change the workspace, the files that
        other programs obey are protected in it.
        """
        if limits in _WORKSPACE_LIMITS:
            policy = self._with_acting(policy, limits, tier)
            self._confined_calls.add(call_id)
        if not self._state_dir.is_dir():  # deleted while ouro runs: the sandbox has files in it
            ensure_private_dir(self._state_dir)
        # Landlock cannot make a place inside a writable folder read-only.
        shielded = () if tier == "landlock" else policy.protected
        reaches_memory = any(
            _is_in(place, policy.writable) and not _is_in(place, shielded) for place in self._memory
        )
        if limits != "memory" and not reaches_memory:
            self._kept_from_memory.add(call_id)
        return policy

    def _reaches_hosts(self, policy: SandboxPolicy) -> bool:
        """Whether a command reaches only the hosts of the settings."""
        return bool(self.settings.hosts) and policy.connects and not policy.network

    def _behind_proxy(
        self, argv: list[str], policy: SandboxPolicy
    ) -> tuple[list[str], SandboxPolicy]:
        """Returns a command line and a policy with which a command reaches only the hosts of the
        settings: a relay starts the command, and connects it with ouro's proxy. For a server of
        this machine, such as `localhost:5432`, the relay opens the same port in the sandbox.
        """
        if self._proxy is None:
            from ouro.safety.sandbox.proxy import NetworkProxy  # only if hosts are named

            self._proxy = NetworkProxy(self.settings.hosts)
        local = [host for host in self.settings.hosts if _LOCAL_ADDRESS.fullmatch(host)]
        relay = [str(_PYTHON), "-I", "-S", str(_RELAY), str(self._proxy.socket), ",".join(local)]
        visible = (*policy.visible, self._proxy.socket, _RELAY, _PYTHON)
        return [*relay, *argv], msgspec.structs.replace(policy, visible=visible)

    def revert(self, call_id: str) -> list[RevertedFile]:
        """Move the files out of the workspace that a command made or changed and that other
        programs obey. The earlier version of changed files is restored. Blocks.

        Returns the files that were moved. Empty for a call that could not change the workspace, or
        that was reverted before.

        Raises:
            NotMovedError: one of the files cannot be moved; the others were.
        """
        with self._lock:
            if call_id not in self._confined_calls:
                return []
            self._confined_calls.discard(call_id)
            return self._acting.revert()

    def restore(self, reverted: Sequence[RevertedFile]) -> list[Path]:
        """Move files back into the workspace that `revert` has moved out, because the user allows
        them. Returns the paths of the files that could not be moved.
        """
        with self._lock:
            return self._acting.restore(reverted)

    def was_kept_from_memory(self, call_id: str) -> bool:
        """Whether the last command of this call id could not write into long-term memory."""
        return call_id in self._kept_from_memory

    @property
    def _left_running(self) -> Path:
        """The file in which commands record what they left running."""
        return self._state_dir / LEFT_RUNNING

    def take_left_running(self, call_id: str) -> int:
        """Returns how many processes the last command of this call left running, which the sandbox
        then ended. Blocks.

        0 if it left none, and if the number was read before. Also 0 in a sandbox that cannot end
        them: there ouro ends and counts them itself.
        """
        token = self._tokens.pop(call_id, "")
        path = self._left_running
        try:
            lines = path.read_text().splitlines() if token else []
            if sum(map(len, lines)) > _MAX_LEFT_RUNNING:
                path.write_text("")
        except (OSError, ValueError):
            return 0
        last_count = ""
        for line in lines:
            words = line.split()
            if len(words) == 2 and words[0] == token:
                last_count = words[1]
        return int(last_count) if last_count.isdecimal() else 0

    def _new_token(self, call_id: str) -> str:
        """Returns a new text that identifies the command of a call in the file of processes left
        running; `NO_TOKEN` for a command without a call.
        """
        if not call_id:
            return NO_TOKEN
        self._tokens[call_id] = f"{os.getpid()}.{next(_command_numbers)}"
        return self._tokens[call_id]

    def _ulimit_arguments(self, tier: Tier) -> tuple[str, str, str]:
        """The limits of a command for `ulimit`: open files, memory in kB, processes."""
        settings = self.settings
        # Without a user namespace the kernel counts the user's other processes too.
        counts_others = tier == "landlock" or (tier == "container" and sys.platform == "linux")
        other_processes = count_processes() if counts_others else 0
        return (
            str(settings.max_open_files),
            str(_memory_limit_mb(settings) * 1024),
            str(settings.max_processes + other_processes),
        )

    def find_limit(self, output: str) -> str:
        """Returns the limit that a command probably reached, with the name of its setting. It is
        recognized by the error text in the output; empty if there is none.
        """
        settings = self.settings
        if _OUT_OF_MEMORY.search(output):
            return (
                f"{_memory_limit_mb(settings):,} MB of memory a process (`sandbox.max_memory_mb`)"
            )
        if "Too many open files" in output:
            return f"{settings.max_open_files:,} open files a process (`sandbox.max_open_files`)"
        if "Resource temporarily unavailable" in output:
            return f"{settings.max_processes:,} processes (`sandbox.max_processes`)"
        return ""

    def find_denial(self, output: str) -> str:
        """Returns what the sandbox has probably refused to a failed command; empty if nothing.

        These are the hosts that the proxy has refused since the last call. If there are none, it is
        the line of the output that looks like a refusal.
        """
        if self._proxy is not None and (refused_hosts := self._proxy.take_refusals()):
            return refused_hosts
        line = self._find_refusal(output)
        if line and self._hidden_by_rules and self.known_tier == "landlock":
            folders = ", ".join(
                sorted({str(path.parent) for path in self._hidden_by_rules})[:_MAX_FOLDERS_NAMED]
            )
            line += (
                "\nLandlock lets nothing be made or removed beside a file that a rule denies to"
                f" read: in {folders}."
            )
        return line

    def _find_refusal(self, output: str) -> str:
        """Returns the last line of the output with one of `_DENIALS`, at most 200 characters; empty
        if there is none. Lines about files that a rule denies to read are left out: the rule
        explains them, not the sandbox.
        """
        hidden_names = [path.name for path in self._hidden_by_rules]
        for line in reversed(output.splitlines()[-200:]):
            if _contains_any(line, _DENIALS) and not _contains_any(line, hidden_names):
                return line.strip()[:200]
        return ""

    def close(self) -> None:
        """Delete the /tmp of the commands, and stop their network proxy. Files that hooks and
        servers have made and that other programs obey are moved out of the workspace.
        """
        with self._lock, suppress(OSError):
            # Calls are reverted at their end: what is left runs without a call.
            reverted = self._acting.revert() if self._confined_calls else []
            for item in reverted:
                log.warning("%s was moved to %s: programs obey it", item.path, item.moved)
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None
        if self._temp is not None:
            self._temp.remove()
            self._temp = None

    def _policy(self, limits: Limits) -> SandboxPolicy:
        """Returns what a command with these limits may see, change and reach. The files that rules
        deny to read are searched for, and stored in `_hidden_by_rules`. With the limits `read` and
        `memory` the command connects to nothing.
        """
        from ouro.safety.sandbox.temp_folder import TempFolder

        # What the command may see.
        root = str(self._root)
        # A reserved area that has the workspace in it stays visible.
        hidden = [
            place
            for place in existing(protected.existing_reserved_areas())
            if not f"{root}/".startswith(f"{place}/")
        ]
        if limits != "repository":  # otherwise git would record a hidden file as deleted
            self._hidden_by_rules = self._unreadable()
            hidden += self._hidden_by_rules
        visible = existing((*self._needed_private_folders(), *self._visible))
        policy = SandboxPolicy(hidden=tuple(hidden), visible=visible, connects=False)
        if limits == "read":
            return policy

        # What it may change and reach.
        if limits == "memory":
            return msgspec.structs.replace(policy, writable=existing(self._memory))
        if self._temp is None:
            self._temp = TempFolder(self._state_dir)
        return msgspec.structs.replace(
            policy,
            writable=existing((self._root, *self._also_writable)),
            protected=existing(starmap(Path, product(existing(self._opened), _PROTECTED_NAMES))),
            temp=self._temp.path,
            network=self.settings.network,
            connects=True,
        )

    def _needed_private_folders(self) -> list[Path]:
        """Returns the folders that commands need and that are in a place such as /tmp, which is
        empty inside the sandbox. Commands need home, the workspace, the repository around it,
        memory, and the folders of programs.
        """
        from ouro.safety.sandbox.linked_git import find_linked_git  # late: only for commands

        folders = os.environ.get("PATH", "").split(os.pathsep)
        programs = [folder for folder in folders if is_private(folder)]
        # A program in /tmp/x/bin may need /tmp/x/lib.
        libraries = [os.path.dirname(folder) for folder in programs]  # noqa: PTH120 - of an environment
        # The hooks of a project are in the root of its repository, and so is `.git`. Those of a
        # worktree or a submodule are elsewhere.
        repository = find_root(self._root)
        of_git = (repository, *find_linked_git(repository).folders)
        places = map(str, (Path.home(), *of_git, self._root, *self._also_writable, *self._memory))
        used = (*places, *programs, *libraries)
        return [Path(place) for place in used if is_private(place)]

    def _without_sockets(self, policy: SandboxPolicy, tier: Tier) -> SandboxPolicy:
        """Returns the policy that also hides the sockets of other programs to which a command could
        connect. Unchanged in a sandbox that cannot hide a single socket.

        A socket is hidden if the command can see its path, and it is not below a hidden folder.
        """
        if tier not in ("bubblewrap", "container"):
            return policy
        from ouro.safety.sandbox.sockets import find_sockets, is_below

        hidden = tuple(map(str, policy.hidden))
        shown = tuple(map(str, (*policy.visible, *policy.writable)))
        workspace = tuple(map(str, existing((self._root, *self._also_writable))))
        # With the network of the machine, commands may use the servers of the workspace itself.
        exempt = workspace if policy.network else ()

        def is_reachable(path: str) -> bool:
            """Whether a command could connect to the socket, which is to be hidden then."""
            is_absent_inside = is_private(path) and not is_below(path, shown)
            return not is_absent_inside and not is_below(path, (*hidden, *exempt))

        sockets = find_sockets(os.environ, workspace, is_reachable)
        return msgspec.structs.replace(policy, sockets=tuple(map(Path, sockets)))

    def _with_acting(self, policy: SandboxPolicy, limits: Limits, tier: Tier) -> SandboxPolicy:
        """Returns the policy, changed so that files which other programs obey are read-only too, at
        any depth of the workspace. In their present state these files count as accepted; but while
        other calls run confined, only the files that were accepted before.

        With the limits `repository` a git directory can be changed, but not the parts of it that
        run programs: also one outside of the workspace, if the sandbox can keep these parts as they
        are.
        """
        from ouro.safety.sandbox.linked_git import LinkedGit, find_linked_git  # late

        changes_linked = limits == "repository" and tier == "bubblewrap"
        linked = find_linked_git(self._root) if changes_linked else LinkedGit()
        acting = self._acting.accept(
            [place for place in linked.acting if not os.path.lexists(place)],
            copies=tier == "landlock" or limits == "repository",
            is_alone=not self._confined_calls,
            # Hooks and servers do not count here: it is not known when they end.
            is_first=not self._confined_calls - {_NO_CALL},
        )
        read_only = [folder / ".ouro" for folder in policy.writable]
        read_only += (*linked.acting, *linked.state_of_others)
        read_only += _agent_homes_below(policy.writable)
        changeable = [*linked.folders]
        for place in acting[:_MAX_MOUNTS]:
            if limits == "repository" and _is_git_dir(place):
                changeable.append(place)
                read_only += [place / name for name in ACTING_IN_GIT]
            else:
                read_only.append(place)
        return msgspec.structs.replace(
            policy,
            # Named here, a git directory is a mount point, which cannot be renamed: otherwise a
            # folder with other settings could replace it.
            writable=(*policy.writable, *existing(changeable)),
            protected=(*policy.protected, *existing(read_only)),
            may_make_git=limits == "repository",
        )


def _agent_homes_below(folders: Sequence[Path]) -> list[Path]:
    """Returns the moved homes of other agents that are below one of the folders. They have no names
    by which they could be found.
    """
    below: list[Path] = []
    for home in moved_agent_homes():
        real_home = Path(os.path.realpath(home))
        if not set(folders).isdisjoint(real_home.parents):
            below.append(real_home)
    return below


def _is_git_dir(place: Path) -> bool:
    """Whether a path is the git directory of a repository."""
    return place.name == ".git" and place.is_dir()


def _is_script(argv: Sequence[str]) -> bool:
    """Whether a command is `/bin/sh -c SCRIPT sh …`."""
    return list(argv[:2]) == ["/bin/sh", "-c"] and argv[3:4] == ["sh"]


def _contains_any(line: str, texts: Iterable[str]) -> bool:
    return any(text in line for text in texts)


def _is_in(place: Path, folders: Sequence[Path]) -> bool:
    """Whether a path, with links followed, is in one of the folders."""
    return any(Path(os.path.realpath(place)).is_relative_to(folder) for folder in folders)


def _memory_limit_mb(settings: SandboxSettings) -> int:
    """Returns the memory in MB that a process may have: `sandbox.max_memory_mb`, or three quarters
    of the machine's memory if that is 0.
    """
    machine_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_048_576
    return settings.max_memory_mb or machine_mb * 3 // 4
