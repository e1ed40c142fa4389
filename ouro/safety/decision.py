"""The answers to "may this run?", and how much is free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["ask", "edit", "plan", "auto"]
"""How much is free: ask first, edit files, plan only, everything but the hard floor."""


@dataclass(frozen=True, slots=True)
class Allow:
    """Go ahead."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The person decides; `rule` is what "always" would save, empty where it cannot be remembered."""

    reason: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Deny:
    """No; `reason` is told to the model."""

    reason: str


Decision = Allow | Ask | Deny
