"""Opening: from a request to a session on the screen, with what has to be asked on the way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ouro.errors import NoModelError, OuroError, TrustNeeded
from ouro.events import Said
from ouro.frontends.tui.look import short_path
from ouro.frontends.tui.turns import Turns
from ouro.frontends.tui.view import ScreenView

if TYPE_CHECKING:
    from ouro.frontends.tui.front_end import ScreenFrontEnd
    from ouro.session import OpenRequest, Session

OpenSession = Callable[["OpenRequest"], Awaitable["Session"]]


class DemoWanted(OuroError):
    """There is no model, and the person would like to see `ouro demo`."""


class Opening:
    """Opens sessions: asks for trust, offers the set-up where there is no model."""

    def __init__(self, open_session: OpenSession, front_end: ScreenFrontEnd, turns: Turns, view: ScreenView) -> None:
        self._open_session = open_session
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
        self._attach(session)
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
        self._attach(session)
        if before is not None:
            await before.close()

    async def _ask_and_open(self, request: OpenRequest) -> Session | None:
        """A session; None when the person rather left."""
        while True:
            try:
                return await self._open_session(request)
            except TrustNeeded as error:
                answer = await self._ask_trust(error)
                if answer not in ("yes", "no"):
                    self._front_end.leave()
                    return None
                request = replace(request, trust=answer)
            except NoModelError as error:
                if not await self._set_up_a_model(error):
                    raise

    async def _set_up_a_model(self, error: NoModelError) -> bool:
        """Offer the set-up; True when there may be a model now."""
        from ouro.commands.command import Choice  # heavier than the first picture may be
        from ouro.commands.setup import set_up

        choices = [
            Choice("set up", "set up a model", "a key, or a server of yours"),
            Choice(
                "demo", "see the demo", "a recorded model mends a small program: no key, nothing leaves this machine"
            ),
            Choice("quit", "quit"),
        ]
        chosen = await self._front_end.choose(error.message, choices)
        if chosen == "demo":
            raise DemoWanted("The demo was chosen.")
        return chosen == "set up" and bool(await set_up(self._front_end))

    async def _ask_trust(self, needed: TrustNeeded) -> str | None:
        from ouro.commands.command import Choice  # heavier than the first picture may be

        names = ", ".join(short_path(file).removeprefix(f"{short_path(needed.folder)}/") for file in needed.files)
        title = f"Do you trust {short_path(needed.folder)}?\nouro would obey what is written in: {names}"
        choices = [
            Choice("yes", "yes", "and remember it"),
            Choice("no", "no", "work here without obeying them"),
            Choice("leave", "quit", ""),
        ]
        return await self._front_end.choose_with_care(title, choices)

    def _attach(self, session: Session) -> None:
        self._view.attach(session, lambda: self._turns.waiting)
        for notice in session.notices:
            self._view.show(Said(notice, "warning"))
        self._turns.attach(session)
