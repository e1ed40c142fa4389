"""Where the plain prompt prints: styled by rich, or plain for terminals that cannot be and for screen readers."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable
from typing import Any

_STYLES = {"markdown.code": "cyan", "markdown.code_block": "none", "markdown.h1": "bold", "markdown.h2": "bold"}
_CONTROL = re.compile(r"\x1b\[[0-9;]*m")
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_LEAST_TITLE = 20


class Paper:
    """Writes finished lines. Text is never read as markup; it has to be cleaned by whoever brings it."""

    def __init__(self, write: Callable[[str], None], *, plain: bool) -> None:
        self._write = write
        self.plain = plain
        """No colours, no drawing: lines of text alone."""
        self._is_apart = True
        """What was printed last ended in an empty line."""

    def markdown(self, text: str) -> None:
        """Print a block of Markdown, between empty lines."""
        self._write("" if self._is_apart else "\n")
        self._is_apart = True
        if self.plain:
            self._write(f"{text}\n\n")
            return
        from ouro.frontends.plain.markdown import LeftMarkdown

        lines = [line.rstrip(" ") for line in self._rendered(LeftMarkdown(text)).split("\n")]
        filled = [place for place, line in enumerate(lines) if _CONTROL.sub("", line).strip()]
        shown = lines[filled[0] : filled[-1] + 1] if filled else []
        self._write("\n".join([*shown, "", ""]))

    def order(self, sequence: str) -> None:
        """Give the terminal an order, where it takes any."""
        if not self.plain:
            self._write(sequence)

    def line(self, text: str, style: str = "") -> None:
        """Print text as it is."""
        self._styled((text, style))

    def marked(self, mark: str, style: str, title: str, detail: str) -> None:
        """Print a mark, a title, and what came of it; a terminal has it on one line where the title can give way."""
        after = f"  {detail}" if detail else ""
        if not self.plain:
            title = _fitted(title, beside=f"{mark} {after}")
        self._styled((f"{mark} ", style), (title, ""), (after, "dim"))

    def diff_line(self, line: str) -> None:
        """Print a line of a unified diff."""
        heading = line.startswith(("+++ ", "--- "))
        self._styled((f"  {line}", "bold" if heading else _DIFF_STYLES.get(line[:1], "")))

    def _styled(self, *pieces: tuple[str, str]) -> None:
        self._is_apart = False
        if self.plain:
            self._write("".join(text for text, _ in pieces).rstrip() + "\n")
            return
        from rich.text import Text

        self._write(self._rendered(Text.assemble(*pieces, overflow="fold")))

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


def _fitted(title: str, *, beside: str) -> str:
    """As much of a title as there is room for in a line that has this beside it."""
    from rich.text import Text

    fitted = Text(title)
    fitted.truncate(max(_LEAST_TITLE, _width() - Text(beside).cell_len), overflow="ellipsis")
    return fitted.plain


def _width() -> int:
    return max(20, shutil.get_terminal_size().columns)
