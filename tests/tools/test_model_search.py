"""web_search by the provider of the model: the formats of the real wires on loopback."""

import json
import threading
from http.server import BaseHTTPRequestHandler

import pytest
from fakes.local_servers import Listener
from fakes.tool_benches import call

from ouro.errors import ModelError, ToolError
from ouro.llm import Endpoint, ModelSpec, Prices, ScriptedModel, make_provider_search
from ouro.llm.openai_responses import ResponsesWire
from ouro.memory.long_term.trust.provenance import Provenance
from ouro.messages import ToolCall, assistant, user
from ouro.safety import Ask, Deny, Permissions, Workspace
from ouro.tools.model_search import ModelSearch

KEY = "key-of-the-provider"
TEXT = "Herons fly slowly ([Birds](https://birds.example/heron))."
ANTHROPIC = {
    "id": "msg_1", "type": "message", "role": "assistant", "stop_reason": "end_turn",
    "content": [
        {"type": "text", "text": "I'll search."},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
            {"type": "web_search_result", "url": "https://birds.example/heron", "title": "Birds",
             "encrypted_content": "Eq", "page_age": "April 30, 2026"},
            {"type": "web_search_result", "url": "javascript:alert(1)", "title": "x"},
        ]},
        {"type": "text", "text": "Herons fly slowly.", "citations": [
            {"type": "web_search_result_location", "url": "https://birds.example/heron",
             "title": "Birds", "encrypted_index": "Eo", "cited_text": "Herons fly slowly."}]},
    ],
    "usage": {"input_tokens": 1000, "output_tokens": 100, "cache_read_input_tokens": 0,
              "server_tool_use": {"web_search_requests": 1}},
}  # fmt: skip
RESPONSES = {
    "id": "resp_1", "object": "response", "status": "completed",
    "output": [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {
            "type": "search", "query": "x", "sources": [
                {"type": "url", "url": "https://birds.example/heron"},
                {"type": "url", "url": "https://other.example/"}]}},
        {"type": "message", "role": "assistant", "content": [{
            "type": "output_text", "text": TEXT, "annotations": [{
                "type": "url_citation", "url": "https://birds.example/heron", "title": "Birds",
                "start_index": TEXT.index("("), "end_index": len(TEXT) - 1}]}]},
    ],
    "usage": {"input_tokens": 1000, "output_tokens": 100, "input_tokens_details": {"cached_tokens": 0}},
}  # fmt: skip
GEMINI = {
    "candidates": [{
        "content": {"role": "model", "parts": [{"text": "Herons fly slowly."}]},
        "groundingMetadata": {
            "webSearchQueries": ["x"],
            "groundingChunks": [{"web": {"uri": "https://birds.example/heron", "title": "Birds"}}],
            "groundingSupports": [{"segment": {"startIndex": 0, "endIndex": 18,
                                   "text": "Herons fly slowly."}, "groundingChunkIndices": [0]}],
        }}],
    "usageMetadata": {"promptTokenCount": 900, "toolUsePromptTokenCount": 100,
                      "candidatesTokenCount": 60, "thoughtsTokenCount": 40},
}  # fmt: skip
NAMES = {"anthropic": "anthropic/claude-x", "responses": "openai/gpt-x", "gemini": "gemini/gem-x"}
ANSWERS = {"anthropic": ANTHROPIC, "responses": RESPONSES, "gemini": GEMINI}


class ProviderServer(Listener):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, dict, dict]] = []
        self.answer: tuple[int, bytes] = (200, b"{}")


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(
            (self.path, {name.lower(): self.headers[name] for name in self.headers}, body)
        )
        status, data = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ProviderServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


class Searching:
    """The tool with the search of one kind of provider, and the costs that it records."""

    def __init__(self, server: ProviderServer, kind: str) -> None:
        self.costs: list = []
        spec = ModelSpec(NAMES[kind], prices=Prices(1.0, 10.0))
        base = f"http://127.0.0.1:{server.server_port}"
        base += {"anthropic": "", "responses": "/v1", "gemini": "/v1beta/openai"}[kind]
        endpoint = Endpoint(base, KEY)
        model = (
            ResponsesWire(spec, endpoint) if kind == "responses" else ScriptedModel([], spec=spec)
        )
        wire = "anthropic" if kind == "anthropic" else "openai"
        server.answer = (200, json.dumps(ANSWERS[kind]).encode())
        self.tool = ModelSearch(
            lambda: make_provider_search(model, wire, endpoint),
            lambda *cost: self.costs.append(cost),
        )


