"""/memory log, diff, blame, why, evidence, undo, as-of on a real memory."""

import re

import pytest
from fakes.fake_front_end import FakeFrontEnd, memory
from fakes.knowledge import Conversation, write_as_user
from fakes.waiting import wait

from ouro.errors import UsageError
from ouro.memory.backend import MessageRecord, RecalledItem, RecalledRecord, SessionHeader
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import assistant, user
from ouro.session import OpenRequest

NOTE = "mem_0123456789abcdef0123456789abcdef"
TEXT = (
    f"---\nid: {NOTE}\ncategory: patterns\nsession_id: s-old\nturn: 1\n---\nTests run with tox.\n"
)


@pytest.fixture
def home(home):
    return home / ".ouro"


@pytest.fixture
def stored_sessions(home):
    """Two stored sessions: s-old, and s-1, which is open."""
    store = YamlFileMemoryStore(home / "sessions", str)
    for session_id, texts in {"s-old": ["Use tox.", "Thanks."], "s-1": ["Run the tests."]}.items():
        wait(
            store.create_session(
                SessionHeader(session_id, "/project", "m", "2026-11-20T10:00:00.000Z")
            )
        )
        number = 1
        for text in texts:
            for message in (user(text), assistant(f"To “{text}”: done.")):
                wait(
                    store.save_memory(
                        session_id, MessageRecord(number, "2026-11-20T10:00:00.000Z", message)
                    )
                )
                number += 1
    return store


async def front_end_of(home, stored_sessions, picks=()):
    conversation = Conversation(home).connect()
    front_end = FakeFrontEnd(picks=picks)
    front_end.session.remember(conversation.manager)
    front_end.session.session_catalog = SessionCatalog(stored_sessions, "/project")
    return front_end, conversation


def commits_of(text):
    return re.findall(r"^- `([0-9a-f]{7})`", text, re.MULTILINE)


async def test_log_lists_commits_newest_first_with_origin(home, stored_sessions):
    front_end, conversation = await front_end_of(home, stored_sessions)
    await conversation.begin("Remember that tests run with tox.")
    await conversation.write("facts.md", "- Tests run with tox.\n")
    await conversation.end()
    await write_as_user(
        conversation.manager, "user", {"preferences.md": "- One.\n"}, "Edit preferences.md"
    )
    await memory(front_end, "log")
    lines = front_end.shown[0].splitlines()
    assert re.search(r"user · .* you · s-1:1 · Edit preferences.md", lines[0])
    assert re.search(r"the agent · s-1:1 · facts.md: \+ Tests run with tox", lines[1])
    await memory(front_end, "log facts")
    assert len(commits_of(front_end.shown[1])) == 1
    await memory(front_end, "log nothing")
    assert front_end.lines[-1] == ("error", "There are no commits of nothing yet.")


async def test_diff_shows_a_commit_two_commits_a_date_and_the_session(home, stored_sessions):
    front_end, conversation = await front_end_of(home, stored_sessions)
    for text in ("- One.\n", "- One.\n- Two.\n", "- 1.\n- Two.\n"):
        await write_as_user(conversation.manager, "user", {"facts.md": text}, "Edit facts.md")
    await memory(front_end, "log")
    third, second, first = commits_of(front_end.shown[0])
    await memory(front_end, f"diff {third}")
    assert front_end.shown[1].splitlines()[2:] == [
        "```diff",
        "@@ 1 · facts.md · line 1 @@",
        "-- One.",
        "+- 1.",
        "```",
    ]
    await memory(front_end, f"diff {first} {second}")
    assert "+- Two." in front_end.shown[2]
    assert "1." not in front_end.shown[2]
    await memory(front_end, "diff since 2020-01-01")
    assert "+- 1." in front_end.shown[3]
    assert "-- " not in front_end.shown[3]
    with pytest.raises(UsageError, match="is not a date"):
        await memory(front_end, "diff since x--output=x")
    with pytest.raises(UsageError, match="unrecognized arguments: --all"):
        await memory(front_end, "diff --all")


async def test_blame_opens_the_message_a_line_came_from(home, stored_sessions):
    front_end, conversation = await front_end_of(home, stored_sessions, picks=["open"])
    store = conversation.scopes["user"].store
    marks = {"Ouro-Origin": "agent", "Ouro-Session": "s-old", "Ouro-Turn": "1"}
    store.save_and_commit({"facts.md": "- Tests run with tox.\n"}, "Learn", marks)
    await write_as_user(
        conversation.manager,
        "user",
        {"facts.md": "- Tests run with tox.\n- Two.\n"},
        "Edit facts.md",
    )
    await memory(front_end, "blame facts")
    first, second = front_end.shown[0].splitlines()[3:5]
    assert re.search(r"1  .*the agent +s-old:1 +- Tests run with tox.", first)
    assert re.search(r"2  .*you +s-1 +- Two.", second)
    await memory(front_end, "blame facts 1")
    assert "You: Use tox." in front_end.shown[1]
    assert "ouro: To “Use tox.”: done." in front_end.shown[1]
    assert "Thanks" not in front_end.shown[1]
    assert front_end.opened == [OpenRequest("s-old", read_only=True, message=1)]
    with pytest.raises(UsageError, match="There is no line 7"):
        await memory(front_end, "blame facts 7")


