"""Real language servers on pipes."""

import pytest
from fakes.tool_benches import LspBench


@pytest.fixture
async def bench(tmp_path):
    made = LspBench(tmp_path / "project")
    yield made
    for servers in made.opened:
        await servers.close()
