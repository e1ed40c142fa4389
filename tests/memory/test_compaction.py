"""Which messages a summary replaces, which are kept, and that the rest can be sent."""

import random

import pytest

from ouro.memory.backend import CompactionRecord, MessageRecord, PinRecord
from ouro.memory.compaction import (
    compaction_limit,
    format_files,
    parse_files,
    plan_compaction,
    quote_messages,
    scale_tokens,
)
from ouro.memory.short_term import make_sendable, strip_message
from ouro.memory.transcript import Transcript
from ouro.messages import Context, Image, Message, Text, ToolCall, ToolReply, assistant, tool, user
from ouro.settings import CompactionSettings

AT = "2026-11-21T20:14:03.120Z"
ROOMY = {
    "max_verbatim_tokens": 20_000,
    "max_tail_tokens": 0,
    "max_last_round_tokens": 20_000,
}


def entries(*messages):
    return [MessageRecord(number, AT, message) for number, message in enumerate(messages, 1)]


def call(call_id):
    return ToolCall(call_id, "shell", {})


def reply(call_id, text="done"):
    return ToolReply(call_id, "shell", text)


def plan(sent, before=None, pins=(), **room):
    return plan_compaction(sent, before, pins, **{**ROOMY, **room})


def numbers(found):
    return [entry.number for entry in found]


def test_compaction_limit_follows_the_window():
    limits = [compaction_limit(CompactionSettings(), window) for window in (200_000, 64_000, 8_192)]
    assert limits == [160_000, 48_000, 6_144]
    assert compaction_limit(CompactionSettings(at=0.5, reserve=0), 100_000) == 50_000


def test_user_messages_are_kept_and_the_last_round_stays():
    sent = entries(
        user("Never push."),
        assistant("Fine."),
        user("Mend it."),
        assistant("", call("1")),
        tool(reply("1")),
    )
    found = plan(sent)
    assert (found.covers, found.kept) == ((1, 3), (1, 3))
    assert (numbers(found.covered), numbers(found.tail)) == ([1, 2, 3], [4, 5])


def test_tail_keeps_whole_rounds_that_fit():
    rounds = [
        each
        for n in range(9)
        for each in (assistant("", call(str(n))), tool(reply(str(n), "x" * 350)))
    ]
    found = plan(entries(user("go"), *rounds), max_tail_tokens=320)
    assert numbers(found.tail) == [14, 15, 16, 17, 18, 19]


def test_last_round_that_fills_the_window_is_summarized():
    sent = entries(user("go"), assistant("", call("1")), tool(reply("1", "x" * 99_000)))
    assert numbers(plan(sent, max_last_round_tokens=20_000).tail) == []
    assert plan(sent, max_last_round_tokens=30_000).covers == (1, 1)


def test_calls_that_wait_for_their_answer_are_never_covered():
    sent = entries(
        user("go"),
        assistant("a"),
        user("on"),
        assistant("", call("1"), call("2")),
        tool(reply("1")),
    )
    assert numbers(plan(sent, max_last_round_tokens=0).tail) == [4, 5]
    steered = [*sent, MessageRecord(6, AT, user("stop"))]
    assert numbers(plan(steered, max_last_round_tokens=0).tail) == [4, 5, 6]


def test_no_plan_if_only_the_last_round_is_left():
    assert plan([]) is None
    assert plan(entries(user("go"))) is None
    sent = [MessageRecord(1, AT, user("Never push.")), MessageRecord(9, AT, assistant("Fine."))]
    assert plan(sent, CompactionRecord(8, AT, (1, 7), (1,), "…")) is None


def test_first_message_pins_and_newest_messages_are_kept_in_order():
    sent = entries(
        user("a" * 350),
        *(user(letter * 350) for letter in "bcde"),
        assistant("pinned " * 50),
        user("f" * 350),
        assistant("end"),
    )
    assert plan(sent, pins={6}, max_verbatim_tokens=420).kept == (1, 5, 6, 7)
    assert plan(sent, pins={6}, max_verbatim_tokens=210).kept == (1, 6)
    assert plan(sent, max_verbatim_tokens=0).kept == ()


def test_oversized_message_is_quoted_shortened_and_others_kept():
    log = "START " + "x" * 90_000 + " END"
    found = plan(
        entries(user("Never push."), user(log), user("Use tabs."), assistant("end")),
        max_verbatim_tokens=2_000,
    )
    assert (found.kept, numbers(found.quoted)) == ((1, 3), [2])
    quoted = quote_messages(found.quoted)
    assert quoted.startswith("Message 2:\n> START xxx")
    assert "[… 88,410 characters are left out …]" in quoted
    assert quoted.endswith(" END")


def test_context_from_ouro_does_not_count_as_user_message():
    nested = Message("user", (Context("<instructions>Use tabs.</instructions>"),))
    picture = Message("user", (Image("image/png", b"p"),))
    found = plan(entries(user("go"), nested, picture, assistant("end")))
    assert found.kept == (1, 3)


