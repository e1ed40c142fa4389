"""Maintenance of memory: check, merge, read old sessions, index, and measure the search."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict

from ouro.commands.action import MAX_COUNT, ActionContext, Answer, confirm
from ouro.commands.render import line, table
from ouro.errors import UsageError
from ouro.memory import index as memory_index
from ouro.memory import long_term
from ouro.settings import MemorySettings
from ouro.utils.text import one_line, plural

if TYPE_CHECKING:
    from ouro.commands.subcommands import ShellContext
    from ouro.memory.index import Search, SearchQuality
    from ouro.memory.long_term import (
        CrystallizedPart,
        LongTermMemoryManager,
        MemoryMaintenance,
        Merge,
    )
    from ouro.session import Session

_MARK_OF_LEVEL = {"ok": "ok", "warning": "!", "problem": "✗"}


async def check(context: ShellContext) -> Answer:
    """Look for problems in memory. The exit code is 1 if there is a problem, not only a warning."""
    settings = context.folder.settings.memory
    with context.folder.memory() as (editor, stores):
        findings = long_term.diagnose(
            editor, settings.consolidation_threshold, tuple(settings.categories)
        )
        unused_scopes = [store.scope for store in stores if store.scope not in editor.names]
    rows: list[tuple[str, ...]] = []
    for finding in findings:
        rows += [(_MARK_OF_LEVEL[finding.level], finding.where, finding.what)]
        rows += [("", "", finding.advice)] if finding.advice else []
    rows += [("!", scope, "off here, or not readable: ouro memory on") for scope in unused_scopes]
    exit_code = int(any(finding.level == "problem" for finding in findings))
    return Answer({"findings": findings, "off": unused_scopes}, table(rows), exit_code)


async def consolidate(
    context: ActionContext, what: str, core: bool, notes: bool, yes: bool
) -> Answer | None:
    """Let a model merge the core, the notes, or both; in a session events show the outcome."""
    if what not in ("", "notes", "core", "user", "repo"):
        raise UsageError(
            f"`{what}` cannot be consolidated.", "Name `notes`, `core`, `user` or `repo`."
        )
    async with context.open_session() as session:
        maintenance = await _require_maintenance(context, session)
        manager = session.memory.require()
        outcomes: dict[str, str] = {}
        if what != "notes" and not notes:
            outcomes = await _consolidate_core(context, manager, what, is_sure=yes)
        merges: list[Merge] = []
        if what in ("", "notes") and not core:
            merges = await _merge_notes(context, maintenance, yes)
        merged = [_merge_data(merge) for merge in merges]
        value = {"core": outcomes, "notes": merged, "usage": maintenance.usage()}
    return None if context.session else Answer(value, [])


async def _consolidate_core(
    context: ActionContext, manager: LongTermMemoryManager, what: str, *, is_sure: bool
) -> dict[str, str]:
    """Let a model merge and compress the core of all scopes, or of the scope `what`. Returns a
    sentence about each; empty if the user, who is asked on the command line, does not agree.
    """
    agreed = is_sure or context.session is not None or not manager.prompt.core()
    question = "A model merges and compresses the core."
    if not await confirm(context, question, "Do it", assume_yes=agreed):
        return {}
    outcomes: dict[str, str] = {}
    for scope in manager.scopes:
        if what in ("", "core", scope):
            outcomes[scope] = await manager.consolidate(scope)
            context.say(f"Memory ({scope}): {outcomes[scope]}.")
    return outcomes


async def crystallize(
    context: ActionContext, age: str, days: int, every: bool, yes: bool
) -> Answer | None:
    """Let a model read old sessions of this folder, and remember what is worth it."""
    days = _parse_age(age, days)
    async with context.open_session() as session:
        maintenance = await _require_maintenance(context, session)
        old_sessions, plan = await maintenance.find_sessions(0 if every else days)
        skipped = [old for old in old_sessions if old.skipped]
        crystallized: list[CrystallizedPart] = []
        has_unread = len(old_sessions) > len(skipped)
        if has_unread and await confirm(context, plan, "Read them", assume_yes=yes):
            await _show_lines(
                context,
                maintenance,
                plan if yes else "",
                maintenance.crystallize(old_sessions, crystallized),
            )
        skipped_data = [{"session": old.info.id, "why": old.skipped} for old in skipped]
        value = {
            "read": list(map(_part_data, crystallized)),
            "skipped": skipped_data,
            "usage": maintenance.usage(),
        }
        return Answer(
            value, [] if has_unread else [line("Every old session here was already read.")]
        )


def _parse_age(age: str, default: int) -> int:
    """The age in days; 0 for `all`. Raises UsageError for another word."""
    if age == "all":
        return 0
    if not age:
        return default
    if not age.isdecimal() or len(age) > len(str(MAX_COUNT)):
        raise UsageError(
            f"`{age}` is not an age in days, or `all`.", commands=["memory crystallize 30"]
        )
    return int(age)


async def reindex(context: ShellContext) -> Answer:
    """Make the index again from all files, with vectors."""
    with context.folder.index() as index:
        count = index.rebuild(context.folder.sources(index), context.index_progress())
        context.folder.make_vectors(index, ("notes", "messages"))
        state = index.state()
    counts = ", ".join(
        plural(state.rows[name], name[:-1]) for name in ("sessions", "messages", "notes")
    )
    return Answer(
        {"files": count, **asdict(state)}, [line(f"Read {plural(count, 'file')}: {counts}.")]
    )


async def index_state(context: ShellContext) -> Answer:
    """Show where the search index is, its size, and how many rows it has of each kind."""
    with context.folder.index() as index:
        state = index.state()
    head = (
        f"{state.path}, {state.size:,} bytes. It is made from sessions and memory: you may delete"
        " it at any time."
    )
    rows = table((name, f"{count:,}") for name, count in state.rows.items())
    return Answer(state, [line(head), *rows])


async def measure(
    context: ShellContext, docs: str, queries: str, k: int, work: str, words: bool, at_least: float
) -> Answer | None:
    """Measure the search: with the notes here, each searched for by the words of its turn; or with the
    documents and queries of files, for which None is returned.
    """
    if docs or queries:
        _measure_files(docs, queries, k, work, words)
        return None
    with context.folder.search(context.index_progress(), words_only=words) as search:
        recall_in = cache(partial(_recall_in, search))

        def recall(text: str, project: str, branch: str) -> list[str]:
            recalled = recall_in(project).find(text, long_term.Situation(project, branch))
            return [item.id for item in recalled.items if item.state == "loaded"]

        found = memory_index.ask_own_notes(search, recall)
    scores = memory_index.measure_answers(found.answers)
    return _scores_answer(scores, found.texts, found.skipped, at_least)


def _scores_answer(
    scores: SearchQuality, texts: Mapping[str, str], missing: int, at_least: float
) -> Answer:
    """The scores of a search for notes, and the notes that it missed. The exit code is 1 if fewer
    than `at_least` are among the first ten.

    Args:
        texts: the text of each note by its id.
        missing: how many notes were not searched for, because their turns are not on disk.
    """
    value = {**asdict(scores), "without_a_turn": missing}
    exit_code = int(scores.recall["10"] < at_least)
    if not scores.questions:
        reason = (
            "No note has a known turn, so there is nothing to search for"
            f" ({plural(missing, 'note')} without one)."
        )
        return Answer(value, [line(reason)], exit_code)
    rows = [
        *((f"Recall@{count}", f"{share:.3f}") for count, share in scores.recall.items()),
        ("NDCG@10", f"{scores.ndcg10:.3f}"),
        ("p50", f"{scores.p50_ms:.1f} ms"),
        ("p95", f"{scores.p95_ms:.1f} ms"),
    ]
    head = (
        f"{plural(scores.questions, 'note')}, each searched for by the words of the turn that"
        " taught it:"
    )
    missed_rows = table(("missed", note, one_line(texts[note], 120)) for note in scores.missed)
    missing_view = (
        [line(f"Not searched for, as their turns are not on disk: {plural(missing, 'note')}.")]
        if missing
        else []
    )
    return Answer(value, [line(head), *table(rows), *missed_rows, *missing_view], exit_code)


def _measure_files(docs: str, queries: str, limit: int, work: str, words_only: bool) -> None:
    """Search the documents of one file for the queries of another. Prints one line of JSON for each
    query, with the best hits first.
    """
    if not (docs and queries):
        raise UsageError("--docs and --queries need each other.")
    documents = memory_index.read_lines(Path(docs), memory_index.Document)
    questions = memory_index.read_lines(Path(queries), memory_index.BenchmarkQuestion)
    embedder = None if words_only else memory_index.local_embedder()
    with tempfile.TemporaryDirectory(prefix="ouro-test-") as folder:
        for answer in memory_index.answer_questions(
            documents, questions, limit, Path(work or folder), embedder
        ):
            sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")


def _recall_in(search: Search, project: str) -> long_term.Recall:
    """The recall of a session in that repository, without its token budget: only the order counts."""
    settings = MemorySettings(
        retrieval_top_k=memory_index.MAX_HITS, injection_token_budget=sys.maxsize
    )
    stores = long_term.memory_stores(settings, Path(project) if project else None, str)
    notebook = long_term.Notebook({store.scope: store for store in stores})
    return long_term.Recall(search, notebook, "memory", settings)


async def _require_maintenance(context: ActionContext, session: Session) -> MemoryMaintenance:
    """The maintenance of memory. Raises UsageError if memory is off; warns if a limit of cost is near,
    and raises LimitReached if it is reached.
    """
    if session.memory.maintenance is None:
        raise UsageError(
            "Memory is off here.", "Reason: `memory.enabled`, --no-memory or --ephemeral."
        )
    if warning := await session.budget.check(0):  # every model call below checks the limits
        context.say(warning, "warning")
    return session.memory.maintenance


async def _merge_notes(
    context: ActionContext, maintenance: MemoryMaintenance, yes: bool
) -> list[Merge]:
    """Ask whether to merge notes that say the same, and merge them; returns the merges."""
    groups, plan = await maintenance.find_clusters()
    merges: list[Merge] = []
    if not groups:
        context.say("No notes say the same.")
    elif await confirm(context, plan, "Merge them", assume_yes=yes):
        await _show_lines(
            context, maintenance, plan if yes else "", maintenance.merge_notes(groups, merges)
        )
    return merges


async def _show_lines(
    context: ActionContext,
    maintenance: MemoryMaintenance,
    plan: str,
    lines: AsyncGenerator[str, None],
) -> None:
    """Show lines while the work that yields them is done; in a session as a turn, which the user can
    interrupt.
    """
    if context.session is not None:
        await context.front_end.run(maintenance.as_turn(lines))
        return
    if plan:
        context.say(plan)
    async with aclosing(lines):
        async for text in lines:
            context.say(text)


def _merge_data(merge: Merge) -> dict[str, Any]:
    """A merge as `--json` prints it."""
    written_note = merge.written
    note_id, commit = (written_note.note.id, written_note.commit) if written_note else (None, "")
    return {
        "notes": [note.id for note in merge.notes],
        "into": note_id,
        "commit": commit,
        "why": merge.reason,
    }


def _part_data(part: CrystallizedPart) -> dict[str, Any]:
    """A part of a session as `--json` prints it: what was remembered, proposed and refused."""
    captured = part.captured
    return {
        "session": part.session.info.id,
        "part": part.part,
        "kept": [
            {
                "id": item.note.id,
                "text": item.note.text,
                "change": item.change,
                "commit": item.commit,
            }
            for item in captured.written
        ],
        "proposed": [{"id": item.id, "text": item.text} for item in captured.proposed],
        "refused": [{"text": item.said, "why": item.reason} for item in captured.refused],
    }
