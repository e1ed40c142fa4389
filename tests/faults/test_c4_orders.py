"""C4: orders and parcels of a worker: another version, a full disk, a file that leaves the folder."""

from concurrent.futures import Future
from urllib.parse import quote

import msgspec
import pytest
from fakes.files import git, make_repository

from ouro.batch import remote
from ouro.batch.dask_runner import DaskRunner, SchedulerLost
from ouro.batch.remote import Order, Parcel, carry_out, receive
from ouro.batch.state import BatchState, TaskResult
from ouro.batch.tasks import Batch, Task
from ouro.utils.git import GitError, clone
from ouro.utils.ouro_paths import get_sessions_dir

TASK = Task(id="a", prompt="x", repo="/r")


def order(**more):
    return msgspec.msgpack.encode(Order(**{"version": "1", "name": "b", "task": TASK, "max_cost": None, **more}))  # fmt: skip


def test_c4_a_worker_of_another_version_is_named():
    result = carry_out(order(version="9"), "1", lambda: True).result
    assert (result.id, result.outcome) == ("a", "fault")
    assert result.detail == "A worker has ouro 1, and 9 sent the task."


def test_c4_an_order_holds_the_names_of_variables_and_no_value(monkeypatch):
    monkeypatch.setenv("SHOP_KEY", "very-secret")
    sent = order(variables=("SHOP_KEY", "OTHER_KEY"))
    assert b"very-secret" not in sent
    assert "lacks the variable OTHER_KEY" in carry_out(sent, "1", lambda: True).result.detail


def test_c4_a_full_disk_on_a_worker_is_named_with_its_task(monkeypatch):
    def full(prefix):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(remote.tempfile, "mkdtemp", full)
    result = carry_out(order(), "1", lambda: True).result
    assert result.outcome == "fault"
    assert "space" in result.detail.lower()


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/escaped-by-a-worker"])
def test_c4_a_session_of_a_worker_is_written_nowhere_else(tmp_path, name):
    state = BatchState(tmp_path / "state")
    state.begin(Batch("b", (TASK,)))
    parcel = Parcel(
        TaskResult(id="a", repo="/r", outcome="done"), session={name: b"x", "s/f": b"y"}
    )
    receive(state, TASK, parcel)
    assert (get_sessions_dir() / "s" / "f").read_bytes() == b"y"
    assert not (get_sessions_dir() / name).exists()


class LostClient:
    """A client of Dask without a connection, whose tasks never end."""

    status = "closed"

    def submit(self, *_args, **_options):
        return Future()


@pytest.mark.timeout(20)
def test_c4_a_task_that_never_ends_without_a_scheduler_is_not_waited_for(tmp_path):
    state = BatchState(tmp_path / "state")
    state.begin(Batch("b", (TASK,)))
    with pytest.raises(SchedulerLost):
        DaskRunner(state, LostClient()).run(TASK, None)


def test_c4_a_fault_of_the_worker_says_that_another_one_may_be_able(monkeypatch):
    assert carry_out(order(version="9"), "1", lambda: True).is_unfit
    assert carry_out(order(variables=("OTHER_KEY",)), "1", lambda: True).is_unfit
    assert not carry_out(order(), "1", lambda: True).is_unfit  # its folder is not here
    task = msgspec.structs.replace(TASK, repo="file:///nowhere/at/all")
    monkeypatch.setattr("ouro.batch.attempt._RETRY_PAUSES", ())
    found = carry_out(order(task=task), "1", lambda: True)
    assert (found.result.outcome, found.is_unfit) == ("fault", False)


def test_c4_a_disk_that_became_full_in_a_task_is_named(monkeypatch):
    sizes = iter([1 << 40, 1 << 40, 0, 0])
    usage = remote.shutil._ntuple_diskusage
    monkeypatch.setattr(remote.shutil, "disk_usage", lambda _: usage(1, 1, next(sizes)))
    monkeypatch.setattr("ouro.batch.attempt._RETRY_PAUSES", ())
    task = msgspec.structs.replace(TASK, repo="file:///nowhere/at/all")
    found = carry_out(order(task=task), "1", lambda: True)
    assert (found.result.outcome, found.is_unfit) == ("fault", True)


def _head_of_clone(address, folder):
    folder.mkdir()
    clone(address, "HEAD", folder, "ouro/x", 60)
    return git(folder, "rev-parse", "HEAD")


def test_c4_a_clone_of_a_folder_shares_no_file_with_it(tmp_path):
    shop = make_repository(tmp_path / "shop")
    assert _head_of_clone(f"file://{shop}", tmp_path / "clone") == git(shop, "rev-parse", "HEAD")
    objects = (tmp_path / "clone" / ".git" / "objects").rglob("*")
    assert {path.stat().st_nlink for path in objects if path.is_file()} == {1}


@pytest.mark.parametrize("name", ["shop", "a shop", "a%20b"])
def test_c4_a_folder_that_git_does_not_copy_is_fetched(tmp_path, name):
    shop = make_repository(tmp_path / name)
    (shop / ".git" / "objects" / "link").symlink_to(tmp_path)
    address = f"file://{quote(str(shop))}"
    assert _head_of_clone(address, tmp_path / "clone") == git(shop, "rev-parse", "HEAD")


def test_c4_a_branch_that_cannot_be_packed_does_not_run_the_paid_task_again(tmp_path, monkeypatch):
    shop = make_repository(tmp_path / "shop")

    def answer(_attempt, task, _max_cost):
        return TaskResult(id=task.id, repo=task.repo, outcome="done", branch="ouro/b/a")

    def fail(_state, _result):
        raise GitError("git failed: bundle")

    monkeypatch.setattr(remote.Attempt, "run", answer)
    monkeypatch.setattr(remote, "_make_bundle", fail)
    task = msgspec.structs.replace(TASK, repo=str(shop))
    parcel = carry_out(order(task=task), "1", lambda: True)
    assert (parcel.result.outcome, parcel.is_unfit) == ("fault", False)
    assert "could not pack the branch" in parcel.result.detail
