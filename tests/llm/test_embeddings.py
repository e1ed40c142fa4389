"""Vectors through the wire of OpenAI's protocol and through litellm, from a server on loopback."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ouro.errors import AuthenticationFailed, ModelError, ModelUnavailable, RateLimited
from ouro.llm import (
    Catalog,
    Endpoint,
    ModelEntry,
    ModelsFile,
    ModelSpec,
    Prices,
    litellm_model,
    model,
)
from ouro.llm.litellm_model import LiteLLMEmbeddings
from ouro.llm.openai_embeddings import EmbeddingWire

KEY = "sk-secret-0123456789"
PRICED = ModelSpec("openai/small", prices=Prices(2.0, 0.0))


@pytest.fixture
def server():
    """Responds with `answer`; `asked` has the path, the key and the body of each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            running.asked.append((self.path, self.headers.get("Authorization"), body))
            status, answer = running.answer
            running.silence.wait(10)
            self.send_response(status)
            if status in (301, 302, 307, 308):
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.asked, running.answer, running.silence = [], (200, b"{}"), threading.Event()
    running.silence.set()
    thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def wire(server) -> EmbeddingWire:
    return EmbeddingWire(PRICED, Endpoint(f"http://127.0.0.1:{server.server_port}/v1", KEY))


def vectors(*rows, **more) -> tuple[int, bytes]:
    return (
        200,
        json.dumps(
            {"data": [{"index": index, "embedding": row} for index, row in rows], **more}
        ).encode(),
    )


def test_vectors_are_returned_in_the_order_of_the_texts(server):
    server.answer = vectors(
        (1, [0.0, 2.0]), (0, [1.0, 0.0]), model="small", usage={"prompt_tokens": 500_000}
    )
    asking = wire(server)
    told = asking.embed(["one", "two"])
    assert told.vectors == [[1.0, 0.0], [0.0, 2.0]]
    assert (told.usage.input, told.usage.cost) == (500_000, 1.0)
    asking.close()
    body = {"model": "small", "input": ["one", "two"], "encoding_format": "float"}
    assert server.asked == [("/v1/embeddings", "Bearer sk-secret-0123456789", body)]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((401, b'{"error": {"message": "bad key sk-secret-0123456789"}}'), AuthenticationFailed),
        ((429, b""), RateLimited),
        ((503, b"<html>"), ModelUnavailable),
        ((200, b"<html>"), ModelError),
        ((200, b'{"data": [{"embedding": ["x"]}]}'), ModelError),
        (vectors((0, [1.0])), ModelError),
        (vectors((0, [1.0]), (1, [])), ModelError),
        (vectors((0, [1.0]), (1, [1.0, 2.0])), ModelError),
    ],
    ids=[
        "key",
        "too many",
        "down",
        "a page",
        "no numbers",
        "one is missing",
        "an empty one",
        "two lengths",
    ],
)
def test_invalid_answer_raises_without_showing_the_key(server, answer, error):
    server.answer = answer
    asking = wire(server)
    with pytest.raises(error) as found:
        asking.embed(["one", "two"])
    asking.close()
    assert "sk-secret" not in str(found.value)


def test_unreachable_server_raises():
    asking = EmbeddingWire(PRICED, Endpoint("http://127.0.0.1:9/v1"))
    with pytest.raises(
        ModelUnavailable, match=r"127\.0\.0\.1:9 cannot be reached: the connection was refused"
    ):
        asking.embed(["one"])
    asking.close()


def cohere(server, name="cohere/embed-english-v3.0"):
    """The model as an entry of models.yaml."""
    entry = ModelEntry(api_key=KEY, api_base=f"http://127.0.0.1:{server.server_port}/v1/embed")
    return Catalog(ModelsFile(models={name: entry}), {}).embeddings(name)


def test_litellm_provider_returns_vectors_and_cost(server, litellm_kept):
    embeddings = {"float": [[1.0, 0.0], [0.0, 2.0]]}
    meta = {"billed_units": {"input_tokens": 1_000_000}}
    server.answer = (
        200,
        json.dumps({"id": "x", "texts": [], "embeddings": embeddings, "meta": meta}).encode(),
    )
    asking = cohere(server)
    told = asking.embed(["one", "two"])
    asking.close()
    assert isinstance(asking, LiteLLMEmbeddings)
    assert told.vectors == [[1.0, 0.0], [0.0, 2.0]]
    assert (told.usage.input, told.usage.cost) == (1_000_000, pytest.approx(0.1))
    ((path, key, body),) = server.asked
    assert (path, key, body["texts"]) == ("/v1/embed", f"Bearer {KEY}", ["one", "two"])


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((401, b'{"message": "bad key sk-secret-0123456789"}'), AuthenticationFailed),
        ((429, b"{}"), RateLimited),
        ((503, b"{}"), ModelUnavailable),
        ((307, b"{}"), ModelError),
        (
            (
                200,
                (
                    b'{"embeddings": {"float": [[1.0]]}, "meta": {"billed_units": {"input_tokens":'
                    b" 1}}}"
                ),
            ),
            ModelError,
        ),
    ],
    ids=["key", "too many", "down", "another server", "one is missing"],
)
def test_failed_litellm_request_raises_without_showing_the_key(server, litellm_kept, answer, error):
    server.answer = answer
    with pytest.raises(error) as found:
        cohere(server).embed(["one", "two"])
    assert KEY not in str(found.value)
    assert [path for path, _, _ in server.asked] == ["/v1/embed"]


def test_local_server_is_used_by_its_litellm_name(server, litellm_kept):
    server.answer = 200, json.dumps({"embeddings": [[0.0, 1.0]], "prompt_eval_count": 3}).encode()
    entry = ModelEntry(api_base=f"http://127.0.0.1:{server.server_port}")
    asking = Catalog(ModelsFile(models={"ollama/nomic-embed-text": entry}), {}).embeddings(
        "ollama/nomic-embed-text"
    )
    assert asking.embed(["one"]).vectors == [[0.0, 1.0]]
    assert server.asked[0][0] == "/api/embed"


@pytest.mark.parametrize("kind", ["direct", "litellm"])
def test_silent_server_times_out(server, litellm_kept, monkeypatch, kind):
    server.silence = threading.Event()
    monkeypatch.setattr(model, "VECTORS_SECONDS", 0.2)
    asking = wire(server) if kind == "direct" else cohere(server)
    with pytest.raises(ModelUnavailable):
        asking.embed(["one"])
    server.silence.set()
    asking.close()


def test_process_starts_with_the_first_request_and_ends_with_the_last(monkeypatch, server):
    monkeypatch.setattr(litellm_model, "WORKER", ("-c", "raise SystemExit('no litellm here')"))
    monkeypatch.setattr(litellm_model, "_process", None)
    monkeypatch.setattr(litellm_model, "_users", set())
    asking = cohere(server)
    assert litellm_model._process is None
    with pytest.raises(ModelUnavailable, match="no litellm here"):
        asking.embed(["one"])
    assert litellm_model._process is not None
    asking.close()
    assert litellm_model._process is None
