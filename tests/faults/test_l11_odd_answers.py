"""L11: answers with values of wrong types, without content, or compressed. What is written can be
read again.
"""

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import Mapping
from functools import partial
from typing import Literal, get_args, get_origin

import msgspec
import pytest
from fakes.model_server import Raw, Reply, sse
from fakes.wires import Wire
from properties import assume, given, settings, st

from ouro.agent.compaction_probe import ProbeQuestion, report_lost
from ouro.display import Diff, Display, Plain
from ouro.errors import ModelError, RequestRefused, StreamCut
from ouro.llm import EndChunk, ModelSpec, Prices, ReplyBuilder, TextChunk, Timeouts, ToolSpec
from ouro.llm.anthropic import AnthropicChunks
from ouro.llm.openai import OpenAIChunks
from ouro.llm.provider_errors import redact
from ouro.llm.small_model_memory import choose_lines
from ouro.llm.streamed_answer import CallGate
from ouro.llm.text_tools import ANSWER, TextToolsModel, find_calls
from ouro.llm.wire import make_usage
from ouro.memory.backend import CHANGES, CompactionRecord, MessageRecord
from ouro.memory.safe_yaml import dump, load, replace_surrogates
from ouro.memory.serialization import ReadRecord, record_data, record_from
from ouro.messages import (
    Context,
    Image,
    Incomplete,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolReply,
    Usage,
    system,
    user,
)
from ouro.tools.ask_user import AskUser, AskUserArgs

PRICED = ModelSpec("m", prices=Prices(1, 10))
UNPRICED = ModelSpec("m")
DIRECT = ("openai", "anthropic")
SSE = {"Content-Type": "text/event-stream"}
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)


def either(usual):
    return usual | ODD


def fields(**usual):
    """A mapping with some of these fields, each with a correct value or one of any other type."""
    return either(
        st.fixed_dictionaries({}, optional={name: either(value) for name, value in usual.items()})
    )


TEXTS, COUNTS = st.text(max_size=8), st.integers(-2, 1 << 70) | st.floats()
OPENAI_EVENTS = fields(
    choices=st.lists(
        fields(
            delta=fields(
                content=TEXTS,
                reasoning=TEXTS,
                refusal=TEXTS,
                tool_calls=st.lists(
                    fields(
                        index=st.integers(-1, 3),
                        id=TEXTS,
                        function=fields(name=TEXTS, arguments=TEXTS),
                        extra_content=fields(google=fields(thought_signature=TEXTS)),
                    ),
                    max_size=2,
                ),
            ),
            finish_reason=st.sampled_from(["stop", "length", "tool_calls"]),
        ),
        max_size=2,
    ),
    usage=fields(
        prompt_tokens=COUNTS,
        completion_tokens=COUNTS,
        prompt_tokens_details=fields(cached_tokens=COUNTS),
        cost=COUNTS,
    ),
)
COUNTED = fields(input_tokens=COUNTS, output_tokens=COUNTS, cache_read_input_tokens=COUNTS)
ANTHROPIC_EVENTS = fields(
    type=st.sampled_from(
        ["message_start", "content_block_start", "content_block_delta", "message_delta"]
    ),
    index=st.integers(-1, 3),
    message=fields(usage=COUNTED),
    usage=COUNTED,
    content_block=fields(
        type=st.sampled_from(["tool_use", "redacted_thinking"]), id=TEXTS, name=TEXTS, data=TEXTS
    ),
    delta=fields(
        type=st.sampled_from(
            ["text_delta", "input_json_delta", "signature_delta", "thinking_delta"]
        ),
        text=TEXTS,
        thinking=TEXTS,
        partial_json=TEXTS,
        signature=TEXTS,
        stop_reason=st.sampled_from(["end_turn", "max_tokens"]),
    ),
)


def written_and_read(record) -> ReadRecord:
    stored: dict[str, bytes] = {}
    text = dump(record_data(record, replace_surrogates, stored.__setitem__))
    return record_from(load(text.encode()), stored.__getitem__)


@pytest.mark.parametrize(
    ("parser", "events"),
    [(OpenAIChunks, OPENAI_EVENTS), (AnthropicChunks, ANTHROPIC_EVENTS)],
    ids=DIRECT,
)
@pytest.mark.parametrize("spec", [PRICED, UNPRICED], ids=["priced", "unpriced"])
def test_l11_any_streamed_answer_round_trips_through_the_file(parser, events, spec):
    @settings(max_examples=60)
    @given(st.lists(events.filter(lambda event: isinstance(event, dict)), max_size=6))
    def check(streamed):
        reader, builder = parser(spec), ReplyBuilder("m")
        for event in json.loads(json.dumps(streamed)):
            for chunk in reader.read(event):
                builder.add(chunk)
        for chunk in reader.end():
            builder.add(chunk)
        record = MessageRecord(1, "", builder.message())
        again = written_and_read(record)
        assert (again.repaired, again.unknown) == ((), ())
        assert [type(part) for part in again.record.message.parts] == [
            type(part) for part in record.message.parts
        ]
        assert again.record.message.usage == record.message.usage

    check()


