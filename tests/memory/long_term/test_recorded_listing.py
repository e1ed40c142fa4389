"""A start that uses the recorded listing of many notes: what it looks at, and what it must not
trust (M3, M13).
"""

import os
import subprocess
import sys
from functools import partial

import pytest
from fakes.knowledge import Conversation, write_as_user
from fakes.waiting import until

from ouro.events import CoreChanged
from ouro.memory.long_term import (
    GitMemoryStore,
    ScopeMemory,
    listing_process,
    listing_schedule,
    open_scopes,
)
from ouro.memory.long_term.git import files
from ouro.memory.long_term.scope import TurnRef
from ouro.memory.long_term.trust import scope_state
from ouro.memory.long_term.trust.provenance import Provenance
from ouro.messages import user

NOTES = 40
AT = TurnRef("s" * 8, 1)
CHANGED = "mem_00000007.md"


@pytest.fixture(autouse=True)
def quick_record(monkeypatch):
    """A listing is recorded for few notes, and right after a change."""
    monkeypatch.setattr(scope_state, "MIN_NOTES_TO_RECORD", 10)
    monkeypatch.setattr("ouro.memory.long_term.store.TIME_STEP_NS", -(10**18))


@pytest.fixture
def folder(tmp_path):
    """A memory of accepted notes, whose listing is recorded."""
    folder = tmp_path / "memory"
    folder.mkdir()
    for number in range(NOTES):
        (folder / f"mem_{number:08x}.md").write_text(f"note {number}\n")
    scope = start(folder, defers_listing=False)
    (waiting,) = scope.proposals()
    scope.accept(waiting, AT)
    scope.record_listing()
    return folder


def start(folder, *, defers_listing=True):
    scope = ScopeMemory(GitMemoryStore(folder, "user", folder.parent / "history" / "user.git"))
    scope.open(defers_listing=defers_listing)
    return scope


@pytest.fixture
def listed(monkeypatch):
    """The folders that were listed."""
    calls = []
    list_folder = files._list_folder

    def count(*arguments):
        calls.append(arguments)
        return list_folder(*arguments)

    monkeypatch.setattr(files, "_list_folder", count)
    return calls


def replace_with(path, text):
    other = path.with_name("other")
    other.write_text(text)
    other.replace(path)


def turn(folder, *texts):
    return Provenance([user(text) for text in texts], (folder,), is_whole=True)


def test_a_start_looks_at_no_note(folder, listed, monkeypatch):
    looked_at = []
    stat = os.stat
    monkeypatch.setattr(
        os, "stat", lambda *args, **kwargs: looked_at.append(args) or stat(*args, **kwargs)
    )
    scope = start(folder)
    assert (listed, scope.loaded.is_listed) == ([], False)
    assert len(looked_at) < NOTES
    assert len(scope.loaded.notes) == NOTES
    assert scope.complete_listing() == []
    assert scope.loaded.is_listed
    assert scope.loaded.fingerprint == start(folder).loaded.fingerprint


def test_the_first_message_lists_nothing_and_the_second_does(folder, listed):
    scope = start(folder)
    assert scope.refresh(agent_was_idle=True, max_age=2.0, defers_listing=True) == []
    assert listed == []
    assert scope.refresh(agent_was_idle=True) == []
    assert listed


def test_a_first_message_uses_the_listing_of_the_start_however_old(folder, listed):
    scope = start(folder, defers_listing=False)
    listed.clear()
    scope.refresh(agent_was_idle=True, defers_listing=True)
    assert listed == []
    scope.refresh(agent_was_idle=True)
    assert listed


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.unlink(),
        lambda path: path.with_name("mem_0000ffff.md").write_text("planted\n"),
        lambda path: replace_with(path, "planted\n"),
        lambda path: path.with_name("facts.md").write_text("- Planted.\n"),
    ],
)  # fmt: skip
def test_a_file_that_was_added_removed_or_replaced_is_seen_at_the_start(folder, listed, change):
    change(folder / CHANGED)
    scope = start(folder)
    assert listed
    assert scope.loaded.is_listed
    assert scope.untrusted


