"""Each event, and how the transcript shows it."""

import pytest
from fakes.screens import TranscriptApp

from ouro.display import (
    CommandOutput,
    Diff,
    Display,
    FileChange,
    Picture,
    Plain,
    Question,
    Todo,
    Todos,
)
from ouro.events import (
    Compacted,
    Compacting,
    Notice,
    PermissionAsked,
    Prompted,
    QuestionAsked,
    QuestionClosed,
    Replied,
    Retrying,
    SubagentProgress,
    TextDelta,
    ThinkingDelta,
    TodosChanged,
    ToolFinished,
    ToolProgress,
    ToolRunning,
    ToolStarted,
    TurnFinished,
    UsageUpdated,
)
from ouro.messages import Image, Message, Text, Thinking, ToolCall, Usage, assistant

CALL = ToolCall("c", "shell", {})
STARTED = ToolStarted(CALL, "shell pytest")
RUNNING = ToolRunning("c")


async def lines_of(*events, size=(80, 20)):
    app = TranscriptApp(*events)
    async with app.run_test(size=size):
        return app.lines()


def finished(body=None, summary="ok", failed=False, seconds=2.0):
    return ToolFinished("c", "shell", Display(summary, body), failed, seconds)


async def test_long_title_leaves_room_for_the_summary():
    app = TranscriptApp(
        ToolStarted(CALL, "shell " + "echo " * 60), finished(summary="3 lines, 0.0 s")
    )
    async with app.run_test(size=(60, 20)):
        head = "".join(
            segment.text
            for strip in app.screen._compositor.render_strips()[:1]
            for segment in strip
        )
        assert "… · 3 lines, 0.0 s " in head


async def test_prompt_with_a_picture_shows_its_name():
    assert await lines_of(
        Prompted("look\n  here", (Image("image/png", b"", "a.png"), Image("image/png", b"")))
    ) == [
        "❯ look",
        "    here",
        "  [image: a.png]",
        "  [image: image/png]",
    ]


async def test_thinking_is_folded_with_its_time_and_size():
    app = TranscriptApp(ThinkingDelta("one two "), ThinkingDelta("three"))
    async with app.run_test(size=(60, 20)):
        app.now += 4
        app.transcript._redraw_clocks()
        app.transcript._draw()
        assert app.lines() == ["  ▸ Thinking… 4.0 s · 3 words"]
        app.show(TextDelta("so"))
        assert app.lines() == ["  ▸ Thought for 4.0 s · 3 words · Ctrl+O", "", "  so"]
        app.transcript.toggle_outputs()
        assert app.lines() == ["  ▾ Thought for 4.0 s · 3 words", "  │ one two three", "", "  so"]


async def test_a_reply_that_was_not_streamed_is_shown_whole():
    message = Message("assistant", (Thinking("hm"), Text("first"), Text("second"), CALL))
    assert await lines_of(Replied(message)) == [
        "  ▸ Thought · 1 word · Ctrl+O",
        "",
        "  first",
        "",
        "  second",
    ]


async def test_text_streamed_before_a_retry_is_removed():
    retry = Retrying("Too many requests.", 2, 4.0, "m")
    events = (Prompted("x"), TextDelta("half an ans"), retry)
    assert await lines_of(*events) == [
        "❯ x",
        "",
        "! Warning: Too many requests. Asking m again in 4 s (attempt 2). Esc ends it.",
    ]
    assert await lines_of(*events, TextDelta("whole"), Replied(assistant("whole"))) == [
        "❯ x",
        "",
        "  whole",
    ]
    fallback = await lines_of(Retrying("Too many requests.", 1, 0.0, "n"))
    assert fallback == ["! Warning: Too many requests. Asking n instead. Esc ends it."]


async def test_a_call_that_runs_shows_the_end_of_its_output():
    output = "".join(f"{n}\n" for n in range(8))
    assert await lines_of(
        STARTED, RUNNING, ToolProgress("c", output[:4]), ToolProgress("c", output[4:])
    ) == [
        "  ⠋ run pytest",
        "    … 3 lines before · Ctrl+O",
        *(f"    {n}" for n in range(3, 8)),
    ]


@pytest.mark.parametrize(("failed", "sign"), [(False, "$"), (True, "✗")])
async def test_finished_call_shows_success_or_failure_by_its_sign(failed, sign):
    assert await lines_of(STARTED, finished(summary="3 passed", failed=failed)) == [
        f"  {sign} run pytest · 3 passed · 2.0 s"
    ]


async def test_call_waiting_for_approval_is_marked():
    asked = PermissionAsked("q", CALL, "t", Display(""), "r", "shell(pytest)")
    assert await lines_of(STARTED, asked) == ["  ? run pytest · waiting for approval"]
    assert await lines_of(STARTED, asked, QuestionClosed("q")) == ["  · run pytest · waiting"]
    assert await lines_of(STARTED, asked, QuestionClosed("q"), RUNNING) == ["  ⠋ run pytest"]


async def test_call_behind_the_question_of_another_does_not_look_as_if_it_ran():
    other = ToolStarted(ToolCall("d", "shell", {}), "git push --force")
    asked = PermissionAsked("q", CALL, "t", Display(""), "r", "shell(pytest)")
    waiting = "  · git push --force · waiting"
    assert await lines_of(STARTED, other, asked) == [
        "  ? run pytest · waiting for approval",
        waiting,
    ]
    assert await lines_of(STARTED, other, asked, QuestionClosed("q"), RUNNING) == [
        "  ⠋ run pytest",
        waiting,
    ]


