"""`ouro batch`: run tasks in many repositories, and decide about what they changed."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.batch import branches
from ouro.batch.attempt import Attempt
from ouro.batch.branches import BranchError
from ouro.batch.engine import default_workers, run_batch
from ouro.batch.report import dollars, reason, report_page, summary_rows
from ouro.batch.state import BatchState, TaskResult
from ouro.batch.tasks import Batch, Task, for_repositories, read_batch
from ouro.commands.action import Answer
from ouro.commands.render import Quote, Title, View, line, table
from ouro.errors import UsageError
from ouro.utils.files import write_document
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.commands.shell import ShellContext


async def run(
    context: ShellContext,
    tasks: str,
    prompt: str,
    repos: str,
    state: str,
    workers: int | None,
    max_cost: float | None,
    again: bool,
    dry_run: bool,
    yes: bool,
) -> Answer:
    batch, folder = _chosen(tasks, prompt, repos, state)
    if dry_run:
        return _planned(batch, folder)
    found = BatchState(folder)
    found.begin(batch)
    if again or yes:
        _forget_failed(found)
    if not yes:
        _refuse_secrets(context, found)
    count = workers or default_workers()
    progress = _TableProgress(len(batch.tasks)) if sys.stderr.isatty() else _LineProgress(context)
    runner = Attempt(found)
    with progress:
        try:
            results = await asyncio.to_thread(
                run_batch, found, runner, progress, workers=count, dollars=max_cost
            )
        except asyncio.CancelledError:
            context.say("Interrupted: running tasks end, and begin again next time.", "warning")
            runner.stop()
            raise
    return _summary(found, results)


async def report(_context: ShellContext, state: str, html: str, force: bool) -> Answer:
    found = BatchState(Path(state))
    if html:
        write_document(Path(html), report_page(found), force=force)
    return _summary(found, found.results())


async def show(_context: ShellContext, state: str, task: str) -> Answer:
    found = BatchState(Path(state))
    asked = found.task(task)
    result = found.result(task)
    if result is None:
        raise UsageError(f"`{task}` has no result yet.", "Continue with: ouro batch run")
    view: View = [Title(task), *table(_facts(asked, result))]
    if result.answer.text:
        view.append(Quote(result.answer.text))
    for check in result.checks:
        view.append(line(f"{check.command}: exit code {check.exit_code}"))
        if check.exit_code:
            view.append(Quote(check.output))
    patch = found.patch(task)
    if patch:
        view.append(Quote(patch, "diff"))
    return Answer({**msgspec.to_builtins(result), "patch": patch}, view)


async def accept(context: ShellContext, state: str, task: Sequence[str], all: bool) -> Answer:  # noqa: A002
    return await _decide(context, state, task, all, branches.accept, only_done=True)


async def reject(context: ShellContext, state: str, task: Sequence[str], all: bool) -> Answer:  # noqa: A002
    return await _decide(context, state, task, all, branches.reject, only_done=False)


async def open_pull_requests(
    context: ShellContext,
    state: str,
    task: Sequence[str],
    all: bool,  # noqa: A002
) -> Answer:
    return await _decide(context, state, task, all, branches.open_pull_request, only_done=True)


async def _decide(
    context: ShellContext,
    state: str,
    names: Sequence[str],
    is_all: bool,
    do: Callable[[BatchState, TaskResult], TaskResult],
    *,
    only_done: bool,
) -> Answer:
    """Do something with the branches of some results; one that fails is named, the others are done."""
    found = BatchState(Path(state))
    if bool(names) == is_all:
        raise UsageError("Name tasks, or pass --all.", f"See `ouro batch report {state}`.")
    changed, failed = [], 0
    for result in _all_open(found, only_done) if is_all else _named(found, names):
        try:
            changed.append(await asyncio.to_thread(do, found, result))
        except BranchError as error:
            failed += 1
            context.say(error.text("ouro "), "error")
    rows = [(result.id, result.state) for result in changed]
    values = [msgspec.to_builtins(result) for result in changed]
    return Answer(values, table(rows) or [line("Nothing to do.")], 1 if failed else 0)


def _named(state: BatchState, names: Sequence[str]) -> list[TaskResult]:
    for name in names:
        state.task(name)
    return [result for result in state.results() if result.id in names]


def _all_open(state: BatchState, only_done: bool) -> list[TaskResult]:
    """The results with a branch that the user has not decided about."""
    found = [result for result in state.results() if result.branch and not result.state]
    return [result for result in found if result.is_done or not only_done]


def _chosen(tasks: str, prompt: str, repos: str, state: str) -> tuple[Batch, Path]:
    """The tasks, and the folder of their state."""
    if bool(tasks) == bool(prompt and repos):
        raise UsageError(
            "Name a file of tasks, or one prompt and a file of repositories.",
            "Usage: ouro batch run TASKS.yaml, or ouro batch run --prompt TEXT --repos FILE",
        )
    source = Path(tasks or repos)
    folder = Path(state) if state else source.with_name(f"{source.name.partition('.')[0]}.batch")
    if tasks:
        return read_batch(source), folder
    return for_repositories(prompt, source, source.name.partition(".")[0]), folder


def _planned(batch: Batch, folder: Path) -> Answer:
    rows = [
        (task.id, task.repo, task.revision, task.prompt.strip().splitlines()[0])
        for task in batch.tasks
    ]
    view = [
        Title(f"{batch.name}: {plural(len(batch.tasks), 'task')}"),
        *table(rows),
        line(f"State: {folder}"),
    ]
    return Answer([msgspec.to_builtins(task) for task in batch.tasks], view)


def _refuse_secrets(context: ShellContext, state: BatchState) -> None:
    """Give tasks whose prompt holds a secret a result that says so: it would be sent and saved."""
    for task in state.batch().tasks:
        kind = context.folder.mask.kind_of_secret(task.prompt)
        if kind and state.result(task.id) is None:
            detail = f"Its prompt holds a secret ({kind}): take it out, or pass --yes."
            state.save(TaskResult(id=task.id, repo=task.repo, outcome="refused", detail=detail))


def _forget_failed(state: BatchState) -> None:
    for result in state.results():
        if not result.is_done:
            state.forget(result.id)


def _summary(state: BatchState, results: Sequence[TaskResult]) -> Answer:
    batch = state.batch()
    done = sum(result.is_done for result in results)
    total = sum(result.cost or 0.0 for result in results)
    missing = len(batch.tasks) - len(results)
    words = f"{done} of {plural(len(batch.tasks), 'task')} done, {dollars(total)}"
    more = f", {missing} not run" if missing else ""
    view: View = [*table(summary_rows(results)), line(f"{words}{more}. State: {state.folder}")]
    value = {
        "name": batch.name,
        "state": str(state.folder),
        "tasks": len(batch.tasks),
        "cost": total,
        "results": [msgspec.to_builtins(result) for result in results],
    }
    return Answer(value, view, 0 if done == len(batch.tasks) else 1)


def _facts(task: Task, result: TaskResult) -> list[tuple[str, str]]:
    pairs = [
        ("repository", f"{result.repo} at {task.revision}"),
        ("outcome", f"{result.outcome}: {reason(result)}"),
        ("branch", result.branch),
        ("session", f"ouro --resume {result.session_id}" if result.session_id else ""),
        ("cost", dollars(result.cost)),
        ("attempts", str(result.attempts)),
    ]
    return [pair for pair in pairs if pair[1]]


class _LineProgress:
    """A line for each task that ends: for the log of a CI."""

    def __init__(self, context: ShellContext) -> None:
        self._context = context

    def __enter__(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        return

    def started(self, task: Task) -> None:
        """Nothing: a log shows what ended."""

    def ended(self, result: TaskResult) -> None:
        text = f"{result.id}: {result.outcome}, {dollars(result.cost) or 'cost unknown'}"
        why = "" if result.is_done else f" ({reason(result)})"
        self._context.say(f"{text}, {result.seconds:.0f} s{why}", "warning")


class _TableProgress:
    """The running tasks and what ended, drawn again in place."""

    def __init__(self, tasks: int) -> None:
        from rich.console import Console
        from rich.live import Live

        self._tasks = tasks
        self._running: dict[str, float] = {}
        self._ended: list[TaskResult] = []
        self._live = Live(
            get_renderable=self._draw, console=Console(stderr=True), refresh_per_second=4
        )

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def started(self, task: Task) -> None:
        self._running[task.id] = time.monotonic()

    def ended(self, result: TaskResult) -> None:
        self._running.pop(result.id, None)
        self._ended.append(result)

    def _draw(self) -> Any:
        from rich.table import Table

        spent = sum(result.cost or 0.0 for result in self._ended)
        drawn = Table(
            "task",
            "state",
            "time",
            title=f"{len(self._ended)} of {self._tasks} ended, {dollars(spent)}",
            title_justify="left",
            box=None,
        )
        for result in self._ended[-8:]:
            colour = "green" if result.is_done else "red"
            drawn.add_row(
                result.id, f"[{colour}]{result.outcome}[/{colour}]", f"{result.seconds:.0f} s"
            )
        now = time.monotonic()
        for name, began in list(self._running.items()):
            drawn.add_row(name, "running", f"{now - began:.0f} s")
        return drawn
