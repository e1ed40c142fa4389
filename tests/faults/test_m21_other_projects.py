"""M21: what the memory of another project says about a message is shown, and sent by a key only."""

import asyncio
import subprocess

import pytest

from ouro.assemble import Options, opener
from ouro.events import NotesRecalled, Prompted
from ouro.llm import ScriptedModel, call
from ouro.memory.index import Graph
from ouro.memory.long_term import GitMemoryStore, OtherProjects, repo_folder
from ouro.memory.long_term.git.memory_folders import find_state_dir
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.messages import Context
from ouro.session import OpenRequest
from ouro.utils.ouro_paths import get_history_dir

WEBHOOKS = "Stripe webhooks arrive twice when the queue worker restarts; deduplicate by event id."
NOTE = Note(id="mem_0000000a", text=WEBHOOKS, category="patterns")
QUESTION = "why do stripe webhooks arrive twice when the worker restarts?"


@pytest.fixture
def billing(tmp_path):
    """Another project."""
    folder = tmp_path / "billing"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    return folder


def store_of(project):
    folder = repo_folder(project)
    return GitMemoryStore(folder, "repo", find_state_dir(folder, get_history_dir()))


def remember(project, name, text):
    """Save an approved file of the project's memory."""
    store = store_of(project)
    store.open()
    store.save_and_commit({name: text}, "Remember", {"Ouro-Origin": "user"})
    return store


async def opened(folder, *script, interactive=True, **settings):
    model = ScriptedModel([*script] or ["Ok."] * 9)
    chosen = {"memory.capture": False, "sessions.titles": False, "permissions.mode": "auto"}
    options = Options(
        folder, chosen | settings, ready_model=model, trust=True, interactive=interactive
    )
    return await opener(options)(OpenRequest()), model


async def index(project, **settings):
    """A session there puts the memory of the project into the index."""
    session, _ = await opened(project, **settings)
    await say(session, QUESTION)
    await session.session_memory.update_index()
    graph = Graph(session.session_memory.lookup.search().index)
    while str(project) not in graph.projects():  # in the background, after the turn
        await asyncio.sleep(0.01)
    await close(session)


async def say(session, text):
    events = [event async for event in session.send(text)]
    await session.session_memory.wait_until_settled()
    while busy := [task for task in asyncio.all_tasks() if task.get_name() == "other projects"]:
        await asyncio.wait(busy)
    return events


async def close(session):
    await session.close()
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)


def shown(session):
    """What of other projects is in the receipt."""
    return [item for item in session.session_memory.recalled.items if "from project" in item.reason]


def sent(model):
    return [
        part.text
        for message in model.requests[-1].messages
        for part in message.parts_of(Context)
        if "another project" in part.text
    ]


async def shown_in(folder, text=QUESTION, **settings):
    session, model = await opened(folder, **settings)
    await say(session, text)
    found = shown(session)
    await say(session, "thanks")
    assert sent(model) == []
    await close(session)
    return [item.text for item in found]


async def test_m21_strong_match_is_shown_and_sent_only_after_the_key(billing, repository):
    remember(billing, NOTE.file_name, note_text(NOTE))
    await index(billing)
    session, model = await opened(repository)
    await say(session, QUESTION)

    [item] = shown(session)
    assert (item.state, item.text) == ("skipped", WEBHOOKS)
    assert item.reason.startswith("from project billing (")
    await say(session, "and now?")
    assert sent(model) == []

    assert session.session_memory.other_projects.send_offered().text == WEBHOOKS
    await say(session, "use it")
    [text] = sent(model)
    assert WEBHOOKS in text
    assert "nothing in it is a rule" in text
    assert [item.state for item in shown(session)] == ["loaded"]
    assert session.session_memory.other_projects.send_offered() is None  # it is sent once
    await say(session, QUESTION)
    assert shown(session) == []  # and shown once in a session
    await close(session)


async def test_m21_it_goes_with_the_next_tool_result_of_a_running_turn(billing, repository):
    remember(billing, NOTE.file_name, note_text(NOTE))
    await index(billing)
    session, model = await opened(repository, "Ok.", call("read", path="api.py"), "Done.")
    await say(session, QUESTION)
    async for event in session.send("go on"):
        if isinstance(event, Prompted):
            session.session_memory.other_projects.send_offered()
    assert WEBHOOKS in sent(model)[0]
    await close(session)


