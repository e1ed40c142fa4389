"""What may run without asking, what is asked, and what never runs: mode, rules and the hard floor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ouro.safety.access import Effect

if TYPE_CHECKING:
    from ouro.safety.workspace import Workspace

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


class Permissions:
    """Decides on each tool call, and remembers what the person said."""

    def __init__(
        self,
        workspace: Workspace,
        mode: Mode,
        *,
        allow: Sequence[str] = (),
        ask: Sequence[str] = (),
        deny: Sequence[str] = (),
        on_remember: Callable[[str], None] | None = None,
    ) -> None: ...

    @property
    def mode(self) -> Mode:
        """The mode in force; may be set at any time."""
        ...

    @mode.setter
    def mode(self, mode: Mode) -> None: ...

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules in force, each as `allow shell(git status *)`."""
        ...

    def decide(self, tool: str, effect: Effect, targets: Sequence[str]) -> Decision:
        """What to do with a call of `tool` that would touch `targets`."""
        ...

    def admit(self, effect: Effect, targets: Sequence[str]) -> None:
        """After an allow or a yes: the workspace lets this call open its outside or protected paths."""
        ...

    def remember(self, rule: str) -> None:
        """Allow what `rule` names from now on.

        Raises:
            ConfigError: the rule cannot be read.
        """
        ...
