"""Sessions of two machines over a real git remote (S21)."""

from __future__ import annotations

import re
import shutil

import pytest
from fakes.synced_homes import Machine, git

from ouro.errors import MemoryUnusable, SessionError, UsageError
from ouro.memory.manager import MemoryManager
from ouro.memory.session_remote import SessionRemote, chunk_name
from ouro.memory.sessions.session_file import rewrite_file
from ouro.memory.sessions.session_folders import SUBAGENTS
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import ToolCall, ToolReply, assistant, tool, user

CUT = "---\nmessage: 1\nrole: user\ntext: cut"
LONG = "an output of many words " * 1_500


@pytest.fixture
def remote(tmp_path):
    git(tmp_path, "init", "-q", "--bare", "remote.git")
    return tmp_path / "remote.git"


@pytest.fixture
def machines(tmp_path, remote):
    return Machine(tmp_path / "one", remote), Machine(tmp_path / "two", remote)


async def test_session_continues_on_both_machines_sending_only_new_records(machines):
    one, two = machines
    calls = (assistant("Look.", ToolCall("c", "read", {})), tool(ToolReply("c", "read", LONG)))
    session = await one.start("first", "second")
    await one.append(session, *calls)
    report = one.sync()
    assert (report.sent, report.received) == ((session,), ())
    assert two.sync().received == (session,)
    assert await two.messages(session) == await one.messages(session)
    assert (await two.infos())[session].project == str(two.project / "sub")
    await two.append(session, "from two")
    sent = two.sync()
    assert sent.sent == (session,)
    assert sent.bytes_sent < 200 < report.bytes_sent
    assert one.sync().received == (session,)
    assert (await one.user_texts(session))[-1] == "from two"
    for machine in machines:
        nothing = machine.sync()
        assert (nothing.sent, nothing.received, nothing.bytes_sent) == ((), (), 0)


