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

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        """The keys that work here, and what each does: for help."""
        ...

    @property
    def theme(self) -> str:
        """The look in use."""
        ...

    @property
    def themes(self) -> Sequence[str]:
        """The looks to choose from; none where the terminal's own colours are used."""
        ...

    def set_theme(self, name: str) -> None:
        """Use one of `themes`, now and the next time."""
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
        """Close this session and open another in its place; keep this one when that fails, and say why."""
        ...

    async def send(self, text: str) -> None:
        """Send a message to the agent, as if it had been typed."""
        ...

    def copy(self, text: str) -> None:
        """Put text on the clipboard."""
        ...

    def redraw(self) -> None:
        """Show the new state: after a change of model, mode or title."""
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
    between_turns: bool = False
    """It has to wait until the agent is at rest."""

    @property
    def help(self) -> str:
        """What it does, in one line."""
        return (self.run.__doc__ or "").strip().splitlines()[0].rstrip(".")

    @property
    def usage(self) -> str:
        """How it is written: `/model [name]`."""
        return f"/{self.name} {self.argument}".rstrip()
