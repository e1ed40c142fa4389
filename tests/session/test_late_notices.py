"""Notices about records that are read in the background after the screen is shown: reported when
found, once.
"""

from __future__ import annotations

import asyncio

import pytest
from fakes.waiting import wait

from ouro.assemble import Options, open_session
from ouro.events import Notice
from ouro.llm import ScriptedModel
from ouro.memory.backend import MessageRecord, SessionHeader
from ouro.memory.sessions import session_reader
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import user
from ouro.session import OpenRequest
from ouro.utils.ouro_paths import get_sessions_dir

AT = "2026-11-21T20:14:03.120Z"
HEADER = SessionHeader("0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "scripted", AT)


@pytest.fixture
def path(home, monkeypatch):
    """A session whose end the screen reads first; its third message was damaged in an editor."""
    monkeypatch.setenv("OURO_SESSIONS_TITLES", "false")
    monkeypatch.setenv("OURO_MEMORY_ENABLED", "false")
    monkeypatch.setattr(session_reader, "MAX_SHOWN", 3000)
    wait(
        YamlFileMemoryStore(get_sessions_dir()).import_session(
            HEADER, [MessageRecord(number, AT, user(f"m{number}")) for number in range(1, 200)]
        )
    )
    path = next(get_sessions_dir().glob("2*/session.yaml"))
    path.write_text(path.read_text().replace("text: m3\n", "text: [m3\n"))
    return path


async def opened(repository):
    model = ScriptedModel(["Yes."])
    return await open_session(
        Options(repository, ready_model=model), OpenRequest(HEADER.id, trust="yes")
    )


async def read_notices(session):
    return [event async for event in session.events() if isinstance(event, Notice)]


async def test_damaged_early_record_is_reported_once_read(path, repository):
    session = await opened(repository)
    reading = asyncio.create_task(read_notices(session))
    await session.resumed.card()
    assert [event async for event in session.send("hi")]
    await session.close()
    [notice] = [each for each in await reading if "cannot be read" in each.text]
    assert (notice.level, str(path) in notice.text) == ("warning", True)


async def test_failure_to_read_earlier_messages_is_reported(path, repository, monkeypatch):
    load = YamlFileMemoryStore.load_session

    async def fails_for_the_rest(store, session_id, *, read_only=False, reach="whole"):
        if reach == "context":
            path.unlink()
        return await load(store, session_id, read_only=read_only, reach=reach)

    monkeypatch.setattr(YamlFileMemoryStore, "load_session", fails_for_the_rest)
    session = await opened(repository)
    reading = asyncio.create_task(read_notices(session))
    await asyncio.gather(session.resumed.card(), session.memory.pager.finish_loading())
    await session.close()
    assert [each.text.partition(":")[0] for each in await reading] == [
        "/p, the folder of this session, does not exist",
        "Earlier messages could not be read",
    ]
