"""A model server on loopback that answers at once, with so many shell calls and then a word. OpenAI's two wires."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SHELLS = ("shell", "bash", "shell_command", "exec_command", "local_shell")
ANSWER = "Hello."


@dataclass
class Asked:
    """One request of a program for an answer."""

    came: float
    """When it had arrived, by the monotonic clock."""
    answered: float = 0.0
    """When all of the answer was written."""


@dataclass
class AnsweringServer:
    """Serves from `with` on; `calls` shell calls are asked for before the answer."""

    calls: int = 0
    asked: list[Asked] = field(default_factory=list)
    before_answer: Callable[[], None] = lambda: None
    """Called with the last request, before its answer."""

    def __enter__(self) -> AnsweringServer:
        self._http = _Listener(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def begin(self, calls: int = 0, before_answer: Callable[[], None] = lambda: None) -> None:
        """Forget what was asked."""
        self.calls, self.before_answer, self.asked = calls, before_answer, []


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A program that was ended closes its connections as it likes."""


def _handler(server: AnsweringServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_GET(self) -> None:
            self._send("application/json", json.dumps({"object": "list", "data": [{"id": "bench", "object": "model"}]}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            asked = Asked(time.monotonic())
            wire = {"chat/completions": _chat, "responses": _responses}.get(self.path.partition("/v1/")[2])
            if wire is None:
                self._send("application/json", "{}")
                return
            server.asked.append(asked)
            number = len(server.asked)
            call = _shell_call(body.get("tools", []), number) if number <= server.calls else None
            if call is None:
                server.before_answer()
            events = "".join(map(_event, wire(call, number)))
            self._send("text/event-stream", events + "data: [DONE]\n\n" * (wire is _chat))
            asked.answered = time.monotonic()

        def _send(self, kind: str, text: str) -> None:
            data = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _event(data: dict[str, Any]) -> str:
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n"


def _shell_call(tools: list[dict[str, Any]], number: int) -> tuple[str, str] | None:
    """Name and arguments of a call that runs `true`; no two are the same, for what repeats itself is stopped."""
    for tool in (each.get("function", each) for each in tools):
        if tool.get("name") in SHELLS:
            properties = tool["parameters"]["properties"]
            name = next(each for each in ("command", "cmd") if each in properties)
            line: Any = f"true {number}"
            return tool["name"], json.dumps(
                {name: ["true", str(number)] if properties[name].get("type") == "array" else line}
            )
    return None


def _chat(call: tuple[str, str] | None, number: int) -> Iterator[dict[str, Any]]:
    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": f"c{number}", "object": "chat.completion.chunk", "created": 0, "model": "bench",
                "choices": [choice], **more}  # fmt: skip

    usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
    if call is None:
        yield chunk({"role": "assistant", "content": ANSWER})
        yield chunk({}, "stop", usage=usage)
        return
    function = {"name": call[0], "arguments": call[1]}
    tool = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
    yield chunk({"role": "assistant", "tool_calls": [tool]})
    yield chunk({}, "tool_calls", usage=usage)


def _responses(call: tuple[str, str] | None, number: int) -> Iterator[dict[str, Any]]:
    item: dict[str, Any]
    if call is None:
        content = [{"type": "output_text", "text": ANSWER, "annotations": []}]
        item = {"type": "message", "id": f"m{number}", "role": "assistant", "status": "completed", "content": content}
    else:
        item = {"type": "function_call", "id": f"f{number}", "call_id": f"call_{number}", "name": call[0],
                "arguments": call[1], "status": "completed"}  # fmt: skip
    usage = {"input_tokens": 100, "output_tokens": 5, "total_tokens": 105}
    answer = {"id": f"r{number}", "object": "response", "status": "in_progress", "model": "bench", "output": []}
    yield {"type": "response.created", "response": answer}
    yield {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress"}}
    if call is None:
        yield {
            "type": "response.output_text.delta",
            "item_id": item["id"],
            "output_index": 0,
            "content_index": 0,
            "delta": ANSWER,
        }
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {
        "type": "response.completed",
        "response": {**answer, "status": "completed", "output": [item], "usage": usage},
    }
