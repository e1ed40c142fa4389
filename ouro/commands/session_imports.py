"""`ouro sessions import`: choose sessions of other programs, and import them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ouro.commands.action import Answer
from ouro.commands.render import View, line, table
from ouro.display import Choice
from ouro.importers.importer import (
    Importer,
    ImportLedger,
    ImportResult,
    ImportSource,
    find_sources,
    usual_places,
)
from ouro.importers.transcript_builder import PROGRAM_NAMES, Program
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.utils.ouro_paths import expand_home, get_sessions_dir
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.commands.shell_context import ShellContext

_MAX_OFFERED = 40
"""How many sessions, the newest, are offered to a user who names no path."""
_MAX_RESULTS = 20
"""Imported sessions that are listed at the end."""


async def import_sessions(
    context: ShellContext, paths: Sequence[Path], program: Program | None, every: bool
) -> Answer:
    """Import the sessions of other programs in the paths. Without a path, search the usual places, and
    let the user choose among the newest, unless `every`. If no user can be asked, only list them.

    Args:
        program: the program that wrote them; None: it is detected.
    """
    places = [expand_home(path).absolute() for path in paths] or usual_places()
    sources = find_sources(places, program)
    if not sources:
        no_sessions = "No sessions of Claude Code or Codex were found: pass a path."
        return Answer(
            {"imported": []}, [line("No sessions were found there." if paths else no_sessions)]
        )
    if paths or every:
        return await _import_chosen(context, sources)
    offered_rows = [_source_row(source) for source in sources[:_MAX_OFFERED]]
    if not context.can_ask:
        value = {"found": [_source_data(source) for source in sources]}
        return Answer(value, _offer_view(offered_rows, len(sources) - _MAX_OFFERED))
    choices = [Choice(str(index), "  ".join(row)) for index, row in enumerate(offered_rows)]
    chosen = await context.choose_many("Import which?", choices)
    return await _import_chosen(context, [sources[int(index)] for index in chosen])


async def _import_chosen(context: ShellContext, sources: Sequence[ImportSource]) -> Answer:
    """Import sessions. The exit code is 1 if one failed. An interrupt shows what was imported until
    then, and is raised again.
    """
    results: list[ImportResult] = []
    try:
        if sources:
            await _import_all(context, sources, results)
    except (KeyboardInterrupt, asyncio.CancelledError):
        left = plural(len(sources) - len(results), "session")
        hint = line(f"Interrupted: {left} left. The same command continues.")
        data = _import_data(results, len(sources))
        context.print_answer(Answer(data, [*_import_view(results), hint]))
        raise
    view = _import_view(results) if results else []
    has_failed = any(result.outcome == "failed" for result in results)
    return Answer(_import_data(results, len(sources)), view, int(has_failed))


def _offer_view(rows: Sequence[tuple[str, ...]], older_count: int) -> View:
    """The sessions that could be imported; of the older ones only the number, if it is above 0."""
    view: View = table(rows)
    if older_count > 0:
        view.append(line(f"… and {older_count:,} older ones"))
    return [*view, line("Import all with --all, or some by their paths.")]


async def _import_all(
    context: ShellContext, sources: Sequence[ImportSource], results: list[ImportResult]
) -> None:
    """Import the sources one after another. Each result is appended to `results` at once, so that an
    interrupt loses none.
    """
    ledger = ImportLedger()
    store = YamlFileMemoryStore(get_sessions_dir(), context.folder.mask.mask)
    importer = Importer(store, ledger, {info.id for info in await store.list_sessions()})
    try:
        for number, source in enumerate(sources, 1):
            context.progress(f"{number:,} of {len(sources):,}  {source.path.name}")
            results.append(await importer.import_source(source))
    finally:
        ledger.save()
        context.progress("")


def _source_row(source: ImportSource) -> tuple[str, ...]:
    """The table row of a session: day, program, size, folder (`-` if not known) and first words."""
    size = f"{max(1, source.size >> 10):,} KB".rjust(11)
    program = PROGRAM_NAMES[source.program].ljust(11)
    return source.changed_at[:10], program, size, source.project or "-", source.first_words


def _import_view(results: Sequence[ImportResult]) -> View:
    """A view of the first imported sessions, of all that failed, and of the counts. A session that was
    imported before and continued since has the number of its further messages.
    """
    imported = [result for result in results if result.outcome in ("new", "more")]
    rows: list[tuple[str, ...]] = []
    for result in imported[:_MAX_RESULTS]:
        messages = plural(result.messages, "message")
        if result.outcome == "more":
            messages += " more"
        rows.append((result.session_id[:8], messages, result.title, result.reason))
    view: View = table(rows)
    if len(imported) > _MAX_RESULTS:
        view.append(line(f"… and {len(imported) - _MAX_RESULTS:,} more"))
    for result in results:
        if result.outcome == "failed":
            view.append(line(f"! {result.reason}", level="warning"))
    return [*view, line(_import_summary(results))]


def _import_summary(results: Sequence[ImportResult]) -> str:
    """A text about how many sessions had which outcome, and what was left out of them."""
    outcomes = Counter[str](result.outcome for result in results)
    words = {
        "more": "continued",
        "known": "already imported",
        "empty": "without messages",
        "failed": "failed",
    }
    counts = [f"{outcomes['new']:,} new"]
    counts += [f"{outcomes[key]:,} {name}" for key, name in words.items() if outcomes[key]]
    left_out = Counter[str]()
    for result in results:
        left_out.update(result.left_out)
    text = f"Sessions: {', '.join(counts)}."
    if left_out:
        kinds = ", ".join(f"{kind} ({count:,})" for kind, count in left_out.most_common(8))
        text += f" Left out: {kinds}."
    if outcomes["new"] or outcomes["more"]:
        text += " List them: `ouro sessions list --all`."
    return text


def _source_data(source: ImportSource) -> dict[str, Any]:
    """A session of another program as `--json` prints it."""
    return {
        "path": str(source.path),
        "from": source.program,
        "size": source.size,
        "changed_at": source.changed_at,
        "project": source.project,
        "first_words": source.first_words,
    }


def _import_data(results: Sequence[ImportResult], asked_count: int) -> dict[str, Any]:
    """The results as `--json` prints them; fewer than `asked_count` mean an interrupt."""
    imported = [_result_data(result) for result in results]
    return {"imported": imported, "interrupted": len(results) < asked_count}


def _result_data(result: ImportResult) -> dict[str, Any]:
    """The result of one session as `--json` prints it."""
    return {
        **_source_data(result.source),
        "outcome": result.outcome,
        "title": result.title,
        "messages": result.messages,
        "reason": result.reason,
        "session": result.session_id,
        "left_out": dict(result.left_out),
    }
