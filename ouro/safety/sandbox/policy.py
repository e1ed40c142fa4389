"""What a confined command may touch, and the protocol of the sandboxes that enforce it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

EMPTY_INSIDE = ("/tmp", "/run", "/var/tmp")  # noqa: S108
"""Places of sockets and files of other programs; inside they are empty, except for what a policy names."""
Tier = Literal["bubblewrap", "landlock", "seatbelt", "none"]


class SandboxPolicy(msgspec.Struct, frozen=True):
    """What one command may touch. Everything else can be read, not written. Paths are resolved and exist.

    Attributes:
        writable: folders and files that may be changed.
        protected: places inside `writable` that stay read-only.
        hidden: places that cannot be read.
        visible: places inside `hidden` or a private /tmp that can be read all the same.
        temp: the folder that stands for /tmp; None gives an empty one that goes with the command.
        network: whether the command shares the network of the machine.
        connects: whether it may connect to sockets at all, such as a server of its own on loopback.
    """

    writable: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    visible: tuple[Path, ...] = ()
    temp: Path | None = None
    network: bool = False
    connects: bool = True


class Sandbox(Protocol):
    """Confines commands to a policy."""

    @property
    def tier(self) -> Tier: ...

    @property
    def leaves_open(self) -> tuple[str, ...]:
        """What this tier cannot prevent, in words for the user."""
        ...

    def wrap(self, argv: Sequence[str], policy: SandboxPolicy) -> list[str]:
        """The command that starts `argv` confined to `policy`."""
        ...


class NoSandbox:
    """Commands have the rights of the user; permissions are the only protection."""

    tier: Tier = "none"
    leaves_open = ("commands have all the rights of the user",)

    def wrap(self, argv: Sequence[str], policy: SandboxPolicy) -> list[str]:  # noqa: ARG002
        return list(argv)


def existing(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The paths that exist, resolved, each once, in the same order."""
    return tuple(dict.fromkeys(Path(os.path.realpath(path)) for path in paths if os.path.lexists(path)))