@pytest.mark.parametrize("state", ["thinking", "answering"])
async def test_subagent_state_is_shown_before_its_first_call(state):
    begun = SubagentProgress("c", "explore-1", "find it", state, "", 0, Usage())
    assert (await lines_of(STARTED, begun))[0].startswith(f"  ⠋ explore-1: find it · {state}")
    called = SubagentProgress(
        "c", "explore-1", "find it", state, "grep it", 1, Usage(400, 0, 0, 80)
    )
    shown = await lines_of(STARTED, called)
    assert shown[0].startswith(f"  ⠋ explore-1: find it · {state} · 1 tool call, 480 tokens")
    assert "grep it" in shown[1]


async def test_parallel_calls_keep_their_places():
    other = ToolStarted(ToolCall("d", "read", {}), "read a.py")
    assert await lines_of(
        STARTED, other, ToolFinished("d", "read", Display("1 line"), False, 0.0), finished()
    ) == [
        "  $ run pytest · ok · 2.0 s",
        "  → read a.py · 1 line",
    ]


async def test_unanswered_calls_are_stopped_at_the_end_of_the_turn():
    assert await lines_of(STARTED, TurnFinished("interrupted")) == [
        "  ■ run pytest · stopped",
        "",
        "· Interrupted.",
    ]


async def test_finished_call_without_a_start_is_shown():
    assert await lines_of(finished()) == ["  $ shell · ok · 2.0 s"]


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (Plain("x = 1\n", "python"), []),
        (CommandOutput("ls", "a\nb\n", 0), ["    a", "    b"]),
        (CommandOutput("ls", "", 0), []),
        (Picture("a.png", "image/png", 2048), ["    [image: a.png] image/png, 2 KB"]),
        (
            Todos((Todo("a", "done"), Todo("b", "in_progress"), Todo("c"))),
            [],  # the panel shows them
        ),
        (Diff((FileChange("f", "a\n", "b\n"),)), ["    f  +1 −1", "    1 - a", "    1 + b"]),
    ],
)
async def test_each_body_type_is_shown_folded(body, shown):
    assert await lines_of(STARTED, finished(body)) == ["  $ run pytest · ok · 2.0 s", *shown]


async def test_long_output_is_folded_with_its_size_and_opens():
    body = CommandOutput("run it", "".join(f"{n}\n" for n in range(50)), 3)
    app = TranscriptApp(STARTED, finished(body, failed=True))
    async with app.run_test(size=(60, 80)):
        assert app.lines()[1:3] == ["    … 44 lines before · Ctrl+O", "    44"]
        app.transcript.toggle_outputs()
        assert app.lines()[1:] == [
            "    $ run it",
            *(f"    {n}" for n in range(50)),
            "    exit code 3",
        ]


async def test_failed_call_shows_its_error_unfolded():
    shown = await lines_of(
        STARTED, finished(Plain("Text not found.\nRead the file again."), failed=True)
    )
    assert shown[1:] == ["    Text not found.", "    Read the file again."]


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        (Notice("saved"), "· saved"),
        (Notice("look out", "warning"), "! Warning: look out"),
        (Notice("lost", "error"), "✗ Error: lost"),
        (TurnFinished("failed", "No model."), "✗ Error: The turn failed: No model."),
        (
            TurnFinished("limit", "Stopped after 20 model calls."),
            "✗ Error: Stopped after 20 model calls.",
        ),
        (TurnFinished("answered"), ""),
        (TodosChanged((Todo("a"),)), ""),
        (UsageUpdated(Usage(), 1, 2), ""),
        (QuestionAsked("q", Question("why?")), ""),
        (QuestionClosed("q"), ""),
    ],
)
async def test_other_events_are_shown_as_one_line_or_nothing(event, shown):
    assert await lines_of(event) == [shown]


async def test_long_title_is_cut_to_keep_the_summary_readable():
    title = "shell " + "x" * 100
    assert (await lines_of(ToolStarted(CALL, title), finished(summary="exit 1"), size=(40, 5)))[
        0
    ].endswith("… · exit 1 · 2.0 s")


async def test_a_compaction_is_a_card_that_unfolds_to_its_receipt():
    used = Usage(input=80_100, cached=79_000, output=400, cost=0.02)
    app = TranscriptApp(
        Compacting(), Compacting(0, 1, 3), Compacting(0, 2, 3), Compacting(800, 2, 3)
    )
    async with app.run_test(size=(80, 20)):
        assert app.lines() == ["  ⠋ compact the session", "    part 1 of 3", "    part 2 of 3"]
        app.show(Compacted(80_000, 9_000, 40, 3, 2, "## Goal\nMend\x1b[2J it.", used))
        assert app.lines() == [
            "  ✓ compact the session · 80,000 → 9,000 tokens; 40 messages summarized, 3 kep…"
        ]
        app.transcript.toggle_outputs()
        assert app.lines()[1:] == [
            "    - 80,000 tokens before, 9,000 after: 89% less",
            "    - 40 messages were summarized; 3 are still sent word for word",
            "    - 2 old tool outputs are no longer sent",
            "    - the summary took 80,100 tokens read (79,000 cached), 400 written, $0.02",
            "    - the session file keeps every message",
            "",
            "    ## Goal",
            "    Mend it.",
        ]


async def test_failed_compaction_stops_and_one_without_summary_counts_drops():
    assert await lines_of(
        Compacting(), Notice("It failed.", "warning"), Compacted(9_000, 5_000, 0, 0, 7, "")
    ) == [
        "  ■ compact the session · stopped",
        "",
        "! Warning: It failed.",
        "",
        "  ✓ compact the session · 9,000 → 5,000 tokens; 7 old tool outputs dropped",
    ]
