"""Which of OpenAI's two wires is used, and how one changes to the other."""

import pytest
from fakes.model_server import Call, ModelServer, Reply
from fakes.wires import KEY, READ, chunks_of

from ouro.errors import RequestRefused
from ouro.llm import Catalog, Endpoint, ModelEntry, ModelsFile, ModelSpec, NoticeChunk, TextChunk
from ouro.llm.openai import OpenAIWire
from ouro.llm.openai_model import OpenAIModel
from ouro.llm.providers import speaks_responses
from ouro.llm.responses import ResponsesWire
from ouro.messages import user

SPEC = ModelSpec("openai/gpt-5.6", thinking=True, images=True)


async def ask(model, text="Hi"):
    chunks = await chunks_of(model, user(text), tools=[READ])
    notices = [chunk.text for chunk in chunks if isinstance(chunk, NoticeChunk)]
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)), notices


def paths(server: ModelServer):
    return [request.path for request in server.requests]


def model_at(server: ModelServer, **more):
    return OpenAIModel(SPEC, Endpoint(server.openai_url, KEY), effort="medium", **more)


async def test_a_refusal_that_names_responses_changes_the_wire_in_the_same_turn(model_server):
    model_server.refuses_tools_on_chat = True
    model_server.script(["Hello.", "Again."])
    model = model_at(model_server)
    assert await ask(model) == ("Hello.", [])
    assert await ask(model) == ("Again.", [])
    assert paths(model_server) == ["/v1/responses"] * 2
    assert len(model_server.refused) == 1
    assert model_server.requests[0].body["reasoning"]["effort"] == "medium"
    await model.close()


@pytest.mark.parametrize("first", ["chat", "responses"])
async def test_a_server_with_only_chat_works_without_thinking_and_says_so(model_server, first):
    model_server.refuses_tools_on_chat = True
    model_server.paths = ("/chat/completions",)
    model_server.script(["Hello.", "Again."])
    model = model_at(model_server, first=first)
    text, notices = await ask(model)
    assert (text, len(notices)) == ("Hello.", 1)
    assert model_server.requests[0].body["reasoning_effort"] == "none"
    assert await ask(model) == ("Again.", [])
    assert len(model_server.requests) == 2
    await model.close()


async def test_azure_without_responses_is_asked_by_chat_with_thinking(model_server):
    model_server.paths = ("/chat/completions",)
    model_server.script(["Hello."])
    assert await ask(model_at(model_server, first="responses")) == ("Hello.", [])
    assert model_server.requests[0].body["reasoning_effort"] == "medium"


async def test_an_ordinary_refusal_changes_nothing(model_server):
    from fakes.model_server import failure

    model_server.script([failure(400, "Invalid value for 'input'.")] * 3)
    for first in ("chat", "responses"):
        with pytest.raises(RequestRefused, match="Invalid value"):
            await ask(model_at(model_server, first=first))
    assert paths(model_server) == ["/v1/chat/completions", "/v1/responses"]


async def test_a_wire_that_has_answered_stays(model_server):
    from fakes.model_server import failure

    model_server.refuses_tools_on_chat = True
    model_server.script(["Hello.", failure(404, "The model does not exist.")])
    model = model_at(model_server)
    await ask(model)
    with pytest.raises(RequestRefused, match="does not exist"):
        await ask(model)
    await model.close()


async def test_the_connection_is_kept_when_the_wire_changes(model_server):
    model_server.refuses_tools_on_chat = True
    model_server.script([Reply("One.", calls=[Call("read", {"path": "a"})]), "Two."])
    model = model_at(model_server)
    await ask(model)
    await ask(model)
    assert len({request.connection for request in model_server.requests}) == 1
    await model.close()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.openai.com/v1", True),
        ("https://eu.api.openai.com/v1", True),
        ("https://mine.openai.azure.com/openai/v1", True),
        ("https://mine.services.ai.azure.com/openai/v1/", True),
        ("https://mine.openai.azure.com/openai/deployments/x", False),
        ("https://api.openai.com.evil.example/v1", False),
        ("https://openrouter.ai/api/v1", False),
        ("http://127.0.0.1:8000/v1", False),
        ("not an address", False),
    ],
)
def test_openai_and_azures_new_addresses_begin_with_responses(url, expected):
    assert speaks_responses(url) is expected


@pytest.mark.parametrize(
    ("wire", "base", "expected"),
    [
        (None, "", OpenAIModel),
        ("chat", "", OpenAIWire),
        ("responses", "https://models.example.com/v1", ResponsesWire),
        (None, "https://models.example.com/v1", OpenAIModel),
    ],
)
def test_models_yaml_fixes_the_wire(wire, base, expected):
    entry = ModelEntry(api_key="k", api_base=base, wire=wire, service_tier="flex")
    model = Catalog(ModelsFile(models={"openai/gpt-5.6": entry}), {}).make("openai/gpt-5.6", "low")
    assert type(model) is expected


def test_the_cache_key_is_that_of_the_project_and_not_its_path(tmp_path):
    entry = ModelEntry(api_key="k", wire="responses")

    def key(project):
        file = ModelsFile(models={"openai/gpt-5.6": entry})
        model = Catalog(file, {}, project=project).make("openai/gpt-5.6")
        return model._request([user("Hi")], [])[2].get("prompt_cache_key")

    assert key(str(tmp_path)) == key(str(tmp_path)) != key("/other")
    assert len(key(str(tmp_path))) == 32
    assert key("") is None
