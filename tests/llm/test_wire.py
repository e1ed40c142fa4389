"""Events are parsed in the same way, however the bytes are cut."""

import itertools

import httpx
import pytest
from properties import given, settings, st

from ouro.errors import ModelUnavailable, RequestRefused, StreamCut
from ouro.llm import Endpoint, ModelSpec
from ouro.llm.event_stream import EventDecoder, ServerEvent
from ouro.llm.http_client import new_client, translate_http_errors
from ouro.llm.openai import OpenAIWire
from ouro.llm.portable import SurrogateJoiner, join_surrogates
from ouro.messages import user

LINE = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)
EVENTS = st.lists(
    st.builds(ServerEvent, LINE.filter(lambda name: not name.startswith(" ")), LINE), max_size=5
)


def events(pieces):
    decoder = EventDecoder()
    found = [event for piece in pieces for event in decoder.feed(piece)]
    return found + list(decoder.end())


@settings(max_examples=150)
@given(
    EVENTS,
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 200), max_size=8),
    st.booleans(),
)
def test_events_do_not_depend_on_chunk_boundaries(wanted, newline, places, comments):
    lines = []
    for event in wanted:
        lines += [": still here", ""] if comments else []
        lines += [f"event: {event.event}"] if event.event else []
        lines += [f"data: {event.data}", ""]
    data = "".join(line + newline for line in lines).encode()
    places = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    assert events(data[a:b] for a, b in itertools.pairwise(places)) == wanted


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("HTTPS_PROXY", "foo://bar", "The proxy cannot be used: Unknown scheme"),
        ("ALL_PROXY", "socks5://127.0.0.1:1", "ouro does not support SOCKS"),
        ("SSL_CERT_FILE", "/nowhere", "The certificates cannot be read: No such file"),
    ],
)
def test_invalid_proxy_or_certificate_setting_is_reported(monkeypatch, variable, value, message):
    for name in ("HTTPS_PROXY", "ALL_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    with pytest.raises(RequestRefused, match=message):
        new_client("Client", Endpoint("https://api.example.com/v1"))


@pytest.mark.parametrize(("proxy", "told"), [("", False), ("http://127.0.0.1:9", True)])
def test_connection_error_names_the_proxy_variable(monkeypatch, proxy, told):
    for name in (
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
        "HTTP_PROXY",
        "http_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    endpoint = Endpoint("https://api.example.com/v1")
    with pytest.raises(ModelUnavailable) as failure, translate_http_errors(endpoint):
        raise httpx.ConnectError("[Errno 111] Connection refused")
    assert ("HTTPS_PROXY" in failure.value.hint) is told


async def test_https_to_a_plain_http_server_is_not_retried(model_server):
    model = OpenAIWire(
        ModelSpec("openai/m"), Endpoint(model_server.openai_url.replace("http:", "https:"))
    )
    with pytest.raises(RequestRefused, match="TLS failed") as failure:
        await anext(model.stream([user("go")]))
    await model.close()
    assert "http://" in failure.value.hint


def test_data_of_several_lines_is_joined_and_other_fields_are_passed_over():
    data = b"id: 7\nretry: 10\nevent: x\ndata:one\ndata: two\nnonsense\n\n: hello\n\ndata: last"
    assert events([data]) == [ServerEvent("x", "one\ntwo"), ServerEvent("", "last")]


@pytest.mark.parametrize(
    "data", [b"data: \xff\n\n", b"data: " + b"x" * 17_000_000], ids=["no text", "no end"]
)
def test_undecodable_or_endless_data_raises_stream_cut(data):
    with pytest.raises(StreamCut):
        events([data])


@settings(max_examples=200)
@given(
    st.text(st.characters() | st.characters(categories=["Cs"]), max_size=20),
    st.lists(st.integers(0, 20), max_size=5),
)
def test_split_surrogates_are_joined_at_any_boundary(text, places):
    places = [0, *sorted({min(place, len(text)) for place in places}), len(text)]
    joiner = SurrogateJoiner()
    pieces = [joiner.feed(text[a:b]) for a, b in itertools.pairwise(places)] + [joiner.end()]
    assert "".join(pieces) == join_surrogates(text)
    assert all(piece.encode() is not None for piece in pieces)
