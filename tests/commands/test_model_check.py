"""`ouro models test` against the scripted server."""

import json
import socket
import threading

import pytest
import yaml
from fakes.model_server import Call, ModelServer, Reply, Tokens, failure


def set_entry(ouro, **entry):
    path = ouro.home / "models.yaml"
    file = yaml.safe_load(path.read_text())
    file["models"]["openai/test-model"] |= entry
    path.write_text(yaml.safe_dump(file))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def able(request):
    """A model that can do everything."""
    question, tokens = request.prompt, Tokens(2000, 20, cached=1500)
    if "Which number" in question:
        return Reply("4711", thinking="The drawer.", tokens=tokens)
    if "at once" in question:
        calls = [Call("look_up", {"drawer": color}) for color in ("red", "blue")]
        return Reply(calls=calls, tokens=tokens)
    if "look_up" in question:
        return Reply(calls=[Call("look_up", {"drawer": "red"})], thinking="Hm.", tokens=tokens)
    return Reply("Red." if "color" in question else "one two three four", tokens=tokens)


def states(done):
    return {check["name"]: check["state"] for check in json.loads(done.out)["checks"]}


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_a_model_that_can_everything(ouro, wire):
    prices = {"input": 1, "output": 10}
    set_entry(ouro, images=True, thinking=True, wire=wire, prices=prices)
    ouro.server.script(able)
    done = ouro.headless("models", "test", "--json")
    assert done.code == 0
    assert set(states(done).values()) == {"works"}
    assert len(ouro.server.requests) <= 6
    assert "about $0.04 at most" in done.err


def test_a_model_without_tools_or_pictures(ouro):
    ouro.server.script(lambda request: Reply("I cannot do that, I am a poem.", tokens=None))
    done = ouro.headless("models", "test")
    assert done.code == 1
    assert "its price is not known" in done.out
    rows = [line.split() for line in done.out.splitlines()]
    assert ["call", "FAILS"] in [row[:2] for row in rows]
    assert ["picture", "off"] in [row[:2] for row in rows]
    assert "no call; it answered “I cannot do that" in done.out


def test_a_server_that_refuses_is_a_result_with_its_words(ouro):
    ouro.server.script(lambda request: failure(400, "This model is retired."))
    done = ouro.headless("models", "test", "test-model", "--json")
    assert (done.code, states(done)) == (1, {"answer": "fails"})
    assert "This model is retired" in done.out


def test_what_was_learned_is_shown(ouro):
    set_entry(ouro, thinking=True)
    ouro.server.refuses_tools_on_chat = True
    ouro.server.paths = ("/chat/completions",)
    ouro.server.script(able)
    done = ouro.headless("models", "test")
    assert done.code == 0
    assert "without thinking" in done.out
    assert "effort `medium` is sent as `none`" in done.out
    learned = json.loads(ouro.headless("models", "test", "--json").out)["learned"]
    [row] = [row for row in learned if row["fact"] == "effort.medium"]
    assert row["value"] == "none"
    assert "/v1/responses" in row["refusal"]


def test_json_has_everything_that_the_table_has(ouro):
    set_entry(ouro, images=True, prices={"input": 1, "output": 10})
    ouro.server.script(able)
    done = ouro.headless("models", "test", "--json")
    data = json.loads(done.out)
    assert set(data) == {
        "model",
        "checks",
        "notices",
        "requests",
        "usage",
        "window",
        "max_output",
        "learned",
    }
    assert all(set(check) == {"name", "state", "detail"} for check in data["checks"])
    assert (data["model"], data["window"]) == ("openai/test-model", 100_000)
    assert data["requests"] == len(ouro.server.requests)
    assert data["usage"]["input"] > 0


def marked(terminal, text):
    return any("❯" in line and text in line for line in terminal.lines())


def test_the_first_start_on_the_full_screen_offers_the_test(ouro):
    (ouro.home / "models.yaml").unlink()
    ouro.server.script(able)
    terminal = ouro.start(size=(40, 110))
    terminal.until_shows("set up a model")
    terminal.press("1", lambda: terminal.shows("Where is your model?"))
    terminal.send("\x15Another")  # a slow screen gets the key before it twice: Ctrl+U
    terminal.until(lambda: marked(terminal, "Another server"))
    terminal.press("\r", lambda: terminal.shows("Its address"))
    terminal.send(f"{ouro.server.openai_url}\r")
    terminal.until_shows("Which model of")
    terminal.press("1", lambda: terminal.shows("up to 6 small requests"))
    terminal.press("2", lambda: terminal.shows("Testing"))
    terminal.until_shows("streaming", "parallel calls", "Window:")
    terminal.press("\r", lambda: terminal.shows("❯ Ask for anything"))


def test_the_actions_of_models_are_in_its_help(ouro):
    assert "test" in ouro.headless("models", "--help").out
    assert "MODEL" in ouro.headless("models", "test", "--help").out
    assert ouro.headless("models", "--json").code == 0


def test_a_server_that_loads_for_too_long_is_reported_with_the_limit(ouro):
    ouro.server.script(lambda request: failure(503, "Loading model"))
    done = ouro.headless("models", "test", "--seconds", "3", "--json")
    [check] = json.loads(done.out)["checks"]
    assert (done.code, check["state"]) == (1, "fails")
    assert "still loads the model after 3 s" in check["detail"]
    assert "--seconds" in check["detail"]
    assert "Loading model" in done.err
    assert "at most 3 s" in done.err


def test_a_server_that_says_nothing_is_reported_with_the_limit(ouro):
    held = threading.Event()
    ouro.server.script(lambda request: Reply("late", hold=held))
    done = ouro.headless("models", "test", "--seconds", "2", "--json")
    held.set()
    [check] = json.loads(done.out)["checks"]
    assert "no answer within 2 s" in check["detail"]
    assert "--seconds" in check["detail"]


def test_a_server_that_is_not_there_yet_is_waited_for_with_seconds(ouro):
    port = free_port()
    set_entry(ouro, api_base=f"http://127.0.0.1:{port}/v1")
    process = ouro.begin("models", "test", "--seconds", "60", "--yes", "--json")
    while "at most 60 s" not in (line := process.stderr.readline().decode()):
        assert line
    with ModelServer(able, port=port):
        out, _ = process.communicate(timeout=100)
    assert json.loads(out)["checks"][0] == {
        "name": "answer",
        "state": "works",
        "detail": "“one two three four”",
    }


def test_a_server_that_is_not_there_is_reported_soon_without_seconds(ouro):
    set_entry(ouro, api_base=f"http://127.0.0.1:{free_port()}/v1")
    done = ouro.headless("models", "test", "--json")
    assert states(done) == {"answer": "fails"}
    assert "Waiting" not in done.err


@pytest.mark.parametrize("value", ["0", "-5"])
def test_seconds_must_be_positive(ouro, value):
    done = ouro.headless("models", "test", "--seconds", value)
    assert done.code != 0
    assert "at least 1" in done.err