def test_m3_a_note_changed_in_place_while_closed_is_not_sent(folder):
    (folder / CHANGED).write_text("evil\n")
    scope = start(folder)
    assert not scope.store.is_as_loaded(CHANGED, scope.loaded)
    assert scope.store.is_as_loaded("mem_00000008.md", scope.loaded)


@pytest.mark.parametrize("way", ["refresh", "turn", "turn without tools", "tool", "listing"])
def test_m3_a_note_changed_in_place_while_closed_is_never_trusted_without_a_question(folder, way):
    """Neither as a change of the user between two turns, nor as one of the turn."""
    (folder / CHANGED).write_text("evil\n")
    scope = start(folder)
    assert not scope.is_clean
    match way:
        case "refresh":
            events = scope.refresh(agent_was_idle=True)
        case "turn" | "turn without tools":
            if way != "turn":
                (folder / "mem_0000ffff.md").write_text("added\n")
            events = scope.turn_ended(
                turn(folder, "evil added"), AT, asks=False, is_rest_of_user=True, used_tools=way == "turn"
            )  # fmt: skip
        case "tool":
            (folder / "mem_0000ffff.md").write_text("added\n")
            scope.tool_ended(lambda: turn(folder, "evil added"), AT, asks=False)
            events = scope.foreign_events()
        case _:
            events = scope.complete_listing()
    assert CHANGED in scope.untrusted
    assert [event.origin for event in events] == ["outside"]
    assert CHANGED in scope.store.find_unapproved()


def test_m3_the_start_after_a_change_in_place_was_found_lists_the_folder(folder, listed):
    (folder / CHANGED).write_text("evil\n")
    start(folder).complete_listing()
    listed.clear()
    scope = start(folder)
    assert (bool(listed), scope.untrusted) == (True, (CHANGED,))


def test_m13_after_a_killed_turn_the_start_lists_the_folder(folder):
    """The turn may have written into notes."""
    turns = folder.parent / "history" / "turns"
    turns.mkdir()
    (turns / "killed").write_text("999999")
    (folder / CHANGED).write_text("evil\n")
    assert start(folder).untrusted == (CHANGED,)


@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"fingerprint":"x","places":{}}'])
def test_a_damaged_record_is_not_used(folder, damage):
    record = folder.parent / "history" / "user.git" / "ouro" / "listing"
    assert record.exists()
    record.write_text(damage)
    assert start(folder).loaded.is_listed


def test_a_listing_that_is_not_the_accepted_one_is_not_used(folder):
    """The record of what was accepted decides."""
    core = folder.parent / "history" / "user.git" / "ouro" / "core"
    core.write_text("other\n")
    assert start(folder).loaded.is_listed


def test_a_listing_with_foreign_notes_is_not_recorded(folder):
    record = folder.parent / "history" / "user.git" / "ouro" / "listing"
    record.unlink()
    (folder / CHANGED).write_text("evil\n")
    start(folder).record_listing()
    assert not record.exists()


def test_a_folder_that_has_just_changed_is_not_recorded(folder, monkeypatch):
    """Another change may have the same time."""
    monkeypatch.setattr("ouro.memory.long_term.store.TIME_STEP_NS", 10**12)
    record = folder.parent / "history" / "user.git" / "ouro" / "listing"
    record.unlink()
    start(folder).record_listing()
    assert not record.exists()


def test_m3_a_listing_is_not_recorded_right_after_a_change_in_place(folder, monkeypatch):
    """Another change may have the same time and size: the next start would trust it."""
    note, places = folder / CHANGED, [folder, *folder.parent.glob("history")]
    newest_folder = max(place.stat().st_ctime_ns for place in places)
    while note.stat().st_ctime_ns <= newest_folder:
        note.write_text(note.read_text())
    monkeypatch.setattr("ouro.memory.long_term.store.TIME_STEP_NS", 0)
    scope = start(folder, defers_listing=False)
    assert scope.is_clean
    changed_at = note.stat().st_ctime_ns
    monkeypatch.setattr("ouro.memory.long_term.store.time.time_ns", lambda: changed_at - 1)
    assert not scope.store.record_listing(scope.loaded)
    monkeypatch.setattr("ouro.memory.long_term.store.time.time_ns", lambda: changed_at)
    assert scope.store.record_listing(scope.loaded)


