"""Real MCP servers."""

import pytest
from fakes.mcp_bench import Bench


@pytest.fixture
async def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    for servers in made.opened:
        await servers.close()
