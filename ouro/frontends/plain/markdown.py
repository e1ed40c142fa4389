"""Markdown as the plain prompt shows it: by rich, with headings at the left margin and links spelt out."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.text import Text


class LeftHeading(Heading):
    """A heading without a frame, where the eye looks for it."""

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        yield Text("")
        self.text.justify = "left"
        yield self.text


class LeftMarkdown(Markdown):
    """Markdown whose links are shown with their address, and cannot be clicked."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": LeftHeading}

    def __init__(self, text: str) -> None:
        super().__init__(text, code_theme="ansi_dark", hyperlinks=False)
