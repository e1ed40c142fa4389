"""L17: what is learned from a refusal, or stands in the file of what was learned, only makes a
request smaller: it permits nothing, reaches no other host, and does not change TLS.
"""

import json
import string
from datetime import UTC, datetime

import pytest
from fakes.local_servers import tls_server
from fakes.model_server import ModelServer, Reply, failure
from fakes.wires import KEY, READ, Wire, chunks_of
from properties import given, settings, st

from ouro.errors import ModelError, ProviderAnswer
from ouro.llm import Catalog, Endpoint, ModelEntry, ModelsFile
from ouro.llm.http_client import new_client
from ouro.llm.rejected_requests import RULES, Refused, find_changes
from ouro.llm.request_shape import shape_request
from ouro.llm.server_facts import MEANINGS, FactStore, ServerFacts
from ouro.messages import Image, Message, Thinking, user

TODAY = datetime.now(UTC).date().isoformat()
BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "function": {"name": "edit", "parameters": {}}}],
    "max_tokens": 8192,
    "reasoning_effort": "high",
    "stream": True,
    "stream_options": {"include_usage": True},
}
WORDS = st.sampled_from(
    [
        *(rule.example for rule in RULES),
        *("http://evil.example/v1", "api_base", "verify=false", "permissions.mode", "bypass"),
        *("model", "messages", "tools", "stream", "unsupported", "unknown field", "must be"),
        *(
            "max_tokens",
            "max_completion_tokens",
            "reasoning_effort",
            "'none'",
            "wire",
            "/responses",
        ),
    ]
)


@settings(max_examples=200)
@given(
    st.lists(WORDS | st.text(string.printable, max_size=12), max_size=8),
    st.sampled_from([400, 404, 422, 500]),
)
def test_l17_no_words_of_a_server_teach_more_than_a_smaller_request(words, status):
    facts = ServerFacts()
    refused = Refused(
        ProviderAnswer(status, " ".join(words)),
        BODY,
        facts,
        True,
        (),
        "responses",
        ("max_tokens", "max_completion_tokens"),
    )
    changes = find_changes(refused)
    assert {key.partition(".")[0] for key in changes} <= set(MEANINGS)
    facts.try_changes(changes, "")
    shaped = shape_request(dict(BODY), facts)
    assert set(shaped) <= {*BODY, "max_completion_tokens"}
    assert (shaped["model"], shaped["messages"]) == (BODY["model"], BODY["messages"])


@pytest.mark.parametrize("field", ["model", "messages", "tools", "stream"])
@pytest.mark.parametrize("text", ["Unknown field: '{}'", "Unsupported parameter: `{}`"])
def test_l17_no_words_of_a_server_leave_out_what_a_request_needs(field, text):
    answer = ProviderAnswer(400, text.format(field), field)
    changes = find_changes(Refused(answer, BODY, ServerFacts()))
    assert f"without.{field}" not in changes


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("api_base", "http://evil.example"),
        ("wire", "http://evil.example"),
        ("without.messages", ""),
        ("without.tools", ""),
        ("without.model", ""),
        ("verify", "no"),
        ("images", "yes"),
        ("thinking_back", "http://evil.example"),
        ("system_role", "assistant"),
        ("permissions.mode", "yolo"),
        ("max_output", "99999999999"),
        ("output_limit", "model"),
    ],
)
def test_l17_other_facts_in_the_file_are_not_read(tmp_path, key, value):
    path = tmp_path / "facts.json"
    path.write_text(json.dumps({"http://h m": {key: {"value": value, "date": TODAY}}}))
    assert FactStore(path).read("http://h m") == {}


async def test_l17_an_address_in_a_refusal_gets_nothing(model_server):
    with ModelServer(["stolen"] * 9) as other:
        text = f"Use {other.openai_url}/responses or POST {other.openai_url}/v1/responses instead."
        model_server.script(
            lambda request: failure(400, text) if "chat" in request.path else Reply("fine")
        )
        entry = ModelEntry(api_base=model_server.openai_url, api_key=KEY)
        model = Catalog(ModelsFile(models={"openai/m": entry}), {}).make("openai/m")
        await chunks_of(model, user("hi", [Image("image/png", b"png", "dot.png")]), tools=[READ])
        await model.close()
        assert other.requests == []
    assert model_server.requests[-1].path.endswith("/responses")


async def test_l17_thinking_of_one_server_does_not_go_to_another(model_server):
    """Both servers need thinking back; each gets only its own."""
    sealed = Message("assistant", (Thinking("secret thought", "seal"),), model="openai/first")
    told = Message("assistant", (*sealed.parts, *user("An answer.").parts), model="openai/first")
    for kind in ("openai", "responses", "anthropic"):
        model_server.script(["fine"])
        await Wire(kind, model_server).ask(
            user("hi"), told, user("More."), facts=ServerFacts({"thinking_back": "all"})
        )
        assert "secret thought" not in model_server.requests[-1].raw.decode()


async def test_l17_no_fact_makes_a_certificate_valid(tmp_path):
    with tls_server(tmp_path) as server:
        facts = FactStore(tmp_path / "facts.json")
        entry = ModelEntry(api_base=server.url, api_key=KEY)
        catalog = Catalog(ModelsFile(models={"openai/m": entry}), {}, facts=facts)
        hostile = {"verify": "no", "wire": "responses", "without.verify": ""}
        rows = {key: {"value": value, "date": TODAY} for key, value in hostile.items()}
        (tmp_path / "facts.json").write_text(json.dumps({catalog.server_of("openai/m"): rows}))
        model = catalog.make("openai/m")
        with pytest.raises(ModelError, match="certificate is not valid"):
            await chunks_of(model, user("hi"))
        await model.close()
        assert server.received == b""


@pytest.mark.parametrize("is_proxied", [False, True])
async def test_the_certificates_of_the_environment_count_for_a_local_server(
    tmp_path, monkeypatch, is_proxied
):
    if is_proxied:  # a proxy is reached by another client, and not used for a local server
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    with tls_server(tmp_path) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        entry = ModelEntry(api_base=server.url, api_key=KEY)
        model = Catalog(ModelsFile(models={"openai/m": entry}), {}).make("openai/m")
        with pytest.raises(ModelError):  # it answers nothing
            await chunks_of(model, user("hi"))
        await model.close()
        assert b"POST /v1/" in server.received


def test_httpx_trusts_the_certificates_of_the_environment_for_a_local_server(tmp_path, monkeypatch):
    import httpx

    with tls_server(tmp_path) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        client = new_client("Client", Endpoint(server.url))
        with client, pytest.raises(httpx.HTTPError):  # it answers nothing
            client.get(f"{server.url}/models")
        assert server.received.startswith(b"GET /v1/models")


def test_l17_a_tool_that_a_refusal_brings_in_is_asked_about(ouro):
    """Tools as text after a refusal are under the same rules as other calls."""

    def script(request):
        if request.tools:
            return failure(400, "this model does not support tools")
        return '{"name": "shell", "arguments": {"command": "touch made.txt"}}'

    ouro.server.script(script)
    done = ouro.headless("-p", "go", "--deny", "shell")
    assert any(not request.tools for request in ouro.server.requests)
    assert "made.txt" in done.err
    assert not (ouro.folder / "made.txt").exists()
