"""Rewinds on the screen: Esc Esc, the sheet, and the result."""

import asyncio

import pytest
from fakes.fake_parts import CARD, FakeResumed, FakeRewind
from fakes.fake_session import FakeSession, Wait
from fakes.screens import opened, screen_of, screen_text, shown, until

from ouro.errors import SessionDamaged
from ouro.events import Prompted
from ouro.frontends.tui.screens.list_sheets import RedoSheet, RewindSheet
from ouro.messages import Image
from ouro.session import Branch, Point

AT = "2026-01-02T03:04:05.000Z"
POINTS = (
    Point(1, AT, "mend the import in api.py", 12, 4),
    Point(5, AT, "now write the \x1b[31mtests\nfor it", 8, 3),
    Point(9, AT, "and the docs", 2, 0),
)
LEFT = Branch(20, 8, AT, ("say it in German", "shorter"), 4, 1)


@pytest.fixture(autouse=True)
def two_keys_are_a_chord(monkeypatch):
    """Esc Esc is one chord, however long the first Esc takes on a busy machine."""
    monkeypatch.setattr("ouro.frontends.tui.widgets.prompt.CHORD_GAP", 600.0)


def session_with(points=POINTS, branches=(LEFT,)):
    session = FakeSession()
    session.rewind = FakeRewind(points, branches)
    return session


async def sheet_of(pilot):
    await until(pilot, lambda: isinstance(pilot.app.screen, RewindSheet))
    await pilot.pause()
    return pilot.app.screen


async def back_at_prompt(pilot):
    await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
    await pilot.pause()


