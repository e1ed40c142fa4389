"""Requests: what goes with every request of a conversation, the same each time, so that providers can cache it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ouro.agent.tool_runner import ToolRunner
from ouro.errors import ToolError
from ouro.llm.model import Model, ToolSpec
from ouro.memory.tokens import estimate
from ouro.messages import Message, ToolReply, system
from ouro.safety.access import Effect


class Requests(msgspec.Struct, frozen=True):
    """The system prompt and the tools of a conversation."""

    instructions: str
    tools: ToolRunner

    def messages(self, sent: Sequence[Message]) -> list[Message]:
        """What is sent, behind the system prompt."""
        return [system(self.instructions), *sent]

    def specs(self, model: Model) -> tuple[ToolSpec, ...]:
        """The tools as this model is told of them: with the way of editing that it knows best."""
        return self.tools.specs(("edit",) if model.spec.patches else ("apply_patch",))

    def sizes(self, model: Model) -> tuple[int, int]:
        """About how many tokens the system prompt and the tools are."""
        tools = sum(estimate(f"{spec.name}{spec.description}{spec.parameters}") for spec in self.specs(model))
        return estimate(self.instructions), tools

    def files_in(self, messages: Sequence[Message]) -> Iterator[str]:
        """The files that the calls in `messages` changed or read, in order, as lines of a list."""
        answered = {reply.call_id: reply for message in messages for reply in message.parts_of(ToolReply)}
        for call in (call for message in messages for call in message.tool_calls):
            reply = answered.get(call.id)
            if reply is None or reply.failed:
                continue
            try:
                tool, args = self.tools.understand(call)
            except ToolError:
                continue  # a tool that is not here any more
            if tool.effect is Effect.WRITE:
                yield from (f"- changed `{path}`" for path in tool.targets(args))
            elif tool.name == "read":
                yield from (f"- read `{path}`" for path in tool.targets(args))