USAGES = st.builds(
    partial(make_usage, UNPRICED),
    sent=ODD | COUNTS,
    cached=ODD | COUNTS,
    cache_written=ODD,
    answered=COUNTS,
    cost=COUNTS | ODD,
).map(lambda usage: usage or Usage())
ARGUMENTS = st.dictionaries(
    TEXTS, ODD.filter(lambda value: "NaN" not in json.dumps(value)), max_size=3
)
PARTS = {
    "user": Text | Context | Image,
    "assistant": Thinking | Text | ToolCall,
    "tool": ToolReply | Text,
}
PLAIN = {
    str: TEXTS | st.sampled_from(["a", "a\nb"]),
    int: st.integers(0, 1 << 40),
    float: st.floats(0, 1e9),
    bool: st.booleans(),
    bytes: st.binary(),
}


def values(kind):
    """Values of a type, such as the fields of a record: with every kind of part and display."""
    inner = get_args(kind)
    if kind is Usage:
        return USAGES
    if kind in PLAIN or kind is type(None):
        return PLAIN.get(kind, st.none())
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return st.builds(
            kind, **{field.name: values(field.type) for field in msgspec.structs.fields(kind)}
        )
    if get_origin(kind) is Literal:
        return st.sampled_from(inner)
    if get_origin(kind) is tuple:
        return (
            st.lists(values(inner[0]), max_size=3).map(tuple)
            if ... in inner
            else st.tuples(*map(values, inner))
        )
    return ARGUMENTS if get_origin(kind) is Mapping else st.one_of(*map(values, inner))


def messages(role):
    parts = st.lists(values(PARTS[role]), max_size=4).map(tuple)
    made = st.builds(
        Message,
        st.just(role),
        parts,
        values(Usage | None),
        TEXTS,
        st.booleans(),
        values(Incomplete),
    )
    return st.builds(MessageRecord, values(int), TEXTS, made, st.booleans())


def shown_as_text(part):
    """A tool result as it is read back: its diff is then the text of a diff."""
    if isinstance(part, ToolReply) and part.display and isinstance(part.display.body, Diff):
        text = Plain("".join(f"{line}\n" for line in part.display.body.lines("", "")), "diff")
        return msgspec.structs.replace(part, display=Display(part.display.summary, text))
    return part


@pytest.mark.parametrize(
    "kind", [*CHANGES.values(), *PARTS], ids=lambda kind: getattr(kind, "__name__", kind)
)
def test_l11_every_record_type_round_trips(kind):
    @settings(max_examples=60)
    @given(messages(kind) if kind in PARTS else values(kind))
    def check(record):
        if isinstance(record, CompactionRecord):
            assume(record.covers[0] <= record.covers[1])
        again = written_and_read(record)
        if isinstance(record, MessageRecord):
            parts = tuple(map(shown_as_text, record.message.parts))
            record = msgspec.structs.replace(
                record, message=msgspec.structs.replace(record.message, parts=parts)
            )
        assert again == ReadRecord(record, (), ())

    check()


BAD_USAGES = {
    "openai": [
        {"prompt_tokens": -5, "completion_tokens": 2},
        {"prompt_tokens": True, "completion_tokens": 2},
        {"prompt_tokens": 1e30, "completion_tokens": 2},
        {"prompt_tokens": "many", "completion_tokens": 2},
        "none of your business",
    ],
    "anthropic": [{"input_tokens": -5, "output_tokens": 2}, {"input_tokens": "many"}, [1]],
}


def hello_response(kind: str, usage: object) -> Raw:
    """`Hello.` in the protocol of a wire, with this usage."""
    if kind == "openai":
        return sse(
            {"choices": [{"delta": {"content": "Hello."}}]},
            {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage},
            "[DONE]",
        )
    return sse(
        {"type": "message_start", "message": {"usage": usage}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Hello."},
        },
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )


@pytest.mark.parametrize("kind", DIRECT)
async def test_l11_invalid_usage_is_dropped_and_the_message_kept(kind, model_server):
    wire = Wire(kind, model_server)
    wire.server.script([hello_response(kind, usage) for usage in BAD_USAGES[kind]])
    for _ in BAD_USAGES[kind]:
        reply = await wire.ask()
        assert (reply.text, reply.usage) == ("Hello.", None)


async def test_l11_whole_float_token_count_is_accepted(model_server):
    wire = Wire("openai", model_server)
    wire.server.script(
        [hello_response("openai", {"prompt_tokens": 12.0, "completion_tokens": 3, "cost": -3})]
    )

    reply = await wire.ask(spec=ModelSpec("openai/test-model"))

    assert reply.usage == Usage(12, output=3, cost=None)