def test_second_compaction_covers_the_first_and_keeps_its_messages():
    before = CompactionRecord(5, AT, (1, 4), (1,), "First we looked.")
    sent = [
        MessageRecord(1, AT, user("Never push.")),
        MessageRecord(6, AT, user("on")),
        MessageRecord(7, AT, assistant("a")),
    ]
    found = plan(
        [*sent, MessageRecord(8, AT, user("and")), MessageRecord(9, AT, assistant("b"))], before
    )
    assert (found.covers, found.kept) == ((1, 8), (1, 6, 8))


def test_file_lists_of_earlier_summaries_are_merged():
    summary = (
        "## Goal\nMend it.\n\n"
        + format_files(["- read `a.py`", "- changed `b.py`"])
        + "\n\n## Plan\n- [ ] x"
    )
    assert parse_files(summary) == ["- read `a.py`", "- changed `b.py`"]
    again = format_files([*parse_files(summary), "- read `a.py`", "- changed `c.py`"])
    assert parse_files(again) == ["- changed `b.py`", "- read `a.py`", "- changed `c.py`"]
    assert parse_files("## Rules\n- Never push.") == []
    assert format_files([]) == ""
    assert len(parse_files(format_files(f"- read `{n}`" for n in range(99)))) == 30


def test_remaining_tokens_are_scaled_to_the_provider_figure():
    sent = [user("x" * 35_000)]
    assert scale_tokens(22_000, sent, [user("x" * 3_500)], 1_000) == 4_000


def any_records(rng):
    """A random session: turns, calls with and without results, steering, cut answers, pins, images."""
    records, number, calls = [], 0, 0

    def put(message):
        nonlocal number
        number += 1
        records.append(MessageRecord(number, AT, message))

    for _ in range(rng.randint(1, 12)):
        put(
            user(
                rng.choice("abc") * rng.randint(0, 900),
                [Image("image/png", b"p")] * rng.randint(0, 1),
            )
        )
        for _ in range(rng.randint(0, 4)):
            made = [call(f"c{(calls := calls + 1) % 40}") for _ in range(rng.randint(0, 3))]
            put(
                Message(
                    "assistant", (Text("t" * rng.randint(0, 300)), *made), cut=rng.random() < 0.1
                )
            )
            if made and rng.random() < 0.9:
                answered = rng.sample(made, rng.randint(0, len(made)))
                put(tool(*(reply(each.id, "o" * rng.randint(0, 2_000)) for each in answered)))
            if rng.random() < 0.1:
                put(user("steer"))
        if rng.random() < 0.3:
            records.append(PinRecord(rng.randint(1, number), AT, rng.random() < 0.8))
    return records


def is_sendable(messages) -> bool:
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message.role == "tool":
            if [part.call_id for part in message.parts] != waiting:
                return False
            waiting = []
        elif waiting:
            return False
        if message.role == "assistant":
            waiting = [each.id for each in message.tool_calls]
            if seen & set(waiting) or (message.cut and waiting):
                return False
            seen |= set(waiting)
    return not waiting and bool(messages)


SEEDS_OF_A_TEST = 50


@pytest.mark.parametrize("first", range(0, 300, SEEDS_OF_A_TEST))
def test_compaction_of_any_transcript_leaves_a_sendable_one(first):
    for seed in range(first, first + SEEDS_OF_A_TEST):
        check_compactions_of_any_transcript(seed)


def check_compactions_of_any_transcript(seed):
    rng = random.Random(seed)
    transcript, done = Transcript(), 0
    records = []
    for _ in range(rng.randint(1, 4)):
        for record in any_records(rng):
            if isinstance(record, MessageRecord):
                record = MessageRecord(transcript.next_number, AT, record.message)
            transcript.add_record(record)
            records.append(record)
        sent = transcript.sent_entries()
        found = plan_compaction(
            sent,
            transcript.compaction,
            transcript.pins,
            max_verbatim_tokens=rng.randint(0, 3_000),
            max_tail_tokens=rng.randint(0, 900),
            max_last_round_tokens=700,
        )
        if found is None:
            continue
        done += 1
        made = CompactionRecord(
            transcript.next_number, AT, found.covers, found.kept, f"Summary {done}."
        )
        transcript.add_record(made)
        records.append(made)
        messages = make_sendable(transcript.sent())
        assert messages == found.will_be_sent(made.summary, frozenset())
        assert is_sendable(messages)
        assert messages[0].role == "user"
        for entry in sent:
            if entry.number in found.kept:
                assert strip_message(entry.message) in messages
        assert {entry.number for entry in found.tail} == {
            entry.number for entry in transcript.sent_entries() if entry.number not in found.kept
        }
        again = Transcript()
        for record in records:
            again.add_record(record)
        assert make_sendable(again.sent()) == messages


def test_lost_reports_kept_messages_that_would_not_be_sent():
    sent = entries(user("Never push."), assistant("Fine."), user("Use tabs."), assistant("end"))
    found = plan(sent)
    messages = found.will_be_sent("…", frozenset())
    assert found.find_lost(messages) == ()
    assert found.find_lost(messages[1:]) == (1,)
