"""What a case of the benchmark is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    before: str
    said: str
    """What the user says later; it may be a message with more than the statement."""


@dataclass(frozen=True)
class Placed:
    said: str
    scope: str


@dataclass(frozen=True)
class Message:
    said: str
    wanted: str = ""
    """A pattern in what must be kept; empty: nothing may be kept."""
    scope: str = ""
