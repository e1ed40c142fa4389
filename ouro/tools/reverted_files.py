"""The text about files that the sandbox has moved out of the workspace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ouro.safety import RevertedFile
from ouro.utils.runtime import tilde

_MAX_NAMED = 5


def describe_reverted(taken: Sequence[RevertedFile], root: Path) -> str:
    """As `Other programs obey sub/.envrc, so ouro moved it to …`."""
    names = [
        str(item.path.relative_to(root) if item.path.is_relative_to(root) else item.path)
        for item in taken[:_MAX_NAMED]
    ]
    more = f" and {len(taken) - _MAX_NAMED} more" if len(taken) > _MAX_NAMED else ""
    changed = (
        ", and restored what was there before" if any(item.was_changed for item in taken) else ""
    )
    places = ", ".join(dict.fromkeys(str(item.moved.parent) for item in taken))
    return (
        f"Other programs obey {', '.join(names)}{more}, so ouro moved what the command made there"
        f" to {tilde(Path(places))}{changed}"
    )
