"""The transcript that results from records."""

import pytest
from memory.store_contract import HEADER
from msgspec.structs import replace
from properties import given, st

from ouro.memory.backend import (
    CapturedRecord,
    CompactionRecord,
    CostRecord,
    ForkRecord,
    LoadedSession,
    MessageRecord,
    ModelRecord,
    PinRecord,
    RecalledRecord,
    Record,
    RewindRecord,
    SummaryRecord,
    TitleRecord,
)
from ouro.memory.message_tree import TranscriptBranch
from ouro.memory.short_term import INTERRUPTED, make_sendable, replace_by_summary
from ouro.memory.transcript import Transcript
from ouro.messages import Message, Text, ToolCall, ToolReply, Usage, assistant, tool, user


def prompt(number: int, text: str = "") -> MessageRecord:
    return MessageRecord(number, "", user(text or f"m{number}"))


def compaction(
    number: int, covers: tuple[int, int], kept: tuple[int, ...] = (), **more
) -> CompactionRecord:
    return CompactionRecord(
        number, "", covers, kept, more.pop("summary", f"up to {covers[1]}"), **more
    )


def fold(
    *records: Record, is_whole: bool = True, kept: tuple[MessageRecord, ...] = ()
) -> Transcript:
    return Transcript.of(LoadedSession(HEADER, records, kept=kept, offset=0 if is_whole else 100))


def texts(entries) -> list[str]:
    return [each.message.text for each in entries]


def test_messages_are_in_file_order():
    transcript = fold(prompt(1), prompt(2), prompt(3))

    assert transcript.entries == tuple(
        MessageRecord(number, "", user(f"m{number}")) for number in (1, 2, 3)
    )
    assert (transcript.next_number, transcript.last_number, transcript.branches) == (4, 3, ())


def test_missing_and_duplicate_numbers_are_replaced():
    transcript = fold(prompt(1), prompt(3), prompt(0, "added"), prompt(3, "copied"), prompt(2))

    assert texts(transcript.entries) == ["m1", "m3", "added", "copied", "m2"]
    assert [each.number for each in transcript.entries] == [1, 3, 4, 5, 2]
    assert transcript.next_number == 6


def test_rewind_makes_later_messages_a_branch():
    transcript = fold(prompt(1), prompt(2), prompt(3), RewindRecord(1, ""), prompt(4))

    assert texts(transcript.entries) == ["m1", "m4"]
    assert transcript.branches == (
        TranscriptBranch(1, (MessageRecord(2, "", user("m2")), MessageRecord(3, "", user("m3")))),
    )

    transcript.add_record(RewindRecord(3, ""))
    transcript.add_record(prompt(5))

    assert texts(transcript.entries) == ["m1", "m2", "m3", "m5"]
    assert [(each.since, texts(each.entries)) for each in transcript.branches] == [(1, ["m4"])]


def test_rewind_to_the_start_leaves_no_messages():
    transcript = fold(prompt(1), RewindRecord(0, ""))

    assert (transcript.entries, transcript.last_number, transcript.is_whole) == ((), 0, True)
    assert [(each.since, texts(each.entries)) for each in transcript.branches] == [(0, ["m1"])]


def test_rewound_positions_are_kept_until_a_new_message():
    transcript = fold(prompt(1), prompt(2), prompt(3), RewindRecord(2, ""), RewindRecord(1, ""))
    assert transcript.undone == [3, 2]

    transcript.add_record(RewindRecord(2, ""))
    assert (transcript.undone, texts(transcript.entries)) == ([3], ["m1", "m2"])
    transcript.add_record(RewindRecord(3, ""))
    assert (transcript.undone, texts(transcript.entries)) == ([], ["m1", "m2", "m3"])
    transcript.add_record(RewindRecord(1, ""))
    transcript.add_record(prompt(4))
    assert transcript.undone == []


