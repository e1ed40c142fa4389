"""ScreenFrontEnd: the full screen as the slash commands see it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ouro.display import Choice
from ouro.errors import UsageError
from ouro.events import Event, Level
from ouro.frontends.tui import editor_and_pager
from ouro.frontends.tui.blocks.block_list import TranscriptBlock
from ouro.frontends.tui.blocks.diff import GIT_FILE
from ouro.frontends.tui.blocks.display_body import GitDiffBlock
from ouro.frontends.tui.blocks.messages import AnswerBlock, NoticeBlock, TypedCommand
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.own_themes import add_own_themes
from ouro.frontends.tui.screens.conversation import ConversationScreen
from ouro.frontends.tui.screens.dialogs import (
    HelpSheet,
    LineSheet,
    Sheet,
    show_sheet,
)
from ouro.frontends.tui.screens.picker import Picker
from ouro.frontends.tui.session_opener import SessionOpener
from ouro.frontends.tui.session_start import SessionStart
from ouro.frontends.tui.themes import THEMES, make_theme
from ouro.session.opening import OpenCatalog
from ouro.session.turn_queue import Draft

if TYPE_CHECKING:
    from ouro.commands.front_end import KeySections, Page, RewindChoice
    from ouro.frontends.tui.app import OuroApp
    from ouro.messages import Image
    from ouro.session import (
        RewindScope,
        Session,
        ShownDiff,
    )


_GIT_DIFF = re.compile(rf"(?P<fence>`{{3,}})diff\n(?P<diff>{GIT_FILE}.*)\n(?P=fence)\n?", re.DOTALL)
"""A text that is nothing but a code block with a diff of git."""


def _make_block(markdown: str) -> TranscriptBlock:
    """The block that shows a Markdown text. If the text is only a diff, which may be long, the
    block draws it page by page.
    """
    match = _GIT_DIFF.fullmatch(markdown)
    if match is None:
        return AnswerBlock(markdown)
    return GitDiffBlock(match["diff"])


async def _choose_matching(
    app: OuroApp, title: str, choices: Sequence[Choice], words: str
) -> str | None:
    """Let the user choose from a list. `words` are in its search field when it opens."""
    return await show_sheet(app, Picker(title, choices, search=words))


class ScreenFrontEnd:
    """What commands can do on the full screen.

    It has all methods of the protocol `FrontEnd`. It does not inherit from it, because the import of
    that module would delay the prompt; mypy checks the methods where commands get this object. Those
    that only pass a call on are attributes, such as `open` and `copy`.

    Args:
        start: opens the sessions.
        open_catalog: returns the session catalog, to pick a session before one is open.
        save_theme: writes a theme into the settings.
    """

    has_user = True

    def __init__(
        self,
        app: OuroApp,
        conversation: ConversationScreen,
        keymap: Keymap,
        start: SessionStart,
        *,
        open_catalog: OpenCatalog | None = None,
        save_theme: Callable[[str], None] | None = None,
    ) -> None:
        self._app = app
        self._conversation = conversation
        self.queue = self._turns = conversation.turns
        self.keymap = keymap
        self._save_theme = save_theme
        self.opener = SessionOpener(app, conversation, keymap, self, start, open_catalog)
        self.open = self.opener.open
        self.pick_session = self.opener.pick_session
        self.copy = app.copy
        self.leave = partial(app.exit, 0)
        self.choose_matching = partial(_choose_matching, app)
        self._is_detaching = False
        self.typed_command = ""
        """The text of the running command; empty once it has shown something."""

    @property
    def session(self) -> Session:
        """The session on the screen.

        Raises:
            UsageError: none is open yet.
        """
        if self._turns.session is None:
            raise UsageError("The session is still being opened. Try again in a moment.")
        return self._turns.session

    @property
    def keys(self) -> KeySections:
        return self.keymap.sections()

    async def use_theme(self, name: str) -> None:
        """Use a theme, and save it for the next start. If `name` is empty, the user picks a theme:
        the marked one is shown while they choose, and the previous one again if they cancel. First
        the files of the user's own themes are read, because they may have changed since the start.

        Raises:
            UsageError: there is no such theme.
        """
        for problem in await asyncio.to_thread(add_own_themes):
            self.say(problem, "warning")
        for new_theme in THEMES.keys() - self._app.available_themes.keys():
            self._app.register_theme(make_theme(new_theme, THEMES[new_theme]))
        theme_names = (*THEMES, "auto")
        if not name:
            previous_theme = self._app.theme
            choices = [Choice(theme_name, theme_name) for theme_name in theme_names]
            picker = Picker("Which colours?", choices, previous_theme, preview=self._show_theme)
            name = await show_sheet(self._app, picker) or ""
            if not name:
                self._show_theme(previous_theme)
                return
        if name not in theme_names:
            raise UsageError(f"There is no theme `{name}`. There are: {', '.join(theme_names)}.")
        self._show_theme(name)
        if self._save_theme is not None:
            self._save_theme(name)
        if name == "auto":
            self.say("From the next start on, the colours follow the background of the terminal.")

    def _show_theme(self, name: str) -> None:
        if name in THEMES:  # `auto` is evaluated only at the start
            self._app.theme = name

    def show(self, markdown: str, page: str = "") -> None:
        """Show the output of a command on a sheet with the title `page`. Without a title, add it to the
        transcript, which scrolls to the start of what it shows: the typed command, or the output if
        the command is there already.
        """
        if page:
            self._app.push_screen(HelpSheet(self.keymap, markdown, page))
            return
        answer = _make_block(markdown)
        typed_command = self._show_typed_command()
        self._conversation.transcript.add(answer, start=typed_command or answer)

    def say(self, text: str, level: Level = "info") -> None:
        self._show_typed_command()
        self._conversation.transcript.add(NoticeBlock(text, level))

    def _show_typed_command(self) -> TranscriptBlock | None:
        """Show the command that the user typed, before its first output. Returns its block; None if
        the command is shown already.
        """
        typed_command, self.typed_command = self.typed_command, ""
        if not typed_command:
            return None
        block = TypedCommand(typed_command)
        self._conversation.transcript.add(block)
        return block

    async def choose(self, title: str, choices: Sequence[Choice], current: str = "") -> str | None:
        return await show_sheet(self._app, Picker(title, choices, current))

    async def edit(self, text: str) -> str:
        return await editor_and_pager.edit(self._app, text)

    async def ask(self, title: str, *, secret: bool = False, draft: str = "") -> str:
        return await show_sheet(self._app, LineSheet(title, secret, draft)) or ""

    async def choose_rewind(
        self, *, suggest_undo: bool = False, redo: Mapping[RewindScope, str] | None = None
    ) -> RewindChoice | None:
        """Let the user choose a message to rewind to, or a branch to return to; None if the user
        cancels. With `suggest_undo`, the list opens with the last turn marked, and its files ticked.
        With `redo`, the user chooses instead which of these scopes to redo.
        """
        # Too heavy before the first frame.
        from ouro.frontends.tui.screens.list_sheets import RedoSheet, RewindSheet

        if redo is not None:
            return await show_sheet(self._app, RedoSheet(redo))
        sheet = RewindSheet(self.session.rewind, self.keymap, with_files=suggest_undo)
        return await show_sheet(self._app, sheet)

    def show_again(self, draft: str = "", images: Sequence[Image] = ()) -> None:
        """Show the transcript again, and put the draft and the images into the prompt. The text that is
        in the prompt is stashed. Without a draft and images, the prompt stays as it is. A draft
        that the user leaves unchanged is not saved as unsent: `undone_text` remembers it.
        """
        self._conversation.show_again()
        self.typed_command = ""  # the new transcript is the result, so the command is not shown
        prompt = self._conversation.prompt
        text = prompt.attachments.restore(Draft(draft, tuple(images)))
        if text:
            prompt.stash_text()
            prompt.fill(text)
            prompt.undone_text = prompt.whole_text

    async def send(self, text: str) -> None:
        self._turns.say(Draft(text))

    async def run(self, events: AsyncGenerator[Event, None]) -> None:
        """Show events as the queue shows those of a turn. They begin when the running turn has ended,
        and this function returns when they end.
        """
        if self._turns.running:
            self.say("Runs when the turn has ended.")
        self._show_typed_command()
        await self._turns.run(events)

    async def browse(self, page: Page) -> bool:
        """Let the user browse a page until the sheet is closed: `context` is what is sent to the
        model, `tasks` are the background tasks, and any other page is a tab of memory (`newest` is
        the tab with the newest entry). In memory, the user may choose a message to go to, which may
        be in another session. Always returns True: there is a screen.
        """
        if page == "context":
            from ouro.frontends.tui.screens.list_sheets import ContextSheet  # rarely used

            return await self._browse(ContextSheet(self.session.window, self.keymap))
        if page == "tasks":
            from ouro.frontends.tui.screens.list_sheets import TasksSheet  # rarely used

            background = self.session.background
            return await self._browse(TasksSheet(background.list, background.kill))
        from ouro.commands.slash import SessionContext
        from ouro.frontends.tui.screens.memory_browser import MemoryBrowser  # rarely used

        tab = None if page == "newest" else page
        browser = MemoryBrowser(SessionContext(self), self.keymap, tab)
        self._conversation.browser = browser
        try:
            request = await show_sheet(self._app, browser)
        finally:
            self._conversation.browser = None
        if request is not None and request.resume == self.session.id:
            await self.go_to(request.message)
        elif request is not None:
            await self.open(request)
        return True

    async def _browse(self, sheet: Sheet[None]) -> bool:
        await show_sheet(self._app, sheet)
        self.redraw()
        return True

    async def view_diff(self, reading: asyncio.Task[ShownDiff]) -> bool:
        """Show a diff as soon as it is read. Comments that the user wrote on it are sent to the
        agent. Returns False if there are no changes.
        """
        from ouro.frontends.tui.blocks.code import prepare_lexers
        from ouro.frontends.tui.screens.diff_viewer import DiffViewer  # rarely used
        from ouro.session import SessionDiff

        # git runs meanwhile.
        shown, _ = await asyncio.gather(reading, asyncio.to_thread(prepare_lexers))
        if not shown.has_changes:
            return False
        diff = SessionDiff(self.session.cwd, self.session.rewind)
        comments = await show_sheet(self._app, DiffViewer(shown, diff, self.keymap))
        if comments:
            await self.send(comments)
        return True

    async def show_queue(self) -> bool:
        """Show the queued messages until the user closes the sheet. Always returns True: there is a
        screen.
        """
        from ouro.frontends.tui.screens.queue_sheet import QueueSheet  # rarely used

        await show_sheet(self._app, QueueSheet(self._turns, self._conversation.return_text))
        return True

    def toggle_vim(self) -> str:
        editing = "emacs" if self._conversation.prompt.vim_mode else "vim"
        self._conversation.prompt.use_editing(editing)
        return editing

    def read_transcript(self, words: str = "") -> None:
        self._conversation.reader.open(words)

    def redraw(self) -> None:
        self._conversation.show_state()

    async def go_to(self, message: int) -> None:
        await self._conversation.go_to(message)

    async def detach(self) -> None:
        """Let this process continue with the session, without the terminal, and end the app. Raises
        UsageError if the session cannot be hosted.
        """
        from ouro.frontends.background.detach import begin_hosting  # rarely used

        if self._is_detaching:
            return  # the command was given twice
        self._is_detaching = True
        try:
            self._app.hosting = await begin_hosting(self.session, self._turns, self._conversation)
        finally:
            self._is_detaching = False
        self._app.exit(0)