async def test_evidence_opens_the_turn_a_note_came_from(home, stored_sessions):
    front_end, conversation = await front_end_of(home, stored_sessions)
    marks = {"Ouro-Origin": "capture", "Ouro-Session": "s-old", "Ouro-Turn": "2"}
    conversation.scopes["user"].store.save_and_commit({f"{NOTE}.md": TEXT}, "Add: tox", marks)
    await memory(front_end, f"evidence {NOTE}")
    assert "You: Thanks." in front_end.shown[0]
    assert front_end.opened == []
    with pytest.raises(UsageError, match="No commit of memory is called mem_x"):
        await memory(front_end, "evidence mem_x")


async def test_why_lists_the_core_changes_and_recalled_notes(home, stored_sessions):
    front_end, conversation = await front_end_of(home, stored_sessions)
    conversation.scopes["user"].store.save_and_commit({f"{NOTE}.md": TEXT}, "Add: tox")
    items = (
        RecalledItem(NOTE, "loaded", "words: tests", 1.0, 9),
        RecalledItem("mem_gone0000", "skipped", "faded"),
    )
    await stored_sessions.save_memory(
        "s-1", RecalledRecord(1, "2026-11-20T10:00:00.000Z", items, "local")
    )
    await memory(front_end, "why")
    assert front_end.shown[0].splitlines()[0] == "**Turn 1: Run the tests.**"
    assert "(local): 1 note, 9 tokens" in front_end.shown[0]
    assert (
        "loaded · 9 tokens · Tests run with tox. · mem\\_01234567: words: tests"
        in front_end.shown[0]
    )
    assert "skipped · 0 tokens" in front_end.shown[0]
    with pytest.raises(UsageError, match="has no turn 5"):
        await memory(front_end, "why 5")


async def test_undo_of_one_hunk_shows_a_preview_and_asks(home, stored_sessions):
    front_end, conversation = await front_end_of(home, stored_sessions, picks=["no", "yes"])
    await write_as_user(
        conversation.manager, "user", {"facts.md": "- a\n- b\n- c\n- d\n- e\n"}, "Edit"
    )
    await write_as_user(
        conversation.manager, "user", {"facts.md": "- A\n- b\n- c\n- d\n- E\n"}, "Edit"
    )
    await memory(front_end, "undo last hunk 2")
    assert front_end.shown[0].splitlines()[2:] == ["```diff", "facts.md:", "-- E", "+- e", "```"]
    assert (conversation.folder / "facts.md").read_text() == "- A\n- b\n- c\n- d\n- E\n"
    await memory(front_end, "undo last hunk 2")
    assert (conversation.folder / "facts.md").read_text() == "- A\n- b\n- c\n- d\n- e\n"
    undone = front_end.lines[-1][1]
    assert re.fullmatch("Undone: hunk 2 of Edit · /memory undo [0-9a-f]{7}", undone)
    assert conversation.changed[-1].origin != "undo"  # one notice, not two
    with pytest.raises(UsageError, match="There is no hunk 9"):
        await memory(front_end, "undo last hunk 9")


async def test_undo_reports_hunks_it_could_not_undo(home, stored_sessions):
    front_end, conversation = await front_end_of(home, stored_sessions)
    await write_as_user(conversation.manager, "user", {"facts.md": "- a\n- b\n- c\n"}, "Edit")
    await write_as_user(conversation.manager, "user", {"facts.md": "- A\n- b\n- C\n"}, "Edit")
    await memory(front_end, "log")
    second = commits_of(front_end.shown[0])[0]
    await write_as_user(
        conversation.manager, "user", {"facts.md": "- A\n- b\n- rewritten\n"}, "Edit"
    )
    await memory(front_end, f"undo {second} yes")
    assert (conversation.folder / "facts.md").read_text() == "- a\n- b\n- rewritten\n"
    redo = conversation.manager.timeline().log()[0].commit.id[:7]
    assert front_end.lines == [
        ("info", f"Undone: Edit · /memory undo {redo}"),
        ("warning", "Not undone, because its lines changed since: hunk 2 (facts.md)."),
    ]
    with pytest.raises(UsageError, match="is left to undo"):
        await memory(front_end, f"undo {second} hunk 2 yes")


