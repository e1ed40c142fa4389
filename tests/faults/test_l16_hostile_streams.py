"""L16: what a broken or hostile server streams is the answer or a clear error, on each wire."""

import pytest
from fakes import model_formats
from fakes.model_server import Call, ModelServer, Raw, Reply
from fakes.wires import Wire

from ouro.errors import ModelError, RequestRefused, StreamCut, TransientModelError
from ouro.llm.event_stream import MAX_LINE
from ouro.llm.model import MAX_CHARACTERS
from ouro.messages import user

KINDS = ("openai", "responses", "anthropic")
EVENT_STREAM = {"Content-Type": "text/event-stream"}


@pytest.fixture(params=KINDS)
def direct(request, model_server):
    return Wire(request.param, model_server)


def streamed(request, reply):
    """The bytes that the fake would stream for a reply."""
    made = []
    for part in model_formats.parts(reply, request, 1):
        made += [f"event: {part.event}"] if part.event else []
        made += [f"data: {part.data}", ""]
    return "\n".join([*made, ""])


def changed(reply, change):
    """A step that streams a reply with its text changed."""
    return lambda request: Raw(200, change(streamed(request, reply)), EVENT_STREAM)


async def test_l16_an_event_of_ten_megabytes_is_read(direct):
    """Its text is short: a server repeats the whole request in each event."""
    echo = '{"echo": "' + "x" * 10_000_000 + '", '
    step = changed(Reply("Hello."), lambda text: text.replace("data: {", f"data: {echo}", 1))
    direct.server.script([step])
    assert (await direct.ask()).text == "Hello."


async def test_l16_a_text_of_ten_megabytes_is_a_clear_error(direct):
    direct.server.script([Reply(["word " * 2_000_000])])
    error, text = await direct.failure()
    assert f"{MAX_CHARACTERS:,} characters" in error.message
    assert text.startswith("word")


async def test_l16_a_call_of_ten_megabytes_is_a_clear_error(direct):
    content = "word " * 2_000_000
    direct.server.script([Reply(calls=[Call("write", {"content": content}, pieces=1)])])
    error, _ = await direct.failure()
    assert f"{MAX_CHARACTERS:,} characters" in error.message


async def test_l16_a_line_that_never_ends_is_stopped(direct):
    line = "data: " + "x" * (MAX_LINE + 4_000_000)
    direct.server.script([Raw(200, line, EVENT_STREAM)])
    error, _ = await direct.failure()
    assert isinstance(error, StreamCut)
    assert "characters" in error.message


@pytest.mark.parametrize("bad", [b"\xff\xfe", b"\xc3(", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"])
async def test_l16_bytes_that_are_not_utf_8_are_a_clear_error(direct, bad):
    reply = Reply(["Hello ", "MARK", " more"])
    direct.server.script(
        [
            lambda request: Raw(
                200, streamed(request, reply).encode().replace(b"MARK", bad), EVENT_STREAM
            )
        ]
    )
    error, text = await direct.failure()
    assert isinstance(error, TransientModelError)
    assert "UTF-8" in error.message
    assert text.strip() in ("", "Hello")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-5", "1" * 400])
async def test_l16_impossible_numbers_in_the_usage_lose_nothing(direct, number):
    def spoil(text):
        for name in ("output_tokens", "completion_tokens"):
            text = text.replace(f'"{name}": ', f'"{name}": {number}, "x": ')
        return text

    direct.server.script([changed(Reply("Hello."), spoil)])
    answer = await direct.ask()
    assert answer.text == "Hello."
    assert answer.usage is None or answer.usage.output >= 0


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
async def test_l16_impossible_numbers_in_arguments_are_malformed(direct, number):
    direct.server.script([Reply(calls=[Call("read", f'{{"path": "a", "limit": {number}}}')])])
    [call] = (await direct.ask()).tool_calls
    assert call.malformed or call.arguments == {"path": "a"}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_l16_a_redirect_is_an_error_that_names_where(direct, status):
    with ModelServer(["stolen"]) as other:
        direct.server.script([Raw(status, "", {"Location": other.url})])
        error, _ = await direct.failure()
        assert isinstance(error, RequestRefused)
        assert other.url in error.message
        assert not other.requests


@pytest.mark.parametrize("status", [200, 403, 404, 500, 502])
async def test_l16_a_web_page_is_an_error_without_its_source(direct, status):
    page = (
        "<!doctype html><html><head><title>Sign in</title></head><body><script>x()</script>"
        + "<p>" * 50_000
    )
    direct.server.script([Raw(status, page)])
    error, _ = await direct.failure()
    assert isinstance(error, ModelError)
    assert "<p>" not in str(error)
    assert len(str(error)) < 1_000


@pytest.mark.parametrize(
    "after",
    [
        'data: {"choices": [{"delta": {"content": " evil"}}]}\n\n',
        'data: {"error": {"message": "late"}}\n\n',
        "data: not JSON\n\n",
        'event: error\ndata: {"type": "error", "error": {"message": "late"}}\n\n',
        "<html>",
        'data: {"type": "response.output_text.delta", "output_index": 0, "delta": " evil"}\n\n',
    ],
)
async def test_l16_what_comes_after_the_end_is_ignored(direct, after):
    direct.server.script([changed(Reply("Hello."), lambda text: text + after)])
    assert (await direct.ask()).text == "Hello."


async def test_l16_another_name_of_the_model_changes_nothing(direct):
    """A relay answers with the name of another model; the message keeps that of the user's."""
    direct.server.script(
        [
            changed(
                Reply("Hello.", thinking="Hm.", signature="seal"),
                lambda text: text.replace("test-model", "evil/model\\u001b[31m").replace(
                    "claude-sonnet-4-5", "gpt-9"
                ),
            )
        ]
    )
    answer = await direct.ask(user("hi"), effort="high")
    assert answer.text == "Hello."
    assert answer.model == direct.spec.name
