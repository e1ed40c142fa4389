"""Images over real wires: sent again byte for byte; if one is not sent it is named, and a missing
file is reported.
"""

from __future__ import annotations

import base64
import json

import pytest
from fakes.agents import notices_of
from fakes.model_server import Call, Reply

from ouro.assemble import Options, open_session
from ouro.commands.export import document
from ouro.events import Compacted, TurnFinished
from ouro.messages import Image
from ouro.session import OpenRequest
from ouro.utils.ouro_paths import get_sessions_dir

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SHOT = Image("image/png", PNG, "shot.png")
SENT = base64.b64encode(PNG).decode()


@pytest.fixture(params=["openai", "anthropic"])
def model(request, home, model_server, monkeypatch):
    folder = home / ".ouro"
    folder.mkdir(mode=0o700)
    base = f"{model_server.url}/v1" if request.param == "openai" else model_server.url
    entry = f"{{api_base: '{base}', api_key: sk-test-1, window: 40000, images: true}}"
    name = f"{request.param}/test-model"
    (folder / "models.yaml").write_text(f"default: {name}\nmodels:\n  {name}: {entry}\n")
    (folder / "models.yaml").chmod(0o600)
    monkeypatch.setenv("OURO_SESSIONS_TITLES", "false")
    monkeypatch.setenv("OURO_MEMORY_ENABLED", "false")
    model_server.script(lambda _request: Reply("So it is."))
    return name


def plain(messages):
    """Messages without the cache marks, which move."""
    return json.loads(
        json.dumps(messages),
        object_hook=lambda each: {k: v for k, v in each.items() if k != "cache_control"},
    )


async def opened(repository, resume=""):
    return await open_session(Options(repository), OpenRequest(resume))


async def say(session, text, images=()):
    seen = [event async for event in session.send(text, images)]
    assert seen[-1] == TurnFinished("answered"), seen[-1]


async def shown_once(repository):
    session = await opened(repository)
    await say(session, "What is on it?", [SHOT])
    await say(session, "And below?")
    await session.close()


async def test_resume_sends_pictures_byte_for_byte(model, model_server, repository):
    await shown_once(repository)
    last = model_server.requests[-1]
    assert SENT in last.raw.decode()

    session = await opened(repository, "latest")
    assert notices_of(session) == []
    await say(session, "And after a rest?")
    await session.close()
    again = model_server.requests[-1]
    assert plain(again.messages)[: len(last.messages)] == plain(last.messages)
    assert again.raw.decode().count(SENT) == 1


async def test_missing_picture_is_reported_and_session_continues(model, model_server, repository):
    await shown_once(repository)
    [kept] = get_sessions_dir().glob("2*/outputs/*.png")
    kept.unlink()

    session = await opened(repository, "latest")
    [notice] = notices_of(session)
    assert f"outputs/{kept.name}" in notice
    await say(session, "And now?")
    await session.close()
    request = model_server.requests[-1].raw.decode()
    assert (SENT in request, "the picture shot.png is no longer there" in request) == (False, True)


async def test_export_includes_pictures_and_names_missing_ones(model, repository):
    await shown_once(repository)
    session = await opened(repository, "latest")
    for kind in ("html", "markdown", "json"):
        text = "".join(document(await session.memory.whole(), kind))
        assert "shot.png" in text, kind
        assert (SENT in text) == (kind != "markdown") or f"base64,{SENT}" in text, kind
    [kept] = get_sessions_dir().glob("2*/outputs/*.png")
    kept.unlink()
    assert "the picture shot.png is no longer there" in "".join(
        document(await session.memory.whole(), "html")
    )
    await session.close()


async def test_compaction_keeps_user_pictures_and_lists_dropped_ones(
    model, model_server, repository
):
    (repository / "chart.png").write_bytes(PNG)
    read = Reply(calls=(Call("read", {"path": "chart.png"}),))
    answers = ["A chart.", "Yes.", "Long. " * 3000, "## Goal\nTo look.", "Fine."]
    model_server.script([read, *map(Reply, answers)])
    session = await opened(repository)
    await say(session, "Look at chart.png", [SHOT])
    await say(session, "Sure?")
    await say(session, "Tell more.")
    [told] = [event async for event in session.window.compact("") if isinstance(event, Compacted)]
    await say(session, "Go on.")
    await session.close()
    request = model_server.requests[-1].raw.decode()
    assert request.count(SENT) == 1, "the person's own is kept"
    assert "## Pictures that are not sent any more\n- chart.png, message 3" in told.summary
    assert "chart.png, message 3" in request