def test_few_notes_are_not_recorded(folder, monkeypatch):
    monkeypatch.setattr(scope_state, "MIN_NOTES_TO_RECORD", NOTES + 1)
    record = folder.parent / "history" / "user.git" / "ouro" / "listing"
    record.unlink()
    start(folder).record_listing()
    assert not record.exists()


@pytest.fixture
def open_session(home, monkeypatch):
    """Opens a session that uses the recorded listing, if there is one."""
    monkeypatch.setattr("fakes.knowledge.open_scopes", partial(open_scopes, defers_listing=True))
    return lambda name: Conversation(home / ".ouro", session=name).connect()


async def test_a_session_records_its_listing_for_the_next(open_session, listed):
    first = open_session("s-1")
    notes = {f"mem_{number:08x}.md": f"note {number}\n" for number in range(NOTES)}
    await write_as_user(first.manager, "user", notes, "notes")
    await first.begin("What is the port?")
    first.manager.listings.list_after(600.0)
    await first.end()
    await first.manager.close()  # does not wait for the 600 seconds

    second = open_session("s-2")
    listed.clear()
    await second.begin("What is the port?")
    assert listed == []
    second.manager.listings.list_after(0.0)
    await until(lambda: second.scopes["user"].loaded.is_listed)
    await second.manager.close()


async def test_m3_a_session_shows_what_was_changed_in_place_while_closed(open_session):
    first = open_session("s-1")
    notes = {f"mem_{number:08x}.md": f"note {number}\n" for number in range(NOTES)}
    await write_as_user(first.manager, "user", notes, "notes")
    first.manager.listings.list_after(0.0)
    await first.manager.close()
    (first.folder / CHANGED).write_text("evil\n")

    second = open_session("s-2")
    assert not second.scopes["user"].loaded.is_listed
    await second.begin("What is the port?")
    second.manager.listings.list_after(0.0)
    await until(lambda: second.scopes["user"].untrusted == (CHANGED,))
    await second.end()
    await second.begin("And the host?")
    assert second.scopes["user"].untrusted == (CHANGED,)
    (shown,) = [event for event in second.told if isinstance(event, CoreChanged)]
    assert (shown.origin, bool(shown.proposal)) == ("outside", True)
    await second.manager.close()


async def accepted_session(open_session):
    """A session with accepted notes, in which one turn has ended, without tools."""
    session = open_session("s-1")
    notes = {f"mem_{number:08x}.md": f"note {number}\n" for number in range(NOTES)}
    await write_as_user(session.manager, "user", notes, "notes")
    await session.begin("What is the port?")
    await session.end()
    return session


async def test_a_message_lists_nothing_if_the_folder_was_listed_while_it_was_written(
    open_session, listed
):
    session = await accepted_session(open_session)
    listed.clear()
    session.manager.listings.prepare()
    await until(lambda: listed)
    await session.manager.run_under_lock(lambda: None)  # it has ended
    listed.clear()
    session.manager.listings.prepare()  # the next key
    await session.begin("And the host?")
    assert listed == []
    await session.end()

    await session.begin("Nobody has written this one: it was queued.")
    assert listed


async def test_a_message_that_is_sent_before_the_listing_begins_lists_the_folder(
    open_session, listed
):
    session = await accepted_session(open_session)
    listed.clear()
    session.manager.listings.prepare()  # its task has not begun
    await session.begin("A pasted message.")
    assert len(listed) == 1
    await session.manager.run_under_lock(lambda: None)
    assert len(listed) == 1  # the task does nothing in the turn


