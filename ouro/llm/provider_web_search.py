"""The web search of model providers: a request of its own with only their search tool, and the pages
in its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

import msgspec

from ouro.errors import ModelError
from ouro.llm.anthropic import COUNTS, VERSION
from ouro.llm.model import Endpoint, Model, ModelSpec
from ouro.llm.openai_responses import ResponsesWire, parse_usage
from ouro.llm.wire import make_usage
from ouro.messages import Usage
from ouro.utils.addresses import split_url
from ouro.utils.lenient_json import count, dictionaries, dictionary, string

if TYPE_CHECKING:
    from ouro.utils.json_object import JsonObject

SearchKind = Literal["anthropic", "responses", "gemini"]
_MAX_OUTPUT = 4_000
"""Maximum tokens of the answer."""
_GEMINI_PATH = "/openai"
"""The end of the address at which Gemini speaks OpenAI's protocol. The search is only in its own
protocol.
"""
_MAX_CITED = 400
"""Maximum characters before a citation that count as its text."""


class ProviderPage(msgspec.Struct, frozen=True):
    """A page that a provider's search has found."""

    url: str
    title: str = ""
    date: str = ""
    text: str = ""


class ProviderSearch(msgspec.Struct, frozen=True):
    """The search of one model at its provider."""

    kind: SearchKind
    spec: ModelSpec
    endpoint: Endpoint

    @property
    def url(self) -> str:
        """The address of the request."""
        base = self.endpoint.base_url.rstrip("/")
        if self.kind == "gemini":
            name = quote(self._model, safe="")
            return f"{base.removesuffix(_GEMINI_PATH)}/models/{name}:generateContent"
        if self.kind == "responses":
            return f"{base}/responses"
        return f"{self.endpoint.root}/v1/messages"

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the request, with the key and those of the user."""
        return self.endpoint.add_headers(self._own_headers())

    def _own_headers(self) -> Mapping[str, str]:
        """The headers that the protocol needs, with the key."""
        key = self.endpoint.api_key
        if self.kind == "anthropic":
            return {"anthropic-version": VERSION, "x-api-key": key}
        if self.kind == "gemini":
            return {"x-goog-api-key": key}
        return {"Authorization": f"Bearer {key}"}

    def body(self, query: str) -> JsonObject:
        """The request for one search."""
        prompt = f"Search the web once for: {query}\nThen say in one line what each page has."
        if self.kind == "gemini":
            turn = {"role": "user", "parts": [{"text": prompt}]}
            return {"contents": [turn], "tools": [{"google_search": {}}]}
        if self.kind == "responses":
            return {
                "model": self._model,
                "input": prompt,
                "tools": [{"type": "web_search"}],
                "tool_choice": "required",
                "include": ["web_search_call.action.sources"],
                "max_output_tokens": _MAX_OUTPUT,
                "store": False,
            }
        # Anthropic.
        tool = {"type": "web_search_20250305", "name": "web_search", "max_uses": 1}
        return {
            "model": self._model,
            "max_tokens": min(_MAX_OUTPUT, self.spec.max_output),
            "messages": [{"role": "user", "content": prompt}],
            "tools": [tool],
        }

    def pages(self, answer: JsonObject) -> list[ProviderPage]:
        """The pages in an answer, each address once.

        Raises:
            ModelError: the provider says that its search failed.
        """
        by_address: dict[str, ProviderPage] = {}
        for page in _PAGE_READERS[self.kind](answer):
            if page.url.startswith(("http://", "https://")):
                by_address.setdefault(page.url, page)
        return list(by_address.values())

    def usage(self, answer: JsonObject) -> Usage | None:
        """The tokens of the request, with their cost; None if the answer does not say."""
        if self.kind == "gemini":
            return self._gemini_usage(dictionary(answer.get("usageMetadata")))
        usage = dictionary(answer.get("usage"))
        if self.kind == "responses":
            return parse_usage(usage, self.spec)
        # Anthropic counts what it read from its cache, and wrote to it, apart from the rest.
        uncached, cached, written, answered = (usage.get(name) for name in COUNTS)
        sent = sum(count(figure) or 0 for figure in (uncached, cached, written))
        return make_usage(
            self.spec, sent=sent, cached=cached, cache_written=written, answered=answered
        )

    def _gemini_usage(self, usage: JsonObject) -> Usage | None:
        """The usage from the figures of Gemini, which have other names; None if one cannot be right."""

        def total(*names: str) -> int:
            return sum(count(usage.get(name)) or 0 for name in names)

        return make_usage(
            self.spec,
            sent=total("promptTokenCount", "toolUsePromptTokenCount"),
            cached=usage.get("cachedContentTokenCount"),
            answered=total("candidatesTokenCount", "thoughtsTokenCount"),
        )

    @property
    def _model(self) -> str:
        """The name of the model at its provider."""
        return self.spec.name.partition("/")[2]


def make_provider_search(model: Model, wire: str, endpoint: Endpoint) -> ProviderSearch:
    """The search of the provider of a model.

    Args:
        wire: the name of the wire that the model uses.

    Raises:
        ModelError: the provider has no search.
    """
    if wire == "anthropic":
        return ProviderSearch("anthropic", model.spec, endpoint)
    is_gemini_address = endpoint.base_url.rstrip("/").endswith(_GEMINI_PATH)
    if wire == "openai" and is_gemini_address and _is_google(model):
        return ProviderSearch("gemini", model.spec, endpoint)
    used_wire = getattr(model, "wire", model)  # an OpenAIModel has one of two
    if isinstance(used_wire, ResponsesWire):
        return ProviderSearch("responses", model.spec, endpoint)
    raise ModelError(
        f"The provider of {model.spec.name} has no web search that ouro can use. Choose another"
        " model, or another `web.search`."
    )


def _is_google(model: Model) -> bool:
    """Whether a model is one of Google's."""
    return model.spec.name.startswith("gemini/")


