"""ScreenFrontEnd: what a slash command may ask of the screen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from textual.app import App

from ouro.errors import UsageError
from ouro.events import Event, Level
from ouro.frontends.tui import external
from ouro.frontends.tui.blocks.messages import Answer, Notice
from ouro.frontends.tui.drafts import Draft
from ouro.frontends.tui.keymap import ACTIONS, Keymap, shown
from ouro.frontends.tui.look import PALETTES
from ouro.frontends.tui.opening import Opening
from ouro.frontends.tui.parts import Parts
from ouro.frontends.tui.screens.picker import Picker
from ouro.frontends.tui.screens.sessions.picker import GetCatalog, SessionPicker
from ouro.frontends.tui.screens.sheet import LineSheet, Sheet
from ouro.frontends.tui.turns import Turns
from ouro.frontends.tui.view import ScreenView
from ouro.frontends.tui.widgets.question_panel import QuestionPanel

if TYPE_CHECKING:
    from ouro.commands.front_end import WayBack
    from ouro.display import Choice
    from ouro.messages import Image
    from ouro.session import OpenRequest, Session, SessionCatalog

R = TypeVar("R")


class ScreenFrontEnd:
    """The screen, as commands see it."""

    def __init__(
        self,
        app: App[Any],
        parts: Parts,
        turns: Turns,
        view: ScreenView,
        keymap: Keymap,
        keep_theme: Callable[[str], None] | None,
    ) -> None:
        self._app = app
        self._parts = parts
        self._turns = turns
        self._view = view
        self.keymap = keymap
        """The keys, as the person has them."""
        self._keep_theme = keep_theme
        self.opening: Opening | None = None

    @property
    def session(self) -> Session:
        """The session on the screen."""
        if self._turns.session is None:
            raise UsageError("There is no session yet.")
        return self._turns.session

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        """The keys that work here."""
        rows = []
        for action in ACTIONS:
            keys = self.keymap.keys(action.name)
            if action.place != "edit" and keys:
                rows.append((", ".join(map(shown, keys)), action.help))
        return rows

    @property
    def theme(self) -> str:
        """The look in use."""
        return self._app.theme

    @property
    def themes(self) -> Sequence[str]:
        """The looks there are."""
        return tuple(PALETTES)

    def set_theme(self, name: str) -> None:
        """Use another look, now and the next time."""
        self._app.theme = name
        if self._keep_theme is not None:
            self._keep_theme(name)

    def show(self, markdown: str) -> None:
        """Show Markdown in the transcript."""
        self._parts.transcript.add(Answer(markdown))

    def say(self, text: str, level: Level = "info") -> None:
        """Tell one line."""
        self._parts.transcript.add(Notice(text, level))

    async def choose(self, title: str, choices: Sequence[Choice], current: str = "") -> str | None:
        """Let the person pick one."""
        return await self.result_of(Picker(title, choices, current))

    async def choose_with_care(self, title: str, choices: Sequence[Choice]) -> str | None:
        """The same, for what must not be answered by a key that was meant for something else."""
        return await self.result_of(Picker(title, choices, grace=QuestionPanel.GRACE))

    async def edit(self, text: str) -> str:
        """Text after the person has edited it."""
        return await external.edit(self._app, text)

    async def ask(self, title: str, *, secret: bool = False) -> str:
        """A line of text, empty when they gave none."""
        return await self.result_of(LineSheet(title, secret)) or ""

    async def choose_way_back(self) -> WayBack | None:
        """Show what lies behind, on a sheet."""
        from ouro.frontends.tui.screens.rewind import (
            RewindSheet,  # what it needs is heavier than the first picture may be
        )

        return await self.result_of(RewindSheet(self.session.past, self.keymap))

    def show_again(self, draft: str = "", images: Sequence[Image] = ()) -> None:
        """Show the conversation anew, with a draft in the prompt; one that was begun there is put aside."""
        self._view.show_again()
        prompt = self._parts.prompt
        chips = [prompt.chips.add_image(image) for image in images]
        if words := " ".join(filter(None, [draft, *chips])):
            prompt.put_aside()
            prompt.fill(words)

    async def result_of(self, sheet: Sheet[R | None]) -> R | None:
        """Show a sheet until it is closed."""
        result: asyncio.Future[R | None] = asyncio.get_running_loop().create_future()
        self._app.push_screen(sheet, lambda value: None if result.done() else result.set_result(value))
        return await result

    async def pick_session(
        self, session_catalog: SessionCatalog, search: str = "", only: Collection[str] = ()
    ) -> OpenRequest | None:
        """Let the person pick a session, on the whole screen."""

        async def get_catalog() -> SessionCatalog:
            return session_catalog

        return await self.result_of(self.session_picker(get_catalog, search=search, only=only))

    def session_picker(
        self, get_catalog: GetCatalog, *, search: str = "", only: Collection[str] = (), esc: str = "closes"
    ) -> SessionPicker:
        """The sheet that picks a session."""
        return SessionPicker(get_catalog, self.keymap, search=search, only=only, rename=self._rename, esc=esc)

    def _rename(self, session_id: str, title: str) -> bool:
        """Name the session on the screen, where it is that one: no other writer can."""
        session = self._turns.session
        if session is None or session.id != session_id:
            return False
        session.rename(title)
        self._view.refresh()
        return True

    async def open(self, request: OpenRequest) -> None:
        """Close this session and open another in its place."""
        if self.opening is not None:
            await self.opening.change(request)

    async def go_to(self, message: int) -> None:
        """Scroll to a message."""
        await self._view.go_to(message)

    async def send(self, text: str) -> None:
        """Send a message to the agent."""
        self._turns.say(Draft(text))

    async def run(self, events: AsyncGenerator[Event, None]) -> None:
        """Show what happens as a turn is shown."""
        if self._turns.running:
            raise UsageError("That has to wait until the agent, or your shell line, is at rest.")
        await self._turns.run(events)

    async def browse_memory(self) -> bool:
        """Look through long-term memory, on the whole screen."""
        from ouro.frontends.tui.screens.memory.browser import MemoryBrowser  # rarely wanted
        from ouro.session import Browsing

        browser = MemoryBrowser(Browsing(self.session.memory, self.session.session_catalog), self.keymap)
        self._view.browser = browser
        try:
            request = await self.result_of(browser)
        finally:
            self._view.browser = None
        if request is not None and request.resume == self.session.id:
            await self.go_to(request.message)
        elif request is not None:
            await self.open(request)
        return True

    def copy(self, text: str) -> None:
        """Put text on the clipboard."""
        self._app.copy_to_clipboard(text)

    def redraw(self) -> None:
        """Show the new state."""
        self._view.refresh()

    def leave(self) -> None:
        """End the program."""
        self._app.exit(0)
