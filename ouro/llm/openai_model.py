"""OpenAIModel: a server of which it is not known which of OpenAI's two protocols it speaks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

from ouro.errors import NotAStream, RequestRefused, WireRefused
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

WireChoice = Literal["responses", "chat"]
_ADDRESS_MISSING = (404, 405)
"""Statuses of a server that does not have the address of a protocol."""


class OpenAIModel:
    """A model on a server that may speak either of OpenAI's protocols. One wire is tried first; a
    refusal that names the other one, or a missing address, changes to that one in the same turn.
    The wire that answered is remembered.

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
        """Choose the wire for the first request. Nothing is sent here.

        Args:
            wires: the wires that may be used; the one that the server probably has is first. If
                there is only one, it is used even if a server has refused it.
            cache_key, service_tier: as in `ResponsesWire`; chat completions do not use them.
            facts: what is known of the server; None: nothing.
        """
        self._configured_spec = spec
        self._endpoint = endpoint
        self._effort = effort
        self._cache_key = cache_key
        self._service_tier = service_tier
        self._facts = facts or ServerFacts()
        is_fixed = len(wires) == 1
        remembered = "" if is_fixed else self._facts.get("wire")
        # A remembered "responses" is not final: a server that does not offer Responses any more
        # is asked by chat completions.
        self._is_settled = is_fixed or remembered == "chat"
        """Whether no other wire is tried any more: there is no other, both were tried, or one has
        answered.
        """
        self._has_left_chat = False
        """Whether chat completions were tried, and refused."""
        self.wire: Wire = self._make_wire(remembered or wires[0])

    @property
    def spec(self) -> ModelSpec:
        """The facts about the model, with what refusals have taught."""
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
        """Yield the chunks of an answer. A refused request is sent by the other wire once, if that
        may help.
        """
        while True:
            try:
                async with aclosing(self.wire.stream(messages, tools)) as chunks:
                    async for chunk in chunks:
                        self._is_settled = True  # this wire has answered
                        self.wire.other_wire = ""
                        yield chunk
                return
            except RequestRefused as refusal:
                if self._is_settled or not self._change_wire(refusal):
                    raise

    def _change_wire(self, refusal: RequestRefused) -> bool:
        """Change to the other wire if the refusal says that this may help. Returns whether the wire
        was changed.

        Chat completions are left if their refusal names Responses. Responses are left if the server
        does not have their address, or if they were only tried because chat completions were
        refused: then chat completions are final.
        """
        refused_wire = self.wire
        if isinstance(refused_wire, OpenAIWire):
            if not isinstance(refusal, WireRefused):  # it does not name the other wire
                return False
            self._has_left_chat = True
            self.wire = self._make_wire("responses")
        elif self._has_left_chat or _lacks_address(refusal):
            self._is_settled = True
            self._facts.try_changes({"wire": "chat"}, str(refusal))
            self.wire = self._make_wire("chat")
        else:
            return False
        self.wire.share_connections(refused_wire)
        return True

    def _make_wire(self, name: str) -> Wire:
        """The wire of this name, `responses` or `chat`. A wire for chat completions knows the other
        one until the choice is settled: then a refusal that names Responses raises WireRefused.
        """
        if name == "responses":
            return self._make_responses()
        wire = self._make_chat()
        wire.other_wire = "" if self._is_settled else "responses"
        return wire

    def _make_chat(self) -> OpenAIWire:
        return OpenAIWire(
            self._configured_spec, self._endpoint, effort=self._effort, facts=self._facts
        )

    def _make_responses(self) -> Wire:
        """The wire to Responses, with the cache key of the project."""
        from ouro.llm.openai_responses import ResponsesWire  # most servers do not need it

        return ResponsesWire(
            self._configured_spec,
            self._endpoint,
            effort=self._effort,
            cache_key=self._cache_key,
            service_tier=self._service_tier,
            facts=self._facts,
        )


def _lacks_address(refusal: RequestRefused) -> bool:
    """Whether a refusal shows that the server does not have the address of a protocol."""
    status = refusal.answer.status if refusal.answer else 0
    return isinstance(refusal, NotAStream) or status in _ADDRESS_MISSING
