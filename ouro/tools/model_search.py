"""The tool web_search with the search of the model's own provider, or with DuckDuckGo."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from ouro.errors import ConfigError, ModelError, ToolError
from ouro.llm import ProviderSearch
from ouro.messages import Usage
from ouro.tools.web_search import (
    MAX_RESULTS,
    SearchBackend,
    SearchRequest,
    WebResult,
    WebSearch,
    WebSearchArgs,
    fetch_json,
    read_results,
)

_TIMEOUT = 60.0
_DDGS_HOST = "https://html.duckduckgo.com/html/"
_DDGS_SECONDS = 20

NoteCost = Callable[[str, Usage | None], None]


def _no_request(_url: str, _key: str, _query: str) -> SearchRequest:
    """Stands for the request of a backend that is asked in another way."""
    raise NotImplementedError


_PAGES = SearchBackend("model", "", (), _no_request, lambda answer: answer, ("text", "date"))
_DDGS = SearchBackend("ddgs", _DDGS_HOST, (), _no_request, lambda answer: answer, ("body", "date"))


class ModelSearch(WebSearch):
    """Args:
    find: returns the search of the model in use. Raises ModelError: it has none.
    note_cost: records what a search has cost, by the name of the model.
    """

    __doc__ = WebSearch.__doc__

    def __init__(self, find: Callable[[], ProviderSearch], note_cost: NoteCost) -> None:
        super().__init__(_PAGES, "", "")
        self._find = find
        self._note_cost = note_cost

    def targets(self, args: WebSearchArgs) -> tuple[str, ...]:
        return (self._address(self._find_search().url, args.query),)

    async def _search(self, query: str) -> list[WebResult]:
        """The pages that the provider of the model has found; the cost is recorded. Raises
        ToolError.
        """
        search = self._find_search()
        request = SearchRequest(search.url, search.headers, search.body(query))
        answer = await fetch_json("The provider", request, _TIMEOUT)
        self._note_cost(search.spec.name, search.usage(answer))
        try:
            pages = search.pages(answer)
        except ModelError as error:
            raise ToolError(str(error)) from None
        results: Any = [
            {"url": page.url, "title": page.title, "date": page.date, "text": page.text}
            for page in pages
        ]
        return read_results(_PAGES, results)

    def _find_search(self) -> ProviderSearch:
        """The search of the model in use. Raises ToolError: it has none."""
        try:
            return self._find()
        except ModelError as error:
            raise ToolError(str(error)) from None


class DdgsSearch(WebSearch):
    __doc__ = WebSearch.__doc__

    def __init__(self) -> None:
        if find_spec("ddgs") is None:
            raise ConfigError(
                "`web.search: ddgs` needs the package ddgs.", "Install it: pip install ouro[ddgs]"
            )
        super().__init__(_DDGS, "", "")

    async def _search(self, query: str) -> list[WebResult]:
        pages: Any = await asyncio.to_thread(_ask_ddgs, query)
        return read_results(_DDGS, pages)


def _ask_ddgs(query: str) -> list[dict[str, Any]]:
    """The pages that DuckDuckGo has found. Blocks. Raises ToolError."""
    from urllib.request import getproxies  # imported late: it imports email

    from ddgs import DDGS
    from ddgs.exceptions import DDGSException

    client = DDGS(proxy=getproxies().get("https"), timeout=_DDGS_SECONDS)
    try:
        # Only this backend: the others are other hosts, which nobody has allowed.
        pages = client.text(query, max_results=MAX_RESULTS, backend="duckduckgo")
    except DDGSException as error:
        if "No results" in str(error):
            return []
        raise ToolError(f"DuckDuckGo did not answer: {str(error)[:200]}.") from None
    return [{**page, "url": page.get("href")} for page in pages]
