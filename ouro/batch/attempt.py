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
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ouro.batch.pending_memory import take_pending
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
from ouro.utils.runtime import get_home, send_signal
from ouro.utils.text import cut_middle

_ANSWER, _LOG, _FILES = "answer.json", "log.txt", "files.json"
NICENESS = 5
"""Below an interactive session, which keeps its speed."""
_FAULTS = {"failed"}
"""Outcomes of an answer for which the world is to blame: the model did not answer."""
_ASKS_BEFORE_MEMORY = {"OURO_MEMORY_WRITE": "ask"}
"""What a session would remember waits for the user, who cannot undo it during the run."""
_KEEP_OUTPUT = 4_000
_GRACE = 10.0
"""Seconds after the first signal until a process is killed."""
_PAUSES = (2.0, 10.0)
"""Seconds before the second and the third attempt."""
# `-P`: Python must not look for modules in the folder of a task. A repository would run its own
# files with the keys of ouro.
_PYTHON = (sys.executable, "-P")
_OURO = (*_PYTHON, "-m", "ouro")
_SERVER = (*_PYTHON, "-m", "ouro.warm_start")
_Process = subprocess.Popen[bytes] | ForkedProcess


def make_server() -> ForkServer:
    """What forks the sessions of a batch, so that modules are loaded once and not for each task."""
    return ForkServer(_SERVER)


class Stopped(Exception):
    """The whole run was stopped: the task runs again next time."""


class _Ended(NamedTuple):
    result: TaskResult
    tree: TaskTree | None = None
    """What is removed when the result is saved; None: a folder that is left has changes."""


