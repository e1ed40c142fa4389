"""Run one task: a tree, a headless ouro in it, its checks, a branch."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ouro.batch.pending_memory import move_pending_out
from ouro.batch.state import (
    CHECKS,
    DONE,
    FAULT,
    LIMIT,
    MISFIT,
    BatchState,
    CheckResult,
    TaskAnswer,
    TaskResult,
)
from ouro.batch.tasks import Task
from ouro.batch.tree import NoSuchTree, TaskTree, TreeError, read_tree, save_tree
from ouro.errors import plain_error
from ouro.safety import Confinement, child_environment
from ouro.utils.decoding import decode_json
from ouro.utils.files import write_private
from ouro.utils.fork_server import ForkedProcess, ForkServer, NoForkServer
from ouro.utils.lenient_json import amount, count, dictionary, string
from ouro.utils.ouro_paths import get_home
from ouro.utils.processes import send_signal
from ouro.utils.text import cut_middle

_ANSWER, _LOG, _FILES = "answer.json", "log.txt", "files.json"
NICENESS = 5
"""The niceness of sessions, so that an interactive one keeps its speed."""
_RETRIED_OUTCOMES = {FAULT, "failed"}
"""Outcomes after which a task without a turn is tried again: the model did not answer."""
_ASK_BEFORE_MEMORY = {"OURO_MEMORY_WRITE": "ask"}
"""What a session would remember waits for the user, who cannot undo it during the run."""
_MAX_CHECK_OUTPUT = 4_000
_TIMEOUT_EXIT_CODE = 124
"""The exit code of a check that took too long; the program `timeout` has the same."""
_KILL_DELAY = 10.0
"""Seconds after the first signal until a process is killed."""
_RETRY_PAUSES = (2.0, 10.0)
"""Seconds before the second and the third attempt."""
# `-P`: Python must not look for modules in the folder of a task. A repository would run its own
# files with the keys of ouro.
_PYTHON = (sys.executable, "-P")
_OURO = (*_PYTHON, "-m", "ouro")
_SERVER = (*_PYTHON, "-m", "ouro.warm_start")
_Process = subprocess.Popen[bytes] | ForkedProcess


def make_server() -> ForkServer:
    """A server that forks the sessions of a batch, so that modules are loaded once, not for each task."""
    return ForkServer(_SERVER)


class Stopped(Exception):
    """The whole run was stopped before this task had a result; the next run runs it again."""


class _AttemptOutcome(NamedTuple):
    """The result of an attempt, and the tree that it leaves."""

    result: TaskResult
    tree: TaskTree | None = None
    """The tree to remove when the result is saved. None if its folder has changes, and stays."""


class Attempt:
    """Runs tasks of one batch, each in the thread that calls `run`. `stop` ends those that run.

    Args:
        server: forks the sessions; None starts an interpreter for each.
        on_worker: whether the processes end when this one is killed, and the caller removes the
            folders. Otherwise the processes continue, and the next run uses their answers.

    A session inherits the descriptor of its task's lock, `lease_descriptor`: the task stays locked
    while the session runs, even if this process is killed.
    """

    def __init__(
        self,
        state: BatchState,
        server: ForkServer | None = None,
        *,
        on_worker: bool = False,
    ) -> None:
        self._state = state
        self._name = state.batch().name
        self._server = server
        self._on_worker = on_worker
        self._running: set[_Process] = set()
        """The processes of sessions and checks that run now."""
        self._stopping = threading.Event()
        """Set by `stop`."""

    @property
    def is_stopped(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Interrupt the processes of this object, and start no other one."""
        self._stopping.set()
        for process in tuple(self._running):
            send_signal(process.pid, signal.SIGTERM, group=True)

    def run(self, task: Task, max_cost: float | None) -> TaskResult:
        """Run a task and save its result; returns it. A task that has a result is not run again. Blocks.

        If an ouro that was killed left a process of this task, this waits for its end, and uses its
        answer.

        Raises:
            Stopped: `stop` was called.
            OSError: the state cannot be written.
        """
        start = time.monotonic()
        with self._state.lease(task.id) as lease_descriptor:
            saved_result = self._state.result(task.id)
            if saved_result is not None:
                return saved_result
            try:
                outcome = self._run_with_retries(task, max_cost, lease_descriptor)
            except NoSuchTree as error:
                outcome = _AttemptOutcome(fault(task, error.message))
            seconds = round(time.monotonic() - start, 2)
            result = msgspec.structs.replace(outcome.result, seconds=seconds)
            self._state.save(result)
            # Removed only now: after a kill in between, the answer is still used.
            if outcome.tree is not None and not self._on_worker:
                self._clear(result, outcome.tree)
        return result

    def clear_ended(self) -> None:
        """Remove the trees of tasks that have a result: a run that was killed leaves them."""
        for result in self._state.results():
            folder = self._state.ensure_task_folder(result.id)
            # A result without a session may be a fault: then the tree has changes that git could
            # not commit.
            if result.session_id and (folder / _ANSWER).exists():
                with suppress(OSError, msgspec.MsgspecError):
                    self._clear(result, read_tree(folder))

    def _clear(self, result: TaskResult, tree: TaskTree) -> None:
        """Remove the tree and the answer of a task whose result is saved."""
        with suppress(OSError):  # the result is saved; the next run tries again
            tree.remove(keeps_branch=bool(result.branch))
            (self._state.ensure_task_folder(result.id) / _ANSWER).unlink(missing_ok=True)

    def _run_with_retries(
        self, task: Task, max_cost: float | None, lease_descriptor: int
    ) -> _AttemptOutcome:
        """Run a task. If a server, git or the disk failed before the first turn of the model, run
        it again after a pause, once for each of _RETRY_PAUSES. Returns the last outcome. Raises
        NoSuchTree, Stopped.
        """
        outcome = self._run_attempt(task, max_cost, lease_descriptor)
        for number, pause in enumerate(_RETRY_PAUSES, 2):
            result = outcome.result
            if result.outcome not in _RETRIED_OUTCOMES or result.answer.turns:
                break
            if self._stopping.wait(pause):
                raise Stopped
            # If this answer stays, the next attempt uses it instead of running a session. That is
            # right without a tree: git could not commit, and the attempt only commits again.
            if outcome.tree is not None:
                (self._state.ensure_task_folder(task.id) / _ANSWER).unlink(missing_ok=True)
            next_outcome = self._run_attempt(task, max_cost, lease_descriptor)
            outcome = next_outcome._replace(
                result=msgspec.structs.replace(next_outcome.result, attempts=number)
            )
        return outcome

    def _run_attempt(
        self, task: Task, max_cost: float | None, lease_descriptor: int
    ) -> _AttemptOutcome:
        """Run a task in the tree that an earlier attempt has left, or in a new one. If git or the disk
        fails, the result has the outcome FAULT. Raises NoSuchTree, Stopped.
        """
        folder = self._state.ensure_task_folder(task.id)
        left_tree = self._find_left_tree(task)
        try:
            tree = left_tree or TaskTree.make(task, folder / "tree", f"ouro/{self._name}/{task.id}")
            if not left_tree:
                # These are of a tree that is gone.
                (folder / _ANSWER).unlink(missing_ok=True)
                (folder / _FILES).unlink(missing_ok=True)
                save_tree(folder, tree)
            try:
                result = self._run_session_and_checks(task, tree, max_cost, lease_descriptor)
            except Stopped:
                with suppress(OSError):  # the next attempt removes what is left
                    tree.remove(keeps_branch=False)
                raise
            except TreeError:  # the folder stays: only it has the changes
                detail = f"Its changes are in {tree.folder}: git could not commit them."
                return _AttemptOutcome(fault(task, detail))
            return _AttemptOutcome(result, tree)
        except NoSuchTree:  # an error in the task file, which a new attempt would meet again
            raise
        except TreeError as error:
            return _AttemptOutcome(fault(task, error.message))
        except OSError as error:  # a full disk, a file system that is gone
            return _AttemptOutcome(fault(task, plain_error(error).message))

    def _find_left_tree(self, task: Task) -> TaskTree | None:
        """The tree that an earlier attempt left, if its session ended with an answer; otherwise
        None. A tree is left if ouro was killed, or if git could not commit the changes.
        """
        folder = self._state.ensure_task_folder(task.id)
        if not (folder / "tree").is_dir() or not _read_answer(folder / _ANSWER):
            return None
        try:
            return read_tree(folder)
        except (OSError, msgspec.MsgspecError):
            return None

    def _run_session_and_checks(
        self, task: Task, tree: TaskTree, max_cost: float | None, lease_descriptor: int
    ) -> TaskResult:
        """Run the session, commit its changes, and run the checks. Returns the result of the task."""
        task_folder = self._state.ensure_task_folder(task.id)
        answer, timed_out = self._run_session(task, tree.folder, max_cost, lease_descriptor)
        files = self._commit_changes(task, tree)  # before the checks: what they write is not kept
        checks = self._run_checks(task, tree.folder) if _has_answered(answer) else ()
        # Without a repository of the user the folder is a clone, which may be removed: what the
        # session proposes for memory is moved out of it.
        if task.memory == "read" and tree.repository is None:
            keep = partial(self._state.add_learned, task.id)
            move_pending_out(tree.folder, string(answer.get("session_id")), keep)
        detail = string(answer.get("detail"))
        if timed_out:
            detail = f"It took more than {task.limits.seconds:.0f} seconds."
        elif not answer:
            detail = f"ouro ended without a result: {_last_line(task_folder / _LOG)}"
        return TaskResult(
            id=task.id,
            repo=task.repo,
            outcome=LIMIT if timed_out else _find_outcome(task, answer, checks),
            detail=detail,
            answer=_make_answer(answer),
            session_id=string(answer.get("session_id")),
            branch=tree.branch if files else "",
            files=files,
            checks=checks,
        )

    def _commit_changes(self, task: Task, tree: TaskTree) -> tuple[str, ...]:
        """Commit to the branch what the agent has changed, and save it as a patch. Returns the
        names of the changed files. They are recorded, and a later call only returns the record.
        """
        record = self._state.ensure_task_folder(task.id) / _FILES
        with suppress(OSError, msgspec.MsgspecError):
            return decode_json(record.read_bytes(), tuple[str, ...])
        files, patch = tree.commit(_commit_subject(task))
        self._state.save_patch(task.id, patch)
        write_private(record, msgspec.json.encode(files))
        return tuple(files)

    def _run_session(
        self, task: Task, folder: Path, max_cost: float | None, lease_descriptor: int
    ) -> tuple[dict[str, Any], bool]:
        """Run a headless ouro in the folder, unless its answer is there already. Blocks.

        Returns the answer, and whether the session took too long. The answer is empty if ouro
        printed none. If the answer was there already, the second value is False.
        """
        task_folder = self._state.ensure_task_folder(task.id)
        if answer := _read_answer(task_folder / _ANSWER):
            return answer, False
        self._raise_if_stopped()
        with (task_folder / _ANSWER).open("wb") as output, (task_folder / _LOG).open("wb") as log:
            process = self._start_session(
                _flags(task, max_cost, task_folder),
                folder,
                environment={**os.environ, **_session_variables(task)},
                lease_descriptor=lease_descriptor,
                output=output.fileno(),
                log=log.fileno(),
            )
            with _lifeline(process.pid) if self._on_worker else nullcontext():
                timed_out = self._wait(process, task.limits.seconds)
        return _read_answer(task_folder / _ANSWER), timed_out

    def _run_checks(self, task: Task, folder: Path) -> tuple[CheckResult, ...]:
        """Run the checks of the task, up to the first that fails; returns the results of those that
        were run, each with what it printed. Raises Stopped.
        """
        if task.tests:  # the agent has not seen them, and may have written others there
            _replace_folder(Path(task.tests), folder / "tests")
        check_results = []
        output_file = self._state.ensure_task_folder(task.id) / "checks.txt"
        with (
            closing(Confinement(folder, get_home() / "sandbox")) as confinement,
            output_file.open("w+b") as output,
        ):
            for line in task.checks:
                words = confinement.wrap(["/bin/sh", "-c", line], "workspace")
                start = output.seek(0, os.SEEK_END)
                self._raise_if_stopped()
                process = _start_check(words, folder, output.fileno())
                timed_out = self._wait(process, task.limits.seconds)
                output.seek(start)
                text = output.read().decode(errors="replace")
                code = _TIMEOUT_EXIT_CODE if timed_out else process.returncode
                check_results.append(
                    CheckResult(line, code, cut_middle(text.strip(), _MAX_CHECK_OUTPUT))
                )
                if code:
                    break
        return tuple(check_results)

    def _start_session(
        self,
        flags: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        lease_descriptor: int,
        output: int,
        log: int,
    ) -> _Process:
        """Start ouro. If there is a fork server, it forks the process, which is faster; otherwise a
        new program is started.
        """
        if self._server is not None:
            with suppress(NoForkServer):
                return self._server.start(
                    flags, folder, environment, output=output, errors=log, keep=(lease_descriptor,)
                )
        return subprocess.Popen(
            [*_OURO, *flags],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=log,
            start_new_session=True,
            pass_fds=(lease_descriptor,),
        )

    def _raise_if_stopped(self) -> None:
        """Raises Stopped if `stop` was called."""
        if self._stopping.is_set():
            raise Stopped

    def _wait(self, process: _Process, seconds: float) -> bool:
        """Wait for the end of a process that was just started; returns whether it took too long.

        Raises:
            Stopped: `stop` was called.
        """
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        self._running.add(process)
        if self._stopping.is_set():  # `stop` was called while the process was started
            send_signal(process.pid, signal.SIGTERM, group=True)
        try:
            with _time_limit(process.pid, seconds) as timed_out:
                process.wait()  # with a timeout it would look only every 50 ms
        finally:
            self._running.discard(process)
        self._raise_if_stopped()
        return timed_out.is_set()