def test_repeated_rewinds_to_one_place_are_shown_once():
    transcript = fold(
        prompt(1), prompt(2), RewindRecord(1, ""), RewindRecord(2, ""), RewindRecord(1, "")
    )
    shown = [item for item in transcript.shown_items() if isinstance(item, RewindRecord)]
    assert shown == [RewindRecord(1, "")]
    transcript.add_record(RewindRecord(2, ""))
    assert [item for item in transcript.shown_items() if isinstance(item, RewindRecord)] == []


def test_rewind_to_a_deleted_message_means_the_one_before():
    assert texts(fold(prompt(1), prompt(2), prompt(4), prompt(5), RewindRecord(3, "")).entries) == [
        "m1",
        "m2",
    ]
    assert texts(fold(prompt(2), prompt(3), RewindRecord(1, "")).entries) == []


@pytest.mark.parametrize("nowhere", [99, -1, 1 << 40])
def test_rewind_to_a_missing_message_is_skipped_with_a_notice(nowhere):
    transcript = fold(prompt(1), prompt(2), RewindRecord(nowhere, ""), prompt(3))

    assert texts(transcript.entries) == ["m1", "m2", "m3"]
    assert transcript.notices == [
        f"A rewind to message {nowhere}, which does not exist, is skipped."
    ]


def test_compaction_sends_kept_messages_summary_and_uncovered_ones():
    transcript = fold(*map(prompt, range(1, 8)), compaction(8, (1, 5), (2, 4)), prompt(9))

    sent = [*map(user, ("m6", "m7", "m9"))]
    assert transcript.sent() == replace_by_summary([user("m2"), user("m4")], "up to 5", sent)
    assert texts(transcript.sent_entries()) == ["m2", "m4", "m6", "m7", "m9"]
    assert texts(transcript.entries) == ["m1", "m2", "m3", "m4", "m5", "m6", "m7", "m9"]


def test_last_compaction_applies_until_it_is_rewound():
    transcript = fold(
        prompt(1),
        prompt(2),
        compaction(3, (1, 1)),
        prompt(4),
        compaction(5, (1, 3)),
        prompt(6),
        RewindRecord(4, ""),
    )
    assert transcript.compaction == compaction(3, (1, 1))
    assert texts(transcript.sent_entries()) == ["m2", "m4"]

    transcript.add_record(RewindRecord(1, ""))
    assert transcript.compaction is None
    assert transcript.sent() == [user("m1")]

    transcript.add_record(RewindRecord(6, ""))
    assert transcript.compaction == compaction(5, (1, 3))


def test_compaction_without_a_summary_only_drops_outputs():
    reply = ToolReply("c1", "shell", "x" * 500)
    transcript = fold(
        prompt(1),
        MessageRecord(2, "", assistant("", ToolCall("c1", "shell", {}))),
        MessageRecord(3, "", tool(reply)),
        compaction(4, (0, 0), summary="", dropped=("c1",)),
    )

    assert transcript.compaction is None
    assert transcript.dropped == {"c1"}
    assert [each.role for each in transcript.sent()] == ["user", "assistant", "tool"]
    assert transcript.sent()[2].parts_of(ToolReply)[0].text.startswith("[output dropped")


def test_message_added_manually_in_the_covered_part_is_covered():
    transcript = fold(
        prompt(1), prompt(0, "by hand"), prompt(2), compaction(3, (1, 2), (1,)), prompt(4)
    )

    assert texts(transcript.sent_entries()) == ["m1", "m4"]


def test_usage_includes_branches_and_background_calls():
    def cost(dollars: float) -> Usage:
        return Usage(10, 0, 0, 1, dollars)

    answer = MessageRecord(2, "", Message("assistant", (Text("x"),), cost(0.5)))
    transcript = fold(
        prompt(1),
        answer,
        RewindRecord(1, ""),
        CostRecord("title", "", "a/b", cost(0.25)),
        compaction(3, (1, 1), usage=cost(0.125)),
    )
    assert transcript.usage == Usage(30, 0, 0, 3, 0.875)

    transcript.add_record(ForkRecord("other", 3, ""))
    assert transcript.usage == Usage()
    transcript.add_record(replace(answer, number=4))
    assert transcript.usage == cost(0.5)


