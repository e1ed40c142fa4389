"""FrontEnd: what a slash command may ask of the screen or prompt that it was typed into."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ouro.display import Choice
from ouro.events import Event, Level
from ouro.messages import Image
from ouro.session import OpenRequest, RewindScope, Session, SessionCatalog


@dataclass(frozen=True, slots=True)
class WayBack:
    """Where the user wants to go from here: before a message, to a branch, or to a copy of the session."""

    kind: Literal["rewind", "visit", "fork"]
    number: int
    """Of the message to go back before; of a branch, its last one."""
    scopes: tuple[RewindScope, ...] = ()
    """What is undone with it."""


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
        """Let the user pick one; None when they did not."""
        ...

    async def choose_way_back(self) -> WayBack | None:
        """Show what lies behind, and let the user choose; None when they did not."""
        ...

    def show_again(self, draft: str = "", images: Sequence[Image] = ()) -> None:
        """Show the conversation anew, for it is another one now, with a draft in the prompt."""
        ...

    async def pick_session(
        self, session_catalog: SessionCatalog, search: str = "", only: Collection[str] = ()
    ) -> OpenRequest | None:
        """Let the user pick a session, to continue it or a copy of it; None when they did not.

        Args:
            session_catalog: the sessions there are.
            search: words to begin the search with.
            only: the ids of those that answer to what was asked for; empty: all there are.
        """
        ...

    async def open(self, request: OpenRequest) -> None:
        """Close this session and open another in its place; keep this one when that fails, and say why."""
        ...

    async def go_to(self, message: int) -> None:
        """Show the conversation from the message of that number on."""
        ...

    async def edit(self, text: str) -> str:
        """Text after the user has edited it, in their editor.

        Raises:
            UsageError: no editor can be lent the terminal.
        """
        ...

    async def send(self, text: str) -> None:
        """Send a message to the agent, as if it had been typed."""
        ...

    async def run(self, events: AsyncGenerator[Event, None]) -> None:
        """Show what happens as a turn is shown: it can be interrupted, and what is said meanwhile waits.

        Raises:
            UsageError: a turn or a shell line is under way.
        """
        ...

    async def browse_memory(self) -> bool:
        """Let the user look through long-term memory; False where there is no screen for that."""
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
