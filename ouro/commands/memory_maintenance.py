"""Maintenance of memory: check, merge, read old sessions, index, and measure the search."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict

from ouro.commands.action import MAX_COUNT, ActionContext, Answer, confirm
from ouro.commands.render import View, line, table
from ouro.errors import UsageError
from ouro.memory import index as memory_index
from ouro.memory import long_term
from ouro.settings import MemorySettings
from ouro.utils.text import one_line, plural

if TYPE_CHECKING:
    from ouro.commands.shell_context import ShellContext
    from ouro.memory.index import Search, SearchQuality
    from ouro.memory.long_term import (
        CrystallizedPart,
        Finding,
        LongTermMemoryManager,
        MemoryMaintenance,
        Merge,
    )
    from ouro.session import Session

_MARK_OF_LEVEL = {"ok": "ok", "warning": "!", "problem": "✗"}


async def check(context: ShellContext) -> Answer:
    """Look for problems in memory. The exit code is 1 if there is a problem, not only a warning. Why a
    memory cannot be read was shown when it was opened.
    """
    settings = context.folder.settings.memory
    with context.folder.memory() as (editor, stores):
        findings = long_term.diagnose(
            editor, settings.consolidation_threshold, tuple(settings.categories)
        )
        unused = [store for store in stores if store.scope not in editor.names]
        switched_off = [store.scope for store in unused if long_term.is_switched_off(store)]
    unreadable = [store.scope for store in unused if store.scope not in switched_off]
    rows = list(_finding_rows(findings))
    rows += [("✗", scope, "cannot be read") for scope in unreadable]
    rows += [("!", scope, "off here: ouro memory on") for scope in switched_off]
    has_problem = any(finding.level == "problem" for finding in findings)
    exit_code = int(has_problem or bool(unreadable))
    return Answer({"findings": findings, "off": switched_off + unreadable}, table(rows), exit_code)


def _finding_rows(findings: Iterable[Finding]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table of findings; advice is in a row of its own."""
    for finding in findings:
        yield _MARK_OF_LEVEL[finding.level], finding.where, finding.what
        if finding.advice:
            yield "", "", finding.advice


async def consolidate(
    context: ActionContext, what: str, core: bool, notes: bool, yes: bool
) -> Answer | None:
    """Let a model merge the core, the notes, or both. In a session events show the outcome, and None
    is returned.

    Args:
        what: `core`; `notes`; a scope, for its core; empty for the core and the notes.
        core: only the core, as a flag instead of `what`; with `notes` both.
        notes: only the notes, as a flag instead of `what`; with `core` both.
        yes: do not ask.
    """
    if what not in ("", "notes", "core", "user", "repo"):
        raise UsageError(
            f"`{what}` cannot be consolidated.", "Name `notes`, `core`, `user` or `repo`."
        )
    if core and notes:
        core = notes = False
    async with context.open_session() as session:
        maintenance = await _require_maintenance(context, session)
        manager = session.session_memory.require()
        outcomes: dict[str, str] = {}
        if what != "notes" and not notes:
            outcomes = await _consolidate_core(context, manager, what, is_sure=yes)
        merges: list[Merge] = []
        if what in ("", "notes") and not core:
            merges = await _merge_notes(context, maintenance, yes)
        merged = [_merge_data(merge) for merge in merges]
        value = {"core": outcomes, "notes": merged, "usage": maintenance.usage()}
    return None if context.session else Answer(value, view=[])


async def _consolidate_core(
    context: ActionContext, manager: LongTermMemoryManager, what: str, *, is_sure: bool
) -> dict[str, str]:
    """Let a model merge and compress the core. Returns what was done, by scope. On the command line
    the user is asked first, and the result is empty if they do not agree.

    Args:
        what: one scope; empty or `core` for all.
    """
    # An empty core costs no model call, so it needs no question.
    agreed = is_sure or context.session is not None or not manager.prompt.make_read_only_block()
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
    """Let a model read old sessions of this folder, after a question, and remember what is worth it. A
    session that was read before is skipped. Returns what was remembered, proposed and refused.

    Args:
        age: the least age of a session in days, or `all`; empty: `days`, as the flag passes it.
        every: the same as `all`.
        yes: do not ask.
    """
    min_days = _parse_age(age, days)
    if every:
        min_days = 0
    async with context.open_session() as session:
        maintenance = await _require_maintenance(context, session)
        old_sessions, plan = await maintenance.find_sessions(min_days)
        skipped = [old for old in old_sessions if old.skipped]
        crystallized: list[CrystallizedPart] = []
        has_unread = len(old_sessions) > len(skipped)
        if has_unread and await confirm(context, plan, "Read them", assume_yes=yes):
            shown_plan = plan if yes else ""  # else the question has shown it
            reading = maintenance.crystallize(old_sessions, crystallized)
            await _show_lines(context, maintenance, shown_plan, reading)
        value = {
            "read": list(map(_part_data, crystallized)),
            "skipped": [{"session": old.info.id, "why": old.skipped} for old in skipped],
            "usage": maintenance.usage(),
        }
        view = [] if has_unread else [line("Every old session here was already read.")]
        return Answer(value, view)


