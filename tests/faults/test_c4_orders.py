"""Orders and parcels of a worker: another version, a full disk, a file that leaves the folder."""

import msgspec
import pytest

from ouro.batch import remote
from ouro.batch.remote import Order, Parcel, carry_out, receive
from ouro.batch.state import BatchState, TaskResult
from ouro.batch.tasks import Batch, Task
from ouro.utils.runtime import get_sessions_dir

TASK = Task(id="a", prompt="x", repo="/r")


def order(**more):
    return msgspec.msgpack.encode(Order(**{"version": "1", "name": "b", "task": TASK, "max_cost": None, **more}))  # fmt: skip


def test_a_worker_of_another_version_is_named():
    result = carry_out(order(version="9"), "1", lambda: True).result
    assert (result.id, result.outcome) == ("a", "fault")
    assert result.detail == "A worker has ouro 1, and 9 sent the task."


def test_an_order_holds_the_names_of_variables_and_no_value(monkeypatch):
    monkeypatch.setenv("SHOP_KEY", "very-secret")
    sent = order(variables=("SHOP_KEY", "OTHER_KEY"))
    assert b"very-secret" not in sent
    assert "lacks the variable OTHER_KEY" in carry_out(sent, "1", lambda: True).result.detail


def test_a_full_disk_on_a_worker_is_named_with_its_task(monkeypatch):
    def full(prefix):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(remote.tempfile, "mkdtemp", full)
    result = carry_out(order(), "1", lambda: True).result
    assert result.outcome == "fault"
    assert "space" in result.detail.lower()


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/escaped-by-a-worker"])
def test_a_session_of_a_worker_is_written_nowhere_else(tmp_path, name):
    state = BatchState(tmp_path / "state")
    state.begin(Batch("b", (TASK,)))
    parcel = Parcel(
        TaskResult(id="a", repo="/r", outcome="done"), session={name: b"x", "s/f": b"y"}
    )
    receive(state, TASK, msgspec.msgpack.encode(parcel))
    assert (get_sessions_dir() / "s" / "f").read_bytes() == b"y"
    assert not (get_sessions_dir() / name).exists()
