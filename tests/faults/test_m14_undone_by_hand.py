"""M14: reverts, deletions and edits that a user makes with git or an editor are kept."""

import pytest
from fakes.knowledge import Conversation, plain_git, seen_by_model


@pytest.fixture
def home(home):
    return home / ".ouro"


@pytest.fixture
async def facts_session(home):
    """A session that has learned two facts."""
    session = Conversation(home).connect()
    for said, text in (
        ("I use uv.", "- Uses uv.\n"),
        ("I use ruff.", "- Uses uv.\n- Uses ruff.\n"),
    ):
        await session.begin(said)
        await session.write("facts.md", text)
        await session.end()
    await session.begin("so?")
    await session.end()
    return session


async def test_m14_git_revert_in_a_session_reaches_the_model(facts_session):
    plain_git(facts_session.folder, "revert", "--no-edit", "HEAD")
    assert seen_by_model(await facts_session.begin("and now?")) == [
        "user/facts.md:",
        "-- Uses ruff.",
    ]
    await facts_session.end()
    assert await facts_session.begin("again") == ""


async def test_m14_git_revert_between_sessions_applies_once_accepted(home, facts_session):
    await facts_session.close()
    plain_git(facts_session.folder, "revert", "--no-edit", "HEAD")
    again = Conversation(home, session="s-2").connect()
    [waiting] = again.manager.proposals()
    assert (facts_session.folder / "facts.md").read_text() == "- Uses uv.\n"  # as the user left it
    await again.manager.accept(waiting.id)
    assert seen_by_model(Conversation(home, session="s-3").block) == ["- Uses uv."]
    assert (facts_session.folder / "facts.md").read_text() == "- Uses uv.\n"


async def test_m14_a_removed_file_is_gone(home, facts_session):
    (facts_session.folder / "facts.md").unlink()
    assert seen_by_model(await facts_session.begin("and now?")) == [
        "user/facts.md:",
        "-- Uses uv.",
        "-- Uses ruff.",
    ]
    await facts_session.end()
    assert seen_by_model(Conversation(home, session="s-2").block) == []


async def test_m14_git_reset_to_an_older_commit_is_respected(home, facts_session):
    plain_git(facts_session.folder, "reset", "-q", "--hard", "HEAD~1")
    assert seen_by_model(await facts_session.begin("and now?")) == [
        "user/facts.md:",
        "-- Uses ruff.",
    ]
    await facts_session.end()
    assert seen_by_model(Conversation(home, session="s-2").block) == ["- Uses uv."]


async def test_m14_git_blame_shows_the_session_of_a_line(facts_session):
    commit = plain_git(facts_session.folder, "blame", "-s", "-L", "2,2", "-l", "facts.md").split()[
        0
    ]
    said = plain_git(facts_session.folder, "show", "-s", "--format=%(trailers:unfold)", commit)
    assert said.split() == ["Ouro-Origin:", "agent", "Ouro-Session:", "s-1", "Ouro-Turn:", "2"]
