"""The process of litellm: shared, restarted after a crash, gets its keys through a pipe, ends a
request quickly.
"""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest
from botocore.exceptions import (
    EndpointConnectionError,
    NoCredentialsError,
    UnauthorizedSSOTokenError,
)
from fakes.model_server import Reply, Tokens, failure
from fakes.waiting import until
from fakes.wires import KEY, Wire, chunks_of, first_text
from msgspec.structs import replace

from ouro.errors import AuthenticationFailed, ModelUnavailable, RequestRefused, StreamCut
from ouro.llm import Endpoint, Timeouts, ToolSpec, litellm_model, litellm_worker
from ouro.messages import Image, system, user
from ouro.utils.worker_process import WorkerProcess


@pytest.fixture
def litellm(model_server, litellm_kept):
    return Wire("litellm-openai", model_server)


@pytest.fixture
def claude(model_server, litellm_kept):
    return Wire("litellm-anthropic", model_server)


async def test_all_models_share_one_process_that_outlives_each(litellm, claude):
    before = litellm_model.share_process("tests").pid
    litellm.server.script(["one", "two"])
    await litellm.ask()
    await claude.ask()
    assert litellm_model.share_process("tests").pid == before


async def test_key_is_not_in_the_arguments_or_environment_of_the_process(litellm):
    litellm.server.script([Reply(["one", "two"], fault="stall", after=1)])
    model = litellm.model()
    async with aclosing(model.stream([user("hi")])) as chunks:
        await first_text(chunks)
        process = Path(f"/proc/{litellm_model.share_process('tests').pid}")
        if not process.exists():
            pytest.skip("no /proc here")
        assert (
            KEY.encode()
            not in (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        )
    await model.close()


async def test_dead_process_is_reported_and_replaced(litellm):
    litellm.server.script([Reply(["one", "two"], fault="stall", after=1), "Back."])
    model = litellm.model()
    before = litellm_model.share_process("tests").pid
    async with aclosing(model.stream([user("hi")])) as chunks:
        await first_text(chunks)
        os.kill(before, signal.SIGKILL)
        with pytest.raises(StreamCut, match="The litellm process ended"):
            await anext(chunks)
    chunks = await chunks_of(model)
    await model.close()
    assert "".join(chunk.text for chunk in chunks if hasattr(chunk, "text")) == "Back."
    assert litellm_model.share_process("tests").pid != before


async def test_credentials_that_litellm_finds_itself_are_read_again(claude, monkeypatch):
    """anthropics/claude-code#2280: expired credentials of AWS are renewed outside of the program."""
    claude.server.script(["Back."])
    monkeypatch.setattr(litellm_model, "FRESH_SECONDS", 0)
    before = litellm_model.share_process("tests").pid
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)  # stands for a renewed file of credentials
    assert (await claude.ask(key="")).text == "Back."
    assert litellm_model.share_process("tests").pid != before
    litellm_model.restart_process()  # other tests have no such key


def failed_in_litellm(cause):
    """The error of litellm about an error in its own process, as its worker reports it."""
    try:
        try:
            raise cause
        except Exception:
            text = (
                "litellm.APIConnectionError: it failed\nTraceback (most recent call last):\n File x"
            )
            raise RuntimeError(text)  # noqa: B904 (litellm does so)
    except RuntimeError as error:
        return {**litellm_worker._error_fields(error), "begun": False}


@pytest.mark.parametrize(
    ("cause", "kind", "said"),
    [
        (UnauthorizedSSOTokenError(), AuthenticationFailed, "aws sso login"),
        (NoCredentialsError(), AuthenticationFailed, "Unable to locate credentials"),
        (EndpointConnectionError(endpoint_url="x"), ModelUnavailable, "it failed"),
        (ModuleNotFoundError(name="google"), RequestRefused, "package google-auth"),
        (TypeError("odd"), ModelUnavailable, "it failed"),
    ],
)
def test_an_error_before_a_request_names_its_cause(cause, kind, said):
    """anthropics/claude-code#849: an expired login of AWS was repeated for two minutes, with a
    traceback as its reason.
    """
    error = litellm_model._make_error(failed_in_litellm(cause), Endpoint(), "bedrock/m")
    assert type(error) is kind
    assert said in str(error)
    assert "Traceback" not in str(error)


