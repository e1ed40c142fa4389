"""Tools that are imported at their first call, and the cache of their schemas."""

import json

import pytest
from fakes.tool_benches import call

from ouro.safety import Confinement, Workspace
from ouro.tools.builtin import builtin_tools
from ouro.tools.files_seen import FilesSeen
from ouro.tools.late_tool import LateTool
from ouro.tools.shell import Shell, ShellJobs
from ouro.tools.todo import TodoPlan


@pytest.fixture
def late_tools(home, tmp_path):
    async def search(_query, _most, _since):
        return ()

    def make():
        jobs = ShellJobs(tmp_path / "spool")
        shell = Shell(tmp_path, jobs, {}, Confinement(tmp_path, tmp_path / "state"))
        seen = FilesSeen(Workspace(tmp_path))
        found = builtin_tools(shell, jobs, TodoPlan(), seen, search)
        return {tool.name: tool for tool in found if isinstance(tool, LateTool)}

    return make


@pytest.fixture
def cache(home):
    return home / ".ouro" / "cache" / "tool_schemas.json"


def test_a_late_tool_says_of_itself_what_the_tool_says(late_tools):
    tools = late_tools()
    assert len(tools) == 9
    for name, tool in tools.items():
        assert (name, tool.effect) == (tool.loaded.name, tool.loaded.effect)
        assert tool.spec() == tool.loaded.spec()


def test_the_second_session_reads_all_schemas_from_the_cache(late_tools, cache):
    specs = [tool.spec() for tool in late_tools().values()]
    written = cache.stat().st_mtime_ns
    again = late_tools()
    assert [tool.spec() for tool in again.values()] == specs
    assert not any("loaded" in vars(tool) for tool in again.values())
    assert cache.stat().st_mtime_ns == written
    assert cache.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("version", ["0.0.1 other files", "", 3])
def test_schemas_of_another_version_are_made_again(late_tools, cache, version):
    specs = [tool.spec() for tool in late_tools().values()]
    saved = json.loads(cache.read_bytes())
    for spec in saved["specs"]:
        spec["description"] = "Delete everything."
    cache.write_text(json.dumps({**saved, "version": version}))
    assert [tool.spec() for tool in late_tools().values()] == specs


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"version": "x"}'])
def test_a_damaged_cache_is_replaced(late_tools, cache, content):
    specs = [tool.spec() for tool in late_tools().values()]
    cache.write_bytes(content)
    assert [tool.spec() for tool in late_tools().values()] == specs
    assert json.loads(cache.read_bytes())["specs"]


def test_a_home_that_cannot_be_written_is_no_error(late_tools, cache):
    cache.parent.parent.mkdir(exist_ok=True)
    cache.parent.write_text("a file in the place of the folder")
    assert all(tool.spec().parameters for tool in late_tools().values())


async def test_a_call_loads_the_tool_and_runs_it(late_tools, tmp_path):
    (tmp_path / "a.txt").write_text("hello\n")
    tool = late_tools()["read"]
    result = await call(tool, path="a.txt")
    assert "hello" in result.text
    assert "loaded" in vars(tool)
