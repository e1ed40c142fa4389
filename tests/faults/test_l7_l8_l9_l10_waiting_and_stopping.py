"""L7 silence, L8 redirects, L9 answers without end, L10 stopping."""

import asyncio
import socket
from contextlib import aclosing

import pytest
from fakes.model_server import Call, ModelServer, Raw, Reply
from fakes.waiting import PATIENCE
from fakes.wires import first_text

from ouro.errors import ModelError, ModelUnavailable, RequestRefused, TransientModelError
from ouro.llm import ModelSpec, Timeouts
from ouro.llm.model import Endpoint
from ouro.llm.openai_embeddings import EmbeddingWire
from ouro.messages import user


async def test_l7_silent_server_times_out(wire):
    wire.server.script([Reply("never", delay=60)])
    error, _ = await wire.failure(timeouts=Timeouts(first=0.3))
    assert type(error) is ModelUnavailable
    assert "not answer" in str(error)


async def test_l7_stream_that_opens_without_data_times_out(wire):
    wire.server.script([Reply("never", fault="stall", after=0)])
    error, _ = await wire.failure(timeouts=Timeouts(first=0.3, idle=0.3))
    assert isinstance(error, TransientModelError)


async def test_l7_stream_that_stops_midway_times_out(wire):
    wire.server.script([Reply("one two three four five six", fault="stall", after=1)])
    async with asyncio.timeout(PATIENCE):
        error, _ = await wire.failure(timeouts=Timeouts(first=30, idle=0.3))
    assert isinstance(error, TransientModelError)


async def test_l7_a_server_that_is_not_there_is_unavailable(wire):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    path = "" if wire.speaks_anthropic else "/v1"
    error, _ = await wire.failure(url=f"http://127.0.0.1:{port}{path}")
    assert isinstance(error, ModelUnavailable)


async def test_l8_redirects_to_another_server_are_not_followed(wire):
    with ModelServer(["stolen"] * 5) as other:
        wire.server.script(
            [
                Raw(307, "", {"Location": f"{other.url}{path}"})
                for path in ("/v1/chat/completions", "/v1/messages")
            ]
        )
        errors = [(await wire.failure())[0] for _ in range(2)]
        assert [type(error) for error in errors] == [RequestRefused] * 2
        assert other.requests == []
    assert len(wire.server.requests) == 2


async def test_l8_redirects_of_a_request_by_httpx_are_not_followed(wire):
    """An address with a password is requested by httpx, as addresses behind a proxy are."""
    with ModelServer(["stolen"] * 5) as other:
        path = "/v1/messages" if wire.speaks_anthropic else "/v1/chat/completions"
        wire.server.script([Raw(307, "", {"Location": f"{other.url}{path}"})])
        address = wire.server.url.replace("//", "//user:word@") + (
            "" if wire.speaks_anthropic else "/v1"
        )
        error, _ = await wire.failure(url=address)
        assert isinstance(error, RequestRefused)
        assert (len(wire.server.requests), other.requests) == (1, [])


def test_l8_redirects_of_a_request_for_vectors_are_not_followed(model_server):
    with ModelServer(["stolen"]) as other:
        model_server.script([Raw(307, "", {"Location": f"{other.url}/v1/embeddings"})])
        endpoint = Endpoint(f"{model_server.url}/v1", "a-key")
        wire = EmbeddingWire(ModelSpec("openai/vectors"), endpoint)
        with pytest.raises(ModelError):
            wire.embed(["text"])
        wire.close()
        assert other.requests == []


async def test_l9_an_answer_without_end_is_stopped(model_server):
    from fakes.wires import Wire

    for kind in ("openai", "anthropic"):
        model_server.script([Reply("x" * 1_000_000 for _ in range(50))])
        error, text = await Wire(kind, model_server).failure()
        assert type(error) is ModelError
        assert 0 < len(text) < 10_000_000
        assert model_server.requests[-1].gone.wait(10)


async def test_l9_ten_thousand_calls_are_stopped(model_server):
    from fakes.wires import Wire

    model_server.script([Reply("", calls=[Call("read", "{}", pieces=1)] * 10_000)])
    error, _ = await Wire("openai", model_server).failure()
    assert (type(error), "200 tool calls" in str(error)) == (ModelError, True)


async def test_l9_a_line_without_end_is_stopped(model_server):
    from fakes.wires import Wire

    model_server.script(
        [Raw(200, b"data: " + b"x" * 20_000_000, {"Content-Type": "text/event-stream"})]
    )
    assert isinstance((await Wire("openai", model_server).failure())[0], TransientModelError)


@pytest.mark.parametrize("after", [0, 1])
async def test_l10_closing_the_stream_ends_the_request_at_once(wire, after):
    wire.server.script([Reply(["one ", "two"], fault="stall", after=after)])
    model = wire.model()
    async with aclosing(model.stream([user("hi")], [])) as chunks:
        reading = asyncio.create_task(first_text(chunks))
        await wire.server.asked(1)
        if after:
            assert await reading == "one "
        else:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    assert await asyncio.to_thread(wire.server.requests[0].gone.wait, 10)
    await model.close()
