"""The request for a summary, and which answers are used."""

import json

from ouro.memory.summary_request import (
    MAX_STEPS,
    ask_for_summary,
    cut_summary,
    is_summary,
    part_limit,
    split_messages,
    word_limit,
)
from ouro.messages import Context, Image, Message, Text, ToolCall, ToolReply, assistant, tool, user


def request_text(messages) -> str:
    return "".join(part.text for part in messages[-1].parts)


def test_the_focus_and_the_length_are_in_the_request():
    text = request_text([ask_for_summary("the API {of} the parser", 600)])
    assert "The user asks to keep in particular: the API {of} the parser" in text
    assert "At most 600 words." in text
    assert "in particular" not in request_text([ask_for_summary("", 600)])


def test_refusals_and_short_answers_are_no_summary():
    for text in ("", "   ", "I'm sorry, I can't help with that.", "asdf", "x" * 200):
        assert not is_summary(text)
    assert is_summary("## Goal\nMend it.")
    assert is_summary("We mended the parser. " * 30)


def test_overlong_summary_is_cut_at_a_line_with_a_note():
    assert cut_summary(" short \n", 99) == "short"
    assert cut_summary("one\ntwo\nthree", 9) == "one\ntwo\n[the summary was longer and is cut here]"
    assert len(cut_summary("x" * 10_000_000, 1_000)) < 1_100


def test_parts_are_json_lines_with_shortened_outputs():
    messages = [
        Message(
            "user", (Context("Date: today"), Text("Look."), Image("image/png", b"p", "shot.png"))
        ),
        assistant("", ToolCall("1", "shell", {"command": "make"})),
        tool(ToolReply("1", "shell", "a" * 9_000)),
    ]
    [part] = split_messages(messages, 20_000)
    first, second, third = map(json.loads, part.splitlines())
    assert first == {
        "role": "user",
        "added by ouro": "Date: today",
        "text": "Look.",
        "pictures": ["shot.png"],
    }
    assert second == {
        "role": "assistant",
        "calls": [{"tool": "shell", "arguments": '{"command": "make"}'}],
    }
    assert len(third["outputs"][0]["text"]) < 4_100


def test_too_many_parts_lose_the_middle_with_a_note():
    parts = split_messages([user(f"{number} " + "x" * 900) for number in range(100)], 1_000)
    assert len(parts) == MAX_STEPS
    assert '"text": "0 ' in parts[0]
    assert "left out" in parts[2]
    assert '"text": "99 ' in parts[-1]


def test_a_message_longer_than_a_part_is_divided():
    parts = split_messages([user("x" * 5_000)], 2_000)
    assert [len(part) <= 2_000 for part in parts] == [True] * 3


def test_part_and_word_limits_follow_the_window():
    assert part_limit(8_192) < 8_192 * 3.5 / 2
    assert (word_limit(8_000), word_limit(10)) == (5_300, 100)
