"""S24: a machine that has the key of encrypted sessions sends nothing without encryption, whatever
the remote is and however it is spelled.
"""

from __future__ import annotations

import shutil

import pytest
from fakes.synced_homes import Machine, git

from ouro.errors import UsageError

BRANCH = "refs/heads/ouro-sessions"


def make_remote(root, name):
    git(root, "init", "-q", "--bare", name)
    return root / name


def holds_plain_text(remote, words=b"heron"):
    return words in git(remote, "cat-file", "--batch", "--batch-all-objects")


@pytest.fixture
def remote(tmp_path):
    return make_remote(tmp_path, "remote.git")


@pytest.fixture
async def one(tmp_path, remote):
    """A machine whose sessions are encrypted at `remote`."""
    machine = Machine(tmp_path / "one", remote)
    await machine.start("the heron flies")
    machine.sync(encrypt=True)
    return machine


def spellings(remote):
    return (
        f"{remote}/",
        f"file://{remote}",
        f"file://localhost{remote}",
        f"{remote.parent}/./{remote.name}",
        f"{remote.parent}/../{remote.parent.name}/{remote.name}",
    )


async def test_s24_second_machine_with_the_key_and_an_empty_remote(one, tmp_path):
    two = Machine(tmp_path / "two", make_remote(tmp_path, "new.git"))
    shutil.copy(one.root / "sessions.key", two.root / "sessions.key")
    await two.start("the heron sleeps")

    two.sync()

    assert not holds_plain_text(two.remote)
    assert len(one.sync(remote=two.remote).received) == 1


@pytest.mark.parametrize("number", range(5))
async def test_s24_emptied_remote_that_is_spelled_otherwise(one, remote, number):
    git(remote, "update-ref", "-d", BRANCH)

    one.sync(remote=spellings(remote)[number])

    assert not holds_plain_text(remote)


@pytest.mark.parametrize("number", range(5))
async def test_s24_plain_remote_that_is_spelled_otherwise_gets_nothing(
    one, remote, tmp_path, number
):
    """The host removed the encryption: another machine without the key wrote plain sessions."""
    git(remote, "update-ref", "-d", BRANCH)
    other = Machine(tmp_path / "other", remote)
    await other.start("plain words")
    other.sync()

    with pytest.raises(UsageError, match="not encrypted"):
        one.sync(remote=spellings(remote)[number])

    assert not holds_plain_text(remote)


async def test_s24_plain_remote_of_another_name_gets_nothing(one, tmp_path):
    other = Machine(tmp_path / "other", make_remote(tmp_path, "plain.git"))
    await other.start("plain words")
    other.sync()

    with pytest.raises(UsageError, match="not encrypted"):
        one.sync(remote=other.remote)

    assert not holds_plain_text(other.remote)


async def test_s24_lost_key_is_no_reason_to_send_plain_text(one, tmp_path):
    (one.root / "sessions.key").unlink()
    empty = make_remote(tmp_path, "empty.git")

    one.sync(remote=empty)

    assert not holds_plain_text(empty)
    assert (one.root / "sessions.key").exists()


async def test_s24_plain_is_said_and_not_remembered(one, tmp_path):
    other = make_remote(tmp_path, "plain.git")

    one.sync(remote=other, plain=True)

    assert holds_plain_text(other)
    await one.start("the second heron")
    with pytest.raises(UsageError, match="not encrypted"):
        one.sync(remote=other)
    assert not holds_plain_text(other, b"second heron")


async def test_s24_remote_that_was_encrypted_gets_no_plain_text_on_request_either(one, remote):
    git(remote, "update-ref", "-d", BRANCH)

    one.sync(plain=True)

    assert not holds_plain_text(remote)


def test_s24_the_command_names_the_refusal_and_the_flag(ouro, tmp_path):
    first, second = make_remote(tmp_path, "a.git"), make_remote(tmp_path, "b.git")
    ouro.headless("-p", "say: the heron flies")
    assert ouro.headless("sessions", "sync", str(second)).code == 0
    assert ouro.headless("sessions", "sync", str(first), "--encrypt").code == 0

    refused = ouro.headless("sessions", "sync", str(second))
    both = ouro.headless("sessions", "sync", str(second), "--plain", "--encrypt")
    plain = ouro.headless("sessions", "sync", str(second), "--plain")

    assert (refused.code, both.code, plain.code) == (2, 2, 0)
    assert "--plain" in refused.err
    assert not holds_plain_text(first)
