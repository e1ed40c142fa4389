"""X2: paths that are too deep are refused at once; a search ends with ouro."""

import shutil
import subprocess
import sys

import pytest
from fakes.shells import living, until

from ouro.errors import ToolError
from ouro.safety import Workspace
from ouro.tools.grep import Grep, GrepArgs
from ouro.tools.tool import parse_arguments

_SEARCH = """
import sys, pathlib
from ouro.safety import Workspace
from ouro.tools.file_search import SearchPlan, search_by_ripgrep
root = pathlib.Path(sys.argv[1])
list(search_by_ripgrep(sys.argv[2], SearchPlan("x", root, lambda name: True), Workspace(root)))
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


@pytest.mark.parametrize("ripgrep", [None, ""], ids=["rg", "python"])
async def test_x2_a_search_names_the_files_that_are_too_large_for_it(tmp_path, ripgrep):
    if ripgrep is None and shutil.which("rg") is None:
        pytest.skip("ripgrep is not installed")
    for name in ("big.log", "big.txt", "small.log"):
        (tmp_path / name).write_text("needle\n")
    for name in ("big.log", "big.txt"):
        with (tmp_path / name).open("ab") as file:
            file.truncate(50_000_001)
    tool = Grep(Workspace(tmp_path), ripgrep=ripgrep)

    whole = await tool.run(GrepArgs("needle"), None)
    logs = await tool.run(GrepArgs("nothing", glob="*.log"), None)

    assert whole.text.split("\n")[:2] == ["small.log", "1:needle"]
    assert "[Left out: 2 files over 50 MB (big.log, big.txt). Name one in path to search it.]" in whole.text
    assert "No matches" in logs.text
    assert "1 file over 50 MB (big.log)" in logs.text


async def test_x2_a_search_without_ripgrep_is_ended_and_says_so(tmp_path, monkeypatch):
    """Python holds its lock while it matches: here a match would take longer than the universe is old."""
    monkeypatch.setattr("ouro.tools.file_search._TIMEOUT", 0.5)
    (tmp_path / "a.txt").write_text("needle\n")
    (tmp_path / "b.txt").write_text("a" * 60 + "!\n")

    found = await Grep(Workspace(tmp_path), ripgrep="").run(GrepArgs("needle|(a+)+$"), None)

    assert found.text.startswith("a.txt\n1:needle\n[Stopped after 0 s: more may match.")
