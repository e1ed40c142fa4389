"""Memory in and out: export, import, sync, and the graph as a page."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.commands import memory_views as views
from ouro.commands.action import ActionContext, Answer, MemoryAccess, confirm
from ouro.commands.render import CommandText, line
from ouro.errors import UsageError
from ouro.utils.files import write_document
from ouro.utils.runtime import tilde
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.commands.shell import ShellContext
    from ouro.memory.long_term import Scope

_FILE = "ouro-memory.md"


async def export(context: ActionContext, file: str, force: bool) -> Answer | None:
    """Write all of memory to one file."""
    from ouro.memory.long_term import as_json, as_markdown

    if not file and context.session:
        file = _FILE
    path = context.cwd / Path(file).expanduser() if file else None
    is_json = path.suffix == ".json" if path else False
    is_json |= context.as_json

    def work(memory: MemoryAccess) -> str:
        data = json.dumps(as_json(memory.editor), indent=2, ensure_ascii=False) + "\n" if is_json else ""
        return data or as_markdown(memory.editor)

    text = await context.memory(work)
    if path is None:
        sys.stdout.write(text)
        return None
    await asyncio.to_thread(write_document, path, [text], force=force)
    size = len(text.encode())
    return Answer({"file": str(path), "bytes": size}, [line(f"Wrote {tilde(path)}, {size:,} bytes.")])


async def import_(
    context: ActionContext, paths: Sequence[str], scope: Scope | None, dry_run: bool, yes: bool
) -> Answer:
    """Import what other agents remember, after a preview."""
    from ouro.memory.long_term import carry_out, is_trusted_text, plan_import, read_sources

    reading = await asyncio.to_thread(read_sources, [context.cwd / Path(path).expanduser() for path in paths])
    found = await context.memory(lambda memory: plan_import(memory.editor, reading, scope, is_trusted_text))
    context.show(views.import_plan(found))
    count = sum(found.counts.values())
    is_sure = bool(count) and not dry_run and (yes or context.can_ask)
    if is_sure:
        is_sure = await confirm(context, "Import it?", f"Import {plural(count, 'entry', 'entries')}", assume_yes=yes)
    done = await context.memory(lambda memory: carry_out(memory.editor, found)) if is_sure else None
    value = {"counts": found.counts, "doubles": found.doubles, "refused": found.refused, "done": done}
    if done is None:
        return Answer(value, [line("Nothing was imported.")])
    if not done.proposals:
        what = line(f"Imported {plural(done.entries, 'entry', 'entries')}.")
        return Answer(value, [what, *views.undo_hint(context, *done.undo.values())])
    # In a session an event asks for approval.
    ids = [line("Waiting for approval: ", CommandText(f"memory accept {proposal}")) for proposal in done.proposals]
    return Answer(value, [] if context.session else ids)


async def sync(context: ActionContext, words: Sequence[str], scope: Scope | None, remote: str) -> Answer | None:
    """Fetch, merge and push over a git remote."""
    from ouro.memory.long_term import sync_summary

    rest = list(words)
    if rest[:1] in (["user"], ["repo"]):
        scope = "repo" if rest.pop(0) == "repo" else "user"
    if len(rest) > 1:
        raise UsageError(f"`{' '.join(words)}` is not a scope and an address.", commands=["memory sync repo URL"])
    report = await context.sync_memory(scope or "user", rest[0] if rest else remote)
    return None if report is None else Answer(report, [line(text) for text in sync_summary(report)])


async def graph(context: ShellContext, output: str, force: bool, html: bool) -> Answer:  # noqa: ARG001 (the only format)
    """Write notes and the names in them as one page for a browser."""
    from ouro.memory.long_term import Overview, html_page, picture_of

    half_life = context.setting("memory.half_life_days")
    with context.opener.index() as index, context.opener.memory() as (editor, _stores):
        doubted = {(scope.scope, name) for scope in editor.scopes for name in scope.untrusted}
        stores = [scope.store for scope in editor.scopes]
        overview = Overview(index, stores, editor.root or context.cwd, lambda: doubted, half_life)
        picture = picture_of(overview.all(), overview.links(), overview.names())
    if not context.as_json:
        write_document(Path(output).expanduser().absolute(), [html_page(picture)], force=force)
    count = plural(len(picture.nodes), "note or name", "notes and names")
    return Answer(picture, [line(f"Wrote {output}: {count}. Open it in a browser; it loads nothing.")])
