"""What a tool has changed or printed, as the plain prompt shows it: diffs, the ends of outputs, plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from ouro.commands.markdown import TODO_MARKS, unified_diff
from ouro.display import Body, CommandOutput, Diff, Display, FileChange, Picture, Plain, Todo, Todos
from ouro.utils.text import clean, escaped, one_line

if TYPE_CHECKING:
    from ouro.frontends.plain.paper import Paper

OUTPUT_LINES = 8
FAILED_LINES = 16
DIFF_LINES = 60
ASKED_LINES = 400


class Bodies:
    """Prints what unfolds below a tool's line."""

    def __init__(self, paper: Paper) -> None:
        self._paper = paper

    def show(self, body: Body | None, *, failed: bool) -> None:
        """Print what came of a tool, cut to what a reader wants to see of it."""
        self._body(body, FAILED_LINES if failed else OUTPUT_LINES, DIFF_LINES)

    def asked(self, display: Display) -> None:
        """Print the whole of what a question is about, as it would be carried out."""
        if isinstance(display.body, CommandOutput):
            for line in display.body.command.splitlines():
                self._paper.line(f"  $ {escaped(line)}")
        else:
            self._body(display.body, ASKED_LINES, ASKED_LINES)

    def _body(self, body: Body | None, lines: int, diff_lines: int) -> None:
        match body:
            case None:
                pass
            case Diff(changes):
                self._diff(changes, diff_lines)
            case CommandOutput(output=output):
                self._tail(output, lines)
            case Plain():
                if lines >= ASKED_LINES:
                    self._tail(body.text, lines)
            case Todos(items):
                self._todos(items)
            case Picture():
                self._paper.line(f"  {one_line(body.name)}, {body.media_type}, {body.bytes:,} bytes", "dim")
            case _:
                assert_never(body)

    def _diff(self, changes: Sequence[FileChange], limit: int) -> None:
        lines = [line for change in changes for line in unified_diff(change)]
        for line in lines[:limit]:
            self._paper.diff_line(escaped(line))
        if len(lines) > limit:
            self._paper.line(f"  … {len(lines) - limit} more lines", "dim")

    def _tail(self, text: str, limit: int) -> None:
        lines = clean(text).rstrip().splitlines()
        if len(lines) > limit:
            self._paper.line(f"  … {len(lines) - limit} lines before", "dim")
        for line in lines[-limit:]:
            self._paper.line(f"  {line}", "dim")

    def _todos(self, todos: Sequence[Todo]) -> None:
        for todo in todos:
            self._paper.line(f"  {TODO_MARKS[todo.state]} {one_line(todo.text)}")
