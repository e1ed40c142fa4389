"""M14: what a user reverts, removes or edits with plain git or an editor is respected."""

import pytest
from fakes.knowledge import Conversation, plain_git, seen_by_model


@pytest.fixture
def home(home):
    return home / ".ouro"


@pytest.fixture
async def taught(home):
    """A session that has learned two things."""
    session = Conversation(home).connect()
    for said, text in (("I use uv.", "- Uses uv.\n"), ("I use ruff.", "- Uses uv.\n- Uses ruff.\n")):
        await session.begin(said)
        await session.write("facts.md", text)
        await session.end()
    await session.begin("so?")
    await session.end()
    return session


async def test_m14_git_revert_in_a_session_reaches_the_model(taught):
    plain_git(taught.folder, "revert", "--no-edit", "HEAD")
    assert seen_by_model(await taught.begin("and now?")) == ["user/facts.md:", "-- Uses ruff."]
    await taught.end()
    assert await taught.begin("again") == ""


async def test_m14_git_revert_between_sessions_is_kept_once_it_is_accepted(home, taught):
    await taught.close()
    plain_git(taught.folder, "revert", "--no-edit", "HEAD")
    again = Conversation(home, session="s-2").connect()
    [waiting] = again.manager.proposals()
    assert (taught.folder / "facts.md").read_text() == "- Uses uv.\n"  # as the user wants it
    await again.manager.accept(waiting.id)
    assert seen_by_model(Conversation(home, session="s-3").block) == ["- Uses uv."]
    assert (taught.folder / "facts.md").read_text() == "- Uses uv.\n"


async def test_m14_a_removed_file_is_gone(home, taught):
    (taught.folder / "facts.md").unlink()
    assert seen_by_model(await taught.begin("and now?")) == ["user/facts.md:", "-- Uses uv.", "-- Uses ruff."]
    await taught.end()
    assert seen_by_model(Conversation(home, session="s-2").block) == []


async def test_m14_git_reset_to_an_older_commit_is_respected(home, taught):
    plain_git(taught.folder, "reset", "-q", "--hard", "HEAD~1")
    assert seen_by_model(await taught.begin("and now?")) == ["user/facts.md:", "-- Uses ruff."]
    await taught.end()
    assert seen_by_model(Conversation(home, session="s-2").block) == ["- Uses uv."]


async def test_m14_a_line_is_blamed_on_the_session_that_taught_it(taught):
    commit = plain_git(taught.folder, "blame", "-s", "-L", "2,2", "-l", "facts.md").split()[0]
    said = plain_git(taught.folder, "show", "-s", "--format=%(trailers:unfold)", commit)
    assert said.split() == ["Ouro-Origin:", "agent", "Ouro-Session:", "s-1", "Ouro-Turn:", "2"]
