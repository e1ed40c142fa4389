"""FrontEnd: the protocol of a screen or prompt, for slash commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from ouro.display import Choice
from ouro.errors import UsageError
from ouro.events import Event, Level
from ouro.messages import Image
from ouro.session import (
    OpenRequest,
    RewindScope,
    Session,
    SessionCatalog,
    ShownDiff,
    TurnQueue,
)
from ouro.utils.text import one_line

KeySections = Sequence[tuple[str, Sequence[tuple[str, str]]]]
"""Keys and their effects, in groups with a title, for help."""
Page = Literal[
    "newest", "core", "notes", "timeline", "archive", "receipt", "proposals", "context", "tasks"
]


class RewindChoice(msgspec.Struct, frozen=True):
    """The user's choice: rewind to before a message, visit a branch, fork, or undo the last rewind."""

    kind: Literal["rewind", "visit", "fork", "redo"]
    number: int
    """The message before which to continue; for a branch, its last message."""
    scopes: tuple[RewindScope, ...] = ("conversation",)
    """What is undone, or done again."""


class FrontEnd(Protocol):
    """What a command may call. What needs a screen has a default for front ends without one."""

    has_user: bool = True
    """Whether a user is there, who chooses."""

    @property
    def session(self) -> Session: ...

    @property
    def keys(self) -> KeySections:
        return ()

    async def use_theme(self, name: str) -> None:  # noqa: ARG002 (for screens)
        """Use a theme, and save it; without a name let the user pick one. Raises UsageError if it
        does not exist.
        """
        raise UsageError("Here the colours are those of your terminal.")

    def show(self, markdown: str, page: str = "") -> None:
        """Show Markdown in the transcript; it is not part of the session. A screen shows a `page` of
        the documentation on its own.
        """

    def say(self, text: str, level: Level = "info") -> None:
        """Show one line."""

    async def choose(self, title: str, choices: Sequence[Choice], current: str = "") -> str | None:
        """Let the user pick one; returns its value, or None if they cancel."""

    async def choose_matching(
        self, title: str, choices: Sequence[Choice], words: str
    ) -> str | None:
        """Let the user pick one of the choices that have all of these words; a screen lets them
        change the words. Returns its value, or None if they cancel. Raises UsageError if no choice
        has the words.
        """
        matching = [choice for choice in choices if _has_words(choice, words)]
        if not matching:
            raise UsageError(f"Nothing matches `{words}`.")
        return await self.choose(title, matching)

    async def choose_rewind(
        self, *, suggest_undo: bool = False, redo: Mapping[RewindScope, str] | None = None
    ) -> RewindChoice | None:
        """Show earlier messages and branches, and let the user choose; None if they cancel.

        Args:
            suggest_undo: mark the last turn, and suggest to undo it together with its files. A front
                end without a screen does not ask, and returns that choice.
            redo: offer only to redo these scopes; the text of a scope says what it would redo. A
                front end without a screen does not ask, and returns the choice of all scopes.
        """
        from ouro.commands.rewind import choose_from_list, undo_of_last_turn

        if redo is not None:
            return RewindChoice("redo", number=0, scopes=tuple(redo))
        return undo_of_last_turn(self) if suggest_undo else await choose_from_list(self)

    def show_again(self, draft: str = "", images: Sequence[Image] = ()) -> None:
        """Show the transcript again, after it changed, with this draft and images in the prompt."""

    async def pick_session(
        self, session_catalog: SessionCatalog, only: Collection[str] = ()
    ) -> OpenRequest | None:
        """Let the user pick a session; returns None if they cancel.

        Args:
            only: the ids to choose from; empty for all.
        """

    async def open(self, request: OpenRequest) -> None:
        """Close this session and open another; keep this one and show the error if that fails."""

    async def go_to(self, message: int) -> None:
        """Scroll to the message of that number."""

    async def edit(self, text: str) -> str:  # noqa: ARG002 (for screens)
        """Edit a text in the user's editor and return it. Raises UsageError: no editor can be
        opened here.
        """
        raise UsageError(
            "This front end cannot open an editor.",
            "Edit the file itself: ouro reads it again with your next message.",
        )

    async def send(self, text: str) -> None:
        """Send a message to the agent as if the user had typed it."""

    async def run(self, events: AsyncGenerator[Event, None]) -> None:
        """Show events like a turn, which the user can interrupt. Raises UsageError if something is
        running.
        """

    async def browse(self, page: Page) -> bool:  # noqa: ARG002 (for screens)
        """Open a page on the screen; returns whether there is a screen.

        `context` is the list of what is sent, to drop and restore; `tasks` is what runs, to end it.
        The others are tabs of the memory browser; `newest` is the one with the newest entry.
        """
        return False

    async def view_diff(self, reading: asyncio.Task[ShownDiff]) -> bool:  # noqa: ARG002 (for screens)
        """Wait until changes of files are read, then show them, so that the user can undo and comment
        on them. Returns False, and shows nothing, if there is no screen for it or no change.
        Raises what `reading` raises.
        """
        return False

    async def show_queue(self) -> bool:
        """Let the user edit, move and remove queued messages; returns whether there is a screen for
        it.
        """
        return False

    @property
    def queue(self) -> TurnQueue | None:
        """The messages that wait; None if the front end has no queue."""
        return None

    def toggle_vim(self) -> str:
        """Change between the keys of Emacs and of Vim; returns `emacs` or `vim`. Raises UsageError:
        the keys are not ouro's.
        """
        raise UsageError("Here the keys are those of your editor.")

    def read_transcript(self, words: str = "") -> None:  # noqa: ARG002 (for screens)
        """Show the whole transcript on the screen, at the last place with these words. Raises
        UsageError: there is no screen.
        """
        raise UsageError("Scroll back to read the transcript.", "/export writes it to a file.")

    def copy(self, text: str) -> str:
        """Copy to the clipboard; returns how that was done, such as `with wl-copy`."""

    def redraw(self) -> None:
        """Show the new state after a change of model, mode or title."""

    async def detach(self) -> None:
        """Let the session go on in the background, and leave. Raises UsageError: this front end
        cannot.
        """
        raise UsageError("This session cannot go on in the background from here.")

    def leave(self) -> None:
        """End the program."""


