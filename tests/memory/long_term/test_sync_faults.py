"""Failures of a sync: each prints one clear line and loses nothing, and the next sync completes."""

import os
import random
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fakes.files import git
from fakes.synced_homes import in_this_process

from ouro.errors import OuroError
from ouro.memory.long_term import GitMemoryStore, sync, synchronize
from ouro.memory.long_term.sync_merge import SyncFailed


@pytest.fixture
def machines(tmp_path):
    return [
        GitMemoryStore(tmp_path / name / "memory", "user", tmp_path / name / "user.git")
        for name in ("a", "b")
    ]


def save(store, **texts):
    store.save_and_commit({f"{name}.md": text for name, text in texts.items()}, "Change", {})


def lines(store):
    return {line for path in store.folder.glob("*.md") for line in path.read_text().splitlines()}


def quota(remote):
    hook = Path(remote) / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho 'Your quota of 1 GB is used up.' >&2\nexit 1\n")
    hook.chmod(0o755)
    return "Your quota of 1 GB is used up; main (pre-receive hook declined).", hook.unlink


def full(remote):
    git(Path(remote), "config", "receive.maxInputSize", "10")
    return "pack exceeds maximum allowed size", lambda: git(
        Path(remote), "config", "--unset", "receive.maxInputSize"
    )


@pytest.mark.parametrize("fault", [quota, full])
def test_remote_that_cannot_store_more_is_reported(machines, remote, fault):
    one, two = machines
    save(one, facts="- Tea.\n")
    reason, mend = fault(remote)

    with pytest.raises(SyncFailed) as failure:
        synchronize(one, remote)

    assert failure.value.message.startswith(
        f"Memory cannot be synchronized with {remote}: {reason}"
    )
    assert lines(one) == {"- Tea."}
    mend()
    synchronize(one, remote)
    synchronize(two, remote)
    assert lines(two) == {"- Tea."}


def test_huge_remote_file_is_refused_before_the_download(machines, remote, tmp_path, monkeypatch):
    one, _ = machines
    save(one, facts="- Tea.\n")
    synchronize(one, remote)
    git(tmp_path, "clone", "--quiet", "--branch", "main", remote, "clone")
    (tmp_path / "clone" / "film.bin").write_bytes(random.Random(1).randbytes(4 << 20))
    git(tmp_path / "clone", "add", "-A")
    git(tmp_path / "clone", "commit", "-qm", "film")
    git(tmp_path / "clone", "push", "-q")
    monkeypatch.setattr(sync, "_MAX_RECEIVED_BYTES", 2 << 20)

    with pytest.raises(SyncFailed, match="sent more than 2 MB: nothing is merged"):
        synchronize(one, remote)

    assert lines(one) == {"- Tea."}
    assert (
        sum(each.stat().st_size for each in one.repository.git_dir.rglob("*") if each.is_file())
        < 100_000
    )
    assert git(one.folder, "fsck", "--strict") == ""


def test_local_disk_full_at_any_byte_loses_nothing(machines, remote):
    one, two = machines
    notes = {
        f"mem_{number:08x}": f"- Note {number} {random.Random(number).random()}\n"
        for number in range(40)
    }
    save(one, facts="- Tea.\n", **notes)
    save(
        two, facts="- Coffee.\n", decisions="".join(f"- Locks {number}.\n" for number in range(200))
    )
    mine = lines(two)
    synchronize(one, remote)

    said = [synchronize_with_room_for(size, two, remote) for size in (200, 1_000, 2_000, 3_500)]

    assert all(said[:3])
    assert all(text.count("\n") <= 1 for text in said)
    assert mine <= lines(two)
    synchronize(two, remote)
    synchronize(one, remote)
    assert lines(one) == lines(two) == mine | {"- Tea.", *(text.strip() for text in notes.values())}
    for store in machines:
        assert git(store.folder, "fsck", "--strict") == ""
        assert list(store.repository.git_dir.glob("objects/pack/tmp_*")) == []


def synchronize_with_room_for(size, store, remote):
    """Synchronise in a process with a limit on the size of files; returns the message to the user."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            sync._MAX_RECEIVED_BYTES = size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            synchronize(store, remote)
        except OuroError as error:
            os.write(write, str(error).encode())
        except BaseException as error:
            os.write(write, f"a defect:\n\n{error!r}".encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        return pipe.read()


def test_machines_that_sync_at_once_lose_nothing(machines, remote):
    for number, store in enumerate(machines):
        save(store, facts="".join(f"- {number} {each}.\n" for each in range(20)))

    for _ in range(2):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda store: synchronize(store, remote), machines))

    assert (
        lines(machines[0])
        == lines(machines[1])
        == {f"- {number} {each}." for number in (0, 1) for each in range(20)}
    )


def test_on_the_command_line_a_failed_sync_is_two_lines_and_exit_code_1(
    home, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)

    code, said = in_this_process(["memory", "sync", "--remote", "/no/such.git"], {}, tmp_path)

    assert (code, said) == (
        1,
        (
            "ouro: Memory cannot be synchronized with /no/such.git: "
            "'/no/such.git' does not appear to be a git repository.\n"
            "What is here is kept. Try again, or make it with `git init --bare /no/such.git`.\n"
        ),
    )


def test_merge_error_is_reported_even_if_cleanup_fails(machines, remote, monkeypatch):
    one, two = machines
    save(one, facts="x" * 300_000)
    save(two, facts="- Tea.\n")
    synchronize(one, remote)

    def full_disk(_history):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sync, "drop_unreachable", full_disk)
    with pytest.raises(SyncFailed, match="has 300,000 bytes"):
        synchronize(two, remote)

    assert lines(two) == {"- Tea."}


def test_a_remote_that_stays_locked_names_the_lock(machines, remote):
    one, _ = machines
    save(one, facts="- Tea.\n")
    lock = Path(remote) / "refs" / "heads" / "main.lock"
    lock.touch()

    with pytest.raises(SyncFailed, match=r"is locked there by .*main.lock") as failed:
        synchronize(one, remote)
    assert "remove it" in failed.value.hint
    lock.unlink()
    assert synchronize(one, remote).sent == 1


def test_a_folder_is_named_from_where_the_user_is(home, tmp_path, monkeypatch):
    git(tmp_path, "init", "-q", "--bare", "remote.git")
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    for words in (["memory", "sync", "--remote"], ["sessions", "sync"], ["sync"]):
        code, said = in_this_process([*words, "../remote.git"], {}, tmp_path / "project")
        assert code == 0, said
