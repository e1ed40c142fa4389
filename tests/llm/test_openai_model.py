"""Which of OpenAI's two wires is used, and how one changes to the other."""

import pytest
from fakes.model_server import Call, ModelServer, Reply, failure
from fakes.wires import KEY, READ, chunks_of

from ouro.errors import RequestRefused
from ouro.llm import (
    Catalog,
    Endpoint,
    FactStore,
    ModelEntry,
    ModelsFile,
    ModelSpec,
    NoticeChunk,
    TextChunk,
    describe_fact,
)
from ouro.llm.local_model import LocalModel
from ouro.llm.openai import OpenAIWire
from ouro.llm.openai_model import OpenAIModel
from ouro.llm.openai_responses import ResponsesWire
from ouro.llm.providers import speaks_responses
from ouro.messages import user

SPEC = ModelSpec("openai/gpt-5.6", thinking=True, images=True)
CHAT_FIRST, RESPONSES_FIRST = ("chat", "responses"), ("responses", "chat")


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


@pytest.mark.parametrize("wires", [CHAT_FIRST, RESPONSES_FIRST])
async def test_a_server_with_only_chat_works_without_thinking_and_says_so(model_server, wires):
    model_server.refuses_tools_on_chat = True
    model_server.paths = ("/chat/completions",)
    model_server.script(["Hello.", "Again."])
    model = model_at(model_server, wires=wires)
    text, notices = await ask(model)
    assert (text, len(notices)) == ("Hello.", 1)
    assert model_server.requests[0].body["reasoning_effort"] == "none"
    assert await ask(model) == ("Again.", [])
    assert len(model_server.requests) == 2
    await model.close()


def model_of_next_process(server: ModelServer, folder, **entry):
    file = ModelsFile(models={SPEC.name: ModelEntry(api_base=server.openai_url, **entry)})
    store = FactStore(folder / "facts.json")
    return Catalog(file, {}, facts=store).make(SPEC.name, "medium"), store


async def test_the_next_process_begins_with_the_wire_that_was_learned(model_server, tmp_path):
    model_server.refuses_tools_on_chat = True
    model_server.script(["Hello.", "Again."])
    for expected in ("Hello.", "Again."):
        model, store = model_of_next_process(model_server, tmp_path)
        assert await ask(model) == (expected, [])
        await model.close()
    assert paths(model_server) == ["/v1/responses"] * 2
    assert len(model_server.refused) == 1
    [facts] = store.find("gpt-5.6").values()
    assert describe_fact("wire", facts["wire"]) == "the model is reached by `responses`"


async def test_the_next_process_of_a_chat_only_proxy_is_not_refused_again(model_server, tmp_path):
    model_server.refuses_tools_on_chat = True
    model_server.paths = ("/chat/completions",)
    model_server.script(["Hello.", "Again."])
    for expected in ("Hello.", "Again."):
        model, _ = model_of_next_process(model_server, tmp_path)
        assert (await ask(model))[0] == expected
        await model.close()
    refused = len(model_server.refused)
    model, _ = model_of_next_process(model_server, tmp_path)
    model_server.script(["Once more."])
    assert await ask(model) == ("Once more.", [])
    assert len(model_server.refused) == refused


async def test_a_server_that_has_lost_responses_is_asked_by_chat_again(model_server, tmp_path):
    model_server.refuses_tools_on_chat = True
    model_server.script(["Hello."])
    await ask(model_of_next_process(model_server, tmp_path)[0])
    model_server.refuses_tools_on_chat = False
    model_server.paths = ("/chat/completions",)
    model_server.script(["Again."])
    assert await ask(model_of_next_process(model_server, tmp_path)[0]) == ("Again.", [])


async def test_a_wire_of_models_yaml_counts_more_than_what_was_learned(model_server, tmp_path):
    model_server.refuses_tools_on_chat = True
    model_server.script(["Hello.", "Again."])
    await ask(model_of_next_process(model_server, tmp_path)[0])
    model, _ = model_of_next_process(model_server, tmp_path, wire="chat")
    text, notices = await ask(model)
    assert (text, len(notices)) == ("Again.", 1)
    assert paths(model_server) == ["/v1/responses", "/v1/chat/completions"]


EFFORTS = "Supported values are: 'low', 'medium', and 'high'."


@pytest.mark.parametrize("wire", ["chat", "responses", "anthropic"])
async def test_the_next_process_sends_the_effort_that_was_named(model_server, tmp_path, wire):
    name = "anthropic/claude-opus-4-6" if wire == "anthropic" else SPEC.name
    base = model_server.url if wire == "anthropic" else model_server.openai_url
    entry = ModelEntry(
        api_base=base, thinking=True, wire=None if wire == "anthropic" else wire, api_key=KEY
    )
    model_server.script([failure(400, f"Unsupported effort 'max'. {EFFORTS}"), "One.", "Two."])
    for expected in ("One.", "Two."):
        store = FactStore(tmp_path / "facts.json")
        model = Catalog(ModelsFile(models={name: entry}), {}, facts=store).make(name, "max")
        assert (await ask(model))[0] == expected
        await model.close()
    assert len(model_server.requests) == 3
    body = model_server.requests[-1].body
    sent = [body.get("reasoning_effort"), body.get("reasoning"), body.get("output_config")]
    assert "high" in [value.get("effort") if isinstance(value, dict) else value for value in sent]


async def test_azure_without_responses_is_asked_by_chat_with_thinking(model_server):
    model_server.paths = ("/chat/completions",)
    model_server.script(["Hello."])
    assert await ask(model_at(model_server, wires=RESPONSES_FIRST)) == ("Hello.", [])
    assert model_server.requests[0].body["reasoning_effort"] == "medium"


async def test_an_ordinary_refusal_changes_nothing(model_server):
    model_server.script([failure(400, "Invalid value for 'input'.")] * 3)
    for wires in (CHAT_FIRST, RESPONSES_FIRST):
        with pytest.raises(RequestRefused, match="Invalid value"):
            await ask(model_at(model_server, wires=wires))
    assert paths(model_server) == ["/v1/chat/completions", "/v1/responses"]


async def test_a_wire_that_has_answered_stays(model_server):
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
        (None, "https://models.example.com/v1", LocalModel),
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
