"""A long session over real wires: the first message is still sent at the end, and the cached prefix
is kept.
"""

from __future__ import annotations

import json

import pytest
from fakes.model_server import Reply, Tokens

from ouro.assemble import Options, open_session
from ouro.events import Compacted, TurnFinished
from ouro.session import OpenRequest

FIRST = "Whatever I say later: never touch LICENSE, and answer in German. Now look around."
PINNED = "The release is on Friday."
WINDOW = 40_000
MODELS = {
    "openai": ("openai/test-model", "{url}/v1"),
    "anthropic": ("anthropic/test-model", "{url}"),
}


@pytest.fixture(params=MODELS)
def model(request, home, model_server, monkeypatch):
    """A model with a small window on the server; there are no background requests."""
    name, url = MODELS[request.param]
    folder = home / ".ouro"
    folder.mkdir(mode=0o700)
    base = url.format(url=model_server.url)
    entry = f"{{api_base: '{base}', api_key: sk-test-1, window: {WINDOW}, max_output: 2000}}"
    (folder / "models.yaml").write_text(f"default: {name}\nmodels:\n  {name}: {entry}\n")
    (folder / "models.yaml").chmod(0o600)
    monkeypatch.setenv("OURO_SESSIONS_TITLES", "false")
    monkeypatch.setenv("OURO_MEMORY_ENABLED", "false")
    return name


def asks_for_summary(request) -> bool:
    return "Write a summary that replaces it" in json.dumps(request.messages[-1])


def answer(request):
    """The answer of a provider: with the tokens of the request, and a summary if the request asks
    for one.
    """
    tokens = Tokens(input=int(len(request.raw) / 3.5), output=150)
    if asks_for_summary(request):
        return Reply("## Goal\nTo look around.\n## Next\nThe next question.", tokens=tokens)
    return Reply(
        ["Das habe ich gesehen. " * 130], tokens=tokens
    )  # in one piece: streaming is not tested here


def plain(messages):
    """Messages as the provider's cache compares them: without the cache marks."""
    return json.loads(
        json.dumps(messages),
        object_hook=lambda each: {k: v for k, v in each.items() if k != "cache_control"},
    )


async def say(session, text):
    seen = [event async for event in session.send(text)]
    assert seen[-1] == TurnFinished("answered"), seen[-1]
    return [event for event in seen if isinstance(event, Compacted)]


@pytest.mark.slow
async def test_first_message_is_still_sent_after_100_turns_and_compactions(
    model, model_server, repository
):
    model_server.script(answer)
    session = await open_session(Options(repository), OpenRequest())
    compactions = await say(session, FIRST)
    await say(session, PINNED)
    [number] = [each.number for each in session.window.pinnable() if each.text == PINNED]
    await session.window.pin(number)
    for turn in range(3, 101):
        compactions += await say(session, f"Question {turn}: " + "and what of this? " * 6)
        sent = json.dumps(model_server.requests[-1].messages)
        assert FIRST in sent
        assert PINNED in sent
    assert len(compactions) >= 3
    assert len(model_server.requests) == 100 + len(compactions)
    assert all(len(request.raw) / 3.5 < WINDOW for request in model_server.requests)

    for number, request in enumerate(model_server.requests):
        if asks_for_summary(request):
            before = model_server.requests[number - 1]
            assert plain(request.messages)[: len(before.messages)] == plain(before.messages)
            rest = [
                {k: v for k, v in plain(each.body).items() if k != "messages"}
                for each in (before, request)
            ]
            assert rest[0] == rest[1]

    last = model_server.requests[-1]
    tokens = session.status().context
    await session.close()
    again = await open_session(Options(repository), OpenRequest("latest"))
    await say(again, "And after a rest?")
    resumed = model_server.requests[-1]
    assert plain(resumed.messages)[: len(last.messages)] == plain(last.messages)
    assert resumed.body.get("system") == last.body.get("system")
    assert abs(again.status().context - tokens) < 1_000
    await again.close()


async def test_configured_compaction_model_writes_the_summary(
    model, model_server, repository, home
):
    path = home / ".ouro" / "models.yaml"
    provider = model.partition("/")[0]
    entry = path.read_text().splitlines()[-1].partition(": ")[2]
    path.write_text(f"{path.read_text()}  {provider}/writer: {entry}\ncompact: {provider}/writer\n")
    model_server.script(answer)
    session = await open_session(Options(repository), OpenRequest())
    for turn in range(3):
        await say(session, f"Question {turn}")
    seen = [event async for event in session.window.compact("the German answers")]
    assert [type(event).__name__ for event in seen][-2:] == ["UsageUpdated", "TurnFinished"]
    assert [request.body["model"] for request in model_server.requests] == ["test-model"] * 3 + [
        "writer"
    ]
    assert "the German answers" in json.dumps(model_server.requests[-1].messages[-1])
    await session.close()