class Attempt:
    """Runs tasks of one batch, each in its thread. `stop` ends those that run.

    Args:
        server: what forks the sessions; None: each starts an interpreter.
        on_worker: end the processes if this one is killed, and leave the folders to the caller.
            Otherwise they end by themselves, and the next run uses their answers.
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
        self._stopping = threading.Event()

    @property
    def is_stopped(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Interrupt the processes of this object, and start no other one."""
        self._stopping.set()
        for process in tuple(self._running):
            send_signal(process.pid, signal.SIGTERM, group=True)

    def run(self, task: Task, max_cost: float | None) -> TaskResult:
        """The result of a task: that of an earlier run, or of a new one. Blocks.

        Waits for a process that an ouro which was killed left behind: its answer is used.

        Raises:
            Stopped: `stop` was called.
            OSError: the state cannot be written.
        """
        began = time.monotonic()
        with self._state.lease(task.id) as lease:
            known = self._state.result(task.id)
            if known is not None:
                return known
            try:
                ended = self._tried(task, max_cost, lease)
            except NoSuchTree as error:
                ended = _Ended(_fault(task, error.message))
            seconds = round(time.monotonic() - began, 2)
            result = msgspec.structs.replace(ended.result, seconds=seconds)
            self._state.save(result)
            if (
                ended.tree is not None and not self._on_worker
            ):  # not before: after a kill in between the answer is used
                self._clear(result, ended.tree)
        return result

    def clear_ended(self) -> None:
        """Remove what a run that was killed left of tasks that have a result."""
        for result in self._state.results():
            place = self._state.place(result.id)
            # Without a session it may be what git could not commit.
            if result.session_id and (place / _ANSWER).exists():
                with suppress(OSError, msgspec.MsgspecError):
                    self._clear(result, read_tree(place))

    def _clear(self, result: TaskResult, tree: TaskTree) -> None:
        with suppress(OSError):  # the result is saved; the next run tries again
            tree.remove(keeps_branch=bool(result.branch))
            (self._state.place(result.id) / _ANSWER).unlink(missing_ok=True)

    def _tried(self, task: Task, max_cost: float | None, lease: int) -> _Ended:
        """The result, after more attempts if the world was to blame."""
        ended = self._once(task, max_cost, lease)
        for number, pause in enumerate(_PAUSES, 2):
            result = ended.result
            if result.outcome not in (FAULT, *_FAULTS) or result.answer.turns:
                break
            if self._stopping.wait(pause):
                raise Stopped
            if ended.tree is not None:
                (self._state.place(task.id) / _ANSWER).unlink(missing_ok=True)
            again = self._once(task, max_cost, lease)
            ended = again._replace(result=msgspec.structs.replace(again.result, attempts=number))
        return ended

    def _once(self, task: Task, max_cost: float | None, lease: int) -> _Ended:
        place = self._state.place(task.id)
        left = self._left_behind(task)
        try:
            tree = left or TaskTree.make(task, place / "tree", f"ouro/{self._name}/{task.id}")
            if not left:
                (place / _ANSWER).unlink(missing_ok=True)
                (place / _FILES).unlink(missing_ok=True)
                save_tree(place, tree)
            with suppress(TreeError):  # the folder stays, and is named
                try:
                    return _Ended(self._answered(task, tree, max_cost, lease), tree)
                except Stopped:
                    tree.remove(keeps_branch=False)
                    raise
            detail = f"Its changes are in {tree.folder}: git could not commit them."
            return _Ended(_fault(task, detail))
        except NoSuchTree:
            raise
        except TreeError as error:
            return _Ended(_fault(task, error.message))
        except OSError as error:  # a full disk, a file system that is gone
            return _Ended(_fault(task, plain_error(error).message))

    def _left_behind(self, task: Task) -> TaskTree | None:
        """The tree of a process that ended, with an answer, after its ouro was killed."""
        place = self._state.place(task.id)
        if not (place / "tree").is_dir() or not _read_answer(place / _ANSWER):
            return None
        try:
            return read_tree(place)
        except (OSError, msgspec.MsgspecError):
            return None

    def _answered(
        self, task: Task, tree: TaskTree, max_cost: float | None, lease: int
    ) -> TaskResult:
        place = self._state.place(task.id)
        answer, timed_out = self._ask(task, tree.folder, max_cost, lease)
        files = self._committed(task, tree)  # before the checks: what they write is not kept
        checks = self._check(task, tree.folder) if _has_answered(answer) else ()
        if task.memory == "read" and tree.repository is None:  # the clone may be removed
            keep = partial(self._state.add_learned, task.id)
            take_pending(tree.folder, string(answer.get("session_id")), keep)
        detail = string(answer.get("detail"))
        if timed_out:
            detail = f"It took more than {task.limits.seconds:.0f} seconds."
        elif not answer:
            detail = f"ouro ended without a result: {_last_line(place / _LOG)}"
        return TaskResult(
            id=task.id,
            repo=task.repo,
            outcome=LIMIT if timed_out else _outcome(task, answer, checks),
            detail=detail,
            answer=_read_parts(answer),
            session_id=string(answer.get("session_id")),
            branch=tree.branch if files else "",
            files=files,
            checks=checks,
        )

    def _committed(self, task: Task, tree: TaskTree) -> tuple[str, ...]:
        """The names of the files that the agent changed: committed to the branch, and saved as a
        patch, once.
        """
        record = self._state.place(task.id) / _FILES
        with suppress(OSError, msgspec.MsgspecError):
            return decode_json(record.read_bytes(), tuple[str, ...])
        files, patch = tree.commit(_subject(task))
        self._state.save_patch(task.id, patch)
        write_private(record, msgspec.json.encode(files))
        return tuple(files)

    def _ask(
        self, task: Task, folder: Path, max_cost: float | None, lease: int
    ) -> tuple[dict[str, Any], bool]:
        """The result object of a headless ouro, empty without one; and whether it took too long."""
        place = self._state.place(task.id)
        if left := _read_answer(place / _ANSWER):
            return left, False
        self._raise_if_stopped()
        with (place / _ANSWER).open("wb") as output, (place / _LOG).open("wb") as log:
            process = self._start_session(
                _flags(task, max_cost, place),
                folder,
                {**os.environ, **_variables(task)},
                lease,
                output.fileno(),
                log.fileno(),
            )
            with _lifeline(process.pid) if self._on_worker else nullcontext():
                timed_out = self._wait(process, task.limits.seconds)
        return _read_answer(place / _ANSWER), timed_out

    def _check(self, task: Task, folder: Path) -> tuple[CheckResult, ...]:
        """The results of its checks, up to the first that fails."""
        if task.tests:
            _replace_folder(Path(task.tests), folder / "tests")
        confinement = Confinement(folder, get_home() / "sandbox")
        done = []
        with (self._state.place(task.id) / "checks.txt").open("w+b") as output:
            for line in task.checks:
                words = confinement.wrap(["/bin/sh", "-c", line], "workspace")
                start = output.seek(0, os.SEEK_END)
                self._raise_if_stopped()
                process = _start_check(words, folder, output.fileno())
                timed_out = self._wait(process, task.limits.seconds)
                output.seek(start)
                text = output.read().decode(errors="replace")
                code = 124 if timed_out else process.returncode
                done.append(CheckResult(line, code, cut_middle(text.strip(), _KEEP_OUTPUT)))
                if code:
                    break
        confinement.close()
        return tuple(done)

    def _start_session(
        self,
        flags: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        lease: int,
        output: int,
        log: int,
    ) -> _Process:
        if self._server is not None:
            with suppress(NoForkServer):
                return self._server.start(
                    flags, folder, environment, output=output, errors=log, keep=(lease,)
                )
        return subprocess.Popen(
            [*_OURO, *flags],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=log,
            start_new_session=True,
            pass_fds=(lease,),
        )

    def _raise_if_stopped(self) -> None:
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
        if self._stopping.is_set():  # it came while the process was started
            send_signal(process.pid, signal.SIGTERM, group=True)
        try:
            with _time_limit(process.pid, seconds) as timed_out:
                process.wait()  # with a timeout it would look only every 50 ms
        finally:
            self._running.discard(process)
        self._raise_if_stopped()
        return timed_out.is_set()


