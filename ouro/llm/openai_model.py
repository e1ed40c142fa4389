"""OpenAIModel: a server of which it is not known which of OpenAI's two protocols it speaks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

from ouro.errors import RequestRefused, WireRefused
from ouro.llm.model import (
    Chunk,
    Effort,
    Endpoint,
    Model,
    ModelSpec,
    ToolSpec,
    constrain,
)
from ouro.llm.openai import OpenAIWire
from ouro.llm.server_facts import ServerFacts
from ouro.llm.wire import Wire
from ouro.messages import Message
from ouro.utils.late_pattern import late_pattern

WireChoice = Literal["responses", "chat"]
_MISSING = late_pattern(r"answered (404|405|501)|instead of a stream")
"""How a server answers that has no such address."""


class OpenAIModel:
    """Begins with one wire; a refusal that names the other, or a missing address, changes to that
    one in the same turn. The wire that answered is learned.

    If a model needs Responses and its server has only chat completions, it works without thinking.
    """

    def __init__(
        self,
        spec: ModelSpec,
        endpoint: Endpoint,
        *,
        effort: Effort = "off",
        wires: Sequence[WireChoice] = ("chat", "responses"),
        cache_key: str = "",
        service_tier: str = "",
        facts: ServerFacts | None = None,
    ) -> None:
        """`wires`: those that may be used, the likely one first; one: it is used whatever was
        learned.
        """
        self._configured_spec = spec
        self._endpoint = endpoint
        self._effort = effort
        self._cache_key = cache_key
        self._service_tier = service_tier
        self._facts = facts or ServerFacts()
        is_fixed = len(wires) == 1
        learned = "" if is_fixed else self._facts.get("wire")
        # A server that has lost its address for Responses is asked by chat again.
        self._is_settled = is_fixed or learned == "chat"
        """Whether both wires were tried, or one has answered."""
        self._has_left_chat = False
        self.wire: Wire = self._make_wire(learned or wires[0])

    @property
    def spec(self) -> ModelSpec:
        return self._facts.spec(self._configured_spec)

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
                        self.wire.other_wire = ""
                        yield chunk
                return
            except RequestRefused as refusal:
                if begun or self._is_settled or not self._change_wire(refusal):
                    raise

    def _change_wire(self, refusal: RequestRefused) -> bool:
        """Change to the other wire; returns whether that may help."""
        before = self.wire
        if isinstance(before, OpenAIWire):
            if not isinstance(refusal, WireRefused):
                return False
            self._has_left_chat = True
            self.wire = self._make_wire("responses")
        elif self._has_left_chat or _MISSING.search(str(refusal)):
            self._is_settled = True
            self._facts.try_changes({"wire": "chat"}, str(refusal))
            self.wire = self._make_wire("chat")
        else:
            return False
        self.wire.share_connections(before)
        return True

    def _make_wire(self, name: str) -> Wire:
        """The wire of this name. It may not name the other one once both were tried."""
        wire = self._make_responses() if name == "responses" else self._make_chat()
        wire.other_wire = "" if self._is_settled or name == "responses" else "responses"
        return wire

    def _make_chat(self) -> OpenAIWire:
        return OpenAIWire(
            self._configured_spec, self._endpoint, effort=self._effort, facts=self._facts
        )

    def _make_responses(self) -> Wire:
        """The wire to Responses, with the cache key of the project."""
        from ouro.llm.responses import ResponsesWire  # most servers do not need it

        return ResponsesWire(
            self._configured_spec,
            self._endpoint,
            effort=self._effort,
            cache_key=self._cache_key,
            service_tier=self._service_tier,
            facts=self._facts,
        )
