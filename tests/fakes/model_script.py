"""Scripts of a test model: replies, faults, and their sources; and models without a script: one that
echoes, one that follows the lines of a prompt.
"""

from __future__ import annotations

import itertools
import json
import re
import runpy
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

PIECE = 4
"""Characters of one streamed token."""
Fault = Literal["", "cut", "end", "reset", "stall", "bad_json", "bad_utf8", "error", "linger"]


@dataclass(frozen=True)
class Call:
    """A tool call. `arguments` as text is sent unchanged; `id` None is sent as null, for "" the
    server makes an id.
    """

    name: str | None
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = ""
    pieces: int = 3

    @property
    def json(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Tokens:
    """The usage in the reply; `input` counts all input tokens, as OpenAI does."""

    input: int = 100
    output: int = 20
    cached: int = 0
    cache_written: int = 0


@dataclass(frozen=True)
class Reply:
    """One answer; see the docstring of `fakes.model_server` for every field."""

    text: str | Iterable[str] = ""
    calls: Sequence[Call] = ()
    thinking: str | Iterable[str] = ""
    signature: str = "seal"
    redacted: str = ""
    tokens: Tokens | None = Tokens()
    finish: str | None = ""
    rate: float | None = None
    delay: float = 0
    hold: threading.Event | None = None
    fault: Fault = ""
    after: int | None = None
    done: bool = True
    newline: str = "\n"
    comments: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """Any HTTP answer, byte for byte."""

    status: int = 200
    body: bytes | str | Mapping[str, Any] = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def bytes(self) -> bytes:
        if isinstance(self.body, Mapping):
            return json.dumps(self.body).encode()
        return self.body.encode() if isinstance(self.body, str) else self.body

    @property
    def media_type(self) -> str:
        return "application/json" if isinstance(self.body, Mapping) else "text/html; charset=utf-8"


def failure(
    status: int,
    message: str,
    *,
    code: str | None = None,
    retry_after: float | None = None,
    kind: str = "",
) -> Raw:
    """An error as providers send it: `failure(429, "slow down", retry_after=1)`."""
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    kind = kind or {
        401: "authentication_error",
        429: "rate_limit_error",
        529: "overloaded_error",
    }.get(status, "api_error")
    return Raw(
        status,
        {"type": "error", "error": {"type": kind, "message": message, "code": code}},
        headers,
    )


def sse(*events: Mapping[str, Any] | str) -> Raw:
    """A stream with exactly these data lines."""
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return Raw(
        200, "".join(f"data: {line}\n\n" for line in lines), {"Content-Type": "text/event-stream"}
    )


@dataclass
class Request:
    """A request that the server got."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    raw: bytes
    connection: int = 0
    """The client's port: the same for requests that come over one connection."""
    time: float = field(default_factory=time.monotonic)
    gone: threading.Event = field(default_factory=threading.Event)
    """The client closed the connection before the reply was complete."""

    @property
    def body(self) -> Any:
        return json.loads(self.raw) if self.raw else None

    @property
    def wire(self) -> Literal["openai", "anthropic", "responses"]:
        path = self.path.partition("?")[0]
        if path.endswith("/responses"):
            return "responses"
        return "anthropic" if path.endswith("/messages") else "openai"

    @property
    def streaming(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def messages(self) -> list[dict[str, Any]]:
        if self.wire == "responses":
            return responses_messages(self.body)
        return list(self.body["messages"])

    @property
    def tools(self) -> list[str]:
        """The names of the tools that were offered."""
        return [
            tool.get("name") or tool["function"]["name"] for tool in self.body.get("tools") or ()
        ]

    @property
    def prompt(self) -> str:
        """The last message of the user."""
        said = [words for message in self.messages if (words := user_text(message))]
        return said[-1] if said else ""

    @property
    def results(self) -> list[str]:
        """The tool results after it, in order."""
        found: list[str] = []
        for message in self.messages:
            found = [] if user_text(message) else found + results_in(message)
        return found


def pieces_of(text: str | Iterable[str]) -> Iterable[str]:
    """Text as streamed tokens; pieces of the script stay as they are."""
    if not isinstance(text, str):
        return text
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def split(text: str, count: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, count)))
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]


