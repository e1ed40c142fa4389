"""The two wire formats of the test model server: a reply as server-sent events, or whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fakes import responses_format
from fakes.model_script import Call, Reply, Request, Tokens, pieces_of, split


@dataclass(frozen=True)
class Part:
    """One server-sent event; `said`: it has output of the model."""

    data: str
    event: str = ""
    said: bool = False
    closing: bool = False
    """It contains the finish reason."""


def parts(reply: Reply, request: Request, number: int) -> Iterator[Part]:
    """The events of a streamed reply, including the last one."""
    return PARTS[request.wire](reply, request, number)


def whole(reply: Reply, request: Request, number: int) -> dict[str, Any]:
    """The reply in one JSON object."""
    return WHOLE[request.wire](reply, request, number)


def error_part(request: Request) -> Part:
    """An error object in the middle of a stream."""
    error = {"type": "overloaded_error", "message": "Overloaded", "code": "overloaded"}
    if request.wire == "anthropic":
        return Part(json.dumps({"type": "error", "error": error}), "error")
    if request.wire == "responses":
        return Part(json.dumps({"type": "error", "sequence_number": 99, **error}), "error")
    return Part(json.dumps({"error": error}))


def said(request: Request, text: str) -> bytes:
    """One event with a piece of text, as bytes, which a fault then breaks."""
    if request.wire == "anthropic":
        delta = {"type": "text_delta", "text": text}
        event = {"type": "content_block_delta", "index": 0, "delta": delta}
        return b"event: content_block_delta\ndata: " + json.dumps(event).encode() + b"\n\n"
    if request.wire == "responses":
        event = {"type": "response.output_text.delta", "output_index": 0, "delta": text}
        return b"data: " + json.dumps(event).encode() + b"\n\n"
    event = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def _id(call: Call, number: int, index: int) -> str | None:
    return f"call_{number}_{index}" if call.id == "" else call.id


# OpenAI


def _openai_usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
    }


def _openai_parts(reply: Reply, request: Request, number: int) -> Iterator[Part]:
    head = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": request.body.get("model", ""),
    }

    def chunk(delta: dict[str, Any], finish: str | None = None, said: bool = True) -> Part:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return Part(
            json.dumps({**head, "choices": [choice]}), said=said, closing=finish is not None
        )

    yield chunk({"role": "assistant", "content": ""}, said=False)
    for piece in pieces_of(reply.thinking):
        yield chunk({"reasoning_content": piece})
    for piece in pieces_of(reply.text):
        yield chunk({"content": piece})
    for index, call in enumerate(reply.calls):
        first, *rest = split(call.json, call.pieces)
        function = {"name": call.name, "arguments": first}
        yield chunk(
            {
                "tool_calls": [
                    {
                        "index": index,
                        "id": _id(call, number, index),
                        "type": "function",
                        "function": function,
                    }
                ]
            }
        )
        for piece in rest:
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    if reply.finish is not None:
        yield chunk({}, reply.finish or ("tool_calls" if reply.calls else "stop"), said=False)
    if reply.tokens and (request.body.get("stream_options") or {}).get("include_usage"):
        yield Part(json.dumps({**head, "choices": [], "usage": _openai_usage(reply.tokens)}))
    if reply.done and reply.finish is not None:
        yield Part("[DONE]")


def _openai_whole(reply: Reply, request: Request, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(pieces_of(reply.text)) or None,
    }
    if reply.thinking:
        message["reasoning_content"] = "".join(pieces_of(reply.thinking))
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": _id(call, number, index),
                "type": "function",
                "function": {"name": call.name, "arguments": call.json},
            }
            for index, call in enumerate(reply.calls)
        ]
    finish = reply.finish or ("tool_calls" if reply.calls else "stop")
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": request.body.get("model", ""),
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": None if reply.finish is None else finish,
            }
        ],
        **({"usage": _openai_usage(reply.tokens)} if reply.tokens else {}),
    }


# Anthropic


def _anthropic_usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "input_tokens": tokens.input - tokens.cached - tokens.cache_written,
        "cache_read_input_tokens": tokens.cached,
        "cache_creation_input_tokens": tokens.cache_written,
        "output_tokens": tokens.output,
    }


def _anthropic_blocks(
    reply: Reply, number: int
) -> Iterator[tuple[dict[str, Any], Iterable[dict[str, Any]]]]:
    """Each block with its deltas."""
    if reply.redacted:
        yield {"type": "redacted_thinking", "data": reply.redacted}, ()
    if reply.thinking:
        deltas = [
            {"type": "thinking_delta", "thinking": piece} for piece in pieces_of(reply.thinking)
        ]
        seal = {"type": "signature_delta", "signature": reply.signature}
        yield (
            {"type": "thinking", "thinking": "", "signature": ""},
            [*deltas, *([seal] if reply.signature else [])],
        )
    if reply.text:
        yield (
            {"type": "text", "text": ""},
            ({"type": "text_delta", "text": piece} for piece in pieces_of(reply.text)),
        )
    for index, call in enumerate(reply.calls):
        deltas = [
            {"type": "input_json_delta", "partial_json": piece}
            for piece in split(call.json, call.pieces)
        ]
        yield (
            {"type": "tool_use", "id": _id(call, number, index), "name": call.name, "input": {}},
            deltas,
        )


def _anthropic_parts(reply: Reply, request: Request, number: int) -> Iterator[Part]:
    def part(kind: str, said: bool = False, **rest: Any) -> Part:
        return Part(json.dumps({"type": kind, **rest}), kind, said, closing=kind == "message_delta")

    message = {**_anthropic_whole(reply, request, number, empty=True)}
    yield part("message_start", message=message)
    for index, (block, deltas) in enumerate(_anthropic_blocks(reply, number)):
        yield part(
            "content_block_start",
            index=index,
            content_block=block,
            said=block["type"] == "redacted_thinking",
        )
        if not index:
            yield part("ping")
        for delta in deltas:
            yield part("content_block_delta", index=index, delta=delta, said=True)
        yield part("content_block_stop", index=index)
    if reply.finish is not None:
        tokens = {"usage": {"output_tokens": reply.tokens.output}} if reply.tokens else {}
        yield part(
            "message_delta",
            delta={"stop_reason": _anthropic_finish(reply), "stop_sequence": None},
            **tokens,
        )
    if reply.done and reply.finish is not None:
        yield part("message_stop")


def _anthropic_finish(reply: Reply) -> str | None:
    if reply.finish is None:
        return None
    same = {
        "stop": "end_turn",
        "length": "max_tokens",
        "tool_calls": "tool_use",
        "content_filter": "refusal",
    }
    return same.get(reply.finish, reply.finish) or ("tool_use" if reply.calls else "end_turn")


def _anthropic_whole(
    reply: Reply, request: Request, number: int, empty: bool = False
) -> dict[str, Any]:
    content = (
        []
        if empty
        else [_filled(block, deltas) for block, deltas in _anthropic_blocks(reply, number)]
    )
    usage = (
        _anthropic_usage(reply.tokens) if reply.tokens else {"input_tokens": 0, "output_tokens": 0}
    )
    if empty:
        usage = {**usage, "output_tokens": 1 if reply.tokens else 0}
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": request.body.get("model", ""),
        "content": content,
        "stop_reason": None if empty else _anthropic_finish(reply),
        "stop_sequence": None,
        "usage": usage,
    }


def _filled(block: dict[str, Any], deltas: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """A block with its deltas in it."""
    arguments = ""
    for delta in deltas:
        for key in ("text", "thinking", "signature"):
            if key in delta:
                block = {**block, key: block[key] + delta[key]}
        arguments += delta.get("partial_json", "")
    return (
        {**block, "input": json.loads(arguments or "{}")} if block["type"] == "tool_use" else block
    )


# Responses


def _responses_parts(reply: Reply, request: Request, number: int) -> Iterator[Part]:
    for sequence, event in enumerate(responses_format.events_of(reply, request, number)):
        data = responses_format.encode(event, sequence)
        closing = event.kind in responses_format.ENDS
        yield Part(data, event.kind, event.said, closing)


PARTS = {
    "openai": _openai_parts,
    "anthropic": _anthropic_parts,
    "responses": _responses_parts,
}
WHOLE = {
    "openai": _openai_whole,
    "anthropic": _anthropic_whole,
    "responses": responses_format.whole,
}
