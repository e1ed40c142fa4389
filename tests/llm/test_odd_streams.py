"""Calls in streams as servers really send them, from public reports; each case names its report."""

import pytest
from fakes.model_server import sse
from fakes.wires import Wire

from ouro.messages import user

FIRST, SECOND = {"path": "a"}, {"path": "b"}
A, B = '{"path": "a"}', '{"path": "b"}'


def piece(**call):
    """A chunk with one piece of a call; `name` and `arguments` belong to its function."""
    return chunk(entry(**call))


def chunk(*calls, finish=None, **delta):
    if calls:
        delta["tool_calls"] = list(calls)
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def entry(**call):
    function = {key: call.pop(key) for key in ("name", "arguments") if key in call}
    return {**call, "type": "function", "function": function}


END = chunk(finish="tool_calls")
STREAMS = {
    "AstrBotDevs/AstrBot#9593: the index begins with 1": (
        [
            piece(index=1, id="x", name="read", arguments=""),
            piece(index=1, arguments=A),
            piece(index=2, id="y", name="read", arguments=""),
            piece(index=2, arguments=B),
            END,
        ],
        [FIRST, SECOND],
    ),
    "ollama/ollama#15457: each call has the index 0": (
        [
            piece(index=0, id="x", name="read", arguments=A),
            piece(index=0, id="y", name="read", arguments=B),
            END,
        ],
        [FIRST, SECOND],
    ),
    "LibreChat-AI/agents#260: the index 0, and arguments in pieces": (
        [
            piece(index=0, id="x", name="read", arguments=""),
            piece(index=0, id="x", arguments=A),
            piece(index=0, id="y", name="read", arguments=""),
            piece(index=0, id="y", arguments=B),
            END,
        ],
        [FIRST, SECOND],
    ),
    "ollama/ollama#7881: no index": (
        [piece(id="x", name="read", arguments=A), piece(id="y", name="read", arguments=B), END],
        [FIRST, SECOND],
    ),
    "SamSaffron/term-llm#314: no index, both in one chunk": (
        [
            chunk(entry(id="x", name="read", arguments=A), entry(id="y", name="read", arguments=B)),
            END,
        ],
        [FIRST, SECOND],
    ),
    "vercel/ai#18333: no index in what follows": (
        [
            piece(id="x", name="read", arguments='{"path'),
            piece(arguments='": "a"}'),
            END,
        ],
        [FIRST],
    ),
    "vercel/ai#18333: the index 7, then none": (
        [
            piece(index=7, id="x", name="read", arguments='{"path'),
            piece(arguments='": "a"}'),
            END,
        ],
        [FIRST],
    ),
    "sgl-project/sglang#6310: another index in what follows": (
        [
            piece(index=3, id="x", name="read", arguments=""),
            piece(index=0, id=None, name=None, arguments='{"path": '),
            piece(index=0, id=None, name=None, arguments='"a"}'),
            END,
        ],
        [FIRST],
    ),
    "AstrBotDevs/AstrBot#7735: id and name in each piece": (
        [
            piece(index=0, id="x", name="read", arguments='{"path'),
            piece(index=0, id="x", name="read", arguments='": "a"'),
            piece(index=0, id="x", name="read", arguments="}"),
            END,
        ],
        [FIRST],
    ),
    "ai-dynamo/dynamo#15054: two pieces of a call in one chunk": (
        [
            chunk(
                entry(index=0, id="x", name="read", arguments=""),
                entry(index=0, arguments='{"path": "a'),
            ),
            {
                "choices": [
                    chunk(entry(index=0, arguments='"}'))["choices"][0],
                    chunk(content="", finish="tool_calls")["choices"][0],
                ]
            },
        ],
        [FIRST],
    ),
    "adolfousier/opencrabs#1499: an empty reason between the pieces": (
        [
            {
                "choices": [
                    {
                        "delta": {
                            "tool_calls": [
                                entry(index=0, id="x", name="read", arguments='{"path": "a')
                            ]
                        },
                        "finish_reason": "",
                    }
                ]
            },
            piece(index=0, arguments='"}'),
            END,
        ],
        [FIRST],
    ),
    "earendil-works/pi#6225: no reason at the end": (
        [piece(index=0, id="x", name="read", arguments=A)],
        [FIRST],
    ),
    "brekkylab/ailoy#434: the reason of a text after a call": (
        [piece(index=0, id="x", name="read", arguments=A), chunk(finish="STOP")],
        [FIRST],
    ),
    "openai/openai-python#2806: a number and no id": (
        [piece(index="0", id="", name="read", arguments=A), END],
        [FIRST],
    ),
    "arguments as an object": (
        [piece(index=0, id="x", name="read", arguments=FIRST), END],
        [FIRST],
    ),
    "the calls in the last chunk, with null beside them": (
        [
            chunk(
                entry(index=0, id="x", name="read", arguments=A),
                finish="tool_calls",
                content=None,
                reasoning_content=None,
                function_call=None,
            )
        ],
        [FIRST],
    ),
}


@pytest.mark.parametrize("name", STREAMS)
async def test_the_calls_of_a_stream_that_was_reported_are_read(name, model_server):
    events, meant = STREAMS[name]
    model_server.script([sse(*events, "[DONE]")])
    reply = await Wire("openai", model_server).ask(user("Read."))
    assert [(call.name, dict(call.arguments)) for call in reply.tool_calls] == [
        ("read", arguments) for arguments in meant
    ]
    assert len({call.id for call in reply.tool_calls}) == len(meant)
    assert len(model_server.requests) == 1
