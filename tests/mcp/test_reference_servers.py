"""The reference servers of the protocol, as npm packages. Skipped if node or the packages are
missing.

`npm install -g @modelcontextprotocol/server-everything @modelcontextprotocol/server-filesystem
@modelcontextprotocol/server-memory`, or set TEST_NPM_FOLDER to a folder in which they are
installed.
"""

import shutil
from pathlib import Path

import pytest
from fakes.mcp_bench import Bench
from fakes.npm import program

from ouro.settings import McpServerSettings


def node(name: str, *arguments: str, **more) -> McpServerSettings:
    return McpServerSettings(command=program(name), args=arguments, timeout_seconds=30, **more)


def silent(_text):
    pass


async def opened(bench: Bench, settings: McpServerSettings):
    bench.folder.joinpath("a.txt").write_text("hello file")
    servers = bench.open(one=settings)
    return servers, await servers.connect("one")


@pytest.fixture
def node_path(monkeypatch):
    """The servers start `node`, which may not be in /bin or /usr/bin."""
    folder = str(Path(shutil.which("node") or "/").parent)
    monkeypatch.setattr("fakes.mcp_bench.PATH", f"{folder}:/usr/bin:/bin")


async def test_everything_server_works(bench: Bench, node_path):
    bench.answers = {
        "elicit": {"action": "accept", "content": {"name": "Bo"}},
        "sample": {"text": "42", "model": "test-model"},
    }
    _, one = await opened(bench, node("mcp-server-everything"))
    assert all(tool.fits_request() for tool in one.tools)
    assert {"simple-prompt", "args-prompt"} <= {prompt.name for prompt in one.listing.prompts}
    steps: list[str] = []
    for tool, arguments, words in (
        ("echo", {"message": "x"}, "Echo: x"),
        ("get-sum", {"a": 1, "b": 2}, "3"),
        ("trigger-long-running-operation", {"duration": 0.3, "steps": 3}, "completed"),
        ("get-structured-content", {"location": "New York"}, "temperature"),
        ("get-resource-links", {"count": 2}, "demo://resource"),
        ("trigger-sampling-request", {"prompt": "hi", "maxTokens": 10}, "42"),
        ("trigger-elicitation-request", {}, "Name: Bo"),
        ("get-roots-list", {}, bench.folder.name),
    ):
        assert words in (await one.call(tool, arguments, steps.append)).text, tool
    assert steps[-1] == "3 of 3"
    assert (await one.call("get-tiny-image", {}, silent)).images[0].media_type == "image/png"
    assert (await one.read(one.listing.resources[0].uri)).text


async def test_filesystem_server_works(bench: Bench, node_path):
    _, one = await opened(bench, node("mcp-server-filesystem", str(bench.folder)))
    path = str(bench.folder / "a.txt")
    assert (await one.call("read_text_file", {"path": path}, silent)).text == "hello file"
    assert (await one.call("read_text_file", {"path": "/etc/passwd"}, silent)).failed


async def test_memory_server_works(bench: Bench, node_path):
    settings = node(
        "mcp-server-memory", env={"MEMORY_FILE_PATH": str(bench.folder / "memory.json")}
    )
    _, one = await opened(bench, settings)
    entity = {"name": "Bo", "entityType": "person", "observations": ["likes tea"]}
    await one.call("create_entities", {"entities": [entity]}, silent)
    assert "likes tea" in (await one.call("search_nodes", {"query": "tea"}, silent)).text
