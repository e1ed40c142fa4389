"""ScreenView: what the screen shows of a turn, event by event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ouro.errors import OuroError
from ouro.events import (
    CoreChanged,
    Event,
    NoteKept,
    NotesRecalled,
    PermissionAsked,
    QuestionAsked,
    QuestionClosed,
    Said,
    Titled,
    TodosChanged,
    TurnFinished,
    UsageUpdated,
)
from ouro.frontends.memory_lines import memory_line
from ouro.frontends.session_lines import LEFT_BRANCH, card_line, now
from ouro.frontends.tui.blocks.lines import tidy
from ouro.frontends.tui.blocks.messages import UserMessage
from ouro.frontends.tui.notices import TerminalNotices
from ouro.frontends.tui.parts import Parts
from ouro.frontends.tui.transcript_writer import blocks_of

if TYPE_CHECKING:
    from ouro.frontends.tui.screens.memory.browser import MemoryBrowser
    from ouro.session import ResumeCard, Session

MOST_BLOCKS = 1_000
"""From so many on the screen lets go of what stands far above."""
KEPT_PROMPTS = 3
"""Messages of the person that stay, with all that came of them."""


class ScreenView:
    """Hands each event to the widgets that it concerns, and rings where the person has to look."""

    def __init__(
        self,
        parts: Parts,
        run_command: Callable[[str], Awaitable[bool]],
        notices: TerminalNotices,
        bell_after: float,
    ) -> None:
        self._parts = parts
        self._run_command = run_command
        self._notices = notices
        self._bell_after = bell_after
        self._waiting: Callable[[], tuple[str, ...]] = tuple
        self._is_looking_back = False
        self.session: Session | None = None
        self.browser: MemoryBrowser | None = None
        """Lies over the conversation."""

    def attach(self, session: Session, waiting: Callable[[], tuple[str, ...]]) -> None:
        """Show this session, from its beginning."""
        self.session, self._waiting = session, waiting
        self.show_again()

    def show_again(self) -> None:
        """Show the session's conversation anew."""
        if self.session is not None:
            self._parts.transcript.clear()
            self._parts.writer.replay(self.session.history())
            self._parts.todos.todos = self.session.todos
            self._parts.resume.close()
            self.refresh()

    async def go_to(self, message: int) -> None:
        """Scroll to the message of that number, wherever in the session it is."""
        if self.session is None:
            return
        try:
            reached = await self.session.scrollback.reach(message)
        except OuroError as error:
            self.show(Said(str(error), "error"))
            return
        self.show_again()
        self._parts.transcript.go_to(reached.prompts)
        if reached.is_left:
            self.show(Said(LEFT_BRANCH, "warning"))

    async def show_earlier(self) -> None:
        """The reader came to the top: show what was said before, where there is something."""
        session = self.session
        if session is None or self._is_looking_back or not session.scrollback.has_more:
            return
        self._is_looking_back = True
        try:
            events = await session.scrollback.more()
        except OuroError as error:
            self.show(Said(str(error), "error"))
            return
        finally:
            self._is_looking_back = False
        if session is self.session:
            self._parts.transcript.prepend(blocks_of(events, self._parts.transcript))

    def refresh(self) -> None:
        """Show the session's state as it is now."""
        if self.session is not None:
            self._parts.status.status = self.session.status()
            self._parts.status.refresh()
            self._parts.header.title = self.session.title
            self._notices.show_title(self.session.title)
            self.waiting_changed()

    def show(self, event: Event) -> None:
        """Something happened in the session."""
        parts = self._parts
        parts.writer.show(self._as_line(event))
        if self.browser is not None and isinstance(event, NotesRecalled | NoteKept | CoreChanged):
            self.browser.memory_changed()
        match event:
            case PermissionAsked() | QuestionAsked():
                parts.questions.ask(event)
                parts.box.wait_for_answer(True)
                self._notices.ring("ouro waits for your answer")
            case QuestionClosed(question_id=question_id):
                self.close_question(question_id)
            case TodosChanged(todos=todos):
                parts.todos.todos = todos
            case NotesRecalled() | UsageUpdated() | TurnFinished() | Titled():
                self.refresh()
            case _:
                pass

    def _as_line(self, event: Event) -> Event:
        """What the person did in the browser was seen there: the conversation has a line of it, without the change."""
        if self.browser is not None and isinstance(event, CoreChanged) and event.origin in ("person", "undo"):
            return Said(memory_line(event))
        return event

    def tell_resumed(self, card: ResumeCard) -> None:
        """A session was taken up again: a panel where there is something to choose, else a line."""
        if card.is_long:
            self._parts.resume.show(card)
        else:
            self.show(Said(card_line(card, now())))

    def close_question(self, question_id: str) -> None:
        """A question does not wait any more; the prompt has the keys again when it was the last."""
        parts = self._parts
        parts.questions.close(question_id)
        if parts.questions.panel is None:
            parts.box.wait_for_answer(False)
            parts.prompt.focus()

    def turn_began(self) -> None:
        """The agent is at work: how to go on is decided."""
        self._parts.resume.close()
        self._parts.box.work_begins()
        self._let_go()

    def _let_go(self) -> None:
        """Forget what stands far above and has left memory too: it is read again when someone scrolls there.

        Cut before a message of the person, and only where the screen and memory agree on the last ones.
        """
        transcript = self._parts.transcript
        if self.session is None or not transcript.following or len(transcript.blocks) < MOST_BLOCKS:
            return
        places = [place for place, each in enumerate(transcript.blocks) if isinstance(each, UserMessage)][
            -KEPT_PROMPTS:
        ]
        shown = [block.text for place in places if isinstance(block := transcript.blocks[place], UserMessage)]
        said = self.session.scrollback.last_said(KEPT_PROMPTS)
        agrees = said and [tidy(text) for _, text in said] == shown
        if agrees and self.session.scrollback.begin_at(said[0][0]):
            transcript.discard(*transcript.blocks[: places[0]])

    def turn_ended(self, seconds: float) -> None:
        """The agent is at rest."""
        self._parts.box.work_ends()
        asked = self._parts.questions.panel
        self._parts.questions.end_turn()  # in it nobody waits for an answer now
        if asked is not None and self._parts.questions.panel is None:
            self._parts.prompt.focus()
        self.refresh()
        if 0 <= self._bell_after < seconds:
            self._notices.ring("ouro is done")

    def waiting_changed(self) -> None:
        """What waits is shown below the conversation."""
        self._parts.transcript.set_queued(self._waiting())

    async def run_command(self, text: str) -> bool:
        """Run a slash command."""
        return await self._run_command(text)
