"""A text that another program, a client of `ouro mcp serve`, wants to be remembered."""

from __future__ import annotations

from typing import Literal

import msgspec

from ouro.errors import UsageError
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entries import all_entries
from ouro.memory.long_term.git.values import NO_TURN, TurnRef
from ouro.memory.long_term.placement import place
from ouro.memory.long_term.remember import clean_text, edit_that_adds, find_same

_REASON = "another program wants it to be remembered"


class ProposedText(msgspec.Struct, frozen=True):
    """What became of a text that another program proposed."""

    state: Literal["pending", "kept", "known"]
    place: str
    """The file, or the entry that says the same."""
    id: str = ""
    """The id of the pending proposal."""


def propose_text(
    editor: MemoryEditor, text: str, client: str, *, is_allowed: bool = False
) -> ProposedText:
    """Propose a text for `client`; with `is_allowed` it is remembered at once. The commit names the
    client.

    Returns whether it is pending, kept or known already, and where.

    Raises:
        UsageError: it is empty or too long.
        SecretInMemory: it holds a secret; nothing was written.
        LongTermMemoryError, OSError: it could not be written.
    """
    placement = place(clean_text(text), editor.names)
    if not placement.text:
        raise UsageError("Nothing to remember: the text is empty.")
    scope = editor.scope(placement.scope)
    in_scope = [entry for entry in all_entries(editor) if entry.scope == placement.scope]
    if same_entry := find_same(placement.text, in_scope):
        return ProposedText("known", same_entry.id)
    scope.store.demand_no_secret([placement.text])
    edit = edit_that_adds(editor, placement)
    proposal = scope.propose([edit], _REASON, (client,), TurnRef(client=client))
    if not is_allowed:
        return ProposedText("pending", f"{placement.scope}/{edit.name}", proposal.id)
    scope.accept(proposal, NO_TURN)
    return ProposedText("kept", f"{placement.scope}/{edit.name}")
