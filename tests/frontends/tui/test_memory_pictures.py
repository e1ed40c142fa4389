"""Snapshots of the memory browser and the receipt, on a real memory of both scopes."""

import itertools
from datetime import date
from types import SimpleNamespace

import pytest
from fakes.fake_session import FakeSession
from fakes.knowledge import Conversation
from fakes.screens import opened, screen_of, screen_text, until

from ouro.events import NotesRecalled, RecalledNote
from ouro.memory.index import Lookup
from ouro.memory.long_term.git.files import blob_id
from ouro.memory.long_term.notes.note import Anchor, Edge, Note, Relation, note_text
from ouro.utils.text import local_time

TODAY = date(2026, 12, 1)
AT = "2026-11-{:02}T10:00:00Z"


def note(number, text, scope="repo", **other):
    times = {
        "created_at": AT.format(number),
        "updated_at": AT.format(number),
        "confirmed_at": AT.format(number),
    }
    return Note(
        **{
            "id": f"mem_{number:08d}",
            "scope": scope,
            "text": text,
            "source": "user",
            **times,
            **other,
        }
    )


PREFERENCE = note(
    1, "Answer in short sentences, without praise.", "user", category="coding-preferences"
)
NOTES = (
    note(2, "Run the tests with tox.", category="project-conventions", session_id="0198f001-aaaa", turn=2),
    note(
        3, "Run the tests with pytest -q; tox is only for releases.", category="project-conventions",
        supersedes="mem_00000002", version=2, session_id="0198f004-aaaa", turn=7, trigger="cadence",
        entities=("cmd:pytest -q", "file:api.py"), relations=(Relation("file:api.py", "tested_by", "cmd:pytest -q"),),
        anchors=(Anchor("api.py", blob_id(b"as it was")),), related=(Edge("mem_00000006", "relates-to"),),
    ),
    note(4, "Releases are on Fridays, after the weekly review.", category="architectural-decisions"),
    note(5, "Releases are on Mondays.", category="corrections", related=(Edge("mem_00000004", "contradicts"),)),
    note(6, "コミットの件名は英語で書く 🎉 and never ends with a full stop, by any tool.", category="patterns"),
    note(7, "The cache of the parser may be dropped at any time.", category="patterns", branch="feature/cache"),
)  # fmt: skip
RECALLED = NotesRecalled(
    (
        RecalledNote(NOTES[1].id, NOTES[1].text, "loaded", "names api.py", "repo", 3.2, 24, 2),
        RecalledNote("mem_0000dead", "", "cut", "more than there is room for", "repo", 1.1, 200),
        RecalledNote(NOTES[2].id, NOTES[2].text, "skipped", "in what is sent already", "repo", 0.9),
    ),
    "local",
    12.0,
)


@pytest.fixture
def app(home, tmp_path, monkeypatch):
    clock = SimpleNamespace(time=itertools.count(1_795_255_200, 3_600).__next__)
    monkeypatch.setattr("ouro.memory.long_term.git.repository.time", clock)
    monkeypatch.setattr(
        "ouro.memory.long_term.prompt_block.estimate", lambda _block: 600
    )  # its paths have any length
    monkeypatch.setattr(
        "ouro.frontends.tui.screens.memory_pages.local_time", lambda at: local_time(at, TODAY)
    )
    (tmp_path / "api.py").write_text("changed since\n")

    def app(notes=NOTES, size=(80, 24), theme="dark"):
        memory = Conversation(home / ".ouro", tmp_path).connect()
        if notes:
            stores = {scope.name: scope.store for scope in memory.scopes.values()}
            core = "# How I work\n\n- Use ruff, not black.\n- Type hints everywhere.\n"
            stores["user"].save_and_commit(
                {"preferences.md": core}, "Edit preferences.md", {"Ouro-Origin": "person"}
            )
            own = {each.file_name: note_text(each) for each in notes}
            stores["user"].save_and_commit(
                {PREFERENCE.file_name: note_text(PREFERENCE)}, "Add: one"
            )
            marks = {"Ouro-Origin": "capture", "Ouro-Session": "0198f004-aaaa", "Ouro-Turn": "7"}
            stores["repo"].save_and_commit(own, "Add: Run the tests with pytest -q", marks)
            changed = core.replace("everywhere", "in what is public").replace(
                "not black", "also to format"
            )
            stores["user"].save_and_commit(
                {"preferences.md": changed}, "Say where", {"Ouro-Origin": "agent"}
            )
            memory = Conversation(home / ".ouro", tmp_path).connect()
        session = FakeSession(cwd=tmp_path)
        session.remember(
            memory.manager,
            Lookup(home / ".ouro" / "cache" / "index.db", lambda: None, lambda: None),
        )
        session.session_memory.recalled = RECALLED if notes else NotesRecalled((), "local")
        return screen_of(session, theme=theme)

    return app


@pytest.fixture
def picture(snap_compare, app):
    def picture(*keys, shows, size=(80, 24), **options):
        async def before(pilot):
            await opened(pilot)
            await pilot.press(keys[0])
            await until(
                pilot,
                lambda: len(pilot.app.screen_stack) > 1 and "reading" not in screen_text(pilot.app),
            )
            await pilot.press(*keys[1:])
            await until(pilot, lambda: shows in screen_text(pilot.app))
            await pilot.pause()
            await pilot.wait_for_animation()

        return snap_compare(app(**options), terminal_size=size, run_before=before)

    return picture


@pytest.mark.parametrize("size", [(120, 30), (80, 24)])
def test_list(picture, size):
    assert picture("f4", "right", shows="[on feature/cache]", size=size)


def test_list_on_a_small_screen(picture):
    assert picture("f4", shows="Esc closes", size=(40, 10))


@pytest.mark.parametrize("theme", ["light", "high-contrast"])
def test_list_in_other_themes(picture, theme):
    assert picture("f4", "right", shows="[on feature/cache]", theme=theme)


@pytest.mark.parametrize("size", [(120, 30), (80, 24)])
def test_note(picture, size):
    assert picture("f4", "right", "slash", *"pytest", "enter", shows="Changed 1 time", size=size)


def test_note_on_a_small_screen(picture):
    assert picture("f4", "right", "slash", *"pytest", "enter", shows="confidence", size=(40, 10))


@pytest.mark.parametrize("size", [(80, 24), (40, 10)])
def test_timeline(picture, size):
    keys = ("right", "right", *(("enter",) if size[0] < 72 else ()))
    assert picture("f4", *keys, shows="1 · preferences.md", size=size)


def test_added_note_in_the_timeline(picture):
    assert picture("f4", "right", "slash", *"pytest", "tab", "right", shows="1 · mem_00000002")


def test_receipt(picture):
    assert picture("ctrl+y", shows="loaded with the last message")


def test_empty_memory(picture):
    assert picture("f4", notes=(), shows="The core is empty")
