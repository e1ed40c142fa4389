"""Run the tasks of a batch on the workers of Dask."""

from __future__ import annotations

import atexit
import gc
import hashlib
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from ouro.batch.attempt import Stopped
from ouro.batch.remote import Order, read_parcel, receive, run_on_worker
from ouro.batch.state import FAULT, BatchState, TaskResult
from ouro.batch.tasks import Task
from ouro.errors import ConfigError, OuroError
from ouro.utils.text import one_line

_CONNECT_TIMEOUT = 30
_POLL_SECONDS = 1.0
"""Seconds between two looks whether the run was stopped."""
_MAX_LOST = 3
"""How often a task is begun again because its worker was lost."""
_DASK_SETTINGS = {"distributed.admin.low-level-log-length": 0}
"""Settings of Dask in this process. By default it keeps the last 1,000 messages for developers: 5 KB
of each task.
"""
_GARBAGE_THRESHOLDS = (700, 10, 10)
"""Thresholds of the garbage collection. A program of ouro collects seldom, because it ends soon.
A future of Dask is a cycle: 6 KB of each task stayed, up to 10 MB.
"""
_CLUSTERS = {
    "slurm": ("dask_jobqueue", "SLURMCluster"),
    "kubernetes": ("dask_kubernetes.operator", "KubeCluster"),
}
"""The kinds of clusters that ouro can start: module and class of Dask."""


class SchedulerLost(OuroError):
    """The scheduler does not answer any more. Results that are saved are kept."""


