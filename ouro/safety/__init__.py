"""What runs unasked, what is asked, what never runs; where files may be opened; which folders are trusted; secrets."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ouro.safety.access import Effect as Effect
    from ouro.safety.decision import Allow as Allow
    from ouro.safety.decision import Ask as Ask
    from ouro.safety.decision import Deny as Deny
    from ouro.safety.permissions import Permissions as Permissions
    from ouro.safety.workspace import Workspace as Workspace

_PLACES = {
    "Effect": "access",
    "Allow": "decision",
    "Ask": "decision",
    "Deny": "decision",
    "Permissions": "permissions",
    "Workspace": "workspace",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(name)
    return getattr(import_module(f"ouro.safety.{_PLACES[name]}"), name)
