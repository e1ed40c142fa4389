"""Vim in the prompt of the full screen: modes, history at the edges, sending, interrupting."""

from __future__ import annotations

import asyncio

from fakes.fake_session import FakeSession, Wait
from fakes.screens import opened, screen_of, screen_text, type_text, until


async def test_normal_mode_edits_and_is_shown_and_enter_sends():
    session = FakeSession()
    async with screen_of(session, editing="vim").run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        prompt = pilot.app.conversation.prompt
        await type_text(pilot, "one two three")
        await pilot.press("escape")
        await until(pilot, lambda: "NORMAL" in screen_text(pilot.app))
        await pilot.press("0", "d", "w", "x", "u")
        assert prompt.text == "two three"
        await pilot.press("v", "e")
        await until(pilot, lambda: "VISUAL" in screen_text(pilot.app))
        await pilot.press("U", "A")
        await type_text(pilot, "!")
        assert prompt.text == "TWO three!"
        await pilot.press("enter")
        await until(pilot, lambda: session.sent == ["TWO three!"])
        await until(pilot, lambda: "INSERT" in screen_text(pilot.app))


async def test_j_and_k_at_the_edges_walk_through_the_history():
    session = FakeSession()
    async with screen_of(session, editing="vim").run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        prompt = pilot.app.conversation.prompt
        await type_text(pilot, "the first")
        await pilot.press("enter")
        await until(pilot, lambda: session.sent)
        await until(pilot, lambda: not pilot.app.turns.busy)
        await pilot.press("escape", "k")
        await until(pilot, lambda: prompt.text == "the first")
        await pilot.press("d", "d")
        assert prompt.text == ""


async def test_escape_in_normal_mode_interrupts_the_turn():
    session = FakeSession([[Wait(asyncio.Event())]])
    async with screen_of(session, editing="vim").run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await type_text(pilot, "go")
        await pilot.press("enter")
        await until(pilot, lambda: session.running)
        await pilot.press("escape")
        assert session.interrupts == 0
        await pilot.press("escape")
        await until(pilot, lambda: session.interrupts == 1)


async def test_the_command_changes_the_keys():
    async with screen_of(FakeSession()).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await type_text(pilot, "/vim")
        await pilot.press("enter")
        await until(pilot, lambda: "INSERT" in screen_text(pilot.app))
        assert "tui.editing: vim" in screen_text(pilot.app)
