"""B1, B2, B3: attacks of a confined command run as real processes; the test looks for their effects
on the host.
"""

import ctypes
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ouro.safety import Confinement
from ouro.safety.sandbox.landlock import abi
from ouro.safety.sandbox.sandboxes import (
    Bubblewrap,
    Landlock,
    Sandbox,
    SandboxPolicy,
    _find_bwrap,
    _self_test,
)
from ouro.settings import SandboxSettings

PYTHON = Path(os.path.realpath(sys.executable))
SECRET = "s3cr3t-of-the-host"
STAYING = f"864{os.getpid()}"
"""The argument of a sleep that no other run of these tests uses."""
LIBC = "libc = ctypes.CDLL(None, use_errno=True); "


def program(code: str) -> str:
    """Code with the imports that it names, and with `libc`: all of them take 15 ms."""
    code = LIBC + code if "libc" in code else code
    named = [name for name in ("ctypes", "os", "socket", "sys") if f"{name}." in code]
    return f"import {', '.join(named)}; {code}" if named else code


class Host:
    """A workspace, and things on the host that a command must not reach."""

    def __init__(self, folder: Path, private: Path) -> None:
        self.folder, self.private = folder, private
        self.workspace, self.home, self.outside = (
            folder / "project",
            folder / "home",
            folder / "outside",
        )
        for place in (self.workspace / ".ouro", self.home / ".ssh", self.outside, private):
            place.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", self.workspace], check=True)
        (self.workspace / ".ouro/config.yaml").write_text("a: 1\n")
        (self.home / ".ssh/id").write_text(SECRET)
        (self.home / ".netrc").write_text(SECRET)
        (self.home / ".bashrc").write_text("")
        self.file = self.outside / "file"
        self.file.write_text("before")
        self.file.chmod(0o644)
        os.utime(self.file, (1, 1))
        self.victim = subprocess.Popen(["sleep", "300"], env={**os.environ, "KEY": SECRET})
        while SECRET.encode() not in Path(f"/proc/{self.victim.pid}/environ").read_bytes():
            time.sleep(0.01)  # not yet executed
        self.tcp, self.udp = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.unix, self.abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        # Sockets of other programs are in /run or /tmp.
        self.socket_path = Path(tempfile.mkdtemp(dir="/tmp")) / "agent"
        self.unix.bind(str(self.socket_path))
        self.abstract.bind(f"\0{self.socket_path.parent.name}")
        for listening in (self.tcp, self.udp):
            listening.bind(("127.0.0.1", 0))
        for each in (self.tcp, self.udp, self.unix, self.abstract):
            each.setblocking(False)
        for listening in (self.tcp, self.unix, self.abstract):
            listening.listen()

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for each in (self.tcp, self.udp, self.unix, self.abstract):
            each.close()
        shutil.rmtree(self.socket_path.parent)

    def policy(self) -> SandboxPolicy:
        return SandboxPolicy(
            writable=(self.workspace,),
            protected=(self.workspace / ".git", self.workspace / ".ouro"),
            hidden=(self.home / ".ssh", self.home / ".netrc"),
            # The sandbox has its own /tmp. With this folder visible, the escapes cannot fail only
            # for lack of a target.
            visible=(self.folder, PYTHON.parents[1]),
            temp=self.private,
        )

    def run(self, sandbox: Sandbox, code: str) -> str:
        """The output of the code: Python, or a line of sh if it begins with `$ `."""
        values = {
            "WORK": self.workspace, "HOME_": self.home, "OUT": self.outside, "FILE": self.file, "PID": self.victim.pid,
            "OURO": os.getpid(), "TCP": self.tcp.getsockname()[1], "UDP": self.udp.getsockname()[1],
            "SOCKET": self.socket_path, "ABSTRACT": self.socket_path.parent.name,
        }  # fmt: skip
        environment = {**os.environ, **{name: str(value) for name, value in values.items()}}
        argv = (
            ["sh", "-c", code[2:]]
            if code.startswith("$ ")
            else [str(PYTHON), "-I", "-S", "-c", program(code)]
        )
        wrapped = sandbox.wrap(argv, self.policy())
        ended = subprocess.run(
            wrapped, cwd=self.workspace, env=environment, capture_output=True, text=True, timeout=60, check=False,
            start_new_session=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return ended.stdout + ended.stderr


def accepted(listening: socket.socket) -> bool:
    try:
        connection, _ = listening.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True


def received(listening: socket.socket) -> bool:
    try:
        return bool(listening.recv(10))
    except BlockingIOError:
        return False


def survivors(mark: str) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in place.read_bytes():
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found


def stays(mark: str) -> bool:
    time.sleep(0.3)
    return bool(survivors(mark))


def ended(host: Host) -> bool:
    try:
        return host.victim.wait(0.3) is not None
    except subprocess.TimeoutExpired:
        return False


class Attack(msgspec.Struct, frozen=True):
    name: str
    code: str
    happened: Callable[[Host, str], bool]
    open_to: frozenset[str] = frozenset()
    """The sandbox tiers that do not stop it; docs/security.md lists them."""


def text(host: Host) -> str:
    return host.file.read_text() if host.file.exists() else "gone"


def changed(host: Host, _: str) -> bool:
    return text(host) != "before"


def holds_evil(name: str) -> Callable[[Host, str], bool]:
    return lambda host, _: "evil" in (host.folder / name).read_text()


def new(name: str) -> Callable[[Host, str], bool]:
    return lambda host, _: (host.outside / name).exists()


def leaked(_: Host, output: str) -> bool:
    return SECRET in output


def printed(word: str) -> Callable[[Host, str], bool]:
    # At the start of a line: since Python 3.13 a traceback quotes the code.
    return lambda _, output: any(line.startswith(word) for line in output.splitlines())


LANDLOCK = frozenset({"landlock"})
BY_ROOT = LANDLOCK if os.getuid() == 0 else frozenset()
IS_ATTACHED = (
    "print('ATTACHED' if libc.ptrace(16, int(os.environ['PID']), 0, 0) == 0 else 'refused')"
)
IS_RING = (
    "b = ctypes.create_string_buffer(256); print('MADE' if libc.syscall(425, 8, b) >= 0 else"
    " 'refused')"
)
TO_UDP = "socket.socket(2, 2).sendto(b'x', ('127.0.0.1', int(os.environ['UDP'])))"
TO_PATH, TO_NAME = (
    f"socket.socket(1).connect({name})"
    for name in ("os.environ['SOCKET']", "'\\0' + os.environ['ABSTRACT']")
)
ATTACKS = [
    Attack("write", "open(os.environ['OUT'] + '/new', 'w')", new("new")),
    Attack("overwrite", "open(os.environ['FILE'], 'w').write('x')", changed),
    Attack("append to a start file", "$ echo evil >> $HOME_/.bashrc", holds_evil("home/.bashrc")),
    Attack("remove", "os.unlink(os.environ['FILE'])", changed),
    Attack("make a folder", "os.mkdir(os.environ['OUT'] + '/new')", new("new")),
    Attack("rename away", "os.rename(os.environ['FILE'], os.environ['WORK'] + '/taken')", changed),
    Attack("truncate", "os.truncate(os.environ['FILE'], 0)", changed),
    Attack("write by a link", "$ ln -s $OUT $WORK/link; echo x > $WORK/link/file", changed),
    Attack("write by a hard link", "$ ln $FILE $WORK/hard && echo x > $WORK/hard", changed),
    Attack("write by /proc/self/root", "$ echo x > /proc/self/root$FILE", changed),
    Attack("write by the root of another process", "$ echo x > /proc/$PID/root$FILE", changed),
    Attack("write by another working folder", "$ echo x > /proc/$OURO/cwd/../../../../../../../../$FILE", changed),
    Attack("mode", "os.chmod(os.environ['FILE'], 0o777)", lambda h, _: bool(h.file.stat().st_mode & 0o002), LANDLOCK),
    Attack("times", "os.utime(os.environ['FILE'], (9, 9))", lambda h, _: h.file.stat().st_mtime == 9, LANDLOCK),
    Attack(
        "attributes", "os.setxattr(os.environ['FILE'], 'user.x', b'1')",
        lambda h, _: "user.x" in os.listxattr(h.file), LANDLOCK,
    ),
    Attack("a device", "os.mknod(os.environ['OUT'] + '/new', 0o20666, os.makedev(1, 3))", new("new")),
    Attack(
        "a device in the workspace", "os.mknod(os.environ['WORK'] + '/new', 0o60666, os.makedev(8, 0))",
        new("../project/new"),
    ),
    Attack("mount", "$ mount -t tmpfs none $WORK && touch $WORK/mounted && echo MOUNTED", printed("MOUNTED")),
    Attack("namespace", "$ unshare -Urm sh -c 'mount -t tmpfs none /mnt' && echo MOUNTED", printed("MOUNTED")),
    Attack(
        "clone into a namespace",
        "pid = libc.syscall(56 if os.uname().machine == 'x86_64' else 220, 0x10000000 | 17, 0, 0, 0, 0)\n"
        "if pid == 0: os._exit(0)\nprint('CLONED' if pid > 0 else 'refused')",
        printed("CLONED"),
    ),
    Attack("chroot", "os.chroot(os.environ['OUT']); print('CHANGED')", printed("CHANGED")),
    Attack("hook", "$ echo evil > $WORK/.git/hooks/own", new("../project/.git/hooks/own"), LANDLOCK),
    Attack("git configuration", "$ echo evil >> $WORK/.git/config", holds_evil("project/.git/config"), LANDLOCK),
    Attack("git folder replaced", "$ cd $WORK; mv .git g2; cp -r g2 .git; echo evil >> .git/config",
           holds_evil("project/.git/config"), LANDLOCK),
    Attack("own settings", "$ echo evil > $WORK/.ouro/config.yaml", holds_evil("project/.ouro/config.yaml"), LANDLOCK),
    Attack("key in a folder", "$ cat $HOME_/.ssh/id", leaked),
    Attack("key in a file", "$ cat $HOME_/.netrc", leaked),
    Attack("key by a link", "$ ln -s $HOME_/.ssh $WORK/l; cat $WORK/l/id", leaked),
    Attack("environment of another process", "$ cat /proc/$PID/environ", leaked, BY_ROOT),
    Attack("list of processes", "$ cat /proc/$PID/cmdline | tr '\\0' ' '", printed("sleep 300"), LANDLOCK),
    Attack("memory of another process", IS_ATTACHED, printed("ATTACHED")),
    Attack("signal", "$ kill -9 $PID", lambda h, _: ended(h)),
    Attack("TCP", "socket.create_connection(('127.0.0.1', int(os.environ['TCP'])), 2)", lambda h, _: accepted(h.tcp)),
    Attack("UDP", TO_UDP, lambda h, _: received(h.udp)),
    Attack("socket with a path", TO_PATH, lambda h, _: accepted(h.unix), LANDLOCK),
    Attack("abstract socket", TO_NAME, lambda h, _: accepted(h.abstract)),
    Attack("virtual machine socket", "socket.socket(40, 1); print('MADE')", printed("MADE")),
    Attack("netlink", "socket.socket(16, 3, 0); print('MADE')", printed("MADE")),
    Attack("packets", "socket.socket(17, 3, 0); print('MADE')", printed("MADE")),
    Attack("io_uring", IS_RING, printed("MADE")),
    Attack("a process that stays", f"$ setsid sleep {STAYING} >&- 2>&- & sleep 0.2",
           lambda *_: stays(STAYING), LANDLOCK),
]  # fmt: skip


@pytest.fixture
def host(tmp_path) -> Iterator[Host]:
    made = Host((tmp_path / "host").resolve(), (tmp_path / "private").resolve())
    yield made
    made.close()
    for pid in survivors(STAYING):
        os.kill(pid, 9)


def sandboxes(tmp_path: Path) -> dict[str, Sandbox]:
    return {
        "bubblewrap": Bubblewrap(_find_bwrap() or Path("/usr/bin/bwrap"), tmp_path),
        "landlock": Landlock(tmp_path),
    }


@functools.cache
def problem_of(tier: str) -> str:
    """Why a kind of sandbox does not work on this machine; empty if it does."""
    with tempfile.TemporaryDirectory() as name:
        return _self_test(sandboxes(Path(name))[tier], Path(name))


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandbox(request, tmp_path) -> Sandbox:
    if sys.platform != "linux" or (request.param == "landlock" and not abi()):
        pytest.skip(f"{request.param} does not work here")
    if problem := problem_of(request.param):
        pytest.skip(f"{request.param} does not work here: {problem}")
    return sandboxes(tmp_path)[request.param]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_b1_an_escape_has_no_effect_on_the_host(host, sandbox, attack):
    output = host.run(sandbox, attack.code)
    assert attack.happened(host, output) == (sandbox.tier in attack.open_to), output


def test_b1_each_tier_stops_the_promised_number_of_escapes():
    """bubblewrap stops all but one of at least 38 escapes, Landlock 26."""
    stopped = {
        tier: sum(tier not in attack.open_to for attack in ATTACKS)
        for tier in ("bubblewrap", "landlock")
    }
    assert len(ATTACKS) >= 38
    assert stopped["bubblewrap"] >= 37
    assert stopped["landlock"] >= 26
    assert len(MUST_WORK) >= 8


NEED_MORE_THAN_A_USER = {
    "mount",
    "chroot",
    "a device",
    "a device in the workspace",
    "packets",
    "attributes",
    "virtual machine socket",
}


@pytest.mark.parametrize(
    "attack", [a for a in ATTACKS if a.name not in NEED_MORE_THAN_A_USER], ids=lambda a: a.name
)
def test_b1_without_a_sandbox_the_same_escape_succeeds(host, attack):
    """Otherwise the test above would prove nothing."""
    if attack.name in (
        "io_uring",
        "namespace",
        "clone into a namespace",
        "memory of another process",
    ):
        pytest.skip("depends on the settings of the kernel")
    output = host.run(Sandbox(), attack.code)
    assert attack.happened(host, output), output


MUST_WORK = {
    "write": "open('new', 'w').write('x'); os.rename('new', 'newer'); print('WORKS')",
    "null device": "$ echo x > /dev/null && head -c 4 /dev/urandom > /dev/null && echo WORKS",
    "read the system": "$ ls /usr/bin > /dev/null && cat /etc/hostname > /dev/null; echo WORKS",
    "git status": "$ git -c safe.directory='*' status > /dev/null && echo WORKS",
    "socket pair": (
        "a, b = socket.socketpair(); a.send(b'x'); print('WORKS' if b.recv(1) == b'x' else '')"
    ),
    "lock between processes": "import multiprocessing; multiprocessing.Lock(); print('WORKS')",
    "temporary file": "import tempfile; tempfile.NamedTemporaryFile(); print('WORKS')",
    "child processes": "$ (echo a; echo b) | sort | wc -l | grep -q 2 && echo WORKS",
}


@pytest.mark.parametrize("code", MUST_WORK.values(), ids=MUST_WORK)
def test_b2_ordinary_work_succeeds(host, sandbox, code):
    assert "WORKS" in host.run(sandbox, code)


def test_b3_a_git_folder_made_writable_cannot_be_replaced(host, tmp_path):
    """Its settings and hooks are read-only; the folder itself is a mount, which cannot be renamed."""
    sandbox = sandboxes(tmp_path)["bubblewrap"]
    if problem_of("bubblewrap"):
        pytest.skip("bubblewrap does not work here")
    git = host.workspace / ".git"
    policy = msgspec.structs.replace(
        host.policy(), writable=(host.workspace, git), protected=(git / "config", git / "hooks")
    )
    line = (
        "mv .git g2; cp -r g2 .git; echo evil >> .git/config; echo evil > .git/hooks/own; git tag"
        " made"
    )
    argv = sandbox.wrap(["sh", "-c", line], policy)
    subprocess.run(argv, cwd=host.workspace, capture_output=True, check=False)
    assert "evil" not in (git / "config").read_text()
    assert not (git / "hooks" / "own").exists()
    assert not (host.workspace / "g2" / "HEAD").is_symlink()
    assert git.is_dir()


def test_b2_server_on_loopback_is_reachable_within_a_command(host, sandbox):
    code = (
        "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\nc ="
        " socket.create_connection(s.getsockname()); s.accept()[0].send(b'WORKS');"
        " print(c.recv(9).decode())"
    )
    assert ("WORKS" in host.run(sandbox, code)) == (sandbox.tier == "bubblewrap")


@pytest.mark.parametrize("request_", ["0x5412", "0x541c", "0x1_0000_5412"])
def test_b1_no_command_types_into_a_terminal(host, sandbox, request_):
    """TIOCSTI and TIOCLINUX put text into the input of the user's shell, which runs it."""
    code = (
        "libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p]\n"
        f"libc.ioctl(1, {request_}, b'x'); print(os.strerror(ctypes.get_errno()))"
    )
    assert host.run(sandbox, code).strip() == os.strerror(1), (
        "not permitted, whatever it is used on"
    )


@pytest.mark.parametrize("is_made_later", [False, True])
def test_b3_protected_places_of_a_workspace_and_of_opened_folders_stay(
    tmp_path, repository, is_made_later
):
    opened = tmp_path / "opened"
    settings = SandboxSettings(writable=(str(opened),))
    if is_made_later:
        confinement = Confinement(repository, tmp_path / "state", settings)
    (opened / ".git").mkdir(parents=True)
    (repository / ".ouro").mkdir()
    places = (opened / ".git/config", repository / ".git/config", repository / ".ouro/config.yaml")
    for place in places:
        place.write_text("before")
    if not is_made_later:
        confinement = Confinement(repository, tmp_path / "state", settings)
    if confinement.chosen().sandbox.tier != "bubblewrap":
        pytest.skip("bubblewrap does not work here")
    line = "".join(f"echo evil > {place}; " for place in places) + f"echo new > {opened}/file"
    argv = confinement.wrap(["sh", "-c", line], "workspace")
    subprocess.run(argv, cwd=repository, capture_output=True, check=False)
    assert [place.read_text() for place in places] == ["before"] * 3
    assert (opened / "file").exists()


def test_b1_landlock_opens_no_other_devices(host, tmp_path):
    """A disk, a camera or a terminal of the user; bubblewrap has a /dev of its own."""
    if not abi():
        pytest.skip("the kernel has no Landlock")
    sandbox = sandboxes(tmp_path)["landlock"]
    code = "os.close(os.open('{}', os.O_RDONLY)); print('OPENED')"
    assert "PermissionError" in host.run(sandbox, code.format("/dev/ptmx"))
    assert "OPENED" in host.run(sandbox, code.format("/dev/urandom"))


def test_b1_command_without_sockets_cannot_connect(host, sandbox):
    policy = msgspec.structs.replace(host.policy(), connects=False)
    code = program("socket.socket(1).connect('/nowhere')")
    argv = sandbox.wrap([str(PYTHON), "-I", "-S", "-c", code], policy)
    ended = subprocess.run(argv, cwd=host.workspace, capture_output=True, text=True, check=False)
    assert "PermissionError" in ended.stderr
    assert ctypes.sizeof(ctypes.c_void_p) == 8
