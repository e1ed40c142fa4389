"""Changes of single entries: edit, confirm, archive, restore; accept and reject; switch on and off."""

from __future__ import annotations

from functools import partial

from ouro.commands.action import ActionContext, Answer, MemoryAccess, undo_hint
from ouro.commands.memory_notes import pending_of
from ouro.commands.render import line
from ouro.errors import UsageError
from ouro.memory import long_term
from ouro.utils.text import one_line, plural


async def edit(context: ActionContext, entry: str) -> Answer:
    opened = await context.memory(
        lambda memory: long_term.open_file(memory.editor, entry or "preferences")
    )
    after = await context.edit(opened.text, opened.name.replace("/", "-"))
    done = await context.memory(lambda memory: long_term.save_file(memory.editor, opened, after))
    changed = [] if context.session else [line(f"Changed {opened.scope}/{opened.name}.")]
    view = changed if done.changed else [line("Nothing was changed.")]
    view += [
        line(f"{opened.name} is saved as you wrote it, but {what}.", level="warning")
        for what in done.problems
    ]
    return Answer(done, [*view, *undo_hint(context, done.undo)])


async def _change_note(done: str, context: ActionContext, note: str) -> Answer:
    """Archive, restore or confirm a note; `done` is what the answer calls it. A restored note is
    also confirmed. Raises UsageError if the entry is not in a state for it.
    """

    def work(memory: MemoryAccess) -> Answer:
        entry = long_term.find_entry(memory.editor, note)
        if entry.kind == "core":
            commands = [f"memory edit {entry.scope}/{entry.file}", f"memory forget {entry.id}"]
            raise UsageError(
                f"{entry.id} is a core line, not a note.", "A core line is always in use.", commands
            )
        if done == "restored" and not entry.archived:
            raise UsageError(
                f"{entry.id} is not in the archive.", "`confirm` records that it still holds."
            )
        if done == "archived" and entry.archived:
            raise UsageError(f"{entry.id} is in the archive already.")
        book = memory.editor.notebook
        undo = (
            book.archive([entry.id], "person")[0]
            if done == "archived"
            else book.confirm(entry.id, "person")
        ).commit
        what = line(f"{entry.id[:12]} is {done}: {one_line(entry.text, 80)}")
        return Answer(
            {"id": entry.id, "scope": entry.scope, "undo": undo}, [what, *undo_hint(context, undo)]
        )

    return await context.memory(work)


confirm = partial(_change_note, "confirmed")
archive = partial(_change_note, "archived")
restore = partial(_change_note, "restored")


async def _switch(on: bool, context: ActionContext) -> Answer:
    folder = await context.set_repo_memory(on=on)
    what = "on" if on else "off: nothing of it is read or written"
    view = [line(f"From the next session on, memory of this repository is {what}.")]
    return Answer({"folder": str(folder), "on": on}, view)


turn_on, turn_off = partial(_switch, True), partial(_switch, False)


async def _answer_proposal(is_accepted: bool, context: ActionContext, proposal: str) -> Answer:
    """Accept or reject the pending change of that id or its start, or the only one."""
    pending = await context.memory(lambda memory: pending_of(memory.editor))
    matching = [found for found in pending if found.id.startswith(proposal)]
    if not pending:
        raise UsageError("There are no pending changes of memory.")
    if len(matching) != 1:
        ids = ", ".join(found.id for found in pending)
        several = f"{plural(len(matching), 'change')} are pending: name one."
        raise UsageError(
            several if matching else f"No pending change is `{proposal}`.",
            f"Pending: {ids}.",
            ["memory list"],
        )
    found = matching[0]
    await context.answer_proposal(found.id, accept=is_accepted)
    rejected = "Rejected: it is not remembered. The git history still has it."
    view = [line("Accepted: it is remembered now." if is_accepted else rejected)]
    if is_accepted and context.session:
        view = []  # an event shows the change
    return Answer(
        {"id": found.id, "scope": found.scope, "files": [edit.name for edit in found.edits]}, view
    )


accept, reject = partial(_answer_proposal, True), partial(_answer_proposal, False)
