"""The list of messages that are sent: keys drop, restore and pin them."""

from fakes.fake_session import FakeSession
from fakes.screens import opened, screen_of, screen_text, until

from ouro.frontends.tui.screens.list_sheets import ContextSheet


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
