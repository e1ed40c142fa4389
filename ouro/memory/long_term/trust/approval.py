"""Approval: the states of a change of a memory file; see docs/architecture.md, "Approval of memory changes"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path

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
    state: ChangeState
    reason: str = ""
    """Why it is pending or was refused."""


class TurnApproval(msgspec.Struct, frozen=True):
    """Decides about the changes that a turn leaves in one memory folder: one method for each event."""

    provenance: Provenance
    """What the messages of the turn say about who wrote what."""
    folder: Path
    finds_secret: Callable[[str], str]
    """Returns which kind of secret a text holds; empty where it holds none."""
    asks: bool
    """The user wants to confirm every change (`memory.write: ask`)."""

    def after_tool(self, edit: FileEdit) -> MemoryChange:
        """WRITTEN → TRUSTED, where a call can have written it, in words of the user; else it stays WRITTEN."""
        if self.asks or not self.provenance.may_have_written(self.folder, edit.name) or self._reason(edit):
            return MemoryChange(edit, ChangeState.WRITTEN)
        return MemoryChange(edit, ChangeState.TRUSTED)

    def after_turn(self, edit: FileEdit, *, is_approved: bool, was_approved: bool) -> MemoryChange:
        """WRITTEN → FOREIGN, REFUSED, PENDING or TRUSTED: the first whose condition holds.

        Args:
            is_approved: the content of the file is approved, since a tool ended or ouro itself wrote it.
            was_approved: the file was approved after a tool; where it no longer is, it has changed since.
        """
        # No call of the turn can have left the file as it is (M3).
        has_changed_since = was_approved and self.provenance.knows_all_writing
        if not is_approved and (has_changed_since or not self.provenance.may_have_written(self.folder, edit.name)):
            return MemoryChange(edit, ChangeState.FOREIGN)
        if kind := self.finds_secret(f"{edit.name}\n{edit.after or ''}"):
            return MemoryChange(edit, ChangeState.REFUSED, f"holds a secret ({kind})")
        if is_approved and not self.asks:
            return MemoryChange(edit, ChangeState.TRUSTED)
        if reason := self._reason(edit) or (ASKS if self.asks else ""):
            return MemoryChange(edit, ChangeState.PENDING, reason)
        return MemoryChange(edit, ChangeState.TRUSTED)

    def _reason(self, edit: FileEdit) -> str:
        return self.provenance.reason_to_confirm(edit.before or "", edit.after or "")


def after_pause(*, agent_was_idle: bool, has_pending: bool) -> ChangeState:
    """WRITTEN → TRUSTED for changes between two turns, where only the user can have made them; else FOREIGN.

    Beside a change that is pending already nothing is trusted by itself: both may be from the same source.
    """
    return ChangeState.TRUSTED if agent_was_idle and not has_pending else ChangeState.FOREIGN


def edits_in(changes: Sequence[MemoryChange], *states: ChangeState) -> list[FileEdit]:
    return [change.edit for change in changes if change.state in states]
