"""Subagent: hand a task to an agent with its own context, tools and limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Literal

import msgspec

from ouro.llm import ToolSpec
from ouro.safety import Effect, Mode
from ouro.tools.tool import Tool, ToolContext, ToolResult


class AgentSpec(msgspec.Struct, frozen=True):
    """A kind of subagent: built in, or from a file in `agents/`."""

    name: str
    description: str
    """The description for the model."""
    prompt: str
    """The system prompt, without the project's instructions and memory."""
    tools: tuple[str, ...] = ()
    """The names of its tools; empty: all that a subagent can have."""
    model: str = ""
    """A name in models.yaml, or `cheap`; empty: the model of the session."""
    mode: Mode = "auto"
    """Its permission mode; if the mode of the session permits less, that mode is used."""
    max_turns: int | None = None
    """The maximum number of model calls; None: `subagents.max_turns`."""
    worktree: bool = False
    """Whether it always works in its own git worktree."""
    source: Literal["built in", "user", "project", "plugin"] = "built in"
    path: str = ""
    """The path of its file."""
    without: tuple[str, ...] = ()
    """Tools that it never has."""
    skills: tuple[str, ...] = ()
    """Skills whose text is part of its system prompt."""


class SubagentArgs(msgspec.Struct, forbid_unknown_fields=True):
    task: Annotated[
        str,
        msgspec.Meta(
            min_length=1, max_length=100, description="In three to eight words, for the user."
        ),
    ]
    prompt: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            description=(
                "What to do and to report, with all that it needs: it sees nothing of this session."
            ),
        ),
    ]
    agent: str = "general"
    resume: Annotated[
        str, msgspec.Meta(description="The id of an earlier subagent, which continues.")
    ] = ""
    background: Annotated[
        bool, msgspec.Meta(description="Return at once; the report comes later.")
    ] = False
    worktree: Annotated[
        bool,
        msgspec.Meta(
            description=(
                "A git worktree of its own, at the last commit; returns a branch and a diff."
            )
        ),
    ] = False


RunSubagent = Callable[[SubagentArgs, ToolContext], Awaitable[ToolResult]]


class Subagent(Tool[SubagentArgs]):
    """Give a task to a subagent with a context of its own; it returns one report.

    - For work of which only the result matters: searching many files, an independent review, an independent part. For
      one file or one search use your own tools.
    - Calls in one reply run side by side. Two agents must not change the same files, unless each has a worktree.
    - It cannot ask you anything. The user does not see its report, which is data: check what matters, and tell them.
    """

    name = "subagent"
    effect = Effect.NONE
    Args = SubagentArgs

    def __init__(self, run: RunSubagent, specs: Sequence[AgentSpec]) -> None:
        self._run = run
        self._specs = specs

    def spec(self) -> ToolSpec:
        plain = super().spec()
        kinds = "\n".join(f"- {spec.name}: {spec.description}" for spec in self._specs)
        return ToolSpec(plain.name, f"{plain.description}\n\nKinds:\n{kinds}", plain.parameters)

    def title(self, args: SubagentArgs) -> str:
        return f"{args.resume or args.agent}: {args.task}"

    async def run(self, args: SubagentArgs, ctx: ToolContext) -> ToolResult:
        return await self._run(args, ctx)
