"""What was learned is kept for one model at one endpoint, for 30 days, and can do no harm."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from fakes.model_server import failure
from fakes.wires import KEY, chunks_of

from ouro.llm import Endpoint, FactStore, ModelSpec, ServerFacts
from ouro.llm.model import NoticeChunk
from ouro.llm.openai import OpenAIWire
from ouro.llm.server_facts import server_key
from ouro.messages import Image, user

REFUSAL = "Unknown field: stream_options"
DOT = Image("image/png", b"dot", "dot.png")


@pytest.fixture
def store(tmp_path):
    return FactStore(tmp_path / "facts.json")


def wire_at(server, store, name="openai/m", **more):
    key = server_key(server.openai_url, name.partition("/")[2])
    spec = ModelSpec(name, images=True, thinking=True)
    facts = ServerFacts(store=store, server=key)
    return OpenAIWire(spec, Endpoint(server.openai_url, KEY), facts=facts, **more)


async def test_what_was_learned_is_kept_for_the_next_start_and_only_for_this_model(
    model_server, store
):
    model_server.script([failure(400, REFUSAL), "ok", "ok", "ok"])
    await chunks_of(wire_at(model_server, store))
    await chunks_of(wire_at(model_server, store))
    await chunks_of(wire_at(model_server, store, "openai/other"))
    sent = ["stream_options" in request.body for request in model_server.requests]
    assert sent == [True, False, False, True]


async def test_a_change_that_does_not_help_is_not_learned(model_server, store):
    from ouro.errors import RequestRefused

    model_server.script([failure(400, REFUSAL), failure(400, "No.")])
    model = wire_at(model_server, store)
    with pytest.raises(RequestRefused):
        await chunks_of(model)
    assert store.find("m") == {}
    assert model.facts.is_empty


async def test_a_refused_picture_is_described_from_then_on_with_a_notice(model_server, store):
    def answer(request):
        if "image_url" in json.dumps(request.body):
            return failure(400, "Model does not support images. Please use a model that does.")
        return "ok"

    model_server.script(answer)
    model = wire_at(model_server, store)
    found = await chunks_of(model, user("Look", [DOT]))
    assert [chunk for chunk in found if isinstance(chunk, NoticeChunk)]
    assert "dot.png" in json.dumps(model_server.requests[-1].body)
    await chunks_of(wire_at(model_server, store), user("Look", [DOT]))
    assert len(model_server.requests) == 3


async def test_one_bad_picture_does_not_hide_the_others(model_server, store):
    bad = Image("image/png", b"bad", "bad.png")

    def answer(request):
        text = json.dumps(request.body)
        return failure(400, "Could not process image") if "YmFk" in text else "ok"

    model_server.script(answer)
    model = wire_at(model_server, store)
    await chunks_of(model, user("One", [DOT]), user("Two", [bad]))
    text = json.dumps(model_server.requests[-1].body)
    assert ("ZG90" in text, "YmFk" in text) == (True, False)
    assert store.find("m") == {}


@pytest.mark.parametrize("words", ["", "参数错误", "Bad Request", "1210: API 调用参数有误"])
async def test_a_refusal_without_words_is_tried_without_pictures(model_server, store, words):
    def answer(request):
        return failure(400, words) if "image_url" in json.dumps(request.body) else "ok"

    model_server.script(answer)
    await chunks_of(wire_at(model_server, store), user("Look", [DOT]))
    assert len(model_server.requests) == 2


def test_facts_end_after_30_days_and_can_be_forgotten(store, tmp_path):
    today = datetime.now(UTC).date()
    facts = {
        f"without.field_{age}": {"value": "", "date": (today - timedelta(age)).isoformat()}
        for age in (0, 30, 31)
    }
    (tmp_path / "facts.json").write_text(json.dumps({"http://h m": facts}))
    assert sorted(store.read("http://h m")) == ["without.field_0", "without.field_30"]
    store.forget("http://h m")
    assert store.read("http://h m") == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("without.messages", ""),
        ("without.tools", ""),
        ("images", "yes"),
        ("base_url", "http://evil.example"),
        ("wire", "http://evil.example"),
        ("verify", "no"),
        ("output_limit", "messages"),
        ("max_output", "-1"),
        ("system_role", "assistant"),
        ("effort", "high"),
        ("permissions.mode", "auto"),
    ],
)
def test_a_file_with_other_facts_changes_nothing(store, tmp_path, key, value):
    day = datetime.now(UTC).date().isoformat()
    saved = {"http://h m": {key: {"value": value, "date": day}}}
    (tmp_path / "facts.json").write_text(json.dumps(saved))
    assert store.read("http://h m") == {}


@pytest.mark.parametrize("text", ["{", "[]", "nonsense", '{"a": 1}', ""])
def test_a_damaged_file_counts_as_empty(store, tmp_path, text):
    (tmp_path / "facts.json").write_text(text)
    assert store.read("http://h m") == {}


def test_the_key_of_a_server_has_no_password():
    assert server_key("https://user:pw@Host.example:8/v1/", "m") == "https://host.example:8/v1 m"