async def test_l11_content_as_a_list_of_parts_is_text(model_server):
    wire = Wire("openai", model_server)
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo."}]
    wire.server.script(
        [sse({"choices": [{"delta": {"content": parts}, "finish_reason": "stop"}]}, "[DONE]")]
    )

    assert (await wire.ask()).text == "Hello."


@pytest.mark.parametrize("kind", DIRECT)
async def test_l11_byte_order_mark_does_not_lose_the_first_event(kind, model_server):
    wire = Wire(kind, model_server)
    wire.server.script([Raw(200, b"\xef\xbb\xbf" + hello_response(kind, None).bytes, SSE)])

    assert (await wire.ask()).parts == (Text("Hello."),)


@pytest.mark.parametrize("kind", DIRECT)
@pytest.mark.parametrize("after", [0, 1])
async def test_l11_comments_and_pings_alone_time_out(kind, after, model_server):
    wire = Wire(kind, model_server)
    wire.server.script([Reply(["I will ", "look."], fault="chatter", after=after)])

    error, text = await wire.failure(timeouts=Timeouts(content=0.2))

    assert (type(error), text) == (StreamCut, "I will " if after else "")
    assert wire.server.requests[0].gone.wait(10)


@pytest.mark.parametrize("kind", DIRECT)
async def test_l11_compressed_answer_is_decompressed_in_pieces(kind, model_server):
    wire = Wire(kind, model_server)
    compressed = {**SSE, "Content-Encoding": "gzip"}
    bomb = (b": " + b"x" * 1_000_000 + b"\n") * 100
    wire.server.script(
        [
            Raw(200, gzip.compress(hello_response(kind, None).bytes), compressed),
            Raw(200, gzip.compress(bomb, 1), compressed),
            Raw(200, b"\x1f\x8bnot gzip at all", compressed),
            Raw(200, hello_response(kind, None).bytes, {**SSE, "Content-Encoding": "br"}),
        ]
    )
    del bomb

    assert (await wire.ask()).text == "Hello."
    assert wire.server.requests[0].headers["accept-encoding"] == "identity"
    tracemalloc.start()
    error, _ = await wire.failure()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (type(error), most < 20_000_000) == (ModelError, True), most
    assert type((await wire.failure())[0]) is StreamCut
    assert type((await wire.failure())[0]) is RequestRefused  # `br`, which it did not ask for


async def test_l11_large_message_round_trips(home):
    record = MessageRecord(1, "", user("ä\n" * 1_000_000))

    assert written_and_read(record).record == record


def feed_gate(text):
    gate = CallGate()
    for character in text:
        gate.feed(character)
    gate.end()


def ask_probe(answer):
    async def ask(_text):
        return answer

    asyncio.run(report_lost([ProbeQuestion("Which?", "this")], ask))


class SmallModel:
    spec = ModelSpec("ollama_chat/tiny:1b")

    def __init__(self, text):
        self._text = text

    async def stream(self, messages, tools=()):
        for start in range(0, len(self._text), 4):
            yield TextChunk(self._text[start : start + 4])
        yield EndChunk("stop")

    async def close(self):
        pass


@pytest.mark.usefixtures("cpu_limit")
async def test_l11_long_answer_of_a_small_model_is_read_in_linear_time():
    """The answer was decoded from its beginning at each chunk: 64 KB took 20 s."""
    text = " ".join(map(str, range(30_000)))
    model = TextToolsModel(SmallModel(json.dumps({"name": "answer", "arguments": {"text": text}})))

    chunks = [
        chunk async for chunk in model.stream([user("Count.")], [ToolSpec("read", "Read.", {})])
    ]

    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)) == text


@pytest.mark.usefixtures("cpu_limit")
@pytest.mark.parametrize(
    ("read", "text"),
    [
        (lambda text: find_calls(text, (ANSWER,), ()), "<function=a>{} " * 27_000 + "end"),
        (lambda text: find_calls(text, (ANSWER,), ()), "<tool_call>a" + " " * 200_000 + "b"),
        (lambda text: find_calls(text, (ANSWER,), ()), '{"":\n' * 400_000),
        (feed_gate, '{"name": "' + "a" * 3_000_000),
        (redact, "a-" * 100_000),
        (lambda text: AskUser().title(AskUserArgs(text)), "**a " * 50_000),
        (ask_probe, "\n" * 200_000),
        (lambda text: choose_lines([system(f"| {text}")], ""), "ne " * 70_000),
    ],
    ids=[
        "functions",
        "spaces",
        "lines",
        "gate",
        "keys",
        "question",
        "probe",
        "told",
    ],
)
def test_l11_repeated_beginnings_are_read_in_linear_time(read, text):
    """Some patterns read the rest of the text at each beginning: 50 KB took up to 20 s, in which
    ouro did not react.
    """
    read(text)
