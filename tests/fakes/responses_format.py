"""OpenAI's Responses format of the test model server, and its strict check of requests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from fakes.model_script import Raw, Reply, Request, Tokens, pieces_of, split

Item = dict[str, Any]
FIELDS = {
    "background", "context_management", "conversation", "include", "input", "instructions",
    "max_output_tokens", "max_tool_calls", "metadata", "model", "moderation",
    "parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier",
    "service_tier", "store", "stream", "stream_options", "temperature", "text", "tool_choice",
    "tools", "top_logprobs", "top_p", "truncation", "user",
}  # fmt: skip
ITEM_FIELDS = {
    "message": {"type", "role", "content", "phase", "id", "status"},
    "function_call": {"type", "call_id", "name", "arguments", "id", "status"},
    "function_call_output": {"type", "call_id", "output", "id", "status"},
    "reasoning": {"type", "id", "summary", "content", "encrypted_content", "status"},
}
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def refusal(message: str, param: str | None = None, code: str | None = None) -> Raw:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Raw(400, {"error": error})


def refuse_tools_with_effort(body: dict[str, Any]) -> Raw | None:
    """How OpenAI refuses tools on chat completions for models since GPT-5.4."""
    if body.get("reasoning_effort") == "none":
        return None
    return refusal(
        f"Function tools with reasoning_effort are not supported for {body.get('model')} in"
        " /v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort"
        " to 'none'.",
        "reasoning_effort",
    )


@dataclass
class ResponsesState:
    """What the server sent: reasoning items by id, each with the item that followed it."""

    sent: dict[str, Item] = field(default_factory=dict)
    following: dict[str, Item] = field(default_factory=dict)
    efforts: tuple[str, ...] = EFFORTS

    def keep(self, output: list[Item]) -> None:
        for place, item in enumerate(output):
            if item["type"] == "reasoning":
                self.sent[item["id"]] = item
                if place + 1 < len(output):
                    self.following[item["id"]] = output[place + 1]

    def problem(self, body: dict[str, Any]) -> Raw | None:
        """The refusal of a request, in OpenAI's words; None if it is valid."""
        for name in body:
            if name not in FIELDS:
                return refusal(f"Unknown parameter: '{name}'.", name, "unknown_parameter")
        effort = (body.get("reasoning") or {}).get("effort")
        if effort is not None and effort not in self.efforts:
            named = ", ".join(f"'{level}'" for level in self.efforts[:-1])
            return refusal(
                f"Unsupported value: '{effort}' is not supported with the"
                f" '{body.get('model')}' model. Supported values are: {named}, and"
                f" '{self.efforts[-1]}'.",
                "reasoning.effort",
                "unsupported_value",
            )
        for tool in body.get("tools") or ():
            if tool.get("type") != "function" or "name" not in tool:
                return refusal("Missing required parameter: 'tools[0].name'.", "tools[0].name")
        items = body.get("input")
        if isinstance(items, str):
            return None
        return self._fields(items) or self._calls(items) or self._reasoning(items)

    def _fields(self, items: list[Item]) -> Raw | None:
        for place, item in enumerate(items):
            kind = item.get("type", "message")
            if kind not in ITEM_FIELDS:
                return refusal(f"Invalid value: '{kind}'.", f"input[{place}]", "invalid_value")
            for name in item:
                if name not in ITEM_FIELDS[kind]:
                    where = f"input[{place}].{name}"
                    return refusal(f"Unknown parameter: '{where}'.", where, "unknown_parameter")
            if kind == "function_call" and not isinstance(item["arguments"], str):
                where = f"input[{place}].arguments"
                return refusal(f"Invalid type for '{where}': expected a string.", where)
        return None

    def _calls(self, items: list[Item]) -> Raw | None:
        calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
        given = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
        for call_id in calls:
            if call_id not in given:
                return refusal(f"No tool output found for function call {call_id}.", "input")
        for call_id in given:
            if call_id not in calls:
                words = f"No tool call found for function call output with call_id {call_id}."
                return refusal(words, "input")
        return None

    def _reasoning(self, items: list[Item]) -> Raw | None:
        for place, item in enumerate(items):
            if item.get("type") != "reasoning":
                continue
            name = item.get("id", "")
            if not item.get("encrypted_content"):
                return refusal(
                    f"Item with id '{name}' not found. Items are not persisted when `store` is set"
                    " to false. Try again with `store` set to true, or remove this item from your"
                    " input.",
                    "input",
                )
            if item != self.sent.get(name):
                return refusal(
                    f"The encrypted content for item {name} could not be verified. Reason:"
                    " Encrypted content could not be decrypted or parsed.",
                    None,
                    "invalid_encrypted_content",
                )
            expected = self.following.get(name)
            following = items[place + 1] if place + 1 < len(items) else {}
            if expected is None or not _is_same(following, expected):
                return refusal(
                    f"Item '{name}' of type 'reasoning' was provided without its required"
                    " following item.",
                    "input",
                )
        return None


def _is_same(given: Item, sent: Item) -> bool:
    """Whether an input item is the output item that was sent; ids may be left out."""
    if given.get("type", "message") != sent["type"]:
        return False
    if sent["type"] == "function_call":
        return given["call_id"] == sent["call_id"]
    return True


