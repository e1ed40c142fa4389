"""Approval: the states of a change of a memory file; see docs/architecture.md, "Approval of memory changes"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from ouro.memory.long_term.git.values import FileEdit
from ouro.memory.long_term.trust.provenance import Provenance

ASKS = "memory.write is `ask`"


class ChangeState(Enum):
    """The state of a change of a file. Only TRUSTED text is sent to the model."""

    WRITTEN = "written"
    """In the file since it was last read; not decided yet."""
    TRUSTED = "trusted"
    """Approved: it becomes part of the accepted history."""
    PENDING = "pending"
    """The agent wrote it and the user has to confirm it: taken out of the file, stored as a proposal."""
    FOREIGN = "foreign"
    """Written outside of ouro: it stays in the file, and the user has to confirm it."""
    REFUSED = "refused"
    """It held a secret: the file is as it was before."""


class MemoryChange(msgspec.Struct, frozen=True):
    edit: FileEdit
    """From the trusted text."""
    state: ChangeState
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

    def after_tool(self, edit: FileEdit, *, is_own: bool) -> MemoryChange:
        """WRITTEN → TRUSTED, where the turn wrote it, or one of its commands may have, in words of the user.

        Else it stays WRITTEN.

        Args:
            is_own: the file tools of the turn wrote it, or a git command that names the file.
        """
        may_be_ours = is_own or not self.provenance.knows_all_writing
        is_trusted = may_be_ours and not self.asks and not self._reason(edit) and not self._secret(edit)
        return MemoryChange(edit, ChangeState.TRUSTED if is_trusted else ChangeState.WRITTEN)

    def after_turn(self, edit: FileEdit, *, is_approved: bool) -> MemoryChange:
        """WRITTEN → REFUSED, PENDING or TRUSTED: the first whose condition holds.

        For what the turn wrote; all else that is not approved is FOREIGN.

        Args:
            is_approved: a tool of the turn ended with exactly this change, and it was approved then.
        """
        if kind := self._secret(edit):
            return MemoryChange(edit, ChangeState.REFUSED, f"holds a secret ({kind})")
        reason = "" if is_approved else self._reason(edit)
        if reason or self.asks:
            return MemoryChange(edit, ChangeState.PENDING, reason or ASKS)
        return MemoryChange(edit, ChangeState.TRUSTED)

    def _secret(self, edit: FileEdit) -> str:
        return self.finds_secret(f"{edit.name}\n{edit.after or ''}")

    def _reason(self, edit: FileEdit) -> str:
        return self.provenance.reason_to_confirm(edit.before or "", edit.after or "")


def after_pause(*, agent_was_idle: bool, has_pending: bool) -> ChangeState:
    """WRITTEN → TRUSTED for changes between two turns, where only the user can have made them; else FOREIGN.

    Beside a change that is pending already nothing is trusted by itself: both may be from the same source.
    """
    return ChangeState.TRUSTED if agent_was_idle and not has_pending else ChangeState.FOREIGN


def edits_in(changes: Sequence[MemoryChange], *states: ChangeState) -> list[FileEdit]:
    return [change.edit for change in changes if change.state in states]
