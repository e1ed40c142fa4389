"""The memory browser on a real memory, operated by keys only."""

import contextlib
import gc
import warnings

import pytest
from fakes.fake_session import FakeSession, opener
from fakes.knowledge import Conversation
from fakes.screens import opened, screen_of, screen_text, shown, until
from fakes.waiting import wait

from ouro.display import Diff, Display, FileChange
from ouro.events import CoreChanged, NotesRecalled, RecalledNote
from ouro.extensions import Check
from ouro.frontends.tui.screens.memory_browser import MemoryBrowser
from ouro.memory.backend import MessageRecord, SessionHeader
from ouro.memory.index import Lookup
from ouro.memory.long_term.notes.note import Edge, Note, note_text
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import assistant, user
from ouro.session import OpenRequest

AT = "2026-11-20T10:00:00Z"


def note(number, text, **other):
    values = {
        "id": f"mem_{number:08d}",
        "created_at": AT,
        "updated_at": AT,
        "confirmed_at": AT,
        "scope": "user",
    }
    return Note(**{**values, "text": text, **other})


NOTES = [
    note(1, "Run the tests with tox.", category="project-conventions"),
    note(
        2,
        "Run the tests with pytest -q.",
        supersedes="mem_00000001",
        version=2,
        session_id="s-old",
        turn=1,
        category="project-conventions",
    ),
    note(
        3,
        "Answer in German.",
        entities=("tool:ruff",),
        related=(Edge("mem_00000002", "relates-to"),),
    ),
    note(4, "The release is on Fridays.", branch="feature"),
    note(5, "Releases are on Mondays.", related=(Edge("mem_00000004", "contradicts"),)),
]


@pytest.fixture
def home(home):
    return home / ".ouro"


@pytest.fixture
async def memory(home):
    conversation = Conversation(home).connect()
    store = conversation.scopes["user"].store
    store.save_and_commit(
        {"facts.md": "- One.\n- Two.\n- Three.\n"}, "Edit facts.md", {"Ouro-Origin": "person"}
    )
    marks = {"Ouro-Origin": "capture", "Ouro-Session": "s-old", "Ouro-Turn": "1"}
    store.save_and_commit(
        {each.file_name: note_text(each) for each in NOTES}, "Add: five notes", marks
    )
    store.save_and_commit(
        {"facts.md": "- 1.\n- Two.\n- 3.\n"}, "Change two lines", {"Ouro-Origin": "agent"}
    )
    return conversation


@pytest.fixture
def app(home, memory):
    store = YamlFileMemoryStore(home / "sessions", str)
    wait(store.create_session(SessionHeader("s-old", "/project", "m", "2026-11-20T10:00:00.000Z")))
    for number, message in enumerate((user("From now on pytest."), assistant("I will.")), 1):
        wait(store.save_memory("s-old", MessageRecord(number, "2026-11-20T10:00:00.000Z", message)))
    session, later = FakeSession(), FakeSession(session_id="s-old")
    session.remember(
        memory.manager, Lookup(home / "cache" / "index.sqlite", lambda: None, lambda: None)
    )
    session.session_catalog = SessionCatalog(store, "/project")
    open_session = opener(session, later)
    app = screen_of(open_session=open_session)
    app.requests, app.session = open_session.requests, session
    return app


async def browsing(pilot, tab="notes", *, searches=True):
    await opened(pilot)
    await pilot.press("f4")
    await until(
        pilot, lambda: isinstance(pilot.app.screen, MemoryBrowser) and pilot.app.screen.is_loaded
    )
    pilot.app.screen._go_to(tab)
    if searches:
        await pilot.press("slash")
    return pilot.app.screen


def texts(browser):
    return [row.text for row in browser._list.rows]


async def shows(pilot, words):
    await until(pilot, lambda: words in screen_text(pilot.app))


async def test_browser_opens_in_the_list_and_slash_searches(app):
    async with app.run_test(size=(80, 24)) as pilot:
        browser = await browsing(pilot, searches=False)
        await pilot.press("down", "t")
        await shows(pilot, "all · patterns")
        await pilot.press("slash", *"german")
        await until(pilot, lambda: texts(browser) == ["Answer in German."])


async def test_tabs_that_do_not_fit_are_left_out_whole(app):
    async with app.run_test(size=(50, 24)) as pilot:
        await browsing(pilot, "core", searches=False)
        await until(pilot, lambda: "[core]" in screen_text(pilot.app))
        [heading] = [line for line in screen_text(pilot.app).splitlines() if "[core]" in line]
        names = heading.strip("│ ").split()
        assert names == ["[core]", "notes", "timeline", "archive", "receipt", "›"]