def as_lists(reply: Reply) -> Reply:
    """The reply with its pieces in lists: a generator can be read only once."""
    text, thinking = list(pieces_of(reply.text)), list(pieces_of(reply.thinking))
    return replace(reply, text=text, thinking=thinking)


def output_of(reply: Reply, request: Request, number: int) -> list[Item]:
    """The output items of a reply."""
    items: list[Item] = []
    if reply.thinking or reply.redacted:
        summary = "".join(pieces_of(reply.thinking))
        seal = hashlib.sha256(
            f"{number} {reply.signature} {summary}".encode("utf-8", "replace")
        ).hexdigest()
        item: Item = {
            "id": f"rs_{number:04}",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": summary}] if summary else [],
        }
        if "reasoning.encrypted_content" in (request.body.get("include") or ()):
            item["encrypted_content"] = f"gAAAA_{seal}/+ü="
        items.append(item)
    if text := "".join(pieces_of(reply.text)):
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        items.append(
            {
                "id": f"msg_{number:04}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "phase": "commentary" if reply.calls else "final_answer",
                "content": [part],
            }
        )
    for index, call in enumerate(reply.calls):
        items.append(
            {
                "id": f"fc_{number:04}_{index}",
                "type": "function_call",
                "status": "completed",
                "call_id": f"call_{number}_{index}" if call.id == "" else call.id,
                "name": call.name,
                "arguments": call.json,
            }
        )
    return items


def response_of(
    reply: Reply, request: Request, number: int, output: list[Item], status: str = "completed"
) -> Item:
    cause = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(
        reply.finish or ""
    )
    if cause and status == "completed":
        status = "incomplete"
    return {
        "id": f"resp_{number:04}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": cause} if status == "incomplete" else None,
        "instructions": request.body.get("instructions"),
        "metadata": {},
        "model": request.body.get("model", ""),
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": request.body.get("tools") or [],
        "top_p": 1.0,
        "usage": _usage(reply.tokens) if reply.tokens and status != "in_progress" else None,
    }


def _usage(tokens: Tokens) -> Item:
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {
            "cached_tokens": tokens.cached,
            "cache_write_tokens": tokens.cache_written,
        },
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.output // 2},
        "total_tokens": tokens.input + tokens.output,
    }


@dataclass(frozen=True)
class Event:
    kind: str
    fields: Item
    said: bool = False


ENDS = ("response.completed", "response.incomplete")


def whole(reply: Reply, request: Request, number: int) -> Item:
    return response_of(reply, request, number, output_of(reply, request, number))


def events_of(reply: Reply, request: Request, number: int) -> Iterator[Event]:
    """The events of a streamed response, without their sequence numbers."""
    output = output_of(reply, request, number)
    begun = response_of(reply, request, number, [], "in_progress")
    yield Event("response.created", {"response": begun})
    yield Event("response.in_progress", {"response": begun})
    for place, item in enumerate(output):
        yield from _item_events(reply, item, place)
    if reply.finish is not None:
        done = response_of(reply, request, number, output)
        yield Event(f"response.{done['status']}", {"response": done})


def _item_events(reply: Reply, item: Item, place: int) -> Iterator[Event]:
    where = {"output_index": place, "item_id": item["id"]}
    kind = item["type"]
    empty = {**item, **({} if kind == "reasoning" else {"status": "in_progress"})}
    empty |= {"reasoning": {"summary": []}, "message": {"content": []}}.get(kind, {"arguments": ""})
    empty.pop("encrypted_content", None)
    yield Event("response.output_item.added", {"output_index": place, "item": empty})
    if kind == "reasoning" and item["summary"]:
        at = {**where, "summary_index": 0}
        part = {"type": "summary_text", "text": ""}
        yield Event("response.reasoning_summary_part.added", {**at, "part": part})
        for piece in pieces_of(reply.thinking):
            yield Event("response.reasoning_summary_text.delta", {**at, "delta": piece}, said=True)
        [whole] = item["summary"]
        yield Event("response.reasoning_summary_text.done", {**at, "text": whole["text"]})
        yield Event("response.reasoning_summary_part.done", {**at, "part": whole})
    elif kind == "message":
        at = {**where, "content_index": 0}
        [whole] = item["content"]
        yield Event("response.content_part.added", {**at, "part": {**whole, "text": ""}})
        for piece in pieces_of(reply.text):
            fields = {**at, "delta": piece, "logprobs": []}
            yield Event("response.output_text.delta", fields, said=True)
        fields = {**at, "text": whole["text"], "logprobs": []}
        yield Event("response.output_text.done", fields)
        yield Event("response.content_part.done", {**at, "part": whole})
    elif kind == "function_call":
        call = reply.calls[int(item["id"].rpartition("_")[2])]
        for piece in split(call.json, call.pieces):
            yield Event(
                "response.function_call_arguments.delta", {**where, "delta": piece}, said=True
            )
        fields = {**where, "name": item["name"], "arguments": call.json}
        yield Event("response.function_call_arguments.done", fields)
    yield Event("response.output_item.done", {"output_index": place, "item": item})


def encode(event: Event, sequence: int) -> str:
    return json.dumps({"type": event.kind, "sequence_number": sequence, **event.fields})
