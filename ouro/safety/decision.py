"""The answers to "may this run?", and how much is free."""

from __future__ import annotations

from typing import Literal

import msgspec

Mode = Literal["ask", "edit", "plan", "auto"]
"""How much is free: ask first, edit files, plan only, everything but the hard floor."""


class Allow(msgspec.Struct, frozen=True):
    """Go ahead."""


class Ask(msgspec.Struct, frozen=True):
    """The person decides; `rule` is what "always" would save, empty where it cannot be remembered."""

    reason: str
    rule: str = ""


class Deny(msgspec.Struct, frozen=True):
    """No; `reason` is told to the model."""

    reason: str


Decision = Allow | Ask | Deny
