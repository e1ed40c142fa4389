"""What a viewer gets that comes in the middle of a turn."""

from ouro.display import Display
from ouro.events import (
    Notice,
    PermissionAsked,
    Prompted,
    QuestionClosed,
    Replied,
    Retrying,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolProgress,
    ToolRunning,
    ToolStarted,
    TurnFinished,
)
from ouro.messages import ToolCall, assistant
from ouro.session.unsaved_events import MAX_OUTPUT, UnsavedEvents

CALL = ToolCall("c1", "shell", {"command": "make"})
ASKED = PermissionAsked("q1", CALL, "make", Display(""), "it runs", "")


def live_of(*events):
    live = UnsavedEvents()
    for event in events:
        live.add(event)
    return live


def test_a_streamed_answer_is_whole_until_it_is_saved():
    live = live_of(
        Prompted("hi"), ThinkingDelta("H"), ThinkingDelta("m"), TextDelta("a"), TextDelta("b")
    )
    assert list(live.since(())) == [ThinkingDelta("Hm"), TextDelta("ab")]
    live.add(Replied(assistant("ab")))
    assert list(live.since(())) == []


def test_a_repeated_model_call_begins_again():
    retry = Retrying("busy", 2, 1.0, "m")
    assert list(live_of(TextDelta("half"), retry, TextDelta("new")).since(())) == [
        retry,
        TextDelta("new"),
    ]


def test_running_calls_come_with_the_end_of_their_output():
    started, running = ToolStarted(CALL, "make"), ToolRunning("c1")
    live = live_of(
        started, running, ToolProgress("c1", "x" * MAX_OUTPUT), ToolProgress("c1", "end")
    )
    shown = list(live.since(()))
    assert shown[:2] == [started, running]
    assert (len(shown[2].text), shown[2].text[-3:]) == (MAX_OUTPUT, "end")
    finished = ToolFinished("c1", "shell", Display("ok"), False, 1.0)
    live.add(finished)
    assert list(live.since(()))[-1] == finished
    assert list(live.since({"c1"})) == []


def test_the_reason_why_a_turn_failed_stays_until_the_next_one():
    failed = TurnFinished("failed", "No server.")
    live = live_of(Prompted("hi"), TextDelta("half"), failed)
    assert (list(live.since(())), live.last_line) == ([failed], "No server.")
    live.add(Prompted("again"))
    assert (list(live.since(())), live.last_line) == ([], "again")
    live.add(TurnFinished("answered"))
    assert list(live.since(())) == []


def test_open_questions_are_known_until_they_are_closed_or_their_turn_ends():
    live = live_of(ASKED)
    assert list(live.asked) == ["q1"]
    live.add(QuestionClosed("q1"))
    assert list(live.asked) == []
    live.add(ASKED)
    live.end_turn()
    assert list(live.asked) == []


def test_the_last_line_has_words():
    assert (
        live_of(TextDelta("Done:\n\n```\nall"), TextDelta(" good\n```\n")).last_line == "all good"
    )
    assert live_of(Notice("Broken.", "error")).last_line == "Broken."
    assert UnsavedEvents().last_line == ""
