import socket
from contextlib import ExitStack

import pytest
from fakes.local_servers import local_server, models

from ouro.llm import PROVIDERS, ServerModels
from ouro.llm.providers import base_url, find_local_servers

VARIABLES = {
    "ollama_chat": "OLLAMA_HOST",
    "lm_studio": "LM_STUDIO_API_BASE",
    "llama_cpp": "LLAMA_CPP_API_BASE",
    "hosted_vllm": "HOSTED_VLLM_API_BASE",
}


def closed_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


def closed_addresses() -> dict[str, str]:
    """Addresses without a server for all four providers, whatever runs on this machine."""
    return {variable: f"http://{closed_port()}/v1" for variable in VARIABLES.values()}


def test_every_kind_of_server_is_found_with_its_models_and_their_windows():
    answers = {
        "ollama_chat": models("qwen3-coder:30b", "nomic-embed-text:latest"),
        "lm_studio": models("openai/gpt-oss-20b"),
        "llama_cpp": models("gemma.gguf", meta={"n_ctx_train": 8192}),
        "hosted_vllm": models("Qwen/Qwen3-32B", max_model_len=40960),
    }
    with ExitStack() as running:
        servers = {
            name: running.enter_context(local_server(answer)) for name, answer in answers.items()
        }
        environ = {
            VARIABLES[name]: f"http://{server.address}/v1" for name, server in servers.items()
        }
        found = find_local_servers(
            {**environ, "OLLAMA_HOST": servers["ollama_chat"].address}, timeout=20
        )

    def expected(name: str, model: str, window: int | None) -> ServerModels:
        return ServerModels(f"http://{servers[name].address}/v1", {f"{name}/{model}": window})

    assert found == {
        PROVIDERS["ollama_chat"]: expected("ollama_chat", "qwen3-coder:30b", None),
        PROVIDERS["lm_studio"]: expected("lm_studio", "openai/gpt-oss-20b", None),
        PROVIDERS["llama_cpp"]: expected("llama_cpp", "gemma.gguf", 8192),
        PROVIDERS["hosted_vllm"]: expected("hosted_vllm", "Qwen/Qwen3-32B", 40960),
    }
    assert [path for path, _ in servers["hosted_vllm"].requests] == ["/v1/models"]


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>a web page</html>",
        b"\xff\xfe",
        {"data": "x"},
        {"data": [7, {"id": 7}, {"id": "\x1b[2J"}]},
        [1],
        b"[" * 100_000,
    ],
)
def test_foreign_server_on_the_port_offers_nothing(answer):
    with local_server(answer) as server:
        found = find_local_servers(
            {**closed_addresses(), "OLLAMA_HOST": server.address}, timeout=20
        )
    assert [model for each in found.values() for model in each.models] == []


def test_a_server_that_refuses_offers_nothing():
    with local_server(models("a"), status=401) as server:
        assert (
            find_local_servers({**closed_addresses(), "OLLAMA_HOST": server.address}, timeout=20)
            == {}
        )


def test_silent_server_does_not_delay_the_others():
    with local_server(None) as silent, local_server(models("a")) as quick:
        found = find_local_servers(
            {
                **closed_addresses(),
                "OLLAMA_HOST": silent.address,
                "LM_STUDIO_API_BASE": quick.address,
            },
            timeout=0.5,
        )
    assert [provider.name for provider in found] == ["lm_studio"]


def test_no_local_server_is_no_error():
    assert find_local_servers(closed_addresses(), timeout=20) == {}


def test_proxy_is_not_used_for_local_servers(monkeypatch):
    with local_server(models("wrong")) as proxy, local_server(models("right")) as server:
        monkeypatch.setenv("http_proxy", f"http://{proxy.address}")
        found = find_local_servers(
            {**closed_addresses(), "OLLAMA_HOST": server.address}, timeout=20
        )
    assert next(iter(found.values())).models == {"ollama_chat/right": None}
    assert proxy.requests == []


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        (":11500", "http://127.0.0.1:11500/v1"),
        ("gpu-box", "http://gpu-box:11434/v1"),
        ("https://gpu-box/", "https://gpu-box:443/v1"),
        ("http://gpu-box:1/ollama/v1", "http://gpu-box:1/ollama/v1"),
        ("[::1]:11434", "http://[::1]:11434/v1"),
    ],
)
def test_ollama_host_is_understood_in_all_its_forms(given, url):
    assert base_url(PROVIDERS["ollama_chat"], {"OLLAMA_HOST": given}) == url


@pytest.mark.parametrize(
    ("variable", "path", "answer", "name"),
    [
        (
            "OLLAMA_HOST",
            "/api/ps",
            {"models": [{"name": "qwen3:8b", "model": "qwen3:8b", "context_length": 8192}]},
            "ollama_chat/qwen3:8b",
        ),
        (
            "LM_STUDIO_API_BASE",
            "/api/v0/models",
            {"data": [{"id": "qwen3:8b", "state": "loaded", "loaded_context_length": 8192}]},
            "lm_studio/qwen3:8b",
        ),
    ],
)
def test_the_context_with_which_a_model_is_loaded_is_its_window(variable, path, answer, name):
    from fakes.model_server import ModelServer

    from ouro.llm.providers import find_local_servers

    with ModelServer(models=["qwen3:8b", "other"], routes={path: answer}) as server:
        nowhere = {
            "OLLAMA_HOST": "http://127.0.0.1:1/v1",
            "LM_STUDIO_API_BASE": "http://127.0.0.1:1/v1",
            "LLAMA_CPP_API_BASE": "http://127.0.0.1:1/v1",
            "HOSTED_VLLM_API_BASE": "http://127.0.0.1:1/v1",
        }
        found = find_local_servers({**nowhere, variable: server.openai_url}, 10)
    [models] = [server.models for server in found.values()]
    assert models == {name: 8192, name.replace("qwen3:8b", "other"): None}
