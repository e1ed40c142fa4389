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

from ouro.batch import branches, swe_bench_format
from ouro.batch.attempt import Attempt, make_server
from ouro.batch.branches import BranchError
from ouro.batch.engine import Runner, default_workers, run_batch
from ouro.batch.report import reason, report_page, summary_rows
from ouro.batch.state import REFUSED, BatchState, TaskResult
from ouro.batch.tasks import Batch, Task, batch_of_repositories, read_batch
from ouro.commands.action import Answer
from ouro.commands.batch_memory import collect_waiting_changes
from ouro.commands.render import CommandText, Quote, Title, View, line, print_document, table
from ouro.errors import OuroError, UsageError
from ouro.utils.files import write_document
from ouro.utils.lenient_json import dump_json
from ouro.utils.text import dollars, plural

if TYPE_CHECKING:
    from ouro.commands.shell_context import ShellContext

_MAX_ENDED_ROWS = 8
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
    """Run the tasks of a file, or one prompt in each of many repositories, and show the results. A
    task that has a result in the folder of the state is not run again. All arguments are flags of
    the command line; these are not clear by their names:

    Args:
        repos: the file that lists the repositories for the prompt.
        mirror: where repositories that SWE-bench names are.
        on, env: the workers of Dask that run the tasks, and variables that these must have.
        again: run also the tasks that have failed.
        dry_run: only list the tasks.
        yes: run also the tasks that hold a secret; without it they are refused.
    """
    if env and not on:
        raise UsageError("`--env` is for the workers of `--on`.", "Tasks here have your variables.")
    batch, folder = _read_tasks(tasks, prompt, repos, state, mirror)
    if dry_run:
        return _plan_answer(batch, folder)
    batch_state = BatchState(folder)
    batch_state.begin(batch)
    if again:
        forget_failed(batch_state)
    if yes:
        _forget_refused(batch_state)
    else:
        refuse_secrets(context, batch_state)
    await run_tasks(
        context, batch_state, workers, max_cost, on, variables=_parse_variable_names(env)
    )
    answer = _summary(batch_state, list(batch_state.results()))
    return await asyncio.to_thread(_add_waiting_changes, context, batch_state, answer)


def _add_waiting_changes(context: ShellContext, state: BatchState, answer: Answer) -> Answer:
    """Add a line to the view of the answer: how many changes of memory the sessions propose. Returns
    the same answer. No line is added if there are no changes, or if they cannot be read, about
    which the user is warned. Blocks.
    """
    try:
        count = len(collect_waiting_changes(context.folder, state))
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
    """Run the tasks that have no result yet, with a live table on a terminal.

    Args:
        workers: how many tasks run at once; None for as many as this machine has cores and memory
            for, or as many as the workers of Dask have threads.
        max_cost: dollars that the whole run may cost; None without a limit.
        on: a scheduler of Dask, or a kind of cluster. If it is empty, tasks run in processes of
            this machine.
        variables: names of variables that the workers of Dask must have.
    """
    if not on:
        with closing(make_server()) as server:
            runner = Attempt(state, server)
            await asyncio.to_thread(runner.clear_ended)
            await _run_by(
                runner, context, state, workers=workers or default_workers(), max_cost=max_cost
            )
        return
    from ouro.batch.dask_runner import DaskRunner, connect, count_threads  # loads Dask

    with connect(on, workers) as client:
        by_dask = DaskRunner(state, client, variables)
        threads = count_threads(client)
        if not threads:
            context.say(
                "No worker is connected yet: tasks wait. --workers N sets how many run at once.",
                "warning",
            )
        await _run_by(
            by_dask, context, state, workers=workers or max(1, threads), max_cost=max_cost
        )


