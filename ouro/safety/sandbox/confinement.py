"""Confinement: the sandbox of one session, and what each of its commands may touch."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from ouro.safety import protected
from ouro.safety.rules import Limits
from ouro.safety.sandbox import relay
from ouro.safety.sandbox.choose import ChosenSandbox, choose_sandbox
from ouro.safety.sandbox.policy import EMPTY_INSIDE, NoSandbox, SandboxPolicy, existing
from ouro.safety.sandbox.proxy import NetworkProxy
from ouro.utils.runtime import ensure_private_dir

_ACTING_IN_GIT = (".git/config", ".git/hooks", ".git/info", ".git/modules", ".git/config.worktree", ".git/commondir")
_PROTECTED = (".ouro", ".vscode", ".idea", ".husky", ".mcp.json", ".gitmodules", ".envrc")
_DENIALS = (
    "Read-only file system", "Operation not permitted", "Permission denied", "Network is unreachable",
    "Could not resolve host", "Temporary failure in name resolution", "Name or service not known", "EROFS", "EACCES",
    "ENETUNREACH", "EAI_AGAIN", "Address family not supported", "NewConnectionError", "unable to access",
)  # fmt: skip
_RELAY, _PYTHON = Path(os.path.realpath(relay.__file__)), Path(os.path.realpath(sys.executable))
_choose = cache(choose_sandbox)


class Confinement:
    """Confines the commands of one session.

    Args:
        root: the workspace.
        state_dir: a private folder of ouro for filters and self-tests.
        enabled: whether commands are confined at all.
        network: whether confined commands reach the network, or the hosts that they reach, as in `NetworkProxy`.
        also_writable: more folders of the workspace, and those that the settings name.
        memory: the folders of long-term memory, which only commands on memory may change.
        visible: folders that can be read although they are in a hidden one, such as saved output.
    """

    def __init__(
        self,
        root: Path,
        state_dir: Path,
        *,
        enabled: bool = True,
        network: bool | Sequence[str] = False,
        also_writable: Sequence[Path] = (),
        memory: Sequence[Path] = (),
        visible: Sequence[Path] = (),
    ) -> None:
        self._root = Path(os.path.realpath(root))
        self._state_dir = state_dir
        self.enabled = enabled
        self.network = network is True
        self._hosts = () if isinstance(network, bool) else tuple(network)
        self._proxy: NetworkProxy | None = None
        self._also_writable = tuple(also_writable)
        self._memory = tuple(memory)
        self._visible = tuple(visible)
        self._temp: Path | None = None
        self._tier = ""
        self._kept_from_memory: set[str] = set()

    def chosen(self) -> ChosenSandbox:
        """The sandbox of this machine; the first call tests it, which takes 20 to 50 ms."""
        if not self.enabled:
            return ChosenSandbox(NoSandbox())
        try:
            chosen = _choose(ensure_private_dir(self._state_dir))
        except OSError as error:
            chosen = ChosenSandbox(NoSandbox(), (f"{self._state_dir} cannot be used: {error}",))
        self._tier = chosen.sandbox.tier
        return chosen

    @property
    def known_tier(self) -> str:
        """The tier, `none`, or `off`; empty before the first command has tested it."""
        return self._tier if self.enabled else "off"

    @property
    def is_on(self) -> bool:
        """Whether commands are confined."""
        return self.chosen().sandbox.tier != "none"

    def is_as_wanted(self) -> bool:
        """Whether commands are confined, or the user wants them unconfined."""
        return self.is_on or not self.enabled

    def wrap(self, argv: Sequence[str], limits: Limits) -> list[str]:
        """The command that starts `argv` with these limits."""
        if limits == "off":
            return list(argv)
        sandbox, policy = self.chosen().sandbox, self._policy(limits)
        if self._hosts and policy.connects and not policy.network and sandbox.tier == "bubblewrap":
            if self._proxy is None:
                self._proxy = NetworkProxy(self._hosts)
            argv = [str(_PYTHON), "-I", "-S", str(_RELAY), str(self._proxy.socket), *argv]
            policy = msgspec.structs.replace(policy, visible=(*policy.visible, self._proxy.socket, _RELAY, _PYTHON))
        return sandbox.wrap(argv, policy)

    def note_call(self, call_id: str, limits: Limits) -> None:
        """Record whether a command that begins now can write into long-term memory."""
        self._kept_from_memory.discard(call_id)  # ids may come again
        if limits in ("off", "memory") or not self.is_on:
            return
        policy = self._policy(limits)
        shielded = () if self._tier == "landlock" else policy.protected
        if not any(_is_in(place, policy.writable) and not _is_in(place, shielded) for place in self._memory):
            self._kept_from_memory.add(call_id)

    def was_kept_from_memory(self, call_id: str) -> bool:
        """Whether the last command of this call id could not write into long-term memory."""
        return call_id in self._kept_from_memory

    def denial(self, output: str) -> str:
        """The line of a failed command's output that looks like a refusal of the sandbox; empty if none does."""
        if self._proxy is not None and (hosts := self._proxy.take_refused()):
            return f"{hosts}: not in sandbox.hosts"
        lines = (line.strip() for line in reversed(output.splitlines()[-200:]))
        return next((line[:200] for line in lines if any(sign in line for sign in _DENIALS)), "")

    def close(self) -> None:
        """Delete the /tmp of the commands, and end their way to the network."""
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None
        if self._temp is not None:
            shutil.rmtree(self._temp, ignore_errors=True)
            self._temp = None

    def _policy(self, limits: Limits) -> SandboxPolicy:
        root = str(self._root)
        hidden = [
            place
            for place in existing(protected.reserved())
            if not str(place).startswith(("/proc", "/sys", "/dev")) and not f"{root}/".startswith(f"{place}/")
        ]
        programs = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if _is_private(folder)]
        places = (*map(str, (Path.home(), self._root, *self._also_writable, *self._memory)), *programs)
        beside = (os.path.dirname(folder) for folder in programs)  # noqa: PTH120 - the libraries of an environment
        in_private = [Path(place) for place in (*places, *beside) if _is_private(place)]
        visible = existing((*in_private, *self._visible))
        policy = SandboxPolicy(hidden=tuple(hidden), visible=visible, connects=False)
        if limits == "read":
            return policy
        if limits == "memory":
            return msgspec.structs.replace(policy, writable=existing(self._memory))
        git = _ACTING_IN_GIT if limits == "repository" else (".git",)
        writable = existing((self._root, *self._also_writable))
        if self._temp is None:
            self._temp = Path(os.path.realpath(tempfile.mkdtemp(prefix="ouro-")))
        return msgspec.structs.replace(
            policy,
            # A mount of its own cannot be renamed: another folder could take the place of .git with other settings.
            writable=(*writable, *existing((self._root / ".git",))) if limits == "repository" else writable,
            protected=existing(folder / name for folder in writable for name in (*git, *_PROTECTED)),
            temp=self._temp,
            network=self.network,
            connects=True,
        )


def _is_in(place: Path, folders: Sequence[Path]) -> bool:
    return any(Path(os.path.realpath(place)).is_relative_to(folder) for folder in folders)


def _is_private(place: str) -> bool:
    """Whether a place is in a folder that is empty inside, and would not be seen there."""
    return place.startswith(tuple(f"{folder}/" for folder in EMPTY_INSIDE))
