"""Requests: the system prompt and the tools, the same in all requests of a session, so that providers cache them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from ouro.agent.tool_runner import ToolRunner
from ouro.errors import ToolError
from ouro.llm import Model, ToolSpec
from ouro.memory.tokens import estimate
from ouro.messages import Message, Text, ToolReply
from ouro.safety import Effect

PROJECT = """\
# The project's instructions

The owners of this repository wrote these instructions. They apply to all your work in it. Where they differ, the later
(nearer) one wins. What the user says in this session wins over all of them."""

USER = """\
# The user's instructions

The user wrote these for all projects. Where the project's instructions differ, those win."""

MEMORY = "<long_term_memory_management>"
"""The beginning of long-term memory in the system prompt."""


class Requests(msgspec.Struct, frozen=True, dict=True):
    instructions: str
    tools: ToolRunner
    memory: str = ""
    """A separate part after the instructions, because it changes more often."""

    @cached_property
    def prompt(self) -> Message:
        """The same object for all requests, so that it is converted only once."""
        return Message("system", tuple(Text(text) for text in (self.instructions, self.memory) if text))

    def messages(self, sent: Sequence[Message]) -> list[Message]:
        return [self.prompt, *sent]

    def specs(self, model: Model) -> tuple[ToolSpec, ...]:
        """The tools for this model: with the edit tool that it was trained on."""
        return self.tools.specs(("edit",) if model.spec.patches else ("apply_patch",))

    def sizes(self, model: Model) -> tuple[int, int]:
        """About how many tokens the system prompt and the tools are."""
        tools = sum(estimate(f"{spec.name}{spec.description}{spec.parameters}") for spec in self.specs(model))
        return estimate(self.prompt.text), tools

    def files_in(self, messages: Sequence[Message]) -> Iterator[str]:
        """The files that the calls in `messages` changed or read, in order, as list items."""
        results = {result.call_id: result for message in messages for result in message.parts_of(ToolReply)}
        for call in (call for message in messages for call in message.tool_calls):
            result = results.get(call.id)
            if result is None or result.failed:
                continue
            try:
                tool, args = self.tools.parse(call)
            except ToolError:
                continue  # a tool that no longer exists
            if tool.effect is Effect.WRITE:
                yield from (f"- changed `{path}`" for path in tool.targets(args))
            elif tool.name == "read":
                yield from (f"- read `{path}`" for path in tool.targets(args))


def prompt_parts(prompt: str) -> list[tuple[str, str]]:
    """The sections of a system prompt: name and text."""
    marks = ((USER, "your instructions"), (PROJECT, "project instructions"), (MEMORY, "memory"))
    starts = [(0, "system prompt"), *sorted((prompt.find(mark), name) for mark, name in marks if mark in prompt)]
    ends = [start for start, _ in starts[1:]] + [len(prompt)]
    return [(name, prompt[start:end]) for (start, name), end in zip(starts, ends, strict=True)]


def system_prompt(project: Sequence[str], user: Sequence[str] = (), own: str = "") -> str:
    """The system prompt: the same bytes for the same project, so that providers can cache it. `own`: of a subagent.

    What changes daily or with each turn (date, branch, mode) is sent with the user's messages instead.
    """
    own = own or Path(__file__).with_name("system_prompt.md").read_text(encoding="utf-8").strip()
    sections = ((USER, user), (PROJECT, project))
    return "\n\n".join([own, *(text for title, texts in sections if texts for text in (title, *texts))])
