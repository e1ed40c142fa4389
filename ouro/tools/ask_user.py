"""AskUser: ask the user a question."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from ouro.display import Display, Plain, Question
from ouro.safety import Effect
from ouro.tools.tool import Tool, ToolContext, ToolResult

_EMPHASIS = re.compile(r"(\*\*|__|`)(?=\S)(.{1,200}?)(?<=\S)\1")


class AskUserArgs(msgspec.Struct, frozen=True):
    question: Annotated[str, msgspec.Meta(min_length=1)]
    choices: Annotated[
        list[str],
        msgspec.Meta(description="Recommended first; the user may write another."),
    ] = []
    several: Annotated[bool, msgspec.Meta(description="Several may be chosen.")] = False
    details: Annotated[str, msgspec.Meta(description="What the user should know, in Markdown.")] = (
        ""
    )


class AskUser(Tool[AskUserArgs]):
    """Ask the user a question and wait for the answer.

    Only about decisions of the user: what they want, which of several ways, what cannot be undone.
    Not what you can find out, and not whether to continue. One thing at a time.
    """

    name = "ask_user"
    effect = Effect.NONE
    Args = AskUserArgs

    def title(self, args: AskUserArgs) -> str:
        return f"ask: {_plain(args.question)}"

    async def run(self, args: AskUserArgs, ctx: ToolContext) -> ToolResult:
        """Ask the user. No answer is a result, too: the model then decides."""
        question = Question(
            _plain(args.question),
            choices=tuple(map(_plain, args.choices)),
            several=args.several,
            details=args.details,
        )
        answers = await ctx.ask(question)
        if not answers:
            text = (
                "The user gave no answer. Use your best judgement, or state what needs an answer."
            )
            return ToolResult(text, Display("no answer"))
        shown = "\n".join(answers)
        return ToolResult(
            f"The user answered:\n{shown}",
            Display(", ".join(answers), Plain(f"{question.text}\n{shown}")),
        )


def _plain(text: str) -> str:
    """A question or choice without marks of emphasis: it is shown as text."""
    return _EMPHASIS.sub(r"\2", text)
