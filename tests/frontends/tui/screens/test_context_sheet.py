"""The list of messages that are sent: keys drop, restore and pin them."""

from fakes.fake_session import FakeSession
from fakes.screens import opened, screen_of, screen_text, until

from ouro.frontends.tui.screens.list_sheets import ContextSheet
from ouro.session.context_window import ContextItem


async def test_keys_of_the_list_drop_restore_and_pin_the_marked_item():
    session = FakeSession()
    async with screen_of(session).run_test(size=(90, 30)) as pilot:
        await opened(pilot)
        await pilot.press(*"/context", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, ContextSheet))
        await pilot.pause()
        rows = [
            " ".join(line.strip("│▏▕ ").split()) for line in screen_text(pilot.app).splitlines()
        ]
        assert [row for row in rows if " output " in row or " note " in row] == [
            "❯ 5,000 output shell: 900 lines",
            "9 note Use tabs. dropped",
        ]
        await pilot.press("d", "down", "d", "down", "p")
        await until(pilot, lambda: session.window.pins)
        assert session.window.changes == [(["call:c1"], False), (["5:mem_a"], True)]
        assert session.window.pins == [(1, False)]
        assert "1 message unpinned." in screen_text(pilot.app)
        await pilot.press("escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)


async def test_the_sheet_shows_what_takes_the_tokens_and_an_item_in_the_room_that_is_left():
    session = FakeSession()
    text = "\n".join(f"line {number} of **the answer**" for number in range(9))
    session.window.contents = (ContextItem("1", 1, "ouro", text, 90, False),)
    async with screen_of(session).run_test(size=(90, 30)) as pilot:
        await opened(pilot)
        await pilot.press(*"/context", "enter")
        await until(pilot, lambda: "line 8 of" in screen_text(pilot.app))
        shown = screen_text(pilot.app)
        assert "system prompt 900 · your messages 300" in shown
        assert "ouro    line 0 of the answer line 1 of the answer" in shown
        assert "Esc closes" in shown


async def test_keys_stay_on_the_screen_below_many_items():
    session = FakeSession()
    session.window.contents = tuple(
        ContextItem(str(number), number, "you", f"item {number}\n" * 9, number, False)
        for number in range(40)
    )
    async with screen_of(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press(*"/context", "enter")
        await until(pilot, lambda: screen_text(pilot.app).count("item 39") > 2)
        assert "Esc closes" in screen_text(pilot.app)


async def test_a_narrow_screen_shows_the_text_of_each_item():
    async with screen_of(FakeSession()).run_test(size=(40, 10)) as pilot:
        await opened(pilot)
        await pilot.press(*"/context", "enter")
        await until(
            pilot,
            # The row is cut; its whole text is below the list.
            lambda: " shell: 900 lines" in screen_text(pilot.app),
        )
        await until(
            pilot, lambda: "9 note Use tabs. dropped" in " ".join(screen_text(pilot.app).split())
        )
