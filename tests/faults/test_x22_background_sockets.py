"""X22: who may use the socket of a background session, and what a viewer can do to its host."""

import asyncio
import json
import os
import socket
import stat

import pytest
from fakes.fake_session import FakeSession, says
from fakes.waiting import PATIENCE

from ouro.errors import HostGone, SessionInUse, SocketRefused
from ouro.frontends.background.connection import HostConnection, HostRefused
from ouro.frontends.background.host import SessionHost
from ouro.session.background_record import (
    BackgroundPlace,
    BackgroundRecord,
    Claim,
    find_record,
    forget_record,
    read_records,
)
from ouro.utils import private_socket
from ouro.utils.ouro_paths import get_background_dir
from ouro.utils.private_socket import connect, ensure_private_folder, has_socket, listen

OTHER = 4_242
ID = "3f6c1e2a-0000-4000-8000-000000000000"
RECORD = BackgroundRecord(ID, 1, "/project", "2026-11-28T20:00:00.000Z")


@pytest.fixture
def folder(home):
    return ensure_private_folder(get_background_dir())


class Running:
    """A host in this process, with a session that plays turns."""

    def __init__(self, turns=()):
        self.session = FakeSession(turns, session_id=ID)
        self.host = SessionHost(self.session, Claim(ID), idle_minutes=0)

    async def __aenter__(self):
        self.serving = asyncio.create_task(self.host.serve(await self.host.listen()))
        return self

    async def __aexit__(self, *_):
        self.host.end("signal")
        await self.serving

    async def raw(self):
        """A connection without the protocol."""
        return await asyncio.open_unix_connection(sock=connect(BackgroundPlace(ID).socket))


async def test_x22_the_host_refuses_a_process_of_another_user(home, monkeypatch):
    async with Running() as running:
        connection = await HostConnection.open(RECORD)
        assert (await connection.state()).id == ID
        await connection.close()
        strange = socket.socket(socket.AF_UNIX)
        with private_socket._address(running.host._claim.place.socket) as address:
            strange.connect(address)
        monkeypatch.setattr(private_socket, "peer_uid", lambda _connection: OTHER)
        reader, writer = await asyncio.open_unix_connection(sock=strange)
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        assert running.host.viewers == []
        writer.close()


def test_x22_a_viewer_sends_nothing_to_a_process_of_another_user(folder, monkeypatch):
    server = listen(folder / "a.sock")
    monkeypatch.setattr(private_socket, "peer_uid", lambda _connection: OTHER)

    with pytest.raises(SocketRefused, match="is not yours"):
        connect(folder / "a.sock")

    accepted, _ = server.accept()
    assert accepted.recv(100) == b""
    accepted.close()
    server.close()


def test_x22_no_process_is_accepted_if_the_system_does_not_name_its_user(folder, monkeypatch):
    server = listen(folder / "a.sock")

    def fail(_connection):
        raise OSError("not known")

    monkeypatch.setattr(private_socket, "peer_uid", fail)
    with pytest.raises(SocketRefused):
        connect(folder / "a.sock")
    server.close()


def test_x22_a_socket_of_another_user_is_neither_used_nor_deleted(folder, monkeypatch):
    path = BackgroundPlace(ID).socket
    server = listen(path)
    monkeypatch.setattr(private_socket, "own_uid", lambda: OTHER)

    for act in (lambda: connect(path), lambda: has_socket(path)):
        with pytest.raises(
            SocketRefused, match=f"belongs to the user with the number {os.getuid()}"
        ):
            act()

    assert path.exists()
    server.close()


def test_x22_a_folder_of_another_user_is_neither_used_nor_changed(folder, monkeypatch):
    monkeypatch.setattr(private_socket, "own_uid", lambda: OTHER)
    for act in (lambda: listen(folder / "a.sock"), lambda: Claim(ID), read_records):
        with pytest.raises(SocketRefused, match="not to you"):
            act()
    assert list(folder.iterdir()) == []


def test_x22_folder_and_socket_are_private(folder):
    folder.chmod(0o777)
    server = listen(folder / "a.sock")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "a.sock").stat().st_mode) == 0o600
    server.close()


def test_x22_a_link_instead_of_the_folder_is_refused(home, tmp_path):
    get_background_dir().parent.mkdir(mode=0o700, exist_ok=True)
    get_background_dir().symlink_to(tmp_path)
    with pytest.raises(SocketRefused, match="is not a folder"):
        listen(get_background_dir() / "a.sock")
    assert list(tmp_path.iterdir()) == []


