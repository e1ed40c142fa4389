"""X11: what an ouro that was killed has left is ended or removed at the next start."""

import os
import subprocess
import sys

import pytest
from fakes.shells import living, until
from fakes.waiting import wait

from ouro.memory.backend import MessageRecord, SessionHeader
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import user
from ouro.tools.shell_process import end_orphans

_JOBS = """
import asyncio, sys
from pathlib import Path
from ouro.tools.shell import ShellJobs
async def main():
    jobs = ShellJobs(Path(sys.argv[1]))
    for line in ("sleep 91871", "setsid sleep 91872 & disown; sleep 91873"):
        await jobs.start(line, Path("/"), {"PATH": "/usr/bin:/bin"}, list)
    print("started", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
NUMBERS = ("91871", "91872", "91873")


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc")
async def test_x11_commands_of_a_killed_ouro_are_ended_and_those_of_a_living_one_stay(tmp_path):
    with subprocess.Popen([sys.executable, "-c", _JOBS, str(tmp_path)], stdout=subprocess.PIPE, text=True) as ouro:
        assert ouro.stdout.readline() == "started\n"
        await until(lambda: all(map(living, NUMBERS)))
        assert end_orphans() == 0
        assert all(map(living, NUMBERS))
        ouro.kill()
        ouro.wait()
        assert any(map(living, NUMBERS))

        assert end_orphans() >= len(NUMBERS)
        await until(lambda: not any(map(living, NUMBERS)))


def header(number: int) -> SessionHeader:
    return SessionHeader(f"{number}d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", "2026-11-21T20:14:03.120Z")


def test_x11_unfinished_folders_and_sessions_without_a_message_are_removed(home):
    root = home / ".ouro" / "sessions"
    first = YamlFileMemoryStore()
    for number in (1, 2, 3):
        wait(first.create_session(header(number)))
        wait(first.close_session(header(number).id))  # a kill releases the lock, too
    empty, said, hand = sorted(root.glob("2*"))
    wait(first.load_session(header(2).id))
    wait(first.save_message(header(2).id, MessageRecord(1, "", user("kept"))))
    wait(first.create_session(header(4)))  # it is open, and gets its message
    (hand / "notes.txt").write_text("put here by hand")
    for name in (".unfinished-x.4190000.ab", f".unfinished-y.{os.getpid()}.ab"):
        (root / name).mkdir()

    wait(YamlFileMemoryStore().create_session(header(5)))

    assert not empty.exists()
    assert [folder.exists() for folder in (said, hand)] == [True, True]
    assert len(list(root.glob("2*_4*"))) == 1
    assert [path.name for path in root.glob(".unfinished-*")] == [f".unfinished-y.{os.getpid()}.ab"]