async def _run_by(
    runner: Runner, context: ShellContext, state: BatchState, workers: int, max_cost: float | None
) -> None:
    """Run the tasks that have no result yet, `workers` at once, and show the progress: as a table on
    a terminal, else as lines. An interrupt stops the runner and is raised again.
    """
    task_count = len(state.batch().tasks)
    progress = _TableProgress(task_count) if sys.stderr.isatty() else _LineProgress(context)
    with progress:
        try:
            await asyncio.to_thread(
                run_batch, state, runner, progress, workers=workers, dollars=max_cost
            )
        except asyncio.CancelledError:
            context.say("Interrupted: running tasks end, and begin again next time.", "warning")
            runner.stop()
            raise


async def report(_context: ShellContext, state: str, html: str, force: bool) -> Answer:
    """Show the results; if `html` names a file, write them there as a page, too."""
    batch_state = BatchState(Path(state))
    if html:
        write_document(Path(html), report_page(batch_state), force=force)
    return _summary(batch_state, list(batch_state.results()))


async def show(_context: ShellContext, state: str, task: str) -> Answer:
    """Show the answer, the checks and the diff of one task. Raises UsageError if it has no result."""
    batch_state = BatchState(Path(state))
    asked_task = batch_state.task(task)
    result = batch_state.result(task)
    if result is None:
        raise UsageError(f"`{task}` has no result yet.", "Continue with: ouro batch run")
    view: View = [Title(task), *table(_facts(asked_task, result))]
    if result.answer.text:
        view.append(Quote(result.answer.text))
    for check in result.checks:
        view.append(line(f"{check.command}: exit code {check.exit_code}"))
        if check.exit_code:
            view.append(Quote(check.output))
    patch = batch_state.patch(task)
    if patch:
        view.append(Quote(patch, "diff"))
    return Answer({**msgspec.to_builtins(result), "patch": patch}, view)


async def accept(context: ShellContext, state: str, task: Sequence[str], all: bool) -> Answer:  # noqa: A002
    """Accept the branch of each named task, or, if `all`, of each successful one without a decision."""
    return await _decide(context, state, task, all, branches.accept, only_done=True)


async def reject(context: ShellContext, state: str, task: Sequence[str], all: bool) -> Answer:  # noqa: A002
    """Reject the branch of each named task, or, if `all`, of every task without a decision."""
    return await _decide(context, state, task, all, branches.reject, only_done=False)


async def open_pull_requests(
    context: ShellContext,
    state: str,
    task: Sequence[str],
    all: bool,  # noqa: A002
) -> Answer:
    """Open a pull request for each named task, or with `all` for every successful one that is not
    decided yet.
    """
    return await _decide(context, state, task, all, branches.open_pull_request, only_done=True)


async def predictions(
    _context: ShellContext, state: str, name: str, output: str, force: bool
) -> Answer | None:
    """Write the patches of a batch to a file, as predictions for SWE-bench. If `output` is empty,
    print them instead and return None.
    """
    batch_state = BatchState(Path(state))
    lines = (f"{dump_json(item)}\n" for item in swe_bench_format.predictions(batch_state, name))
    if not output:
        print_document(lines)
        return None
    prediction_lines = list(lines)
    write_document(Path(output), prediction_lines, force=force)
    missing = len(batch_state.batch().tasks) - len(prediction_lines)
    missing_note = f", {plural(missing, 'task')} without one" if missing else ""
    value = {"file": output, "predictions": len(prediction_lines), "without": missing}
    return Answer(
        value,
        [line(f"Wrote {plural(len(prediction_lines), 'prediction')} to {output}{missing_note}.")],
    )


