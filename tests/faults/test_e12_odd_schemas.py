"""E12: schemas of MCP servers that are deep, circular or huge, and results that do not fit theirs."""

from __future__ import annotations

import pytest
from fakes.mcp_bench import Bench, fake

from ouro.errors import ToolError
from ouro.settings import McpServerSettings


@pytest.fixture
async def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    for servers in made.opened:
        await servers.close()


def odd(kind: str, size: int = 1, field: str = "inputSchema") -> McpServerSettings:
    return fake(60, odd=[kind, size, field])


@pytest.mark.parametrize(
    ("kind", "size"), [("deep", 40), ("items", 70), ("wide", 300_000), ("text", 10_000_000)]
)
async def test_e12_a_tool_with_an_odd_schema_is_left_out_with_one_line(bench, kind, size):
    server = await bench.open(one=odd(kind, size)).connect("one")
    assert [tool.name for tool in server.tools] == ["good"]
    (notice,) = bench.texts
    assert "`odd`: its schema cannot be used: it is" in notice


@pytest.mark.parametrize("field", ["inputSchema", "outputSchema"])
@pytest.mark.parametrize(
    ("kind", "size"), [("deep", 200), ("items", 1_000), ("lists", 10_000), ("deep", 100_000)]
)
async def test_e12_a_message_that_no_parser_reads_ends_its_server_with_one_line(
    bench, kind, size, field
):
    servers = bench.open(one=odd(kind, size, field), other=odd("good"))
    with pytest.raises(ToolError, match="cannot be read: it is nested too deeply"):
        await servers.connect("one")
    assert len(bench.texts) == 1
    assert len((await servers.connect("other")).tools) == 2


@pytest.mark.parametrize(
    ("kind", "size"),
    [("circle", 1), ("doubling", 60), ("pattern", 1), ("deep", 40), ("wide", 30_000)],
)
async def test_e12_a_result_is_not_lost_or_delayed_by_the_schema_of_its_tool(bench, kind, size):
    server = await bench.open(one=odd(kind, size, "outputSchema")).connect("one")
    result = await server.call("odd", {}, lambda _: None)
    assert result.text.startswith("the good text\n\n{")  # and the structured content
    assert not result.failed


async def test_e12_a_result_that_does_not_fit_its_schema_arrives_with_a_warning(bench):
    server = await bench.open(one=odd("integer", 1, "outputSchema")).connect("one")
    result = await server.call("odd", {}, lambda _: None)
    assert result.text.startswith("the good text\n")
    assert "\n[warning: the structured content does not fit: $.a:" in result.text
    assert "is not of type 'integer'" in result.text
    assert not result.failed
