"""The requests and answers that a session and the worker of a tool file send each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ouro.llm import ToolSpec
from ouro.messages import Image


class ToolRequest(msgspec.Struct, frozen=True):
    """What the worker is asked: to describe the tools of a file, or to call one."""

    path: str
    """The name of the file, for messages."""
    source: str
    """The text of the file, as it was trusted: the file itself is not read again."""
    tool: str = ""
    """The tool to call; empty: describe all."""
    arguments: Mapping[str, Any] = {}
    cwd: str = ""
    """The folder in which the tool works."""


class ToolDescription(msgspec.Struct, frozen=True):
    """A tool of a file."""

    spec: ToolSpec
    asks: bool = False
    """Whether each call needs the permission of the user."""
    reads: str = ""
    """The argument that names the file that it reads."""
    writes: str = ""
    """The argument that names the file that it writes."""
    default_path: str | None = None
    """The value of this argument if a call leaves it out; None: a call must name it."""

    @property
    def path_argument(self) -> str:
        """The argument that names a file; empty if none does."""
        return self.writes or self.reads


class ToolOutcome(msgspec.Struct, frozen=True):
    """What a call returned."""

    text: str
    """What the model reads."""
    summary: str
    """One line for the user."""
    body: str | None
    """More for the user; None if there is nothing more."""
    failed: bool
    images: tuple[Image, ...] = ()


class ToolAnswer(msgspec.Struct, frozen=True):
    """The answer of the worker: an error, descriptions, or the outcome of a call."""

    error: str = ""
    """Why there is no other answer, in one line."""
    tools: tuple[ToolDescription, ...] = ()
    outcome: ToolOutcome | None = None
