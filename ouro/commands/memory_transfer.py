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
from ouro.utils.runtime import tilde
from ouro.utils.text import one_line, plural

if TYPE_CHECKING:
    from ouro.commands.subcommands import ShellContext
    from ouro.memory.long_term import Scope

_MAX_REFUSED = 10
_MAX_ENTRIES = 20
"""The number of entries of an import that are shown before the question."""


async def export(context: ActionContext, file: str, force: bool, to: str = "") -> Answer | None:
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
    """Write a text to a file, or to stdout without a path; then there is no answer."""
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
    written, root = await context.memory(
        lambda memory: (long_term.export_to_agent(memory.editor, agent), memory.editor.root)
    )
    view = [line(f"Wrote {tilde(path)}.") for path in written]
    if root and not await asyncio.to_thread(long_term.is_memory_trusted, root, context.cwd):
        view.append(
            line("At its next start here ouro asks whether you trust what it has not read before.")
        )
    return Answer([str(path) for path in written], view or [line("Nothing changed.")])


async def diff_with_agent(context: ActionContext, agent: str) -> Answer:
    """What only ouro remembers, and what only another agent remembers."""
    found = await context.memory(lambda memory: long_term.compare_with_agent(memory.editor, agent))
    name = agent.capitalize()
    ours = table((CodeSpan(entry.id), one_line(entry.text)) for entry in found.ours)
    theirs = table((part.origin, one_line(part.text)) for part in found.theirs)
    same = (
        f"{plural(found.shared, 'entry', 'entries')} in both; {plural(len(found.files), 'file')} of"
        f" {name} read."
    )
    view: View = [
        *([Title(f"Only ouro remembers ({len(found.ours)})"), *ours] if ours else []),
        *([Title(f"Only {name} remembers ({len(found.theirs)})"), *theirs] if theirs else []),
        line(same),
        *(
            [
                line(
                    "Import them: ",
                    CommandText(f"memory import {shlex.join(map(str, found.files))}"),
                )
            ]
            if theirs
            else []
        ),
        *([line("Give it the core: ", CommandText(f"memory export --to {agent}"))] if ours else []),
    ]
    return Answer(found, view)


async def _agrees(context: ActionContext, count: int, *, assume_yes: bool) -> bool:
    """Whether the user agrees to import so many entries."""
    if not count or not (assume_yes or context.can_ask):
        return False
    answer = f"Import {plural(count, 'entry', 'entries')}"
    return await confirm(context, "Import it?", answer, assume_yes=assume_yes)


async def import_(
    context: ActionContext, paths: Sequence[str], scope: Scope | None, dry_run: bool, yes: bool
) -> Answer:
    if paths[0] == "pr":
        from ouro.commands.memory_team import import_review  # needed only for reviews

        return await import_review(context, paths[1:], dry_run=dry_run)
    files = [context.cwd / Path(path).expanduser() for path in paths]
    read = await asyncio.to_thread(long_term.read_sources, files)
    found = await context.memory(
        lambda memory: long_term.plan_import(memory.editor, read, scope, long_term.is_trusted_text)
    )
    count = sum(found.counts.values())
    context.show(_plan_view(found, count if dry_run else 0 if yes else _MAX_ENTRIES))
    agrees = not dry_run and await _agrees(context, count, assume_yes=yes)
    done = await _apply(context, found) if agrees else None
    value = {
        "counts": found.counts,
        "doubles": found.doubles,
        "refused": found.refused,
        "done": done,
    }
    if dry_run:
        value["entries"] = [{"place": place, "text": text} for place, text in found.texts]
    return Answer(value, _import_view(context, done))


def _import_view(context: ActionContext, done: long_term.Imported | None) -> View:
    """What was imported, or which changes wait for approval."""
    if done is None:
        return [line("Nothing was imported.")]
    if not done.proposals:
        what = line(f"Imported {plural(done.entries, 'entry', 'entries')}.")
        return [what, *undo_hint(context, *done.undo.values())]
    if context.session:
        return []  # an event asks for approval
    return [
        line("Waiting for approval: ", CommandText(f"memory accept {proposal}"))
        for proposal in done.proposals
    ]


async def _apply(context: ActionContext, found: long_term.Import) -> long_term.Imported:
    """Import it; in a session, what is relevant to earlier entries is asked about."""
    receiving = context.session.memory.receiving() if context.session else nullcontext()
    async with receiving:
        return await context.memory(lambda memory: long_term.apply_import(memory.editor, found))


async def sync(
    context: ActionContext, words: Sequence[str], scope: Scope | None, remote: str
) -> Answer | None:
    rest = list(words)
    if rest[:1] in (["user"], ["repo"]):
        scope = "repo" if rest.pop(0) == "repo" else "user"
    if len(rest) > 1:
        raise UsageError(
            f"`{' '.join(words)}` is not a scope and an address.", commands=["memory sync repo URL"]
        )
    address = remote_address(rest[0] if rest else remote, context.cwd)
    report = await context.sync_memory(scope or "user", address)
    return (
        None
        if report is None
        else Answer(report, [*map(line, long_term.sync_summary(report)), *disputed_view(report)])
    )


def disputed_view(report: long_term.SyncReport) -> View:
    """What both sides say about the same subjects: in a shell nobody is asked."""
    pairs: list[tuple[str, str]] = []
    for here, received in report.disputed:
        pairs += [("here", one_line(here)), ("received", one_line(received))]
    title = Title("On the same subject: both stay")
    hint = line("Remove the one that does not hold: ", CommandText("memory forget WORDS"))
    return [title, *table(pairs), hint] if pairs else []


async def graph(context: ShellContext, output: str, force: bool) -> Answer | None:
    with context.folder.memory() as (editor, _stores):
        picture = long_term.picture_of(
            long_term.note_entries(editor, stale=True), long_term.all_notes(editor)
        )
    if context.as_json:
        return Answer(picture, [])
    path = context.cwd / Path(output).expanduser() if output else None
    return await _write(path, long_term.html_page(picture), force)


def _plan_view(found: long_term.Import, shown: int) -> View:
    """What an import would add (with the first `shown` entries), and what it leaves out."""
    rows: list[tuple[str, ...]] = [
        (f"{count:>6,}", CodeSpan(place)) for place, count in found.counts.items()
    ]
    rows += [(f"{found.doubles:>6,}", "already remembered")] if found.doubles or not rows else []
    entries = table((CodeSpan(place), one_line(text)) for place, text in found.texts[:shown])
    if 0 < shown < len(found.texts):
        entries.append(
            line(f"… and {len(found.texts) - shown} more. All of them: ", CodeSpan("--dry-run"))
        )
    refused: list[tuple[str, ...]] = [
        ("not imported", part.name, part.reason) for part in found.refused[:_MAX_REFUSED]
    ]
    if len(found.refused) > _MAX_REFUSED:
        refused.append(("not imported", f"{len(found.refused) - _MAX_REFUSED} more", ""))
    wait = "is in a repository that you do not trust: all of it waits for your approval."
    untrusted = [line(f"{tilde(path)} {wait}", level="warning") for path in found.untrusted[:1]]
    listed = [Title("Entries"), *entries] if entries else []
    doubts = _subjects_view(found)
    return [Title("To import"), *table(rows), *listed, *doubts, *table(refused), *untrusted]


def _subjects_view(found: long_term.Import) -> View:
    """The new texts that are on the subject of a remembered one, each with it."""
    pairs = table((one_line(text), one_line(known)) for text, known in found.on_subject)
    return [Title("On a subject that is remembered already: both stay"), *pairs] if pairs else []
