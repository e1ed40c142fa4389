"""The tool web_search by DuckDuckGo, without a key; it needs the package ddgs."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Any

from ouro.errors import ConfigError, ToolError
from ouro.tools.web_search import (
    MAX_RESULTS,
    SearchBackend,
    WebResult,
    WebSearch,
    no_request,
    read_results,
)

_HOST = "https://html.duckduckgo.com/html/"
_TIMEOUT_SECONDS = 20
_DDGS = SearchBackend(
    "ddgs",
    _HOST,
    variables=(),
    request=no_request,
    results=lambda answer: answer,
    fields=("body", "date"),
)


class DdgsSearch(WebSearch):
    __doc__ = WebSearch.__doc__  # the description for the model

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
    """The pages that DuckDuckGo has found, as the package returns them, with the key `url` that
    `read_results` needs. Empty without results. Blocks. Raises ToolError.
    """
    from urllib.request import getproxies  # imported late: it imports email

    from ddgs import DDGS
    from ddgs.exceptions import DDGSException

    client = DDGS(proxy=getproxies().get("https"), timeout=_TIMEOUT_SECONDS)
    try:
        # Only this backend: the others are other hosts, which nobody has allowed.
        pages = client.text(query, max_results=MAX_RESULTS, backend="duckduckgo")
    except DDGSException as error:
        if "No results" in str(error):
            return []
        raise ToolError(f"DuckDuckGo did not answer: {str(error)[:200]}.") from None
    return [{**page, "url": page.get("href")} for page in pages]