def responses_messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The input items as the messages of chat completions, for scripts."""
    items = body.get("input")
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    found: list[dict[str, Any]] = []
    if body.get("instructions"):
        found.append({"role": "system", "content": body["instructions"]})
    for item in items or ():
        kind = item.get("type", "message")
        if kind == "message":
            found.append({"role": item["role"], "content": _responses_texts(item["content"])})
        elif kind == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            if not found or found[-1]["role"] != "assistant":
                found.append({"role": "assistant", "content": None})
            found[-1].setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            content = _responses_texts(item["output"])
            found.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
    return found


def _responses_texts(content: Any) -> Any:
    if isinstance(content, str):
        return content
    return [
        {"type": "text", "text": part["text"]} if "text" in part else {"type": "image_url"}
        for part in content
    ]


def user_text(message: dict[str, Any]) -> str:
    return _words(message.get("content")) if message["role"] == "user" else ""


def results_in(message: dict[str, Any]) -> list[str]:
    content = message.get("content") or ""
    if message["role"] == "tool":
        return [_words(content)]
    if isinstance(content, str):
        return []
    return [
        _words(part.get("content", "")) for part in content if part.get("type") == "tool_result"
    ]


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if part.get("type") == "text")


Step = Reply | Raw | Call | str
Script = Sequence["Step | Callable[[Request], Step]"] | Callable[[Request], Step]


def as_reply(step: Step) -> Reply | Raw:
    """A step as a reply."""
    if isinstance(step, str):
        return Reply(step)
    return Reply(calls=[step]) if isinstance(step, Call) else step


class Play:
    """Returns the next reply; thread-safe. After the end of a list it returns status 400; `loop`
    restarts it.
    """

    def __init__(self, script: Script, *, loop: bool = False) -> None:
        self._lock = threading.Lock()
        self._function = script if callable(script) else None
        self._steps = (
            iter(()) if callable(script) else itertools.cycle(script) if loop else iter(script)
        )

    def next(self, request: Request) -> Reply | Raw:
        with self._lock:
            step = self._function or next(self._steps, None)
        if step is None:
            return failure(400, "model server: the script has no more replies")
        return as_reply(step(request) if callable(step) else step)


def load(path: Path) -> Script:
    """The script in a file: Python (`script = …`), JSON or YAML (a list of texts and of mappings
    with Reply's names).

    In JSON and YAML `{call: NAME, arguments: {…}}` is a Call, `{status: 500, body: …, headers:
    {…}}` a Raw.
    """
    if path.suffix == ".py":
        return runpy.run_path(str(path))["script"]
    if path.suffix == ".json":
        return [_step(entry) for entry in json.loads(path.read_text("utf-8"))]
    import yaml

    return [_step(entry) for entry in yaml.safe_load(path.read_text("utf-8"))]


def _step(entry: Any) -> Step:
    if isinstance(entry, str):
        return entry
    if "status" in entry:
        return Raw(**entry)
    if "call" in entry:
        return _call(entry)
    entry = dict(entry)
    calls = [_call(call) for call in entry.pop("calls", ())]
    tokens = Tokens(**entry.pop("tokens")) if entry.get("tokens") else Tokens()
    return Reply(calls=calls, tokens=tokens, **entry)


def _call(entry: Mapping[str, Any]) -> Call:
    entry = dict(entry)
    return Call(entry.pop("call", None) or entry.pop("name"), **entry)


def paced(script: Script, rate: float | None, delay: float) -> Callable[[Request], Step]:
    """The same script, with `rate` tokens per second and `delay` seconds before the first byte."""
    play = Play(script, loop=True)

    def step(request: Request) -> Step:
        reply = play.next(request)
        if isinstance(reply, Raw):
            return reply
        return replace(reply, rate=reply.rate or rate, delay=reply.delay or delay)

    return step


def echo(request: Request) -> Step:
    """Repeat the prompt."""
    return Reply(f"You said: {request.prompt}")


_ORDER = re.compile(
    r"^\s*(run|read|glob|grep|write|edit|call|think|say|markdown|fail|repeat)\b:? ?(.*)$",
    re.IGNORECASE,
)


def agent(request: Request) -> Step:
    """Follow the lines of the prompt, one model call for each, then answer.

    `run: pytest -q` · `read: api.py` · `glob: *.py` · `grep: word` · `call: TOOL {json}` · `think:
    words` · `say: words` · `markdown: 20000` (bytes) · `repeat: 20 true` (shell calls) · `fail:
    500`. Other lines are ignored, also those that ouro adds to the conversation. Several `run`,
    `read` … on one line, separated by ` & `, are called in parallel.
    """
    messages = request.messages
    ordered = [place for place, message in enumerate(messages) if _orders_of(user_text(message))]
    if not ordered:
        return echo(request)
    orders = _orders_of(user_text(messages[ordered[-1]]))
    since = messages[ordered[-1] + 1 :]
    done = sum(message["role"] == "assistant" for message in since)
    if done > len(orders):
        return echo(request)
    if done == len(orders):
        return Reply(_closing([result for message in since for result in results_in(message)]))
    return _obey(orders[done])


def _obey(order: list[tuple[str, str]]) -> Step:
    calls: list[Call] = []
    thinking = ""
    for name, rest in order:
        match name:
            case "fail":
                return failure(int(rest or 500), "as you asked")
            case "say":
                return Reply(rest, thinking=thinking)
            case "markdown":
                return Reply(markdown(int(rest or 20_000)), thinking=thinking)
            case "think":
                thinking = rest
            case _:
                calls.append(_order(name, rest))
    return Reply("" if calls else "I have thought.", calls=calls, thinking=thinking)


def _orders_of(prompt: str) -> list[list[tuple[str, str]]]:
    return [order for line in prompt.splitlines() for order in _orders(line)]


def _orders(line: str) -> list[list[tuple[str, str]]]:
    found = [
        (match[1].lower(), match[2].strip())
        for part in line.split(" & ")
        if (match := _ORDER.match(part))
    ]
    if found and found[0][0] == "repeat":
        count, _, command = found[0][1].partition(" ")
        # A different call each time: ouro would treat equal calls as a loop.
        return [[("run", f"{command or 'true'} # {n + 1}")] for n in range(int(count))]
    return [found] if found else []


def _order(name: str, rest: str) -> Call:
    if name == "call":
        tool, _, arguments = rest.partition(" ")
        return Call(tool, arguments or "{}")
    field_of = {
        "run": ("shell", "command"),
        "read": ("read", "path"),
        "glob": ("glob", "pattern"),
        "grep": ("grep", "pattern"),
    }
    if name in field_of:
        tool, argument = field_of[name]
        return Call(tool, {argument: rest})
    return Call(name, rest)


def _closing(results: list[str]) -> str:
    if not results:
        return "Done."
    last = results[-1].strip().splitlines() or ["nothing"]
    count = f"{len(results)} tool call{'s' * (len(results) != 1)}"
    return f"Done: {count}. The last one said:\n\n```\n{chr(10).join(last[:8])}\n```\n"


def markdown(size: int) -> str:
    """`size` characters of Markdown with everything in it: headings, lists, tables, code, links."""
    parts: list[str] = []
    length = 0
    for number in itertools.count(1):
        part = _SECTION.replace("N", str(number))
        parts.append(part)
        length += len(part)
        if length >= size:
            return "".join(parts)[:size]
    raise AssertionError


_SECTION = """## Part N: how the cache is filled

The *first* request reads from disk; **every later one** is answered from `Cache.get`. See [the notes](https://example.invalid/N).

- open the file and read its head
- compare `stamp` with what was kept
  - equal: nothing to do
  - not equal: read it again

```python
def fill(cache: Cache, path: Path) -> bytes:
    stamp = path.stat().st_mtime_ns
    if cache.stamp(path) != stamp:
        cache.put(path, path.read_bytes(), stamp)
    return cache.get(path)
```

| step | time | note |
|---|---:|---|
| open | 0.N ms | once |
| read | 1.N ms | once a change |

> A cache that lies is worse than none.

"""
