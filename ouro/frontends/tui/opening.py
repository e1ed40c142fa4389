"""Opening: from a request to a session on the screen, with what has to be asked on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ouro.errors import NoModelError, OuroError, SessionInUse, SeveralSessions, TrustNeeded
from ouro.events import Said
from ouro.frontends.tui.look import short_path
from ouro.frontends.tui.turns import Turns
from ouro.frontends.tui.view import ScreenView
from ouro.session.opening import PICK, OpenRequest, Part
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.frontends.tui.front_end import ScreenFrontEnd
    from ouro.frontends.tui.screens.sessions.picker import GetCatalog
    from ouro.session import Resumed, Session

OpenSession = Callable[[OpenRequest], Awaitable["Session"]]


class DemoWanted(OuroError):
    """There is no model, and the person would like to see `ouro demo`."""


class Opening:
    """Opens sessions: asks which one, and for trust; offers the set-up where there is no model."""

    def __init__(
        self,
        open_session: OpenSession,
        front_end: ScreenFrontEnd,
        turns: Turns,
        view: ScreenView,
        open_catalog: GetCatalog | None = None,
    ) -> None:
        """`open_catalog` gives the sessions that are kept before one is open."""
        self._telling: asyncio.Task[None] | None = None
        self._open_session = open_session
        self._open_shelf = open_catalog
        self._front_end = front_end
        self._turns = turns
        self._view = view

    async def first(self, request: OpenRequest) -> OuroError | None:
        """Open the session that the program was started for; gives the error where that is impossible."""
        try:
            session = await self._ask_and_open(request)
        except OuroError as error:
            return error
        if session is None:
            return None
        await self._attach(session, request.message)
        return None

    async def change(self, request: OpenRequest) -> None:
        """Open another session in place of this one; keep this one where that fails.

        The new one is opened first only where it is another file: a session has one writer.
        """
        await self._turns.finish_turn()
        before = self._turns.session
        try:
            session = await self._ask_and_open(request)
        except OuroError as error:
            self._view.show(Said(str(error), "error"))
            return
        if session is None:
            return
        await self._attach(session, request.message)
        if before is not None:
            await before.close()

    async def _ask_and_open(self, request: OpenRequest) -> Session | None:
        """A session; None when the person rather left."""
        while True:
            try:
                if request.resume == PICK:
                    raise SeveralSessions("", "", ())
                return await self._open_session(request)
            except SeveralSessions as error:
                picked = await self._pick(request, error.ids)
                if picked is None:
                    return None
                request = picked
            except SessionInUse as error:
                answer = await self._ask_how(error)
                if answer not in ("read", "copy"):
                    raise
                request = replace(request, read_only=answer == "read", fork=answer == "copy")
            except TrustNeeded as error:
                answer = await self._ask_trust(error)
                if answer not in ("yes", "no"):
                    self._front_end.leave()
                    return None
                request = replace(request, trust=answer)
            except NoModelError as error:
                if not await self._set_up_a_model(error):
                    raise

    async def _pick(self, request: OpenRequest, ids: Sequence[str]) -> OpenRequest | None:
        """The session that the person picks; at the start a new one where they pick none; None: keep what there is."""
        session = self._turns.session
        if session is not None:
            picked = await self._front_end.pick_session(session.session_catalog, only=ids)
        elif self._open_shelf is not None:
            sheet = self._front_end.session_picker(self._open_shelf, only=ids, esc="new session")
            picked = await self._front_end.result_of(sheet)
            if sheet.wants_to_leave:
                self._front_end.leave()
                return None
            picked = picked or OpenRequest()
        else:
            return OpenRequest()
        if picked is None or not picked.resume:
            return picked
        return replace(request, resume=picked.resume, fork=request.fork or picked.fork)

    async def _ask_how(self, error: SessionInUse) -> str | None:
        from ouro.display import Choice  # heavier than the first picture may be

        choices = [
            Choice("read", "open it read-only", "nothing that is said here is saved"),
            Choice("copy", "go on in a copy", "the session itself stays as it is"),
            Choice("", "leave it"),
        ]
        return await self._front_end.choose_with_care(error.message, choices)

    async def _set_up_a_model(self, error: NoModelError) -> bool:
        """Offer the set-up; True when there may be a model now."""
        from ouro.commands.setup import set_up
        from ouro.display import Choice  # heavier than the first picture may be

        choices = [
            Choice("set up", "set up a model", "a key, or a server of yours"),
            Choice("demo", "see the demo", "a recorded model mends a small program; nothing leaves this machine"),
            Choice("quit", "quit"),
        ]
        chosen = await self._front_end.choose(error.message, choices)
        if chosen == "demo":
            raise DemoWanted("The demo was chosen.")
        return chosen == "set up" and bool(await set_up(self._front_end))

    async def _ask_trust(self, needed: TrustNeeded) -> str | None:
        from ouro.display import Choice  # heavier than the first picture may be

        names = ", ".join(short_path(file).removeprefix(f"{short_path(needed.folder)}/") for file in needed.files)
        title = f"Do you trust {short_path(needed.folder)}?\nouro would obey what is written in: {names}"
        choices = [
            Choice("yes", "yes", "and remember it"),
            Choice("no", "no", "work here without obeying them"),
            Choice("leave", "quit", ""),
        ]
        return await self._front_end.choose_with_care(title, choices)

    async def _attach(self, session: Session, message: int) -> None:
        self._view.attach(session, lambda: self._turns.waiting)
        if message:
            await self._view.go_to(message)
        for notice in session.notices:
            self._view.show(Said(notice, "warning"))
        self._turns.attach(session)
        if session.resumed is not None:
            self._telling = asyncio.create_task(self._tell_of(session, session.resumed))

    async def go_on(self, part: Part) -> None:
        """Go on with this part of the session that was taken up again."""
        resumed = self._front_end.session.resumed
        if resumed is not None and part != "full":
            await self._front_end.run(resumed.take(part))

    async def _tell_of(self, session: Session, resumed: Resumed) -> None:
        """What there is to know before the first call; nothing where that is already under way."""
        try:
            card = await resumed.card()
        except (OuroError, OSError) as error:
            log.warning("the resume card: %s", error)
            return
        if self._turns.session is session and not self._turns.running:
            self._view.tell_resumed(card)
