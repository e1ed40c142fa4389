"""Notes and core files: list, show, search, remember, edit, confirm, archive, restore, accept, reject, receipt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.commands import memory_views as views
from ouro.commands.action import ActionContext, Answer, MemoryAccess
from ouro.commands.render import CommandText, Quote, Title, ViewItem, line
from ouro.errors import UsageError
from ouro.memory.long_term import (
    archive_note,
    confirm_note,
    details_of,
    find_entry,
    open_file,
    remember_text,
    restore_note,
    save_file,
)
from ouro.memory.long_term import list_entries as list_entries_in
from ouro.utils.runtime import tilde
from ouro.utils.text import one_line, plural

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext
    from ouro.memory.long_term import MemoryEditor, MemoryEntry, Proposal, Scope


async def files(context: ActionContext) -> Answer:
    """The folders of memory with their core files, and pending changes."""

    def work(memory: MemoryAccess) -> tuple[list[tuple[str, list[tuple[str, int]]]], list[Proposal]]:
        editor = memory.editor
        folders = []
        for scope in editor.scopes:
            found = [(f"{name}.md", editor.text(scope.scope, f"{name}.md")) for name in scope.store.core]
            counts = [(name, sum(bool(row.strip()) for row in text.splitlines())) for name, text in found if text]
            folders.append((tilde(scope.store.folder), counts))
        return folders, _pending(editor)

    folders, pending = await context.memory(work)
    return Answer(folders, [*views.folders(folders), *views.pending(pending)])


async def list_entries(context: ActionContext, what: Sequence[str], limit: int) -> Answer:
    """Notes and core lines, narrowed by scope, category or state, and pending changes."""

    def work(memory: MemoryAccess) -> tuple[list[MemoryEntry], list[Proposal]]:
        return list_entries_in(memory.editor, " ".join(what)), _pending(memory.editor)

    entries, pending = await context.memory(work)
    shown = limit or (views.MAX_LISTED if context.session else len(entries))
    return Answer(entries[:shown], [*views.entries(entries, shown), *views.pending(pending)])


async def show(context: ActionContext, entry: str) -> Answer:
    """A note with its versions, a core line, or a core file; without a name all core files."""

    def work(memory: MemoryAccess) -> Answer:
        editor = memory.editor
        scope, _, name = entry.rpartition("/")
        core = editor.scopes[0].store.core if editor.scopes else ()
        files = [file for file in core if file.startswith(name.removesuffix(".md"))] if name or not entry else []
        if files:
            scopes = [one for one in editor.names if scope in ("", one)]
            places = [(one, f"{file}.md") for one in scopes for file in files]
            return _core_files(editor, places, only_text=context.session is None and bool(entry))
        found = details_of(editor, entry)
        return Answer(found, views.details(found))

    return await context.memory(work)


async def search(
    context: ActionContext,
    words: Sequence[str],
    limit: int,
    **flags: str,
) -> Answer:
    """Notes, core lines and messages of any session that fit the words, best first."""
    from ouro.memory.long_term import filters_in, opening_of, source_of

    text, filters = filters_in(" ".join(words))
    if not text:
        raise UsageError(
            "Name the words to search for.", commands=["memory search optimistic locking since:2026-01-01"]
        )
    if limit < 1:
        raise UsageError(f"--max is {limit}: it must be at least 1.")
    filters |= {name: value for name, value in flags.items() if value}
    hits = await context.search_memory(text, limit, filters)
    value = [
        {**msgspec.structs.asdict(hit), "badges": badges, "source": source_of(hit),
         "open": opening_of(hit, in_session=context.session is not None)}
        for hit, badges in hits
    ]  # fmt: skip
    return Answer(value, views.hits(value), 0 if hits else 1)


async def stats(context: ActionContext) -> Answer:
    """How many notes and core lines there are, of what kind and age."""
    from ouro.memory.long_term import RecallLog
    from ouro.memory.long_term import memory_stats as count
    from ouro.utils.runtime import get_recall_log_path, get_sessions_dir

    recall_log = RecallLog(get_recall_log_path(), get_sessions_dir())
    found = await context.memory(lambda memory: count(memory.editor, recall_log))
    return Answer(found, views.stats(found))


async def lessons(context: ActionContext) -> Answer:
    """Corrections and patterns of this project, newest first."""
    from ouro.memory.long_term import find_lessons as find

    found = await context.memory(lambda memory: find(memory.editor))
    see = line("What taught a lesson: ", CommandText("memory evidence ID"))
    return Answer(found, [*views.entries(found), see] if found else [line("There are no lessons yet.")])


async def remember(context: ActionContext, text: Sequence[str], scope: Scope | None) -> Answer:
    """Save a note or core line now, without a model."""
    words = sys.stdin.read() if list(text) == ["-"] and not context.session else " ".join(text)
    done = await context.memory(lambda memory: remember_text(memory.editor, words, scope), reports=False)
    return Answer(done, views.remembered(done))


async def edit(context: ActionContext, entry: str) -> Answer:
    """Edit a note or a core file in the user's editor."""
    opened = await context.memory(lambda memory: open_file(memory.editor, entry or "preferences"))
    after = await context.edit(opened.text, opened.name.replace("/", "-"))
    done = await context.memory(lambda memory: save_file(memory.editor, opened, after))
    changed = [] if context.session else [line(f"Changed {opened.scope}/{opened.name}.")]
    view = changed if done.changed else [line("Nothing was changed.")]
    warnings = [
        line(f"{opened.name} is saved as you wrote it, but {problem}.", level="warning") for problem in done.problems
    ]
    return Answer(done, [*view, *warnings, *views.undo_hint(context, done.undo)])


