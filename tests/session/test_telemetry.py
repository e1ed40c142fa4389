"""Telemetry against an OTLP/HTTP collector on loopback."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler
from importlib.util import find_spec

import pytest
from fakes.agents import say
from fakes.local_servers import Listener
from fakes.waiting import until

from ouro import events
from ouro.assemble import Options, open_session
from ouro.display import Display
from ouro.llm import ScriptedModel, call
from ouro.messages import ToolCall, Usage, assistant
from ouro.session import OpenRequest
from ouro.session.telemetry import MAX_WAITING, Telemetry, TelemetryExport

SECRET = "the words of the user"


class Records:
    """Keeps what the process would get."""

    def __init__(self) -> None:
        self.sent: list[dict] = []
        self.is_closed = False

    def send(self, record) -> None:
        self.sent.append(json.loads(json.dumps(record)))

    def close(self) -> None:
        self.is_closed = True


def turn(telemetry: Telemetry, outcome: events.Outcome = "answered") -> None:
    asked = ToolCall("1", "read", {"path": SECRET})
    usage = Usage(100, 40, 0, 7, 0.25)
    told = assistant(SECRET, asked)
    telemetry.add(events.Prompted(SECRET))
    telemetry.add(events.Replied(type(told)(told.role, told.parts, usage, "anthropic/claude-x")))
    telemetry.add(events.ToolStarted(asked, "read"))
    telemetry.add(events.ToolFinished("1", "read", Display("1 line"), True, 0.1))
    telemetry.add(events.TurnFinished(outcome, SECRET))


def test_a_turn_is_a_span_with_its_calls_and_without_texts():
    records = Records()
    turn(Telemetry(records, lambda: "s1"), "limit")
    kinds = [record["kind"] for record in records.sent]
    assert kinds == ["begin", "note", "span", "span", "end"]
    begin, _, chat, tool, end = records.sent
    assert begin["attributes"]["gen_ai.conversation.id"] == "s1"
    assert chat["name"] == "chat claude-x"
    assert chat["attributes"] == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-x", "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 7, "gen_ai.usage.cache_read.input_tokens": 40,
        "gen_ai.usage.cache_creation.input_tokens": 0, "ouro.cost": 0.25,
    }  # fmt: skip
    assert tool["attributes"]["error.type"] == "tool_error"
    assert end["attributes"] == {"ouro.outcome": "limit", "error.type": "limit"}
    assert SECRET not in json.dumps(records.sent)


def test_texts_are_sent_masked_if_asked():
    records = Records()
    turn(Telemetry(records, lambda: "s1", lambda text: text.replace("words", "[secret]")))
    text = json.dumps(records.sent)
    assert text.count("the [secret] of the user") == 3
    assert SECRET not in text


def test_a_process_that_does_not_read_gets_no_more_than_it_can_keep(monkeypatch):
    monkeypatch.setattr("ouro.session.telemetry.WORKER", ("-c", "import time; time.sleep(60)"))
    export = TelemetryExport(os.environ)
    try:
        for _ in range(3_000):
            export.send({"text": "x" * 1_000})
        assert len(export._waiting) <= MAX_WAITING
        export.close()
    finally:
        export._process.kill()
        export._process.wait()


def test_a_process_that_ended_is_no_error(monkeypatch):
    monkeypatch.setattr("ouro.session.telemetry.WORKER", ("-c", ""))
    export = TelemetryExport(os.environ)
    export.send({"a": 1})
    export._process.wait()
    export.send({"a": 2})
    export.send({"a": 3})
    export.close()


async def test_nothing_is_imported_or_started_when_it_is_off(repository):
    code = (
        "import sys, ouro.assemble, ouro.session.session_tasks;"
        "sys.exit(any('telemetry' in name for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    session = await opened(repository, "Done.")
    assert session.turn.tasks._watcher is None
    await session.close()


async def test_a_missing_package_is_named_once_and_the_session_works(repository, monkeypatch):
    monkeypatch.setattr("ouro.assemble_extensions._lacks_telemetry", lambda: True)
    session = await opened(repository, "Done.", **{"telemetry.enabled": True})
    found = await anext(session.events())
    assert "pip install ouro[otel]" in found.text
    await say(session, "hello")
    await session.close()


async def opened(repository, *script, **settings):
    settings = {"permissions.mode": "auto", **settings}
    options = Options(repository, settings, ready_model=ScriptedModel(script))
    return await open_session(options, OpenRequest(""))


class Collector(Listener):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posts: list[tuple[str, bytes]] = []
        self.hangs = threading.Event()
        self.is_hanging = False


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posts.append((self.path, data))
        if self.server.is_hanging:
            self.server.hangs.wait()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def collector(monkeypatch):
    # The process finds the packages where this one does.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    with Collector() as collector:
        threading.Thread(target=collector.serve_forever, args=(0.01,), daemon=True).start()
        yield collector
        collector.hangs.set()
        collector.shutdown()


@pytest.mark.skipif(
    find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None,
    reason="ouro[otel] is not installed",
)
async def test_a_session_is_exported_to_a_collector(repository, collector):
    (repository / "a.txt").write_text("x\n")
    address = f"http://127.0.0.1:{collector.server_port}"
    settings = {"telemetry.enabled": True, "telemetry.endpoint": address}
    session = await opened(repository, call("read", path="a.txt"), "Done.", **settings)
    await say(session, SECRET)
    await session.close()

    def data(path: str) -> bytes:
        return b"".join(body for name, body in collector.posts if name == path)

    await until(lambda: b"ouro.tokens" in data("/v1/metrics") and data("/v1/traces"))
    traces = data("/v1/traces")
    for name in (b"invoke_agent ouro", b"execute_tool read", b"chat "):
        assert name in traces
    assert SECRET.encode() not in traces


@pytest.mark.skipif(
    find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None,
    reason="ouro[otel] is not installed",
)
async def test_a_collector_that_hangs_delays_nothing(repository, collector):
    collector.is_hanging = True
    address = f"http://127.0.0.1:{collector.server_port}"
    settings = {"telemetry.enabled": True, "telemetry.endpoint": address}
    session = await opened(repository, *["Done."] * 5, **settings)
    for _ in range(5):
        await say(session, "hello")
    watcher = session.turn.tasks._watcher
    await session.close()
    assert watcher._export._process.poll() is None  # the session ended first
    await until(lambda: watcher._export._process.poll() is not None)
