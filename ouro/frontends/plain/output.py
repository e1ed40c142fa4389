"""Where the plain prompt prints: styled by rich, or plain text for dumb terminals and screen readers."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, assert_never

from ouro.commands.render import TODO_MARKS, unified_diff
from ouro.display import Body, CommandOutput, Diff, Display, FileChange, Picture, Plain, Todo, Todos
from ouro.utils.text import clean, escaped, one_line

OUTPUT_LINES = 8
FAILED_LINES = 16
DIFF_LINES = 60
QUESTION_LINES = 400
MIN_TITLE = 20
_STYLES = {"markdown.code": "cyan", "markdown.code_block": "none", "markdown.h1": "bold", "markdown.h2": "bold"}
_CONTROL = re.compile(r"\x1b\[[0-9;]*m")
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


class PlainOutput:
    """Writes finished lines. Text is never read as markup; the caller has cleaned it of control characters."""

    def __init__(self, write: Callable[[str], None], *, plain: bool) -> None:
        """With `plain` there are no colours and no drawing, only lines of text."""
        self._write = write
        self.plain = plain
        self._ends_with_gap = True

    def markdown(self, text: str) -> None:
        """Print a block of Markdown, between empty lines."""
        self._write("" if self._ends_with_gap else "\n")
        self._ends_with_gap = True
        if self.plain:
            self._write(f"{text}\n\n")
            return
        lines = [line.rstrip(" ") for line in self._rendered(_markdown(text)).split("\n")]
        filled = [place for place, line in enumerate(lines) if _CONTROL.sub("", line).strip()]
        shown = lines[filled[0] : filled[-1] + 1] if filled else []
        self._write("\n".join([*shown, "", ""]))

    def control(self, sequence: str) -> None:
        if not self.plain:
            self._write(sequence)

    def line(self, text: str, style: str = "") -> None:
        self._styled((text, style))

    def marked(self, mark: str, style: str, title: str, detail: str) -> None:
        """Print a mark, a title and a detail; the title is cut so that they fit one line."""
        after = f"  {detail}" if detail else ""
        if not self.plain:
            title = _fitted(title, beside=f"{mark} {after}")
        self._styled((f"{mark} ", style), (title, ""), (after, "dim"))

    def body(self, body: Body | None, *, failed: bool) -> None:
        """Print the result of a tool, cut to the lines a reader wants to see."""
        self._body(body, FAILED_LINES if failed else OUTPUT_LINES, DIFF_LINES)

    def question_body(self, display: Display) -> None:
        if isinstance(display.body, CommandOutput):
            for line in display.body.command.splitlines():
                self.line(f"  $ {escaped(line)}")
        else:
            self._body(display.body, QUESTION_LINES, QUESTION_LINES)

    def _body(self, body: Body | None, lines: int, diff_lines: int) -> None:
        match body:
            case None:
                pass
            case Diff(changes):
                self._diff(changes, diff_lines)
            case CommandOutput(output=output):
                self._tail(output, lines)
            case Plain():
                if lines >= QUESTION_LINES:
                    self._tail(body.text, lines)
            case Todos(items):
                self._todos(items)
            case Picture():
                self.line(f"  {one_line(body.name)}, {body.media_type}, {body.bytes:,} bytes", "dim")
            case _:
                assert_never(body)

    def _diff(self, changes: Sequence[FileChange], limit: int) -> None:
        lines = [line for change in changes for line in unified_diff(change)]
        for line in lines[:limit]:
            heading = line.startswith(("+++ ", "--- "))
            self.line(f"  {escaped(line)}", "bold" if heading else _DIFF_STYLES.get(line[:1], ""))
        if len(lines) > limit:
            self.line(f"  … {len(lines) - limit} more lines", "dim")

    def _tail(self, text: str, limit: int) -> None:
        lines = clean(text).rstrip().splitlines()
        if len(lines) > limit:
            self.line(f"  … {len(lines) - limit} lines before", "dim")
        for line in lines[-limit:]:
            self.line(f"  {line}", "dim")

    def _todos(self, todos: Sequence[Todo]) -> None:
        for todo in todos:
            self.line(f"  {TODO_MARKS[todo.state]} {one_line(todo.text)}")

    def _styled(self, *runs: tuple[str, str]) -> None:
        self._ends_with_gap = False
        if self.plain:
            self._write("".join(text for text, _ in runs).rstrip() + "\n")
            return
        from rich.text import Text

        self._write(self._rendered(Text.assemble(*runs, overflow="fold")))

    def _rendered(self, renderable: Any) -> str:
        from rich.console import Console
        from rich.theme import Theme

        file = io.StringIO()
        console = Console(
            file=file, force_terminal=True, width=_width(), highlight=False, emoji=False, markup=False,
            theme=Theme(_STYLES), soft_wrap=False,
        )  # fmt: skip
        console.print(renderable)
        return file.getvalue()


def _markdown(text: str) -> Any:
    return _markdown_class()(text, code_theme="ansi_dark", hyperlinks=False)


@lru_cache(maxsize=1)
def _markdown_class() -> Any:
    """Rich's Markdown with headings at the left margin. Imported late: a plain terminal does without rich."""
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import Heading, Markdown
    from rich.text import Text

    class LeftHeading(Heading):
        def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
            yield Text("")
            self.text.justify = "left"
            yield self.text

    class LeftMarkdown(Markdown):
        elements = {**Markdown.elements, "heading_open": LeftHeading}  # noqa: RUF012 (rich's own form)

    return LeftMarkdown


def _fitted(title: str, *, beside: str) -> str:
    """As much of `title` as fits on a line that also holds `beside`."""
    from rich.text import Text

    fitted = Text(title)
    fitted.truncate(max(MIN_TITLE, _width() - Text(beside).cell_len), overflow="ellipsis")
    return fitted.plain


def _width() -> int:
    return max(20, shutil.get_terminal_size().columns)
