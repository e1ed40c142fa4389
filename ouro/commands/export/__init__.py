"""A session as a document: which formats there are, and its pieces in one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from ouro.commands.export.as_html import as_html
from ouro.commands.export.as_json import as_json
from ouro.commands.export.as_markdown import as_markdown
from ouro.commands.export.outline import Survey, survey
from ouro.memory.sessions.session_reader import WholeSession

Format = Literal["markdown", "html", "json"]
FORMATS: Mapping[Format, Callable[[WholeSession, Survey], Iterator[str]]] = {
    "markdown": as_markdown,
    "html": as_html,
    "json": as_json,
}
ENDINGS: Mapping[str, str] = {"markdown": ".md", "html": ".html", "json": ".json"}
_BY_ENDING: Mapping[str, Format] = {
    ".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html", ".json": "json",
}  # fmt: skip


def format_of(path: Path) -> Format:
    """The format that a file's ending asks for; Markdown where it asks for none."""
    return _BY_ENDING.get(path.suffix.lower(), "markdown")


def document(whole: WholeSession, to: Format) -> Iterator[str]:
    """A session in a format, piece by piece; blocks on the disk, and ends in memory that does not grow with it.

    Raises:
        SessionError: the session cannot be read.
    """
    return FORMATS[to](whole, survey(whole))
