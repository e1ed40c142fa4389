"""A model server on loopback that answers immediately: shell calls, then a text; both wires of
OpenAI, Anthropic's.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SHELLS = ("shell", "bash", "shell_command", "exec_command", "local_shell")
Event = dict[str, Any]


@dataclass
class Asked:
    """One request of a program for an answer."""

    came: float
    """The time of its arrival, by the monotonic clock."""
    body: dict[str, Any]
    """Only of the first request: all of a long session are 4 GB."""
    answered: float = 0.0
    """The time at which the whole answer was written."""


@dataclass
class AnsweringServer:
    """Serves within `with`. A request without tools, as for a title, is answered and not counted."""

    commands: Sequence[str] = ()
    """Shell lines to call, one per answer, before the text."""
    text: Sequence[str] = ("Hello.",)
    pace: float = 0.0
    """Seconds between two pieces of the text."""
    asked: list[Asked] = field(default_factory=list)
    before_answer: Callable[[], None] = lambda: None
    """Called for each counted request, before its answer."""

    def __enter__(self) -> AnsweringServer:
        self._http = _Listener(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def begin(
        self, commands: Sequence[str] = (), text: Sequence[str] = ("Hello.",), pace: float = 0.0,
        before_answer: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Set the next answers, and clear the requests."""
        self.commands, self.text, self.pace, self.before_answer, self.asked = (
            commands,
            text,
            pace,
            before_answer,
            [],
        )


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignore errors: a killed program does not close its connections properly."""


def _handler(server: AnsweringServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_GET(self) -> None:
            self._head("application/json")
            self._end(json.dumps({"object": "list", "data": [{"id": "bench", "object": "model"}]}))

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            came = time.monotonic()  # reading 5,000 messages as JSON takes the server 10 ms
            body = json.loads(sent or b"{}")
            asked = Asked(came, {} if server.asked else body)
            path = self.path.partition("/v1/")[2].partition("?")[0]
            wire = {"chat/completions": _chat, "responses": _responses, "messages": _messages}.get(
                path
            )
            if wire is None:
                self._head("application/json")
                self._end('{"input_tokens": 100}')
                return
            call, text, number = None, server.text, len(server.asked)
            if body.get("tools"):
                server.asked.append(asked)
                server.before_answer()
                call = (
                    _shell_call(body["tools"], server.commands[number])
                    if number < len(server.commands)
                    else None
                )
            else:
                text = ("Hello.",)
            self._head("text/event-stream")
            held = ""
            for event in wire(call, text, number):
                name = f"event: {event['type']}\n" if "type" in event else ""
                held += f"{name}data: {json.dumps(event)}\n\n"
                if server.pace and text is server.text and call is None:
                    self._write(held)
                    held = ""
                    time.sleep(server.pace)
            self._end(held + "data: [DONE]\n\n" * (wire is _chat))
            asked.answered = time.monotonic()

        def _head(self, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

        def _write(self, text: str) -> None:
            data = text.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

        def _end(self, text: str) -> None:
            data = text.encode()
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))
            self.wfile.flush()

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _shell_call(tools: list[dict[str, Any]], line: str) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments of a call that runs `line`."""
    for tool in (offered.get("function", offered) for offered in tools):
        if tool.get("name", "").lower() in SHELLS:
            properties = (tool.get("parameters") or tool["input_schema"])["properties"]
            name = next(name for name in ("command", "cmd") if name in properties)
            return tool["name"], {
                name: line.split() if properties[name].get("type") == "array" else line
            }
    return None


def _chat(call: tuple[str, Event] | None, text: Sequence[str], number: int) -> Iterator[Event]:
    def chunk(delta: Event, finish: str | None = None, **more: Any) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": f"c{number}", "object": "chat.completion.chunk", "created": 0, "model": "bench",
                "choices": [choice], **more}  # fmt: skip

    usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
    if call is None:
        for piece in text:
            yield chunk({"role": "assistant", "content": piece})
        yield chunk({}, "stop", usage=usage)
        return
    function = {"name": call[0], "arguments": json.dumps(call[1])}
    tool = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
    yield chunk({"role": "assistant", "tool_calls": [tool]})
    yield chunk({}, "tool_calls", usage=usage)


def _responses(call: tuple[str, Event] | None, text: Sequence[str], number: int) -> Iterator[Event]:
    item: Event
    if call is None:
        content = [{"type": "output_text", "text": "".join(text), "annotations": []}]
        item = {
            "type": "message",
            "id": f"m{number}",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
    else:
        item = {"type": "function_call", "id": f"f{number}", "call_id": f"call_{number}", "name": call[0],
                "arguments": json.dumps(call[1]), "status": "completed"}  # fmt: skip
    usage = {"input_tokens": 100, "output_tokens": 5, "total_tokens": 105}
    answer = {
        "id": f"r{number}",
        "object": "response",
        "status": "in_progress",
        "model": "bench",
        "output": [],
    }
    yield {"type": "response.created", "response": answer}
    yield {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {**item, "status": "in_progress"},
    }
    for piece in text if call is None else ():
        yield {"type": "response.output_text.delta", "item_id": item["id"], "output_index": 0, "content_index": 0,
               "delta": piece}  # fmt: skip
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed",
           "response": {**answer, "status": "completed", "output": [item], "usage": usage}}  # fmt: skip


def _messages(call: tuple[str, Event] | None, text: Sequence[str], number: int) -> Iterator[Event]:
    usage = {"input_tokens": 100, "output_tokens": 5}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "bench", "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
    yield {"type": "message_start", "message": message}
    if call is None:
        block: Event = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in text]
    else:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": call[0], "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(call[1])}]
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    reason = "end_turn" if call is None else "tool_use"
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": None},
        "usage": usage,
    }
    yield {"type": "message_stop"}
