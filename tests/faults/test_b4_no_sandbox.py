"""B4: a host without a sandbox: the program runs under a filter that really refuses it."""

import json
import struct
import sys

import pytest
from fakes.model_server import agent
from fakes.ouro_program import OuroProgram

from ouro.safety.sandbox.landlock import abi
from ouro.safety.sandbox.seccomp import seccomp_filter

_NO_LANDLOCK = struct.pack(  # landlock_create_ruleset fails with ENOSYS; all else is allowed
    "=HBBIHBBIHBBIHBBI",
    0x20,
    0,
    0,
    0,
    0x15,
    0,
    1,
    444,
    0x06,
    0,
    0,
    0x0005_0000 | 38,
    0x06,
    0,
    0,
    0x7FFF_0000,
)
WRITES = 'python3 -c \'for name in ("inside", "../outside"): open(name, "w")\''
_APPLY = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
for name in sys.argv[1].split(","):
    data = bytes.fromhex(name)
    program = ctypes.create_string_buffer(data, len(data))
    assert libc.prctl(22, 2, struct.pack("HxxxxxxP", len(data) // 8, ctypes.addressof(program)), 0, 0) == 0
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a filter of Linux")


@pytest.fixture
def ouro_without_sandbox(model_server, repository, monkeypatch):
    """A function that runs `ouro -p` on a host without user namespaces, and optionally without
    Landlock.
    """
    model_server.script(agent)
    program = OuroProgram(model_server, repository)

    def run(prompt: str, *arguments: str, landlock: bool = True):
        # ouro's own sandbox filter refuses new namespaces and mounts.
        filters = [
            seccomp_filter(internet=True, connects=True),
            *([] if landlock else [_NO_LANDLOCK]),
        ]
        start = [
            sys.executable,
            "-c",
            _APPLY,
            ",".join(data.hex() for data in filters),
            "-m",
            "ouro",
        ]
        monkeypatch.setattr(OuroProgram, "command", lambda _self, *words: [*start, *words])
        return program.headless(
            "-p", prompt, "--mode", "auto", "--output", "stream-json", *arguments
        )

    yield run, program
    program.close()


@pytest.mark.skipif(sys.platform == "linux" and not abi(), reason="this kernel has no Landlock")
def test_b4_without_user_namespaces_the_next_tier_is_used(ouro_without_sandbox):
    run, program = ouro_without_sandbox
    done = run(f"run: {WRITES}")
    assert (program.folder / "inside").exists()
    assert not (program.folder.parent / "outside").exists()
    assert "weaker sandbox (landlock)" in done.out


def test_b4_without_any_sandbox_commands_need_no_sandbox_flag(ouro_without_sandbox):
    run, program = ouro_without_sandbox
    done = run(f"run: {WRITES}", landlock=False)
    assert not (program.folder / "inside").exists()
    assert "no sandbox works here" in json.dumps(done.lines)
    run(f"run: {WRITES}", "--no-sandbox", landlock=False)
    assert (program.folder / "inside").exists()