async def test_m21_receipt_of_the_session_file_names_the_project(billing, repository):
    remember(billing, NOTE.file_name, note_text(NOTE))
    await index(billing)
    session, _ = await opened(repository)
    await say(session, QUESTION)
    records = [*session.session_memory._memory.transcript.recalled.values()]
    [item] = [item for record in records for item in record.items]
    assert item.state == "skipped"
    assert item.reason.endswith("/billing): not sent")
    await close(session)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("facts.md", f"- {WEBHOOKS}\n"),
        ("decisions.md", f"- {WEBHOOKS}\n"),
    ],
)
async def test_m21_facts_and_decisions_of_the_core_count(billing, repository, name, text):
    remember(billing, name, text)
    await index(billing)
    assert await shown_in(repository) == [WEBHOOKS]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("preferences.md", f"- {WEBHOOKS}\n"),
        ("facts.md", "- Always restart the worker when stripe webhooks arrive twice.\n"),
        (NOTE.file_name, note_text(Note(id=NOTE.id, text=WEBHOOKS, category="corrections"))),
        (NOTE.file_name, note_text(Note(id=NOTE.id, text=WEBHOOKS, category="dead-ends"))),
        (NOTE.file_name, note_text(Note(id=NOTE.id, text=WEBHOOKS, branch="feature"))),
        (NOTE.file_name, note_text(Note(id=NOTE.id, text=WEBHOOKS, until="2020-01-01"))),
        (NOTE.file_name, note_text(Note(id=NOTE.id, text=WEBHOOKS, tentative="2026-11-01"))),
    ],
)
async def test_m21_rule_or_passing_note_of_another_project_is_not_shown(
    billing, repository, name, text
):
    remember(billing, name, text)
    await index(billing)
    assert await shown_in(repository) == []


async def test_m21_text_that_nobody_approved_is_not_shown(billing, repository):
    """Another program writes into the memory of the other project, and a session indexes it."""
    store = remember(billing, "facts.md", "- The office has a green door.\n")
    (store.folder / NOTE.file_name).write_text(note_text(NOTE))
    await index(billing)
    assert await shown_in(repository) == []


async def test_m21_note_that_changed_since_it_was_indexed_is_not_shown(billing, repository):
    store = remember(billing, NOTE.file_name, note_text(NOTE))
    await index(billing)
    remember(billing, NOTE.file_name, note_text(Note(id=NOTE.id, text="Webhooks arrive once.")))
    assert await shown_in(repository) == []
    (store.folder / NOTE.file_name).unlink()
    assert await shown_in(repository) == []


async def test_m21_project_that_is_not_trusted_is_not_shown(billing, repository):
    remember(billing, NOTE.file_name, note_text(NOTE))
    await index(billing)
    (billing / "AGENTS.md").write_text("Changed since the user trusted this folder.\n")
    assert await shown_in(repository) == []


async def test_m21_memory_that_is_switched_off_or_private_is_not_shown(billing, repository):
    from ouro.memory.long_term import switch

    store = remember(billing, NOTE.file_name, note_text(NOTE))
    await index(billing)
    assert await shown_in(repository, **{"memory.private_projects": [str(billing.parent)]}) == []
    assert await shown_in(repository, **{"memory.other_projects": False}) == []
    assert await shown_in(repository, **{"memory.retrieval": "off"}) == []
    switch(store, on=False)
    assert await shown_in(repository) == []
    switch(store, on=True)
    assert await shown_in(repository) == [WEBHOOKS]


async def test_m21_nothing_is_looked_for_without_a_user(billing, repository, monkeypatch):
    remember(billing, NOTE.file_name, note_text(NOTE))
    await index(billing)
    looked = []
    monkeypatch.setattr(OtherProjects, "find", lambda _self, text: looked.append(text))
    session, _ = await opened(repository, interactive=False)
    await say(session, QUESTION)
    await close(session)
    assert looked == []


async def test_m21_other_projects_are_asked_only_after_the_message_is_sent(
    billing, repository, monkeypatch
):
    remember(billing, NOTE.file_name, note_text(NOTE))
    await index(billing)
    session, _ = await opened(repository)
    order, find = [], OtherProjects.find
    monkeypatch.setattr(
        OtherProjects, "find", lambda self, text: (order.append("asked"), find(self, text))[1]
    )
    async for event in session.send(QUESTION):
        order.append(type(event))
    assert order.index(Prompted) < order.index("asked")
    assert order.count("asked") == 1
    await say(session, "thanks")
    await close(session)


async def test_m21_own_memory_with_the_same_text_is_no_news(billing, repository):
    for project in (billing, repository):
        remember(project, "facts.md", f"- {WEBHOOKS}\n")
    await index(billing)
    assert await shown_in(repository) == []


async def test_m21_ordinary_message_shows_nothing(billing, repository):
    remember(billing, NOTE.file_name, note_text(NOTE))
    await index(billing)
    for text in ("run the tests", "why does it fail?", "restart it", "write a worker"):
        assert await shown_in(repository, text) == []


async def test_m21_event_names_the_project_and_the_text(billing, repository):
    remember(billing, NOTE.file_name, note_text(NOTE))
    await index(billing)
    session, _ = await opened(repository)
    seen = []

    async def listen():
        async for event in session.events():
            seen.append(event)

    listening = asyncio.create_task(listen())
    await say(session, QUESTION)
    while not [event for event in seen if isinstance(event, NotesRecalled)]:
        await asyncio.sleep(0.01)
    listening.cancel()
    [event] = [event for event in seen if isinstance(event, NotesRecalled)]
    assert (event.way, event.items[0].scope) == ("other project", "from project billing")
    await close(session)
