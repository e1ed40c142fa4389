"""Command: one slash command, and what it may ask of the front end it was typed into."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ouro.events import Level
from ouro.session import OpenRequest, Session


@dataclass(frozen=True, slots=True)
class Choice:
    """One line of a picker."""

    value: str
    label: str
    detail: str = ""


class FrontEnd(Protocol):
    """What a command may ask of the front end."""

    @property
    def session(self) -> Session:
        """The session on the screen."""
        ...

    def show(self, markdown: str) -> None:
        """Show Markdown in the transcript; it is not part of the session."""
        ...

    def say(self, text: str, level: Level = "info") -> None:
        """Tell one line."""
        ...

    async def choose(self, title: str, choices: Sequence[Choice], current: str = "") -> str | None:
        """Let the person pick one; None when they did not."""
        ...

    async def open(self, request: OpenRequest) -> None:
        """Close this session and open another in its place."""
        ...

    async def send(self, text: str) -> None:
        """Send a message to the agent, as if it had been typed."""
        ...

    def copy(self, text: str) -> None:
        """Put text on the clipboard."""
        ...

    def redraw(self) -> None:
        """Show the new look or state: after a change of theme, model or mode."""
        ...

    def leave(self) -> None:
        """End the program."""
        ...


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command: a function whose docstring's first line is its help."""

    name: str
    run: Callable[[FrontEnd, str], Awaitable[None]]
    argument: str = ""
    """How the argument is written in help: `[name]`."""
    aliases: tuple[str, ...] = ()

    @property
    def help(self) -> str:
        """What it does, in one line."""
        return (self.run.__doc__ or "").strip().splitlines()[0]
