"""OuroApp: the full screen. It lays out the parts and passes on what they say."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from textual import events, on
from textual.app import App
from textual.screen import Screen

from ouro.errors import OuroError
from ouro.frontends.project_files import ProjectFiles
from ouro.frontends.tui.drafts import Draft
from ouro.frontends.tui.driver import TerminalDriver
from ouro.frontends.tui.front_end import ScreenFrontEnd
from ouro.frontends.tui.key_actions import KeyActions
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.look import PALETTES, Look
from ouro.frontends.tui.notices import TerminalNotices
from ouro.frontends.tui.opening import Opening, OpenSession
from ouro.frontends.tui.parts import make_parts
from ouro.frontends.tui.screens.conversation import ConversationScreen
from ouro.frontends.tui.screens.sessions.picker import GetCatalog
from ouro.frontends.tui.theme import make_theme
from ouro.frontends.tui.turns import Turns
from ouro.frontends.tui.view import ScreenView
from ouro.frontends.tui.widgets.completion import Completion
from ouro.frontends.tui.widgets.prompt import Prompt
from ouro.frontends.tui.widgets.question_panel import QuestionPanel
from ouro.frontends.tui.widgets.resume_panel import ResumePanel
from ouro.frontends.tui.widgets.transcript import Transcript
from ouro.session.opening import PICK, OpenRequest
from ouro.utils.log import log

_SCROLLS = ("page_up", "page_down", "top", "bottom")


class OuroApp(App[int], inherit_bindings=False):
    """One conversation on a full screen; its result is the exit code."""

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
        keep_theme: Callable[[str], None] | None = None,
        open_catalog: GetCatalog | None = None,
        driver_class: Any = None,
    ) -> None:
        super().__init__(driver_class=driver_class)
        self.failure: OuroError | None = None
        """Why there is no session, where that ended the program."""
        self._look = look
        self._request = request
        self._first_message = first_message
        keymap = Keymap(look.keys)
        files = ProjectFiles(self._list_files, self._look_again)
        self.parts = make_parts(look, keymap, files.haystack, self._take_back)
        view = ScreenView(self.parts, self._run_command, TerminalNotices(self), look.bell_after)
        self._view = view
        self.turns = Turns(view)
        self.front_end = ScreenFrontEnd(self, self.parts, self.turns, view, keymap, keep_theme)
        self._opening = Opening(open_session, self.front_end, self.turns, view, open_catalog)
        self.front_end.opening = self._opening
        self._actions = KeyActions(self, self.parts, self.turns, self.front_end)
        for key, name in keymap.of("app").items():
            self.bind(key, name if name == "suspend_process" else f"press('{name}')", show=False)
        for key in keymap.keys("clear"):  # the prompt takes it first; here it is for questions
            self.bind(key, "press('clear')", show=False)
        for name, palette in PALETTES.items():
            self.register_theme(make_theme(name, palette))
        self.theme = look.theme if look.theme in PALETTES else "dark"

    def get_default_screen(self) -> Screen[Any]:
        """The conversation."""
        return ConversationScreen(self.parts, gives_keys=self._request.resume != PICK)  # else the picker has them first

    def on_mount(self) -> None:
        """Show the prompt first, open the session after."""
        self.begin_capture_print(self)
        # Textual draws only what it believes to have changed; after another program the screen is empty.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(repaint=True, layout=True))
        if self._first_message:
            self.turns.queue(Draft(self._first_message))
        self.call_after_refresh(lambda: self.run_worker(self._open()))

    def on_descendant_focus(self) -> None:
        """Keys have a place to go from now on."""
        if isinstance(self._driver, TerminalDriver):
            self._driver.listen()

    async def _open(self) -> None:
        self.failure = await self._opening.first(self._request)
        if self.failure is not None:
            self.exit(self.failure.exit_code)
        elif self.focused is None:
            self.parts.prompt.focus()

    async def action_press(self, name: str) -> None:
        """A key of the keymap was pressed."""
        if name in _SCROLLS:
            self._actions.scroll(name)
        elif inspect.iscoroutinefunction(getattr(self._actions, name)):
            self.run_worker(self._actions.run(name))
        else:
            await self._actions.run(name)

    @on(Prompt.Submitted)
    def _say(self, message: Prompt.Submitted) -> None:
        self.parts.transcript.follow()
        (self.turns.queue if message.later else self.turns.say)(message.draft)

    @on(Prompt.Wanted)
    async def _do(self, message: Prompt.Wanted) -> None:
        await self.action_press(message.action)

    @on(Prompt.Idle)
    def _choose(self, message: Prompt.Idle) -> None:
        self.parts.resume.press(message.action)

    @on(ResumePanel.Chosen)
    def _go_on(self, message: ResumePanel.Chosen) -> None:
        self.run_worker(self._opening.go_on(message.part))

    @on(Transcript.TopReached)
    def _look_back(self) -> None:
        self.run_worker(self._view.show_earlier())

    @on(Prompt.Changed)
    @on(Prompt.SelectionChanged)
    def _look_again(self) -> None:
        self.parts.completion.look_at(self.parts.prompt.before_cursor)

    @on(Completion.Picked)
    def _accept(self) -> None:
        self.parts.prompt.accept()

    @on(QuestionPanel.Answered)
    def _answer(self, message: QuestionPanel.Answered) -> None:
        self.front_end.session.answer(message.question_id, message.answer)

    @on(QuestionPanel.Stray)
    def _give_to_prompt(self, message: QuestionPanel.Stray) -> None:
        self.parts.prompt.post_message(message.key)

    @on(events.TextSelected)
    def _copy_selected(self) -> None:
        if selected := self.screen.get_selected_text():
            self.copy_to_clipboard(selected)
            self.parts.status.tell("copied", seconds=1.5)

    @on(events.Print)
    def _log_print(self, event: events.Print) -> None:
        if event.text.strip():
            log.info("printed: %s", event.text.rstrip())

    def _list_files(self) -> list[str]:
        return self.front_end.session.project_files()

    def _take_back(self) -> str | None:
        return self.turns.take_back()

    async def _run_command(self, text: str) -> bool:
        from ouro.commands.slash import dispatch

        return await dispatch(self.front_end, text)
