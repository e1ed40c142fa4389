"""Titles by a model: in the background, once, and never instead of a title by the user."""

from __future__ import annotations

import asyncio

import pytest
from fakes.agents import say
from fakes.classifier import wait_until_quiet

from ouro.assemble import Options, opener
from ouro.errors import ModelUnavailable, UsageError
from ouro.events import Titled
from ouro.llm import ScriptedModel, ScriptedReply
from ouro.memory.backend import CostRecord, TitleRecord
from ouro.messages import Usage, assistant, user
from ouro.session import OpenRequest
from ouro.session.titles import INSTRUCTIONS, clean_title, excerpt

USED = Usage(input=200, output=6, cost=0.001)


def make(repository, *script, **options):
    model = ScriptedModel(script)
    return opener(Options(repository, ready_model=model, **{"interactive": True, **options})), model


def asked_for_titles(model):
    return [each for each in model.requests if each.messages[0].text == INSTRUCTIONS]


async def records_of(session, kind):
    await session.close()
    loaded = await session.memory._store.load_session(session.id, read_only=True)
    return [each for each in loaded.records if isinstance(each, kind)]


async def test_model_finds_a_title_after_the_first_turn(repository):
    open_session, model = make(
        repository, "Mended.", ScriptedReply("“Mend the import in api.py.”", usage=USED)
    )
    session = await open_session(OpenRequest())
    await say(session, "the import in api.py is broken, please fix it for me as soon as you can")
    assert await anext(session.events()) == Titled("Mend the import in api.py")
    assert (session.title, session.status().usage.cost) == ("Mend the import in api.py", 0.001)
    [request] = asked_for_titles(model)
    assert request.messages[1].text.startswith("User: the import in api.py is broken")
    assert request.messages[1].text.endswith("Agent: Mended.")
    assert (request.tools, [each.title for each in await records_of(session, TitleRecord)][-1]) == (
        (),
        "Mend the import in api.py",
    )


async def test_title_cost_is_recorded_as_a_side_cost(repository):
    open_session, _ = make(repository, "Mended.", ScriptedReply("A title", usage=USED))
    session = await open_session(OpenRequest())
    await say(session, "fix it")
    await anext(session.events())
    [cost] = await records_of(session, CostRecord)
    assert (cost.purpose, cost.model, cost.usage) == ("title", "scripted", USED)


async def test_next_turn_does_not_wait_for_the_title(repository):
    held = asyncio.Event()

    def reply(messages):
        return (
            ScriptedReply("Slow title", hold=held.wait)
            if messages[0].text == INSTRUCTIONS
            else "Yes."
        )

    open_session, _ = make(repository, reply, reply, reply)
    session = await open_session(OpenRequest())
    await say(session, "one")
    await say(session, "two")
    assert session.title == "one"
    held.set()
    assert await anext(session.events()) == Titled("Slow title")
    await session.close()


async def test_failed_title_is_not_retried_and_only_logged(repository, caplog):
    open_session, model = make(
        repository, "One.", ScriptedReply(error=ModelUnavailable("down")), "Two.", "Three."
    )
    session = await open_session(OpenRequest())
    await say(session, "one")
    await wait_until_quiet(session)
    await say(session, "two")
    await wait_until_quiet(session)
    assert len(asked_for_titles(model)) == 1
    assert session.title == "one"
    assert "title: down" in caplog.text
    await session.close()


async def test_failed_title_is_retried_after_a_resume(repository):
    open_session, _model = make(
        repository, "One.", ScriptedReply(error=ModelUnavailable("down")), "Two.", "Found"
    )
    session = await open_session(OpenRequest())
    await say(session, "one")
    await wait_until_quiet(session)
    await session.close()
    again = await open_session(OpenRequest("latest"))
    await say(again, "two")
    assert await anext(again.events()) == Titled("Found")
    await again.close()


async def test_user_rename_wins_over_a_pending_title(repository):
    held = asyncio.Event()
    open_session, _ = make(repository, "One.", ScriptedReply("Slow title", hold=held.wait))
    session = await open_session(OpenRequest())
    await say(session, "one")
    session.rename("mine")
    held.set()
    await wait_until_quiet(session)
    assert session.title == "mine"
    await session.close()


async def test_renamed_session_gets_no_model_title(repository):
    open_session, model = make(repository, "One.", "Two.")
    session = await open_session(OpenRequest())
    session.rename("mine")
    await say(session, "one")
    await wait_until_quiet(session)
    assert (asked_for_titles(model), session.title) == ([], "mine")
    await session.close()


async def test_closing_does_not_wait_for_a_title(repository):
    open_session, _ = make(repository, "One.", ScriptedReply("Never", hold=asyncio.Event().wait))
    session = await open_session(OpenRequest())
    await say(session, "one")
    await session.close()
    assert session.title == "one"


@pytest.mark.parametrize(
    ("settings", "options"),
    [("sessions: {titles: false}", {}), ("", {"ephemeral": True}), ("", {"interactive": False})],
    ids=["setting", "ephemeral", "headless and demo"],
)
async def test_no_title_is_requested_if_disabled(repository, home, settings, options):
    (home / ".ouro").mkdir(mode=0o700)
    (home / ".ouro" / "config.yaml").write_text(settings)
    open_session, model = make(repository, "One.", "A title", **options)
    session = await open_session(OpenRequest())
    await say(session, "one")
    await wait_until_quiet(session)
    assert asked_for_titles(model) == []
    await session.close()


async def test_a_copy_of_the_instructions_is_no_title(repository):
    copy = INSTRUCTIONS.partition("Say ")[2].partition(",")[0]
    open_session, _model = make(repository, "One.", f"“{copy.capitalize()}”.", interactive=False)
    session = await open_session(OpenRequest())
    await say(session, "one")
    with pytest.raises(UsageError, match="gave no title"):
        await session.turn.titles.find()
    assert session.title == "one"
    await session.close()


async def test_requested_title_replaces_any_title(repository):
    open_session, _model = make(repository, "One.", "Mend the parser", "...", interactive=False)
    session = await open_session(OpenRequest())
    with pytest.raises(UsageError, match="There are no messages yet"):
        await session.turn.titles.find()
    await say(session, "one")
    session.rename("mine")
    assert (await session.turn.titles.find(), session.title) == (
        "Mend the parser",
        "Mend the parser",
    )
    with pytest.raises(UsageError, match="gave no title"):
        await session.turn.titles.find()
    assert session.title == "Mend the parser"
    await session.close()


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Mend the import", "Mend the import"),
        ("\n\n“Mend the import.”\nBecause it is broken.", "Mend the import"),
        ("# **Title: Mend `api.py`**", "Mend api.py"),
        ("Titel: Import in api.py reparieren", "Import in api.py reparieren"),
        ("修复导入。", "修复导入"),
        ("\x1b[31mred\x1b[0m \u202eevil", "red evil"),
        ("...", ""),
        ("", ""),
        ("word " * 40, "word word word word word word word word word word word word…"),
    ],
)
def test_a_title_is_cleaned(answer, title):
    assert clean_title(answer) == title
    assert len(clean_title(answer)) <= 60


def test_the_excerpt_is_short_and_has_beginning_and_end():
    long = [
        user("the beginning"),
        *(assistant("middle " * 100) for _ in range(50)),
        user("the end"),
    ]
    text = excerpt(long)
    assert text.startswith("User: the beginning")
    assert text.endswith("User: the end")
    assert len(text) < 4_100