async def test_active_notes_are_listed_and_typing_filters_them(app):
    async with app.run_test(size=(80, 24)) as pilot:
        browser = await browsing(pilot)
        assert sorted(texts(browser)) == sorted(each.text for each in NOTES[1:])
        await pilot.press(*"run pytest")
        assert texts(browser) == ["Run the tests with pytest -q."]
        assert "all · 1 of 4" in screen_text(pilot.app)
        await shows(pilot, "Changed 1 time, oldest first")


async def test_a_page_that_is_replaced_before_it_begins_leaves_nothing_behind(app):
    """Python warns of a coroutine that was never awaited, and a warning is an error here."""
    async with app.run_test(size=(80, 24)) as pilot:
        browser = await browsing(pilot)
        with warnings.catch_warnings(record=True) as warned:
            for _ in range(3):
                browser._show_page_later()
            await pilot.pause()
            gc.collect()
        assert [str(each.message) for each in warned] == []


async def test_code_of_a_note_has_no_backticks_in_the_list_and_on_its_page(app, memory):
    store = memory.scopes["user"].store
    written = note(6, "Check with `make lint`, not by hand.")
    store.save_and_commit({written.file_name: note_text(written)}, "Add: a note", {})
    async with app.run_test(size=(100, 30)) as pilot:
        browser = await browsing(pilot)
        await pilot.press(*"lint")
        await until(pilot, lambda: len(browser._list.rows) == 1)
        await until(pilot, lambda: screen_text(pilot.app).count("Check with make lint") == 2)
        styles = {
            segment.text: segment.style.bgcolor
            for strip in pilot.app.screen._compositor.render_strips()
            for segment in strip
            if segment.style is not None
        }
        assert styles["make lint"] != styles["Check with "]


async def test_note_shows_its_badges_and_links_to_others(app):
    async with app.run_test(size=(100, 30)) as pilot:
        browser = await browsing(pilot)
        await pilot.press(*"fridays")
        await shows(pilot, "[contradicted] [on feature]")
        await pilot.press("enter", "down", "enter")
        await shows(pilot, "edited by hand")
        browser._search.value = ""
        browser._search.focus()
        await pilot.press(*"german")
        await shows(pilot, "relates-to: Run the tests with pytest -q.")
        await pilot.press("enter", "enter")
        await shows(pilot, "session s-old, turn 1")
        await pilot.press("escape")
        await shows(pilot, "tool:ruff")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, MemoryBrowser))


async def test_evidence_shows_the_message_and_opens_its_session_read_only(app):
    async with app.run_test(size=(100, 30)) as pilot:
        await browsing(pilot)
        await pilot.press(*"pytest -q", "enter")
        await shows(pilot, "session s-old, turn 1")
        await pilot.press("enter")
        await shows(pilot, "From now on pytest.")
        await pilot.press("enter")
        await until(
            pilot, lambda: app.requests[1:] == [OpenRequest("s-old", read_only=True, message=1)]
        )


async def test_the_tab_with_the_newest_entry_is_open_first(app, memory):
    async with app.run_test(size=(100, 30)) as pilot:
        for name, tab in (("", "core"), ("mem_00000009.md", "notes")):
            if name:
                new = note(9, "The staging host is plover.", updated_at="2999-01-01T00:00:00Z")
                memory.scopes["user"].store.save_and_commit({name: note_text(new)}, "Add: one")
                memory.scopes["user"].refresh(agent_was_idle=True)
            await opened(pilot)
            await pilot.press("f4")
            await until(pilot, lambda: getattr(pilot.app.screen, "is_loaded", False))
            assert pilot.app.screen._tab == tab
            await pilot.press("f4")
            await until(pilot, lambda: not isinstance(pilot.app.screen, MemoryBrowser))


async def test_arrows_move_between_tabs_until_something_is_typed(app, memory):
    async with app.run_test(size=(100, 30)) as pilot:
        browser = await browsing(pilot)
        await pilot.press("left")
        assert browser._tab == "core"
        await pilot.press("right")
        assert browser._tab == "notes"
        await pilot.press("p", "left", "right")
        assert browser._tab == "notes"


