"""The user's own headers in models.yaml: for gateways that want more than a key."""

import pytest
from fakes.model_server import Reply
from fakes.wires import Wire, chunks_of

from ouro.errors import ConfigError, NoModelError
from ouro.llm import Catalog, Endpoint

TOKEN = "gw-0123456789abcdef"


@pytest.fixture
def catalog_of(home, monkeypatch):
    """Make a catalog of the text of models.yaml."""
    monkeypatch.setenv("GATEWAY_TOKEN", TOKEN)
    (home / ".ouro").mkdir(mode=0o700)

    def make(text):
        file = home / ".ouro" / "models.yaml"
        file.write_text(text)
        file.chmod(0o600)
        return Catalog.from_files()

    return make


@pytest.mark.parametrize("name", ["openai/m", "anthropic/claude-sonnet-4-5", "my-gateway/m"])
async def test_headers_reach_the_server_with_the_values_of_variables(
    name, catalog_of, model_server
):
    """langchain-ai/openwiki#276: a gateway that knows its users by a header of its own."""
    headers = '{X-Api-Key: "${GATEWAY_TOKEN}", X-Team: core, authorization: ""}'
    entry = f"{{api_base: {model_server.openai_url}, api_key: k, headers: {headers}}}"
    model_server.script(["Hello."])
    model = catalog_of(f"models: {{{name}: {entry}}}").make(name)
    await chunks_of(model)
    await model.close()
    sent = {name.lower(): value for name, value in model_server.requests[0].headers.items()}
    assert (sent["x-api-key"], sent["x-team"]) == (TOKEN, "core")
    assert "authorization" not in sent


async def test_headers_go_through_litellm(model_server, litellm_kept):
    wire = Wire("litellm-openai", model_server)
    wire.server.script([Reply("Hello.")])
    model = wire.model()
    model._endpoint = Endpoint(wire.server.openai_url, "k", headers={"X-Team": "core"})
    await chunks_of(model)
    await model.close()
    sent = {name.lower(): value for name, value in wire.server.requests[0].headers.items()}
    assert sent["x-team"] == "core"


def test_values_that_may_be_keys_are_masked(catalog_of):
    headers = '{X-Auth: abc-0123456789, X-Team: core, X-Trace: "id ${GATEWAY_TOKEN}"}'
    catalog = catalog_of(
        f"models: {{openai/m: {{api_base: http://127.0.0.1:1, headers: {headers}}}}}"
    )
    assert {"abc-0123456789", TOKEN} <= set(catalog.key_values())
    assert "core" not in catalog.key_values()


def test_headers_of_a_provider_do_not_go_to_another_server(catalog_of):
    text = """
models:
  openai/*: {headers: {X-Auth: secret}}
  openai/a: {api_key: k, headers: {X-Team: core}}
  openai/b: {api_key: k, api_base: "http://127.0.0.1:1/v1"}
"""
    catalog = catalog_of(text)
    assert catalog.route("openai/a")[1].headers == {"X-Auth": "secret", "X-Team": "core"}
    assert catalog.route("openai/b")[1].headers == {}


def test_a_variable_that_is_not_set_is_named(catalog_of):
    catalog = catalog_of('models: {openai/m: {api_key: k, headers: {X-Auth: "${NOT_THERE}"}}}')
    with pytest.raises(NoModelError, match="the variable NOT_THERE of its `headers` is not set"):
        catalog.route("openai/m")


@pytest.mark.parametrize("header", ["Host: a", "Content-Length: 1", "X A: b", '"X-A": "a\\nb"'])
def test_a_header_that_would_break_the_request_is_refused(header, catalog_of):
    with pytest.raises(ConfigError, match="header"):
        catalog_of(f"models: {{openai/m: {{api_key: k, headers: {{{header}}}}}}}")
