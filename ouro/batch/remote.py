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
from ouro.utils.runtime import ensure_private_dir, get_home, get_sessions_dir

_GIT_SECONDS = 600.0
_MAX_SESSION = 256 << 20
"""Bytes of a session that is sent back; a longer one stays on its worker."""
_MIN_FREE = 64 << 20
"""Bytes: a task that failed where less is left may succeed on another worker."""
_POLL = 0.5
"""Seconds between two looks whether the scheduler still wants the task here."""
BUNDLE = "branch.bundle"


class Order(msgspec.Struct, frozen=True):
    """What a worker is asked for. It holds names of variables, never their values."""

    version: str
    name: str
    task: Task
    max_cost: float | None
    variables: tuple[str, ...] = ()
    """Variables that must be set on the worker."""


class Parcel(msgspec.Struct, frozen=True):
    """What a worker sends back."""

    result: TaskResult
    patch: str = ""
    bundle: bytes = b""
    """The commits of the branch since the task began, as `git bundle` packs them."""
    session: Mapping[str, bytes] = {}
    """The files of the session by their path in the folder of sessions."""
    learned: tuple[Proposal, ...] = ()
    """What the session would remember."""
    is_unfit: bool = False
    """The worker is to blame, and not the task: another worker may be able to."""
    worker: str = ""
    """Its address."""


def run_on_worker(order: bytes) -> bytes:
    """Run an order; returns an encoded Parcel. This is what Dask calls on a worker.

    Raises:
        Stopped: the scheduler no longer wants it here.
    """
    from distributed import get_worker

    parcel = carry_out(order, _own_version(), _asks_the_scheduler())
    return msgspec.msgpack.encode(msgspec.structs.replace(parcel, worker=get_worker().address))


def carry_out(order: bytes, version: str, is_wanted: Callable[[], bool]) -> Parcel:
    """Run an order of the same version of ouro in a folder that is removed afterwards."""
    sent = msgspec.msgpack.decode(order)
    if sent["version"] != version:
        task = sent["task"]
        detail = f"A worker has ouro {version}, and {sent['version']} sent the task."
        result = TaskResult(id=task["id"], repo=task["repo"], outcome=FAULT, detail=detail)
        return Parcel(result, is_unfit=True)
    wanted = from_plain(sent, Order)
    missing = [name for name in wanted.variables if not os.environ.get(name)]
    if missing:
        return _unfit(wanted.task, f"A worker lacks the variable {', '.join(missing)}.")
    try:
        folder = Path(tempfile.mkdtemp(prefix="ouro-batch-"))
    except OSError as error:  # a full disk
        return _unfit(wanted.task, f"A worker has no place to work: {plain_error(error).message}")
    try:
        if _is_full(folder):
            return _unfit(wanted.task, f"A worker has less than {_MIN_FREE >> 20} MB of free disk.")
        found = _run(wanted, folder, is_wanted)
        is_fault = found.result.outcome == FAULT and not found.result.answer.turns
        return msgspec.structs.replace(found, is_unfit=is_fault and _is_full(folder))
    except OSError as error:
        return _unfit(wanted.task, f"A worker has no place to work: {plain_error(error).message}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(order: Order, folder: Path, is_wanted: Callable[[], bool]) -> Parcel:
    task = order.task
    if not task.is_remote and not Path(task.repo).is_dir():
        return _fault(task, f"{task.repo} is not a folder on a worker: name an address.")
    # A folder is cloned too: a worktree would be a lock that two machines share.
    cloned = task if task.is_remote else msgspec.structs.replace(task, repo=f"file://{task.repo}")
    state = BatchState(folder)
    state.begin(Batch(order.name, (cloned,)))
    attempt = Attempt(state, _server(), on_worker=True)
    with _stopping_unless(is_wanted, attempt.stop):
        result = attempt.run(cloned, order.max_cost)
    result = msgspec.structs.replace(result, repo=task.repo)
    bundle = _bundle(state, result)
    session = _session_files(result.session_id)
    learned = tuple(state.learned(task.id))
    return Parcel(result, state.patch(task.id), bundle, session, learned)


@cache
def _server() -> ForkServer:
    """That of this worker: it stays until the worker ends."""
    return make_server()


def read_parcel(encoded: bytes) -> Parcel:
    return from_plain(msgspec.msgpack.decode(encoded), Parcel)


def receive(state: BatchState, task: Task, parcel: Parcel) -> TaskResult:
    """Save what a worker sent, and return its result: the session among those of this machine, the
    branch in the repository of a folder, or beside the result.
    """
    result, place = parcel.result, state.place(task.id)
    with suppress(OSError):
        _save_session(parcel.session)
    state.save_patch(task.id, parcel.patch)
    state.save_learned(task.id, parcel.learned)
    if not parcel.bundle:
        return result
    bundle = place / BUNDLE
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
    """Take the branch of a bundle into a repository. Raises GitError."""
    git = Git(repository, _GIT_SECONDS)
    commit = git.change_refs("bundle", "unbundle", str(bundle)).split()[0]
    git.change_refs("branch", "--quiet", "--force", branch, commit)


def _own_version() -> str:
    from ouro import __version__  # not while the package is imported

    return __version__


def _asks_the_scheduler() -> Callable[[], bool]:
    """Whether this worker is still in touch, and the task still wanted: a coordinator that was
    killed, or a scheduler that gave the task to another worker, must not have two at work.
    """
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def is_wanted() -> bool:
        known = worker.state.tasks.get(key)
        is_up = worker.status.name in ("running", "paused")
        return is_up and known is not None and known.state not in ("cancelled", "released")

    return is_wanted


@contextmanager
def _stopping_unless(is_wanted: Callable[[], bool], stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` as soon as the work inside is no longer wanted."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_POLL):
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


def _bundle(state: BatchState, result: TaskResult) -> bytes:
    if not result.branch:
        return b""
    place = state.place(result.id)
    tree = read_tree(place)
    target = place / BUNDLE
    words = ("bundle", "create", "--quiet", str(target), result.branch, f"^{tree.base}")
    Git(tree.folder, _GIT_SECONDS).change_refs(*words)
    return target.read_bytes()


def _session_files(session_id: str) -> dict[str, bytes]:
    """The files of a session of this worker; none if it is too long or gone."""
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
    """Write the files of a session; what is there already stays."""
    root = get_sessions_dir().resolve()
    for name, data in files.items():
        path = (root / name).resolve()
        if path.is_relative_to(root) and not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o600)


def _is_full(folder: Path) -> bool:
    places = (folder, ensure_private_dir(get_home()))
    return min(shutil.disk_usage(place).free for place in places) < _MIN_FREE


def _unfit(task: Task, detail: str) -> Parcel:
    return msgspec.structs.replace(_fault(task, detail), is_unfit=True)


def _fault(task: Task, detail: str) -> Parcel:
    return Parcel(TaskResult(id=task.id, repo=task.repo, outcome=FAULT, detail=detail))


__all__ = ["BUNDLE", "Order", "Parcel", "Stopped", "carry_out", "receive", "run_on_worker"]
