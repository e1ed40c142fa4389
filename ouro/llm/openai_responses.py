"""The wire to OpenAI's Responses API, stateless: the whole input each time, and reasoning items sent
back as they came.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ouro.llm.adaptive_model import ModelRequest
from ouro.llm.model import (
    CallChunk,
    Chunk,
    Effort,
    Endpoint,
    ModelSpec,
    Reason,
    ThinkingChunk,
    ToolSpec,
    UsageChunk,
)
from ouro.llm.portable import (
    SEAL,
    arguments_of,
    base64_of,
    calls_of,
    describe_hidden,
    portable_id,
    portable_name,
    reply_text,
    texts_of,
)
from ouro.llm.provider_errors import error_from_stream
from ouro.llm.sealed_items import open_item, seal_item
from ouro.llm.server_facts import ServerFacts
from ouro.llm.wire import ChunkReader, Wire, make_usage
from ouro.messages import (
    Image,
    Message,
    PerMessage,
    Text,
    Thinking,
    ToolCall,
    ToolReply,
    Usage,
)
from ouro.utils.lenient_json import count, dictionaries, dictionary, string, text_or_json

MAX_ID = 64
"""Maximum characters of the id of a call."""
Item = dict[str, Any]


class ResponsesFormat:
    """Messages in the format of Responses: input items."""

    def __init__(self, spec: ModelSpec, address: str) -> None:
        self._spec = spec
        self._address = address
        self._formatted = PerMessage(lambda message: tuple(self._format_message(message)))
        self.returns_reasoning = True
        """Whether reasoning is sent back."""

    def instructions(self, messages: Sequence[Message]) -> str:
        """The system prompt as one text."""
        texts: list[str] = []
        for message in messages:
            if message.role == "system":
                texts += texts_of(message)
        return "\n\n".join(texts)

    def items(self, messages: Sequence[Message]) -> list[Item]:
        """The messages, without the system prompt, as items; the same messages give the same items.
        Reasoning before the last answer of another model is left out: it is stale when the user
        switches back.
        """
        dialog = [message for message in messages if message.role != "system"]
        last_foreign = -1  # none
        for index, message in enumerate(dialog):
            if self._is_foreign(message):
                last_foreign = index
        sent: list[Item] = []
        for index, items in enumerate(self._formatted(dialog)):
            keeps_reasoning = self.returns_reasoning and index > last_foreign
            sent += [item for item in items if keeps_reasoning or item["type"] != "reasoning"]
        return sent

    def _is_foreign(self, message: Message) -> bool:
        """Whether a message is an answer of another model."""
        return message.role == "assistant" and message.model != self._spec.name

    def _format_message(self, message: Message) -> Iterator[Item]:
        """Yield the items of a message; none for the system prompt."""
        match message.role:
            case "user":
                content = [_text_item(text) for text in texts_of(message)]
                content += [self._image_item(image) for image in message.parts_of(Image)]
                yield {"type": "message", "role": "user", "content": content}
            case "assistant":
                yield from self._answer_items(message)
            case "tool":
                for reply in message.parts_of(ToolReply):
                    yield self._result_item(reply)

    def _answer_items(self, message: Message) -> list[Item]:
        """An answer as items: texts, calls, and the reasoning that this model has sent."""
        calls = calls_of(message)
        items: list[Item] = []
        # The server names a phase for a text, and wants it back. It is in a part before the text.
        phase: Item = {}
        for part in message.parts:
            if isinstance(part, Text) and part.text.strip():
                items.append(
                    {"type": "message", "role": "assistant", "content": part.text, **phase}
                )
                phase = {}
            elif isinstance(part, ToolCall) and calls:  # none is sent of a message that was cut
                items.append(_call_item(part))
            elif isinstance(part, Thinking):
                item = self._sealed_item(part, message)
                if item.get("type") == "reasoning":
                    items.append(item)
                elif "phase" in item:
                    phase = {"phase": item["phase"]}
        return _without_open_reasoning(items)

    def _sealed_item(self, part: Thinking, message: Message) -> Item:
        """The item that this model sent with its thinking; empty if there is none, or the message is
        of another model or server, or was cut.
        """
        if message.model != self._spec.name or message.cut:
            return {}
        return open_item(part.signature, self._address) or {}

    def _result_item(self, reply: ToolReply) -> Item:
        """The result of a call, with its images if the model sees them."""
        text = reply_text(reply, self._spec.images)
        images = reply.images if self._spec.images else ()
        output: Any = [_text_item(text), *map(self._image_item, images)] if images else text
        return {
            "type": "function_call_output",
            "call_id": _call_id(reply.call_id),
            "output": output,
        }

    def _image_item(self, image: Image) -> Item:
        """An image, or its description if the model cannot see it."""
        if not self._spec.images:
            return _text_item(describe_hidden(image))
        url = f"data:{image.media_type};base64,{base64_of(image)}"
        return {"type": "input_image", "image_url": url, "detail": "auto"}


def _without_open_reasoning(items: list[Item]) -> list[Item]:
    """The items without reasoning at their end: the server refuses it without an item that follows."""
    while items and items[-1]["type"] == "reasoning":
        items = items[:-1]
    return items


def _text_item(text: str) -> Item:
    return {"type": "input_text", "text": text}


def _call_id(call_id: str) -> str:
    """The id of a call in a form that the server accepts."""
    return portable_id(call_id.partition(SEAL)[0], MAX_ID)


def _call_item(call: ToolCall) -> Item:
    """A call as an item."""
    return {
        "type": "function_call",
        "call_id": _call_id(call.id),
        "name": portable_name(call.name),
        "arguments": json.dumps(arguments_of(call), ensure_ascii=False),
    }


def _format_tools(tools: Sequence[ToolSpec]) -> list[Item]:
    """The tools in the format of Responses."""
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
            "strict": False,  # its default refuses schemas with optional arguments
        }
        for tool in tools
    ]


class _StreamedItem(msgspec.Struct):
    """One output item while it is streamed."""

    kind: str = ""
    """The type of the item; empty until it is known."""
    begun: bool = False
    """Whether a piece of it was streamed; else the whole item counts."""
    done: bool = False
    """Whether all of it has come."""


ENDS = ("response.completed", "response.incomplete", "response.failed", "response.done")
"""The events that end an answer."""


class ResponsesChunks(ChunkReader):
    """Reads the events of a streamed answer. Only the last event of this protocol ends it."""

    def __init__(self, spec: ModelSpec, endpoint: Endpoint) -> None:
        super().__init__(spec)
        self._endpoint = endpoint
        self._items: dict[int, _StreamedItem] = {}
        """The items so far, by their index in the output."""
        self._index_of_id: dict[str, int] = {}
        """The id of an item -> its index in the output."""
        self._last_index = 0
        """The index of the item of the last event."""

    def _implied_reason(self) -> Reason | None:
        """The reason of an answer that names none; None as long as its last event has not come."""
        return super()._implied_reason() if self.is_done else None

    def read(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """Yield the chunks of one event: of a piece of an item, of a whole item whose pieces did not
        come, or of the end of the answer. Events of other types have none.
        """
        kind = string(event.get("type"))
        if kind in ENDS:
            yield from self._end_answer(dictionary(event.get("response")), kind)
            return
        index = self._find_index(event)
        item = self._items.setdefault(index, _StreamedItem())
        match kind.removeprefix("response."):
            case "output_item.added":
                yield from self._begin_item(index, dictionary(event.get("item")))
            case "output_item.done":
                yield from self._complete_item(index, dictionary(event.get("item")))
            case "output_text.delta" | "refusal.delta":
                item.begun = True
                yield from self._text_chunks(None, event.get("delta"))
            case "reasoning_summary_part.added" if item.begun:
                yield from self._text_chunks("\n\n")  # between two parts
            case "reasoning_summary_text.delta" | "reasoning_text.delta" | "reasoning.delta":
                item.begun = True
                yield from self._text_chunks(event.get("delta"))
            case "function_call_arguments.delta":
                item.begun = True
                yield CallChunk(index, arguments=text_or_json(event.get("delta")))
            case "function_call_arguments.done" if not item.begun and event.get("arguments"):
                item.begun = True  # some relays send no pieces, and no arguments at the end
                yield CallChunk(index, arguments=text_or_json(event["arguments"]))

    def _find_index(self, event: dict[str, Any]) -> int:
        """The index in the output of the item that an event belongs to; stores it for later events.
        If the event has no index, it belongs to the item with its id, else to the item of the event
        before it.
        """
        item_id = string(dictionary(event.get("item")).get("id") or event.get("item_id"))
        index = count(event.get("output_index"))
        is_new_item = event.get("type") == "response.output_item.added"
        if index is None and is_new_item:
            index = len(self._items)
        elif index is None:
            index = self._index_of_id.get(item_id, self._last_index)
        if item_id:
            self._index_of_id[item_id] = index
        self._last_index = index
        return index

    def _begin_item(self, index: int, item: Item) -> Iterator[Chunk]:
        """Yield the chunks at the beginning of an item. For a call: its id and name. For a text:
        its phase, which the server wants back; or an empty line if the item before it is a text,
        too. Nothing if the item began earlier.
        """
        streamed = self._items.setdefault(index, _StreamedItem())
        if streamed.kind:
            return
        streamed.kind = string(item.get("type"))
        if streamed.kind == "function_call":
            call_id = text_or_json(item.get("call_id")) or text_or_json(item.get("id"))
            yield CallChunk(index, call_id, string(item.get("name")))
        elif streamed.kind == "message":
            phase = string(item.get("phase"))
            previous = self._items.get(index - 1)
            if phase:
                sealed = seal_item({"type": "message", "phase": phase}, self._endpoint.address)
                yield ThinkingChunk(text="", signature=sealed)
            elif previous is not None and previous.kind == "message":
                yield from self._text_chunks(None, "\n\n")

    def _complete_item(self, index: int, item: Item) -> Iterator[Chunk]:
        """Yield the rest of an item: all of it if no piece was streamed."""
        yield from self._begin_item(index, item)
        streamed = self._items[index]
        if streamed.done:
            return
        streamed.done = True
        match streamed.kind:
            case "reasoning":
                text = "" if streamed.begun else _reasoning_text(item)
                yield from self._text_chunks(text)
                sealed = seal_item(item, self._endpoint.address)
                yield ThinkingChunk(self._thinking.end(), sealed)
            case "message" if not streamed.begun:
                parts = dictionaries(item.get("content"))
                yield from self._text_chunks(
                    None, *(part.get("text") or part.get("refusal") for part in parts)
                )
            case "function_call" if not streamed.begun:
                yield CallChunk(index, arguments=text_or_json(item.get("arguments")))

    def _end_answer(self, response: Item, kind: str) -> Iterator[Chunk]:
        """Yield the rest of the items and the usage, and record why the answer ended. Raises
        ModelError if the provider says that it failed.
        """
        status = string(response.get("status")) or kind.removeprefix("response.")
        if status == "failed" or response.get("error"):
            raise error_from_stream(response.get("error") or {}, self._endpoint)
        for index, item in enumerate(dictionaries(response.get("output"))):
            if not self._items.get(index, _StreamedItem()).done:
                yield from self._complete_item(index, item)
        usage = dictionary(response.get("usage"))
        if usage:
            yield UsageChunk(parse_usage(usage, self._spec))
        self.reason = self._find_reason(status, response)

    def _find_reason(self, status: str, response: Item) -> Reason:
        """Why the answer ended."""
        if status == "incomplete":
            cause = dictionary(response.get("incomplete_details")).get("reason")
            return "filtered" if cause == "content_filter" else "length"
        kinds = {item.kind for item in self._items.values()}
        return "tools" if "function_call" in kinds else "stop"


def _reasoning_text(item: Item) -> str:
    """The texts in the summary and in the content of a reasoning item."""
    parts = [*dictionaries(item.get("summary")), *dictionaries(item.get("content"))]
    texts = [string(part.get("text")) for part in parts]
    return "\n\n".join(filter(None, texts))


def parse_usage(usage: Item, spec: ModelSpec) -> Usage | None:
    """Tokens and cost of an answer. The cost that the server names counts if the spec has no prices.
    None if a figure cannot be right.
    """
    details = dictionary(usage.get("input_tokens_details"))
    return make_usage(
        spec,
        sent=usage.get("input_tokens"),
        cached=details.get("cached_tokens"),
        cache_written=details.get("cache_write_tokens"),
        answered=usage.get("output_tokens"),
        cost=usage.get("cost"),
    )


class ResponsesWire(Wire):
    """A model that is reached by OpenAI's Responses API.

    Args:
        cache_key: the same for all requests of a project, so that they reach one cache.
        service_tier: how fast and at which price OpenAI answers; empty: the usual one.
    """

    usual_path = "v1"

    def __init__(
        self,
        spec: ModelSpec,
        endpoint: Endpoint,
        *,
        effort: Effort = "off",
        cache_key: str = "",
        service_tier: str = "",
        facts: ServerFacts | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(spec, endpoint, effort=effort, facts=facts)
        self._schema = schema
        """What answers are constrained to; empty: free text at temperature 0. None: not constrained."""
        self._cache_key = cache_key
        self._service_tier = service_tier
        self._rebuild_format()

    def _rebuild_format(self) -> None:
        super()._rebuild_format()
        self._format = ResponsesFormat(self.spec, self._endpoint.address)
        self._format.returns_reasoning = not self.facts.refuses_signatures

    def with_schema(self, schema: Mapping[str, Any]) -> ResponsesWire:
        """The same model on the same connection, at temperature 0, with answers that fit the
        schema. It is sent as `text.format`. If the server refuses that field, it is left out, and
        the answers are free text.
        """
        constrained = ResponsesWire(
            self._configured_spec,
            self._endpoint,
            effort=self._effort,
            cache_key=self._cache_key,
            service_tier=self._service_tier,
            facts=self.facts,
            schema=schema,
        )
        constrained.share_connections(self)
        return constrained

    def _events_of_whole(self, answer: Item) -> list[Item]:
        if not dictionaries(answer.get("output")):
            return []
        is_incomplete = answer.get("status") == "incomplete"
        kind = "response.incomplete" if is_incomplete else "response.completed"
        return [{"type": kind, "response": answer}]

    def _make_reader(self) -> ResponsesChunks:
        return ResponsesChunks(self.spec, self._endpoint)

    def _request(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelRequest:
        """The request: the whole input each time, because the server stores nothing."""
        body: dict[str, Any] = {
            "model": self._model,
            "instructions": self._format.instructions(messages),
            "input": self._format.items(messages),
            "tools": _format_tools(tools) if self.spec.tools else [],
            "max_output_tokens": self.spec.max_output,
            **self._reasoning_fields(),
            **self._constraint_fields(),
            "prompt_cache_key": self._cache_key,
            "service_tier": self._service_tier,
        }
        non_empty = {name: value for name, value in body.items() if value not in ("", [])}
        non_empty |= {"store": False, "stream": True}
        key = self._endpoint.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return ModelRequest("/responses", headers, non_empty)

    def _constraint_fields(self) -> dict[str, Any]:
        """The fields for a constrained answer; none if it is not constrained."""
        if self._schema is None:
            return {}
        if not self._schema:
            return {"temperature": 0}
        schema = {"name": "answer", "strict": True, "schema": dict(self._schema)}
        return {"temperature": 0, "text": {"format": {"type": "json_schema", **schema}}}

    def _reasoning_fields(self) -> dict[str, Any]:
        """The fields that ask for reasoning; none if the model does not think."""
        if not self.spec.thinking:
            return {}
        reasoning: dict[str, str] = {"effort": "none"}
        if self._effort != "off":
            reasoning = {"effort": self._effort, "summary": "auto"}
        return {"reasoning": reasoning, "include": ["reasoning.encrypted_content"]}
