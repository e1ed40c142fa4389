"""A line of memory leads to its turn, even if the agent itself made the commit or ouro was killed."""

import pytest
from fakes.knowledge import Conversation, plain_git

from ouro.memory.long_term import GitMemoryStore, OuroHome, TrueForget, synchronize


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
    return [
        (each.commit.origin, *map(each.commit.trailers.get, ("Ouro-Session", "Ouro-Turn")))
        for each in blamed
    ]


async def test_agent_commit_in_the_shell_records_its_turn(home):
    conversation = await learn_preference(home)
    await conversation.commit()
    await conversation.end()

    assert turns(conversation) == [("agent", "s-1", "2")]
    assert plain_git(conversation.folder, "log", "--format=%B").strip() == "what changed; and why"
    assert turns(Conversation(home, session="s-2")) == [("agent", "s-1", "2")]


@pytest.mark.parametrize("is_committed", [True, False])
async def test_commit_interrupted_by_a_kill_records_its_turn(home, is_committed):
    conversation = await learn_preference(home)
    if is_committed:
        await conversation.commit()
    conversation.kill()

    assert turns(Conversation(home, session="s-2")) == [("agent", "s-1", "2")]


async def test_later_killed_commit_is_not_attributed_to_the_earlier_turn(home):
    conversation = await learn_preference(home)
    await conversation.end()
    conversation.scopes["user"].store.save_and_commit({"facts.md": "- Tea.\n"}, "By hand")
    (conversation.folder / "facts.md").write_text("- Tea. And cake.\n")
    store = conversation.scopes["user"].store
    store.approve(store.find_unapproved())

    opened = Conversation(home, session="s-2")

    assert opened.manager.timeline().log(1)[0].commit.trailers == {"Ouro-Origin": "agent"}


async def test_unchecked_lines_of_all_turns_wait_until_they_are_taken(home):
    conversation = await learn_preference(home)
    await conversation.end()
    await conversation.begin("more")
    text = (conversation.folder / "preferences.md").read_text()
    await conversation.write("preferences.md", f"{text}- Use tabs.\n")
    await conversation.end()
    await conversation.begin("go on")
    await conversation.end()

    taken = await conversation.manager.take_unchecked_lines()

    assert taken == (("user", "Answer in German."), ("user", "Use tabs."))
    assert await conversation.manager.take_unchecked_lines() == ()


async def test_manual_user_commit_is_not_attributed_to_the_agent(home):
    conversation = await learn_preference(home)
    await conversation.end()
    (conversation.folder / "preferences.md").write_text("- Answer in French.\n")
    plain_git(conversation.folder, "commit", "-qam", "by hand")
    await conversation.begin("now?")
    await conversation.end()

    assert turns(conversation) == [("outside", None, None)]


async def test_line_restored_by_undo_keeps_its_original_turn(home):
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


async def test_line_added_again_and_restored_by_undo_comes_from_the_later_turn(home):
    conversation = await learn_preference(home)
    await conversation.commit()
    await conversation.end()
    text = (conversation.folder / "preferences.md").read_text()
    for lines in ("- Answer in French.\n", text, "- Answer in French.\n"):
        (conversation.folder / "preferences.md").write_text(lines)
        await conversation.begin("go on")
        await conversation.end()
    timeline = conversation.manager.timeline()
    added_again = timeline.log(2)[1].commit
    await conversation.manager.undo(timeline.find("last").commit.id)

    [line] = timeline.blame("preferences").lines

    assert (line.text, line.commit.origin) == ("- Answer in German.", "undo")
    assert timeline.origin_of("preferences", line) == added_again


async def test_authorship_survives_forget_everywhere(home):
    conversation = await learn_preference(home, "Answer in German, says Zebedee.")
    await conversation.commit()
    await conversation.end()
    await conversation.close()

    place = OuroHome(home, home / "history.git", home / "sessions", home / "cache" / "index.db")
    assert TrueForget("says Zebedee", place).forget().left == []

    assert turns(Conversation(home, session="s-2")) == [("agent", "s-1", "2")]


async def test_commit_received_by_sync_during_a_turn_has_no_turn(home, tmp_path):
    other = GitMemoryStore(tmp_path / "other", "user", tmp_path / "other.git")
    other.save_and_commit({"preferences.md": "- Tabs.\n"}, "Prefer tabs", {})
    plain_git(tmp_path, "init", "--bare", "-q", "remote.git")
    synchronize(other, str(tmp_path / "remote.git"))
    conversation = Conversation(home).connect()
    await conversation.begin("hello")
    synchronize(conversation.scopes["user"].store, str(tmp_path / "remote.git"))
    await conversation.write("facts.md", "- Tea.\n")
    await conversation.end()

    assert turns(conversation) == [("sync", None, None)]
