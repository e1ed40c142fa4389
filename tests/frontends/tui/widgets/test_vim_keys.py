"""Vim in the prompt of the full screen: modes, history at the edges, sending, interrupting."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from fakes.fake_session import FakeSession, Wait
from fakes.screens import opened, screen_of, screen_text, type_text, until
from textual import events
from textual.keys import _character_to_key

from ouro.frontends.tui.driver import KeyReader
from ouro.frontends.tui.widgets.prompt import PromptArea

CASES = json.loads((Path(__file__).parents[3] / "fixtures" / "vim_sequences.json").read_text())
KEYS = re.compile(r"<[A-Z][\w-]*>|.", re.DOTALL)
TEXTUAL_NAMES = {"<Esc>": "escape", "<C-r>": "ctrl+r", "<BS>": "backspace"}


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


def press_at_once(pilot, typed: str) -> None:
    """What a terminal without a keyboard protocol sends, in one packet."""
    reader = KeyReader(False, lambda _: "")
    for event in reader.feed(typed):
        pilot.app.post_message(event)


async def test_escape_and_a_letter_in_one_packet_are_two_keys():
    async with screen_of(FakeSession(), editing="vim").run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        prompt = pilot.app.conversation.prompt
        press_at_once(pilot, "one two three\x1bbdw")
        await until(pilot, lambda: prompt.text == "one two ")
        press_at_once(pilot, "Athree\x1b0dwix\x1bvl\x1bx")
        await until(pilot, lambda: prompt.text == "xwo three")
        press_at_once(pilot, "d\x1bA!\x1bp")  # Esc ends the incomplete command
        await until(pilot, lambda: prompt.text == "xwo three!t")


async def test_a_needless_escape_before_a_command_is_no_alt():
    async with screen_of(FakeSession(), editing="vim").run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        prompt = pilot.app.conversation.prompt
        await type_text(pilot, "one two three")
        await pilot.press("escape", "0")
        press_at_once(pilot, "\x1bdw")  # Alt+D would delete only the word, and `w` move
        await until(pilot, lambda: prompt.text == "two three")
        press_at_once(pilot, "\x1bi!")
        await until(pilot, lambda: prompt.text == "!two three")


def type_case(prompt: PromptArea, case) -> None:
    """Type the keys of a recorded case into the prompt, from its text and its place."""
    prompt.fill(case["text"])
    prompt.use_editing("vim")
    prompt._vim.handle(events.Key("escape", "\x1b"))
    prompt.move_cursor((case["line"] - 1, case["column"] - 1))
    for name in KEYS.findall(case["keys"]):
        character = "\x12" if name == "<C-r>" else name
        key = TEXTUAL_NAMES.get(name, _character_to_key(name[0]))
        if not prompt._vim.handle(events.Key(key, character)):
            prompt.put(character)


async def test_the_prompt_does_with_each_recorded_sequence_what_vim_does():
    async with screen_of(FakeSession(), editing="vim").run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        prompt = pilot.app.conversation.prompt
        for case in (case for case in CASES if case["keys"] != "u"):  # it undoes the filling
            type_case(prompt, case)
            assert prompt.text == case["after"], case["keys"]


async def test_alt_keeps_its_meaning_where_escape_ends_nothing():
    session = FakeSession()
    async with screen_of(session, editing="vim").run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        press_at_once(pilot, "a\x1b\rb")
        await until(pilot, lambda: pilot.app.conversation.prompt.text == "a\nb")
        await pilot.press("escape")
        press_at_once(pilot, "\x1bt")
        await until(pilot, lambda: session.status().effort == "minimal")


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
