"""Confinement of commands that run in a container, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec

from ouro.safety.rules import Limits
from ouro.safety.sandbox.confinement import NO_TOKEN, SET_LIMITS, Confinement
from ouro.safety.sandbox.containers import Containers
from ouro.safety.sandbox.devcontainer import DevContainer, read_devcontainer
from ouro.safety.sandbox.sandboxes import LEFT_RUNNING, existing
from ouro.settings import SandboxSettings

_TAG_POSITION = 4
"""The position of the tag among the words of `limit_command`."""


class ContainerConfinement(Confinement):
    """Runs the commands of a session in containers. Programs that ouro starts itself (hooks,
    servers, tools from files) stay on this machine, in its sandbox.

    Args:
        root: the workspace.
        state_dir: a private folder of ouro.
        settings: engine, image and limits.
        devcontainer: returns the devcontainer of the project; raises ToolError if it cannot be
            used.
        folders: the further arguments of `Confinement`.
    """

    in_container = True

    def __init__(
        self,
        root: Path,
        state_dir: Path,
        settings: SandboxSettings,
        *,
        devcontainer: Callable[[], DevContainer] | None = None,
        **folders: Any,
    ) -> None:
        super().__init__(root, state_dir, settings, **folders)
        self._devcontainer = devcontainer or partial(read_devcontainer, self._root)
        self._has_set_up = False
        """Whether `take_setup` has returned its line."""

    @cached_property
    def containers(self) -> Containers:
        """The containers of the session; none is started here."""
        return Containers(self._root, self._state_dir, self.settings, self._devcontainer)

    def describe_container(self) -> str:
        image = self.settings.image or "the image of the project's devcontainer"
        return (
            f"shell runs in a container ({image}) with the programs of that image; only the"
            " workspace, at the same path, /tmp and a new home folder can be changed there"
        )

    def take_warning(self) -> str:
        """Returns a warning if `sandbox.hosts` is set, which has no effect in a container. Empty
        otherwise, and at each call after the one with the warning.
        """
        if self._has_warned or not self.settings.hosts:
            return ""
        self._has_warned = True
        hosts = ", ".join(self.settings.hosts)
        return (
            f"`sandbox.hosts` ({hosts}) has no effect in a container; `sandbox.network: true` opens"
            " the network."
        )

    @property
    def known_tier(self) -> str:
        return self.containers.verified_engine

    @property
    def is_on(self) -> bool:
        """Always: without a container that passes its test no command runs."""
        return True

    def wrap_command(
        self, argv: Sequence[str], limits: Limits, call_id: str, cwd: Path, *, pty: bool = False
    ) -> Sequence[str]:
        """Returns the command line that starts `argv` in the container for these limits. `argv` are
        the words of `limit_command`, one of which is the tag of the processes.

        With the limits `off` the command may change all of the workspace and use the network of the
        machine. It still runs in a container: no command of the agent runs on the machine itself.

        Args:
            cwd: the folder in which it runs.
            pty: whether it gets a terminal.
        """
        with self._lock:
            self._kept_from_memory.discard(call_id)
            policy = self._policy("workspace" if limits == "off" else limits)
            policy = msgspec.structs.replace(policy, visible=existing(self._visible))
            if limits == "off":
                policy = msgspec.structs.replace(policy, protected=(), network=True)
            else:
                policy = self._record_call(policy, limits, "container", call_id)
            policy = self._without_sockets(policy, "container")
            bounds = self._ulimit_arguments("container")
            # The script of the container records what is left running, by the tag.
            bounded = ["/bin/sh", "-c", f'{SET_LIMITS}exec "$@"', "sh", NO_TOKEN, *bounds, *argv]
            tag = int(argv[_TAG_POSITION])
            command = self.containers.command(tag, bounded, limits, policy, cwd, pty=pty)
            self._tokens[call_id] = command.inside.tag
            return command

    def take_setup(self) -> str:
        """Returns the shell line of the devcontainer that prepares the container; empty after the
        first call.
        """
        if self._has_set_up:
            return ""
        line = self.containers.plan.setup
        self._has_set_up = True
        return line

    def check_container(self) -> str:
        """Start a container and remove it; returns its engine and image, as text for the user.
        Blocks. No command runs in it, so it shares no folders that commands only read.

        Raises:
            ToolError: the container cannot be used.
        """
        with self._lock:
            policy = msgspec.structs.replace(self._policy("workspace"), visible=())
            return self.containers.start_and_remove(policy)

    @property
    def _left_running(self) -> Path:
        return (self._temp.path if self._temp else self._state_dir) / LEFT_RUNNING

    def close(self) -> None:
        if "containers" in self.__dict__:  # the cached property was used
            self.containers.close()
        super().close()
