"""A small real model server on loopback, scripted: OpenAI chat completions and Responses, Anthropic
messages, with every fault.

    with ModelServer(["Hello.", Call("read", {"path": "a.py"}), "Done."]) as server:
        server.url            # http://127.0.0.1:PORT     base URL for Anthropic
        server.openai_url     # the same with /v1         base URL for OpenAI
        server.requests       # path, headers, body, prompt, results, tools, time, gone
        server.script([...])  # other replies from here on
        await server.asked(2) # wait for two requests (wait_asked(2) blocks)

A script is a list of steps, one for each model call, or a function of the Request that returns a
step. A step is a text, a Call, a Reply, a Raw (any HTTP answer), or a function of the Request that
returns one of these.

    Reply(text, calls, thinking, signature, redacted, tokens=Tokens(input, output, cached, cache_written), …)
        text, thinking   a string is streamed with four characters per token, a list or generator piece by piece
        calls            Call(name, arguments, id, pieces): `arguments` as text is sent unchanged (also broken JSON),
                         id None is sent as null, the same id twice is sent twice
        finish           the finish reason; "": the fitting one, None: not sent
        rate, delay      tokens per second; seconds before the first byte
        hold             a threading.Event: the reply waits for it after `after` pieces (default: before the end)
        fault, after     a fault after that many pieces (default: all of them, before the finish reason):
                         cut (closed without an end) · end (body ends neatly, no finish) · reset (TCP RST)
                         · stall (silence) · chatter (pings only) · bad_json · bad_utf8 (a broken line, then more)
                         · error (an error object, then the end)
                         · linger (everything is sent, but the connection stays open)
        done, comments, newline   without [DONE]; with keep-alive comments; "\\r\\n" lines
    failure(429, "slow down", retry_after=1) · sse({...}, "[DONE]") · Raw(200, "<html>")
    · Raw(307, headers={"Location": …})

Also GET /v1/models (`models=`) and any other fixed answer (`routes={"/api/tags": {...}}`). Whether
a reply is streamed is the request's choice.

As a process, from tests/: `python -m fakes.model_server --port 0 [--script FILE.py|json|yaml |
--mode agent|echo] [--rate 500] [--delay 0.1] [--log FILE]`, prints its URL on the first line.
`--mode agent` follows the lines of a prompt (`run: ls`, `read: api.py`, `markdown: 20000`, `repeat:
20 true`, see model_agent.agent); the list of a file restarts at its end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from fakes import model_formats
from fakes.local_servers import GoneError, Listener
from fakes.model_script import (
    Call,
    Play,
    Raw,
    Reply,
    Request,
    Script,
    Step,
    Tokens,
    agent,
    echo,
    failure,
    load,
    markdown,
    paced,
    sse,
)
from fakes.responses_format import (
    ResponsesState,
    as_lists,
    output_of,
    refuse_tools_with_effort,
)
from fakes.waiting import PATIENCE

__all__ = [
    "Call",
    "ModelServer",
    "Raw",
    "Reply",
    "Request",
    "Script",
    "Step",
    "Tokens",
    "agent",
    "echo",
    "failure",
    "markdown",
    "sse",
]


class ModelServer:
    """See the module's docstring."""

    def __init__(
        self,
        script: Script = (),
        *,
        port: int = 0,
        models: Sequence[str] = ("test-model",),
        routes: Mapping[str, Any] | None = None,
        log: Path | None = None,
    ) -> None:
        self.models = list(models)
        self.routes = dict(routes or {})
        self.requests: list[Request] = []
        self.embed: Callable[[str, list[str]], list[list[float]] | Raw] | None = None
        """The result of POST …/embeddings for a model and texts: vectors; None: 404."""
        self.responses = ResponsesState()
        """What was sent as responses: a request must hold its reasoning items byte for byte."""
        self.paths: tuple[str, ...] = ("/chat/completions", "/messages", "/responses")
        self.refuses_tools_on_chat = False
        """As OpenAI since GPT-5.4: tools on chat completions only with the effort `none`."""
        self.refused: list[tuple[Request, Raw]] = []
        self.stopping = threading.Event()
        self._came = threading.Condition()
        self._log = log
        self.script(script)
        self._http = Listener(("127.0.0.1", port), _handler_for(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    def script(self, script: Script) -> None:
        """Use this script from the next request on."""
        self._play = Play(script)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    def start(self) -> ModelServer:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close the server; stalled and held replies end."""
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()

    def __enter__(self) -> ModelServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_asked(self, count: int, seconds: float = PATIENCE) -> list[Request]:
        """Wait for `count` requests, and return them."""
        with self._came:
            if not self._came.wait_for(lambda: len(self.requests) >= count, seconds):
                raise AssertionError(f"{len(self.requests)} requests came, not {count}")
        return self.requests[:count]

    async def asked(self, count: int, seconds: float = PATIENCE) -> list[Request]:
        """The same, without blocking the event loop."""
        return await asyncio.to_thread(self.wait_asked, count, seconds)

    def refusal(self, request: Request) -> Raw | None:
        """The refusal of a request that OpenAI would refuse; it uses no step of the script."""
        refused = None
        if request.wire == "responses":
            refused = self.responses.problem(request.body)
        elif request.wire == "openai" and self.refuses_tools_on_chat and request.tools:
            refused = refuse_tools_with_effort(request.body)
        if refused:
            with self._came:
                self.refused.append((request, refused))
        return refused

    def answer(self, request: Request) -> tuple[int, Reply | Raw]:
        """Record the request; returns its number and its reply."""
        with self._came:
            self.requests.append(request)
            number = len(self.requests)
            self._came.notify_all()
        if self._log:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(
                    json.dumps({"time": time.time(), "path": request.path, "body": request.body})
                    + "\n"
                )
        try:
            return number, self._play.next(request)
        except Exception as error:
            return number, failure(400, f"model server: the script failed with {error!r}")


def _handler_for(model_server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        owner = model_server

    return Handler


class _Handler(BaseHTTPRequestHandler):
    owner: ModelServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Log nothing: see `requests`."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path in self.owner.routes:
            self._send(Raw(200, self.owner.routes[path]))
        elif path.endswith("/models"):
            listed = [
                {"id": name, "object": "model", "type": "model"} for name in self.owner.models
            ]
            self._send(Raw(200, {"object": "list", "data": listed}))
        else:
            self._send(failure(404, f"no {path} here"))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request("POST", self.path, headers, body, connection=self.client_address[1])
        if self.owner.embed is not None and self.path.endswith("/embeddings"):
            self._send(_vectors(self.owner.embed(request.body["model"], request.body["input"])))
            return
        path = self.path.partition("?")[0]
        if not path.endswith(self.owner.paths):
            self._send(failure(404, f"no {self.path} here"))
            return
        if refused := self.owner.refusal(request):
            self._send(refused)
            return
        number, reply = self.owner.answer(request)
        if request.wire == "responses" and isinstance(reply, Reply):
            reply = as_lists(reply)
            self.owner.responses.keep(output_of(reply, request, number))
        try:
            if isinstance(reply, Raw):
                self._send(reply)
            elif request.streaming:
                self._stream(reply, request, number)
            else:
                self._whole(reply, request, number)
        except (GoneError, OSError):
            request.gone.set()
            self.close_connection = True

    def _send(self, raw: Raw) -> None:
        self.send_response(raw.status)
        for name, value in {
            "Content-Type": raw.media_type,
            **raw.headers,
            "Content-Length": str(len(raw.bytes)),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw.bytes)

    def _whole(self, reply: Reply, request: Request, number: int) -> None:
        self._wait(reply.delay)
        if reply.fault in ("stall", "reset"):
            self._go_wrong(reply, request)
            return
        body = json.dumps(model_formats.whole(reply, request, number))
        if reply.fault in ("cut", "end", "bad_json"):
            body = body[: len(body) // 2]
        self._send(Raw(200, body, {"Content-Type": "application/json", **reply.headers}))

    def _stream(self, reply: Reply, request: Request, number: int) -> None:
        self._wait(reply.delay)
        self.send_response(200)
        for name, value in {
            "Content-Type": "text/event-stream",
            **reply.headers,
            "Transfer-Encoding": "chunked",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        started, said, waiting = time.monotonic(), 0, True
        for part in model_formats.parts(reply, request, number):
            if waiting and (
                part.closing if reply.after is None else said == reply.after and (said or part.said)
            ):
                waiting = False
                if self._go_wrong(reply, request):
                    return
            if part.said and reply.rate:
                self._wait(started + said / reply.rate - time.monotonic())
            self._event(part, reply)
            said += part.said
        if waiting and self._go_wrong(reply, request):
            return
        if reply.fault == "linger":
            self._wait_until(self.owner.stopping)
        self._chunk(b"")

    def _event(self, part: model_formats.Part, reply: Reply) -> None:
        lines = [f"event: {part.event}"] if part.event else []
        if reply.comments:
            lines = [": keep-alive", "", *lines]
        self._chunk(
            reply.newline.join([*lines, f"data: {part.data}", "", ""]).encode(
                "utf-8", "surrogatepass"
            )
        )

    def _chunk(self, data: bytes) -> None:
        if self._client_gone():
            raise GoneError
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _go_wrong(self, reply: Reply, request: Request) -> bool:
        """Cause the fault; returns True if it ended the reply."""
        if reply.hold:
            self._wait_until(reply.hold)
        match reply.fault:
            case "cut":
                self.close_connection = True
            case "reset":
                self.connection.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                os.close(self.connection.detach())
                self.close_connection = True
            case "stall":
                self._wait_until(self.owner.stopping)
            case "chatter":
                while not self.owner.stopping.wait(0.02):
                    self._chunk(b': keep-alive\n\nevent: ping\ndata: {"type": "ping"}\n\n')
            case "end":
                self._chunk(b"")
            case "error":
                self._event(model_formats.error_part(request), reply)
                self._chunk(b"")
            case "bad_json":
                self._chunk(model_formats.said(request, "half").partition(b"alf")[0] + b"\n\n")
                return False
            case "bad_utf8":
                self._chunk(model_formats.said(request, "half").replace(b"half", b"\xff\xfe\xc3"))
                return False
            case _:
                return False
        return True

    def _client_gone(self) -> bool:
        if not select.select([self.connection], [], [], 0)[0]:
            return False
        with contextlib.suppress(OSError):
            return not self.connection.recv(1, socket.MSG_PEEK)
        return True

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))
            if self._client_gone() or self.owner.stopping.is_set():
                raise GoneError

    def _wait_until(self, event: threading.Event) -> None:
        while not event.wait(0.02):
            if self._client_gone() or self.owner.stopping.is_set():
                raise GoneError


def _vectors(answer: list[list[float]] | Raw) -> Raw:
    if isinstance(answer, Raw):
        return answer
    rows = [
        {"object": "embedding", "index": index, "embedding": row}
        for index, row in enumerate(answer)
    ]
    return Raw(200, {"object": "list", "data": rows})


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(
        prog="model_server", description="A scripted model server on loopback."
    )
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path)
    parser.add_argument("--mode", choices=["agent", "echo"], default="agent")
    parser.add_argument("--rate", type=float, help="tokens a second")
    parser.add_argument("--delay", type=float, default=0, help="seconds before the first byte")
    parser.add_argument("--log", type=Path, help="write each request here, as a JSON line")
    given = parser.parse_args(arguments)
    script = load(given.script) if given.script else {"agent": agent, "echo": echo}[given.mode]
    with ModelServer(
        paced(script, given.rate, given.delay), port=given.port, log=given.log
    ) as server:
        print(server.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
