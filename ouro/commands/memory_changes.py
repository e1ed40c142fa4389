"""Changes of single entries: edit, confirm, archive, restore; accept and reject; switch on and off."""

from __future__ import annotations

from functools import partial
from typing import Literal

from ouro.commands.action import ActionContext, Answer, MemoryAccess, undo_hint
from ouro.commands.memory_notes import pending_changes
from ouro.commands.render import View, line
from ouro.errors import UsageError
from ouro.memory import long_term
from ouro.utils.text import one_line, plural


async def edit(context: ActionContext, entry: str) -> Answer:
    """Let the user edit the file of an entry in their editor, and save it. The file is saved also if
    it has problems, which are shown.

    Args:
        entry: a note, a core line or a core file; empty for the preferences.
    """
    open_file = await context.memory(
        lambda memory: long_term.open_file(memory.editor, entry or "preferences")
    )
    edited_text = await context.edit(open_file.text, open_file.name.replace("/", "-"))
    outcome = await context.memory(
        lambda memory: long_term.save_file(memory.editor, open_file, edited_text)
    )
    view: View = []
    if not outcome.changed:
        view.append(line("Nothing was changed."))
    elif context.session is None:  # in a session an event shows the change
        view.append(line(f"Changed {open_file.scope}/{open_file.name}."))
    for problem in outcome.problems:
        text = f"{open_file.name} is saved as you wrote it, but {problem}."
        view.append(line(text, level="warning"))
    return Answer(outcome, [*view, *undo_hint(context, outcome.undo)])


async def archive(context: ActionContext, note: str) -> Answer:
    """Move a note to the archive. Raises UsageError if it is there already."""
    return await context.memory(lambda memory: _archive_note(context, memory, note))


async def restore(context: ActionContext, note: str) -> Answer:
    """Restore a note from the archive, and confirm it. Raises UsageError if it is not there."""
    return await context.memory(lambda memory: _restore_note(context, memory, note))


async def confirm(context: ActionContext, note: str) -> Answer:
    """Record that a note still holds. A note of the archive is restored."""
    return await context.memory(lambda memory: _confirm_note(context, memory, note))


def _archive_note(context: ActionContext, memory: MemoryAccess, note: str) -> Answer:
    """Move the named note to the archive. Raises UsageError if it is there already."""
    entry = _find_note(memory, note)
    if entry.archived:
        raise UsageError(f"{entry.id} is in the archive already.")
    [change] = memory.editor.notebook.archive([entry.id], "person")
    return _answer_note_changed(context, entry, outcome="archived", commit=change.commit)


def _restore_note(context: ActionContext, memory: MemoryAccess, note: str) -> Answer:
    """Restore and confirm the named note. Raises UsageError if it is not in the archive."""
    entry = _find_note(memory, note)
    if not entry.archived:
        raise UsageError(
            f"{entry.id} is not in the archive.", "`confirm` records that it still holds."
        )
    change = memory.editor.notebook.confirm(entry.id, "person")  # restores it, too
    return _answer_note_changed(context, entry, outcome="restored", commit=change.commit)


def _confirm_note(context: ActionContext, memory: MemoryAccess, note: str) -> Answer:
    """Record that the named note still holds."""
    entry = _find_note(memory, note)
    change = memory.editor.notebook.confirm(entry.id, "person")
    return _answer_note_changed(context, entry, outcome="confirmed", commit=change.commit)


def _find_note(memory: MemoryAccess, note: str) -> long_term.MemoryEntry:
    """The note with this id, or with an id that begins so. Raises UsageError if there is none, or it
    is a core line.
    """
    entry = long_term.find_entry(memory.editor, note)
    if entry.kind == "core":
        commands = [f"memory edit {entry.scope}/{entry.file}", f"memory forget {entry.id}"]
        raise UsageError(
            f"{entry.id} is a core line, not a note.", "A core line is always in use.", commands
        )
    return entry


def _answer_note_changed(
    context: ActionContext,
    entry: long_term.MemoryEntry,
    outcome: Literal["archived", "restored", "confirmed"],
    commit: str,
) -> Answer:
    """The answer after a change of a note: what was done, and how to undo its commit."""
    head = line(f"{entry.id[:12]} is {outcome}: {one_line(entry.text, 80)}")
    return Answer(
        {"id": entry.id, "scope": entry.scope, "undo": commit}, [head, *undo_hint(context, commit)]
    )


async def _switch(on: bool, context: ActionContext) -> Answer:
    """Switch the memory of this repository on or off for later sessions. Nothing is remembered of
    what is said in this session while it is off.
    """
    folder = await context.set_repo_memory(on=on)
    state = "on" if on else "off: nothing of it is read or written"
    view = [line(f"From the next session on, memory of this repository is {state}.")]
    if context.session and not on:
        view.append(line("What is said in this session from now on is not captured."))
    return Answer({"folder": str(folder), "on": on}, view)


turn_on, turn_off = partial(_switch, True), partial(_switch, False)


async def _answer_proposal(is_accepted: bool, context: ActionContext, proposal: str) -> Answer:
    """Accept or reject a pending change.

    Args:
        proposal: the id of the change, or its start; it may be empty if only one is pending. Raises
            UsageError if it fits no change, or several.
    """
    pending = await context.memory(lambda memory: pending_changes(memory.editor))
    if not pending:
        raise UsageError("There are no pending changes of memory.")
    matching = [change for change in pending if change.id.startswith(proposal)]
    if len(matching) != 1:
        problem = f"No pending change is `{proposal}`."
        if matching:
            problem = f"{plural(len(matching), 'change')} are pending: name one."
        ids = ", ".join(change.id for change in pending)
        raise UsageError(problem, f"Pending: {ids}.", ["memory list"])
    [change] = matching
    await context.answer_proposal(change.id, accept=is_accepted)
    view: View = []
    if not is_accepted:
        text = "Rejected: it is not remembered. The git history still has it."
        view.append(line(text))
    elif context.session is None:  # in a session an event shows the change
        view.append(line("Accepted: it is remembered now."))
    files = [edit.name for edit in change.edits]
    return Answer({"id": change.id, "scope": change.scope, "files": files}, view)


accept, reject = partial(_answer_proposal, True), partial(_answer_proposal, False)
