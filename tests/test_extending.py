"""The code of docs/extending.md is a file of a user, and is added to a copy of the package, and used."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), re.DOTALL)
FILE, TOOL, TOOL_LINE, COMMAND, COMMAND_LINE = BLOCKS

USE_BOTH = """
import asyncio, pathlib
from fakes.fake_front_end import FakeFrontEnd
from ouro.assemble import Options, opener
from ouro.commands.slash import dispatch
from ouro.events import ToolFinished
from ouro.llm import ScriptedModel, call
from ouro.session import OpenRequest

async def main():
    answers = [call("word_count", path="text.md"), call("line_count", path="text.md"), "Four."]
    model = ScriptedModel(answers)
    session = await opener(Options(pathlib.Path.cwd(), ready_model=model))(OpenRequest())
    async for event in session.send("count"):
        if isinstance(event, ToolFinished):
            print(event.display.summary)
    print("word_count" in [tool.name for tool in model.requests[0].tools])
    await session.close()
    front_end = FakeFrontEnd()
    print(await dispatch(front_end, "/where"), front_end.shown.pop())
    await dispatch(front_end, "/help where")
    print(front_end.shown)

asyncio.run(main())
"""


@pytest.fixture
def extended_package(tmp_path) -> Path:
    """A copy of the package with the tool and the command of docs/extending.md."""
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "ouro", copy / "ouro", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "ouro" / "tools" / "word_count.py").write_text(TOOL)
    _insert(copy / "ouro/tools/builtin.py", "        TodoWrite(plan),\n", TOOL_LINE)
    _insert(
        copy / "ouro/tools/builtin.py",
        "from ouro.tools.tool import AnyTool\n",
        "from ouro.tools.word_count import WordCount\n",
    )
    with (copy / "ouro/commands/status.py").open("a") as file:
        file.write("\n\n" + COMMAND)
    _insert(
        copy / "ouro/commands/all_actions.py",
        '    Action("status", "status.status", "Show the model, mode, folder and session"),\n',
        COMMAND_LINE,
    )
    return copy


def _insert(path: Path, after: str, line: str) -> None:
    text = path.read_text()
    assert text.count(after) == 1
    path.write_text(text.replace(after, after + line))


def test_the_tool_and_the_command_of_the_page_work(extended_package, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    tools = tmp_path / "home" / "tools"
    tools.mkdir(parents=True)
    (tools / "text.py").write_text(FILE)
    (work / "text.md").write_text("four words are here\n")
    done = subprocess.run(
        [sys.executable, "-c", USE_BOTH],
        cwd=work,
        env={
            "PYTHONPATH": f"{extended_package}:{ROOT / 'tests'}",
            "OURO_HOME": str(tmp_path / "home"),
            "PATH": "/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "4 words",
        "1 lines",
        "True",
        "True `/project`",
        "['`/where` Show the folder of this session.']",
    ]
