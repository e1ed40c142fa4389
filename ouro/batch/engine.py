"""Run the tasks of a batch side by side, as processes of this machine."""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Protocol

from ouro.batch.attempt import Stopped
from ouro.batch.state import BatchState, TaskResult
from ouro.batch.tasks import Task

_MEMORY_OF_ONE = 300 << 20
"""Bytes of a headless session with what its commands may need."""


class Runner(Protocol):
    """Runs one task; see Attempt."""

    @property
    def is_stopped(self) -> bool: ...

    def stop(self) -> None: ...

    def run(self, task: Task, max_cost: float | None) -> TaskResult: ...


class SharedBudget:
    """What the tasks of a run may still cost, in dollars; None: as much as they need."""

    def __init__(self, dollars: float | None, spent: float, workers: int) -> None:
        self._left = None if dollars is None else dollars - spent
        self._workers = workers
        self._reserved = 0.0
        self._lock = threading.Lock()

    def reserve(self, wanted: float | None) -> float | None:
        """The limit of a task: what it wants, or its share of what is left; 0: nothing is left."""
        with self._lock:
            if self._left is None:
                return wanted
            free = self._left - self._reserved
            share = free / self._workers if wanted is None else min(wanted, free)
            share = max(share, 0.0)
            self._reserved += share
            return share

    def settle(self, reserved: float | None, cost: float | None) -> None:
        with self._lock:
            if self._left is not None:
                self._reserved -= reserved or 0.0
                self._left -= cost or 0.0


class BatchProgress(Protocol):
    """Hears of each task when it starts and when it ended."""

    def started(self, task: Task) -> None: ...
    def ended(self, result: TaskResult) -> None: ...


def default_workers() -> int:
    """As many as cores and memory allow, at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        memory = 4 * _MEMORY_OF_ONE
    return max(1, min(cores or 1, memory // _MEMORY_OF_ONE))


def run_batch(
    state: BatchState,
    runner: Runner,
    progress: BatchProgress,
    *,
    workers: int,
    dollars: float | None = None,
) -> None:
    """Run what has no result yet. Blocks until all tasks have one, or until the runner was stopped
    and what ran has ended. No result is kept in memory: the state holds them.
    """
    tasks = state.batch().tasks
    known: set[str] = set()
    spent = 0.0
    for result in state.results():
        known.add(result.id)
        spent += result.cost or 0.0
    budget = SharedBudget(dollars, spent, workers)
    waiting = deque(task for task in tasks if task.id not in known)
    running: set[Future[None]] = set()
    with ThreadPoolExecutor(workers, "batch") as pool:
        _fill(pool, running, waiting, workers, runner, budget, progress)
        while running:
            ended, still = wait(running, return_when=FIRST_COMPLETED)
            running = set(still)
            for future in ended:
                _raise_unless_stopped(future)
            _fill(pool, running, waiting, workers, runner, budget, progress)


def _fill(
    pool: ThreadPoolExecutor,
    running: set[Future[None]],
    waiting: deque[Task],
    workers: int,
    runner: Runner,
    budget: SharedBudget,
    progress: BatchProgress,
) -> None:
    """Start tasks until each worker has one, or the budget is spent."""
    while waiting and len(running) < workers and not runner.is_stopped:
        limit = budget.reserve(waiting[0].limits.cost)
        if limit is not None and limit <= 0:
            return
        task = waiting.popleft()
        running.add(pool.submit(_run_one, runner, task, limit, budget, progress))


def _run_one(
    runner: Runner, task: Task, limit: float | None, budget: SharedBudget, progress: BatchProgress
) -> None:
    progress.started(task)
    cost = None
    try:
        result = runner.run(task, limit)
        cost = result.cost
    finally:
        budget.settle(limit, cost)
    progress.ended(result)


def _raise_unless_stopped(future: Future[None]) -> None:
    error = future.exception()
    if error is not None and not isinstance(error, Stopped):
        raise error
