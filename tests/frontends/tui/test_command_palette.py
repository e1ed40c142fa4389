"""The palette: everything in one list, and what choosing does."""

from fakes.fake_session import FakeSession
from fakes.screens import opened, screen_of, screen_text, shown, type_text, until
from textual import events

from ouro.frontends.tui.command_palette import palette_choices
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screens.dialogs import HelpSheet
from ouro.frontends.tui.screens.picker import Picker


async def test_the_list_has_every_kind():
    session = FakeSession()
    kinds = {choice.value.partition(":")[0] for choice in await palette_choices(session, Keymap())}
    assert {"command", "key", "setting", "page", "model", "file"} <= kinds


async def pick(pilot, words):
    await opened(pilot)
    await pilot.press("ctrl+p")
    await until(pilot, lambda: isinstance(pilot.app.screen, Picker))
    await type_text(pilot, words)
    await pilot.pause()
    await pilot.press("enter")
    await until(pilot, lambda: not isinstance(pilot.app.screen, Picker))


async def test_letters_that_follow_the_key_at_once_are_searched():
    app = screen_of(FakeSession())
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        for key in ("ctrl+p", *"theme"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: isinstance(app.screen, Picker) and app.screen.words == "theme")
        await until(pilot, lambda: "tui.theme" in screen_text(app))
        assert app.conversation.prompt.text == ""
        await pilot.press("ctrl+p")  # the sheet is open already
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.conversation)


async def test_a_command_runs():
    app = screen_of(FakeSession())
    async with app.run_test(size=(80, 24)) as pilot:
        await pick(pilot, "/status")
        await until(pilot, lambda: "Model" in shown(app))


async def test_a_command_that_needs_words_is_put_into_the_prompt():
    app = screen_of(FakeSession())
    async with app.run_test(size=(80, 24)) as pilot:
        await pick(pilot, "/btw")
        assert app.conversation.prompt.text == "/btw "


async def test_a_page_opens_as_a_page_also_on_a_small_screen():
    app = screen_of(FakeSession())
    async with app.run_test(size=(40, 10)) as pilot:
        await pick(pilot, "headless page")
        await until(pilot, lambda: isinstance(app.screen, HelpSheet))
        await until(pilot, lambda: "Headless" in screen_text(app))


async def test_a_key_does_what_the_key_does():
    app = screen_of(FakeSession())
    async with app.run_test(size=(80, 24)) as pilot:
        await pick(pilot, "alt+r")
        await until(pilot, lambda: app.conversation.reader.is_open)


async def test_a_file_is_mentioned_in_the_prompt():
    session = FakeSession()
    app = screen_of(session)
    async with app.run_test(size=(80, 24)) as pilot:
        name = next(
            choice.label
            for choice in await palette_choices(session, Keymap())
            if choice.value.startswith("file:") and not choice.label.endswith("/")
        )
        await pick(pilot, f"{name} file")
        assert app.conversation.prompt.text == f"@{name} "
