"""A server that cannot be reached, starts late, or is still loading its model."""

import json
import socket

import yaml
from fakes.local_servers import own_api, tls_server
from fakes.model_server import ModelServer, failure

LOADING = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
CHAT = [{"choices": [{"index": 0, "delta": {"content": "Hello."}, "finish_reason": "stop"}]}]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def use_address(ouro, address, **entry):
    path = ouro.home / "models.yaml"
    file = yaml.safe_load(path.read_text())
    file["models"]["openai/test-model"] |= {"api_base": address, **entry}
    path.write_text(yaml.safe_dump(file))


def error_of(ouro):
    """What a headless turn that must fail prints."""
    done = ouro.headless("-p", "hi")
    assert done.code == 1
    return done.err


def test_a_refused_connection_is_tried_twice_and_ends_with_1(ouro):
    use_address(ouro, f"http://127.0.0.1:{free_port()}/v1")
    error = error_of(ouro)
    assert "the connection was refused" in error
    assert "2 attempts" in error


def test_an_unknown_host_is_tried_twice_and_ends_with_1(ouro):
    use_address(ouro, "http://no-such-host.invalid/v1")
    error = error_of(ouro)
    assert "no such host" in error
    assert "2 attempts" in error


def test_a_certificate_that_is_not_valid_is_tried_once_and_gets_no_request(ouro, tmp_path):
    with tls_server(tmp_path) as server:
        use_address(ouro, server.url)
        error = error_of(ouro)
    assert "its certificate is not valid" in error
    assert server.received == b""
    assert server.connections <= 3  # the questions about its models, and the message


def test_with_retry_a_server_that_starts_late_answers(ouro):
    port = free_port()
    use_address(ouro, f"http://127.0.0.1:{port}/v1")
    process = ouro.begin("--retry", "60", "-p", "hi")
    lines = []
    while "attempt 2" not in (line := process.stderr.readline().decode()):
        lines.append(line)
        assert line, lines
    with ModelServer(["Here I am."], port=port):
        out, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    assert out.decode().strip() == "Here I am."


def test_a_server_that_is_loading_its_model_is_waited_for_and_asked_again(ouro):
    """llama.cpp lists its model at once, and answers everything else with 503 until it is loaded."""
    with own_api(
        {"/v1/models": {"data": [{"id": "test-model", "owned_by": "llamacpp"}]}}
    ) as server:
        loaded = {"default_generation_settings": {"n_ctx": 16_384}, "modalities": {"vision": True}}
        chats = []

        def answer(path, body):
            if "chat" in path:
                chats.append(body)
            is_loading = len(chats) < 3
            if path == "/v1/models":
                return 200, "application/json", json.dumps(server.answers[path]).encode()
            if is_loading or path not in ("/props", "/v1/chat/completions"):
                return 503, "application/json", json.dumps(LOADING).encode()
            if path == "/props":
                return 200, "application/json", json.dumps(loaded).encode()
            events = "".join(f"data: {json.dumps(event)}\n\n" for event in CHAT)
            return 200, "text/event-stream", events.encode()

        server.answer = answer
        use_address(ouro, f"{server.url}/v1", window=None)
        first = ouro.headless("-p", "hi")
        assert (first.code, first.out.strip()) == (0, "Hello.")
        assert "Loading model" in first.err
        assert len(chats) == 3
        del chats[:]
        tested = ouro.headless("models", "test", "--json")
    assert "Loading model" in tested.err
    checks = {check["name"]: check["state"] for check in json.loads(tested.out)["checks"]}
    assert checks["answer"] == "works"
    assert json.loads(tested.out)["window"] == 16_384


def test_retry_after_of_a_server_that_is_loading_is_kept_to(ouro):
    ouro.server.script([failure(503, "Loading model", retry_after=0.2), "Loaded."])
    done = ouro.headless("-p", "hi")
    assert (done.code, done.out.strip()) == (0, "Loaded.")
    assert "Loading model" in done.err
