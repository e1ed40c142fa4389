"""What kind of thing a tool does: what Permissions looks at."""

from __future__ import annotations

from enum import StrEnum


class Effect(StrEnum):
    """What a tool call does to the world outside the conversation."""

    NONE = "none"
    """Nothing: a plan, a question to the person."""
    READ = "read"
    """Reads files; the targets are paths."""
    WRITE = "write"
    """Changes files; the targets are paths."""
    RUN = "run"
    """Runs a shell line; the target is the line."""
    NET = "net"
    """Reaches a network; the target is a URL."""
