"""Transfer of memory: export, import, sync, and the graph as a page."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.commands.action import ActionContext, Answer, MemoryAccess, confirm, undo_hint
from ouro.commands.render import CodeSpan, CommandText, Title, View, line, print_document, table
from ouro.errors import UsageError
from ouro.memory import long_term
from ouro.utils.files import write_document
from ouro.utils.git import remote_address
from ouro.utils.lenient_json import dump_json
from ouro.utils.ouro_paths import expand_home, tilde
from ouro.utils.text import one_line, plural

if TYPE_CHECKING:
    from ouro.commands.shell_context import ShellContext
    from ouro.memory.long_term import Scope

_MAX_REFUSED = 10
"""The number of parts that are named which an import refused."""
_MAX_ENTRIES = 20
"""The number of entries of an import that are shown before the question."""


async def export(context: ActionContext, file: str, force: bool, to: str = "") -> Answer | None:
    """Write memory to a file: as JSON with `--json` or for a name that ends in `.json`, else as
    Markdown.

    Args:
        file: its path; empty: in a session `ouro-memory.md`. On the command line memory is then
            printed, and None is returned.
        to: an agent, to whose files the core is written instead; empty for none.
    """
    if to:
        return await _export_to(context, to)
    if not file and context.session:
        file = "ouro-memory.md"
    path = context.cwd / expand_home(file) if file else None
    is_json_file = path is not None and path.suffix == ".json"
    if context.as_json or is_json_file:
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
    """Write the core of memory into the instruction files that another agent reads, between two
    markers. The answer lists the files that changed.
    """
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
    """Show what only ouro remembers, what only another agent remembers, and the commands that bring
    each to the other.
    """
    comparison = await context.memory(
        lambda memory: long_term.compare_with_agent(memory.editor, agent)
    )
    name = agent.capitalize()
    ours = table((CodeSpan(entry.id), one_line(entry.text)) for entry in comparison.ours)
    theirs = table((part.origin, one_line(part.text)) for part in comparison.theirs)
    view: View = []
    if ours:
        view += [Title(f"Only ouro remembers ({len(comparison.ours)})"), *ours]
    if theirs:
        view += [Title(f"Only {name} remembers ({len(comparison.theirs)})"), *theirs]
    shared = plural(comparison.shared, "entry", "entries")
    view.append(line(f"{shared} in both; {plural(len(comparison.files), 'file')} of {name} read."))
    if theirs:
        files = shlex.join(map(str, comparison.files))
        view.append(line("Import them: ", CommandText(f"memory import {files}")))
    if ours:
        view.append(line("Give it the core: ", CommandText(f"memory export --to {agent}")))
    return Answer(comparison, view)


async def _agrees(context: ActionContext, count: int, *, assume_yes: bool) -> bool:
    """Whether to import so many entries: the user agrees, or `assume_yes`. False if there are none,
    or no user can be asked.
    """
    is_decidable = assume_yes or context.can_ask
    if not count or not is_decidable:
        return False
    answer = f"Import {plural(count, 'entry', 'entries')}"
    return await confirm(context, "Import it?", answer, assume_yes=assume_yes)


async def import_(
    context: ActionContext, paths: Sequence[str], scope: Scope | None, dry_run: bool, yes: bool
) -> Answer:
    """Import files of memory, with a preview and a question.

    Args:
        paths: files and folders; or `pr` and what `import_review` takes, for comments of a review.
        scope: where all of it goes; None: found for each entry.
        dry_run: only show what would be imported, all of it.
        yes: show no entries, and do not ask.
    """
    if paths[0] == "pr":
        from ouro.commands.memory_team import import_review  # needed only for reviews

        return await import_review(context, paths[1:], dry_run=dry_run)
    files = [context.cwd / expand_home(path) for path in paths]
    sources = await asyncio.to_thread(long_term.read_sources, files)
    plan = await context.memory(
        lambda memory: long_term.plan_import(
            memory.editor, sources, scope, long_term.is_trusted_text
        )
    )
    count = sum(plan.counts.values())
    max_shown = _MAX_ENTRIES
    if dry_run:
        max_shown = count
    elif yes:
        max_shown = 0
    context.show(_plan_view(plan, max_shown))
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
    """Lines about what was imported, or about the changes that wait for approval. `imported` is None
    if nothing was imported.
    """
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
    receiving = context.session.session_memory.receiving() if context.session else nullcontext()
    async with receiving:
        return await context.memory(lambda memory: long_term.apply_import(memory.editor, plan))


async def sync(
    context: ActionContext, words: Sequence[str], scope: Scope | None, remote: str
) -> Answer | None:
    """Synchronize a scope with a git remote; in a session it is a turn, and None is returned.

    Args:
        words: the scope and the address, each of which may be missing.
        scope: the scope as a flag; None for that of the words. If both name none, it is the user's,
            or that of the repository if only it has a remote.
        remote: the address as a flag; empty for that of the words, else the saved one.
    """
    match words:
        case ["repo", *addresses]:
            scope = "repo"
        case ["user", *addresses]:
            scope = "user"
        case addresses:
            pass
    if len(addresses) > 1:
        raise UsageError(
            f"`{' '.join(words)}` is not a scope and an address.", commands=["memory sync repo URL"]
        )
    address = remote_address(addresses[0] if addresses else remote, context.cwd)
    if scope is None and not address:
        scope = await context.memory(_scope_with_remote)
    report = await context.sync_memory(scope or "user", address)
    if report is None:
        return None
    summary = map(line, long_term.sync_summary(report, "ouro "))
    return Answer(report, [*summary, *disputed_view(report)])


def _scope_with_remote(memory: MemoryAccess) -> Scope:
    """The repository's if only its memory has a remote, otherwise the user's."""
    scopes = [scope.name for scope in memory.editor.scopes if long_term.saved_remote(scope.store)]
    return "repo" if scopes == ["repo"] else "user"


def disputed_view(report: long_term.SyncReport) -> View:
    """A view of the entries of both sides that are on the same subject, and so may contradict each
    other; empty without any. The command line does not ask about them: both stay.
    """
    rows: list[tuple[str, str]] = []
    for here, received in report.disputed:
        rows += [("here", one_line(here)), ("received", one_line(received))]
    if not rows:
        return []
    title = Title("On the same subject: both stay")
    hint = line("Remove the one that does not hold: ", CommandText("memory forget WORDS"))
    return [title, *table(rows), hint]


async def graph(context: ShellContext, output: str, force: bool) -> Answer | None:
    """Write the graph of notes as a page; without a file print it, and return None."""
    with context.folder.memory() as (editor, _stores):
        picture = long_term.picture_of(
            long_term.note_entries(editor, stale=True), long_term.all_notes(editor)
        )
    if context.as_json:
        return Answer(picture, view=[])
    path = context.cwd / expand_home(output) if output else None
    return await _write(path, long_term.html_page(picture), force)


def _plan_view(plan: long_term.ImportPlan, max_entries: int) -> View:
    """A view of what an import would add, and of what it leaves out: the number of entries by place,
    the first `max_entries` entries (0: none, and no hint at the others), those on a subject that
    memory has, the refused texts, and a warning if a file is not trusted.
    """
    count_rows: list[tuple[str, ...]] = [
        (f"{count:>6,}", CodeSpan(place)) for place, count in plan.counts.items()
    ]
    if plan.doubles or not count_rows:  # never an empty table: it may say that 0 are remembered
        count_rows.append((f"{plan.doubles:>6,}", "already remembered"))
    entries = table((CodeSpan(place), one_line(text)) for place, text in plan.texts[:max_entries])
    if 0 < max_entries < len(plan.texts):
        more = f"… and {len(plan.texts) - max_entries} more. All of them: "
        entries.append(line(more, CodeSpan("--dry-run")))
    refused_rows: list[tuple[str, ...]] = [
        ("not imported", refused.name, refused.reason) for refused in plan.refused[:_MAX_REFUSED]
    ]
    if len(plan.refused) > _MAX_REFUSED:
        refused_rows.append(("not imported", f"{len(plan.refused) - _MAX_REFUSED} more", ""))
    view: View = [Title("To import"), *table(count_rows)]
    if entries:
        view += [Title("Entries"), *entries]
    view += [*_subjects_view(plan), *table(refused_rows)]
    if plan.untrusted:  # because of one untrusted file, the whole import waits for approval
        reason = "is in a repository that you do not trust: all of it waits for your approval."
        view.append(line(f"{tilde(plan.untrusted[0])} {reason}", level="warning"))
    return view


def _subjects_view(plan: long_term.ImportPlan) -> View:
    """A view of new texts on the subject of a remembered one, each beside that one; empty without any."""
    pairs = table((one_line(text), one_line(remembered)) for text, remembered in plan.on_subject)
    return [Title("On a subject that is remembered already: both stay"), *pairs] if pairs else []