def _start_check(words: Sequence[str], folder: Path, output: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        words,
        cwd=folder,
        env=child_environment(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def _fault(task: Task, detail: str) -> TaskResult:
    return TaskResult(id=task.id, repo=task.repo, outcome=FAULT, detail=detail)


@contextmanager
def _lifeline(group: int) -> Iterator[None]:
    """Inside, a small process kills a group of processes as soon as this process is gone."""
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
    """Inside, a group of processes is ended after some seconds; yields whether that has begun."""
    is_over, timed_out = threading.Event(), threading.Event()

    def watch() -> None:
        if is_over.wait(min(seconds, threading.TIMEOUT_MAX)):
            return
        timed_out.set()
        send_signal(group, signal.SIGTERM, group=True)
        if not is_over.wait(_GRACE):
            send_signal(group, signal.SIGKILL, group=True)

    watcher = threading.Thread(target=watch, name="batch limit", daemon=True)
    watcher.start()
    try:
        yield timed_out
    finally:
        is_over.set()
        watcher.join()


def _flags(task: Task, max_cost: float | None, place: Path) -> list[str]:
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
        schema = place / "schema.json"
        schema.write_text(json.dumps(task.answer_schema))
        flags += ["--schema", str(schema)]
    for rule in task.permissions.allow:
        flags += ["--allow", rule]
    for rule in task.permissions.deny:
        flags += ["--deny", rule]
    return [*flags, f"--print={task.prompt}"]


def _replace_folder(source: Path, target: Path) -> None:
    """Copy a folder; what the agent wrote in its place does not count."""
    if target.is_symlink() or target.is_file():
        target.unlink()
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True)


def _variables(task: Task) -> dict[str, str]:
    """Settings of a session that runs in a folder which is removed, and without the user."""
    # The branch keeps what was changed. Checkpoints of a folder that is gone would only push out
    # those of the user.
    settings = {"OURO_CHECKPOINTS_ENABLED": "false"}
    if task.memory == "read":
        settings |= _ASKS_BEFORE_MEMORY
    return settings


def _read_answer(path: Path) -> dict[str, Any]:
    try:
        lines = path.read_bytes().splitlines()
        return dictionary(msgspec.json.decode(lines[-1])) if lines else {}
    except (OSError, msgspec.MsgspecError):
        return {}


def _read_parts(answer: Mapping[str, Any]) -> TaskAnswer:
    usage = dictionary(answer.get("usage"))
    tokens = [count(usage.get(name)) or 0 for name in ("input", "output")]
    return TaskAnswer(
        string(answer.get("result")),
        answer.get("data"),
        amount(usage.get("cost")),
        count(answer.get("turns")) or 0,
        sum(tokens),
    )


def _has_answered(answer: Mapping[str, Any]) -> bool:
    return answer.get("outcome") == "answered"


def _outcome(task: Task, answer: Mapping[str, Any], checks: Sequence[CheckResult]) -> str:
    if not answer:
        return FAULT
    if not _has_answered(answer):
        return string(answer.get("outcome"))
    if task.answer_schema is not None and answer.get("detail"):
        return MISFIT
    return CHECKS if any(check.exit_code for check in checks) else DONE


def _subject(task: Task) -> str:
    first = task.prompt.strip().splitlines()[0]
    return first if len(first) <= 60 else f"{first[:59]}…"


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1][:300] if lines else "it printed nothing"