async def _decide(
    context: ShellContext,
    state: str,
    names: Sequence[str],
    is_all: bool,
    decide: Callable[[BatchState, TaskResult], TaskResult],
    *,
    only_done: bool,
) -> Answer:
    """Call `decide` with the result of each named task, or, if `is_all`, with each result whose
    branch is not decided about. A decision that fails is reported, the others are still made, and
    the exit code is then 1.

    Args:
        decide: returns the result with its new state. Raises BranchError.
        only_done: with `is_all`, leave out tasks that did not succeed.

    Raises:
        UsageError: neither names nor `is_all`, or both.
        UnknownTask: the batch does not have one of the names.
    """
    batch_state = BatchState(Path(state))
    if bool(names) == is_all:  # neither, or both
        raise UsageError("Name tasks, or pass --all.", f"See `ouro batch report {state}`.")
    results = (
        _undecided_results(batch_state, only_done) if is_all else _results_of(batch_state, names)
    )
    decided: list[TaskResult] = []
    failed = 0
    for result in results:
        try:
            decided.append(await asyncio.to_thread(decide, batch_state, result))
        except BranchError as error:
            failed += 1
            context.say(error.text("ouro "), "error")
    rows = [(result.id, result.state) for result in decided]
    values = [msgspec.to_builtins(result) for result in decided]
    return Answer(values, table(rows) or [line("Nothing to do.")], 1 if failed else 0)


def _parse_variable_names(words: Sequence[str]) -> tuple[str, ...]:
    """The names of variables that `--env` lists. Raises UsageError for a word that is not a name, for
    example because a value follows it.
    """
    for word in words:
        if not re.fullmatch(r"[A-Za-z_]\w*", word):
            name = word.partition("=")[0]
            hint = "Set its value where the workers start: it is never sent."
            raise UsageError(f"`--env {name}`: only the name of a variable.", hint)
    return tuple(words)


def _results_of(state: BatchState, names: Sequence[str]) -> list[TaskResult]:
    """The results of the named tasks; a task without a result is left out. Raises UnknownTask for a
    name that the batch does not have.
    """
    for name in names:
        state.task(name)  # raises UnknownTask
    return [result for result in state.results() if result.id in names]


def _undecided_results(state: BatchState, only_done: bool) -> list[TaskResult]:
    """The results whose branch was neither accepted nor rejected, nor has a pull request; with
    `only_done`, of these only the tasks that succeeded.
    """
    undecided = [result for result in state.results() if result.branch and not result.state]
    return [result for result in undecided if result.is_done or not only_done]


def _read_tasks(tasks: str, prompt: str, repos: str, state: str, mirror: str) -> tuple[Batch, Path]:
    """Read the tasks of the file `tasks`, or make a task of the prompt for each repository in the file
    `repos`. Returns them, and the folder for their state: `state`, else one beside the file.

    Raises:
        UsageError: neither a file of tasks nor a prompt with a file of repositories, or both.
    """
    has_prompt = bool(prompt and repos)
    if bool(tasks) == has_prompt:
        raise UsageError(
            "Name a file of tasks, or one prompt and a file of repositories.",
            "Usage: ouro batch run TASKS.yaml, or ouro batch run --prompt TEXT --repos FILE",
        )
    source = Path(tasks or repos)
    name = source.name.partition(".")[0]
    folder = Path(state) if state else source.with_name(f"{name}.batch")
    if tasks:
        return read_batch(source, mirror), folder
    return batch_of_repositories(prompt, source, name), folder


def _plan_answer(batch: Batch, folder: Path) -> Answer:
    """The answer of `--dry-run`: the tasks that would run."""
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
    """Save the outcome `refused` for each task that holds a secret and has no result yet, so that it
    is not run: a session would send the secret and save it.
    """
    for task in state.batch().tasks:
        texts = {"prompt": task.prompt, "repo": task.repo, "checks": "\n".join(task.checks)}
        for name, text in texts.items():
            kind = context.folder.mask.kind_of_secret(text)
            if kind and state.result(task.id) is None:
                detail = f"Its {name} holds a secret ({kind}): take it out, or pass --yes."
                repo = "" if name == "repo" else task.repo  # the result must not hold the secret
                state.save(TaskResult(id=task.id, repo=repo, outcome=REFUSED, detail=detail))


def _forget_refused(state: BatchState) -> None:
    """Forget the results of tasks that `refuse_secrets` refused, so that they run. These have no
    session; a session can end with the same outcome, and its result stays.
    """
    for result in state.results():
        if result.outcome == REFUSED and not result.session_id:
            state.forget(result.id)


