"""X2: a path that is too deep is refused immediately; a search ends when ouro ends."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys

import pytest
from fakes.tool_benches import living
from fakes.waiting import until

from ouro.errors import ToolError
from ouro.safety import Workspace
from ouro.tools.grep import Grep
from ouro.tools.grep_search import GrepArgs, find_ripgrep
from ouro.tools.tool import parse_arguments

_SEARCH = """
import sys, pathlib
from ouro.safety import Workspace
from ouro.tools import grep_search
grep_search.find_ripgrep = lambda: sys.argv[2]
search = grep_search.GrepSearch(grep_search.GrepArgs("x"), Workspace(pathlib.Path(sys.argv[1])), lambda path: False, set())
list(search.files())
"""


def test_x2_a_path_of_900_folders_is_refused(tmp_path):
    tool = Grep(Workspace(tmp_path))
    with pytest.raises(ToolError, match="more than 200 folders"):
        parse_arguments(tool, {"pattern": "x", "path": "d/" * 900})


@pytest.mark.skipif(sys.platform != "linux", reason="parent-death signals are Linux's")
async def test_x2_a_search_ends_when_ouro_is_killed(tmp_path):
    program = tmp_path / "rg"
    program.write_text("#!/bin/sh\nexec sleep 98721\n")
    program.chmod(0o755)
    ouro = subprocess.Popen([sys.executable, "-c", _SEARCH, str(tmp_path), str(program)])
    await until(lambda: living("98721"))
    ouro.kill()
    ouro.wait()
    await until(lambda: not living("98721"))


async def test_x2_search_reports_files_that_are_too_large(tmp_path):
    for name in ("big.log", "big.txt", "small.log"):
        (tmp_path / name).write_text("needle\n")
    for name in ("big.log", "big.txt"):
        with (tmp_path / name).open("ab") as file:
            file.truncate(50_000_001)
    tool = Grep(Workspace(tmp_path))

    whole = await tool.run(GrepArgs("needle"), None)
    logs = await tool.run(GrepArgs("nothing", glob="*.log"), None)

    assert whole.text.split("\n")[:2] == ["small.log", "1:needle"]
    assert (
        "[Left out: 2 files over 50 MB (big.log, big.txt). Name one in path to search it.]"
        in whole.text
    )
    assert "No matches" in logs.text
    assert "1 file over 50 MB (big.log)" in logs.text


@pytest.mark.skipif(sys.platform != "linux", reason="what a process has read is in /proc")
async def test_x2_a_search_does_not_read_a_large_file_to_its_end(tmp_path, monkeypatch):
    program = tmp_path / "rg"
    pid = tmp_path / "pid"
    program.write_text(
        f"""#!/bin/sh
case "$*" in
    *--files*|*--max-filesize*) exec {shlex.quote(find_ripgrep())} "$@";;
esac
cat big.log > /dev/null
echo $$ > {shlex.quote(str(pid))}.new && mv {shlex.quote(str(pid))}.new {shlex.quote(str(pid))}
exec sleep 98722
"""
    )
    program.chmod(0o755)
    monkeypatch.setattr("ouro.tools.grep_search.find_ripgrep", lambda: str(program))
    monkeypatch.setattr("ouro.tools.grep_search._TIMEOUT", 600.0)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "small.log").write_text("needle\n")
    with (folder / "big.log").open("wb") as file:
        file.truncate(50_000_001)

    searching = asyncio.create_task(Grep(Workspace(folder)).run(GrepArgs("needle"), None))
    await until(pid.exists)
    try:
        await until(searching.done)
    finally:
        if living("98722"):
            os.kill(int(pid.read_text()), signal.SIGKILL)

    assert (await searching).text == (
        "small.log\n1:needle\n"
        "[Left out: 1 file over 50 MB (big.log). Name one in path to search it.]"
    )


async def test_x2_slow_search_is_stopped_with_a_note(tmp_path, monkeypatch):
    monkeypatch.setattr("ouro.tools.grep_search._TIMEOUT", 0.5)
    program = tmp_path / "rg"
    program.write_text(f'#!/bin/sh\n{shlex.quote(find_ripgrep())} "$@"\nexec sleep 60\n')
    program.chmod(0o755)
    monkeypatch.setattr("ouro.tools.grep_search.find_ripgrep", lambda: str(program))
    (tmp_path / "a.txt").write_text("needle\n")

    found = await Grep(Workspace(tmp_path)).run(GrepArgs("needle", glob="*.txt"), None)

    assert found.text.startswith("a.txt\n1:needle\n[Stopped after 0 s: more may match.")
