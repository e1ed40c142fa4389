"""Approval: the states of a change of a memory file; see docs/architecture.md, "Approval of memory changes"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from ouro.memory.long_term.git.values import FileEdit
from ouro.memory.long_term.trust.provenance import Provenance

ASKS = "memory.write is `ask`"


class MemoryChange(msgspec.Struct, frozen=True):
    edit: FileEdit
    """From the trusted text."""
    state: Literal["trusted", "pending", "refused"]
    """Only trusted text is sent to the model. `refused`: it held a secret."""
    reason: str = ""
    """Why it is pending or was refused."""


class TurnApproval(msgspec.Struct, frozen=True):
    """Decides about the changes that a turn leaves in one memory folder: one method for each event."""

    provenance: Provenance
    """What the messages of the turn say about its words."""
    finds_secret: Callable[[str], str]
    """Returns which kind of secret a text holds; empty where it holds none."""
    asks: bool
    """The user wants to confirm every change (`memory.write: ask`)."""

    def is_trusted_after_tool(self, edit: FileEdit, *, is_own: bool) -> bool:
        """Whether the turn wrote it, or one of its commands may have, in words of the user; else its end decides.

        Args:
            is_own: the file tools of the turn wrote it, or a git command that names the file.
        """
        may_be_ours = is_own or not self.provenance.knows_all_writing
        return may_be_ours and not self.asks and not self._reason(edit) and not self._secret(edit)

    def after_turn(self, edit: FileEdit, *, is_approved: bool) -> MemoryChange:
        """What becomes of what the turn wrote; all else that is not approved is foreign.

        Args:
            is_approved: a tool of the turn ended with exactly this change, and it was approved then.
        """
        if kind := self._secret(edit):
            return MemoryChange(edit, "refused", f"holds a secret ({kind})")
        reason = "" if is_approved else self._reason(edit)
        if reason or self.asks:
            return MemoryChange(edit, "pending", reason or ASKS)
        return MemoryChange(edit, "trusted")

    def _secret(self, edit: FileEdit) -> str:
        return self.finds_secret(f"{edit.name}\n{edit.after or ''}")

    def _reason(self, edit: FileEdit) -> str:
        return self.provenance.reason_to_confirm(edit.before or "", edit.after or "")
