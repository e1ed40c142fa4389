"""Slash commands in headless. A command that needs a screen names what to use instead."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ouro.commands.action import Answer
from ouro.commands.front_end import FrontEnd, RewindChoice
from ouro.commands.render import View, as_text
from ouro.commands.slash import SessionContext, run_line
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.events import Event, Level
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.messages import Image
    from ouro.session import OpenRequest, RewindScope, Session, SessionCatalog

_MAX_NAMES = 20
RunEvents = Callable[[AsyncGenerator[Event, None]], Awaitable[None]]


class HeadlessFrontEnd(FrontEnd):
    """What commands can do with -p. It collects the texts that a command prints.

    Args:
        warn: prints a line that is not part of the answer.
        run_events: shows a stream of events as a turn.
    """

    has_user = False

    def __init__(
        self, session: Session, warn: Callable[[str, Level], None], run_events: RunEvents
    ) -> None:
        self._session = session
        self._warn = warn
        self._run_events = run_events
        self.texts: list[str] = []
        """The lines of the answer so far."""
        self.value: Any = None
        """The value of the command's answer, for programs; None if it has none."""
        self.message = ""
        """The message that the command sends to the agent; empty if it sends none."""

    @property
    def session(self) -> Session:
        return self._session

    def show(self, markdown: str, page: str = "") -> None:  # noqa: ARG002 (for screens)
        self.texts.append(clean(markdown))

    def say(self, text: str, level: Level = "info") -> None:
        """Add a line to the answer of the command. A warning or an error is printed at once
        instead, and is not part of the answer.
        """
        if level == "info":
            self.texts.append(clean(text))
        else:
            self._warn(text, level)

    async def send(self, text: str) -> None:
        self.message = text

    async def run(self, events: AsyncGenerator[Event, None]) -> None:
        await self._run_events(events)

    async def choose(
        self,
        title: str,
        choices: Sequence[Choice],
        current: str = "",  # noqa: ARG002
    ) -> str | None:
        """Raises UsageError with the names to choose from, because there is no user."""
        if not title.endswith((".", "?", ":")):
            title = f"{title}:"
        names = []
        for choice in choices:
            opens_other_list = choice.label.endswith("…")
            if choice.value and not opens_other_list:
                names.append(choice.value)
        rest = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        raise UsageError(
            f"{title} There is no user to choose with -p.",
            f"Name one after the command: {', '.join(names[:_MAX_NAMES])}{rest}.",
        )

    async def choose_rewind(
        self, *, suggest_undo: bool = False, redo: Mapping[RewindScope, str] | None = None
    ) -> RewindChoice | None:
        """With `suggest_undo` or `redo`, return the suggested choice without asking. Otherwise
        raises UsageError, because the list of messages needs a screen.
        """
        if suggest_undo or redo is not None:
            return await super().choose_rewind(suggest_undo=suggest_undo, redo=redo)
        raise UsageError(
            "The list of messages needs a screen.", "Name how many messages back: `/rewind 2`."
        )

    def show_again(self, draft: str = "", images: Sequence[Image] = ()) -> None:  # noqa: ARG002 (it has no prompt)
        if draft:
            self.texts.append(f"The message was: {clean(draft)}")

    async def pick_session(
        self,
        session_catalog: SessionCatalog,  # noqa: ARG002 (as FrontEnd names it)
        only: Collection[str] = (),  # noqa: ARG002
    ) -> OpenRequest | None:
        """Raises UsageError, because there is no screen."""
        raise UsageError(
            "The list of sessions needs a screen.",
            "`ouro sessions list` prints it; `ouro -p --resume SESSION` continues one.",
        )

    async def open(self, request: OpenRequest) -> None:
        """Raises UsageError, because a run has one session."""
        if not request.resume:
            raise UsageError("Without --resume, each `ouro -p` begins a new session.")
        session = request.resume[:8]
        raise UsageError(
            "A run with -p has one session.", f"`ouro -p --resume {session}` continues that one."
        )

    async def go_to(self, message: int) -> None:
        raise UsageError(
            f"Message {message} can only be shown on a screen.",
            f"`ouro sessions show {self.session.id[:8]}` prints the session.",
        )

    def read_transcript(self, words: str = "") -> None:  # noqa: ARG002 (for screens)
        raise UsageError(
            "The transcript needs a screen.",
            f"`ouro sessions show {self.session.id[:8]}` prints it.",
        )

    async def use_theme(self, name: str) -> None:
        raise UsageError(
            "Colours need a screen.", f"`ouro config set tui.theme {name or 'NAME'}` saves a theme."
        )

    def toggle_vim(self) -> str:
        raise UsageError(
            "With -p there is no prompt.", "`ouro config set tui.editing vim` saves it."
        )

    async def edit(self, text: str) -> str:  # noqa: ARG002
        raise UsageError(
            "With -p no editor is opened.", "Run `ouro` in a terminal, or edit the file itself."
        )

    def copy(self, text: str) -> str:  # noqa: ARG002 (as FrontEnd names it)
        raise UsageError(
            "With -p nothing is copied: the answer is on standard output.",
            f"`ouro sessions show {self.session.id[:8]}` prints earlier ones.",
        )

    def redraw(self) -> None:
        """Does nothing: there is no screen."""

    async def detach(self) -> None:
        raise UsageError("With -p there is no session to leave.", 'Use `ouro --bg "task"`.')

    def leave(self) -> None:
        raise UsageError("A run with -p ends with its answer.")


class HeadlessContext(SessionContext):
    """What an action may use in headless: no user, and views as text."""

    can_ask = False

    def __init__(self, front_end: HeadlessFrontEnd) -> None:
        super().__init__(front_end)
        self._texts = front_end

    def show(self, view: View) -> None:
        self._texts.texts.append(as_text(view, "/"))

    def show_answer(self, answer: Answer) -> None:
        self._texts.value = answer.value
        self.show(answer.view)


async def run_headless_command(front_end: HeadlessFrontEnd, text: str) -> bool:
    """Run the slash command in `text`; returns False if it is a message. Raises OuroError or
    OSError if the command fails.
    """
    return await run_line(HeadlessContext(front_end), text)
