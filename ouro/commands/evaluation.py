"""`ouro eval`: run tasks with checks, and compare models, with and without memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.batch.evaluation import (
    EvalRun,
    EvalSettings,
    Evaluation,
    Score,
    prepare,
    read_evaluation,
    score,
)
from ouro.batch.report import page_head
from ouro.batch.state import BatchState, TaskResult
from ouro.commands.action import Answer
from ouro.commands.batch import forget_failed, refuse_secrets, run_tasks
from ouro.commands.render import Title, View, line, table
from ouro.utils.files import write_document
from ouro.utils.text import dollars, plural

if TYPE_CHECKING:
    from ouro.commands.subcommands import ShellContext

_USES = {"none": ("none",), "read": ("read",), "both": ("none", "read")}


async def run(
    context: ShellContext,
    folder: str,
    model: Sequence[str] | None,
    memory: str,
    repeats: int | None,
    state: str,
    workers: int | None,
    max_cost: float | None,
    fail_under: float,
    again: bool,
    dry_run: bool,
    html: str,
    force: bool,
) -> Answer:
    place = Path(folder)
    where = Path(state) if state else place.with_name(f"{place.resolve().name}.eval")
    standard = EvalSettings()
    given = EvalSettings(
        models=tuple(model) if model else standard.models,
        memory=_USES.get(memory, standard.memory),  # type: ignore[arg-type]
        repeats=repeats or standard.repeats,
    )
    evaluation = await asyncio.to_thread(read_evaluation, place, where, given)
    if dry_run:
        return _plan_answer(evaluation, where)
    found = BatchState(where)
    await asyncio.to_thread(prepare, evaluation, found)
    if again:
        forget_failed(found)
    refuse_secrets(context, found)
    await run_tasks(context, found, workers, max_cost)
    results = {result.id: result for result in found.results()}
    if html:
        write_document(Path(html), _page(evaluation, results), force=force)
    return _summary(evaluation, results, where, fail_under)


def _plan_answer(evaluation: Evaluation, where: Path) -> Answer:
    """The runs that would start, for `--dry-run`."""
    rows = [
        (run.task, _arm_title(run.arm), f"repeat {run.repeat}", run.id) for run in evaluation.runs
    ]
    view: View = [
        Title(f"{evaluation.batch.name}: {plural(len(rows), 'run')}"),
        *table(rows),
        line(f"State: {where}"),
    ]
    return Answer([msgspec.to_builtins(run) for run in evaluation.runs], view)


def _summary(
    evaluation: Evaluation, results: dict[str, TaskResult], where: Path, fail_under: float
) -> Answer:
    """The tables. The exit code is 1 if a run is missing or says nothing, or too few passed."""
    scores = _scores(evaluation.runs, results)
    view: View = [
        Title(evaluation.batch.name),
        *table(
            [("", "passed", "rate", "95 %", "cost", "time", ""), *starmap(_row, scores.items())]
        ),
    ]
    arms = list(scores)
    if len(arms) > 1:
        head = ("task", *map(_arm_title, arms))
        view += [Title("By task"), *table([head, *_task_rows(evaluation, arms, results)])]
    low = [arm for arm, found in scores.items() if 100 * found.rate < fail_under]
    view += [line(f"{_arm_title(arm)}: fewer than {fail_under:g} % passed.") for arm in low]
    view.append(line(f"State: {where}. Of one run: ouro batch show {where} TASK.MODEL.REPEAT"))
    value = {
        "name": evaluation.batch.name,
        "state": str(where),
        "arms": [
            {"model": arm[0], "memory": arm[1], "rate": found.rate, **msgspec.to_builtins(found)}
            for arm, found in scores.items()
        ],
        "runs": [_run_value(run, results.get(run.id)) for run in evaluation.runs],
    }
    is_whole = all(not found.faults and not found.missing for found in scores.values())
    return Answer(value, view, 0 if is_whole and not low else 1)


def _scores(
    runs: Iterable[EvalRun], results: dict[str, TaskResult]
) -> dict[tuple[str, str], Score]:
    """The score of each arm: of all its runs together."""
    by_arm: dict[tuple[str, str], list[EvalRun]] = {}
    for run in runs:
        by_arm.setdefault(run.arm, []).append(run)
    return {arm: score(runs_of_arm, results) for arm, runs_of_arm in by_arm.items()}


def _row(arm: tuple[str, str], value: Score) -> tuple[str, ...]:
    """An arm as a row: passes, rate with its interval, cost, time, and what is missing."""
    lacks = [
        plural(value.faults, "fault") if value.faults else "",
        f"{value.missing} not run" if value.missing else "",
    ]
    return (
        _arm_title(arm),
        f"{value.passed}/{value.counted}",
        f"{value.rate:.0%}",
        f"{value.low:.0%}–{value.high:.0%}",
        dollars(value.cost, "unknown"),
        f"{value.seconds:.0f} s",
        ", ".join(filter(None, lacks)),
    )


def _task_rows(
    evaluation: Evaluation, arms: Sequence[tuple[str, str]], results: dict[str, TaskResult]
) -> Iterator[tuple[str, ...]]:
    """For each task, the passes of every arm."""
    for task in dict.fromkeys(run.task for run in evaluation.runs):
        runs = [run for run in evaluation.runs if run.task == task]
        scores = _scores(runs, results)
        yield (task, *(f"{scores[arm].passed}/{scores[arm].counted}" for arm in arms))


def _arm_title(arm: tuple[str, str]) -> str:
    model, memory = arm
    name = model or "default model"
    return name if memory == "none" else f"{name} with memory"


def _run_value(run: EvalRun, result: TaskResult | None) -> dict[str, Any]:
    ended = msgspec.to_builtins(result) if result else {"outcome": "not run"}
    return {**msgspec.to_builtins(run), **ended}


def _page(evaluation: Evaluation, results: dict[str, TaskResult]) -> Iterator[str]:
    """The tables as HTML; nothing in it is loaded from elsewhere."""
    yield page_head(evaluation.batch.name)
    scores = _scores(evaluation.runs, results)
    head = ("", "passed", "rate", "95 %", "cost", "time", "")
    yield from _html_table(head, starmap(_row, scores.items()))
    arms = list(scores)
    yield from _html_table(("task", *map(_arm_title, arms)), _task_rows(evaluation, arms, results))


def _html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield '<div class="wide"><table><tr>' + "".join(f"<th>{escape(cell)}" for cell in head) + "\n"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) + "\n"
    yield "</table></div>\n"
