"""Sandboxes of the operating system for commands: the strongest tier that works here, and its policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ouro.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ouro.safety.sandbox.choose import ChosenSandbox, choose_sandbox
    from ouro.safety.sandbox.confinement import Confinement
    from ouro.safety.sandbox.policy import NoSandbox, Sandbox, SandboxPolicy, Tier, existing

__getattr__ = lazy_exports(__name__)
