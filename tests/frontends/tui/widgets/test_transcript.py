"""The transcript widget: its scroll position, what it keeps, what can be copied."""

import pytest
from fakes.screens import TranscriptApp, until
from rich.cells import cell_len
from textual.geometry import Offset
from textual.scrollbar import ScrollBar
from textual.selection import SELECT_ALL, Selection
from textual.strip import Strip

from ouro.display import CommandOutput, Display, Plain
from ouro.events import Prompted, Replied, TextDelta, ToolFinished, ToolStarted
from ouro.frontends.tui.blocks.messages import AnswerBlock, NoticeBlock, UserMessage
from ouro.frontends.tui.transcript_writer import blocks_of
from ouro.messages import ToolCall, assistant

SIZE = (40, 10)


def numbered_lines(count, start=0):
    return "\n\n".join(f"line {n}" for n in range(start, start + count))


def card(call_id="c", body="body\nof it", tool="read"):
    title = f"read {call_id}" if tool == "read" else call_id
    return (
        ToolStarted(ToolCall(call_id, tool, {}), title),
        ToolFinished(call_id, tool, Display("2 lines", Plain(body)), False, 0.0),
    )


async def test_hint_for_hidden_lines_is_not_used_for_a_single_line():
    for count, first in ((7, "row 0"), (8, "… 2 lines before · Ctrl+O")):
        body = CommandOutput("seq", "\n".join(f"row {n}" for n in range(count)), 0)
        app = TranscriptApp(ToolFinished("c", "shell", Display("", body), False, 0.0))
        async with app.run_test(size=SIZE):
            assert app.lines()[1].strip() == first


async def test_view_follows_a_growing_answer():
    app = TranscriptApp()
    async with app.run_test(size=SIZE):
        for n in range(20):
            app.show(TextDelta(f"line {n}\n\n"))
        assert app.lines()[-1] == "  line 19"
        assert app.transcript.following


async def test_new_lines_do_not_arrange_the_screen_again():
    app = TranscriptApp(TextDelta("line 0\n\n"))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        layouts = []
        app.screen.screen_layout_refresh_signal.subscribe(app.transcript, layouts.append)
        for n in range(1, 20):
            app.show(TextDelta(f"line {n}\n\n"))
            await pilot.pause()
        assert app.lines()[-1] == "  line 19"
        assert app.transcript.vertical_scrollbar.window_virtual_size == 39
        assert layouts == []


async def test_scrolled_view_stays_and_counts_new_lines():
    app = TranscriptApp(TextDelta(numbered_lines(20)))
    async with app.run_test(size=SIZE) as pilot:
        app.transcript.action_page_up()
        await pilot.pause()
        before = app.lines()
        app.show(TextDelta("\n\nmore\n\nand more"))
        assert app.lines()[:9] == before[:9]
        assert app.lines()[9] == "  ↓ 4 new lines"
        assert not app.transcript.following


async def test_queued_messages_stay_in_sight_while_the_user_reads_above():
    app = TranscriptApp(TextDelta(numbered_lines(20)))
    async with app.run_test(size=SIZE) as pilot:
        app.transcript.set_queued(["the first"], ["the second", "a third", "a fourth"])
        app.transcript.action_page_up()
        await pilot.pause()
        assert [line.strip() for line in app.lines()[-3:]] == [
            "→ steers: the first",
            "⋯ next turn: the second",
            "… 2 more queued messages",
        ]
        app.transcript.set_queued([], ["the second"])
        await until(pilot, lambda: app.lines()[-1] == "  ⋯ next turn: the second")
        app.transcript.follow()
        await pilot.pause()
        assert [line.strip() for line in app.lines()[-3:]] == [
            "line 19",
            "",
            "⋯ next turn: the second",
        ]


