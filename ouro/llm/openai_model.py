"""OpenAIModel: a server of which it is not known which of OpenAI's two protocols it speaks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

from ouro.errors import RequestRefused
from ouro.llm.model import (
    Chunk,
    Effort,
    Endpoint,
    Model,
    ModelSpec,
    NoticeChunk,
    ToolSpec,
    constrain,
)
from ouro.llm.openai import OpenAIWire, names_responses
from ouro.llm.wire import Wire
from ouro.messages import Message
from ouro.utils.late_pattern import late_pattern

_WITHOUT_THINKING = (
    "{model} works without thinking here: it needs /responses to think and use tools, and this"
    " server does not offer that."
)
WireChoice = Literal["responses", "chat"]
_MISSING = late_pattern(r"answered (404|405|501)|instead of a stream")
"""How a server answers that has no such address."""


class OpenAIModel:
    """Begins with one wire; a refusal that names the other, or a missing address, changes to that
    one in the same turn.

    If a model needs Responses and its server has only chat completions, it works without thinking.
    """

    def __init__(
        self,
        spec: ModelSpec,
        endpoint: Endpoint,
        *,
        effort: Effort = "off",
        first: WireChoice = "chat",
        cache_key: str = "",
        service_tier: str = "",
    ) -> None:
        self.spec = spec
        self._endpoint = endpoint
        self._effort = effort
        self._cache_key = cache_key
        self._service_tier = service_tier
        self._is_settled = False
        """Whether both wires were tried, or one has answered."""
        self._needs_responses = False
        """Whether the server said so."""
        self._notice = ""
        self.wire: Wire = self._make_chat() if first == "chat" else self._make_responses()

    async def warm(self) -> None:
        await self.wire.warm()

    async def close(self) -> None:
        await self.wire.close()

    def with_schema(self, schema: Mapping[str, Any]) -> Model:
        return constrain(self.wire, schema)

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> AsyncGenerator[Chunk, None]:
        while True:
            begun = False
            try:
                async with aclosing(self.wire.stream(messages, tools)) as chunks:
                    async for chunk in chunks:
                        begun = self._is_settled = True
                        yield chunk
                        if notice := self._notice:
                            self._notice = ""
                            yield NoticeChunk(notice)
                return
            except RequestRefused as refusal:
                if begun or not self._change(str(refusal)):
                    raise

    def _change(self, refusal: str) -> bool:
        """Change to the other wire; returns whether that may help."""
        if self._is_settled:
            return False
        before = self.wire
        if isinstance(before, OpenAIWire):
            if not names_responses(refusal):
                return False
            self._needs_responses = True
            self.wire = self._make_responses()
        elif self._needs_responses or _MISSING.search(refusal):
            self._is_settled = True
            self.wire = self._make_chat()
        else:
            return False
        self.wire.share_connections(before)
        return True

    def _make_chat(self) -> OpenAIWire:
        chat = OpenAIWire(self.spec, self._endpoint, effort=self._effort)
        chat.defers_to_responses = not self._is_settled
        if self._needs_responses:
            chat.stop_thinking()
            self._notice = _WITHOUT_THINKING.format(model=self.spec.name)
        return chat

    def _make_responses(self) -> Wire:
        from ouro.llm.responses import ResponsesWire  # most servers do not need it

        return ResponsesWire(
            self.spec,
            self._endpoint,
            effort=self._effort,
            cache_key=self._cache_key,
            service_tier=self._service_tier,
        )
