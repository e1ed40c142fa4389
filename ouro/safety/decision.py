"""Decision: the effects of a tool call, and whether it may run (allow, ask, deny)."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

Mode = Literal["ask", "edit", "plan", "auto"]
"""What runs unasked: reading only; changing files, too; nothing is changed; all but the hard floor."""


class Effect(StrEnum):
    """What a tool call touches outside of the session."""

    NONE = "none"
    READ = "read"
    """Reads files; the targets are paths."""
    WRITE = "write"
    """Changes files; the targets are paths."""
    RUN = "run"
    """Runs a shell line; the target is the line."""
    NET = "net"
    """Reaches a network; the target is a URL."""


class Allow(msgspec.Struct, frozen=True):
    """The call runs."""


class Ask(msgspec.Struct, frozen=True):
    """The user decides; `rule` is what "always" would save, empty if no rule can be saved."""

    reason: str
    rule: str = ""


class Deny(msgspec.Struct, frozen=True):
    """The call does not run; `reason` is for the model."""

    reason: str


Decision = Allow | Ask | Deny