async def test_outputs_are_there_after_a_kill_behind_the_records(machines, monkeypatch):
    one, two = machines
    session = await one.start("first")
    one.sync()
    two.sync()
    calls = (assistant("Look.", ToolCall("c", "read", {})), tool(ToolReply("c", "read", LONG)))
    await one.append(session, *calls)
    one.sync()

    def rewrite_and_die(*arguments):
        rewrite_file(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as kill:
        kill.setattr("ouro.memory.session_sync.rewrite_file", rewrite_and_die)
        with pytest.raises(KeyboardInterrupt):
            two.sync()
    two.sync()
    assert await two.messages(session) == await one.messages(session)


async def test_session_continued_on_both_machines_becomes_a_fork(machines):
    one, two = machines
    session = await one.start("first")
    one.sync()
    two.sync()
    await one.append(session, "on one")
    await two.append(session, "on two")
    one.sync()
    report = two.sync()
    [fork] = report.forks
    assert await two.user_texts(session) == ["first", "on one"]
    assert await two.user_texts(fork) == ["first", "on two"]
    assert (await two.infos())[fork].fork_of == session
    assert one.sync().received == (fork,)
    assert await one.user_texts(fork) == ["first", "on two"]
    assert one.sync().sent == two.sync().sent == ()


async def test_subagent_transcript_is_synced_with_its_session(machines):
    one, two = machines
    session = await one.start("first")
    [folder] = [path for path in (one.root / "sessions").iterdir() if path.is_dir()]
    subagents = YamlFileMemoryStore(folder / SUBAGENTS)
    child = MemoryManager.start(subagents, project=str(one.project), model="m")
    await child.add(user("find the parser"))
    await child.add(assistant("", ToolCall("c", "read", {})))
    await child.add(tool(ToolReply("c", "read", LONG)))
    assert one.sync(encrypt=True).sent == (session,)
    (two.root / "sessions.key").write_bytes((one.root / "sessions.key").read_bytes())
    assert two.sync().received == (session,)
    await child.add(assistant("in parser.py"))
    await child.close()
    assert (one.sync().sent, two.sync().received) == ((session,), (session,))
    assert set(await two.infos()) == {session}
    [there] = (two.root / "sessions").glob("2*")
    loaded = await MemoryManager.resume(
        YamlFileMemoryStore(there / SUBAGENTS), child.session_id, project="", read_only=True
    )
    assert loaded.messages() == child.messages()
    await two.store.delete_session(session)
    assert (one.sync().received, two.sync().received, set(await two.infos())) == ((), (), set())


async def test_s21_concurrent_pushes_both_arrive(machines, monkeypatch):
    one, two = machines
    first, second = await one.start("on one"), await two.start("on two")
    push, others = SessionRemote.push, [two]

    def push_after_the_other(self, commit):
        if others:
            others.pop().sync()
        return push(self, commit)

    monkeypatch.setattr(SessionRemote, "push", push_after_the_other)
    one.sync()
    two.sync()
    for machine in machines:
        assert set(await machine.infos()) == {first, second}


async def test_open_session_is_skipped_and_a_deleted_one_stays_deleted(machines):
    one, two = machines
    kept, gone = await one.start("first"), await one.start("other")
    one.sync()
    two.sync()
    await one.append(kept, "more")
    await one.append(gone, "more")
    one.sync()
    held = await MemoryManager.resume(two.store, kept, project="")
    await held.pager.finish_loading()
    await two.store.delete_session(gone)
    assert two.sync().skipped == (kept,)
    await held.add(user("meanwhile"))
    await held.close()
    [fork] = two.sync().forks
    assert await two.user_texts(fork) == ["first", "meanwhile"]
    assert set(await two.infos()) == {kept, fork}


async def test_file_edited_elsewhere_replaces_the_one_here_which_becomes_a_fork(machines):
    one, two = machines
    session = await one.start("first", "secind")
    one.sync()
    two.sync()
    [file] = (one.root / "sessions").glob("*/session.yaml")
    file.write_text(file.read_text().replace("secind", "second"))
    assert one.sync().sent == (session,)
    [fork] = two.sync().forks
    assert await two.user_texts(session) == ["first", "second"]
    assert await two.user_texts(fork) == ["first", "secind"]


async def test_s21_encrypted_remote_needs_the_key_and_has_no_plain_text(machines, remote):
    one, two = machines
    session = await one.start("the heron flies")
    one.sync(encrypt=True)
    blobs = git(remote, "cat-file", "--batch", "--batch-all-objects")
    assert b"heron" not in blobs
    assert b"project" not in blobs
    with pytest.raises(UsageError, match="the key is not here"):
        two.sync()
    key = two.root / "sessions.key"
    key.write_text("no key")
    with pytest.raises(UsageError, match="is not a key"):
        two.sync()
    key.write_text("A" * 43 + "=")
    with pytest.raises(UsageError, match="cannot be opened with"):
        two.sync()
    key.write_bytes((one.root / "sessions.key").read_bytes())
    assert two.sync().received == (session,)
    assert await two.user_texts(session) == ["the heron flies"]
    # The remote contains nothing encrypted: no text may be sent to it.
    git(remote, "update-ref", "-d", "refs/heads/ouro-sessions")
    plain = Machine(one.root.parent / "three", remote)
    await plain.start("x")
    plain.sync()
    with pytest.raises(UsageError, match="are not encrypted"):
        one.sync()


async def test_s21_forged_remote_sessions_are_skipped(machines, remote, tmp_path):
    one, two = machines
    session = await one.start("first")
    one.sync()
    git(tmp_path, "clone", "-q", "-b", "ouro-sessions", str(remote), "clone")
    clone = tmp_path / "clone"
    renamed, cut, lost = (f"{digit * 8}-1111-4111-8111-111111111111" for digit in "123")
    header = (clone / f"s/{session}/header").read_text()
    [chunk] = (clone / f"s/{session}/chunks").iterdir()
    for name, text in {
        "s/..%2f/header": "{}",
        f"s/{renamed}/header": header,
        f"s/{renamed}/chunks/{chunk.name}": chunk.read_text(),
        f"s/{cut}/header": header.replace(session, cut),
        f"s/{cut}/chunks/{chunk_name(0, CUT.encode())}": CUT,
        f"s/{session}/outputs/evil": "x",
        f"s/{session}/subagents/..%2f/header": header,
        f"s/{cut}/subagents/{renamed}/header": header,
        f"s/{session}/subagents/{lost}/header": (
            header.replace(session, lost).replace("/work", "/etc")
        ),
        f"s/{session}/subagents/{session}/header": header,
    }.items():
        path = clone / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(clone, "add", "-A")
    git(clone, "commit", "-qm", "x")
    git(clone, "push", "-q")
    report = two.sync()
    assert (report.received, report.skipped) == ((session,), (renamed, cut))
    assert set(await two.infos()) == {session}
    assert not list(two.root.rglob("evil"))


def test_unreachable_remote_is_reported_without_its_password(machines):
    with pytest.raises(MemoryUnusable) as failure:
        machines[0].sync(remote="/no/such.git")
    reason = "'/no/such.git' does not appear to be a git repository."
    assert failure.value.message == f"Sessions cannot be synchronized with /no/such.git: {reason}"
    with pytest.raises(
        MemoryUnusable, match=r"with https://127\.0\.0\.1:1/a\.git: unable to access"
    ) as failure:
        machines[0].sync(remote="https://me:word@127.0.0.1:1/a.git")
    assert "word" not in failure.value.message


BAD_FORMATS = {
    "empty": "", "list": "[]", "cut": "{", "number": '{"sealed": 7}', "check": '{"check": "?"}', "bytes": "\udcff",
    "deep": '{"x": ' * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("text", BAD_FORMATS.values(), ids=BAD_FORMATS)
async def test_s21_malformed_format_file_is_reported(machines, remote, tmp_path, text):
    one, two = machines
    await one.start("first")
    one.sync()
    git(tmp_path, "clone", "-q", "-b", "ouro-sessions", str(remote), "clone")
    (tmp_path / "clone/format").write_text(text, errors="surrogateescape")
    git(tmp_path / "clone", "commit", "-qam", "x")
    git(tmp_path / "clone", "push", "-q")
    with pytest.raises(UsageError, match="`format` of the remote cannot be read"):
        two.sync()


async def test_file_missing_in_the_local_copy_is_reported(machines):
    one, _ = machines
    await one.start("first")
    one.sync()
    there = SessionRemote(one.root / "sessions.git", one.root / "sessions.key", str(one.remote))
    with pytest.raises(MemoryUnusable, match="a file of the history is missing"):
        there.read({"format": "0" * 40})


async def test_s21_sealed_remote_without_its_check_is_reported(machines, remote, tmp_path):
    one, two = machines
    await one.start("first")
    one.sync(encrypt=True)
    (two.root / "sessions.key").write_bytes((one.root / "sessions.key").read_bytes())
    git(tmp_path, "clone", "-q", "-b", "ouro-sessions", str(remote), "clone")
    (tmp_path / "clone/format").write_text('{"format": 1, "sealed": true}')
    git(tmp_path / "clone", "commit", "-qam", "x")
    git(tmp_path / "clone", "push", "-q")
    with pytest.raises(UsageError, match="`format` of the remote cannot be opened"):
        two.sync()


FORGED = {
    "above": '"created_at": "../../../x"',
    "beside": '"created_at": "../two/ab/"',
    "words": '"created_at": "yesterday"',
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
async def test_s21_forged_date_of_a_session_names_no_folder_elsewhere(
    machines, remote, tmp_path, forged
):
    one, two = machines
    session = await one.start("first")
    one.sync()
    new = "11111111-1111-4111-8111-111111111111"
    forge(
        remote,
        tmp_path,
        session,
        new,
        lambda header: re.sub(r'"created_at": "[^"]*"', forged, header),
    )

    report = two.sync()

    assert (report.received, report.skipped) == ((session,), (new,))
    assert not [path for path in tmp_path.parent.rglob("*11111111*") if "clone" not in path.parts]


HEADERS = {"list": "[]", "text": '"a"', "deep": '{"x": ' * 100_000, "nothing": "null"}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
async def test_s21_malformed_header_skips_only_its_session(machines, remote, tmp_path, header):
    one, two = machines
    session = await one.start("first")
    one.sync()
    new = "11111111-1111-4111-8111-111111111111"
    forge(remote, tmp_path, session, new, lambda _: header)

    report = two.sync()

    assert (report.received, report.skipped) == ((session,), (new,))


async def test_s21_packed_zeros_of_a_remote_are_not_unpacked(
    machines, remote, tmp_path, monkeypatch
):
    monkeypatch.setattr("ouro.memory.session_remote._MAX_READ_BYTES", 1 << 20)
    one, two = machines
    session = await one.start("first")
    one.sync()
    new = "11111111-1111-4111-8111-111111111111"
    record = "---\nmessage: {}\nrole: user\ntext: {}\n...\n"
    big = [record.format(n, "x" * (1 << 19)).encode() for n in (2, 3, 4)]
    forge(
        remote,
        tmp_path,
        session,
        new,
        str,
        {f"chunks/{chunk_name(n, data)}": data for n, data in enumerate(big, 1)},
    )

    report = two.sync()

    assert (report.received, report.skipped) == ((session,), (new,))


def forge(remote, folder, session, new, change, more=()):
    """Push a session `new` that is a copy of another one, with a changed header and more files."""
    git(folder, "clone", "-q", "-b", "ouro-sessions", str(remote), "clone")
    old, place = folder / f"clone/s/{session}", folder / f"clone/s/{new}"
    shutil.copytree(old, place)
    (place / "header").write_text(change((old / "header").read_text().replace(session, new)))
    for name, data in dict(more).items():
        (place / name).write_bytes(data)
    git(folder / "clone", "add", "-A")
    git(folder / "clone", "commit", "-qm", "x")
    git(folder / "clone", "push", "-q")


async def test_a_remote_that_stays_locked_names_the_lock(machines, remote):
    one, _ = machines
    await one.start("hello")
    (remote / "refs" / "heads" / "ouro-sessions.lock").touch()
    with pytest.raises(SessionError, match=r"is locked there by .*ouro-sessions.lock"):
        one.sync()
