"""OuroApp: the full screen. It constructs the parts of the screen and routes keys to actions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from textual import events, on
from textual.app import App
from textual.screen import Screen

from ouro.errors import OuroError
from ouro.frontends.tui.driver import TerminalDriver
from ouro.frontends.tui.front_end import OpenSession, ScreenFrontEnd
from ouro.frontends.tui.key_actions import KeyActions
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.look import THEMES, Look, make_theme
from ouro.frontends.tui.screens.conversation import ConversationScreen
from ouro.frontends.tui.screens.session_picker import GetCatalog
from ouro.frontends.tui.widgets.prompt import PromptArea
from ouro.frontends.tui.widgets.resume_panel import ResumePanel
from ouro.session.opening import PICK, OpenRequest
from ouro.session.turn_queue import Draft
from ouro.utils.log import log

_SCROLLS = ("page_up", "page_down", "top", "bottom")


class OuroApp(App[int], inherit_bindings=False):
    """One session on a full screen; its result is the exit code."""

    CSS_PATH = "ouro.tcss"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_IN_MAXIMIZED_VIEW = ""

    def __init__(
        self,
        open_session: OpenSession,
        request: OpenRequest,
        first_message: str,
        look: Look,
        *,
        save_theme: Callable[[str], None] | None = None,
        open_catalog: GetCatalog | None = None,
        driver_class: Any = None,
    ) -> None:
        super().__init__(driver_class=driver_class)
        self.failure: OuroError | None = None
        """Why no session could be opened, if that ended the program."""
        self._request = request
        self._first_message = first_message
        keymap = Keymap(look.keys)
        # With PICK the session picker has the focus first.
        self.conversation = ConversationScreen(look, keymap, self._run_command, takes_focus=request.resume != PICK)
        self.turns = self.conversation.turns
        self.front_end = ScreenFrontEnd(
            self, self.conversation, keymap, open_session, open_catalog=open_catalog, save_theme=save_theme
        )
        self._actions = KeyActions(self, self.conversation, self.front_end)
        for key, name in keymap.of("app").items():
            self.bind(key, name if name == "suspend_process" else f"press('{name}')", show=False)
        for key in keymap.keys("clear"):  # for questions: with the focus, the prompt handles the key first
            self.bind(key, "press('clear')", show=False)
        for name, colors in THEMES.items():
            self.register_theme(make_theme(name, colors))
        self.theme = look.theme if look.theme in THEMES else "dark"

    def get_default_screen(self) -> Screen[Any]:
        return self.conversation

    def on_mount(self) -> None:
        """Show the prompt, then open the session."""
        self.begin_capture_print(self)
        # Textual draws only changes; after another program the screen is empty.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(repaint=True, layout=True))
        if self._first_message:
            self.turns.queue(Draft(self._first_message))
        self.call_after_refresh(lambda: self.run_worker(self._open()))

    def on_descendant_focus(self) -> None:
        """Start reading keys: a widget can take them now."""
        if isinstance(self._driver, TerminalDriver):
            self._driver.listen()

    async def _open(self) -> None:
        self.failure = await self.front_end.open_first(self._request)
        if self.failure is not None:
            self.exit(self.failure.exit_code)
        elif self.focused is None:
            self.conversation.prompt.focus()

    async def action_press(self, name: str) -> None:
        if name in _SCROLLS:
            self._actions.scroll(name)
        elif inspect.iscoroutinefunction(getattr(self._actions, name)):
            self.run_worker(self._actions.run(name))
        else:
            await self._actions.run(name)

    @on(PromptArea.Wanted)
    async def _press_wanted(self, message: PromptArea.Wanted) -> None:
        await self.action_press(message.action)

    @on(PromptArea.Idle)
    def _choose_resume(self, message: PromptArea.Idle) -> None:
        # Here and not in the screen: Textual stops a message at the parent that was active when it was posted.
        self.conversation.resume.press(message.action)

    @on(ResumePanel.Chosen)
    def _resume_chosen(self, message: ResumePanel.Chosen) -> None:
        self.run_worker(self.front_end.resume_with(message.part))

    @on(events.TextSelected)
    def _copy_selected(self) -> None:
        if selected := self.screen.get_selected_text():
            self.copy_to_clipboard(selected)
            self.conversation.status.show_message("copied", seconds=1.5)

    @on(events.Print)
    def _log_print(self, event: events.Print) -> None:
        if event.text.strip():
            log.info("printed: %s", event.text.rstrip())

    async def _run_command(self, text: str) -> bool:
        from ouro.commands.slash import dispatch  # too heavy to import before the first frame

        return await dispatch(self.front_end, text)
