"""/memory sync and /forget --everywhere in a session."""

import subprocess
from types import SimpleNamespace

import pytest
from fakes.fake_front_end import FakeFrontEnd, memory, slash
from fakes.knowledge import Conversation, write_as_user

from ouro.events import QuestionAsked
from ouro.memory.long_term import GitMemoryStore, synchronize
from ouro.memory.long_term.contradictions import REPLACE


@pytest.fixture
def home(home):
    return home / ".ouro"


@pytest.fixture
def remote(tmp_path) -> str:
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "remote.git"], check=True)
    return str(tmp_path / "remote.git")


def sitting(home):
    conversation = Conversation(home, None).connect()
    front_end = FakeFrontEnd()
    front_end.session.remember(conversation.manager)
    return front_end, conversation


async def test_received_changes_are_reported_with_undo_and_reach_the_model(home, remote, tmp_path):
    other = GitMemoryStore(tmp_path / "two", "user", tmp_path / "two.git")
    other.save_and_commit({"facts.md": "- Oslo.\n"}, "Learn")
    synchronize(other, remote)
    front_end, conversation = sitting(home)
    await write_as_user(conversation.manager, "user", {"facts.md": "- Tea.\n"}, "x")

    await memory(front_end, f"sync user {remote}")

    event = conversation.changed[-1]
    assert (event.origin, event.summary) == ("sync", "facts.md: + Oslo.")
    assert (
        front_end.events[-1].text
        == "Memory is synchronized: 1 file changed here (facts.md), 2 commits sent."
    )
    assert "Oslo" in await conversation.context([])
    await conversation.manager.undo(event.undo)
    assert (conversation.folder / "facts.md").read_text() == "- Tea.\n"


async def test_offline_sync_is_a_one_line_notice_and_changes_nothing(home):
    front_end, conversation = sitting(home)
    await write_as_user(conversation.manager, "user", {"facts.md": "- Tea.\n"}, "x")

    await memory(front_end, "sync /no/such/place.git")

    assert "cannot be synchronized with" in front_end.events[-1].text
    assert (conversation.folder / "facts.md").read_text() == "- Tea.\n"


async def test_forget_everywhere_previews_asks_backs_up_and_reports(home):
    front_end, conversation = sitting(home)
    front_end.picks = ["backup"]
    await write_as_user(
        conversation.manager,
        "user",
        {"facts.md": "- Tea.\n- The word is Blackbird-77 here.\n"},
        "x",
    )

    await slash(front_end, "forget", "--everywhere blackbird-77")

    assert "your memory: core, notes, archive" in front_end.shown[0]
    assert front_end.shown[1].startswith("**Forgotten in ")
    assert (
        conversation.folder / "facts.md"
    ).read_text() == "- Tea.\n- The word is [forgotten] here.\n"
    assert (home.parent / "ouro-before-forgetting.tar").stat().st_mode & 0o777 == 0o600


async def test_forget_everywhere_without_confirmation_changes_nothing(home):
    front_end, conversation = sitting(home)
    await write_as_user(conversation.manager, "user", {"facts.md": "- Blackbird-77 is it.\n"}, "x")

    await slash(front_end, "forget", "--everywhere blackbird-77")

    assert (conversation.folder / "facts.md").read_text() == "- Blackbird-77 is it.\n"


async def test_one_sync_asks_about_what_both_machines_say_and_covers_both_scopes(
    home, repository, remote, tmp_path
):
    shared = str(tmp_path / "app.git")
    subprocess.run(["git", "init", "-q", "--bare", shared], check=True)
    for scope, address, text in (
        ("user", remote, "- La API escucha en el puerto 9090\n"),
        ("repo", shared, "- Run tox for the tests\n"),
    ):
        other = GitMemoryStore(tmp_path / scope, "user", tmp_path / f"{scope}.git")
        other.save_and_commit({"facts.md": text}, "Learn")
        synchronize(other, address)
    conversation = Conversation(home, repository, answer=REPLACE).connect()
    front_end = FakeFrontEnd()
    front_end.session.remember(conversation.manager)
    front_end.session.session_memory.maintenance = SimpleNamespace(channel=conversation)
    facts = {"facts.md": "- La API escucha en el puerto 8080\n"}
    await write_as_user(conversation.manager, "user", facts, "x")
    await memory(front_end, f"sync repo {shared}")
    other.save_and_commit({"facts.md": "- Never edit api.py\n"}, "Learn")
    synchronize(other, shared)

    await slash(front_end, "sync", remote)
    await conversation.settle()

    assert "repository memory 1 received" in front_end.events[-1].text
    assert "Never edit" in (repository / ".ouro" / "memory" / "facts.md").read_text()
    [asked] = [event.question for event in conversation.told if isinstance(event, QuestionAsked)]
    assert "received: La API escucha en el puerto 9090" in asked.details
    facts = (conversation.folder / "facts.md").read_text()
    assert facts.strip() == "- La API escucha en el puerto 9090"