async def test_prepended_blocks_do_not_move_the_view():
    reached = []

    class Watching(TranscriptApp):
        def on_transcript_view_top_reached(self):
            reached.append("top")

    app = Watching(*(Prompted(f"question {n}") for n in range(20)))
    async with app.run_test(size=SIZE) as pilot:
        app.transcript.action_scroll_home()
        await pilot.pause()
        before = app.lines()
        older = [Prompted(f"older {n}") for n in range(5)]
        app.transcript.prepend(blocks_of([*older, *card()], app.transcript))
        assert app.lines() == before
        app.transcript.action_page_up()
        assert "older 4" in "\n".join(app.lines())
        app.transcript.action_scroll_home()
        assert "older 0" in "\n".join(app.lines()[:2])
        app.transcript.action_scroll_home()
        await pilot.pause()
    assert len(reached) == 3


async def test_page_above_is_drawn_in_advance():
    app = TranscriptApp(*(Prompted(f"question {n}") for n in range(40)))
    async with app.run_test(size=SIZE) as pilot:
        blocks = app.transcript.blocks
        assert [bool(block.last_lines) for block in blocks[:35]] == [False] * 35
        app.transcript.action_page_up()
        await until(pilot, lambda: sum(bool(block.last_lines) for block in blocks) >= 14)
        shown = app.lines()
        await pilot.pause()
        assert app.lines() == shown
        drawn = [bool(block.last_lines) for block in blocks]
        app.transcript.action_page_up()
        assert [bool(block.last_lines) for block in blocks] == drawn  # this page was not drawn


async def test_the_end_key_and_a_click_on_the_hint_follow_again():
    app = TranscriptApp(TextDelta(numbered_lines(20)))
    async with app.run_test(size=SIZE) as pilot:
        app.transcript.action_scroll_home()
        app.show(TextDelta("\n\nlast"))
        assert app.lines()[0] == "  line 0"
        await pilot.click(offset=(3, 9))
        assert app.lines()[-1] == "  last"
        app.transcript.action_scroll_home()
        app.transcript.action_scroll_end()
        assert (app.lines()[-1], app.transcript.following) == ("  last", True)


async def test_keys_and_wheel_scroll_by_lines_and_pages():
    app = TranscriptApp(TextDelta(numbered_lines(30)))
    async with app.run_test(size=SIZE) as pilot:
        app.transcript.focus()
        end = app.transcript.scroll_offset.y
        await pilot.press("pageup", "up")
        assert app.transcript.scroll_offset.y == end - 10
        await pilot.press("home")
        assert app.lines()[0] == "  line 0"
        await pilot.press("end")
        assert app.transcript.following


async def test_scrolling_up_through_blocks_never_drawn_does_not_jump():
    app = TranscriptApp(*(Replied(assistant(numbered_lines(7, start=10 * n))) for n in range(50)))
    async with app.run_test(size=SIZE):
        seen = app.lines()[0]
        for _ in range(60):
            app.transcript.action_scroll_up()
            assert app.lines()[1] == seen
            seen = app.lines()[0]


async def test_a_resize_keeps_the_words_of_a_long_answer_on_top():
    app = TranscriptApp(TextDelta(" ".join(f"w{n:04}" for n in range(2000))))
    async with app.run_test(size=(84, 10)) as pilot:
        app.transcript.step(-20)
        await pilot.pause()
        for width in (44, 24, 84):
            await pilot.resize_terminal(width, 10)
            await until(pilot, lambda width=width: app.transcript.outer_size.width == width)
            assert 1580 <= int(app.lines()[0].split()[0][1:]) <= 1640
            assert "new line" not in app.lines()[9]


async def test_a_resize_keeps_the_line_that_is_read_on_top():
    app = TranscriptApp(*(Replied(assistant(f"message {n} " + "word " * 40)) for n in range(200)))
    async with app.run_test(size=SIZE) as pilot:
        app.transcript.action_scroll_home()
        app.transcript.step(333)
        await pilot.pause()
        block, _ = app.transcript._blocks.block_at(app.transcript.scroll_offset.y)
        for width in (80, 20, 40):
            await pilot.resize_terminal(width, 10)
            await until(pilot, lambda width=width: app.transcript.outer_size.width == width)
            assert app.transcript._blocks.block_at(app.transcript.scroll_offset.y)[0] is block