@pytest.mark.parametrize("kind", ANSWERS)
async def test_pages_come_with_title_address_and_text_and_the_cost_is_recorded(server, kind):
    searching = Searching(server, kind)
    result = await call(searching.tool, query="how do\nherons fly")
    first = result.text.split("\n\n")[0].split("\n")
    assert first[0].startswith("Birds")
    assert first[1:] == ["https://birds.example/heron", "Herons fly slowly" + (
        "" if kind == "responses" else ".")]  # fmt: skip
    assert "javascript" not in result.text
    [(model, usage)] = searching.costs
    assert (model, usage.input, usage.output) == (NAMES[kind], 1000, 100)
    assert usage.cost == pytest.approx(0.002)
    await call(searching.tool, query="how do herons fly")
    assert len(server.requests) == 1


async def test_requests_have_the_format_of_each_wire(server):
    for kind in ANSWERS:
        await call(Searching(server, kind).tool, query="herons")
    (path1, head1, body1), (path2, head2, body2), (path3, head3, body3) = server.requests
    assert (path1, head1["x-api-key"], body1["model"]) == ("/v1/messages", KEY, "claude-x")
    assert body1["tools"] == [{"type": "web_search_20250305", "name": "web_search", "max_uses": 1}]
    assert (path2, head2["authorization"]) == ("/v1/responses", f"Bearer {KEY}")
    assert (body2["tools"], body2["store"]) == ([{"type": "web_search"}], False)
    assert (path3, head3["x-goog-api-key"]) == ("/v1beta/models/gem-x:generateContent", KEY)
    assert body3["tools"] == [{"google_search": {}}]
    assert all("herons" in json.dumps(body) for body in (body1, body2, body3))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((401, b""), "refused the request"),
        ((400, b"{}"), "answered 400"),
        ((200, b"<html>"), "did not answer with JSON"),
        ((200, b'{"content": [{"type": "web_search_tool_result", "content":'
               b' {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}}]}'),
         "max_uses_exceeded"),
    ],
)  # fmt: skip
async def test_a_refusal_or_failure_is_an_error_without_the_key(server, answer, message):
    searching = Searching(server, "anthropic")
    server.answer = answer
    with pytest.raises(ToolError, match=message) as caught:
        await call(searching.tool, query="x")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("odd", [{}, {"output": 7, "content": "x", "candidates": [3]},
    {"output": [{"content": [{"annotations": [{"url": 5}], "text": 4}], "action": 3}],
     "content": [{"type": "web_search_tool_result", "content": [7]}], "usage": [],
     "candidates": [{"groundingMetadata": {"groundingChunks": [{"web": 2}],
                     "groundingSupports": [{"groundingChunkIndices": 9, "segment": 1}]}}]}])  # fmt: skip
async def test_answers_that_are_odd_are_no_results(server, kind, odd):
    searching = Searching(server, kind)
    server.answer = (200, json.dumps(odd).encode())
    assert (await call(searching.tool, query="x")).text == "No results."


def test_the_host_of_the_provider_is_asked_and_a_secret_is_refused(server, tmp_path):
    tool = Searching(server, "anthropic").tool
    finds = lambda text: "a key" if "hunter2" in text else ""  # noqa: E731
    permissions = Permissions(Workspace(tmp_path), "auto", finds_secret=finds)

    def decide(query: str):
        return permissions.decide(
            tool.name, tool.effect, tool.targets(tool.parse({"query": query}))
        )

    asked = decide("herons")
    assert isinstance(asked, Ask)
    assert "127.0.0.1" in asked.reason
    assert isinstance(decide("login hunter2"), Deny)


def test_what_comes_back_counts_as_text_from_outside():
    messages = [user("Search."), assistant("", ToolCall("1", "web_search", {"query": "x"}))]
    assert Provenance(messages).sources != ()


async def test_a_provider_without_a_search_is_named():
    model, endpoint = ScriptedModel([], spec=ModelSpec("groq/x")), Endpoint("https://x.example/v1")

    def find():
        return make_provider_search(model, "openai", endpoint)

    with pytest.raises(ModelError, match="no web search"):
        find()
    with pytest.raises(ToolError, match="groq/x has no web search"):
        await call(ModelSearch(find, lambda *_: None), query="x")
