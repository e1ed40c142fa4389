"""A text that another program, a client of `ouro mcp serve`, wants to be remembered."""

from __future__ import annotations

from typing import Literal

import msgspec

from ouro.errors import UsageError
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entry_lookup import all_entries
from ouro.memory.long_term.git.values import NO_TURN, TurnRef
from ouro.memory.long_term.placement import place
from ouro.memory.long_term.remember import clean_text, edit_that_adds, find_same

_REASON = "another program wants it to be remembered"
"""Why the user is asked about the text."""


class ProposedText(msgspec.Struct, frozen=True):
    """What became of a text that another program proposed."""

    state: Literal["pending", "kept", "known"]
    """`known`: memory says the same already, and nothing was written."""
    place: str
    """The file, or the entry that says the same."""
    id: str = ""
    """The id of the pending proposal; empty in the other states."""


def propose_text(
    editor: MemoryEditor, text: str, client: str, *, is_allowed: bool = False
) -> ProposedText:
    """Propose a text that another program wants to be remembered. Returns what became of it: known
    already, pending until the user accepts it, or kept if the program is allowed to write.

    Args:
        client: the name of the program, for the user and for the commit.
        is_allowed: the user allows this program to write: the text is remembered without a question.

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
    # Accepting a proposal, and not writing the text, names the client in the commit.
    scope.accept(proposal, NO_TURN)
    return ProposedText("kept", f"{placement.scope}/{edit.name}")
