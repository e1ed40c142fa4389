"""Skill: read how to do a kind of task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec

from ouro.display import Display
from ouro.safety import Effect
from ouro.tools.tool import Tool, ToolContext, ToolResult
from ouro.utils.text import plural


class SkillArgs(msgspec.Struct, frozen=True):
    name: Annotated[
        str,
        msgspec.Meta(min_length=1, description="The name of the skill, as listed under Skills."),
    ]
    file: Annotated[
        str,
        msgspec.Meta(description="A file beside it that the skill names; empty: the skill itself."),
    ] = ""
    arguments: Annotated[str, msgspec.Meta(description="For the `$ARGUMENTS` of the skill.")] = ""


UseSkill = Callable[[SkillArgs, ToolContext], Awaitable[ToolResult | str]]
"""Returns the text of a skill or of one of its files, or the report of a subagent. Raises
ToolError: there is none.
"""


class SkillTool(Tool[SkillArgs]):
    """Read a skill: how one kind of task is done here. Call it before you begin such a task, then
    do what it says.

    The skills are listed in the system prompt. A skill may name further files: read them with
    `file`, where needed.
    """

    name = "skill"
    effect = Effect.NONE
    Args = SkillArgs

    def __init__(self, use: UseSkill) -> None:
        self._use = use

    def title(self, args: SkillArgs) -> str:
        return f"{args.name}/{args.file}" if args.file else args.name

    async def run(self, args: SkillArgs, ctx: ToolContext) -> ToolResult:
        skill = await self._use(args, ctx)
        if isinstance(skill, ToolResult):
            return skill
        return ToolResult(skill, Display(plural(skill.count("\n") + 1, "line")))
