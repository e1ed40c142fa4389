"""The context of a tool in tests: it records reports, and answers questions with prepared texts."""

from __future__ import annotations

from collections.abc import Sequence

from ouro.display import Question
from ouro.tools.tool import AnyTool, ToolContext, ToolResult, parse_arguments


class Surroundings:
    """A tool's context that records reports and questions."""

    def __init__(self, answers: Sequence[str] = ()) -> None:
        self.answers = tuple(answers)
        self.reports: list[str] = []
        self.questions: list[Question] = []

    @property
    def context(self) -> ToolContext:
        return ToolContext(self.reports.append, self._ask)

    async def _ask(self, question: Question) -> tuple[str, ...]:
        self.questions.append(question)
        return self.answers


async def call(tool: AnyTool, **arguments: object) -> ToolResult:
    """Run a tool as the agent does: arguments as plain data."""
    return await tool.run(parse_arguments(tool, arguments), Surroundings().context)
