"""Run the tasks of a batch side by side, within a budget."""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Protocol

from ouro.batch.attempt import Stopped, fault
from ouro.batch.state import BatchState, TaskResult
from ouro.batch.tasks import Task
from ouro.errors import plain_error

_SESSION_BYTES = 300 << 20
"""Bytes of a headless session with what its commands may need."""


class Runner(Protocol):
    """Runs one task at a time for each thread: an Attempt on this machine, or a DaskRunner."""

    @property
    def is_stopped(self) -> bool: ...

    def stop(self) -> None: ...

    def run(self, task: Task, max_cost: float | None) -> TaskResult: ...


class SharedBudget:
    """What the tasks of a run may still cost together.

    Args:
        dollars: the maximum of all runs; None for no maximum.
        spent: what earlier runs have cost.
        workers: how many tasks share the rest.
    """

    def __init__(self, dollars: float | None, spent: float, workers: int) -> None:
        self._left = None if dollars is None else dollars - spent
        """The dollars that are not spent yet; None: the budget has no maximum."""
        self._workers = workers
        self._reserved = 0.0
        """The part of `_left` that is reserved for running tasks."""
        self._lock = threading.Lock()

    def reserve(self, wanted: float | None) -> float | None:
        """Reserve money for a task; returns the limit of the task in dollars.

        The limit is `wanted`. If that is None, it is an equal share for each worker of what is
        neither spent nor reserved. The limit is never more than what is left, and 0 if nothing is
        left. If the budget has no maximum, `wanted` is returned; None then means that the task has
        no limit.
        """
        with self._lock:
            if self._left is None:
                return wanted
            unreserved = self._left - self._reserved
            share = unreserved / self._workers if wanted is None else min(wanted, unreserved)
            share = max(share, 0.0)
            self._reserved += share
            return share

    def record_cost(self, reserved: float | None, cost: float | None) -> None:
        """Record what a task cost, and end its reservation."""
        with self._lock:
            if self._left is not None:
                self._reserved -= reserved or 0.0
                self._left -= cost or 0.0


class BatchProgress(Protocol):
    """Is called for each task when it starts and when it has ended."""

    def started(self, task: Task) -> None: ...
    def ended(self, result: TaskResult) -> None: ...


def default_workers() -> int:
    """How many tasks run at once by default: as many as cores and memory allow, at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # the system does not say: assume enough for four
        memory = 4 * _SESSION_BYTES
    return max(1, min(cores or 1, memory // _SESSION_BYTES))


def run_batch(
    state: BatchState,
    runner: Runner,
    progress: BatchProgress,
    *,
    workers: int,
    dollars: float | None = None,
) -> None:
    """Run the tasks that have no result yet. Blocks until all have one, the budget is spent, or the
    runner was stopped and the running tasks have ended. Results are saved in the state.

    Raises:
        OuroError: the runner cannot run any task, such as without its scheduler.
    """
    tasks = state.batch().tasks
    finished_ids: set[str] = set()
    spent = 0.0
    for result in state.results():
        finished_ids.add(result.id)
        spent += result.cost or 0.0
    budget = SharedBudget(dollars, spent, workers)
    waiting = deque(task for task in tasks if task.id not in finished_ids)
    running: set[Future[None]] = set()
    with ThreadPoolExecutor(workers, "batch") as pool:
        _start_waiting_tasks(pool, running, waiting, workers, runner, budget, progress)
        while running:
            finished, unfinished = wait(running, return_when=FIRST_COMPLETED)
            running = set(unfinished)
            for future in finished:
                _raise_unless_stopped(future)
            _start_waiting_tasks(pool, running, waiting, workers, runner, budget, progress)


def _start_waiting_tasks(
    pool: ThreadPoolExecutor,
    running: set[Future[None]],
    waiting: deque[Task],
    workers: int,
    runner: Runner,
    budget: SharedBudget,
    progress: BatchProgress,
) -> None:
    """Start tasks in `waiting`, and move them to `running`, until each worker has one, none is left,
    the budget is spent, or the runner was stopped.
    """
    while waiting and len(running) < workers and not runner.is_stopped:
        limit = budget.reserve(waiting[0].limits.cost)
        if limit is not None and limit <= 0:
            return  # when a running task has ended, less may be reserved: then this is called again
        task = waiting.popleft()
        running.add(pool.submit(_run_one, runner, task, limit, budget, progress))


def _run_one(
    runner: Runner, task: Task, limit: float | None, budget: SharedBudget, progress: BatchProgress
) -> None:
    """Run a task, and record its cost: nothing if it has no result. Called in a thread.

    If its files cannot be read or written, that is reported as a fault, and not saved: the next run
    runs it again. What it cost is not known then, so all of its limit counts as spent.
    """
    progress.started(task)
    cost = None
    try:
        result = runner.run(task, limit)
        cost = result.cost
    except OSError as error:
        result = fault(task, plain_error(error).message)
        cost = limit
    finally:
        budget.record_cost(limit, cost)
    progress.ended(result)


def _raise_unless_stopped(future: Future[None]) -> None:
    """Raise the error of a task, unless it is only that the run was stopped."""
    error = future.exception()
    if error is not None and not isinstance(error, Stopped):
        raise error