async def test_the_timeline_undoes_one_change_of_a_commit(app, memory):
    async with app.run_test(size=(100, 30)) as pilot:
        browser = await browsing(pilot)
        await pilot.press("tab", "right")
        assert texts(browser) == ["Change two lines", "Add: five notes", "Edit facts.md"]
        await shows(pilot, "2 · facts.md · line 3")
        await pilot.press("enter", "down", "u")
        await shows(pilot, "Undone: hunk 2 of Change two lines")
        assert (memory.folder / "facts.md").read_text() == "- 1.\n- Two.\n- Three.\n"
        assert texts(browser)[0] == "Undo: Change two lines"
        await shows(pilot, "· u redoes it")
        await pilot.press("u")
        await shows(pilot, "Redone.")
        assert (memory.folder / "facts.md").read_text() == "- 1.\n- Two.\n- 3.\n"


async def test_archive_restore_and_undo_take_one_key(app, memory):
    async with app.run_test(size=(100, 30)) as pilot:
        browser = await browsing(pilot)
        await pilot.press(*"german", "tab", "a")
        await shows(pilot, "mem_00000003 is archived: Answer in German. · u undoes it")
        assert (memory.folder / "archive" / "mem_00000003.md").exists()
        await pilot.press("u")
        await until(pilot, lambda: (memory.folder / "mem_00000003.md").exists())
        await until(pilot, lambda: texts(browser) == ["Answer in German."])
        await pilot.press("a")
        await until(pilot, lambda: not texts(browser))
        await pilot.press("right", "right")
        assert texts(browser) == ["Answer in German."]
        await pilot.press("r")
        await shows(pilot, "mem_00000003 is restored")
        await pilot.press("left", "left", "c")
        await shows(pilot, " is confirmed")


async def test_changes_while_open_are_shown_and_leave_one_line(app, memory):
    diff = Diff((FileChange("preferences.md", "", "- Use tabs.\n"),))
    learned = CoreChanged(
        "user", "agent", "facts.md: + Four.", Display("+1", Diff((FileChange("f", "", "- Four."),)))
    )
    by_hand = CoreChanged("user", "person", "preferences.md: + Use tabs.", Display("+1 -0", diff))
    async with app.run_test(size=(100, 30)) as pilot:
        browser = await browsing(pilot)
        await pilot.press("tab", "left", "end")
        assert texts(browser) == ["1.", "Two.", "3."]
        store = memory.scopes["user"].store
        store.save_and_commit(
            {"preferences.md": "- Use tabs.\n"}, "Edit", {"Ouro-Origin": "person"}
        )
        app.session.emit_event(by_hand)
        app.session.emit_event(learned)
        await until(pilot, lambda: "Use tabs." in texts(browser))
        assert browser._list.marked.text == "3."
        await pilot.press("escape")
        await until(pilot, lambda: "facts.md: + Four." in shown(app))
        assert "Memory (user) changed: preferences.md: + Use tabs." in shown(app)
        assert "- Use tabs." not in shown(app)


