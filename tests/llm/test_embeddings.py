"""Vectors over the wire of OpenAI's protocol, from a server on loopback."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ouro.errors import AuthenticationFailed, ModelError, ModelUnavailable, RateLimited
from ouro.llm.embeddings import EmbeddingWire
from ouro.llm.endpoint import Endpoint


@pytest.fixture
def server():
    """Answers with what `answer` holds; `asked` has the path, the key and the body of each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            running.asked.append((self.path, self.headers.get("Authorization"), body))
            status, answer = running.answer
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.asked, running.answer = [], (200, b"{}")
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def wire(server) -> EmbeddingWire:
    return EmbeddingWire("small", Endpoint(f"http://127.0.0.1:{server.server_port}/v1", "sk-secret-0123456789"))


def vectors(*rows, **more) -> tuple[int, bytes]:
    return 200, json.dumps({"data": [{"index": index, "embedding": row} for index, row in rows], **more}).encode()


def test_vectors_come_in_the_order_of_the_texts(server):
    server.answer = vectors((1, [0.0, 2.0]), (0, [1.0, 0.0]), model="small")
    asking = wire(server)
    assert asking.embed(["one", "two"]) == [[1.0, 0.0], [0.0, 2.0]]
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
    ids=["key", "too many", "down", "a page", "no numbers", "one is missing", "an empty one", "two lengths"],
)
def test_what_is_no_answer_is_an_error_without_the_key(server, answer, error):
    server.answer = answer
    asking = wire(server)
    with pytest.raises(error) as found:
        asking.embed(["one", "two"])
    asking.close()
    assert "sk-secret" not in str(found.value)


def test_a_server_that_is_not_there_is_told():
    asking = EmbeddingWire("small", Endpoint("http://127.0.0.1:9/v1"))
    with pytest.raises(ModelUnavailable, match=r"127\.0\.0\.1 gives no vectors"):
        asking.embed(["one"])
    asking.close()
