"""The chips above the prompt: what a message attaches, and what of it is refused."""

from __future__ import annotations

import pytest
from fakes.fake_session import FakeSession
from fakes.screens import opened, screen_of, screen_text, type_text, until

from ouro.session import Attachment


def session_with(*items):
    session = FakeSession()
    session.attachable = list(items)
    return session


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 10)])
async def test_chips_show_size_and_refusal_before_sending(size):
    session = session_with(
        Attachment("api.py", "12 KB"), Attachment(".env", problem="may hold keys")
    )
    async with screen_of(session).run_test(size=size) as pilot:
        await opened(pilot)
        await type_text(pilot, "see @api.py and @.env ")
        await until(pilot, lambda: "@api.py 12 KB" in screen_text(pilot.app))
        await until(pilot, lambda: "✗ .env: may hold keys" in screen_text(pilot.app))
        await pilot.press("enter")
        await until(pilot, lambda: "12 KB" not in screen_text(pilot.app))


async def test_a_low_terminal_has_one_line_of_chips_that_counts_the_others():
    session = session_with(*(Attachment(f"file_{n}.py", "10 KB") for n in range(5)))
    async with screen_of(session).run_test(size=(40, 10)) as pilot:
        await opened(pilot)
        pilot.app.conversation.prompt.fill(" ".join(f"@file_{n}.py" for n in range(5)))
        await until(pilot, lambda: "+3 more" in screen_text(pilot.app))


async def test_what_is_refused_comes_first_if_it_has_no_room():
    items = [Attachment(f"file_{n}.py", "10 KB") for n in range(5)]
    session = session_with(*items, Attachment(".env", problem="may hold keys"))
    async with screen_of(session).run_test(size=(40, 10)) as pilot:
        await opened(pilot)
        pilot.app.conversation.prompt.fill("@file_0.py @file_1.py @.env")
        await until(pilot, lambda: "✗ .env: may hold keys  +2 more" in screen_text(pilot.app))


async def test_many_attachments_are_counted():
    session = session_with(*(Attachment(f"file_{n}.py", "10 KB") for n in range(50)))
    async with screen_of(session).run_test(size=(60, 20)) as pilot:
        await opened(pilot)
        pilot.app.conversation.prompt.fill(" ".join(f"@file_{n}.py" for n in range(50)))
        await until(pilot, lambda: "more" in screen_text(pilot.app))
        shown = screen_text(pilot.app)
        assert 3 <= shown.count("10 KB") < 50


async def test_a_paste_is_unfolded_by_its_key_and_by_pasting_again():
    text = "\n".join(f"row {n}" for n in range(40))
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        prompt = pilot.app.conversation.prompt
        prompt.put(prompt.attachments.fold(text))
        assert prompt.text == "[pasted 40 lines]"
        await pilot.press("alt+e")
        assert prompt.text == text


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 10)])
async def test_the_chip_of_a_file_that_is_typed_to_its_end_is_seen(size):
    session = session_with(Attachment("api.py", "12 KB"))
    async with screen_of(session).run_test(size=size) as pilot:
        await opened(pilot)
        conversation = pilot.app.conversation
        conversation._find_files = lambda text: ["api.py"] if "api.py".startswith(text) else []
        conversation.completion._find_files = conversation._find_files
        await type_text(pilot, "see @api.p")
        assert conversation.completion.display
        await type_text(pilot, "y")
        await until(pilot, lambda: "@api.py 12 KB" in screen_text(pilot.app))
        assert not conversation.completion.display
        await pilot.press("tab")  # completes, as while the list is shown: it does not send
        assert conversation.prompt.text == "see @api.py "
