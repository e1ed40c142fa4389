"""The state of a batch: a folder, from which a run continues after it was killed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ouro.batch.tasks import Batch, Task, UnknownTask
from ouro.errors import UsageError
from ouro.memory.long_term import Proposal
from ouro.utils.decoding import decode_json, from_plain
from ouro.utils.files import lock_file, write_private
from ouro.utils.ouro_paths import ensure_private_dir

LAYOUT = 1
_BATCH, _RESULT, _PATCH = "batch.json", "result.json", "changes.patch"
_LEARNED = "learned.json"
DONE, CHECKS, MISFIT, FAULT, LIMIT = "done", "checks failed", "wrong answer", "fault", "limit"
"""Outcomes of a task, in addition to those of a headless answer."""
REFUSED = "refused"
"""An outcome of a headless answer. Without a session, the task was not run because it has a secret."""


class CheckResult(msgspec.Struct, frozen=True):
    """A check of a task that was run."""

    command: str
    exit_code: int
    output: str
    """The end of what it printed."""


class TaskAnswer(msgspec.Struct, frozen=True):
    """The answer of the session of a task."""

    text: str = ""
    data: Any = None
    """The parsed answer of a task with a schema."""
    cost: float | None = None
    """Dollars; None if the price is unknown."""
    turns: int = 0
    tokens: int = 0


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a task, as it is saved."""

    id: str
    repo: str
    outcome: str
    """`done`, `checks failed`, `wrong answer`, `fault` (of a server, git, the disk), `limit`, or the
    outcome of a headless answer: `failed`, `cut`, `refused`.
    """
    detail: str = ""
    answer: TaskAnswer = TaskAnswer()
    session_id: str = ""
    branch: str = ""
    """The branch with its changes; empty if it changed nothing."""
    files: tuple[str, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    seconds: float = 0
    attempts: int = 1
    state: str = ""
    """What the user did with the branch: `accepted`, `rejected`, or an address of a pull request."""

    @property
    def cost(self) -> float | None:
        return self.answer.cost

    @property
    def is_done(self) -> bool:
        return self.outcome == DONE


class _SavedBatch(msgspec.Struct, frozen=True):
    """The content of `batch.json`."""

    layout: int
    batch: Batch


class BatchState:
    """The folder of one batch. Everything blocks: use from a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._places: set[str] = set()
        """The tasks whose folder was created by this object."""

    def begin(self, batch: Batch) -> None:
        """Write the tasks into the folder if this is its first run. In a later run check that they
        are the same.

        Raises:
            UsageError: the folder has other tasks, or a newer ouro wrote it.
        """
        ensure_private_dir(self.folder)
        path = self.folder / _BATCH
        if not path.exists():
            write_private(path, msgspec.json.encode(_SavedBatch(LAYOUT, batch)))
        elif self.batch() != batch:
            raise UsageError(
                f"{self.folder} holds the results of other tasks: the file was changed since.",
                "Name another folder with --state, or delete this one.",
            )

    def batch(self) -> Batch:
        """Read the tasks.

        Raises:
            UsageError: the folder has none, or a newer ouro wrote them.
        """
        path = self.folder / _BATCH
        try:
            saved = msgspec.json.decode(path.read_bytes())
            if saved["layout"] > LAYOUT:
                raise UsageError(f"{self.folder} was written by a newer ouro.", "Update ouro.")
            return from_plain(saved["batch"], Batch)
        except FileNotFoundError as error:
            hint = "Name the folder that `ouro batch run` printed."
            raise UsageError(f"{self.folder} is not the state of a batch.", hint) from error
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            raise UsageError(f"{path} cannot be read: {error}.") from error

    def task(self, name: str) -> Task:
        """The task of that id. Raises UnknownTask."""
        for task in self.batch().tasks:
            if task.id == name:
                return task
        raise UnknownTask(f"This batch has no task `{name}`.", f"See {self.folder / _BATCH}.")

    def ensure_task_folder(self, task_id: str) -> Path:
        """The folder of one task, which is created if needed."""
        place = self.folder / "tasks" / task_id
        if task_id not in self._places:
            ensure_private_dir(place)
            self._places.add(task_id)
        return place

    @contextmanager
    def lease(self, task_id: str) -> Iterator[int]:
        """Lock a task, so that no other run runs it. Yields the descriptor of the lock. A process that
        inherits it holds the lock until it ends, even if ouro is killed.
        """
        with lock_file(self.ensure_task_folder(task_id) / "lease") as descriptor:
            yield descriptor

    def result(self, task_id: str) -> TaskResult | None:
        """The saved result of a task; None if it has none that can be read."""
        try:
            return decode_json(
                (self.ensure_task_folder(task_id) / _RESULT).read_bytes(), TaskResult
            )
        except (OSError, msgspec.MsgspecError):
            return None

    def results(self) -> Iterator[TaskResult]:
        """Yields the saved results, in the order of the tasks; each is read when it is needed."""
        for task in self.batch().tasks:
            result = self.result(task.id)
            if result is not None:
                yield result

    def save(self, result: TaskResult) -> None:
        write_private(self.ensure_task_folder(result.id) / _RESULT, msgspec.json.encode(result))

    def forget(self, task_id: str) -> None:
        """Delete the result of a task, so that it runs again."""
        (self.ensure_task_folder(task_id) / _RESULT).unlink(missing_ok=True)

    def learned(self, task_id: str) -> list[Proposal]:
        """The changes of memory that the session of a task proposes and that wait in this folder; empty
        if there are none, or if they cannot be read.
        """
        try:
            return decode_json(
                (self.ensure_task_folder(task_id) / _LEARNED).read_bytes(), list[Proposal]
            )
        except (OSError, msgspec.MsgspecError):
            return []

    def add_learned(self, task_id: str, changes: Sequence[Proposal]) -> None:
        self.save_learned(task_id, [*self.learned(task_id), *changes])

    def save_learned(self, task_id: str, changes: Sequence[Proposal]) -> None:
        """Replace the saved changes of memory that a task proposes; an empty sequence deletes them."""
        path = self.ensure_task_folder(task_id) / _LEARNED
        if changes:
            write_private(path, msgspec.json.encode(changes))
        else:
            path.unlink(missing_ok=True)

    def patch(self, task_id: str) -> str:
        """The changes of a task as a patch; empty if there are none."""
        try:
            return (self.ensure_task_folder(task_id) / _PATCH).read_text("utf-8", "replace")
        except OSError:
            return ""

    def save_patch(self, task_id: str, patch: str) -> None:
        write_private(
            self.ensure_task_folder(task_id) / _PATCH, patch.encode("utf-8", "surrogateescape")
        )
