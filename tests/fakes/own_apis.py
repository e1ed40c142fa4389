"""Servers with an API of their own beside OpenAI's, as Ollama, LM Studio, llama.cpp, vLLM and
SGLang answer: real HTTP on loopback.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from fakes.loopback import Listener


class OwnApi:
    """`answers`: path -> JSON; `chats`: the lines of each answer of /api/chat and of the events of
    each answer of /chat/completions, in their order.
    """

    def __init__(self, answers: Mapping[str, Any], chats: Sequence[Sequence[Any]] = ()) -> None:
        self.answers = dict(answers)
        self.chats = list(chats)
        self.requests: list[tuple[str, Any]] = []
        self.hold: threading.Event | None = None
        """Everything but chats waits for it."""
        self.url = ""

    @property
    def bodies(self) -> list[Any]:
        """The bodies of the chats."""
        return [body for path, body in self.requests if "chat" in path]

    def answer(self, path: str, body: Any) -> tuple[int, str, bytes]:
        self.requests.append((path, body))
        if "chat" not in path:
            if self.hold:
                self.hold.wait(30)
            if path not in self.answers:
                return 404, "text/plain", b"404 page not found"
            return 200, "application/json", json.dumps(self.answers[path]).encode()
        lines = self.chats.pop(0)
        if isinstance(lines, str):  # the way in which Ollama refuses
            return 400, "application/json", json.dumps({"error": lines}).encode()
        if path == "/api/chat":
            sent = "".join(json.dumps(line) + "\n" for line in lines)
            return 200, "application/x-ndjson", sent.encode()
        sent = "".join(f"data: {json.dumps(line)}\n\n" for line in lines) + "data: [DONE]\n\n"
        return 200, "text/event-stream", sent.encode()


@contextmanager
def own_api(answers: Mapping[str, Any], *chats: Sequence[Any]) -> Iterator[OwnApi]:
    server = OwnApi(answers, chats)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(None)

        def do_POST(self) -> None:
            self._send(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _send(self, body: Any) -> None:
            status, kind, data = server.answer(self.path, body)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    httpd = Listener(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{httpd.server_address[1]}"
    threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        if server.hold:
            server.hold.set()
        httpd.shutdown()
        httpd.server_close()


def ollama(model: str = "qwen3:8b", *abilities: str, **more: Any) -> dict[str, Any]:
    """What Ollama says; `longest`, `num_ctx` and `loaded` are contexts."""
    shown: dict[str, Any] = {
        "model_info": {
            "general.architecture": "qwen3",
            "qwen3.context_length": more.get("longest", 40_960),
        },
        "capabilities": ["completion", *abilities],
    }
    if "num_ctx" in more:
        shown["parameters"] = f"temperature 0.6\nnum_ctx                        {more['num_ctx']}\n"
    running = [{"name": model, "model": model, "context_length": more.get("loaded")}]
    return {
        "/v1/models": {"data": [{"id": model, "object": "model", "owned_by": "library"}]},
        "/api/show": shown,
        "/api/ps": {"models": running if "loaded" in more else []},
    }


def said(*texts: str, calls: Sequence[Mapping[str, Any]] = (), **last: Any) -> list[dict[str, Any]]:
    """The lines of an answer of Ollama."""
    lines: list[dict[str, Any]] = [
        {"model": "m", "message": {"role": "assistant", "content": text}, "done": False}
        for text in texts
    ]
    for call in calls:
        message = {"role": "assistant", "content": "", "tool_calls": [{"function": call}]}
        lines.append({"model": "m", "message": message, "done": False})
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 26, "eval_count": 7}
    return [*lines, {"message": {"role": "assistant", "content": ""}, **end, **last}]