def test_other_record_types_are_folded():
    transcript = fold(
        prompt(1),
        TitleRecord("one", ""),
        TitleRecord("two", ""),
        ModelRecord("a/b", ""),
        PinRecord(1, ""),
        PinRecord(7, ""),
        PinRecord(7, "", pinned=False),
        CapturedRecord(1, ""),
        SummaryRecord("about", "", 1),
        RecalledRecord(1, "", ()),
        ForkRecord("other", 1, "2026-11-21T20:15:00.000Z"),
    )

    assert (transcript.title, transcript.model, transcript.pins, transcript.captured) == (
        "two",
        "a/b",
        {1},
        1,
    )
    assert transcript.summary == SummaryRecord("about", "", 1)
    assert transcript.recalled == {1: RecalledRecord(1, "", ())}
    assert transcript.fork == ForkRecord("other", 1, "2026-11-21T20:15:00.000Z")
    assert transcript.last_at == "2026-11-21T20:15:00.000Z"


def test_checkpoint_restores_the_state_before_it():
    check = compaction(
        41,
        (1, 40),
        (7,),
        spent=Usage(input=900, cost=2.0),
        title="named",
        pins=(7,),
        chosen="c/d",
        captured=33,
    )
    transcript = fold(check, prompt(42), is_whole=False, kept=(prompt(7),))

    assert (transcript.usage, transcript.title, transcript.pins) == (
        Usage(input=900, cost=2.0),
        "named",
        {7},
    )
    assert (transcript.model, transcript.captured, transcript.next_number) == ("c/d", 33, 43)
    assert texts(transcript.sent_entries()) == ["m7", "m42"]
    assert (transcript.is_whole, transcript.is_complete) == (False, True)


def test_older_records_are_prepended_and_can_be_rewound_to():
    transcript = fold(compaction(5, (1, 4)), prompt(6), is_whole=False)

    assert texts(transcript.prepend((prompt(3), prompt(4)), is_whole=False)) == ["m3", "m4"]
    assert not transcript.is_whole
    transcript.prepend((prompt(1), prompt(2)), is_whole=True)

    assert texts(transcript.entries) == ["m1", "m2", "m3", "m4", "m6"]
    assert (transcript.is_whole, transcript.number_before(3), transcript.number_before(1)) == (
        True,
        2,
        0,
    )
    transcript.add_record(RewindRecord(2, ""))
    assert texts(transcript.entries) == ["m1", "m2"]
    transcript.add_record(RewindRecord(6, ""))
    assert texts(transcript.entries) == ["m1", "m2", "m3", "m4", "m6"]


def test_rewind_to_a_missing_message_below_prepended_ones_goes_to_the_start():
    transcript = fold(prompt(5), prompt(6), is_whole=False)
    transcript.prepend((prompt(3), prompt(4)), is_whole=True)
    transcript.add_record(RewindRecord(2, ""))  # a user has removed message 2 from the file

    assert (transcript.entries, transcript.is_whole, transcript.notices) == ((), True, [])
    transcript.add_record(RewindRecord(6, ""))
    assert texts(transcript.entries) == ["m3", "m4", "m5", "m6"]


def test_older_records_are_not_sent_after_a_rewind_to_the_start():
    transcript = fold(prompt(5), prompt(6), is_whole=False)
    transcript.add_record(RewindRecord(0, ""))
    transcript.add_record(prompt(7))
    transcript.prepend((prompt(4),), is_whole=True)

    assert (texts(transcript.entries), transcript.is_whole) == (["m7"], True)
    transcript.add_record(RewindRecord(6, ""))
    assert texts(transcript.entries) == ["m4", "m5", "m6"]


@pytest.mark.parametrize(
    ("transcript", "is_complete"),
    [
        (fold(prompt(9), is_whole=False), False),
        (fold(prompt(9), compaction(10, (1, 7)), is_whole=False), False),
        (fold(prompt(8), compaction(9, (1, 8)), is_whole=False), True),
        (fold(prompt(7), prompt(8), compaction(9, (1, 7)), is_whole=False), True),
        (fold(compaction(9, (1, 8), (3,)), is_whole=False), False),
        (fold(compaction(9, (1, 8), (3,)), is_whole=False, kept=(prompt(3),)), True),
        (fold(prompt(1)), True),
    ],
)
def test_is_complete_tells_whether_all_sent_messages_are_loaded(transcript, is_complete):
    assert transcript.is_complete is is_complete