async def test_esc_esc_in_an_empty_prompt_lists_messages_with_newest_marked():
    session = session_with()
    async with screen_of(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        lines = [line.strip("│▏▕ ") for line in screen_text(pilot.app).splitlines()]
        rows = [line for line in lines if "2026-01-02" in line]
        assert [" ".join(row.split()) for row in rows] == [
            "mend the import in api.py 2026-01-02",
            "now write the tests for it 2026-01-02",
            "↳ left: say it in German 2026-01-02",
            "❯ and the docs 2026-01-02",
        ]
        assert "Rewinds past 2 messages" in screen_text(pilot.app)


async def test_esc_esc_right_after_a_resume_closes_its_panel_and_lists_messages():
    session = session_with()
    session.resumed = FakeResumed(CARD)
    async with screen_of(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await until(pilot, lambda: pilot.app.conversation.resume.is_open)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        assert not pilot.app.conversation.resume.is_open


async def test_dates_are_whole_at_forty_columns():
    async with screen_of(session_with()).run_test(size=(40, 24)) as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        assert screen_text(pilot.app).count("2026-01-02") == 4


async def test_a_low_screen_shows_the_marked_message_in_the_preview():
    points = (Point(1, AT, "mend the import in api.py of the server", 1200, 400),)
    async with screen_of(session_with(points, ())).run_test(size=(40, 10)) as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        preview = screen_text(pilot.app).partition("Rewinds past")[2]
        assert "mend the import in api.py" in preview


async def test_the_boxes_fit_after_the_screen_becomes_narrow():
    async with screen_of(session_with()).run_test(size=(100, 24)) as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        await until(pilot, lambda: "memory (no changes)" in screen_text(pilot.app))
        await pilot.resize_terminal(40, 10)
        await until(pilot, lambda: "(no changes)" not in screen_text(pilot.app))
        assert "☑ conversation" in screen_text(pilot.app)


async def test_enter_rewinds_and_puts_the_message_into_the_prompt():
    session = session_with()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        session.shown_before = [Prompted("mend the import in api.py")]
        await pilot.press("up", "up", "enter")
        await until(pilot, lambda: session.rewind.went)
        await back_at_prompt(pilot)
        assert session.rewind.went == [("rewind", 5, ("conversation",))]
        await until(
            pilot,
            lambda: pilot.app.conversation.prompt.text == "now write the \x1b[31mtests\nfor it",
        )
        assert "mend the import in api.py" in shown(pilot.app)
        assert "/redo reverses this." in shown(pilot.app)


async def test_typing_searches_and_the_last_match_is_marked():
    session = session_with()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        await pilot.press("t", "h", "e", "enter")
        await until(pilot, lambda: session.rewind.went)
        assert session.rewind.went == [("rewind", 9, ("conversation",))]


async def test_a_branch_is_returned_to():
    session = session_with()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        await pilot.press("up")
        await pilot.pause()
        assert "Left branch: 4 messages, 1 tool call. Enter returns" in screen_text(pilot.app)
        assert "❯ shorter" in screen_text(pilot.app)
        await pilot.press("enter")
        await until(pilot, lambda: session.rewind.went)
        assert session.rewind.went == [("visit", 20)]


async def test_checkbox_appears_for_scopes_that_can_be_undone():
    session = session_with()
    session.rewind.offered = {"memory": "2 changes"}
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        await until(pilot, lambda: "☐ memory (2 changes)" in screen_text(pilot.app))
        assert "☐ files (no changes)" in screen_text(pilot.app)  # the same boxes for each message
        await pilot.press("tab", "tab", "tab", "space")  # skip the first boxes
        assert "☑ memory (2 changes)" in screen_text(pilot.app)
        await pilot.press("enter")
        await until(pilot, lambda: session.rewind.went)
        assert session.rewind.went == [("rewind", 9, ("conversation", "memory"))]


async def test_checkbox_not_offered_for_a_message_has_no_effect():
    session = session_with()
    session.rewind.offered = {"files": "3 files"}
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        await until(pilot, lambda: "☐ files (3 files)" in screen_text(pilot.app))
        await pilot.press("tab", "tab", "space")  # skip the first box
        session.rewind.offered = {}
        await pilot.press("up", "up")
        await until(pilot, lambda: "☐ files (no changes)" in screen_text(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: session.rewind.went)
        assert session.rewind.went == [("rewind", 5, ("conversation",))]


async def test_undo_sheet_preselects_the_last_message_and_its_files():
    session = session_with()
    session.rewind.offered = {"files": "3 files", "memory": "2 changes"}
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press(*"/undo", "enter")
        await sheet_of(pilot)
        await until(pilot, lambda: "☑ conversation" in screen_text(pilot.app))
        await until(pilot, lambda: "☑ files (3 files)" in screen_text(pilot.app))
        assert "☐ memory (2 changes)" in screen_text(pilot.app)
        await pilot.press(
            "tab", "space", "tab", "tab", "space", "enter"
        )  # untick the first box, tick memory
        await until(pilot, lambda: session.rewind.went)
        assert session.rewind.went == [("rewind", 9, ("files", "memory"))]


async def test_redo_sheet_has_a_checkbox_for_each_scope():
    session = session_with()
    async with screen_of(session).run_test() as pilot:
        for keys, went in (
            (("enter",), [("redo", "conversation", "files", "memory")]),
            (
                ("space", "tab", "tab", "space", "enter"),
                [("redo", "files")],
            ),  # the first box has the focus
            (("escape",), []),
        ):
            session.rewind.went.clear()
            await opened(pilot)
            await pilot.press(*"/redo", "enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, RedoSheet))
            for box in ("☑ conversation (2 messages)", "☑ files (1 file)", "☑ memory (1 change)"):
                await until(pilot, lambda box=box: box in screen_text(pilot.app))
            await pilot.press(*keys)
            await back_at_prompt(pilot)
            await until(pilot, lambda went=went: session.rewind.went == went)


async def test_undone_files_of_a_branch_have_a_checkbox():
    session = session_with()
    session.rewind.undone_of_branch = {"conversation": "4 messages", "files": "3 files"}
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        await pilot.press("up")
        await until(pilot, lambda: "☐ files (3 files)" in screen_text(pilot.app))
        # Its messages come back in any case.
        await until(pilot, lambda: "☑ conversation" not in screen_text(pilot.app))
        await pilot.press("tab", "space", "enter")
        await until(pilot, lambda: session.rewind.went)
        assert session.rewind.went == [("visit", 20, "files")]


async def test_enter_waits_until_the_undoable_scopes_are_known():
    session = session_with()
    known = asyncio.Event()

    async def late(_number):
        await known.wait()
        return {"files": "3 files"}

    session.rewind.describe_undoable = late
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press(*"/undo", "enter")
        sheet = await sheet_of(pilot)
        pressed = asyncio.create_task(sheet.action_choose())
        await asyncio.sleep(0)
        known.set()
        await pressed
        await until(pilot, lambda: session.rewind.went)
        assert session.rewind.went == [("rewind", 9, ("conversation", "files"))]


async def test_files_alone_are_undone_without_the_conversation_checkbox():
    session = session_with()
    session.rewind.offered = {"files": "3 files"}
    async with screen_of(session).run_test(notifications=True) as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        await until(pilot, lambda: "☐ files (3 files)" in screen_text(pilot.app))
        await pilot.press("tab", "space", "enter")
        await until(pilot, lambda: "Nothing is ticked" in screen_text(pilot.app))
        assert session.rewind.went == []
        await pilot.press("tab", "space", "enter")
        await until(pilot, lambda: session.rewind.went)
        assert session.rewind.went == [("rewind", 9, ("files",))]


async def test_fork_key_forks_at_the_message():
    session, copy = session_with(), FakeSession(session_id="s-copy")
    async with screen_of(session, copy).run_test() as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        await pilot.press("up", "up", "ctrl+f")
        await until(pilot, lambda: pilot.app.turns.session is copy)
        assert session.rewind.went == [("fork", 5, "")]
        await until(pilot, lambda: pilot.app.conversation.prompt.text.startswith("now write the"))


async def test_the_keys_can_be_changed():
    session, copy = session_with(), FakeSession(session_id="s-copy")
    async with screen_of(
        session, copy, keys={"rewind": ["f8"], "fork_there": "f5"}
    ).run_test() as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await pilot.pause()
        assert len(pilot.app.screen_stack) == 1
        await pilot.press("f8")
        await sheet_of(pilot)
        assert "F5 forks" in screen_text(pilot.app)
        await pilot.press("f5")
        await until(pilot, lambda: session.rewind.went)
        assert session.rewind.went == [("fork", 9, "")]


async def test_up_at_the_top_loads_older_messages():
    session = session_with()
    session.rewind.listed, session.rewind.older = POINTS[1:], POINTS[:1]
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        await pilot.press("up", "up", "up")
        await until(pilot, lambda: "mend the import" in screen_text(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: session.rewind.went)
        assert session.rewind.went == [("rewind", 1, ("conversation",))]


async def test_unlisted_branches_are_reported():
    session = session_with()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        for lacks in (False, True):
            session.rewind.lacks_branches = lacks
            await pilot.press("escape", "escape")
            await sheet_of(pilot)
            await until(pilot, lambda: "Rewinds past" in screen_text(pilot.app))
            assert ("Branches that begin before the messages" in screen_text(pilot.app)) == lacks
            await pilot.press("escape")
            await until(pilot, lambda: len(pilot.app.screen_stack) == 1)


async def test_esc_closes_the_sheet_and_changes_nothing():
    session = session_with()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        await pilot.press("escape")
        await back_at_prompt(pilot)
        assert (session.rewind.went, pilot.app.conversation.prompt.text) == ([], "")


async def test_esc_esc_during_a_turn_interrupts_and_opens_no_sheet():
    session = FakeSession([[Wait()]])
    session.rewind = FakeRewind(POINTS)
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: session.running)
        await pilot.press("escape", "escape")
        await until(pilot, lambda: not session.running)
        await pilot.pause()
        assert len(pilot.app.screen_stack) == 1
        assert session.interrupts >= 1


async def test_esc_esc_with_text_opens_no_sheet_and_first_closes_suggestions():
    session = session_with()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("h", "i", "escape", "escape")
        await pilot.pause()
        assert (len(pilot.app.screen_stack), pilot.app.conversation.prompt.text) == (1, "")
        await pilot.press("slash", "r")
        await until(pilot, lambda: pilot.app.conversation.completion.is_open)
        await pilot.press("escape")
        assert not pilot.app.conversation.completion.is_open
        await pilot.press("escape")
        assert pilot.app.conversation.prompt.text == "/r"


async def test_key_after_esc_keeps_its_function():
    session = session_with()
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("escape", "o", "k", "enter")
        await until(pilot, lambda: session.sent == ["ok"])


async def test_pictures_return_to_the_prompt_with_the_message():
    picture = Image("image/png", b"\x89PNG" + bytes(3000))
    session = session_with([Point(1, AT, "what is this?", 2, 0, (picture,))], ())
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        await pilot.press("enter")
        await until(
            pilot,
            lambda: pilot.app.conversation.prompt.text == "what is this? [image 1: PNG, 3 KB]",
        )
        await pilot.press("enter")
        await until(pilot, lambda: session.sent)
        assert session.sent_images == [picture]


async def test_rewind_without_messages_is_reported():
    session = session_with((), ())
    async with screen_of(session).run_test() as pilot:
        await opened(pilot)
        await pilot.press(*"/rewind", "enter")
        await until(pilot, lambda: "no message yet" in shown(pilot.app))
        assert len(pilot.app.screen_stack) == 1


@pytest.mark.parametrize("size", [(80, 24), (40, 10)])
def test_rewind_sheet_snapshot(snap_compare, size):
    session = session_with()
    session.rewind.offered = {"memory": "2 changes"}

    async def before(pilot):
        await opened(pilot)
        await pilot.press("escape", "escape")
        sheet = await sheet_of(pilot)
        await pilot.press("up", "up")
        texts = ("Rewinds past 8 messages", "memory (2 changes)")
        await until(
            pilot,
            lambda: (
                sheet._scopes_worker.is_finished
                and all(text in screen_text(pilot.app) for text in texts)
            ),
        )

    assert snap_compare(screen_of(session), terminal_size=size, run_before=before)


async def test_a_rewind_whose_changes_cannot_be_read_is_still_offered():
    session = session_with()

    async def fail(_number):
        raise SessionDamaged("The checkpoints cannot be read.")

    session.rewind.describe_undoable = fail
    async with screen_of(session).run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        await pilot.press("escape", "escape")
        await sheet_of(pilot)
        await until(pilot, lambda: "The checkpoints cannot be read." in screen_text(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: session.rewind.went)
