"""E17: tools from files: of a project that is not trusted, changed since, with a program beside
them; what a call reaches.
"""

import os

import pytest
from fakes.tool_benches import ToolFileBench

from ouro.errors import TrustNeeded
from ouro.extensions import describe_files
from ouro.safety import acting_files
from ouro.utils.ouro_paths import get_home

MAKE = '''
import os
{top}
@tool{kind}
def make(path: str) -> str:
    """Make a file."""
    open(path, "w").write("made")
    return "made"
'''
MARK = """
try:
    open({!r}, "w")
except OSError:
    pass
"""
SHOW = '''
import os
@tool
def show() -> str:
    """Show the variables."""
    return "\\n".join(f"{name}={value}" for name, value in os.environ.items())
'''


def make(top: str = "", kind: str = "") -> str:
    return MAKE.format(top=top, kind=kind)


@pytest.fixture
def bench(repository):
    return ToolFileBench(repository)


async def test_e17_tool_of_a_project_runs_only_after_it_is_trusted_as_it_is(bench):
    mark = bench.project / "ran"
    path = bench.of_project("make.py", make(MARK.format(str(mark))))
    bench.of_project("inner/part.py", "x = 1")
    with pytest.raises(TrustNeeded) as needed:
        await bench.open("Hello.", trust="unknown")
    assert list(needed.value.summary) == ["tools: make.py, inner/part.py"]
    session = await bench.open("Hello.", trust="no")
    assert "make" not in session.turn.commands.tools.tools
    await session.close()
    assert not mark.exists()
    session = await bench.open("Hello.", trust="yes")
    assert "make" in session.turn.commands.tools.tools
    await session.close()
    path.write_text(path.read_text() + "# changed\n")
    with pytest.raises(TrustNeeded):
        await bench.open("Hello.", trust="unknown")


async def test_e17_file_that_changes_in_a_session_is_not_run(bench):
    path = bench.own("make.py", make())
    session = await bench.open("Hello.")
    path.write_text("raise SystemExit('changed')")
    tool = session.turn.commands.tools.tools["make"]
    assert "changed" not in tool.file.text
    await session.close()


async def test_e17_describing_a_file_changes_nothing(bench):
    mark = bench.project / "ran"
    bench.own("make.py", make(MARK.format(str(mark))))
    session = await bench.open("Hello.")
    assert not mark.exists()
    await session.close()


async def test_e17_module_of_the_project_does_not_replace_one_of_python(bench):
    (bench.project / "json.py").write_text("raise SystemExit('replaced')")
    (bench.project / "ouro.py").write_text("raise SystemExit('replaced')")
    bench.of_project("make.py", make("import json"))
    bench.of_project("json.py", "x = 1")
    assert not (await bench.call("make", path="new.txt")).failed


@pytest.mark.parametrize("kind", ["", '(reads="path")', '(writes="path")'])
async def test_e17_call_changes_only_the_workspace_and_a_reading_tool_nothing(
    bench, tmp_path, kind
):
    bench.own("make.py", make(kind=kind))
    outside = tmp_path / "outside.txt"
    await bench.call("make", path=str(outside))  # it may have written into a private /tmp
    assert not outside.exists()
    result = await bench.call("make", path="inside.txt")
    assert result.failed == ("reads" in kind)
    assert (bench.project / "inside.txt").exists() != ("reads" in kind)
    assert (await bench.call("make", path=".git/hooks/pre-commit")).failed
    assert not (bench.project / ".git/hooks/pre-commit").exists()


async def test_e17_keys_reach_only_own_tools_that_the_settings_name(bench, monkeypatch):
    monkeypatch.setenv("JIRA_TOKEN", "jira-0123456789abcdef")
    monkeypatch.setenv("OTHER_TOKEN", "other-0123456789abcdef")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789abcdef")
    named = {"shell.tool_env": ("JIRA_TOKEN", "ANTHROPIC_API_KEY")}
    bench.own("show.py", SHOW)
    bench.of_project("show2.py", SHOW.replace("def show", "def show_project"))
    session = await bench.open("Hello.", **named)
    tools = session.turn.commands.tools.tools
    own = tools["show"]._host.user_environment
    of_project = tools["show_project"]._host.environment
    await session.close()
    assert own["JIRA_TOKEN"] == os.environ["JIRA_TOKEN"]
    assert not {"OTHER_TOKEN", "ANTHROPIC_API_KEY"} & own.keys()
    assert not {"JIRA_TOKEN", "OTHER_TOKEN", "ANTHROPIC_API_KEY"} & of_project.keys()
    await bench.call("show_project", settings=named)
    assert "JIRA_TOKEN" not in bench.result


async def test_e17_process_that_a_call_leaves_ends_with_it(bench):
    text = '''
import subprocess
@tool
def leave() -> str:
    """Leave a process."""
    subprocess.Popen(["sh", "-c", "sleep 1; echo late > late.txt"])
    return "left"
'''
    bench.own("leave.py", text)
    assert not (await bench.call("leave")).failed
    session = await bench.open("Hello.")
    await session.close()
    assert not (bench.project / "late.txt").exists()


def test_e17_trust_question_names_the_files(bench):
    path = bench.of_project("make.py", make())
    assert describe_files(bench.project, acting_files(bench.project)) == ["tools: make.py"]
    link = path.with_name("link.py")
    link.symlink_to(get_home() / "tools" / "x.py")
    assert link not in acting_files(bench.project)
