"""A line of memory leads to its turn, even if the agent itself made the commit or ouro was killed."""

import pytest
from fakes.knowledge import Conversation, plain_git

from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.long_term.sync import synchronise
from ouro.memory.long_term.true_forget import OuroHome, TrueForget


@pytest.fixture
def home(home):
    return home / ".ouro"


async def learn_preference(home, said="Answer in German.", session="s-1"):
    conversation = Conversation(home, session=session).connect()
    await conversation.begin("hello")
    await conversation.begin(said)
    await conversation.write("preferences.md", f"- {said}\n")
    return conversation


def turns(conversation):
    """The origin, session and turn of each line of the preferences."""
    blamed = conversation.manager.timeline().blame("preferences").lines
    return [(each.commit.origin, *map(each.commit.trailers.get, ("Ouro-Session", "Ouro-Turn"))) for each in blamed]


async def test_a_commit_that_the_agent_made_in_the_shell_names_its_turn(home):
    conversation = await learn_preference(home)
    await conversation.commit()
    await conversation.end()

    assert turns(conversation) == [("agent", "s-1", "2")]
    assert plain_git(conversation.folder, "log", "--format=%B").strip() == "what changed; and why"
    assert turns(Conversation(home, session="s-2")) == [("agent", "s-1", "2")]


@pytest.mark.parametrize("is_committed", [True, False])
async def test_what_a_turn_wrote_in_which_ouro_was_killed_names_it(home, is_committed):
    conversation = await learn_preference(home)
    if is_committed:
        await conversation.commit()
    conversation.kill()

    assert turns(Conversation(home, session="s-2")) == [("agent", "s-1", "2")]


async def test_what_was_killed_later_is_not_put_down_to_that_turn(home):
    conversation = await learn_preference(home)
    await conversation.end()
    conversation.scopes["user"].store.save_and_commit({"facts.md": "- Tea.\n"}, "By hand")
    (conversation.folder / "facts.md").write_text("- Tea. And cake.\n")
    store = conversation.scopes["user"].store
    store.approve(store.find_unapproved())

    opened = Conversation(home, session="s-2")

    assert opened.manager.timeline().log(1)[0].commit.trailers == {"Ouro-Origin": "agent"}


async def test_a_user_who_commits_by_hand_is_not_taken_for_the_agent(home):
    conversation = await learn_preference(home)
    await conversation.end()
    (conversation.folder / "preferences.md").write_text("- Answer in French.\n")
    plain_git(conversation.folder, "commit", "-qam", "by hand")
    await conversation.begin("now?")
    await conversation.end()

    assert turns(conversation) == [("outside", None, None)]


async def test_a_line_that_an_undo_brought_back_leads_to_the_turn_that_taught_it(home):
    conversation = await learn_preference(home)
    await conversation.commit()
    await conversation.end()
    (conversation.folder / "preferences.md").write_text("- Answer in French.\n")
    await conversation.begin("Bonjour")
    await conversation.end()
    timeline = conversation.manager.timeline()
    await conversation.manager.undo(timeline.find("last").commit.id)

    [line] = timeline.blame("preferences").lines

    assert (line.text, line.commit.origin) == ("- Answer in German.", "undo")
    assert timeline.origin_of("preferences", line).trailers["Ouro-Turn"] == "2"


async def test_it_is_known_still_when_something_else_was_forgotten(home):
    conversation = await learn_preference(home, "Answer in German, says Zebedee.")
    await conversation.commit()
    await conversation.end()
    await conversation.close()

    place = OuroHome(home, home / "history.git", home / "sessions", home / "cache" / "index.db")
    assert TrueForget("says Zebedee", place).forget().left == []

    assert turns(Conversation(home, session="s-2")) == [("agent", "s-1", "2")]


async def test_what_a_sync_brings_while_a_turn_runs_is_of_no_turn_here(home, tmp_path):
    other = GitMemoryStore(tmp_path / "other", "user", tmp_path / "other.git")
    other.save_and_commit({"preferences.md": "- Tabs.\n"}, "Prefer tabs", {})
    plain_git(tmp_path, "init", "--bare", "-q", "remote.git")
    synchronise(other, str(tmp_path / "remote.git"))
    conversation = Conversation(home).connect()
    await conversation.begin("hello")
    synchronise(conversation.scopes["user"].store, str(tmp_path / "remote.git"))
    await conversation.write("facts.md", "- Tea.\n")
    await conversation.end()

    assert turns(conversation) == [("sync", None, None)]