class ReviewedDraft(NamedTuple):
    """A draft after its review."""

    text: str
    """As the user has edited it."""
    choice: str
    """The value of what they chose; empty if they discard it."""


async def review_draft(
    front_end: FrontEnd,
    question: str,
    choices: Sequence[Choice],
    draft: str,
    as_markdown: Callable[[str], str],
) -> ReviewedDraft:
    """Show a draft of a model, let the user edit it as often as they want, and ask what to do with
    it.

    Args:
        choices: what can be done with it; to edit and to discard it are added.
        as_markdown: returns the draft as Markdown. Raises UsageError if it is not valid. If that is
            after an edit, the error is shown and the draft before the edit stays.
    """
    choices = [
        *choices,
        Choice("edit", "Edit it first"),
        Choice(value="", label="Discard it", detail="nothing changes"),
    ]
    while True:
        front_end.show(as_markdown(draft))
        chosen = await front_end.choose(question, choices) or ""
        if chosen != "edit":
            return ReviewedDraft(draft, chosen)
        try:
            edited = await front_end.edit(draft)
            as_markdown(edited)  # raises UsageError if it is not valid
            draft = edited
        except UsageError as error:
            front_end.say(str(error), "error")


def _has_words(choice: Choice, words: str) -> bool:
    """Whether each of the words is somewhere in the label or detail, ignoring case."""
    text = f"{choice.label} {choice.detail}".lower()
    return all(word in text for word in words.lower().split())


def choice_line(choice: Choice, current: str) -> str:
    """A choice on one line, for front ends without a screen. `current` is the value in use; empty if
    there is none.
    """
    in_use = " (in use)" if current and choice.value == current else ""
    detail = f" — {choice.detail}" if choice.detail else ""
    return one_line(f"{choice.label}{in_use}{detail}")