def test_number_of_an_unloaded_message_is_used_once():
    transcript = fold(prompt(5), RewindRecord(2, ""), prompt(2), prompt(4), is_whole=False)
    assert [(each.number, each.message.text) for each in transcript.entries] == [
        (6, "m2"),
        (4, "m4"),
    ]
    transcript.add_record(RewindRecord(5, ""))
    assert [[entry.number for entry in each.entries] for each in transcript.branches] == [[6, 4]]

    transcript.prepend([prompt(1), prompt(2)], is_whole=True)
    assert [each.number for each in transcript.entries] == [1, 2, 5]
    assert [
        (each.since, [entry.number for entry in each.entries]) for each in transcript.branches
    ] == [(2, [6, 4])]


def test_number_that_occurs_twice_among_older_messages_is_used_once():
    transcript = fold(prompt(3), is_whole=False)
    transcript.prepend([prompt(1), prompt(2), prompt(2)], is_whole=True)
    assert [(each.number, each.message.text) for each in transcript.entries] == [
        (1, "m1"), (2, "m2"), (4, "m2"), (3, "m3"),
    ]  # fmt: skip


def test_open_call_gets_a_result_for_readers():
    asked = MessageRecord(1, "", assistant("", ToolCall("c", "shell", {})))
    transcript = fold(asked, prompt(2), compaction(3, (0, 0), summary=""))
    transcript.answer_open_calls()

    answer = Message("tool", (ToolReply("c", "shell", INTERRUPTED, failed=True),))
    assert [each.message for each in transcript.entries] == [asked.message, answer, user("m2")]
    transcript.add_record(prompt(4))
    assert (transcript.last_number, transcript.number_before(2)) == (4, 1)


RECORDS = st.one_of(
    st.builds(prompt, st.integers(-1, 12)),
    st.builds(
        lambda number, call: MessageRecord(number, "", assistant("x", ToolCall(call, "shell", {}))),
        st.integers(0, 12),
        st.sampled_from("abc"),
    ),
    st.builds(
        lambda number, call: MessageRecord(number, "", tool(ToolReply(call, "shell", "y"))),
        st.integers(0, 12),
        st.sampled_from("abc"),
    ),
    st.builds(RewindRecord, st.integers(-1, 14), st.just("")),
    st.builds(
        lambda number, covers, kept, summary: CompactionRecord(
            number, "", covers, tuple(kept), summary
        ),
        st.integers(-1, 12),
        st.tuples(st.integers(-1, 12), st.integers(-1, 12)),
        st.lists(st.integers(-1, 12), max_size=4),
        st.sampled_from(("", "sum")),
    ),
    st.builds(PinRecord, st.integers(-1, 12), st.just(""), st.booleans()),
    st.builds(ForkRecord, st.just("self"), st.integers(-1, 12), st.just("")),
)


@given(st.lists(RECORDS, max_size=25), st.booleans())
def test_any_records_fold_into_a_sendable_transcript(records, is_whole):
    transcript = fold(*records, is_whole=is_whole)
    transcript.answer_open_calls()
    sent = make_sendable(transcript.sent())

    for message, following in zip(sent, (*sent[1:], None), strict=False):
        calls = [call.id for call in message.tool_calls]
        answers = [reply.call_id for reply in following.parts_of(ToolReply)] if following else []
        assert not calls or answers == calls
    numbers = [each.number for each in transcript.entries if each.message.role != "tool"]
    assert len(set(numbers)) == len(numbers)
    assert all(0 < number < transcript.next_number for number in numbers)
    for branch in transcript.branches:
        transcript.add_record(RewindRecord(branch.entries[-1].number, ""))
        assert transcript.entries[-1].number == branch.entries[-1].number
