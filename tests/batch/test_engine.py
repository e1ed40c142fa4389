"""The tasks of a batch side by side: what happens to the others when one fails."""

import errno
import os

import pytest

from ouro.batch.engine import run_batch
from ouro.batch.state import DONE, FAULT, BatchState, TaskResult
from ouro.batch.tasks import Batch, Task
from ouro.errors import OuroError


class Runner:
    """Raises the error of a task, or saves its result."""

    is_stopped = False

    def __init__(self, state, errors):
        self.state, self.errors, self.limits = state, errors, []

    def stop(self):
        self.is_stopped = True

    def run(self, task, max_cost):
        self.limits.append(max_cost)
        if error := self.errors.get(task.id):
            raise error
        result = TaskResult(id=task.id, repo=task.repo, outcome=DONE)
        self.state.save(result)
        return result


class Progress:
    def __init__(self):
        self.results = []

    def started(self, task):
        """Nothing is shown."""

    def ended(self, result):
        self.results.append(result)


@pytest.fixture
def state(tmp_path):
    state = BatchState(tmp_path / "batch")
    tasks = tuple(Task(id=name, repo="/repo", prompt="x") for name in ("a", "b", "c"))
    state.begin(Batch("batch", tasks))
    return state


def test_a_task_whose_files_fail_is_reported_and_the_others_run(state):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/state/tasks/a")
    progress = Progress()
    run_batch(state, Runner(state, {"a": full}), progress, workers=1)
    assert [(each.id, each.outcome) for each in progress.results] == [
        ("a", FAULT),
        ("b", DONE),
        ("c", DONE),
    ]
    assert "No space left" in progress.results[0].detail
    assert [each.id for each in state.results()] == ["b", "c"]  # the next run runs `a` again


def test_the_limit_of_a_task_whose_files_fail_counts_as_spent(state):
    runner = Runner(state, {"a": OSError("full")})
    run_batch(state, runner, Progress(), workers=2, dollars=1.0)
    largest, *others = sorted(runner.limits, reverse=True)
    assert largest == 0.5
    assert max(others) <= 0.25


def test_without_a_scheduler_the_run_ends(state):
    runner = Runner(state, {"a": OuroError("The scheduler does not answer")})
    with pytest.raises(OuroError, match="scheduler"):
        run_batch(state, runner, Progress(), workers=1)
