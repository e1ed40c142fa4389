"""ReplyBuilder: however an answer is cut into chunks, the message is the same."""

import asyncio
import itertools
import json

import pytest
from properties import given, settings, st

from ouro.errors import EmptyAnswer, ModelError, RequestRefused, StreamCut
from ouro.llm import (
    CUT_SHORT,
    CallChunk,
    EndChunk,
    ModelCall,
    ModelSpec,
    ReplyBuilder,
    TextChunk,
    ThinkingChunk,
    UsageChunk,
)
from ouro.messages import Message, Text, Thinking, ToolCall, Usage

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
PARTS = st.lists(
    st.tuples(st.just("text"), st.text(min_size=1, max_size=30).filter(str.strip))
    | st.tuples(st.just("thinking"), st.text(min_size=1, max_size=30))
    | st.tuples(st.just("call"), st.dictionaries(st.text(max_size=6), JSON, max_size=4)),
    min_size=1,
    max_size=6,
)


def build(*chunks, end="stop", **more) -> ReplyBuilder:
    numbers = itertools.count(1)
    builder = ReplyBuilder("m", new_id=lambda: f"new{next(numbers)}", **more)
    for chunk in (*chunks, *([EndChunk(end)] if end else [])):
        builder.add(chunk)
    return builder


@st.composite
def an_answer_and_its_pieces(draw):
    """The chunks of an answer twice: one chunk for each part, and each part cut at random places."""
    whole, cut, number = [], [], 0
    for kind, value in draw(PARTS):
        text = json.dumps(value) if kind == "call" else value
        places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=6)))
        pieces = [text[a:b] for a, b in itertools.pairwise([0, *places, len(text)])]
        if kind == "call":
            whole.append(CallChunk(number, f"id{number}", "tool", text))
            cut.append(CallChunk(number, f"id{number}", "tool"))
            cut += [CallChunk(number, arguments=piece) for piece in pieces]
            number += 1
        else:
            chunk = TextChunk if kind == "text" else ThinkingChunk
            whole.append(chunk(text))
            cut += [chunk(piece) for piece in pieces]
    return whole, cut


@settings(max_examples=150)
@given(an_answer_and_its_pieces())
def test_message_does_not_depend_on_chunk_boundaries(pieces):
    whole, cut = pieces
    assert build(*cut).message() == build(*whole).message()


@settings(max_examples=100)
@given(st.lists(st.sampled_from([0, 1, 2]), max_size=30))
def test_interleaved_calls_are_assembled(order):
    texts = {n: json.dumps({"n": n, "text": "x" * 20}) for n in range(3)}
    chunks = [CallChunk(n, f"id{n}", "tool") for n in range(3)]
    for n in order:
        chunks.append(CallChunk(n, arguments=texts[n][:5]))
        texts[n] = texts[n][5:]
    chunks += [CallChunk(n, arguments=text) for n, text in texts.items()]
    assert [call.arguments["n"] for call in build(*chunks).finish().tool_calls] == [0, 1, 2]


@settings(max_examples=200)
@given(
    st.text(alphabet=st.characters(), max_size=40)
    | st.binary(max_size=40).map(
        lambda b: b.decode("utf-16", "surrogatepass") if len(b) % 2 == 0 else ""
    )
)
def test_any_arguments_are_parsed_and_serializable(text):
    (call,) = build(CallChunk(0, "a", "tool", text)).finish().tool_calls
    json.dumps(dict(call.arguments), allow_nan=False).encode()
    assert not (call.malformed and call.arguments)


def test_parts_are_kept_in_order():
    usage = Usage(10, 0, 0, 5)
    message = build(
        ThinkingChunk("I ", ""),
        ThinkingChunk("think", "seal"),
        ThinkingChunk("", "hidden", redacted=True),
        ThinkingChunk("more", ""),
        TextChunk("Hello "),
        TextChunk("you"),
        CallChunk(0, "a", "read", "{}"),
        UsageChunk(Usage(1)),
        UsageChunk(usage),
    ).finish()
    parts = (
        Thinking("I think", "seal"),
        Thinking("", "hidden", redacted=True),
        Thinking("more"),
        Text("Hello you"),
        ToolCall("a", "read", {}),
    )
    assert message == Message("assistant", parts, usage, "m")


def test_stream_without_an_end_raises_stream_cut():
    builder = build(TextChunk("Half"), CallChunk(0, "a", "read", "{}"), end="")
    with pytest.raises(StreamCut):
        builder.finish()
    assert builder.message(cut=True) == Message("assistant", (Text("Half"),), None, "m", cut=True)


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("stop", EmptyAnswer),
        ("tools", EmptyAnswer),
        ("length", RequestRefused),
        ("filtered", RequestRefused),
    ],
)
def test_empty_answer_raises(end, error):
    with pytest.raises(error):
        build(ThinkingChunk("hm"), TextChunk(" \n"), end=end).finish()


def test_cut_last_call_without_arguments_is_malformed():
    calls = (
        build(CallChunk(0, "a", "list", ""), CallChunk(1, "b", "remove", ""), end="length")
        .finish()
        .tool_calls
    )
    assert [call.malformed for call in calls] == ["", CUT_SHORT]


def test_call_ids_are_unique_in_the_transcript():
    calls = build(
        CallChunk(0, "a", "x"),
        CallChunk(1, "b", "x"),
        CallChunk(2, "b", "x"),
        CallChunk(3, "", "x"),
        taken=["a", "new1"],
    )
    assert [call.id for call in calls.finish().tool_calls] == ["new2", "b", "new3", "new4"]


def test_parallel_calls_with_one_index_are_separated_by_id():
    chunks = [
        CallChunk(0, "a", "read", '{"n":'),
        CallChunk(0, "a", "", "1}"),
        CallChunk(0, "b", "read", '{"n":2}'),
    ]
    assert [call.arguments for call in build(*chunks).finish().tool_calls] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    ("chunks", "reason"),
    [
        ((TextChunk("x" * 100_000) for _ in range(100)), "longer than"),
        ((CallChunk(n, str(n), "x") for n in range(1000)), "200 tool calls"),
    ],
)
def test_an_answer_without_end_is_stopped(chunks, reason):
    with pytest.raises(ModelError, match=reason):
        build(*chunks)


def test_raw_newlines_in_json_strings_are_accepted():
    (call,) = build(CallChunk(0, "a", "write", '{"text": "one\ntwo\t"}')).finish().tool_calls
    assert call.arguments == {"text": "one\ntwo\t"}


async def test_other_tasks_run_while_a_whole_answer_is_read():
    """All chunks of a burst are there already: reading them must not stop the program."""

    class Burst:
        spec = ModelSpec("m")

        async def stream(self, messages, tools):
            for _ in range(1_000):
                yield TextChunk("word ")
            yield EndChunk("stop")

    read = []
    call = asyncio.create_task(ModelCall([Burst()], []).run(read.append))
    for _ in range(4):
        await asyncio.sleep(0)
    assert 0 < len(read) < 100
    assert (await call).text == "word " * 1_000
