"""The list of queued messages, operated by keys."""

from fakes.fake_session import FakeSession, Wait, says
from fakes.screens import opened, screen_of, screen_text, type_text, until

from ouro.frontends.tui.screens.queue_sheet import QueueSheet
from ouro.frontends.tui.screens.text_edit_sheet import TextSheet


async def test_queued_messages_are_moved_edited_and_removed():
    session = FakeSession([[Wait(), *says("Done.")]])
    async with screen_of(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await type_text(pilot, "go")
        await pilot.press("enter")
        turns = pilot.app.conversation.turns
        await until(pilot, lambda: turns.running)
        for text in ("one", "two", "three"):
            await type_text(pilot, text)
            await pilot.press("tab")
        await until(pilot, lambda: turns.waiting == ("one", "two", "three"))
        await pilot.press("alt+q")
        await until(pilot, lambda: isinstance(pilot.app.screen, QueueSheet))
        await pilot.press("end", "shift+up")
        assert turns.waiting == ("one", "three", "two")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, TextSheet))
        await pilot.press("end")
        await type_text(pilot, " more")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: turns.waiting == ("one", "three more", "two"))
        await until(pilot, lambda: isinstance(pilot.app.screen, QueueSheet))
        await pilot.press("up", "delete")
        assert turns.waiting == ("three more", "two")
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, QueueSheet))


async def test_a_click_on_a_queued_message_above_which_one_reads_opens_the_list():
    session = FakeSession([[*says("\n\n".join(map(str, range(60)))), Wait()]])
    async with screen_of(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        conversation = pilot.app.conversation
        await type_text(pilot, "go")
        await pilot.press("enter")
        await until(pilot, lambda: conversation.turns.running)
        await type_text(pilot, "later")
        await pilot.press("tab", "pageup")
        await until(pilot, lambda: "⋯ next turn: later" in screen_text(pilot.app))
        await pilot.click("#transcript", offset=(5, conversation.transcript.size.height - 1))
        await until(pilot, lambda: isinstance(pilot.app.screen, QueueSheet))


async def test_the_edit_of_a_message_that_was_sent_meanwhile_goes_to_the_prompt():
    session = FakeSession([[Wait()]])
    async with screen_of(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        turns = pilot.app.conversation.turns
        await type_text(pilot, "go")
        await pilot.press("enter")
        await until(pilot, lambda: turns.running)
        await type_text(pilot, "one")
        await pilot.press("tab", "alt+q")
        await until(pilot, lambda: isinstance(pilot.app.screen, QueueSheet))

        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, TextSheet))
        turns.remove(0)
        await pilot.press("end")
        await type_text(pilot, " more")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "It was sent meanwhile" in screen_text(pilot.app))
        assert isinstance(pilot.app.screen, QueueSheet)
        assert pilot.app.conversation.prompt.text == "one more"
