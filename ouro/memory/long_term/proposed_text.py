"""A text that another program wants to be remembered: a proposal, unless the user allows that program."""

from __future__ import annotations

from typing import Literal

import msgspec

from ouro.errors import UsageError
from ouro.memory.backend import timestamp
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entries import all_entries
from ouro.memory.long_term.git.values import FileEdit, TurnRef
from ouro.memory.long_term.notes.note import note_text
from ouro.memory.long_term.remember import appended, checked, note_of, place, same_as
from ouro.memory.long_term.trust.proposals import by_agent

REASON = "another program wants it to be remembered"


class ProposedText(msgspec.Struct, frozen=True):
    state: Literal["pending", "kept", "known"]
    place: str
    """The file, or the entry that says the same."""
    id: str = ""
    """Of the proposal that is pending."""


def propose_text(editor: MemoryEditor, text: str, client: str, *, is_allowed: bool = False) -> ProposedText:
    """Propose a text for `client`; with `is_allowed` it is remembered at once. The commit names the client.

    Returns whether it is pending, kept or known already, and where.

    Raises:
        UsageError: it is empty or too long.
        SecretInMemory: it holds a secret; nothing was written.
        LongTermMemoryError, OSError: it could not be written.
    """
    chosen = place(checked(text), editor.names)
    if not chosen.text:
        raise UsageError("Nothing to remember: the text is empty.")
    own = editor.scope(chosen.scope)
    if known := same_as(chosen.text, [entry for entry in all_entries(editor) if entry.scope == chosen.scope]):
        return ProposedText("known", known.id)
    own.store.demand_no_secret([chosen.text])
    if chosen.is_note:
        note = note_of(editor, chosen)
        edit = FileEdit(note.file_name, None, note_text(note))
    else:
        name = f"{chosen.category}.md"
        before = editor.text(chosen.scope, name)
        edit = FileEdit(name, before or None, appended(before, [chosen.text]))
    proposal = by_agent(chosen.scope, [edit], REASON, (client,), "", 0, timestamp())
    proposal = msgspec.structs.replace(proposal, client=client)
    if not is_allowed:
        own.propose(proposal)
        return ProposedText("pending", f"{chosen.scope}/{edit.name}", proposal.id)
    own.accept(proposal, TurnRef("", 0))
    return ProposedText("kept", f"{chosen.scope}/{edit.name}")
