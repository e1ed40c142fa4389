"""The panel before the first model call after a resume: information and choices; it never blocks
the prompt.
"""

import pytest
from fakes.fake_parts import CARD, NOW, FakeResumed
from fakes.fake_session import FakeSession, says
from fakes.screens import opened, screen_of, shown, until
from msgspec.structs import replace

from ouro.frontends.session_format import card_line, card_lines
from ouro.session import MemorySince


def resumed(card=CARD, *turns):
    session = FakeSession(turns)
    session.resumed = FakeResumed(card)
    return session


def app_on(session):
    app = screen_of(session)
    app.conversation.resume.clock = lambda: NOW
    return app


async def wait_for_panel(pilot):
    await opened(pilot)
    await until(pilot, lambda: pilot.app.conversation.resume.is_open)
    await pilot.pause()


async def test_panel_appears_while_the_prompt_is_usable(snap_compare):
    session = resumed(CARD, says("Yes."))
    session.resumed.ready.clear()
    async with app_on(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press(*"go ")
        session.resumed.ready.set()
        await wait_for_panel(pilot)
        await pilot.press(*"on", "enter")
        await until(pilot, lambda: session.sent == ["go on"])
        assert (session.resumed.taken, pilot.app.conversation.resume.is_open) == ([], False)


@pytest.mark.parametrize(
    ("tabs", "taken"), [(0, []), (1, ["tail"]), (2, ["summary"]), (3, ["then"]), (4, [])]
)
async def test_tab_marks_a_choice_and_enter_takes_it_on_an_empty_prompt(tabs, taken):
    session = resumed()
    async with app_on(session).run_test(size=(80, 24)) as pilot:
        await wait_for_panel(pilot)
        await pilot.press(*["tab"] * tabs, "enter")
        await until(pilot, lambda: not pilot.app.conversation.resume.is_open)
        await until(pilot, lambda: session.resumed.taken == taken)
        assert session.sent == []
        if taken:
            await until(pilot, lambda: f"took the {taken[0]}" in shown(pilot.app))


async def test_esc_closes_the_panel_and_a_click_chooses(snap_compare):
    session = resumed()
    async with app_on(session).run_test(size=(80, 24)) as pilot:
        await wait_for_panel(pilot)
        await pilot.press("escape")
        assert not pilot.app.conversation.resume.is_open
        assert len(pilot.app.screen_stack) == 1
        pilot.app.conversation.resume.show(CARD)
        await pilot.pause()
        panel = pilot.app.conversation.resume
        row = panel.size.height - len(panel._choice_rows(panel.size.width))
        await pilot.click("#resume", offset=(panel.gutter.left + 30, panel.gutter.top + row))
        await until(pilot, lambda: session.resumed.taken == ["tail"])


async def test_panel_is_not_shown_after_a_message_was_sent():
    session = resumed(CARD, says("Yes."))
    session.resumed.ready.clear()
    async with app_on(session).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press(*"go on", "enter")
        await until(pilot, lambda: "Yes." in shown(pilot.app))
        session.running = True
        session.resumed.ready.set()
        await pilot.pause()
        assert session.sent == ["go on"]


async def test_short_session_shows_a_line_instead():
    session = resumed(replace(CARD, is_long=False, cache="warm", price=0.002, price_cold=0.02))
    async with app_on(session).run_test(size=(120, 24)) as pilot:
        await opened(pilot)
        await until(pilot, lambda: "Resumed: " in shown(pilot.app))
        assert not pilot.app.conversation.resume.is_open


def test_card_lines_have_the_expected_text():
    assert card_lines(CARD, NOW) == [
        ("last used", "3 h ago · 41 messages · 1.2 MB"),
        ("first call", "84k tokens, $0.25 (cache cold)"),
        (
            "repository",
            (
                "on main now, on parser then, 3 files not committed, "
                "4 commits since: a1b2c3d fix the lexer; b2c3d4e say why; c3d4e5f tidy"
            ),
        ),
        ("memory", "3 changes of memory since (user 1, repo 2)"),
        ("open", "the last turn has no answer, 2 todos open: write the tests"),
    ]
    plain = replace(
        CARD,
        repository=None,
        memory=MemorySince({}),
        todos=(),
        in_the_middle=False,
        price=None,
        folder="/tree",
    )
    assert (
        card_line(plain, NOW)
        == "Resumed: 3 h ago · 84k tokens, the provider's cache is cold · in /tree now"
    )


@pytest.mark.parametrize("size", [(80, 24), (40, 10)])
def test_panel_snapshot(size, snap_compare):
    assert snap_compare(app_on(resumed()), terminal_size=size, run_before=wait_for_panel)