def _parse_age(age: str, default: int) -> int:
    """The age in days: 0 for `all`, the default for an empty word. Raises UsageError for a word that
    is neither, nor a number.
    """
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
        plural(state.rows[f"{kind}s"], kind) for kind in ("session", "message", "note")
    )
    text = f"Read {plural(count, 'file')}: {counts}."
    return Answer({"files": count, **asdict(state)}, [line(text)])


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
    """Measure the search with the notes here: each is searched for by the words of the turn that it
    came from. With files of documents and queries, print the hits of each query instead, and
    return None.

    Args:
        k, work: only for files: how many hits to print, and a folder for the index.
        words: search without vectors.
        at_least: the exit code is 1 if Recall@10 (from 0 to 1) is lower.
    """
    if docs or queries:
        _measure_files(docs, queries, limit=k, work=work, words_only=words)
        return None
    with context.folder.search(context.index_progress(), words_only=words) as search:
        recall_in = cache(partial(_recall_in, search))  # one recall for each repository

        def recall(text: str, project: str, branch: str) -> list[str]:
            """The ids of the notes that a message with this text would be sent with."""
            recalled = recall_in(project).find(text, long_term.Situation(project, branch))
            return [item.id for item in recalled.items if item.state == "loaded"]

        found = memory_index.ask_own_notes(search, recall)
    scores = memory_index.measure_answers(found.answers)
    return _scores_answer(scores, found.texts, missing=found.skipped, at_least=at_least)


def _scores_answer(
    scores: SearchQuality, texts: Mapping[str, str], missing: int, at_least: float
) -> Answer:
    """The scores of a search for notes, and the notes that it missed. The exit code is 1 if a smaller
    share than `at_least` is among the first ten hits.

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
    view: View = [line(head), *table(rows), *missed_rows]
    if missing:
        text = f"Not searched for, as their turns are not on disk: {plural(missing, 'note')}."
        view.append(line(text))
    return Answer(value, view, exit_code)


def _measure_files(docs: str, queries: str, limit: int, work: str, words_only: bool) -> None:
    """Search the documents of the file `docs` for the queries of the file `queries`. Prints one line
    of JSON for each query, with its `limit` best hits, best first. Raises UsageError if one of the
    files is not named.

    Args:
        work: the folder for the index; empty for a temporary one.
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
    """The recall of a session in the repository `project` (empty: in no repository), without the limit
    of tokens and with as many notes as the search finds: only their order is measured.
    """
    settings = MemorySettings(
        retrieval_top_k=memory_index.MAX_HITS, injection_token_budget=sys.maxsize
    )
    # `str` stands for the search for secrets: nothing is written.
    stores = long_term.memory_stores(settings, Path(project) if project else None, str)
    notebook = long_term.Notebook({store.scope: store for store in stores})
    return long_term.Recall(search, long_term.NoteSelection(notebook, "memory", settings))


async def _require_maintenance(context: ActionContext, session: Session) -> MemoryMaintenance:
    """The maintenance of memory in a session. Warns the user if a limit of cost is near.

    Raises:
        UsageError: memory is off.
        LimitReached: the limit of cost is reached.
    """
    if session.session_memory.maintenance is None:
        raise UsageError(
            "Memory is off here.", "Reason: `memory.enabled`, --no-memory or --ephemeral."
        )
    # Here only for the warning: each model call checks the limits again.
    warning = await session.budget.check(0)
    if warning:
        context.say(warning, "warning")
    return session.session_memory.maintenance


async def _merge_notes(
    context: ActionContext, maintenance: MemoryMaintenance, yes: bool
) -> list[Merge]:
    """Ask whether to merge notes that say the same, unless `yes`, and let a model merge them. Returns
    what was merged.
    """
    groups, plan = await maintenance.find_clusters()
    merges: list[Merge] = []
    if not groups:
        context.say("No notes say the same.")
    elif await confirm(context, plan, "Merge them", assume_yes=yes):
        shown_plan = plan if yes else ""  # else the question has shown it
        merging = maintenance.merge_notes(groups, merges)  # adds each merge to `merges`
        await _show_lines(context, maintenance, shown_plan, merging)
    return merges


async def _show_lines(
    context: ActionContext,
    maintenance: MemoryMaintenance,
    plan: str,
    lines: AsyncGenerator[str, None],
) -> None:
    """Do work that yields lines, and show each line when it comes; in a session as a turn, which the
    user can interrupt.

    Args:
        plan: a line to show first on the command line; empty for none.
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
    """A merge as `--json` prints it. `into` is the id of the new note, None if none was written."""
    written = merge.written
    return {
        "notes": [note.id for note in merge.notes],
        "into": written.note.id if written else None,
        "commit": written.commit if written else "",
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
