"""Transfer of memory: export, import, sync, and the graph as a page."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.commands.action import ActionContext, Answer, confirm, undo_hint
from ouro.commands.render import CodeSpan, CommandText, Title, View, line, print_document, table
from ouro.errors import UsageError
from ouro.memory import long_term
from ouro.utils.files import write_document
from ouro.utils.git import remote_address
from ouro.utils.lenient_json import dump_json
from ouro.utils.ouro_paths import tilde
from ouro.utils.text import one_line, plural

if TYPE_CHECKING:
    from ouro.commands.subcommands import ShellContext
    from ouro.memory.long_term import Scope

_MAX_REFUSED = 10
"""The number of parts that are named which an import refused."""
_MAX_ENTRIES = 20
"""The number of entries of an import that are shown before the question."""


async def export(context: ActionContext, file: str, force: bool, to: str = "") -> Answer | None:
    """Write memory to a file as Markdown or JSON, or to the files of another agent (`to`). Without a
    file, the command line prints it, and None is returned.
    """
    if to:
        return await _export_to(context, to)
    if not file and context.session:
        file = "ouro-memory.md"
    path = context.cwd / Path(file).expanduser() if file else None
    if context.as_json or (path is not None and path.suffix == ".json"):
        data = await context.memory(lambda memory: long_term.as_json(memory.editor))
        text = dump_json(data, indent=2) + "\n"
    else:
        text = await context.memory(lambda memory: long_term.as_markdown(memory.editor))
    return await _write(path, text, force)


async def _write(path: Path | None, text: str, force: bool) -> Answer | None:
    """Write a text to a file; without a path print it, and return None."""
    if path is None:
        print_document([text])
        return None
    await asyncio.to_thread(write_document, path, [text], force=force)
    size = len(text.encode())
    return Answer(
        {"file": str(path), "bytes": size}, [line(f"Wrote {tilde(path)}, {size:,} bytes.")]
    )


async def _export_to(context: ActionContext, agent: str) -> Answer:
    """Write the core into the files that another agent reads, between markers."""
    paths, root = await context.memory(
        lambda memory: (long_term.export_to_agent(memory.editor, agent), memory.editor.root)
    )
    view = [line(f"Wrote {tilde(path)}.") for path in paths]
    if root and not await asyncio.to_thread(long_term.is_memory_trusted, root, context.cwd):
        view.append(
            line("At its next start here ouro asks whether you trust what it has not read before.")
        )
    return Answer([str(path) for path in paths], view or [line("Nothing changed.")])


async def diff_with_agent(context: ActionContext, agent: str) -> Answer:
    """Show what only ouro remembers, and what only another agent remembers."""
    comparison = await context.memory(
        lambda memory: long_term.compare_with_agent(memory.editor, agent)
    )
    name = agent.capitalize()
    ours = table((CodeSpan(entry.id), one_line(entry.text)) for entry in comparison.ours)
    theirs = table((part.origin, one_line(part.text)) for part in comparison.theirs)
    total = (
        f"{plural(comparison.shared, 'entry', 'entries')} in both; {plural(len(comparison.files), 'file')} of"
        f" {name} read."
    )
    view: View = [
        *([Title(f"Only ouro remembers ({len(comparison.ours)})"), *ours] if ours else []),
        *([Title(f"Only {name} remembers ({len(comparison.theirs)})"), *theirs] if theirs else []),
        line(total),
        *(
            [
                line(
                    "Import them: ",
                    CommandText(f"memory import {shlex.join(map(str, comparison.files))}"),
                )
            ]
            if theirs
            else []
        ),
        *([line("Give it the core: ", CommandText(f"memory export --to {agent}"))] if ours else []),
    ]
    return Answer(comparison, view)


async def _agrees(context: ActionContext, count: int, *, assume_yes: bool) -> bool:
    """Whether the user agrees to import so many entries."""
    if not count or not (assume_yes or context.can_ask):
        return False
    answer = f"Import {plural(count, 'entry', 'entries')}"
    return await confirm(context, "Import it?", answer, assume_yes=assume_yes)


async def import_(
    context: ActionContext, paths: Sequence[str], scope: Scope | None, dry_run: bool, yes: bool
) -> Answer:
    """Import files of memory, with a preview and a question; `pr` imports comments of a review."""
    if paths[0] == "pr":
        from ouro.commands.memory_team import import_review  # needed only for reviews

        return await import_review(context, paths[1:], dry_run=dry_run)
    files = [context.cwd / Path(path).expanduser() for path in paths]
    sources = await asyncio.to_thread(long_term.read_sources, files)
    plan = await context.memory(
        lambda memory: long_term.plan_import(
            memory.editor, sources, scope, long_term.is_trusted_text
        )
    )
    count = sum(plan.counts.values())
    context.show(_plan_view(plan, count if dry_run else 0 if yes else _MAX_ENTRIES))
    agrees = not dry_run and await _agrees(context, count, assume_yes=yes)
    imported = await _apply(context, plan) if agrees else None
    value = {
        "counts": plan.counts,
        "doubles": plan.doubles,
        "refused": plan.refused,
        "done": imported,
    }
    if dry_run:
        value["entries"] = [{"place": place, "text": text} for place, text in plan.texts]
    return Answer(value, _import_view(context, imported))


def _import_view(context: ActionContext, imported: long_term.MemoryImportResult | None) -> View:
    """Lines about what was imported, or which changes wait for approval."""
    if imported is None:
        return [line("Nothing was imported.")]
    if not imported.proposals:
        head = line(f"Imported {plural(imported.entries, 'entry', 'entries')}.")
        return [head, *undo_hint(context, *imported.undo.values())]
    if context.session:
        return []  # an event asks for approval
    return [
        line("Waiting for approval: ", CommandText(f"memory accept {proposal}"))
        for proposal in imported.proposals
    ]


async def _apply(
    context: ActionContext, plan: long_term.ImportPlan
) -> long_term.MemoryImportResult:
    """Carry out the plan of an import. In a session the user is then asked about texts on the subject
    of earlier entries.
    """
    receiving = context.session.memory.receiving() if context.session else nullcontext()
    async with receiving:
        return await context.memory(lambda memory: long_term.apply_import(memory.editor, plan))


async def sync(
    context: ActionContext, words: Sequence[str], scope: Scope | None, remote: str
) -> Answer | None:
    """Synchronize a scope with a git remote; in a session it is a turn, and None is returned.

    Args:
        words: the scope and the address, each of which may be missing.
    """
    arguments = list(words)
    if arguments[:1] in (["user"], ["repo"]):
        scope = "repo" if arguments.pop(0) == "repo" else "user"
    if len(arguments) > 1:
        raise UsageError(
            f"`{' '.join(words)}` is not a scope and an address.", commands=["memory sync repo URL"]
        )
    address = remote_address(arguments[0] if arguments else remote, context.cwd)
    report = await context.sync_memory(scope or "user", address)
    return (
        None
        if report is None
        else Answer(report, [*map(line, long_term.sync_summary(report)), *disputed_view(report)])
    )


def disputed_view(report: long_term.SyncReport) -> View:
    """A view of the entries of both sides on the same subject. The command line does not ask about
    them: both stay.
    """
    pairs: list[tuple[str, str]] = []
    for here, received in report.disputed:
        pairs += [("here", one_line(here)), ("received", one_line(received))]
    title = Title("On the same subject: both stay")
    hint = line("Remove the one that does not hold: ", CommandText("memory forget WORDS"))
    return [title, *table(pairs), hint] if pairs else []


async def graph(context: ShellContext, output: str, force: bool) -> Answer | None:
    """Write the graph of notes as a page; without a file print it, and return None."""
    with context.folder.memory() as (editor, _stores):
        picture = long_term.picture_of(
            long_term.note_entries(editor, stale=True), long_term.all_notes(editor)
        )
    if context.as_json:
        return Answer(picture, [])
    path = context.cwd / Path(output).expanduser() if output else None
    return await _write(path, long_term.html_page(picture), force)


def _plan_view(plan: long_term.ImportPlan, max_entries: int) -> View:
    """A view of what an import would add, with the first `max_entries`, and of what it leaves out."""
    rows: list[tuple[str, ...]] = [
        (f"{count:>6,}", CodeSpan(place)) for place, count in plan.counts.items()
    ]
    rows += [(f"{plan.doubles:>6,}", "already remembered")] if plan.doubles or not rows else []
    entries = table((CodeSpan(place), one_line(text)) for place, text in plan.texts[:max_entries])
    if 0 < max_entries < len(plan.texts):
        entries.append(
            line(
                f"… and {len(plan.texts) - max_entries} more. All of them: ", CodeSpan("--dry-run")
            )
        )
    refused_rows: list[tuple[str, ...]] = [
        ("not imported", refused.name, refused.reason) for refused in plan.refused[:_MAX_REFUSED]
    ]
    if len(plan.refused) > _MAX_REFUSED:
        refused_rows.append(("not imported", f"{len(plan.refused) - _MAX_REFUSED} more", ""))
    reason = "is in a repository that you do not trust: all of it waits for your approval."
    untrusted_view = [
        line(f"{tilde(path)} {reason}", level="warning") for path in plan.untrusted[:1]
    ]
    entries_view = [Title("Entries"), *entries] if entries else []
    subjects_view = _subjects_view(plan)
    return [
        Title("To import"),
        *table(rows),
        *entries_view,
        *subjects_view,
        *table(refused_rows),
        *untrusted_view,
    ]


def _subjects_view(plan: long_term.ImportPlan) -> View:
    """A view of new texts on the subject of a remembered one, each beside it."""
    pairs = table((one_line(text), one_line(remembered)) for text, remembered in plan.on_subject)
    return [Title("On a subject that is remembered already: both stay"), *pairs] if pairs else []