async def confirm(context: ActionContext, note: str) -> Answer:
    """Confirm that a note still holds."""
    return await _with_note(context, note, confirm_note, "confirmed")


async def archive(context: ActionContext, note: str) -> Answer:
    """Stop recalling a note."""
    return await _with_note(context, note, archive_note, "archived")


async def restore(context: ActionContext, note: str) -> Answer:
    """Bring a note back from the archive."""
    return await _with_note(context, note, restore_note, "restored")


async def accept(context: ActionContext, proposal: str) -> Answer:
    """Let a pending change take effect."""
    found = await _find_pending(context, proposal)
    await context.answer_proposal(found.id, accept=True)
    # In a session an event shows the change.
    return Answer(_proposal_data(found), [] if context.session else [line("Accepted: it is remembered now.")])


async def reject(context: ActionContext, proposal: str) -> Answer:
    """Drop a pending change."""
    found = await _find_pending(context, proposal)
    await context.answer_proposal(found.id, accept=False)
    return Answer(_proposal_data(found), [line("Rejected: it is not remembered. The git history still has it.")])


async def turn_on(context: ActionContext) -> Answer:
    """Read and write the memory of this repository, from the next session on."""
    return await _switch(context, on=True)


async def turn_off(context: ActionContext) -> Answer:
    """Do not read or write the memory of this repository, from the next session on."""
    return await _switch(context, on=False)


async def receipt(context: SessionContext) -> Answer:
    """What memory put into the prompt, and what was recalled for the last message."""
    known = context.known
    await known.settled()
    found = known.receipt()
    return Answer(found, [*views.receipt(found), *views.recalled(context.session.memory.recalled)])


async def _switch(context: ActionContext, *, on: bool) -> Answer:
    folder = await context.set_repo_memory(on=on)
    what = "on" if on else "off: nothing of it is read or written"
    return Answer(
        {"folder": str(folder), "on": on}, [line(f"From the next session on, memory of this repository is {what}.")]
    )


async def _with_note(
    context: ActionContext, named: str, act: Callable[[MemoryEditor, MemoryEntry], str], done: str
) -> Answer:
    def work(memory: MemoryAccess) -> tuple[MemoryEntry, str]:
        entry = find_entry(memory.editor, named)
        if entry.kind == "core":
            raise UsageError(
                f"{entry.id} is a core line, not a note.",
                "A core line is always in use.",
                [f"memory edit {entry.scope}/{entry.file}", f"memory forget {entry.id}"],
            )
        return entry, act(memory.editor, entry)

    entry, undo = await context.memory(work)
    value = {"id": entry.id, "scope": entry.scope, "undo": undo}
    return Answer(
        value, [line(f"{entry.id[:12]} is {done}: {one_line(entry.text, 80)}"), *views.undo_hint(context, undo)]
    )


async def _find_pending(context: ActionContext, number: str) -> Proposal:
    """The pending change of that id or its start, or the only one.

    Raises:
        UsageError: none or several match.
    """
    pending = await context.memory(lambda memory: _pending(memory.editor))
    found = [proposal for proposal in pending if proposal.id.startswith(number)]
    if not pending:
        raise UsageError("There are no pending changes of memory.")
    if len(found) != 1:
        ids = ", ".join(proposal.id for proposal in pending)
        problem = (
            f"{plural(len(found), 'change')} are pending: name one." if found else f"No pending change is `{number}`."
        )
        raise UsageError(problem, f"Pending: {ids}.", ["memory list"])
    return found[0]


def _pending(editor: MemoryEditor) -> list[Proposal]:
    return [proposal for scope in editor.scopes for proposal in scope.proposals()]


def _proposal_data(found: Proposal) -> dict[str, Any]:
    return {"id": found.id, "scope": found.scope, "files": [edit.name for edit in found.edits]}


def _core_files(editor: MemoryEditor, places: Sequence[tuple[Scope, str]], *, only_text: bool) -> Answer:
    """The core files of these places that are not empty, or else the first one."""
    found = [(scope, name, editor.text(scope, name)) for scope, name in places]
    shown = [file for file in found if file[2]] or found[:1]
    value = [{"scope": scope, "name": name, "text": text} for scope, name, text in shown]
    view: list[ViewItem] = []
    for scope, name, text in shown:
        path = tilde(Path(editor.scope(scope).store.folder, name))
        title = [] if only_text else [Title(path)]
        view += [*title, Quote(text, "markdown")] if text else [line(f"{path} is empty.")]
    return Answer(value[0] if len(value) == 1 else value, view or [line("No memory is in use here.")])
