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
    from ouro.commands.shell_context import ShellContext

_MEMORY_ARMS = {"none": ("none",), "read": ("read",), "both": ("none", "read")}
"""The uses of memory to compare, by the value of `--memory`."""
_ARM_HEAD = ("", "passed", "rate", "95 %", "cost", "time", "")
"""The head of the table of arms: the last column is for what is missing."""


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
    """Run the tasks of a folder with each model and each use of memory, and show their scores. What
    has a result in the folder of the state is not run again.

    Args:
        model, memory, repeats: what to compare, and how often; nothing for the default.
        fail_under: the exit code is 1 if a smaller percentage of an arm passes.
        again: run also what did not pass.
        dry_run: only list the runs.
        html: a file for the tables as a page; empty for none.
    """
    task_folder = Path(folder)
    state_folder = (
        Path(state) if state else task_folder.with_name(f"{task_folder.resolve().name}.eval")
    )
    default = EvalSettings()
    settings = EvalSettings(
        models=tuple(model) if model else default.models,
        memory=_MEMORY_ARMS.get(memory, default.memory),  # type: ignore[arg-type]
        repeats=repeats or default.repeats,
    )
    evaluation = await asyncio.to_thread(read_evaluation, task_folder, state_folder, settings)
    if dry_run:
        return _plan_answer(evaluation, state_folder)
    batch_state = BatchState(state_folder)
    await asyncio.to_thread(prepare, evaluation, batch_state)
    if again:
        forget_failed(batch_state)
    refuse_secrets(context, batch_state)
    await run_tasks(context, batch_state, workers, max_cost)
    results = {result.id: result for result in batch_state.results()}
    if html:
        write_document(Path(html), _page(evaluation, results), force=force)
    return _summary(evaluation, results, state_folder, fail_under)


def _plan_answer(evaluation: Evaluation, state_folder: Path) -> Answer:
    """The answer of `--dry-run`: the runs that would start."""
    rows = [
        (run.task, _arm_title(run.arm), f"repeat {run.repeat}", run.id) for run in evaluation.runs
    ]
    view: View = [
        Title(f"{evaluation.batch.name}: {plural(len(rows), 'run')}"),
        *table(rows),
        line(f"State: {state_folder}"),
    ]
    return Answer([msgspec.to_builtins(run) for run in evaluation.runs], view)


def _summary(
    evaluation: Evaluation, results: dict[str, TaskResult], state_folder: Path, fail_under: float
) -> Answer:
    """The table of scores by arm, and, if there are several arms, by task. The exit code is 1 if a
    run is missing or has a fault, or if fewer than `fail_under` percent of an arm passed.
    """
    scores = _scores(evaluation.runs, results)
    arm_rows = starmap(_arm_row, scores.items())
    view: View = [Title(evaluation.batch.name), *table([_ARM_HEAD, *arm_rows])]
    arms = list(scores)
    if len(arms) > 1:
        task_head = ("task", *map(_arm_title, arms))
        view += [Title("By task"), *table([task_head, *_task_rows(evaluation, arms, results)])]
    low_arms = [arm for arm, arm_score in scores.items() if 100 * arm_score.rate < fail_under]
    view += [line(f"{_arm_title(arm)}: fewer than {fail_under:g} % passed.") for arm in low_arms]
    view.append(
        line(f"State: {state_folder}. Of one run: ouro batch show {state_folder} TASK.MODEL.REPEAT")
    )
    value = {
        "name": evaluation.batch.name,
        "state": str(state_folder),
        "arms": [
            {
                "model": model,
                "memory": memory,
                "rate": arm_score.rate,
                **msgspec.to_builtins(arm_score),
            }
            for (model, memory), arm_score in scores.items()
        ],
        "runs": [_run_value(run, results.get(run.id)) for run in evaluation.runs],
    }
    is_complete = all(
        not arm_score.faults and not arm_score.missing for arm_score in scores.values()
    )
    return Answer(value, view, 0 if is_complete and not low_arms else 1)


def _scores(
    runs: Iterable[EvalRun], results: dict[str, TaskResult]
) -> dict[tuple[str, str], Score]:
    """The score of each arm (model, use of memory) over all its runs."""
    by_arm: dict[tuple[str, str], list[EvalRun]] = {}
    for run in runs:
        by_arm.setdefault(run.arm, []).append(run)
    return {arm: score(runs_of_arm, results) for arm, runs_of_arm in by_arm.items()}


def _arm_row(arm: tuple[str, str], arm_score: Score) -> tuple[str, ...]:
    """The table row of an arm: passes, rate with its interval, cost, time, and what is missing."""
    missing_notes = [
        plural(arm_score.faults, "fault") if arm_score.faults else "",
        f"{arm_score.missing} not run" if arm_score.missing else "",
    ]
    return (
        _arm_title(arm),
        f"{arm_score.passed}/{arm_score.counted}",
        f"{arm_score.rate:.0%}",
        f"{arm_score.low:.0%}–{arm_score.high:.0%}",
        dollars(arm_score.cost, "unknown"),
        f"{arm_score.seconds:.0f} s",
        ", ".join(filter(None, missing_notes)),
    )


def _task_rows(
    evaluation: Evaluation, arms: Sequence[tuple[str, str]], results: dict[str, TaskResult]
) -> Iterator[tuple[str, ...]]:
    """Yields a row for each task: its name, and for each arm how many of its runs passed."""
    for task in dict.fromkeys(run.task for run in evaluation.runs):
        runs = [run for run in evaluation.runs if run.task == task]
        scores = _scores(runs, results)
        yield (task, *(f"{scores[arm].passed}/{scores[arm].counted}" for arm in arms))


def _arm_title(arm: tuple[str, str]) -> str:
    """The name of an arm (model, use of memory) for users; an empty model is the default one."""
    model, memory = arm
    name = model or "default model"
    return name if memory == "none" else f"{name} with memory"


def _run_value(run: EvalRun, result: TaskResult | None) -> dict[str, Any]:
    """A run with its result as `--json` prints them; without a result it has not run."""
    outcome = msgspec.to_builtins(result) if result else {"outcome": "not run"}
    return {**msgspec.to_builtins(run), **outcome}


def _page(evaluation: Evaluation, results: dict[str, TaskResult]) -> Iterator[str]:
    """Yields a page with the tables; it loads nothing from elsewhere."""
    yield page_head(evaluation.batch.name)
    scores = _scores(evaluation.runs, results)
    yield from _html_table(_ARM_HEAD, starmap(_arm_row, scores.items()))
    arms = list(scores)
    yield from _html_table(("task", *map(_arm_title, arms)), _task_rows(evaluation, arms, results))


def _html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yields a table as lines of HTML, a row each; the texts of the cells are escaped."""
    yield '<div class="wide"><table><tr>' + "".join(f"<th>{escape(cell)}" for cell in head) + "\n"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) + "\n"
    yield "</table></div>\n"
