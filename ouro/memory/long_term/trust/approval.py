"""Approval: which changes of a turn there are, and the decision about each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from ouro.memory.long_term.git.values import Edits, FileEdit
from ouro.memory.long_term.store import FindsSecret
from ouro.memory.long_term.trust.provenance import Provenance

if TYPE_CHECKING:
    from ouro.memory.long_term.trust.states import ChangeEvent, State

ASKS = "memory.write is `ask`"
"""The reason of a change that waits because the user confirms every change."""


class MemoryChange(msgspec.Struct, frozen=True):
    """A change of one file, and what was decided about it."""

    edit: FileEdit
    """The change, starting from the trusted text."""
    event: ChangeEvent
    reason: str = ""
    """Why it is pending or refused."""

    @property
    def state(self) -> State:
        from ouro.memory.long_term.trust.states import TRANSITIONS

        return TRANSITIONS["written", self.event].state


def decide(
    edit: FileEdit,
    provenance: Provenance,
    finds_secret: FindsSecret,
    *,
    asks: bool = False,
    is_approved: bool = False,
) -> MemoryChange:
    """Decide about what a turn wrote into one file: refused if it holds a secret; pending if it is
    not in words of the user, or if the user wants to confirm every change; else trusted.

    Args:
        edit: starts from the trusted text of the file.
        asks: the user wants to confirm every change (`memory.write: ask`).
        is_approved: after a tool call of the turn exactly this change was in the file, and was approved.
    """
    if kind := finds_secret(f"{edit.name}\n{edit.after or ''}"):
        return MemoryChange(edit, "turn ended, holds a secret", f"holds a secret ({kind})")
    reason = ""
    if not is_approved:
        reason = provenance.reason_to_confirm(edit.before or "", edit.after or "")
    if reason or asks:
        return MemoryChange(edit, "turn ended, the user must confirm it", reason or ASKS)
    return MemoryChange(edit, "turn ended, in words of the user")


def is_trusted_after_tool(
    edit: FileEdit, provenance: Provenance, finds_secret: FindsSecret, *, is_own: bool
) -> bool:
    """Whether a change is trusted as soon as a tool ends; otherwise the end of the turn decides.

    Args:
        is_own: the file tools of the turn wrote it, or a git command that names the file.
    """
    # If everything that the turn wrote is known, and this is not among it, another process wrote
    # it.
    may_be_of_turn = is_own or not provenance.knows_all_writing
    return may_be_of_turn and decide(edit, provenance, finds_secret).state == "trusted"


def edits_of_turn(
    by_tools: Mapping[str, Edits],
    changed: Iterable[FileEdit],
    has_moved: Callable[[str], bool],
    approved: Iterable[str],
) -> dict[str, Edits]:
    """The edits of a turn by file, for each file in the order in which they were made: first the
    edits by file tools. Then come files that git commands moved or removed, and changes that were
    approved after a command. A new file counts as moved only if a removed one had its text.

    Args:
        by_tools: the edits by file tools.
        changed: the differences of the files from the accepted commit.
        has_moved: whether a git command of the turn moves or removes that file.
        approved: files that were approved after a command of the turn.
    """
    edits_by_file: dict[str, Edits] = dict(by_tools)
    removed_texts: set[str | None] = set()
    # Removed files come first: a file that moves was removed in another place.
    for edit in sorted(changed, key=lambda edit: edit.after is not None):
        edits = edits_by_file.get(edit.name, ())
        before = edits[-1].after if edits else edit.before
        if edit.after is None:
            removed_texts.add(before)
        # If file tools wrote into it, their edits were decided about one by one.
        is_approved = edit.name in approved and not edits
        is_moved = has_moved(edit.name) and (edit.after is None or edit.after in removed_texts)
        if is_moved or is_approved:
            edits_by_file[edit.name] = (*edits, FileEdit(edit.name, before, edit.after))
    return edits_by_file
