"""S22: a remote of sessions that goes back, or loses, repeats and swaps chunks. No local record is
lost.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import mkdtemp

import pytest
from fakes.synced_homes import Machine, git

from ouro.errors import UsageError
from ouro.memory.session_remote import SessionRemote, chunk_name
from ouro.messages import ToolCall, ToolReply, assistant, tool, user

BRANCH = "refs/heads/ouro-sessions"
TEXTS = ("erste Frage", "deuxième", "третий", "四番目")


class Shared:
    """Two machines that have one session of four chunks, and a clone in which the host works."""

    def __init__(self, root, *, encrypt):
        root.mkdir(exist_ok=True)
        self.remote = root / "remote.git"
        git(root, "init", "-q", "--bare", "remote.git")
        self.one = Machine(root / "one", self.remote)
        self.two = Machine(root / "two", self.remote)
        self.root, self.encrypt = root, encrypt
        self.session = ""

    async def live(self):
        self.session = await self.one.start(TEXTS[0])
        self.sync_one()
        for text in TEXTS[1:]:
            await self.one.append(self.session, text)
            self.sync_one()
        self.share_key(self.two)
        self.two.sync()

    def keep(self):
        shutil.copytree(self.root, self.root.with_name("kept"), symlinks=True)

    def restore(self):
        shutil.rmtree(self.root)
        shutil.copytree(self.root.with_name("kept"), self.root, symlinks=True)
        self.one.open_store()
        self.two.open_store()

    def share_key(self, machine):
        if self.encrypt:
            machine.root.mkdir(exist_ok=True)
            shutil.copy(self.one.root / "sessions.key", machine.root / "sessions.key")

    def sync_one(self):
        return self.one.sync(encrypt=self.encrypt)

    @property
    def tip(self):
        return git(self.remote, "rev-parse", BRANCH).decode().strip()

    def change(self, change):
        """The host changes the files of the session, in a new commit on top of the branch."""
        clone = self.root / "clone"
        git(self.root, "clone", "-q", "-b", "ouro-sessions", str(self.remote), "clone")
        change(clone / "s" / self.session)
        git(clone, "add", "-A")
        git(clone, "commit", "-qm", "x")
        git(clone, "push", "-q")
        shutil.rmtree(clone)

    async def assert_nothing_lost(self, *machines):
        for machine in machines:
            assert await machine.user_texts(self.session) == list(TEXTS)

    async def assert_healed(self):
        """A new machine gets everything, and nothing is left to say."""
        three = Machine(self.root / "three", self.remote)
        self.share_key(three)
        report = three.sync()
        assert (report.notices, report.damaged, report.forks) == ((), (), ())
        await self.assert_nothing_lost(self.one, self.two, three)


@pytest.fixture(scope="module")
def made():
    """Machines after their first synchronizations, by whether they encrypt. Making them takes a
    hundred git processes, and a copy has the same place.
    """
    return {}


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
async def shared(request, memory_folder, made):
    encrypt = request.param
    if encrypt not in made:
        shared = Shared(Path(mkdtemp(dir=memory_folder)) / "now", encrypt=encrypt)
        await shared.live()
        shared.keep()
        made[encrypt] = shared
    made[encrypt].restore()
    return made[encrypt]


def chunks(folder):
    return sorted((folder / "chunks").iterdir())


@pytest.mark.parametrize("back", [1, 2, 3])
async def test_s22_branch_that_was_set_back_gets_everything_again(shared, back):
    git(shared.remote, "update-ref", BRANCH, f"{shared.tip}~{back}")

    report = shared.two.sync()

    assert report.restored == report.sent == (shared.session,)
    assert (report.received, report.forks) == ((), ())
    assert "went back" in " ".join(report.notices)
    await shared.assert_healed()
    assert shared.two.sync().notices == ()


async def test_s22_emptied_remote_gets_everything_again(shared):
    git(shared.remote, "update-ref", "-d", BRANCH)

    report = shared.two.sync(encrypt=shared.encrypt)

    assert report.restored == (shared.session,)
    assert "is empty" in " ".join(report.notices)
    await shared.assert_healed()


async def test_s22_messages_from_here_are_sent_to_a_branch_that_was_set_back(shared):
    await shared.two.append(shared.session, "auf zwei")
    git(shared.remote, "update-ref", BRANCH, f"{shared.tip}~2")

    report = shared.two.sync()

    assert (report.sent, report.forks) == ((shared.session,), ())
    assert shared.sync_one().received == (shared.session,)
    for machine in (shared.one, shared.two):
        assert await machine.user_texts(shared.session) == [*TEXTS, "auf zwei"]


async def test_s22_branch_that_was_set_back_and_continued_elsewhere_becomes_a_fork(shared):
    git(shared.remote, "update-ref", BRANCH, f"{shared.tip}~2")
    three = Machine(shared.root / "other", shared.remote)
    shared.share_key(three)
    three.sync()
    await three.append(shared.session, "anders")
    three.sync()

    report = shared.two.sync()

    [fork] = report.forks
    assert await shared.two.user_texts(fork) == list(TEXTS)
    assert await shared.two.user_texts(shared.session) == [*TEXTS[:2], "anders"]
    assert "went back" in " ".join(report.notices)


@pytest.mark.parametrize("number", range(4))
async def test_s22_dropped_chunk_is_sent_again(shared, number):
    shared.change(lambda folder: chunks(folder)[number].unlink())

    report = shared.two.sync()

    assert (report.restored, report.received, report.forks) == ((shared.session,), (), ())
    assert bool(report.notices) == shared.encrypt  # only a sealed state shows who wrote it
    await shared.assert_healed()


@pytest.mark.parametrize("number", range(4))
async def test_s22_replayed_chunk_is_not_taken(shared, number):
    def replay(folder):
        data = chunks(folder)[number].read_bytes()
        (folder / "chunks" / chunk_name(4, data)).write_bytes(data)

    shared.change(replay)

    report = shared.two.sync()

    assert (report.received, report.forks) == ((), ())
    await shared.assert_healed()


async def test_s22_replayed_records_in_a_chunk_of_other_bytes_are_not_taken(tmp_path):
    shared = Shared(tmp_path, encrypt=False)
    await shared.live()

    def replay(folder):
        data = b"".join(chunk.read_bytes() for chunk in chunks(folder)[1::2])
        (folder / "chunks" / chunk_name(4, data)).write_bytes(data)

    shared.change(replay)

    assert shared.two.sync().received == ()
    await shared.assert_healed()


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 2), (2, 3), (0, 3)])
async def test_s22_swapped_chunks_are_put_right(shared, first, second):
    def swap(folder):
        one, two = chunks(folder)[first], chunks(folder)[second]
        data = one.read_bytes(), two.read_bytes()
        one.unlink()
        two.unlink()
        (folder / "chunks" / chunk_name(first, data[1])).write_bytes(data[1])
        (folder / "chunks" / chunk_name(second, data[0])).write_bytes(data[0])

    shared.change(swap)

    report = shared.two.sync()

    assert (report.received, report.forks) == ((), ())
    await shared.assert_healed()


async def test_s22_chunk_with_other_bytes_than_its_name_says_is_replaced(tmp_path):
    shared = Shared(tmp_path, encrypt=False)
    await shared.live()

    def change(folder):
        chunk = chunks(folder)[1]
        chunk.write_bytes(chunk.read_bytes().replace(b"deux", b"trois"))

    shared.change(change)
    new = Machine(shared.root / "new", shared.remote)

    assert new.sync().skipped == (shared.session,)
    await shared.one.append(shared.session, "fünf")
    assert shared.sync_one().sent == (shared.session,)
    assert new.sync().received == (shared.session,)
    assert await new.user_texts(shared.session) == [*TEXTS, "fünf"]


async def test_s22_shortened_session_with_whole_numbers_keeps_the_local_one_as_a_fork(tmp_path):
    shared = Shared(tmp_path, encrypt=False)
    await shared.live()

    def shorten(folder):
        kept = b"".join(
            chunk.read_bytes() for chunk in chunks(folder) if "000001" not in chunk.name
        )
        shutil.rmtree(folder / "chunks")
        (folder / "chunks").mkdir()
        (folder / "chunks" / chunk_name(0, kept)).write_bytes(kept)

    shared.change(shorten)

    [fork] = shared.two.sync().forks
    assert await shared.two.user_texts(fork) == list(TEXTS)
    assert await shared.two.user_texts(shared.session) == [TEXTS[0], *TEXTS[2:]]


async def test_s22_damaged_session_with_new_messages_waits_for_the_machine_that_has_them(shared):
    await shared.one.append(shared.session, "fünf")
    shared.sync_one()
    shared.change(lambda folder: chunks(folder)[1].unlink())

    report = shared.two.sync()

    assert (report.damaged, report.received, report.sent) == ((shared.session,), (), ())
    await shared.assert_nothing_lost(shared.two)
    assert shared.sync_one().restored == (shared.session,)
    assert shared.two.sync().received == (shared.session,)
    assert await shared.two.user_texts(shared.session) == [*TEXTS, "fünf"]


async def test_s22_new_chunk_that_is_repeated_is_not_taken_twice(tmp_path):
    shared = Shared(tmp_path, encrypt=False)
    await shared.live()
    await shared.one.append(shared.session, "fünf")
    shared.sync_one()

    def replay(folder):
        data = chunks(folder)[4].read_bytes()
        (folder / "chunks" / chunk_name(5, data)).write_bytes(data)

    shared.change(replay)

    assert shared.two.sync().damaged == (shared.session,)
    await shared.assert_nothing_lost(shared.two)


async def test_s22_session_without_its_header_is_sent_again(shared):
    shared.change(lambda folder: (folder / "header").unlink())

    assert shared.two.sync().restored == (shared.session,)
    await shared.assert_healed()


async def test_s22_lost_outputs_are_sent_again(shared):
    call = assistant("", ToolCall("c", "read", {}))
    await shared.one.append(
        shared.session, call, tool(ToolReply("c", "read", "много слов " * 5_000))
    )
    shared.sync_one()
    shared.two.sync()
    shared.change(lambda folder: shutil.rmtree(folder / "outputs"))

    assert shared.two.sync().restored == (shared.session,)

    three = Machine(shared.root / "three", shared.remote)
    shared.share_key(three)
    three.sync()
    assert await three.messages(shared.session) == await shared.one.messages(shared.session)


async def test_s22_old_state_in_a_new_commit_is_named_where_it_is_sealed(tmp_path):
    shared = Shared(tmp_path, encrypt=True)
    await shared.live()
    old = git(shared.remote, "rev-parse", f"{shared.tip}~2^{{tree}}").decode().strip()
    new = git(shared.remote, "commit-tree", old, "-p", shared.tip, "-m", "x").decode().strip()
    git(shared.remote, "update-ref", BRANCH, new)

    report = shared.two.sync()

    assert report.restored == (shared.session,)
    assert "went back" in " ".join(report.notices)
    assert b"generation" not in (shared.two.root / "sessions.git/ouro/newest").read_bytes()
    await shared.assert_healed()


async def test_s22_killed_sync_still_names_the_rollback_the_next_time(shared, monkeypatch):
    git(shared.remote, "update-ref", BRANCH, f"{shared.tip}~2")
    with monkeypatch.context() as kill:

        def die(*_):
            raise KeyboardInterrupt

        kill.setattr("ouro.memory.session_remote.SessionRemote.push", die)
        with pytest.raises(KeyboardInterrupt):
            shared.two.sync()

    report = shared.two.sync()

    assert report.restored == (shared.session,)
    assert "went back" in " ".join(report.notices)


async def test_s22_user_and_machine_with_equal_handwritten_records_are_no_replay(shared):
    same = user("да")
    await shared.one.append(shared.session, same)
    await shared.one.append(shared.session, same)
    shared.sync_one()

    assert shared.two.sync().received == (shared.session,)


def test_s22_a_sealed_blob_is_bound_to_its_place(tmp_path):
    """Otherwise the host could pass one session's text, sealed with the right key, as another's."""
    remote = SessionRemote(tmp_path / "here", tmp_path / "sessions.key", str(tmp_path / "remote"))
    remote._key = os.urandom(32)
    sealed = remote.seal("s/one/chunks/0001-abc", "письмо".encode())
    assert remote.unseal("s/one/chunks/0001-def", sealed) == "письмо".encode()
    for place in ("s/two/chunks/0001-abc", "s/one/chunks/0002-abc", "s/one/header", "format"):
        with pytest.raises(UsageError, match="cannot be opened"):
            remote.unseal(place, sealed)
