"""The transcript on the whole screen: search, jumps, and the state after it is closed."""

from fakes.fake_session import FakeSession, Wait, says
from fakes.screens import opened, screen_of, screen_text, until
from textual import events

from ouro.display import Display, Plain
from ouro.events import PermissionAsked, TextDelta, ToolFinished, ToolStarted
from ouro.messages import ToolCall

CALL = ToolCall("c1", "read", {})
TURNS = [
    [
        ToolStarted(CALL, "read notes"),
        ToolFinished(
            "c1", "read", Display("3 lines", Plain("alpha\nthe needle\nomega")), False, 0.0
        ),
        TextDelta("\n\n".join(f"line {n}" for n in range(40))),
    ],
    says("a second **needle** here"),
]


async def reading(pilot, session, *prompts):
    await opened(pilot)
    for number, prompt in enumerate(prompts, 1):
        await pilot.press(*prompt, "enter")
        await until(
            pilot, lambda number=number: len(session.sent) == number and not pilot.app.turns.busy
        )
    await pilot.press("ctrl+o", "ctrl+o")
    assert "q closes" in screen_text(pilot.app)


async def test_ctrl_o_twice_opens_the_reader_and_q_restores_the_view():
    session = FakeSession(TURNS)
    async with screen_of(session).run_test(size=(60, 16)) as pilot:
        await reading(pilot, session, "a", "b")
        assert "Ask" not in screen_text(pilot.app)
        await pilot.press("g")
        assert "the needle" in screen_text(pilot.app)
        await pilot.press("q", *"draft")
        text = screen_text(pilot.app)
        assert "draft" in text
        assert "a second needle here" in text
        assert not any(block.is_open for block in pilot.app.conversation.transcript.blocks)


async def test_a_bracket_prints_the_conversation_where_the_terminal_can_be_lent():
    session = FakeSession(TURNS)
    async with screen_of(session).run_test(size=(60, 16)) as pilot:
        await reading(pilot, session, "a", "b")
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: "cannot run another program" in screen_text(pilot.app))
        assert pilot.app.conversation.reader.is_open


async def test_search_moves_between_matches_and_reports_no_match():
    session = FakeSession(TURNS)
    async with screen_of(session).run_test(size=(60, 16)) as pilot:
        await reading(pilot, session, "a", "b")
        await pilot.press("slash", *"needle", "enter")
        await until(pilot, lambda: "n older" in screen_text(pilot.app))
        assert "a second needle" in screen_text(pilot.app)
        await pilot.press("n")
        await until(pilot, lambda: "the needle" in screen_text(pilot.app))
        await pilot.press("n")
        await until(pilot, lambda: "No match" in screen_text(pilot.app))
        await pilot.press("N")
        await until(pilot, lambda: "a second needle" in screen_text(pilot.app))


async def test_search_goes_on_after_the_found_message_was_removed():
    session = FakeSession(TURNS)
    async with screen_of(session).run_test(size=(60, 16)) as pilot:
        await reading(pilot, session, "a", "b")
        transcript = pilot.app.conversation.transcript
        assert transcript.find("needle", -1)
        assert transcript.find("needle", -1)
        last_block = transcript.blocks[-1]
        first_match = next(block for block in transcript.blocks if "needle" in block.as_markdown())
        await pilot.pause()
        transcript.discard(first_match)

        assert transcript.find("needle", 1)

        assert transcript._match.block is last_block


async def test_letters_typed_right_after_the_slash_are_searched():
    session = FakeSession(TURNS)
    async with screen_of(session).run_test(size=(60, 16)) as pilot:
        await reading(pilot, session, "a", "b")
        reader = pilot.app.conversation.reader
        for key in ("slash", "n", "q", "p"):
            reader.post_message(events.Key(key, "/" if key == "slash" else key))
        await until(pilot, lambda: reader._search.value == "nqp")
        assert reader.is_open


async def test_braces_move_between_messages():
    session = FakeSession(TURNS)
    async with screen_of(session).run_test(size=(60, 16)) as pilot:
        await reading(pilot, session, "a", "b")
        await pilot.press("left_curly_bracket", "left_curly_bracket")
        await until(pilot, lambda: screen_text(pilot.app).startswith(" Transcript\n❯ a"))
        await pilot.press("right_curly_bracket")
        await until(pilot, lambda: "❯ b" in screen_text(pilot.app))


async def test_question_closes_the_reader():
    asked = PermissionAsked("q1", CALL, "read", Display("read x", Plain("x")), "outside", "")
    gate = Wait()
    session = FakeSession([[gate, asked]])
    async with screen_of(session).run_test(size=(60, 20)) as pilot:
        await opened(pilot)
        await pilot.press("a", "enter")
        await until(pilot, lambda: session.running)
        await pilot.press("ctrl+o", "ctrl+o")
        gate.until.set()
        await until(pilot, lambda: "Allow?" in screen_text(pilot.app))
        assert "q closes" not in screen_text(pilot.app)


async def test_one_card_is_unfolded_by_keys_alone():
    cards = [
        event
        for name in ("one", "two")
        for event in (
            ToolStarted(ToolCall(name, "skill", {}), name),
            ToolFinished(name, "skill", Display("1 line", Plain(f"inside {name}")), False, 0.0),
        )
    ]
    session = FakeSession([[*cards, TextDelta("the end")]])
    async with screen_of(session).run_test(size=(60, 16)) as pilot:
        await opened(pilot)
        await pilot.press("a", "enter")
        await until(pilot, lambda: "the end" in screen_text(pilot.app) and not pilot.app.turns.busy)
        await pilot.press("alt+o")
        assert "inside two" in screen_text(pilot.app)
        assert "inside one" not in screen_text(pilot.app)
        await pilot.press("alt+o", "alt+up")
        assert "❯ ✓ use the skill one" in screen_text(pilot.app)
        await pilot.press("alt+o")
        assert "inside one" in screen_text(pilot.app)
        assert "inside two" not in screen_text(pilot.app)
        await pilot.press("alt+down", "alt+down")
        assert "❯ ✓" not in screen_text(pilot.app)