async def test_a_note_is_edited_in_the_editor(app, memory, monkeypatch, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/German/French/' \"$1\"\n")
    editor.chmod(0o700)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setattr(app, "suspend", contextlib.nullcontext)
    async with app.run_test(size=(100, 30)) as pilot:
        browser = await browsing(pilot)
        await pilot.press(*"german", "tab", "e")
        await shows(pilot, "Done. · u undoes it")
        assert "Answer in French." in (memory.folder / "mem_00000003.md").read_text()
        assert texts(browser) == []


async def test_invalid_front_matter_is_saved_and_reported(app, memory, monkeypatch, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i -e 's/^---$/--/' -e 's/German/Dutch/' \"$1\"\n")
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    monkeypatch.setattr(app, "suspend", contextlib.nullcontext)
    async with app.run_test(size=(100, 30)) as pilot:
        await browsing(pilot)
        await pilot.press(*"german", "tab", "e")
        await shows(pilot, "it has no front matter.")
        assert "Answer in Dutch." in (memory.folder / "mem_00000003.md").read_text()


async def test_unapproved_note_is_marked_and_not_changed(app, memory):
    doubtful = memory.folder / "mem_00000003.md"
    doubtful.write_text(doubtful.read_text().replace("German", "Klingon"))
    memory.scopes["user"].open()
    before = doubtful.read_text()
    async with app.run_test(size=(100, 30)) as pilot:
        await browsing(pilot)
        await pilot.press(*"klingon")
        await shows(pilot, "[unconfirmed]")
        await pilot.press("tab", "a")
        await shows(pilot, "has unapproved changes")
        assert doubtful.read_text() == before


async def test_pending_change_is_accepted_with_one_key(app, memory):
    await memory.begin("Look at the README.")
    await memory.read("README.md", "tests run with tox")
    await memory.write("preferences.md", "- Tests run with tox.\n")
    await memory.end()
    async with app.run_test(size=(100, 30)) as pilot:
        browser = await browsing(pilot)
        assert "proposals 1" in screen_text(pilot.app)
        await pilot.press("tab", "left", "left")
        await shows(pilot, "source: read README.md")
        await pilot.press("y")
        await shows(pilot, "Done.")
        assert (memory.folder / "preferences.md").read_text() == "- Tests run with tox.\n"
        assert texts(browser) == []


async def test_core_line_shows_its_author(app):
    async with app.run_test(size=(100, 30)) as pilot:
        browser = await browsing(pilot)
        await pilot.press("tab", "left")
        assert texts(browser) == ["1.", "Two.", "3."]
        await shows(pilot, "by the agent")
        await pilot.press("enter", "enter")
        await shows(pilot, "1 · facts.md · line 1")


async def test_hostile_text_is_escaped(app, memory):
    hostile = note(9, "[red]x[/red] \x1b[2J\x1b]0;owned\x07 end")
    memory.scopes["user"].store.save_and_commit({hostile.file_name: note_text(hostile)}, "Add: it")
    async with app.run_test(size=(100, 30)) as pilot:
        await browsing(pilot)
        await pilot.press(*"end")
        await shows(pilot, "[red]x[/red]")
        assert "\x1b" not in screen_text(pilot.app)


async def test_on_forty_by_ten_list_and_detail_take_turns(app):
    async with app.run_test(size=(40, 10)) as pilot:
        browser = await browsing(pilot)
        await pilot.press(*"german")
        await shows(pilot, "Answer in German.")
        assert "Has to do with" not in screen_text(pilot.app)
        await pilot.press("enter")
        await shows(pilot, "confidence: 1.00")
        await pilot.press("escape")
        await until(pilot, lambda: browser._list.has_focus)


async def test_memory_off_is_reported_by_the_key():
    app = screen_of(FakeSession())
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press("f4")
        await shows(pilot, "Memory is off here")


async def test_t_cycles_categories_and_the_next_tab_shows_all(app):
    async with app.run_test(size=(100, 30)) as pilot:
        browser = await browsing(pilot)
        await pilot.press("tab", "t")
        await shows(pilot, "all · patterns · 3 of 4")
        await pilot.press("right", "t")
        await shows(pilot, "all · capture · 1 of 3")
        assert texts(browser) == ["Add: five notes"]
        await pilot.press("t", "t", "t")
        await until(pilot, lambda: len(texts(browser)) == 3)


async def test_receipt_of_the_last_message_links_to_its_notes(app):
    item = RecalledNote("mem_00000003", "Answer in German.", "loaded", "names ruff", "user", 2.5, 9)
    app.session.session_memory.recalled = NotesRecalled((item,), "local")
    async with app.run_test(size=(100, 30)) as pilot:
        browser = await browsing(pilot)
        await pilot.press("ctrl+y")
        assert texts(browser)[0] == "✓ Answer in German."
        await shows(pilot, "✓ loaded with the last message: names ruff")
        await shows(pilot, "relates-to: Run the tests with pytest -q.")
        await pilot.press("f4")
        await until(pilot, lambda: not isinstance(pilot.app.screen, MemoryBrowser))


async def test_enforced_checks_are_listed_in_the_receipt_with_counts(app):
    app.session.extensions.hooks.checks.list_here = lambda: [
        Check("Use pnpm, not npm", rule="shell(npm *)", number=2, added_at=AT, fired=3)
    ]
    async with app.run_test(size=(100, 30)) as pilot:
        browser = await browsing(pilot)
        await pilot.press("ctrl+y", *"pnpm")
        await until(pilot, lambda: texts(browser) == ["check 2: Use pnpm, not npm"])
        await shows(pilot, "refused 3 times")
        await shows(pilot, "/check")


async def test_archived_note_is_reported_once_and_undo_restores_it(app, memory):
    async with app.run_test(size=(100, 30)) as pilot:
        await browsing(pilot)
        await pilot.press(*"german", "tab", "a")
        await until(pilot, lambda: (memory.folder / "archive" / "mem_00000003.md").exists())
        await pilot.press("right")
        await shows(pilot, "1 · archive/mem_00000003 · moved")
        assert "2 · " not in screen_text(pilot.app)
        await pilot.press("enter", "u")
        await until(pilot, lambda: (memory.folder / "mem_00000003.md").exists())
        assert not (memory.folder / "archive" / "mem_00000003.md").exists()


async def test_no_matches_are_reported_in_the_list(app):
    async with app.run_test(size=(40, 10)) as pilot:
        await browsing(pilot)
        await pilot.press(*"zzz")
        assert "No matches." in screen_text(pilot.app)
