"""Models on servers of the user: what the servers say about them, and Ollama's own API."""

import asyncio
import threading

import pytest
from fakes.local_servers import OwnApi, ollama, own_api, said
from fakes.wires import KEY, READ, chunks_of

from ouro.errors import ModelError, ToolsRefused
from ouro.llm import (
    Catalog,
    ModelEntry,
    ModelsFile,
    NoticeChunk,
    ReplyBuilder,
    TextChunk,
    constrain,
)
from ouro.llm.served_model import ask_server
from ouro.messages import Image, Message, ToolReply, tool, user

CHAT = [
    {"choices": [{"index": 0, "delta": {"content": "Hello."}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
]


def model_at(server: OwnApi, name="ollama_chat/qwen3:8b", effort="medium", **entry):
    entry = ModelEntry(api_base=f"{server.url}/v1", api_key=KEY, **entry)
    return Catalog(ModelsFile(models={name: entry}), {}).make(name, effort)


async def ask(model, *messages: Message, tools=(READ,)):
    try:
        chunks = await chunks_of(model, *(messages or (user("Hi"),)), tools=tools)
    finally:
        await model.close()
    builder = ReplyBuilder(model.spec.name)
    notices = [chunk.text for chunk in chunks if isinstance(chunk, NoticeChunk)]
    for chunk in chunks:
        if not isinstance(chunk, NoticeChunk):
            builder.add(chunk)
    return builder.finish(), notices


@pytest.mark.parametrize(
    ("said_by_server", "window", "expected"),
    [
        ({}, None, 32_768),
        ({"loaded": 4_096}, None, 32_768),
        ({"loaded": 131_072, "longest": 262_144}, None, 131_072),
        ({"num_ctx": 65_536, "longest": 131_072}, None, 65_536),
        ({"longest": 8_192}, None, 8_192),
        ({"longest": 8_192}, 16_384, 8_192),
        ({"longest": 131_072}, 100_000, 100_000),
        ({"loaded": 4_096}, 6_000, 6_000),
    ],
)
async def test_ollama_is_asked_for_a_context_that_holds_a_session(said_by_server, window, expected):
    with own_api(ollama(**said_by_server), said("Hel", "lo.")) as server:
        model = model_at(server, window=window)
        reply, notices = await ask(model)
    assert (reply.text, notices) == ("Hello.", [])
    [body] = server.bodies
    assert body["options"]["num_ctx"] == model.spec.window == expected
    assert body["options"]["num_predict"] <= expected // 4


async def test_a_named_server_that_is_ollama_is_used_by_its_own_api_too():
    with own_api(ollama(), said("Hello.")) as server:
        await ask(model_at(server, "openai/qwen3:8b"))
    assert [path for path, _ in server.requests if "chat" in path] == ["/api/chat"]


async def test_a_conversation_with_ollama_has_thinking_calls_and_pictures():
    call = {"name": "read", "arguments": {"path": "a.py", "lines": [1, 2]}}
    thought = [{"message": {"content": "", "thinking": "I read it."}, "done": False}]
    both = {"content": "", "tool_calls": [{"function": call}, {"function": call}]}
    first = [*thought, {"message": both, "done": False}, *said()]
    picture = Image("image/png", b"\x89PNG", "a.png")
    with own_api(ollama("qwen3:8b", "tools", "thinking", "vision"), first, said("Done.")) as server:
        asked = user("Look.", [picture])
        reply, _ = await ask(model_at(server), asked)
        assert [dict(made.arguments) for made in reply.tool_calls] == [call["arguments"]] * 2
        assert len({made.id for made in reply.tool_calls}) == 2
        assert (reply.usage.input, reply.usage.output) == (26, 7)
        results = [ToolReply(made.id, made.name, "x = 1") for made in reply.tool_calls]
        assert (await ask(model_at(server), asked, reply, tool(*results)))[0].text == "Done."
    first_body, body = server.bodies
    assert first_body["think"] == "medium"
    sent, answered, *told = body["messages"]
    assert sent == {"role": "user", "content": "Look.", "images": ["iVBORw=="]}
    assert answered["thinking"] == "I read it."
    assert answered["tool_calls"][0] == {"function": call}
    assert [message["tool_name"] for message in told] == ["read", "read"]


async def test_a_model_without_tools_gets_them_in_the_prompt():
    with own_api(ollama(), said("Hello.")) as server:
        model = model_at(server)
        await ask(model)
        assert model.spec.describes_tools
        assert not model.spec.images


async def test_what_the_user_has_set_counts_more_than_what_the_server_says():
    with own_api(ollama("qwen3:8b", "vision", "thinking"), said("Hello.")) as server:
        model = model_at(server, images=False, thinking=False, text_tools="off")
        await ask(model)
        assert (model.spec.images, model.spec.thinking) == (False, False)
        assert not model.spec.describes_tools


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (said("Hel", done_reason="length"), "length"),
        (said("Hello.")[:-1], "stop"),
    ],
)
async def test_the_end_of_an_answer_of_ollama(lines, expected):
    from ouro.llm import EndChunk

    with own_api(ollama(), lines) as server:
        model = model_at(server)
        chunks = await chunks_of(model, user("Hi"))
        await model.close()
    assert [chunk.reason for chunk in chunks if isinstance(chunk, EndChunk)] == [expected]


async def test_errors_of_ollama_are_errors():
    refused = "registry.ollama.ai/library/qwen3:8b does not support tools"
    with own_api(ollama(), refused, [{"error": "model runner has unexpectedly stopped"}]) as server:
        with pytest.raises(ToolsRefused):
            await ask(model_at(server))
        with pytest.raises(ModelError, match="unexpectedly stopped"):
            await ask(model_at(server))


async def test_an_older_ollama_is_asked_to_think_without_a_level():
    refused = "json: cannot unmarshal string into Go struct field ChatRequest.think of type bool"
    with own_api(ollama("qwen3:8b", "thinking"), refused, said("Hello.")) as server:
        assert (await ask(model_at(server)))[0].text == "Hello."
    assert "think" not in server.bodies[-1]


async def test_an_answer_of_ollama_follows_a_schema():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    with own_api(ollama(), said("Hello."), said("{}")) as server:
        model = model_at(server)
        [_] = [part for part in await chunks_of(model) if isinstance(part, TextChunk)]
        await chunks_of(constrain(model, schema))
        await model.close()
    assert server.bodies[-1]["format"] == schema
    assert server.bodies[-1]["options"]["temperature"] == 0


TEMPLATE = "{% if enable_thinking %}<think>{% endif %}{% for tool in tools %}"
LM_STUDIO = {
    "key": "qwen3",
    "loaded_instances": [{"id": "qwen3", "config": {"context_length": 4096}}],
    "max_context_length": 131072,
    "capabilities": {"vision": True, "trained_for_tool_use": True, "reasoning": {"default": "on"}},
}


def listed(owner: str, **more):
    return {"/v1/models": {"data": [{"id": "qwen3", "owned_by": owner, **more}]}}


@pytest.mark.parametrize(
    ("answers", "window", "abilities"),
    [
        (
            {
                **listed("llamacpp", meta={"n_ctx_train": 131072}),
                "/props": {
                    "default_generation_settings": {"n_ctx": 12288},
                    "modalities": {"vision": True, "audio": False},
                    "chat_template": TEMPLATE,
                },
            },
            12_288,
            (True, True),
        ),
        (
            {
                **listed("llamacpp", meta={"n_ctx": 9216}),
                "/props": {"chat_template": "{{ messages }}"},
            },
            9_216,
            (False, False),
        ),
        (
            {**listed("organization_owner"), "/api/v1/models": {"models": [LM_STUDIO]}},
            4_096,
            (True, True),
        ),
        (
            {
                **listed("organization_owner"),
                "/api/v0/models": {
                    "data": [{"id": "qwen3", "type": "vlm", "loaded_context_length": 8192}]
                },
            },
            8_192,
            (True, False),
        ),
        (listed("vllm", max_model_len=16384), 16_384, (False, False)),
        (
            {
                **listed("sglang", max_model_len=20480),
                "/get_model_info": {"has_image_understanding": True},
            },
            20_480,
            (True, False),
        ),
        (listed("somebody", max_model_len=7), 128_000, (False, False)),
        ({}, 128_000, (False, False)),
        ({"/v1/models": ["no", "list"]}, 128_000, (False, False)),
        (
            {**listed("llamacpp"), "/props": {"default_generation_settings": 7}},
            128_000,
            (False, False),
        ),
    ],
)
async def test_a_named_server_says_window_and_abilities(answers, window, abilities):
    with own_api(answers, CHAT) as server:
        model = model_at(server, "openai/qwen3")
        reply, notices = await ask(model)
    assert (reply.text, notices) == ("Hello.", [])
    assert (model.spec.window, (model.spec.images, model.spec.thinking)) == (window, abilities)


async def test_a_llama_cpp_that_computes_says_its_window_in_the_list_of_models(monkeypatch):
    monkeypatch.setattr("ouro.llm.served_model.PROPERTIES_TIMEOUT", 0.05)

    async def fetch(path, _body):
        if path == "/props":
            await asyncio.Event().wait()
        return listed("llamacpp", meta={"n_ctx": 16_384})[path]

    served = await ask_server(fetch, "openai", "qwen3")
    assert (served.server, served.window) == ("llama_cpp", 16_384)


async def test_a_request_that_does_not_fit_is_announced_once():
    with own_api(listed("vllm", max_model_len=2048), CHAT, CHAT) as server:
        model = model_at(server, "openai/qwen3")
        long = user("слово " * 2_000)
        first = [part for part in await chunks_of(model, long) if isinstance(part, NoticeChunk)]
        again = [part for part in await chunks_of(model, long) if isinstance(part, NoticeChunk)]
        await model.close()
    assert (len(first), again) == (1, [])
    assert "2,048" in first[0].text
    assert "--max-model-len" in first[0].text


async def test_a_server_that_is_slow_to_say_something_does_not_delay_the_request():
    with own_api(listed("vllm", max_model_len=2048), CHAT, CHAT) as server:
        server.hold = threading.Event()
        model = model_at(server, "openai/qwen3")
        await model.warm()
        assert TextChunk("Hello.") in await chunks_of(model)
        assert model.spec.window == 128_000
        server.hold.set()
        while model.spec.window != 2_048:
            await asyncio.sleep(0.01)
        await model.close()


async def test_a_model_whose_wire_is_fixed_is_not_asked_about():
    with own_api(ollama(), CHAT) as server:
        await ask(model_at(server, wire="chat"))
    assert [path for path, _ in server.requests] == ["/v1/chat/completions"]


def usage_of(tokens):
    return {"choices": [], "usage": {"prompt_tokens": tokens, "completion_tokens": 2}}


@pytest.mark.parametrize(("read", "warnings"), [(512, 1), (3_000, 0), (6_000, 0), (100, 0), (0, 0)])
async def test_a_server_that_reads_a_part_of_a_request_is_reported_once(read, warnings):
    """ollama/ollama#18107, haoxiang-xu/PuPu#129: a server cuts what is longer than its context."""
    chat = [*CHAT, usage_of(read)]
    with own_api({}, chat, chat) as server:
        model = model_at(server, "openai/m")
        long = user("words " * 4_000)
        chunks = [*await chunks_of(model, long), *await chunks_of(model, long)]
        await model.close()
    notices = [chunk.text for chunk in chunks if isinstance(chunk, NoticeChunk)]
    assert len(notices) == warnings
    assert all("has read 512 of about" in notice for notice in notices)
