"""ScreenFrontEnd: the full screen for slash commands and for opening sessions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ouro.display import Choice
from ouro.errors import AttachRequested, OuroError, UsageError, plain_error
from ouro.events import Event, Level, Notice
from ouro.frontends.session_format import card_line, now
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
from ouro.frontends.tui.screens.session_picker import SessionPicker
from ouro.frontends.tui.session_start import SessionStart
from ouro.frontends.tui.themes import THEMES, make_theme
from ouro.session.opening import OpenCatalog, OpenRequest, open_interactively
from ouro.session.turn_queue import Draft
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.commands.front_end import KeySections, Page, RewindChoice
    from ouro.frontends.tui.app import OuroApp
    from ouro.messages import Image
    from ouro.session import (
        Resumed,
        RewindScope,
        Session,
        SessionCatalog,
        ShownDiff,
        TurnQueue,
    )


_TURN_END_TIMEOUT = 1.0
"""Seconds for a running turn to end before another session is opened."""
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
            except UsageError as error:
                self._show(str(error))


class ScreenFrontEnd:
    """What commands can do on the full screen, and the opening of sessions.

    It has all methods of the protocol `FrontEnd`. It does not inherit from it, because the import of
    that module would delay the prompt; mypy checks the methods where commands get this object.

    Args:
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
        self._start = start
        self._open_catalog = open_catalog
        self._save_theme = save_theme
        self._syncing: asyncio.Task[None] | None = None
        """Synchronizes memory at the start. It is kept so that the task is not collected."""
        self.copy = app.copy
        self.leave = partial(app.exit, 0)
        self.choose_matching = partial(_choose_matching, app)
        self._resume_card: asyncio.Task[None] | None = None
        self._is_detaching = False
        self.changes = SessionChanges(self._turns, conversation.status.show_message)
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

        await show_sheet(self._app, QueueSheet(self._turns))
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
            answer = await command.function(SessionContext(self), remote="", later=True, quiet=True)
        except (OuroError, OSError) as error:
            self.say(f"Not synchronized: {plain_error(error)}", "warning")
            return
        if self._turns.session is session:
            self.say(as_text(answer.view))

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

    # Opening sessions

    async def open(self, request: OpenRequest) -> None:
        """Open another session, and close the one on the screen. If opening fails, or the user
        cancels, the session on the screen stays; if there is none yet, ouro ends. If the user
        wants to see a session that runs in the background, this app ends, and ouro attaches to it.

        A running turn is interrupted first, also if opening then fails.
        """
        await self._turns.finish_turn(timeout=_TURN_END_TIMEOUT)
        previous = self._turns.session
        try:
            session = await open_interactively(
                self._start.open, request, self, has_open_session=previous is not None
            )
        except OuroError as error:
            if previous is None or isinstance(error, AttachRequested):
                self._app.fail(error)
            else:
                self._conversation.show(Notice(str(error), "error"))
            return
        is_start = previous is None
        if session is None:  # the user has cancelled
            if is_start:
                self.leave()
            return
        await self._show_session(session, request.message)
        if previous is not None:
            await previous.close()
        if is_start and self._conversation.syncs:
            self._syncing = asyncio.create_task(self._sync_at_start(session))

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
            self._open_catalog, self.keymap, only=ids, rename=self._rename_open, esc="new session"
        )
        request = await show_sheet(self._app, sheet)
        self._conversation.prompt.focus()  # no key is lost while the session is being opened
        if sheet.wants_to_leave:
            return None
        return request or OpenRequest()

    async def set_up_model(self) -> str:
        from ouro.commands.model_setup import set_up_and_test  # needed only without a model

        return await set_up_and_test(self)

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
            self.keymap,
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
        self.redraw()
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