def forget_failed(state: BatchState) -> None:
    """Forget the results of tasks that did not succeed, so that they run again."""
    for result in state.results():
        if not result.is_done:
            state.forget(result.id)


def _summary(state: BatchState, results: Sequence[TaskResult]) -> Answer:
    """The results as a table, and a line with the done and missing tasks and their cost. The exit
    code is 1 if a task is not done.
    """
    batch = state.batch()
    done = sum(result.is_done for result in results)
    costs = [result.cost for result in results if result.cost is not None]
    total = sum(costs)
    missing = len(batch.tasks) - len(results)
    cost_note = f", {dollars(total)}" if costs else ""
    done_note = f"{done} of {plural(len(batch.tasks), 'task')} done{cost_note}"
    missing_note = f", {missing} not run" if missing else ""
    view: View = [
        *table(summary_rows(results)),
        line(f"{done_note}{missing_note}. State: {state.folder}"),
    ]
    value = {
        "name": batch.name,
        "state": str(state.folder),
        "tasks": len(batch.tasks),
        "cost": total,
        "results": [msgspec.to_builtins(result) for result in results],
    }
    return Answer(value, view, 0 if done == len(batch.tasks) else 1)


def _facts(task: Task, result: TaskResult) -> list[tuple[str, str]]:
    """The rows of `ouro batch show` about a task; those without a value are left out."""
    pairs = [
        ("repository", f"{result.repo} at {task.revision}"),
        ("outcome", f"{result.outcome}: {reason(result)}"),
        ("branch", result.branch),
        ("session", f"ouro --resume {result.session_id}" if result.session_id else ""),
        ("cost", dollars(result.cost)),
        ("attempts", str(result.attempts)),
    ]
    return [(name, value) for name, value in pairs if value]


class _LineProgress:
    """Prints a line for each task that ends: for the log of a CI."""

    def __init__(self, context: ShellContext) -> None:
        self._context = context

    def __enter__(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        return

    def started(self, task: Task) -> None:
        """Do nothing: a log shows only the tasks that ended."""

    def ended(self, result: TaskResult) -> None:
        """Print how a task ended, with its cost and time, and why it did not succeed."""
        text = f"{result.id}: {result.outcome}, {dollars(result.cost) or 'cost unknown'}"
        why = "" if result.is_done else f" ({reason(result)})"
        # A warning goes to standard error: standard output is for the results.
        self._context.say(f"{text}, {result.seconds:.0f} s{why}", "warning")


class _TableProgress:
    """Shows the running tasks and the last ones that ended, as a table that is drawn again in place."""

    def __init__(self, task_count: int) -> None:
        from rich.console import Console
        from rich.live import Live

        self._task_count = task_count
        self._running: dict[str, float] = {}
        """The start of each running task, by its id, as `time.monotonic()`."""
        self._last: deque[TaskResult] = deque(maxlen=_MAX_ENDED_ROWS)
        """The results of the tasks that ended last."""
        self._ended_count = 0
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
        """Record the result of a task for the next time that the table is drawn."""
        self._running.pop(result.id, None)
        self._last.append(result)
        self._ended_count += 1
        self._spent += result.cost or 0.0

    def _draw(self) -> Any:
        """The table of the last results and the running tasks. rich calls it in a thread of its own,
        so it iterates over copies.
        """
        from rich.table import Table

        progress_table = Table(
            "task",
            "state",
            "time",
            title=f"{self._ended_count} of {self._task_count} ended, {dollars(self._spent)}",
            title_justify="left",
            box=None,
        )
        for result in tuple(self._last):
            colour = "green" if result.is_done else "red"
            progress_table.add_row(
                result.id, f"[{colour}]{result.outcome}[/{colour}]", f"{result.seconds:.0f} s"
            )
        now = time.monotonic()
        for task_id, start in list(self._running.items()):
            progress_table.add_row(task_id, "running", f"{now - start:.0f} s")
        return progress_table