def _anthropic_pages(answer: JsonObject) -> Iterator[ProviderPage]:
    """Yield the pages in the results of the search, with what the answer cites of them. Raises
    ModelError if the search failed.
    """
    blocks = dictionaries(answer.get("content"))
    cited_texts: dict[str, str] = {}
    for block in blocks:
        for citation in dictionaries(block.get("citations")):
            cited_texts.setdefault(string(citation.get("url")), string(citation.get("cited_text")))
    for block in blocks:
        if block.get("type") != "web_search_tool_result":
            continue
        # The content is a list of pages, or an object with an error.
        error_code = string(dictionary(block.get("content")).get("error_code"))
        if error_code:
            raise ModelError(f"The search of the provider failed: {error_code[:100]}.")
        for item in dictionaries(block.get("content")):
            url, date = string(item.get("url")), string(item.get("page_age"))
            yield ProviderPage(
                url, title=string(item.get("title")), date=date, text=cited_texts.get(url, "")
            )


def _responses_pages(answer: JsonObject) -> Iterator[ProviderPage]:
    """Yield the pages that the answer cites, then the other sources of the search."""
    items = dictionaries(answer.get("output"))
    for item in items:
        for part in dictionaries(item.get("content")):
            text = string(part.get("text"))
            for citation in dictionaries(part.get("annotations")):
                text_before = text[: count(citation.get("start_index")) or 0]
                url, title = string(citation.get("url")), string(citation.get("title"))
                yield ProviderPage(url, title, text=_last_words(text_before))
    for item in items:
        for source in dictionaries(dictionary(item.get("action")).get("sources")):
            url = string(source.get("url"))
            yield ProviderPage(url, split_url(url).hostname or "")


def _last_words(text: str) -> str:
    """The text that a citation supports: the last paragraph, or item of a list, of the text before the
    citation, and at most _MAX_CITED characters of it.
    """
    before = text[-_MAX_CITED:].rstrip(" ([")
    paragraph = before.rpartition("\n\n")[2]
    item = paragraph.rpartition("\n- ")[2]
    return item.strip()


def _gemini_pages(answer: JsonObject) -> Iterator[ProviderPage]:
    """Yield the pages that the answer is grounded on, with the text that they support."""
    for candidate in dictionaries(answer.get("candidates")):
        grounding = dictionary(candidate.get("groundingMetadata"))
        supported_texts: dict[str, str] = {}
        for support in dictionaries(grounding.get("groundingSupports")):
            text = string(dictionary(support.get("segment")).get("text"))
            indices = support.get("groundingChunkIndices")
            for index in indices if isinstance(indices, list) else ():
                supported_texts.setdefault(str(index), text)
        for index, chunk in enumerate(dictionaries(grounding.get("groundingChunks"))):
            web = dictionary(chunk.get("web"))
            url, title = string(web.get("uri")), string(web.get("title"))
            yield ProviderPage(url, title, text=supported_texts.get(str(index), ""))


_PAGE_READERS: Mapping[SearchKind, Callable[[JsonObject], Iterator[ProviderPage]]] = {
    "anthropic": _anthropic_pages,
    "responses": _responses_pages,
    "gemini": _gemini_pages,
}
"""What finds the pages in an answer of each kind."""
