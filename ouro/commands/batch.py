"""`ouro batch`: run tasks in many repositories, and decide about what they changed."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.batch import branches, swe_bench
from ouro.batch.attempt import Attempt, make_server
from ouro.batch.branches import BranchError
from ouro.batch.engine import Runner, default_workers, run_batch
from ouro.batch.report import reason, report_page, summary_rows
from ouro.batch.state import REFUSED, BatchState, TaskResult
from ouro.batch.tasks import Batch, Task, for_repositories, read_batch
from ouro.commands.action import Answer
from ouro.commands.batch_inbox import find_waiting
from ouro.commands.render import CommandText, Quote, Title, View, line, print_document, table
from ouro.errors import OuroError, UsageError
from ouro.utils.files import write_document
from ouro.utils.lenient_json import dump_json
from ouro.utils.text import dollars, plural

if TYPE_CHECKING:
    from ouro.commands.subcommands import ShellContext

_SHOWN = 8
"""Tasks that ended, in the table of a run."""


async def run(
    context: ShellContext,
    tasks: str,
    prompt: str,
    repos: str,
    state: str,
    mirror: str,
    on: str,
    env: Sequence[str],
    workers: int | None,
    max_cost: float | None,
    again: bool,
    dry_run: bool,
    yes: bool,
) -> Answer:
    if env and not on:
        raise UsageError("`--env` is for the workers of `--on`.", "Tasks here have your variables.")
    batch, folder = _read_tasks(tasks, prompt, repos, state, mirror)
    if dry_run:
        return _plan_answer(batch, folder)
    found = BatchState(folder)
    found.begin(batch)
    if again:
        forget_failed(found)
    if yes:
        _forget_refused(found)
    else:
        refuse_secrets(context, found)
    await run_tasks(context, found, workers, max_cost, on, _names_of_variables(env))
    answer = _summary(found, list(found.results()))
    return await asyncio.to_thread(_with_waiting, context, found, answer)


def _with_waiting(context: ShellContext, state: BatchState, answer: Answer) -> Answer:
    """The answer, with a line about what the sessions would remember."""
    try:
        count = len(find_waiting(context.folder, state))
    except OuroError as error:
        context.say(f"What the sessions would remember waits: {error.message}", "warning")
        return answer
    if count:
        command = CommandText(f"batch inbox {state.folder}")
        answer.view.append(line(f"{plural(count, 'change')} of memory waiting: ", command))
    return answer


async def run_tasks(
    context: ShellContext,
    state: BatchState,
    workers: int | None,
    max_cost: float | None,
    on: str = "",
    variables: Sequence[str] = (),
) -> None:
    """Run what has no result yet, with a live table on a terminal.

    Args:
        on: a scheduler of Dask, or a kind of cluster; empty: processes of this machine.
    """
    if not on:
        with closing(make_server()) as server:
            runner = Attempt(state, server)
            await asyncio.to_thread(runner.clear_ended)
            await _run_by(runner, context, state, workers or default_workers(), max_cost)
        return
    from ouro.batch.dask_runner import DaskRunner, connect, threads_of  # loads Dask

    with connect(on, workers) as client:
        by_dask = DaskRunner(state, client, variables)
        threads = threads_of(client)
        if not threads:
            context.say(
                "No worker is connected yet: tasks wait. --workers N sets how many run at once.",
                "warning",
            )
        await _run_by(by_dask, context, state, workers or max(1, threads), max_cost)


async def _run_by(
    runner: Runner, context: ShellContext, state: BatchState, count: int, max_cost: float | None
) -> None:
    """Run the open tasks with a runner, and show the progress. An interrupt stops the runner."""
    tasks = len(state.batch().tasks)
    progress = _TableProgress(tasks) if sys.stderr.isatty() else _LineProgress(context)
    with progress:
        try:
            await asyncio.to_thread(
                run_batch, state, runner, progress, workers=count, dollars=max_cost
            )
        except asyncio.CancelledError:
            context.say("Interrupted: running tasks end, and begin again next time.", "warning")
            runner.stop()
            raise


async def report(_context: ShellContext, state: str, html: str, force: bool) -> Answer:
    found = BatchState(Path(state))
    if html:
        write_document(Path(html), report_page(found), force=force)
    return _summary(found, list(found.results()))


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


async def predictions(
    _context: ShellContext, state: str, name: str, output: str, force: bool
) -> Answer | None:
    found = BatchState(Path(state))
    lines = (f"{dump_json(item)}\n" for item in swe_bench.predictions(found, name))
    if not output:
        print_document(lines)
        return None
    written = list(lines)
    write_document(Path(output), written, force=force)
    lacking = len(found.batch().tasks) - len(written)
    rest = f", {plural(lacking, 'task')} without one" if lacking else ""
    value = {"file": output, "predictions": len(written), "without": lacking}
    return Answer(value, [line(f"Wrote {plural(len(written), 'prediction')} to {output}{rest}.")])


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
    for result in _all_open(found, only_done) if is_all else _results_of(found, names):
        try:
            changed.append(await asyncio.to_thread(do, found, result))
        except BranchError as error:
            failed += 1
            context.say(error.text("ouro "), "error")
    rows = [(result.id, result.state) for result in changed]
    values = [msgspec.to_builtins(result) for result in changed]
    return Answer(values, table(rows) or [line("Nothing to do.")], 1 if failed else 0)


def _names_of_variables(words: Sequence[str]) -> tuple[str, ...]:
    """Raises UsageError: a word is not a name, for example because it has a value."""
    for word in words:
        if not re.fullmatch(r"[A-Za-z_]\w*", word):
            name = word.partition("=")[0]
            hint = "Set its value where the workers start: it is never sent."
            raise UsageError(f"`--env {name}`: only the name of a variable.", hint)
    return tuple(words)


def _results_of(state: BatchState, names: Sequence[str]) -> list[TaskResult]:
    """The results of named tasks. Raises UsageError for a name that the batch does not have."""
    for name in names:
        state.task(name)
    return [result for result in state.results() if result.id in names]


def _all_open(state: BatchState, only_done: bool) -> list[TaskResult]:
    """The results with a branch that the user has not decided about."""
    found = [result for result in state.results() if result.branch and not result.state]
    return [result for result in found if result.is_done or not only_done]


def _read_tasks(tasks: str, prompt: str, repos: str, state: str, mirror: str) -> tuple[Batch, Path]:
    """The tasks of a file, or one prompt for each repository; and the folder of their state."""
    if bool(tasks) == bool(prompt and repos):
        raise UsageError(
            "Name a file of tasks, or one prompt and a file of repositories.",
            "Usage: ouro batch run TASKS.yaml, or ouro batch run --prompt TEXT --repos FILE",
        )
    source = Path(tasks or repos)
    folder = Path(state) if state else source.with_name(f"{source.name.partition('.')[0]}.batch")
    if tasks:
        return read_batch(source, mirror), folder
    return for_repositories(prompt, source, source.name.partition(".")[0]), folder


def _plan_answer(batch: Batch, folder: Path) -> Answer:
    """The tasks that would run, for `--dry-run`."""
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


def refuse_secrets(context: ShellContext, state: BatchState) -> None:
    """Give tasks that hold a secret a result that says so: it would be sent and saved."""
    for task in state.batch().tasks:
        texts = {"prompt": task.prompt, "repo": task.repo, "checks": "\n".join(task.checks)}
        for name, text in texts.items():
            kind = context.folder.mask.kind_of_secret(text)
            if kind and state.result(task.id) is None:
                detail = f"Its {name} holds a secret ({kind}): take it out, or pass --yes."
                repo = "" if name == "repo" else task.repo
                state.save(TaskResult(id=task.id, repo=repo, outcome=REFUSED, detail=detail))


def _forget_refused(state: BatchState) -> None:
    """Let tasks run that were refused for a secret: they have no session."""
    for result in state.results():
        if result.outcome == REFUSED and not result.session_id:
            state.forget(result.id)


def forget_failed(state: BatchState) -> None:
    """Let tasks run again that did not succeed."""
    for result in state.results():
        if not result.is_done:
            state.forget(result.id)


def _summary(state: BatchState, results: Sequence[TaskResult]) -> Answer:
    """The results as a table, with their cost. The exit code is 1 if a task is not done."""
    batch = state.batch()
    done = sum(result.is_done for result in results)
    known = [result.cost for result in results if result.cost is not None]
    total = sum(known)
    missing = len(batch.tasks) - len(results)
    spent = f", {dollars(total)}" if known else ""
    words = f"{done} of {plural(len(batch.tasks), 'task')} done{spent}"
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
    """What `ouro batch show` says about a task; facts without a value are left out."""
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
        self._last: deque[TaskResult] = deque(maxlen=_SHOWN)
        self._count = 0
        self._spent = 0.0
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
        self._last.append(result)
        self._count += 1
        self._spent += result.cost or 0.0

    def _draw(self) -> Any:
        """The table of the last results and the running tasks, for rich."""
        from rich.table import Table

        drawn = Table(
            "task",
            "state",
            "time",
            title=f"{self._count} of {self._tasks} ended, {dollars(self._spent)}",
            title_justify="left",
            box=None,
        )
        for result in tuple(self._last):
            colour = "green" if result.is_done else "red"
            drawn.add_row(
                result.id, f"[{colour}]{result.outcome}[/{colour}]", f"{result.seconds:.0f} s"
            )
        now = time.monotonic()
        for name, began in list(self._running.items()):
            drawn.add_row(name, "running", f"{now - began:.0f} s")
        return drawn