async def test_only_visible_blocks_are_drawn():
    app = TranscriptApp(*(Replied(assistant(numbered_lines(5))) for _ in range(1000)))
    async with app.run_test(size=SIZE):
        assert sum(block._is_drawn for block in app.transcript._blocks.blocks) < 10


async def test_finished_blocks_are_not_redrawn_while_another_grows():
    app = TranscriptApp(Prompted("hello"), Replied(assistant("first")), TextDelta("grow"))
    async with app.run_test(size=SIZE):
        first = app.transcript._blocks.blocks[1].last_lines
        app.show(TextDelta("ing"))
        assert app.transcript._blocks.blocks[1].last_lines is first
        assert app.lines()[-1] == "  growing"


async def test_click_opens_and_folds_a_card():
    app = TranscriptApp(Prompted("x"), *card())
    async with app.run_test(size=SIZE) as pilot:
        assert app.lines() == ["❯ x", "", "  → read c · 2 lines"]
        await pilot.click(offset=(5, 2))
        assert app.lines() == ["❯ x", "", "  → read c · 2 lines", "    body", "    of it"]
        await pilot.click(offset=(5, 2))
        assert app.lines() == ["❯ x", "", "  → read c · 2 lines"]


async def test_all_outputs_open_and_fold_at_once():
    app = TranscriptApp(*card("a"), *card("b"))
    async with app.run_test(size=SIZE):
        app.transcript.toggle_outputs()
        assert app.lines().count("    body") == 2
        app.transcript.toggle_outputs()
        assert app.lines() == ["  → read 2 files · a, b"]


async def test_opening_all_while_reading_keeps_the_line_on_top():
    events = (event for n in range(60) for event in card(f"c{n}", "x\n" * 20, "skill"))
    app = TranscriptApp(*events)
    async with app.run_test(size=SIZE) as pilot:
        app.transcript.action_scroll_home()
        app.transcript.step(30)
        await pilot.pause()
        assert app.lines()[0] == "  ✓ use the skill c30 · 2 lines"
        app.transcript.toggle_outputs()
        assert app.lines()[:2] == ["  ✓ use the skill c30 · 2 lines", "    x"]


async def test_queued_messages_are_shown_below_everything():
    app = TranscriptApp(Prompted("first"))
    async with app.run_test(size=SIZE):
        app.transcript.set_queued((), ["and then\nthis"])
        app.show(TextDelta("answer"))
        assert app.lines() == ["❯ first", "", "  answer", "", "  ⋯ next turn: and then this"]
        app.transcript.set_queued((), [])
        app.transcript._draw()
        assert app.lines() == ["❯ first", "", "  answer"]


async def test_mouse_selection_excludes_margins():
    app = TranscriptApp(
        Prompted("question"), Replied(assistant("some **bold** words\n\n```\ncode = 1\n```"))
    )
    async with app.run_test(size=SIZE) as pilot:
        await pilot.mouse_down(offset=(2, 2))
        await pilot.hover(offset=(30, 4))
        await pilot.mouse_up(offset=(30, 4))
        assert app.screen.get_selected_text() == "some bold words\n\ncode = 1"
        assert any("on " in str(segment.style) for segment in app.strips()[2])


async def test_selection_joins_wrapped_lines():
    app = TranscriptApp(
        Replied(assistant("one two three four five six seven eight nine ten\n\nend"))
    )
    async with app.run_test(size=(20, 10)):
        text, _ = app.transcript.get_selection(Selection(Offset(6, 0), Offset(5, 5)))
        assert text == "two three four five six seven eight nine ten\n\nend"


async def test_copying_all_gives_markdown():
    app = TranscriptApp(Prompted("do *it*"), Replied(assistant("**done**\n\n- a")), *card())
    async with app.run_test(size=SIZE):
        expected = "> do *it*\n\n**done**\n\n- a\n\n`read c`: 2 lines\n\n```\nbody\nof it\n```"
        assert app.transcript.get_selection(SELECT_ALL) == (expected, "\n")
        assert app.transcript.as_markdown() == expected
        assert app.transcript.tail(1) == "  → read c · 2 lines"


