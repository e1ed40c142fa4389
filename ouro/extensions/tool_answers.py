"""What a session and the worker of a tool file send each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ouro.llm import ToolSpec
from ouro.messages import Image


class ToolRequest(msgspec.Struct, frozen=True):
    path: str
    """The name of the file, for messages."""
    source: str
    """Its text, as it was trusted: the file itself is not read again."""
    tool: str = ""
    """The tool to call; empty: describe all."""
    arguments: Mapping[str, Any] = {}
    cwd: str = ""


class ToolDescription(msgspec.Struct, frozen=True):
    """A tool of a file."""

    spec: ToolSpec
    asks: bool = False
    reads: str = ""
    """The argument that names the file that it reads."""
    writes: str = ""
    default_path: str | None = None
    """What this argument is if a call leaves it out."""

    @property
    def path_argument(self) -> str:
        return self.writes or self.reads


class ToolOutcome(msgspec.Struct, frozen=True):
    text: str
    summary: str
    body: str | None
    failed: bool
    images: tuple[Image, ...] = ()


class ToolAnswer(msgspec.Struct, frozen=True):
    error: str = ""
    """Why there is no other answer, in one line."""
    tools: tuple[ToolDescription, ...] = ()
    outcome: ToolOutcome | None = None