class DaskRunner:
    """Runs tasks of one batch on workers of Dask; each call of `run` waits for its task.

    Args:
        client: a client of `distributed`.
        variables: names of variables that each worker must have.
    """

    def __init__(self, state: BatchState, client: Any, variables: Sequence[str] = ()) -> None:
        self._state = state
        self._name = state.batch().name
        self._client = client
        self._variables = tuple(variables)
        """The names of the variables that a worker must have."""
        self._stopping = threading.Event()
        """Set by `stop`."""
        self._unfit: set[str] = set()
        """Addresses of workers that were to blame for a fault, for example by a full disk: they get
        a task only if no other worker is left for it.
        """

    @property
    def is_stopped(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Cancel what runs, and start nothing more."""
        self._stopping.set()

    def run(self, task: Task, max_cost: float | None) -> TaskResult:
        """Run a task on a worker, unless it has a result already; returns the result. Blocks.

        No task runs twice at a time: the lease in the state excludes a second coordinator, and the
        scheduler runs a key only once.

        Raises:
            Stopped: `stop` was called.
            SchedulerLost: the scheduler does not answer.
        """
        with self._state.lease(task.id):
            saved_result = self._state.result(task.id)
            if saved_result is not None:
                return saved_result
            result = self._run_on_workers(task, max_cost)
            self._state.save(result)
        return result

    def _run_on_workers(self, task: Task, max_cost: float | None) -> TaskResult:
        """Run a task on one worker after another, until a result is not the fault of its worker, or
        until no other worker is left. Returns the last result. If `_MAX_LOST` workers were lost,
        the result is a fault.
        """
        from ouro import __version__  # not while the package is imported

        order = Order(__version__, self._name, task, max_cost, self._variables)
        encoded = msgspec.msgpack.encode(order)
        tried_workers: set[str] = set()  # those to blame for a fault of this task
        lost_count, detail = 0, ""
        while lost_count < _MAX_LOST:
            workers = self._fit_workers(tried_workers)
            # The last argument counts the earlier tries: lost workers, and workers to blame.
            future = self._submit(task, encoded, workers, number=lost_count + len(tried_workers))
            encoded_parcel, detail = self._wait(future, workers)
            if encoded_parcel is None:
                lost_count += 1
                continue
            parcel = read_parcel(encoded_parcel)
            if parcel.is_unfit:
                tried_workers.add(parcel.worker)
                self._unfit.add(parcel.worker)
                if self._fit_workers(tried_workers):
                    continue
            result = receive(self._state, task, parcel)
            # The worker counts its own attempts; the tries on other workers are counted here.
            other_tries = lost_count + len(tried_workers - {parcel.worker})
            attempts = max(result.attempts, other_tries + 1)
            return msgspec.structs.replace(result, attempts=attempts)
        return TaskResult(id=task.id, repo=task.repo, outcome=FAULT, detail=detail)

    def _fit_workers(self, tried_workers: set[str]) -> list[str]:
        """The workers for the next try of a task: those that have not tried it, and of these only
        the fit ones if there are any.

        As long as no worker is unfit, the list is empty, and the scheduler chooses any worker.
        Later an empty list means that all workers have tried the task.
        """
        if not self._unfit:
            return []
        untried_workers = [worker for worker in self._workers() if worker not in tried_workers]
        fit_workers = [worker for worker in untried_workers if worker not in self._unfit]
        return fit_workers or untried_workers

    def _workers(self) -> Collection[str]:
        """The addresses of the connected workers. Raises SchedulerLost."""
        try:
            addresses: Collection[str] = self._client.nthreads()  # address -> number of threads
        except Exception as error:  # any of tornado, dask and the system
            raise _scheduler_lost(error) from error
        return addresses

    def _submit(self, task: Task, encoded: bytes, workers: Sequence[str], number: int) -> Any:
        """A future of the task on one of these workers, or on any.

        Args:
            number: the number of this try, from 0. Each try has a key of its own, because the
                scheduler may still know the key of the previous one.
        """
        key = f"{self._key(task)}-{number}" if number else self._key(task)
        try:
            return self._client.submit(
                run_on_worker, encoded, key=key, pure=False, workers=workers or None
            )
        except Exception as error:  # any of tornado, dask and the system
            raise _scheduler_lost(error) from error

    def _wait(self, future: Any, workers: Sequence[str]) -> tuple[bytes | None, str]:
        """Wait for the end of a task. Returns what the worker sent and an empty reason; or None and the
        reason why it sent nothing. Raises Stopped, SchedulerLost.

        Args:
            workers: those that it may run on; empty for any. If all of them are lost, Dask would wait
                for ever.
        """
        ended = threading.Event()
        future.add_done_callback(lambda _: ended.set())
        while not ended.wait(_POLL_SECONDS):
            if self._stopping.is_set():
                future.cancel()
                raise Stopped
            self._require_scheduler()
            if workers and not set(workers) & set(self._workers()):
                future.cancel()
                return None, "Its worker was lost."
        status = future.status
        if status == "finished":
            return future.result(), ""
        error = future.exception() if status == "error" else None
        self._require_scheduler()
        future.release()
        reason = one_line(str(error) or type(error).__name__) if error else "it was cancelled"
        return None, f"Its worker was lost or failed: {reason}"

    def _require_scheduler(self) -> None:
        """Raises SchedulerLost if the client is not connected."""
        if self._client.status != "running":
            raise _scheduler_lost(error=None)

    def _key(self, task: Task) -> str:
        """The key of a task for the scheduler: the same in each run with this folder, so that two runs
        do not run it at the same time.
        """
        digest = hashlib.sha256(str(self._state.folder).encode(errors="replace")).hexdigest()
        return f"ouro-{self._name}-{digest[:8]}-{task.id}"


@contextmanager
def connect(on: str, workers: int | None) -> Iterator[Any]:
    """Connect to a scheduler of Dask, and yield the client. A cluster that was started is ended after
    the context.

    Args:
        on: the address of a scheduler; or the kind of a cluster, which is started by its own
            configuration.
        workers: the number of jobs of a cluster that is started.

    Raises:
        ConfigError: a package is missing, or the scheduler cannot be reached.
    """
    try:
        from dask import config
        from distributed import Client
    except ImportError as error:
        hint = "Install it: pip install 'ouro[dask]'"
        raise ConfigError(f"`--on {on}` needs Dask.", hint) from error
    # Both keep the memory of this process small when there are many tasks.
    config.set(_DASK_SETTINGS)
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
    cluster = None if "://" in on else _start_cluster(on, workers)
    try:
        client = Client(cluster or on, timeout=_CONNECT_TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The scheduler {on} cannot be reached: {one_line(str(error))}"
        ) from error
    try:
        yield client
    finally:
        client.close()
        if cluster is not None:
            cluster.close()


def count_threads(client: Any) -> int:
    """How many tasks the workers can run at once; 0 as long as no worker is connected."""
    threads: dict[str, int] = client.nthreads()
    return sum(threads.values())


def _start_cluster(kind: str, workers: int | None) -> Any:
    """Start a cluster of a kind in `_CLUSTERS` with this number of workers. Returns Dask's object for
    it, which the caller closes.

    Raises:
        ConfigError: the kind is not known, its package is missing, `workers` is None, or the cluster
            does not start.
    """
    if kind not in _CLUSTERS:
        hint = f"An address such as tcp://host:8786, or one of: {', '.join(_CLUSTERS)}."
        raise ConfigError(f"`--on {kind}` is not known.", hint)
    if workers is None:
        raise ConfigError(f"`--on {kind}` needs the number of workers.", "Pass --workers N.")
    cluster_class = _import_cluster_class(kind)
    module, _class_name = _CLUSTERS[kind]
    try:
        cluster = cluster_class()
        cluster.scale(workers)
    # Errors of many kinds: no sbatch, no cores in the configuration, no cluster.
    except Exception as error:
        _forget_exit_hook(module)
        reason = one_line(str(error) or type(error).__name__)
        hint = f"It is started by the configuration of {module.partition('.')[0]}."
        raise ConfigError(f"`--on {kind}` could not start: {reason}", hint) from error
    return cluster


def _import_cluster_class(kind: str) -> Any:
    """The class of Dask for a kind in `_CLUSTERS`. Raises ConfigError if its package is missing."""
    import importlib

    module, class_name = _CLUSTERS[kind]
    try:
        return getattr(importlib.import_module(module), class_name)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise ConfigError(f"`--on {kind}` needs {package}.", f"pip install {package}") from error


def _forget_exit_hook(module: str) -> None:
    """Unregister what dask-kubernetes does at exit: without a cluster it prints a traceback. Does
    nothing for another module.
    """
    inner = sys.modules.get(f"{module}.kubecluster.kubecluster")
    hook = getattr(inner, "reap_clusters", None)
    if hook is not None:
        atexit.unregister(hook)


def _scheduler_lost(error: Exception | None) -> SchedulerLost:
    """The error for a scheduler that does not answer. `error`: the reason, if it is known."""
    reason = f": {one_line(str(error))}" if error else ""
    hint = "Results are kept. The same command continues when the scheduler is back."
    return SchedulerLost(f"The scheduler does not answer{reason}", hint)
