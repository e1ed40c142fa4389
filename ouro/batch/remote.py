"""One task on a worker of Dask: what is sent to it, and what it sends back."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import msgspec

from ouro.batch.attempt import Attempt, Stopped, make_server
from ouro.batch.state import FAULT, BatchState, TaskResult
from ouro.batch.tasks import Batch, Task
from ouro.batch.tree import read_tree
from ouro.errors import OuroError, plain_error
from ouro.memory.long_term import Proposal
from ouro.memory.sessions.session_folders import SessionFolders
from ouro.utils.decoding import from_plain
from ouro.utils.fork_server import ForkServer
from ouro.utils.git import Git, GitError
from ouro.utils.ouro_paths import ensure_private_dir, get_home, get_sessions_dir
from ouro.utils.text import one_line

_GIT_SECONDS = 600.0
_MAX_SESSION = 256 << 20
"""Bytes of a session that is sent back; a longer one stays on its worker."""
_MIN_FREE = 64 << 20
"""Bytes of free disk. A task that failed where less was free may succeed on another worker."""
_POLL_SECONDS = 0.5
"""Seconds between two looks whether the scheduler still wants the task here."""
BUNDLE = "branch.bundle"


class Order(msgspec.Struct, frozen=True):
    """What a worker is asked to do. It contains names of variables, never their values."""

    version: str
    name: str
    task: Task
    max_cost: float | None
    """Dollars; None: no limit."""
    variables: tuple[str, ...] = ()
    """Variables that must be set on the worker."""


class Parcel(msgspec.Struct, frozen=True):
    """What a worker sends back."""

    result: TaskResult
    patch: str = ""
    bundle: bytes = b""
    """The commits of the branch since the task began, in the format of `git bundle`."""
    session: Mapping[str, bytes] = {}
    """The files of the session by their path in the folder of sessions."""
    learned: tuple[Proposal, ...] = ()
    """What the session would remember."""
    is_unfit: bool = False
    """Whether the worker is to blame, and not the task: another worker may succeed."""
    worker: str = ""
    """The address of the worker."""


def run_on_worker(order: bytes) -> bytes:
    """Run an order; returns an encoded Parcel. This is what Dask calls on a worker.

    Raises:
        Stopped: the scheduler no longer wants it here.
    """
    from distributed import get_worker

    parcel = carry_out(order, _own_version(), _make_wanted_check())
    return msgspec.msgpack.encode(msgspec.structs.replace(parcel, worker=get_worker().address))


def carry_out(order: bytes, version: str, is_wanted: Callable[[], bool]) -> Parcel:
    """Run an order in a temporary folder. If the worker cannot (another version, a missing variable, a
    full disk), the parcel is `is_unfit`.

    Args:
        version: the version of ouro on this worker.
        is_wanted: whether the scheduler still wants the task here.

    Raises:
        Stopped: the scheduler does not want it any more.
    """
    # Without a type: another version may have other fields.
    plain_order = msgspec.msgpack.decode(order)
    if plain_order["version"] != version:
        task = plain_order["task"]
        detail = f"A worker has ouro {version}, and {plain_order['version']} sent the task."
        result = TaskResult(id=task["id"], repo=task["repo"], outcome=FAULT, detail=detail)
        return Parcel(result, is_unfit=True)
    decoded_order = from_plain(plain_order, Order)
    missing = [name for name in decoded_order.variables if not os.environ.get(name)]
    if missing:
        return _unfit(decoded_order.task, f"A worker lacks the variable {', '.join(missing)}.")
    try:
        return _run_in_new_folder(decoded_order, is_wanted)
    except OSError as error:  # a full disk
        return _unfit(
            decoded_order.task, f"A worker has no place to work: {plain_error(error).message}"
        )


def _run_in_new_folder(order: Order, is_wanted: Callable[[], bool]) -> Parcel:
    """Run an order in a temporary folder. If little space is free before a task or after its fault,
    the parcel is `is_unfit`. Raises OSError, Stopped.
    """
    folder = Path(tempfile.mkdtemp(prefix="ouro-batch-"))
    try:
        if _is_full(folder):
            return _unfit(order.task, f"A worker has less than {_MIN_FREE >> 20} MB of free disk.")
        parcel = _run_task(order, folder, is_wanted)
        # After a turn of the model the task is not run on another worker: it would be paid twice.
        may_run_again = parcel.result.outcome == FAULT and not parcel.result.answer.turns
        return msgspec.structs.replace(parcel, is_unfit=may_run_again and _is_full(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_task(order: Order, folder: Path, is_wanted: Callable[[], bool]) -> Parcel:
    """Run the task of an order in a folder. Returns its result, patch, branch and session, and what
    the session would remember. If its repository is a folder that is not on this machine, the
    result is a fault, and the rest is empty. If only the branch cannot be packed, the result is a
    fault with all the rest. Raises OSError, Stopped.
    """
    task = order.task
    if not task.is_remote and not Path(task.repo).is_dir():
        return _fault(task, f"{task.repo} is not a folder on a worker: name an address.")
    # A folder is cloned too: a worktree would be a lock that two machines share.
    to_clone = task if task.is_remote else msgspec.structs.replace(task, repo=f"file://{task.repo}")
    state = BatchState(folder)
    state.begin(Batch(order.name, (to_clone,)))
    attempt = Attempt(state, _fork_server(), on_worker=True)
    with _stopping_when_unwanted(is_wanted, attempt.stop):
        result = attempt.run(to_clone, order.max_cost)
    result = msgspec.structs.replace(result, repo=task.repo)
    try:
        bundle = _make_bundle(state, result)
    except (OSError, msgspec.MsgspecError) as error:
        # The patch has the changes. As an error it would run the task again, which is paid twice.
        detail = f"A worker could not pack the branch of its changes: {one_line(str(error))}"
        result = msgspec.structs.replace(result, outcome=FAULT, detail=detail, branch="")
        bundle = b""
    session = _session_files(result.session_id)
    learned = tuple(state.learned(task.id))
    return Parcel(
        result, patch=state.patch(task.id), bundle=bundle, session=session, learned=learned
    )


@cache
def _fork_server() -> ForkServer:
    """The fork server of this worker, which stays until the worker ends."""
    return make_server()


def read_parcel(encoded: bytes) -> Parcel:
    """The parcel that `run_on_worker` has encoded."""
    return from_plain(msgspec.msgpack.decode(encoded), Parcel)


def receive(state: BatchState, task: Task, parcel: Parcel) -> TaskResult:
    """Save what a worker sent, and return its result. The result is a fault if git cannot fetch the
    branch.

    The session is saved among the sessions of this machine. The bundle of the branch is saved in
    the state; if the repository is a folder, the branch is fetched into it.
    """
    result, folder = parcel.result, state.ensure_task_folder(task.id)
    with suppress(OSError):
        _save_session(parcel.session)
    state.save_patch(task.id, parcel.patch)
    state.save_learned(task.id, parcel.learned)
    if not parcel.bundle:
        return result
    bundle = folder / BUNDLE
    bundle.write_bytes(parcel.bundle)
    if task.is_remote:
        return result
    try:
        fetch_bundle(Path(task.repo), bundle, result.branch)
    except GitError as error:
        detail = f"Its changes are in {bundle}, but git could not fetch them: {error}"
        return msgspec.structs.replace(result, outcome=FAULT, detail=detail, branch="")
    return result


def fetch_bundle(repository: Path, bundle: Path, branch: str) -> None:
    """Add the commits of a bundle to a repository, and set the branch to its newest commit. Raises
    GitError.
    """
    git = Git(repository, _GIT_SECONDS)
    # It prints `COMMIT REF` for the one branch in the bundle.
    commit = git.change_refs("bundle", "unbundle", str(bundle)).split()[0]
    git.change_refs("branch", "--quiet", "--force", branch, commit)


def _own_version() -> str:
    from ouro import __version__  # not while the package is imported

    return __version__


def _make_wanted_check() -> Callable[[], bool]:
    """Returns a function. It returns whether this worker is connected and the task is still wanted.
    If not, the task should end: its coordinator was killed, or another worker has it.
    """
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def is_wanted() -> bool:
        """Whether the worker runs, and the task was neither cancelled nor released."""
        task_state = worker.state.tasks.get(key)
        is_up = worker.status.name in ("running", "paused")
        return (
            is_up and task_state is not None and task_state.state not in ("cancelled", "released")
        )

    return is_wanted


@contextmanager
def _stopping_when_unwanted(
    is_wanted: Callable[[], bool], stop: Callable[[], None]
) -> Iterator[None]:
    """In this context call `stop` as soon as the work is no longer wanted."""
    ended = threading.Event()

    def watch() -> None:
        """Look every `_POLL_SECONDS` until the context ends, or the work was stopped."""
        while not ended.wait(_POLL_SECONDS):
            if not is_wanted():
                stop()
                return

    watcher = threading.Thread(target=watch, name="batch watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _make_bundle(state: BatchState, result: TaskResult) -> bytes:
    """The commits that the task made on its branch, as a git bundle; empty without a branch."""
    if not result.branch:
        return b""
    folder = state.ensure_task_folder(result.id)
    tree = read_tree(folder)
    target = folder / BUNDLE
    arguments = ("bundle", "create", "--quiet", str(target), result.branch, f"^{tree.base}")
    # No ref changes here. But `change_refs` is for all commands that write something, and do not
    # touch the work tree, so that no filter of the repository can run.
    Git(tree.folder, _GIT_SECONDS).change_refs(*arguments)
    return target.read_bytes()


def _session_files(session_id: str) -> dict[str, bytes]:
    """The contents of the files of a session, by their path in the folder of sessions. Empty if the
    session has more than `_MAX_SESSION` bytes, or cannot be read.
    """
    if not session_id:
        return {}
    root = get_sessions_dir()
    try:
        folder = SessionFolders(root).find(session_id)
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        if sum(path.stat().st_size for path in files) > _MAX_SESSION:
            return {}
        return {str(path.relative_to(root)): path.read_bytes() for path in files}
    except (OSError, OuroError):
        return {}


def _save_session(files: Mapping[str, bytes]) -> None:
    """Write the files of a session below the folder of sessions. A file that exists is not changed.
    The worker names the paths, so a path that leaves this folder is ignored.
    """
    root = get_sessions_dir().resolve()
    for name, data in files.items():
        path = (root / name).resolve()
        if path.is_relative_to(root) and not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o600)


def _is_full(folder: Path) -> bool:
    """Whether little space is free on the disk of the folder, or on the disk of ouro's home."""
    places = (folder, ensure_private_dir(get_home()))
    return min(shutil.disk_usage(place).free for place in places) < _MIN_FREE


def _unfit(task: Task, detail: str) -> Parcel:
    """A fault for which the worker is to blame: another worker may succeed."""
    return msgspec.structs.replace(_fault(task, detail), is_unfit=True)


def _fault(task: Task, detail: str) -> Parcel:
    """What a worker sends back for a task that it could not run."""
    return Parcel(TaskResult(id=task.id, repo=task.repo, outcome=FAULT, detail=detail))


__all__ = ["BUNDLE", "Order", "Parcel", "Stopped", "carry_out", "receive", "run_on_worker"]
