"""Another model in the middle of a session: whose token counts are used, the size of its window,
who is called.
"""

from __future__ import annotations

import pytest
from fakes.agents import say
from fakes.model_server import Reply, Tokens

from ouro.assemble import Options, open_session
from ouro.errors import NoModelError, UsageError
from ouro.session import OpenRequest

FIRST, SECOND = "openai/first", "anthropic/second"
TOLD = 30_000


@pytest.fixture(autouse=True)
def models(home, model_server, monkeypatch):
    """Two models on two wires, each with its own window; there are no background requests."""
    folder = home / ".ouro"
    folder.mkdir(mode=0o700)
    first = f"{{api_base: '{model_server.url}/v1', api_key: sk-test-1, window: 40000}}"
    second = f"{{api_base: '{model_server.url}', api_key: sk-test-2, window: 90000}}"
    (folder / "models.yaml").write_text(
        f"default: {FIRST}\nmodels:\n  {FIRST}: {first}\n  {SECOND}: {second}\n"
    )
    (folder / "models.yaml").chmod(0o600)
    monkeypatch.setenv("OURO_SESSIONS_TITLES", "false")
    monkeypatch.setenv("OURO_MEMORY_ENABLED", "false")


def answers_with(*tokens):
    figures = iter(tokens)
    return lambda _request: Reply("So it is.", tokens=Tokens(input=next(figures), output=0))


async def opened(repository, resume="", **options):
    return await open_session(Options(repository, **options), OpenRequest(resume))


def figures(session):
    report = session.window.report()
    status = session.status()
    assert report.tokens == status.context
    assert report.window == status.window
    assert abs(sum(size for _, size in report.parts) - report.tokens) < 20
    return status.context, status.window


async def test_context_figure_of_the_previous_model_is_not_used(repository, model_server):
    model_server.script(answers_with(TOLD, 12_000))
    session = await opened(repository)
    await say(session, "Look around.")
    assert figures(session) == (TOLD, 40_000)

    await session.set_model(SECOND)
    estimate, window = figures(session)
    assert (1_000 < estimate < 20_000, window) == (True, 90_000)
    await session.close()

    session = await opened(repository, "latest")
    assert figures(session) == (estimate, 90_000)
    await say(session, "And now?")
    assert figures(session) == (12_000, 90_000)
    await session.close()

    session = await opened(repository, "latest")
    assert figures(session) == (12_000, 90_000)
    await session.set_model(FIRST)
    assert figures(session)[0] not in (12_000, TOLD)
    await session.close()


async def test_context_figure_is_not_used_with_another_model_on_resume(repository, model_server):
    model_server.script(answers_with(TOLD))
    session = await opened(repository)
    await say(session, "Look around.")
    await session.close()

    session = await opened(repository, "latest", settings={"model": SECOND})
    estimate, window = figures(session)
    card = await session.resumed.card()
    assert (estimate < TOLD, window, card.tokens, card.cache) == (True, 90_000, estimate, "unknown")
    await session.close()


async def test_rewind_keeps_the_model_in_use(repository, model_server):
    model_server.script(answers_with(*range(700, 720)))
    session = await opened(repository)
    await say(session, "One.")
    await say(session, "Two.")
    await session.set_model(SECOND)
    await say(session, "Three.")
    last = session.rewind.points()[-1].number

    await session.rewind.rewind(1)
    assert session.status().model == SECOND
    await say(session, "Else.")
    await session.rewind.visit(last + 1)
    await say(session, "Four.")
    await session.close()

    session = await opened(repository, "latest")
    await session.rewind.undo()
    await say(session, "Five.")
    await session.set_model(FIRST)
    await session.rewind.undo()
    await say(session, "Six.")
    await session.close()
    asked = [request.body["model"] for request in model_server.requests]
    assert asked == ["first", "first", "second", "second", "second", "second", "first"]


async def test_an_effort_is_shown_and_set_only_for_a_model_that_thinks(
    repository, home, model_server
):
    session = await opened(repository)
    assert session.status().effort == "off"
    with pytest.raises(UsageError, match="openai/first is not known to think") as refused:
        await session.set_model(effort="high")
    assert "thinking: true" in refused.value.hint
    await session.close()

    file = home / ".ouro" / "models.yaml"
    file.write_text(file.read_text().replace("window: 40000", "window: 40000, thinking: true"))
    session = await opened(repository)
    await session.set_model(effort="high")
    assert session.status().effort == "high"
    await session.close()


async def test_a_model_written_into_models_yaml_while_a_session_runs_is_used(
    repository, model_server, home
):
    model_server.script([Reply("So it is.")])
    session = await opened(repository)
    path = home / ".ouro/models.yaml"
    before = path.read_text()
    path.write_text(before + "  openai/third: {api_base")
    with pytest.raises(NoModelError, match=r"models\.yaml"):
        await session.set_model("openai/third")
    assert session.status().model == FIRST
    path.write_text(
        f"{before}  openai/third: {{api_base: '{model_server.url}/v1', api_key: sk-test-3}}\n"
    )
    assert "openai/third" in [choice.name for choice in await session.models() if choice.usable]
    await session.set_model("openai/third")
    await say(session, "Look around.")
    assert model_server.requests[-1].headers["authorization"] == "Bearer sk-test-3"
    await session.close()
