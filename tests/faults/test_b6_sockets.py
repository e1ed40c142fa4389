"""B6: real listeners with a path in a home folder and elsewhere; confined commands connect to them."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ouro.doctor import _sandbox
from ouro.safety import Confinement
from ouro.safety.sandbox.sockets import _resolve_for_process
from ouro.settings import SandboxSettings

PYTHON = os.path.realpath(sys.executable)
CONNECT = """
import os, socket, sys
kind = socket.SOCK_DGRAM if "dgram" in sys.argv[1] else socket.SOCK_STREAM
with socket.socket(socket.AF_UNIX, kind) as client:
    os.chdir(os.path.dirname(sys.argv[1]))
    client.settimeout(5)
    client.connect(os.path.basename(sys.argv[1]))
    client.send(b"x")
    print("CONNECTED")
"""
PLACES = (
    ".colima/default/docker.sock",
    ".1password/agent.sock",
    ".local/share/containers/podman/machine/podman.sock",
    ".local/share/some program/with space.sock",
    "mysql/mysql.sock",
    ".gnupg/S.gpg-agent",
    "übung/ключ.sock",
    "logs/dgram",
    "agent",
)


@pytest.fixture
def home(monkeypatch) -> Iterator[Path]:
    """A home folder; the project is inside. Its name is short, as paths of sockets must be."""
    with tempfile.TemporaryDirectory(prefix="h") as name:
        folder = Path(os.path.realpath(name))
        (folder / "project").mkdir()
        monkeypatch.setenv("HOME", str(folder))
        yield folder


@pytest.fixture
def listen(home) -> Iterator:
    opened = []

    def start(name: str) -> Path:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        is_datagram = "dgram" in name
        server = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM if is_datagram else socket.SOCK_STREAM
        )
        opened.append(server)
        server.bind(str(path))
        if not is_datagram:
            server.listen()
        return path

    yield start
    for server in opened:
        server.close()


@pytest.fixture
def confinement(home, tmp_path) -> Confinement:
    made = Confinement(home / "project", tmp_path / "state", SandboxSettings())
    if made.chosen().sandbox.tier != "bubblewrap":
        pytest.skip("bubblewrap does not work here")
    return made


def connect(confinement: Confinement, path: Path, limits="workspace") -> str:
    argv = confinement.wrap([PYTHON, "-I", "-S", "-c", CONNECT, str(path)], limits)
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    return ended.stdout + ended.stderr


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("limits", ["workspace", "read"])
def test_b6_a_socket_in_the_home_folder_cannot_be_reached(home, listen, confinement, name, limits):
    path = listen(name)
    assert "CONNECTED" in subprocess.run(
        [PYTHON, "-c", CONNECT, path], capture_output=True, text=True, check=False
    ).stdout  # fmt: skip
    output = connect(confinement, path, limits)
    assert "Error" in output
    assert "CONNECTED" not in output


@pytest.mark.parametrize("bound", ["own.sock", "/proc/self/fd/{folder}/own.sock"])
def test_b6_a_socket_that_was_bound_in_its_folder_cannot_be_reached(home, confinement, bound):
    """/proc/net/unix has only what the program passed to `bind`."""
    folder = home / ".agent"
    folder.mkdir()
    code = (
        "import os, socket, time; folder = os.open('.', os.O_RDONLY); s = socket.socket(1)\n"
        f"s.bind(f'{bound}'); s.listen(); time.sleep(60)"
    )
    server = subprocess.Popen([PYTHON, "-c", code], cwd=folder)
    try:
        while not (folder / "own.sock").exists():
            assert server.poll() is None
        assert "CONNECTED" not in connect(confinement, folder / "own.sock")
    finally:
        server.kill()
        server.wait()


def test_b6_a_socket_that_was_renamed_or_is_a_link_cannot_be_reached(home, listen, confinement):
    path = listen(".ansible/cp.temporary")
    path.rename(path.with_name("cp"))
    (home / "link").symlink_to(path.with_name("cp"))
    for place in (path.with_name("cp"), home / "link"):
        assert "CONNECTED" not in connect(confinement, place)


def test_b6_a_listener_outside_is_not_reached_in_the_workspace(listen, confinement):
    assert "CONNECTED" not in connect(confinement, listen("project/run/db.sock"))


def test_b6_a_socket_that_a_variable_names_cannot_be_reached(
    home, listen, confinement, monkeypatch
):
    """It is not listed if its program is in another network, as that of rootless containers."""
    path = listen("c.sock")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    monkeypatch.setattr("ouro.safety.sandbox.sockets._SOCKET_LIST", os.devnull)
    assert "CONNECTED" not in connect(confinement, path)


def test_b6_a_command_reaches_its_own_sockets(home, confinement):
    code = """
import socket
for path in ("own.sock", "/tmp/own.sock"):
    with socket.socket(1) as server, socket.socket(1) as client:
        server.bind(path)
        server.listen()
        client.connect(path)
    print("CONNECTED")
"""
    argv = confinement.wrap([PYTHON, "-I", "-S", "-c", code], "workspace")
    ended = subprocess.run(argv, capture_output=True, text=True, cwd=home / "project", check=False)
    assert ended.stdout.count("CONNECTED") == 2, ended.stderr


def test_b6_a_process_that_ends_while_its_socket_is_resolved_is_no_error():
    ended = subprocess.Popen(["true"])
    os.waitid(
        os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT
    )  # its `cwd` is a link that leads nowhere
    try:
        assert _resolve_for_process(str(ended.pid), "agent") == ""
    finally:
        ended.wait()


def test_b6_doctor_names_the_sockets_that_each_tier_leaves_open(home, confinement):
    (finding,) = [found for found in _sandbox(home) if "leaves open" in found.text]
    assert "sockets with a path that are made while a command runs" in finding.text