@pytest.mark.parametrize("when", ["at once", "after its death"])
async def test_process_that_cannot_start_reports_the_reason(monkeypatch, when):
    """The error contains the last line of the process's own error."""
    monkeypatch.setattr(litellm_model, "WORKER", ("-c", "raise SystemExit('no litellm here')"))
    process = WorkerProcess(litellm_model.WORKER)
    monkeypatch.setattr(litellm_model, "share_process", lambda _user: process)
    await until(lambda: when == "at once" or not process.alive)
    with pytest.raises(ModelUnavailable, match="no litellm here"):
        await anext(
            litellm_model.stream_events("tests", "ask", {}, Endpoint(limits=Timeouts(first=5)))
        )


async def test_stopping_one_answer_leaves_the_others_alone(litellm):
    litellm.server.script(
        lambda request: Reply(
            ["one", " two"], fault="stall" if request.prompt == "stop" else "", after=1
        )
    )
    model = litellm.model()
    async with aclosing(model.stream([user("stop")])) as chunks:
        await first_text(chunks)
        running = asyncio.create_task(litellm.ask(user("go")))
    assert await asyncio.to_thread(litellm.server.requests[0].gone.wait, 10)
    assert (await running).text == "one two"
    await model.close()


async def test_litellm_prices_fill_in_unknown_ones(litellm, claude):
    used = Reply("x", tokens=Tokens(1_000_000, 0, 0, 0))
    litellm.server.script([used, used])
    assert (await claude.ask(spec=replace(claude.spec, prices=None))).usage.cost == pytest.approx(
        3, rel=1
    )
    assert (await litellm.ask(spec=replace(litellm.spec, prices=None))).usage.cost is None


async def test_claude_is_given_cache_marks_and_its_thinking_back(claude):
    claude.server.script(
        [Reply("Well.", thinking="I think.", signature="seal==", redacted="opaque"), "ok"]
    )
    reply = await claude.ask(system("Be brief."), user("hi"), effort="low")
    await claude.ask(system("Be brief."), user("hi"), reply, user("And?"), effort="low")
    body = claude.server.requests[1].body
    kinds = [block["type"] for block in body["messages"][1]["content"]]
    assert kinds == ["redacted_thinking", "thinking", "text"]
    assert body["messages"][1]["content"][1]["signature"] == "seal=="
    assert claude.server.requests[1].raw.count(b"cache_control") == 3
    assert body["thinking"]["type"] == "enabled"


def test_process_ends_with_its_parent():
    """The pipe closes however ouro ends."""
    worker = subprocess.Popen(
        [sys.executable, "-P", "-m", "ouro.llm.litellm_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with worker:
        worker.stdin.close()
        assert worker.wait(30) == 0


def test_litellm_py_in_the_folder_is_not_imported(tmp_path, litellm_kept):
    """A repository may contain a litellm.py: the process must not import it."""
    (tmp_path / "litellm.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    script = (
        "import asyncio; from ouro.llm.litellm_model import WORKER; from ouro.utils.worker_process import"
        " WorkerProcess\nasync def run():\n    process = WorkerProcess(WORKER)\n    request ="
        " {'model': 'openai/x', 'first': 1, 'connect': 1, 'messages': []}\n    print(await"
        " anext(process.ask('ask', request, first=100, idle=100)))\n   "
        " process.stop()\nasyncio.run(run())\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert "error" in done.stdout, done
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        (
            "max_tokens is too large: 8192. This model supports at most 4096 completion tokens.",
            lambda body: body.get("max_tokens") == 4096,
        ),
        (
            "Unsupported value: 'reasoning_effort' does not support 'high'. Supported values are:"
            " 'low', and 'medium'.",
            lambda body: body.get("reasoning_effort") == "medium",
        ),
        ("This model does not support image input", lambda body: "image_url" not in str(body)),
        (
            "System role not supported",
            lambda body: all(message["role"] != "system" for message in body["messages"]),
        ),
        ("'oneOf' is not permitted in the schema of tools", lambda body: "oneOf" not in str(body)),
    ],
)
async def test_what_a_server_refuses_changes_the_request_as_on_the_wires(litellm, text, is_right):
    litellm.server.script(lambda request: "fine" if is_right(request.body) else failure(400, text))
    either = {"type": "object", "properties": {"x": {"oneOf": [{"type": "string"}]}}}
    picture = Image("image/png", b"png", "dot.png")
    reply = await litellm.ask(
        system("Be brief."),
        user("hi", [picture]),
        effort="high",
        tools=[ToolSpec("pick", "Pick.", either)],
    )
    assert reply.text == "fine"
    assert len(litellm.server.requests) == 2
