"""SessionOpener: opens sessions on the full screen, and asks what must be known for that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING

from ouro.display import Choice
from ouro.errors import AttachRequested, OuroError, plain_error
from ouro.events import Notice
from ouro.frontends.session_format import card_line, now
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screens.conversation import ConversationScreen
from ouro.frontends.tui.screens.dialogs import show_sheet
from ouro.frontends.tui.screens.session_picker import SessionPicker
from ouro.frontends.tui.session_start import SessionStart
from ouro.session.opening import OpenCatalog, OpenRequest, open_interactively
from ouro.session.turn_queue import Draft
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.frontends.tui.app import OuroApp
    from ouro.frontends.tui.command_front_end import ScreenFrontEnd
    from ouro.session import Resumed, Session, SessionCatalog, TurnQueue

_TURN_END_TIMEOUT = 1.0
"""Seconds for a running turn to end before another session is opened."""


class SessionChanges:
    """Changes the session at once, or as soon as it is open.

    Args:
        show: shows a short message.
    """

    def __init__(self, turns: TurnQueue, show: Callable[[str], None]) -> None:
        self._turns = turns
        self._show = show
        self._waiting: list[Callable[[Session], Awaitable[None]]] = []

    async def apply(self, change: Callable[[Session], Awaitable[None]]) -> None:
        """Make a change in the open session. If none is open yet, say so, and make the change as
        soon as one is. Raises UsageError if the open session refuses it.
        """
        if self._turns.session is not None:
            await change(self._turns.session)
            return
        self._waiting.append(change)
        self._show("The session is being opened: in a moment.")

    async def apply_waiting(self, session: Session) -> None:
        """Make the changes that keys asked for while the session was being opened, and end the message
        that they wait.
        """
        if self._waiting:
            self._show("")
        while self._waiting:  # another key may come meanwhile
            try:
                await self._waiting.pop(0)(session)
            except OuroError as error:
                self._show(str(error))


class SessionOpener:
    """Opens sessions, and shows them. `open_interactively` asks the user by its methods (OpenDialog).

    Args:
        front_end: shows messages, and lets the user set up a model.
        start: opens the first session, and knows how to open others.
        open_catalog: returns the session catalog, to pick a session before one is open.
    """

    def __init__(
        self,
        app: OuroApp,
        conversation: ConversationScreen,
        keymap: Keymap,
        front_end: ScreenFrontEnd,
        start: SessionStart,
        open_catalog: OpenCatalog | None,
    ) -> None:
        self._app = app
        self._conversation = conversation
        self._turns = conversation.turns
        self._keymap = keymap
        self._front_end = front_end
        self._start = start
        self._open_catalog = open_catalog
        self.changes = SessionChanges(self._turns, conversation.status.show_message)
        self._one_opening = asyncio.Lock()
        """Held while a session is opened."""
        # These tasks are kept so that they are not collected before their end.
        self._syncing: asyncio.Task[None] | None = None
        """Synchronizes memory at the start."""
        self._resume_card: asyncio.Task[None] | None = None
        """Reads and shows the resume card."""

    async def open(self, request: OpenRequest) -> None:
        """Open another session, and close the one on the screen. If opening fails, or the user
        cancels, the session on the screen stays; if there is none yet, ouro ends. If the user
        wants to see a session that runs in the background, this app ends, and ouro attaches to it.

        A running turn is interrupted first, also if opening then fails. Messages that wait, or that
        are sent meanwhile, are for the session that is then open.
        """
        async with self._one_opening:  # otherwise the session that is opened first would stay open
            with self._turns.paused():
                await self._turns.finish_turn(timeout=_TURN_END_TIMEOUT)
                previous = self._turns.session
                session = await self._open_or_explain(request)
                if session is not None:
                    await self._show_session(session, request.message)
            if session is None:
                return
            if previous is not None:
                await previous.close()
            elif self._conversation.syncs:
                self._syncing = asyncio.create_task(self._sync_at_start(session))

    async def _open_or_explain(self, request: OpenRequest) -> Session | None:
        """Open a session, but do not show it. None if that failed, or if the user has cancelled; ouro
        then ends if it has no session, and the error is shown.
        """
        has_open_session = self._turns.session is not None
        try:
            session = await open_interactively(
                self._start.open, request, self, has_open_session=has_open_session
            )
        except OuroError as error:
            if not has_open_session or isinstance(error, AttachRequested):
                self._app.fail(error)
            else:
                self._conversation.show(Notice(str(error), "error"))
            return None
        if session is None and not has_open_session:  # the user has cancelled
            self._app.exit(0)
        return session

    async def choose_open(
        self,
        title: str,
        choices: Sequence[Choice],
        *,
        esc: str = "closes",
        ctrl_c: str | None = None,
    ) -> str | None:
        """Ask on a sheet. Enter counts only after a moment, because it may have been typed before."""
        from ouro.frontends.tui.screens.guarded_picker import GuardedPicker  # few starts ask

        return await show_sheet(self._app, GuardedPicker(title, choices, esc, ctrl_c))

    async def pick_open(self, ids: Sequence[str]) -> OpenRequest | None:
        """Let the user pick a session whose id is in `ids`, or any session if `ids` is empty.
        Returns the request to open it; None if the user cancels.

        If no session is open yet, a user who cancels gets a new session. None then means that the
        user wants to quit. A start without a catalog, such as `ouro attach`, has nothing to pick
        from, and gets the request of a new session, too.
        """
        if self._turns.session is not None:
            return await self.pick_session(self._turns.session.session_catalog, only=ids)
        if self._open_catalog is None:
            return OpenRequest()
        sheet = SessionPicker(
            self._open_catalog, self._keymap, only=ids, rename=self._rename_open, esc="new session"
        )
        request = await show_sheet(self._app, sheet)
        self._conversation.prompt.focus()  # no key is lost while the session is being opened
        if sheet.wants_to_leave:
            return None
        return request or OpenRequest()

    async def set_up_model(self) -> str:
        from ouro.commands.model_setup import set_up_and_test  # needed only without a model

        return await set_up_and_test(self._front_end)

    async def pick_session(
        self, session_catalog: SessionCatalog, only: Collection[str] = ()
    ) -> OpenRequest | None:
        """Let the user pick a session; None if the user cancels. `only` limits the list to sessions
        with these ids. In the list, sessions can also be renamed, tagged, pinned and deleted.
        """

        async def get_catalog() -> SessionCatalog:
            return session_catalog

        sheet = SessionPicker(
            get_catalog,
            self._keymap,
            only=only,
            rename=self._rename_open,
            label=self._label_open,
        )
        return await show_sheet(self._app, sheet)

    def _label_open(self, session_id: str, tags: Sequence[str], pinned: bool) -> bool:
        """Set the tags and the pin of a session if it is open on this screen: only the process that
        has a session open can change it. Returns whether it is open here.
        """
        session = self._turns.session
        if session is None or session.id != session_id:
            return False
        session.labels.tag(tags, removed=session.labels.tags)
        session.labels.pin(pinned=pinned)
        return True

    def _rename_open(self, session_id: str, title: str) -> bool:
        """Rename a session if it is open on this screen: only the process that has a session open
        can change it. Returns whether it is open here.
        """
        session = self._turns.session
        if session is None or session.id != session_id:
            return False
        session.rename(title)
        self._conversation.show_state()
        return True

    async def _show_session(self, session: Session, message: int) -> None:
        """Make the changes that waited for a session in this one, which was just opened. Then show it,
        scrolled to the message of this number if it is not 0, continue the turn that has begun already,
        and show the resume card of a resumed session.
        """
        await self.changes.apply_waiting(session)  # before the queue sends a message
        turn = self._start.take_turn()
        begun_with = Draft(self._start.sent_message) if turn is not None else None
        self._turns.attach(session, turn, begun_with)
        self._conversation.attach(session, has_begun_turn=turn is not None)
        if message:
            await self._conversation.go_to(message)
        if session.resumed is not None:
            self._resume_card = asyncio.create_task(
                self._show_resume_card(session, session.resumed)
            )

    async def _show_resume_card(self, session: Session, resumed: Resumed) -> None:
        """Show the resume card, as a panel or as one line, unless a turn is already running."""
        try:
            card = await resumed.card()
        except (OuroError, OSError) as error:
            log.warning("the resume card: %s", error)
            return
        if self._turns.session is not session or self._turns.running:
            return
        if card.is_long:
            self._conversation.resume.show(card)
        else:
            self._conversation.show(Notice(card_line(card, now())))

    async def _sync_at_start(self, session: Session) -> None:
        """Synchronize memory, and show the result in one line, or a warning if it fails. Does
        nothing without long-term memory. If another session is on the screen by then, the result is
        not shown.
        """
        # Too heavy before the first frame.
        from ouro.commands.command_lookup import find_command
        from ouro.commands.render import as_text
        from ouro.commands.slash import SessionContext

        command = find_command("sync")
        if command is None or session.session_memory.manager is None:
            return
        try:
            # `later`: a start asks nothing about received settings.
            answer = await command.function(
                SessionContext(self._front_end), remote="", later=True, quiet=True
            )
        except (OuroError, OSError) as error:
            self._front_end.say(f"Not synchronized: {plain_error(error)}", "warning")
            return
        if self._turns.session is session:
            self._front_end.say(as_text(answer.view))