async def test_clear_removes_all_blocks():
    app = TranscriptApp(Prompted("x"), TextDelta("y"))
    async with app.run_test(size=SIZE):
        app.transcript.clear()
        app.transcript._draw()
        assert app.lines() == [""]
        app.transcript.add(NoticeBlock("fresh"))
        app.transcript._draw()
        assert app.lines() == ["· fresh"]


async def test_blocks_can_be_added_before_the_widget_is_mounted():
    app = TranscriptApp()
    app.transcript.add(UserMessage("early"))
    async with app.run_test(size=SIZE):
        assert app.lines() == ["❯ early"]


async def test_a_theme_changes_every_line():
    app = TranscriptApp(Replied(assistant("words")))
    async with app.run_test(size=SIZE) as pilot:
        dark = str(app.strips()[0]._segments[0].style)
        app.theme = "textual-light"
        await pilot.pause()
        assert str(app.strips()[0]._segments[0].style) != dark


async def test_every_line_is_as_wide_as_the_screen_also_with_wide_characters():
    app = TranscriptApp(
        Prompted("日本語 🎉 👩‍💻"),
        Replied(assistant("日本語のテキスト" * 9 + "\n\n| 日本 | b |\n|---|---|\n| c | 🎉 |")),
    )
    async with app.run_test(size=(33, 20)):
        assert {cell_len(strip.text) for strip in app.strips()} == {app.transcript.size.width}


@pytest.mark.parametrize("count", [1, 3])
async def test_the_newest_block_of_many_is_in_sight_after_a_replay(count):
    app = TranscriptApp(*(Replied(assistant(numbered_lines(count, n))) for n in range(500)))
    async with app.run_test(size=SIZE):
        assert app.lines()[-1] == f"  line {499 + count - 1}"


async def test_unstreamed_answer_equals_a_streamed_one():
    streamed, whole = (
        TranscriptApp(TextDelta("a *b*"), Replied(assistant("a *b*"))),
        TranscriptApp(Replied(assistant("a *b*"))),
    )
    async with streamed.run_test(size=SIZE):
        shown = streamed.lines()
    async with whole.run_test(size=SIZE):
        assert whole.lines() == shown
        assert isinstance(whole.transcript._blocks.blocks[0], AnswerBlock)


async def test_code_in_a_notice_has_no_backticks_and_is_set_off():
    app = TranscriptApp()
    async with app.run_test(size=SIZE):
        app.transcript.add(NoticeBlock("Use `/diff`.\n  $ echo `date`"))
        assert app.lines()[-2:] == ["· Use /diff.", "    $ echo `date`"]
        lines = app.transcript.blocks[-1].lines(SIZE[0], app.transcript._palette)
        styles = {segment.text: segment.style for segment in lines[0].segments}
        assert styles["/diff"] != styles["Use "]


async def test_a_frame_in_which_nothing_changed_makes_no_row_again(monkeypatch):
    made: list[int] = []
    make = Strip.__init__

    def counted(strip: Strip, *arguments) -> None:
        made.append(1)
        make(strip, *arguments)

    app = TranscriptApp(TextDelta(numbered_lines(50)))
    async with app.run_test(size=SIZE):
        view = app.transcript
        first = view.render_lines(view.size.region)
        monkeypatch.setattr(Strip, "__init__", counted)
        again = view.render_lines(view.size.region)
        assert not made
    assert all(one is other for one, other in zip(first, again, strict=True))


async def test_the_scrollbar_shows_what_the_one_of_textual_shows():
    app = TranscriptApp(TextDelta(numbered_lines(50)))
    async with app.run_test(size=SIZE) as pilot:
        bar = app.transcript.vertical_scrollbar
        for top in (0, 1, 37, 38, 39, 60, 89, 90):
            app.transcript.scroll_to(y=top, animate=False, force=True)
            await pilot.pause()
            region = bar.size.region
            assert list(bar.render_lines(region)) == list(ScrollBar.render_lines(bar, region))
            assert bar.render_lines(region.shrink((2, 0, 1, 0))) == bar.render_lines(region)[2:-1]