def test_x22_a_file_in_the_place_of_a_socket_stays(folder):
    path = BackgroundPlace(ID).socket
    path.write_text("mine")
    for act in (lambda: connect(path), lambda: forget_record(ID)):
        with pytest.raises(SocketRefused, match="is not a socket"):
            act()
    assert path.read_text() == "mine"


async def test_x22_a_host_does_not_start_over_something_else(folder):
    path = BackgroundPlace(ID).socket
    path.write_text("mine")
    host = SessionHost(FakeSession(session_id=ID), Claim(ID), idle_minutes=0)
    with pytest.raises(SocketRefused):
        await host.listen()
    assert path.read_text() == "mine"
    await host.turns.close()


async def test_x22_a_stale_socket_is_named_and_only_its_next_host_replaces_it(folder):
    path = BackgroundPlace(ID).socket
    listen(path).close()
    with pytest.raises(HostGone, match="No process listens"):
        connect(path)
    assert path.exists()
    async with Running():
        connection = await HostConnection.open(RECORD)
        assert (await connection.state()).activity == "idle"
        await connection.close()
    assert not path.exists()


def test_x22_a_session_has_one_host(folder):
    claim = Claim(ID)
    with pytest.raises(SessionInUse, match="already runs"):
        Claim(ID)
    with pytest.raises(HostGone, match="still runs"):
        forget_record(ID)
    assert BackgroundPlace(ID).is_alive
    claim.release()
    assert not BackgroundPlace(ID).is_alive


def test_x22_odd_records_are_skipped(folder):
    claim = Claim(ID)
    claim.write(RECORD)
    claim.release()
    (folder / "broken.json").write_text('{"id": ')
    (folder / "other.json").write_text(
        json.dumps({"id": "../../x", "pid": 1, "cwd": "/", "started_at": ""})
    )
    (folder / "pipe.json").symlink_to("/dev/zero")
    os.mkfifo(folder / "fifo.json")
    assert [record.id for record in read_records()] == [ID]
    assert find_record(ID[:6]).id == ID


async def test_x22_what_a_viewer_sends_does_not_end_the_host(home):
    async with Running([says("the answer")]) as running:
        for sent in (
            b"\xff\xfe garbage\n",
            b"[1, 2]\n",
            b'{"jsonrpc":"2.0","id":1,"method":"nothing/known"}\n',
            b'{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":7}\n',
            b'{"jsonrpc":"2.0","id":1,"method":"_ouro/send","params":{"draft":[]}}\n',
            b"[" * 100_000 + b"\n",
        ):
            _, writer = await running.raw()
            writer.write(sent)
            await writer.drain()
            writer.close()
        connection = await HostConnection.open(RECORD)
        with pytest.raises(HostRefused, match="not open any more"):
            await connection.answer("q1", choice="yes")
        with pytest.raises(HostRefused, match="No session other"):
            await connection.call("session/close", sessionId="other")
        connection.send("_ouro/send", draft={"text": "hi"}, later=False)
        async with asyncio.timeout(PATIENCE):
            while (await connection.state()).last_line != "the answer":
                await asyncio.sleep(0.01)
        await connection.close()


async def test_x22_a_viewer_that_does_not_read_is_dropped_and_the_turn_goes_on(home, monkeypatch):
    from ouro.events import TextDelta
    from ouro.frontends.background import viewer

    monkeypatch.setattr(viewer, "MAX_WAITING", 50)
    monkeypatch.setattr(viewer, "MAX_BYTES", 1_000)
    async with Running([[TextDelta("word " * 2_000)] * 400]) as running:
        _, deaf = await running.raw()
        can = {"clientCapabilities": {"_meta": {"ouro": True}}, "protocolVersion": 1}
        load = {"sessionId": ID, "cwd": "/", "mcpServers": []}
        for number, (method, params) in enumerate((("initialize", can), ("session/load", load))):
            deaf.write(
                json.dumps(
                    {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                ).encode()
                + b"\n"
            )
        async with asyncio.timeout(PATIENCE):
            while not running.host.viewers:
                await asyncio.sleep(0.01)
            connection = await HostConnection.open(RECORD)
            connection.send("_ouro/send", draft={"text": "hi"}, later=False)
            while running.host.viewers or (await connection.state()).activity != "idle":
                await asyncio.sleep(0.01)
        assert running.session.sent == ["hi"]
        await connection.close()
        deaf.close()
