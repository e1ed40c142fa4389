"""Sandbox: the protocol of what keeps a command inside its limits; the sandbox itself is not built yet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Sandbox(Protocol):
    """Something that a command can be started inside of."""

    def wrap(self, argv: Sequence[str], *, writable: Sequence[Path], network: bool) -> list[str]:
        """What starts `argv` inside: it may write below `writable` only, and reach a network or not."""
        ...


class NoSandbox:
    """No limits but those of the user: what the command list asks about is all the protection there is."""

    def wrap(self, argv: Sequence[str], *, writable: Sequence[Path], network: bool) -> list[str]:  # noqa: ARG002
        return list(argv)
