"""X2: paths that are too deep are refused at once; a search ends with ouro."""

import subprocess
import sys

import pytest
from fakes.shells import living, until

from ouro.errors import ToolError
from ouro.safety import Workspace
from ouro.tools.grep import Grep
from ouro.tools.tool import parse_arguments

_SEARCH = """
import sys, pathlib
from ouro.safety import Workspace
from ouro.tools.grep import SearchPlan, search_by_ripgrep
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