async def test_undo_of_a_commit_removes_the_note_it_added(home, stored_sessions):
    front_end, conversation = await front_end_of(home, stored_sessions)
    made = conversation.scopes["user"].store.save_and_commit({f"{NOTE}.md": TEXT}, "Add: tox")
    await memory(front_end, f"undo {made[:7]} yes")
    assert not (conversation.folder / f"{NOTE}.md").exists()


async def test_as_of_shows_memory_at_a_date(home, stored_sessions):
    front_end, conversation = await front_end_of(home, stored_sessions)
    store = conversation.scopes["user"].store
    store.ensure_repo()
    store.repository.commit(
        {"facts.md": b"- old\n", f"{NOTE}.md": b"x"}, "A", commit_time=1_700_000_000
    )
    store.repository.commit({"facts.md": b"- new\n"}, "B", commit_time=1_700_200_000)
    await memory(front_end, "as-of 2023-11-15 facts")
    assert "- old" in front_end.shown[0]
    assert "- new" not in front_end.shown[0]
    await memory(front_end, "as-of 2 weeks ago")
    assert "- new" in front_end.shown[1]
    assert NOTE in front_end.shown[1]
    await memory(front_end, "at 2023-11-15 search OLD")
    assert front_end.shown[2] == "- `user/facts.md` · - old"
    await memory(front_end, f"at 2 weeks ago show {NOTE}")
    assert "x" in front_end.shown[3]
    await memory(front_end, "as-of 2020-01-01")
    assert front_end.lines[-1] == ("error", "Memory did not exist yet: 2020-01-01.")


async def learned_in_two_commits(conversation):
    """A turn in which the agent makes one of two commits itself, and the user writes too; returns
    its event.
    """
    await conversation.begin("Answer in German. I use uv.")
    await conversation.write("preferences.md", "- Answer in German.\n")
    await conversation.commit()
    await write_as_user(
        conversation.manager, "user", {"decisions.md": "- Ship on Fridays.\n"}, "Decide"
    )
    await conversation.write("facts.md", "- Uses uv.\n")
    await conversation.end()
    return next(each for each in reversed(conversation.changed) if each.origin == "agent")


async def test_undo_reverts_all_commits_of_a_turn_without_asking(home, stored_sessions):
    front_end, conversation = await front_end_of(home, stored_sessions)
    event = await learned_in_two_commits(conversation)
    before = len(conversation.manager.timeline().log())
    await memory(front_end, f"undo {event.undo[:7]}")
    assert sorted(each.name for each in conversation.folder.glob("*.md")) == ["decisions.md"]
    latest = conversation.manager.timeline().log()
    assert (len(latest) - before, latest[0].commit.origin) == (1, "undo")
    assert "-- Uses uv." in front_end.shown[-1]
    subjects = "what changed; and why; facts.md: + Uses uv."
    redo = latest[0].commit.id[:7]
    assert front_end.lines == [
        ("info", f"Undone: all 2 commits of turn 1: {subjects} · /memory undo {redo}")
    ]
    with pytest.raises(UsageError, match="is left to undo"):
        await memory(front_end, f"undo {event.undo[:7]}")


async def test_undo_without_a_commit_shows_all_changes_and_asks(home, stored_sessions):
    front_end, conversation = await front_end_of(home, stored_sessions, picks=["yes"])
    await learned_in_two_commits(conversation)
    await memory(front_end, "undo")
    assert "all 2 commits of turn 1" in front_end.shown[0]
    assert "-- Answer in German." in front_end.shown[0]
    assert sorted(each.name for each in conversation.folder.glob("*.md")) == ["decisions.md"]


async def test_undo_of_a_hunk_reverts_only_that_hunk_of_the_turn(home, stored_sessions):
    front_end, conversation = await front_end_of(home, stored_sessions)
    event = await learned_in_two_commits(conversation)
    await memory(front_end, f"undo {event.undo[:7]} hunk 1")
    assert sorted(each.name for each in conversation.folder.glob("*.md")) == [
        "decisions.md",
        "preferences.md",
    ]


async def test_evidence_in_the_current_session_jumps_to_the_message(home, stored_sessions):
    front_end, conversation = await front_end_of(home, stored_sessions, picks=["open"])
    marks = {"Ouro-Origin": "agent", "Ouro-Session": "s-1", "Ouro-Turn": "1", "Ouro-Message": "1"}
    conversation.scopes["user"].store.save_and_commit(
        {"facts.md": "- Run the tests.\n"}, "Learn", marks
    )
    await memory(front_end, "blame facts 1")
    assert front_end.opened == [1]
