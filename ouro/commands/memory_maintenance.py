"""Maintenance of memory: check, merge, read old sessions, index, and measure the search."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ouro.commands import memory_views as views
from ouro.commands.action import ActionContext, Answer, confirm
from ouro.commands.render import View, line, table
from ouro.errors import UsageError
from ouro.utils.text import one_line, plural

if TYPE_CHECKING:
    from ouro.commands.shell import ShellContext
    from ouro.memory.index import Search
    from ouro.memory.long_term import CrystallizedPart, MemoryMaintenance, Merge, OldSession, Recall
    from ouro.session import Session

_DAYS = 7


async def check(context: ShellContext) -> Answer:
    """Look for problems in memory; exit code 1 if there is one."""
    from ouro.memory.long_term import diagnose

    with context.opener.memory() as (editor, stores):
        threshold = context.setting("memory.consolidation_threshold")
        found = diagnose(editor, threshold, tuple(context.setting("memory.categories")))
        off = [store.scope for store in stores if store.scope not in editor.names]
    exit_code = int(any(finding.level == "problem" for finding in found))
    return Answer({"findings": found, "off": off}, views.findings(found, off), exit_code)


async def consolidate(context: ActionContext, what: str, core: bool, notes: bool, yes: bool) -> Answer | None:
    """Have a model merge notes that say the same, and compress the core."""
    if what not in ("", "notes", "core", "user", "repo"):
        raise UsageError(f"`{what}` cannot be consolidated.", "Name `notes`, `core`, `user` or `repo`.")
    async with context.open_session() as session:
        digest = await _digest(context, session)
        outcomes: dict[str, str] = {}
        question = "A model merges and compresses the core."
        has_core = not notes and what != "notes"
        if has_core and await confirm(context, question, "Do it", assume_yes=yes or context.session is not None):
            for scope in session.memory.required().scopes:
                if what not in ("", "core", scope):
                    continue
                outcomes[scope] = await session.memory.required().consolidate(scope)
                context.say(f"Memory ({scope}): {outcomes[scope]}.")
        merges = [] if core or what not in ("", "notes") else await _merge_notes(context, digest, yes)
        value = {"core": outcomes, "notes": [_merge_data(merge) for merge in merges], "usage": digest.used()}
    return None if context.session else Answer(value, [])


async def crystallize(context: ActionContext, age: str, days: int, every: bool, yes: bool) -> Answer | None:
    """Have a model make notes from old sessions of this folder."""
    from ouro.memory.long_term import plan_of_sessions, step_line, steps_line

    if age not in ("", "all") and not age.isdecimal():
        raise UsageError(f"`{age}` is not an age in days, or `all`.", commands=["memory crystallize 30"])
    async with context.open_session() as session:
        digest = await _digest(context, session)
        found = await digest.find_sessions(0 if every or age == "all" else int(age or days))
        parts = sum(old.parts for old in found if not old.skipped)
        plan = plan_of_sessions(found, digest.price(sum(old.tokens for old in found)))
        steps: list[CrystallizedPart] = []
        if parts and await confirm(context, plan, "Read them", assume_yes=yes):
            if context.session:
                await context.run(digest.crystallize_as_turn(found))
                return None
            if yes:
                context.say(plan)
            async for step in digest.crystallize(found):
                steps.append(step)
                context.say(step_line(len(steps), parts, step))
        view: View = [] if parts else [line("Every old session here was already read.")]
        if steps:
            view = [line(steps_line(steps, [old for old in found if old.skipped], digest.used()))]
        return Answer(_crystallize_data(steps, found, digest), view)


async def reindex(context: ShellContext) -> Answer:
    """Rebuild the index from the files."""

    def progress(done: int, whole: int) -> None:
        if not context.as_json and (done % 20 == 0 or done == whole):
            context.progress("" if done == whole else f"{done} of {whole} files")

    with context.opener.index() as index:
        count = index.rebuild(context.opener.sources(index), progress)
        context.opener.make_vectors(index, ("notes", "messages"))
        state = index.state()
    value = {"files": count, "path": state.path, "size": state.size, "rows": state.rows}
    counts = ", ".join(plural(state.rows[name], name[:-1]) for name in ("sessions", "messages", "notes"))
    return Answer(value, [line(f"Read {plural(count, 'file')}: {counts}.")])


async def index_state(context: ShellContext) -> Answer:
    """Show the size of the index and what is in it."""
    with context.opener.index() as index:
        state = index.state()
    head = f"{state.path}, {state.size:,} bytes. It is made from sessions and memory: you may delete it at any time."
    rows = table((name, f"{count:,}") for name, count in state.rows.items())
    return Answer({"path": state.path, "size": state.size, "rows": state.rows}, [line(head), *rows])


async def measure(
    context: ShellContext, docs: str, queries: str, k: int, work: str, words: bool, at_least: float
) -> Answer | None:
    """Measure how well the search finds what is known to be there."""
    if docs or queries:
        _measure_files(docs, queries, k, work, words)
        return None
    from msgspec.structs import asdict

    from ouro.memory.index import ask_own_notes, measure_answers
    from ouro.memory.long_term import Situation

    with context.opener.search(words_only=words) as search:
        recall_in = cache(partial(_recall_in, search))

        def recall(text: str, project: str, branch: str) -> list[str]:
            found = recall_in(project).local(text, Situation(project, branch))
            return [item.id for item in found.items if item.state == "loaded"]

        questions = ask_own_notes(search, recall)
    measured = measure_answers(questions.answers, questions.wanted)
    missing = questions.without_a_turn
    value = {**asdict(measured), "without_a_turn": missing}
    exit_code = int(measured.recall["10"] < at_least)
    if not measured.questions:
        what = f"No note has a known turn, so there is nothing to search for ({plural(missing, 'note')} without one)."
        return Answer(value, [line(what)], exit_code)
    rows = [[f"Recall@{count}", f"{share:.3f}"] for count, share in measured.recall.items()]
    rows += [["NDCG@10", f"{measured.ndcg10:.3f}"]]
    rows += [["p50", f"{measured.p50_ms:.1f} ms"], ["p95", f"{measured.p95_ms:.1f} ms"]]
    head = f"{plural(measured.questions, 'note')}, each searched for by the words of the turn that taught it:"
    missed = table(("missed", note, one_line(questions.texts[note], 120)) for note in measured.missed)
    rest = [line(f"{plural(missing, 'note')} without a turn on disk were not searched for.")] if missing else []
    return Answer(value, [line(head), *table(rows), *missed, *rest], exit_code)


def _measure_files(docs: str, queries: str, limit: int, work: str, words_only: bool) -> None:
    """Search the documents of one file for the queries of another: one JSON line a query, best hits first."""
    from ouro.memory.index import BenchmarkQuestion, Document, answer_line, answers, local_embedder, read_lines

    if not (docs and queries):
        raise UsageError("--docs and --queries need each other.")
    documents, questions = read_lines(Path(docs), Document), read_lines(Path(queries), BenchmarkQuestion)
    embedder = None if words_only else local_embedder()
    with tempfile.TemporaryDirectory(prefix="ouro-test-") as folder:
        for answer in answers(documents, questions, limit, Path(work or folder), embedder):
            sys.stdout.write(answer_line(answer) + "\n")


def _recall_in(search: Search, project: str) -> Recall:
    """The recall of a session in that repository, without its token budget: only the order counts."""
    from ouro.memory.index import MAX_HITS
    from ouro.memory.long_term import Notebook, Recall, RecallSettings, repo_store, user_store
    from ouro.utils.runtime import get_history_dir, get_memory_dir

    histories = get_history_dir()
    stores: dict[Any, Any] = {"user": user_store(get_memory_dir(), histories, str)}
    if project:
        stores["repo"] = repo_store(Path(project), histories, str)
    return Recall(search, Notebook(stores), "memory", RecallSettings(MAX_HITS, budget=sys.maxsize))


async def _digest(context: ActionContext, session: Session) -> MemoryMaintenance:
    """The background maintenance of memory, if the budget allows it.

    Raises:
        UsageError: memory is off.
        LimitReached: a limit on costs is reached.
    """
    if session.memory.maintenance is None:
        raise UsageError("Memory is off here.", "Reason: `memory.enabled`, --no-memory or --ephemeral.")
    if warning := await session.budget.check(0):  # every model call below observes the limits
        context.say(warning, "warning")
    return session.memory.maintenance


async def _merge_notes(context: ActionContext, digest: MemoryMaintenance, yes: bool) -> list[Merge]:
    from ouro.memory.long_term import merge_line, merges_line, plan_of_notes

    found, tokens = await digest.find_notes()
    plan, merges = plan_of_notes(found, tokens, digest.price(tokens)), list[Any]()
    if not found:
        context.say("No notes say the same.")
    elif await confirm(context, plan, "Merge them", assume_yes=yes):
        if context.session:
            await context.run(digest.merge_as_turn(found))
            return []
        if yes:
            context.say(plan)
        async for merge in digest.merge_notes(found):
            merges.append(merge)
            context.say(merge_line(len(merges), len(found), merge))
        context.say(merges_line(merges, digest.used()))
    return merges


def _merge_data(merge: Merge) -> dict[str, Any]:
    written = merge.written
    return {
        "notes": [note.id for note in merge.notes],
        "into": written.note.id if written else None,
        "commit": written.commit if written else "",
        "why": merge.reason,
    }


def _crystallize_data(
    steps: Sequence[CrystallizedPart], found: Sequence[OldSession], digest: MemoryMaintenance
) -> dict[str, Any]:
    read = [
        {
            "session": step.session.info.id,
            "part": step.part,
            "kept": [
                {"id": one.note.id, "text": one.note.text, "change": one.change, "commit": one.commit}
                for one in step.captured.written
            ],
            "proposed": [{"id": one.id, "text": one.text} for one in step.captured.proposed],
            "refused": [{"text": one.said, "why": one.reason} for one in step.captured.refused],
        }
        for step in steps
    ]
    skipped = [{"session": old.info.id, "why": old.skipped} for old in found if old.skipped]
    return {"read": read, "skipped": skipped, "usage": digest.used()}
