"""The tool web_search by a search of the model's own provider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ouro.errors import ModelError, ToolError
from ouro.llm import ProviderSearch
from ouro.messages import Usage
from ouro.tools.web_search import (
    SearchBackend,
    SearchRequest,
    WebResult,
    WebSearch,
    WebSearchArgs,
    fetch_json,
    no_request,
    read_results,
)

_TIMEOUT = 60.0

NoteCost = Callable[[str, Usage | None], None]
"""Records what a search has cost: the name of the model, and its usage (None: not known)."""
_MODEL_BACKEND = SearchBackend(
    "model",
    url="",
    variables=(),
    request=no_request,
    results=lambda answer: answer,
    fields=("text", "date"),
)


class ModelSearch(WebSearch):
    __doc__ = WebSearch.__doc__  # the description for the model

    def __init__(self, find: Callable[[], ProviderSearch], note_cost: NoteCost) -> None:
        """Prepare the tool; nothing is searched yet.

        Args:
            find: returns the search of the model in use. Raises ModelError: it has none.
            note_cost: records what a search has cost, by the name of the model.
        """
        super().__init__(_MODEL_BACKEND, "", "")
        self._find = find
        self._note_cost = note_cost

    def targets(self, args: WebSearchArgs) -> tuple[str, ...]:
        return (self._address(self._find_search().url, args.query),)

    async def _search(self, query: str) -> list[WebResult]:
        """Let the provider of the model search, record the cost, and return the pages that it has
        found. Raises ToolError.
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
        return read_results(_MODEL_BACKEND, results)

    def _find_search(self) -> ProviderSearch:
        """The search of the model in use. Raises ToolError: it has none."""
        try:
            return self._find()
        except ModelError as error:
            raise ToolError(str(error)) from None