@pytest.mark.parametrize("moment", ["before the first key", "after the first key"])
async def test_a_note_that_the_user_changed_in_place_counts_one_message_later_at_most(
    open_session, listed, moment
):
    session = await accepted_session(open_session)
    scope = session.scopes["user"]
    for number in range(2):
        if moment == "before the first key" and not number:
            (session.folder / CHANGED).write_text("The port is 4711.\n")
        listed.clear()
        session.manager.listings.prepare()
        await until(lambda: listed)
        await session.manager.run_under_lock(lambda: None)
        if moment == "after the first key" and not number:
            (session.folder / CHANGED).write_text("The port is 4711.\n")
            # Its old text is not sent.
            assert scope.loaded.files[CHANGED] != files.fingerprint(
                (session.folder / CHANGED).lstat()
            )
        await session.begin("What is the port?")
        is_known = scope.loaded.files[CHANGED] == files.fingerprint(
            (session.folder / CHANGED).lstat()
        )
        assert is_known == (number == 1 or moment == "before the first key")
        await session.end()
    assert scope.untrusted == ()  # the user has changed it, while no agent ran


async def test_m3_what_changes_in_a_turn_is_not_listed_as_a_change_of_the_user(
    open_session, listed
):
    session = await accepted_session(open_session)
    await session.begin("And the host?")
    (session.folder / CHANGED).write_text("evil\n")
    listed.clear()
    session.manager.listings.prepare()  # the user writes the next message meanwhile
    await session.manager.run_under_lock(lambda: None)
    assert listed == []


async def test_few_notes_are_listed_at_each_message(open_session, listed, monkeypatch):
    monkeypatch.setattr(scope_state, "MIN_NOTES_TO_RECORD", NOTES + 1)
    session = await accepted_session(open_session)
    listed.clear()
    session.manager.listings.prepare()
    await session.begin("And the host?")
    assert listed


# -- the process that compares a listing after a session


def test_a_listing_of_unchanged_files_stays(folder):
    listing_process.forget_changed_listing(start(folder).store)
    assert not start(folder).loaded.is_listed


@pytest.mark.parametrize("name", [CHANGED, "facts.md", "mem_0000ffff.md"])
def test_m3_the_process_forgets_the_listing_of_changed_files(folder, name):
    (folder / name).write_text("evil\n")
    store = start(folder).store
    text = listing_process.msgspec.json.encode(
        [listing_process.ListedFolder.of(store)], enc_hook=str
    ).decode()
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from ouro.memory.long_term.listing_process import main;"
         " main(sys.argv[1])", text], check=True, capture_output=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (b"", b"")
    scope = start(folder)
    assert scope.loaded.is_listed
    assert scope.untrusted == (name,)


async def test_an_instant_session_with_very_many_notes_does_not_wait_for_the_listing(
    open_session, listed, monkeypatch
):
    monkeypatch.setattr(listing_schedule, "_MIN_NOTES_FOR_PROCESS", NOTES)
    first = await accepted_session(open_session)
    first.manager.listings.list_after(0.0)
    await first.manager.close()
    (first.folder / CHANGED).write_text("evil\n")

    second = open_session("s-2")
    assert not second.scopes["user"].loaded.is_listed
    await second.begin("What is the port?")
    second.manager.listings.list_after(600.0)
    await second.end()
    listed.clear()
    await second.manager.close()
    assert listed == []
    await until(lambda: open_session("s-3").scopes["user"].untrusted == (CHANGED,))


async def test_without_a_process_the_session_lists_the_folder_at_its_end(
    open_session, listed, monkeypatch
):
    monkeypatch.setattr(listing_schedule, "_MIN_NOTES_FOR_PROCESS", NOTES)
    monkeypatch.setattr(listing_process, "start_detached", lambda *_: False)
    first = await accepted_session(open_session)
    first.manager.listings.list_after(0.0)
    await first.manager.close()
    second = open_session("s-2")
    await second.begin("What is the port?")
    second.manager.listings.list_after(600.0)
    await second.end()
    listed.clear()
    await second.manager.close()
    assert listed
