"""/memory on a real long-term memory."""

import pytest
from fakes.fake_front_end import FakeFrontEnd, memory
from fakes.knowledge import Conversation, write_as_user

from ouro.errors import UsageError
from ouro.memory.long_term.notes.note import Note, note_text


@pytest.fixture
def home(home):
    return home / ".ouro"


async def front_end_of(home, project=None, picks=(), **options):
    conversation = Conversation(home, project, **options).connect()
    front_end = FakeFrontEnd(picks=picks)
    front_end.session.remember(conversation.manager)
    return front_end, conversation


async def with_a_proposal(home):
    front_end, conversation = await front_end_of(home)
    await conversation.begin("Look at the README.")
    await conversation.read("README.md", "tests run with tox")
    await conversation.write("facts.md", "- Tests run with tox.\n")
    await conversation.end()
    return front_end, conversation


async def test_memory_off_error_gives_the_reason():
    with pytest.raises(UsageError, match="Memory is off here"):
        await memory(FakeFrontEnd(), "")


async def test_list_shows_files_and_pending_changes(home):
    front_end, conversation = await with_a_proposal(home)
    await write_as_user(conversation.manager, "user", {"preferences.md": "- One.\n- Two.\n"}, "x")
    await memory(front_end, "")
    [waiting] = conversation.manager.proposals()
    assert front_end.shown[0].splitlines() == [
        "**~/.ouro/memory**",
        "",
        "- `preferences.md` · 2 lines",
        "",
        "**Waiting for approval**",
        "",
        (
            f"- `{waiting.id}` · user/facts.md · \\`- Tests run with tox.\\` is not in the user's"
            " own words; read before: read README.md"
        ),
        "",
        "Approve or drop one: `/memory accept ID` or `/memory reject ID`",
    ]


async def test_accept_without_id_accepts_the_only_pending_change(home):
    front_end, conversation = await with_a_proposal(home)
    await memory(front_end, "accept")
    assert (conversation.folder / "facts.md").read_text() == "- Tests run with tox.\n"
    with pytest.raises(UsageError, match="no pending changes"):
        await memory(front_end, "accept")


async def test_reject_drops_the_pending_change(home):
    front_end, conversation = await with_a_proposal(home)
    await memory(front_end, f"reject {conversation.manager.proposals()[0].id}")
    assert conversation.manager.proposals() == ()
    assert not (conversation.folder / "facts.md").exists()


async def test_edit_saves_the_editor_text_and_undo_reverts_it(home):
    front_end, conversation = await front_end_of(home, picks=["- Answer in German."])
    await memory(front_end, "edit preferences")
    assert (conversation.folder / "preferences.md").read_text() == "- Answer in German.\n"
    [event] = conversation.changed
    assert (event.origin, event.summary) == ("person", "preferences.md: + Answer in German.")
    await memory(front_end, f"undo {event.undo[:7]} yes")
    assert not (conversation.folder / "preferences.md").exists()


async def test_show_prints_an_entry_and_receipt_lists_loaded_notes(home):
    front_end, conversation = await front_end_of(home)
    await write_as_user(
        conversation.manager, "user", {"preferences.md": "- Answer in *German*.\n"}, "x"
    )
    await memory(front_end, "show pref")
    assert "- Answer in *German*." in front_end.shown[0]
    front_end, _ = await front_end_of(home, session="s-2")
    await memory(front_end, "receipt")
    assert "- loaded · 6 tokens · Answer in \\*German\\*." in front_end.shown[0]


async def test_show_lists_the_search_words_of_a_note(home):
    front_end, conversation = await front_end_of(home)
    note = Note(
        id="mem_00000001", scope="user", text="Tabs.", search_words=("indentation", "style")
    )
    await write_as_user(conversation.manager, "user", {note.file_name: note_text(note)}, "x")
    await memory(front_end, "show mem_00000001")
    assert "indentation, style" in front_end.shown[0]


async def test_memory_off_applies_to_the_repository_until_on(home, repository):
    front_end, _ = await front_end_of(home, repository)
    await memory(front_end, "off")
    front_end, conversation = await front_end_of(home, repository, session="s-2")
    assert conversation.manager.scopes == ("user",)
    await memory(front_end, "on")
    _, conversation = await front_end_of(home, repository, session="s-3")
    assert conversation.manager.scopes == ("user", "repo")


async def test_unknown_action_error_lists_the_actions(home):
    front_end, _ = await front_end_of(home)
    with pytest.raises(UsageError, match="There are: accept, archive, as-of"):
        await memory(front_end, "frobnicate")
    with pytest.raises(UsageError, match="There is no entry facts"):
        await memory(front_end, "edit team/facts")