def _start_check(words: Sequence[str], folder: Path, output: int) -> subprocess.Popen[bytes]:
    """Start the program of a check."""
    return subprocess.Popen(
        words,
        cwd=folder,
        env=child_environment(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def fault(task: Task, detail: str) -> TaskResult:
    """The result of a task that a server, git or the disk has ended."""
    return TaskResult(id=task.id, repo=task.repo, outcome=FAULT, detail=detail)


@contextmanager
def _lifeline(group: int) -> Iterator[None]:
    """In this context a group of processes is killed if this process ends, even if it is killed
    itself. A shell waits for that: when this process ends, the standard input of the shell is
    closed.
    """
    line = f"read -r _; kill -KILL -{group}"  # dash takes no `--`
    watcher = subprocess.Popen(["/bin/sh", "-c", line], stdin=subprocess.PIPE)
    try:
        yield
    finally:
        watcher.kill()
        watcher.wait()
        if watcher.stdin is not None:
            watcher.stdin.close()


@contextmanager
def _time_limit(group: int, seconds: float) -> Iterator[threading.Event]:
    """In this context a group of processes is ended after some seconds. Yields an event that is set
    when the time is over.
    """
    has_ended, timed_out = threading.Event(), threading.Event()

    def watch() -> None:
        """After `seconds`, ask the process group to end; after `_KILL_DELAY` more, kill it. Returns as
        soon as the context ends.
        """
        if has_ended.wait(min(seconds, threading.TIMEOUT_MAX)):
            return
        timed_out.set()
        send_signal(group, signal.SIGTERM, group=True)
        if not has_ended.wait(_KILL_DELAY):
            send_signal(group, signal.SIGKILL, group=True)

    watcher = threading.Thread(target=watch, name="batch limit", daemon=True)
    watcher.start()
    try:
        yield timed_out
    finally:
        has_ended.set()
        watcher.join()


def _flags(task: Task, max_cost: float | None, task_folder: Path) -> list[str]:
    """The flags of `ouro` for the session of a task. The schema of its answer is written into the
    folder, and a flag names that file.
    """
    flags = [
        "--output",
        "json",
        "--mode",
        task.permissions.mode,
        "--max-turns",
        str(task.limits.turns),
    ]
    flags.append("--trust" if task.trust else "--no-trust")
    if task.memory == "none":
        flags.append("--no-memory")
    if task.model:
        flags += ["--model", task.model]
    if max_cost is not None:
        flags += ["--max-cost", f"{max_cost:.6f}"]
    if task.answer_schema is not None:
        schema_file = task_folder / "schema.json"
        schema_file.write_text(json.dumps(task.answer_schema))
        flags += ["--schema", str(schema_file)]
    for rule in task.permissions.allow:
        flags += ["--allow", rule]
    for rule in task.permissions.deny:
        flags += ["--deny", rule]
    return [*flags, f"--print={task.prompt}"]


def _replace_folder(source: Path, target: Path) -> None:
    """Copy a folder to the target. What is at the target before, which the agent may have written,
    is removed.
    """
    if target.is_symlink() or target.is_file():
        target.unlink()
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True)


def _session_variables(task: Task) -> dict[str, str]:
    """The variables with settings for a session whose folder will be removed, and which has no
    user.
    """
    # The branch keeps what was changed. Checkpoints of a folder that is gone would only push out
    # those of the user.
    settings = {"OURO_CHECKPOINTS_ENABLED": "false"}
    if task.memory == "read":
        settings |= _ASK_BEFORE_MEMORY
    return settings


def _read_answer(path: Path) -> dict[str, Any]:
    """The JSON object in the last line of a file; empty if there is none."""
    try:
        lines = path.read_bytes().splitlines()
        return dictionary(msgspec.json.decode(lines[-1])) if lines else {}
    except (OSError, msgspec.MsgspecError):
        return {}


def _make_answer(answer: Mapping[str, Any]) -> TaskAnswer:
    """The answer of the task from the JSON that its session has printed."""
    usage = dictionary(answer.get("usage"))
    tokens = [count(usage.get(name)) or 0 for name in ("input", "output")]
    return TaskAnswer(
        text=string(answer.get("result")),
        data=answer.get("data"),
        cost=amount(usage.get("cost")),
        turns=count(answer.get("turns")) or 0,
        tokens=sum(tokens),
    )


def _has_answered(answer: Mapping[str, Any]) -> bool:
    """Whether a session ended with an answer of the model."""
    return answer.get("outcome") == "answered"


def _find_outcome(task: Task, answer: Mapping[str, Any], checks: Sequence[CheckResult]) -> str:
    """The outcome of a task, from the answer of its session and the results of its checks. FAULT if
    the answer is empty: the session ended without one.
    """
    if not answer:
        return FAULT
    if not _has_answered(answer):
        return string(answer.get("outcome"))
    # The detail of a session that answered is why the answer does not match the schema.
    if task.answer_schema is not None and answer.get("detail"):
        return MISFIT
    return CHECKS if any(check.exit_code for check in checks) else DONE


def _commit_subject(task: Task) -> str:
    """The subject of the commit: the first line of the prompt, cut."""
    first_line = task.prompt.strip().splitlines()[0]
    return first_line if len(first_line) <= 60 else f"{first_line[:59]}…"


def _last_line(path: Path) -> str:
    """The last line of a log, cut to 300 characters. `it printed nothing` if there is none."""
    try:
        lines = path.read_text("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1][:300] if lines else "it printed nothing"
