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


class TurnApproval:
    """Decides about the changes that a turn leaves in one memory folder: one method for each event.

    Args:
        provenance: what the messages of the turn say about who wrote what.
        folder: the memory folder.
        finds_secret: returns which kind of secret a text holds; empty where it holds none.
        asks: the user wants to confirm every change (`memory.write: ask`).
    """

    def __init__(self, provenance: Provenance, folder: Path, finds_secret: Callable[[str], str], *, asks: bool) -> None:
        self._provenance = provenance
        self._folder = folder
        self._finds_secret = finds_secret
        self._asks = asks

    def after_tool(self, edit: FileEdit) -> MemoryChange:
        """WRITTEN → TRUSTED, where a call can have written it, in words of the user; else it stays WRITTEN."""
        is_ours = self._provenance.may_have_written(self._folder, edit.name)
        is_trusted = (
            is_ours and not self._asks and not self._provenance.reason_to_confirm(edit.before or "", edit.after or "")
        )
        return MemoryChange(edit, ChangeState.TRUSTED if is_trusted else ChangeState.WRITTEN)

    def after_turn(self, edit: FileEdit, *, is_approved: bool, was_approved: bool) -> MemoryChange:
        """WRITTEN → FOREIGN, REFUSED, PENDING or TRUSTED: the first whose condition holds.

        Args:
            edit: the change.
            is_approved: the content of the file is approved, since a tool ended or ouro itself wrote it.
            was_approved: the file was approved after a tool; where it no longer is, it has changed since.
        """
        if not is_approved and self._is_foreign(edit.name, was_approved):
            return MemoryChange(edit, ChangeState.FOREIGN)
        if kind := self._finds_secret(f"{edit.name}\n{edit.after or ''}"):
            return MemoryChange(edit, ChangeState.REFUSED, f"holds a secret ({kind})")
        if is_approved and not self._asks:
            return MemoryChange(edit, ChangeState.TRUSTED)
        reason = self._provenance.reason_to_confirm(edit.before or "", edit.after or "")
        if reason := reason or (ASKS if self._asks else ""):
            return MemoryChange(edit, ChangeState.PENDING, reason)
        return MemoryChange(edit, ChangeState.TRUSTED)

    def _is_foreign(self, name: str, was_approved: bool) -> bool:
        """Whether no call of the turn can have left a file as it is (M3)."""
        if was_approved and self._provenance.knows_all_writing:
            return True
        return not self._provenance.may_have_written(self._folder, name)


def after_pause(*, agent_was_idle: bool, has_pending: bool) -> ChangeState:
    """WRITTEN → TRUSTED for changes between two turns, where only the user can have made them; else FOREIGN.

    Beside a change that is pending already nothing is trusted by itself: both may be from the same source.
    """
    return ChangeState.TRUSTED if agent_was_idle and not has_pending else ChangeState.FOREIGN


def edits_in(changes: Sequence[MemoryChange], *states: ChangeState) -> list[FileEdit]:
    return [change.edit for change in changes if change.state in states]
