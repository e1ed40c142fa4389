"""web_search by DuckDuckGo, with a stand-in for the package ddgs."""

import sys

import pytest
from fakes.tool_benches import call

from ouro.errors import ConfigError, ToolError
from ouro.tools.ddgs_search import DdgsSearch


def test_ddgs_needs_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "ddgs", None)
    with pytest.raises(ConfigError, match="needs the package ddgs"):
        DdgsSearch()


DDGS = """
class DDGS:
    def __init__(self, proxy=None, timeout=5, *, verify=True): pass
    def text(self, query, *, max_results, backend):
        from ddgs.exceptions import DDGSException
        if query == "none": raise DDGSException("No results found.")
        if query == "down": raise DDGSException("DNSError")
        assert (max_results, backend) == (5, "duckduckgo")
        return [{"title": "Birds", "href": "https://birds.example/", "body": "About " + query}]
"""


async def test_ddgs_asks_only_duckduckgo(tmp_path, monkeypatch):
    (tmp_path / "ddgs").mkdir()
    (tmp_path / "ddgs/__init__.py").write_text(DDGS)
    (tmp_path / "ddgs/exceptions.py").write_text("class DDGSException(Exception): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("ddgs", "ddgs.exceptions"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    tool = DdgsSearch()
    assert tool.targets(tool.parse({"query": "x"})) == ("https://html.duckduckgo.com/html/?q=x",)
    result = await call(tool, query="herons")
    assert result.text == "Birds\nhttps://birds.example/\nAbout herons"
    assert (await call(tool, query="none")).text == "No results."
    with pytest.raises(ToolError, match="DuckDuckGo did not answer: DNSError"):
        await call(tool, query="down")
