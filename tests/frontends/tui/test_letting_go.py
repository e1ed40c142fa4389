"""A long session on the screen: old parts that have left memory leave the screen as well, and can
be shown again.
"""

import pytest
from fakes.screens import opened, screen_of, until

from ouro.assemble import Options, open_session
from ouro.frontends.tui.blocks.messages import UserMessage
from ouro.frontends.tui.screens import conversation
from ouro.llm import ScriptedModel
from ouro.memory.backend import CompactionRecord
from ouro.session import OpenRequest

TURNS = 40


@pytest.fixture
async def session(repository, monkeypatch):
    monkeypatch.setenv("OURO_SESSIONS_TITLES", "false")
    monkeypatch.setenv("OURO_MEMORY_ENABLED", "false")
    model = ScriptedModel(f"AnswerBlock {number}." for number in range(200))
    session = await open_session(Options(repository, ready_model=model), OpenRequest(trust="yes"))
    for number in range(TURNS):
        assert [event async for event in session.send(f"question {number}")]
    yield session
    await session.close()


async def compact(session):
    memory = session.memory
    sent = memory.transcript.sent_entries()
    await memory.record(
        CompactionRecord(memory.next_number, memory.now(), (1, sent[-10].number), (1,), "Said.")
    )


def block_texts(app):
    return [
        block.text for block in app.conversation.transcript.blocks if isinstance(block, UserMessage)
    ]


async def ask(pilot, text):
    await pilot.press(*text, "enter")
    await until(pilot, lambda: text in block_texts(pilot.app) and not pilot.app.turns.running)


async def test_screen_drops_old_messages_and_scrolling_restores_each_once(session, monkeypatch):
    monkeypatch.setattr(conversation, "MAX_BLOCKS", 30)
    everything = [f"question {number}" for number in range(TURNS)]

    async def open_it(_request):
        return session

    async with screen_of(open_session=open_it).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        assert block_texts(pilot.app) == everything
        await ask(pilot, "one")
        assert block_texts(pilot.app) == [*everything, "one"], "memory holds it all"

        await compact(session)
        await ask(pilot, "two")
        assert block_texts(pilot.app) == [*everything[-2:], "one", "two"]

        while session.scrollback.has_more:
            await pilot.app.conversation.show_earlier()
        assert block_texts(pilot.app) == [*everything, "one", "two"]
