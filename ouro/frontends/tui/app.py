"""OuroApp: the full screen of a session; KeyActions: what its keys do."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import events, on
from textual._compositor import CompositorUpdate
from textual.app import App
from textual.screen import Screen

from ouro.display import Choice
from ouro.errors import OuroError, UsageError, plain_error
from ouro.frontends import clipboard
from ouro.frontends.tui import editor_and_pager
from ouro.frontends.tui.changed_cells import PaintedUpdate, ScreenPainter
from ouro.frontends.tui.command_front_end import ScreenFrontEnd
from ouro.frontends.tui.driver import TerminalDriver
from ouro.frontends.tui.first_frame_prompt import SECOND_CTRL_C
from ouro.frontends.tui.idle_collector import IdleCollector
from ouro.frontends.tui.keymap import SCROLLS, Keymap
from ouro.frontends.tui.screen_constants import QUIT_HINT
from ouro.frontends.tui.screen_settings import ScreenSettings
from ouro.frontends.tui.screens.conversation import ConversationScreen
from ouro.frontends.tui.screens.dialogs import HelpSheet, show_sheet
from ouro.frontends.tui.screens.picker import HistoryPicker, Picker
from ouro.frontends.tui.scrolling_layout import ScrollingLayout
from ouro.frontends.tui.session_start import SessionStart
from ouro.frontends.tui.themes import ANSI, THEMES, make_theme, shown_theme
from ouro.frontends.tui.widgets.prompt import CHORD_GAP, PromptArea
from ouro.frontends.tui.widgets.start_panel import StartPanel
from ouro.frontends.tui.widgets.status import ResumePanel
from ouro.session.opening import PICK, OpenCatalog, OpenRequest
from ouro.session.turn_queue import Draft
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.frontends.background.detach import DetachedHost
    from ouro.session import Session

SECOND_PRESS = 1.0
"""Within so many seconds, a second Ctrl+O opens the transcript reader."""
SECOND_ESCAPE = 1.0
"""For so many seconds after an interrupt, Esc Esc is not a rewind."""
_SECOND_ESCAPE_CLEARS = "Esc again clears the prompt."
_CLEARED = "Cleared: ↑ brings the text back."
_NOTHING_TO_REWIND = "Esc Esc goes back to an earlier message: there is none yet."
MAX_SEARCHED_TEXT = 2_000
"""Characters of each prompt that the history search compares; a paste may have a million."""
_STALL_CHECK = 0.1
"""Seconds between two looks at whether a terminal takes output again."""
_KEY_COMMANDS = {
    "memory": "/memory",
    "model": "/model",
    "detach": "/bg",
    "send_offered": "/memory send",
}
"""The command that a key is short for, by the name of its action."""
_NO_SHELL = "Not suspended: no shell could continue ouro."
_NO_CARDS = "There is no tool call to unfold."


class OuroApp(App[int], inherit_bindings=False):
    """One session on a full screen; its result is the exit code."""

    CSS_PATH = "ouro.tcss"
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        start: SessionStart,
        settings: ScreenSettings,
        *,
        save_theme: Callable[[str], None] | None = None,
        open_catalog: OpenCatalog | None = None,
        driver_class: Any = None,
    ) -> None:
        """Make the app.

        Args:
            start: opens the first session.
            save_theme: writes a theme into the settings.
            open_catalog: returns the session catalog, to pick a session before one is open.
            driver_class: makes the driver; None: that of Textual.
        """
        # None: Textual decides by its own settings.
        ansi_color = True if settings.theme == ANSI else None
        super().__init__(driver_class=driver_class, ansi_color=ansi_color)
        self.hosting: DetachedHost | None = None
        """The host of the session, after the user has left it to the background."""
        self.has_left_terminal = False
        """Whether the shell has its terminal again; the process goes on for some milliseconds."""
        self.failure: OuroError | None = None
        """The error that ended the program because no session could be opened."""
        self.pressed_at = float("-inf")
        """The time at which the key was pressed whose action runs."""
        self.painter = ScreenPainter(os.environ.get("TERM", ""))
        self._is_drawing_due = False
        """Whether an update was not written, because the terminal took no output."""
        self._collector = IdleCollector(self.set_timer, lambda: self.pressed_at)
        self._start = start
        self._is_resumable = settings.is_resumable
        keymap = Keymap(settings.keys)
        # With PICK the session picker has the focus first.
        self.conversation = self._make_conversation(
            settings, keymap, takes_focus=start.request.resume != PICK
        )
        self.turns = self.conversation.turns
        self.front_end = ScreenFrontEnd(
            self, self.conversation, keymap, start, open_catalog=open_catalog, save_theme=save_theme
        )
        self._actions = self._make_actions()
        for key, action in keymap.actions_of("app").items():
            # To suspend is an action of Textual, and needs no method of KeyActions.
            is_of_textual = action == "suspend_process"
            textual_action = action if is_of_textual else f"press('{action}')"
            acts_in_sheets = action in ("suspend_process", "redraw")
            self._bindings.bind(key, textual_action, show=False, priority=acts_in_sheets)
        # For questions; the prompt handles the key first if it has the focus.
        for name in ("clear", "leave"):
            for key in keymap.keys(name):
                self.bind(key, f"press('{name}')", show=False)
        for name, colors in THEMES.items():
            self.register_theme(make_theme(name, colors))
        self.theme = shown_theme(settings.theme)

    def _make_conversation(
        self, settings: ScreenSettings, keymap: Keymap, *, takes_focus: bool
    ) -> ConversationScreen:
        return ConversationScreen(settings, keymap, self._run_command, takes_focus=takes_focus)

    def _make_actions(self) -> KeyActions:
        return KeyActions(self)

    @property
    def end_hint(self) -> str:
        """The line in the terminal after the end, which names how to continue; empty if nothing was
        saved.
        """
        session = self.turns.session
        if session is None or not (self._is_resumable and session.status().is_saved):
            return ""
        if self.hosting is not None:
            return f"It continues in the background: ouro attach {session.id[:8]}"
        return f"Continue with: ouro --resume {session.id[:8]}"

    @property
    def lends_terminal(self) -> bool:
        """Whether another program, such as the user's editor, has the terminal."""
        return isinstance(self._driver, TerminalDriver) and self._driver.is_lent

    def get_default_screen(self) -> Screen[Any]:
        return self.conversation

    def on_load(self) -> None:
        """Let tasks start in the next step of the event loop, as they do with Python 3.11. With newer
        versions Textual lets them start within `create_task`, before its caller has kept the task.
        """
        asyncio.get_running_loop().set_task_factory(None)

    def on_mount(self) -> None:
        """Queue the message of the command line, and open the session after the first frame."""
        self.begin_capture_print(self)
        self.app_resume_signal.subscribe(self, lambda _: self._show_all_again())
        if self._start.message:
            self.turns.queue(Draft(self._start.message))
        self.conversation.prompt_history.add(self._start.typed_message)
        self.call_after_refresh(lambda: self.run_worker(self._open_session()))

    def _show_all_again(self) -> None:
        """Show the screen and the title of the window after another program had the terminal. Textual
        draws only changes, but the other program has left the screen empty.
        """
        self.paint_all()
        self.conversation.show_window_title_again()

    def paint_all(self) -> None:
        """Write the whole screen again: another program may have written to the terminal."""
        self.painter.forget()
        self.refresh(repaint=True, layout=True)

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        """Write an update of the screen by the painter, which writes only what differs."""
        layout = screen._compositor
        scrolled = layout.take_scrolled() if isinstance(layout, ScrollingLayout) else ()
        if self._terminal_is_behind:
            self._draw_later()
            return
        if isinstance(renderable, CompositorUpdate):
            renderable = PaintedUpdate(renderable, self.painter, self.size, scrolled)
        super()._display(screen, renderable)

    @property
    def _terminal_is_behind(self) -> bool:
        return isinstance(self._driver, TerminalDriver) and self._driver.is_behind

    def _draw_later(self) -> None:
        """Draw the whole screen once when the terminal takes output again, instead of each update until
        then.
        """
        if not self._is_drawing_due:
            self._is_drawing_due = True
            self.set_timer(_STALL_CHECK, self._draw_due)

    def _draw_due(self) -> None:
        """Draw the screen that was not drawn before, or wait again if the terminal is still behind."""
        self._is_drawing_due = False
        if self._terminal_is_behind:
            self._draw_later()
        else:
            self.refresh(repaint=True, layout=True)

    def action_suspend_process(self) -> None:
        """Suspend the program. If there is no shell that could continue it, show a warning instead."""
        super().action_suspend_process()
        if isinstance(self._driver, TerminalDriver) and not self._driver.can_be_continued:
            self.conversation.status.show_message(_NO_SHELL, "warning")

    def on_resize(self, event: events.Resize) -> None:
        """Draw all again if the size is the same as before: the terminal had another size for a
        moment, and may have lost what did not fit. If the size has changed, Textual draws all
        anyway.
        """
        is_first_size = self._size is None  # this is called before Textual stores the size
        if not is_first_size and event.size == self.screen.size:
            self.call_later(self.paint_all)

    async def on_event(self, event: events.Event) -> None:
        """Store the time of a key before its action runs. This is also done for a key that a widget
        has passed on.
        """
        if isinstance(event, events.Key):
            self.pressed_at = event.time
        await super().on_event(event)

    async def _close_all(self) -> None:
        """Close the widgets if the process continues: as the host of the session, or as a program
        that shows the app without a terminal of its own. In all other cases they stay open, because
        closing them took half of the time of the exit.
        """
        has_terminal = isinstance(self._driver, TerminalDriver)
        process_continues = self.hosting is not None or not has_terminal
        if process_continues:
            await super()._close_all()

    def on_unmount(self) -> None:
        self.conversation.draft.close()

    def on_descendant_focus(self) -> None:
        """Start reading keys: now a widget can receive them."""
        if isinstance(self._driver, TerminalDriver):
            self._driver.listens.set()

    def on_app_focus(self) -> None:
        """Note that the terminal reports its focus; Textual itself notes whether it has it."""
        self.conversation.reports_focus = True

    on_app_blur = on_app_focus

    async def _open_session(self) -> None:
        """Open the first session, show warnings about keys, and give the prompt the focus if nothing
        has it.
        """
        await self.front_end.open(self._start.request)
        for warning in self.front_end.keymap.unreachable:
            self.front_end.say(warning, "warning")
        if self.turns.session is not None and self.focused is None:
            self.conversation.prompt.focus()

    def fail(self, error: OuroError) -> None:
        """End the program with this error, because no session could be opened."""
        self.failure = error
        self.exit(error.exit_code)

    async def action_press(self, name: str) -> None:
        """Do what the action `name` of a key does: scroll, run a slash command, or call the method
        of KeyActions with this name. The next key is handled after the action has ended. Only a
        coroutine method runs in the background, because it may wait for the user.
        """
        if name in SCROLLS:
            self._actions.scroll(name)
            return
        if name in _KEY_COMMANDS:
            self.turns.say(Draft(_KEY_COMMANDS[name]))
            return
        action = getattr(self._actions, name)
        if inspect.iscoroutinefunction(action):
            self.attempt_later(action)
        else:
            await self._attempt(action)

    def attempt_later(self, action: Callable[[], Any]) -> None:
        """Run an action without blocking the next keys; its error is shown, as by `_attempt`."""
        self.run_worker(self._attempt(action))

    async def _attempt(self, action: Callable[[], Any]) -> None:
        """Run an action; its error is shown in the status line."""
        try:
            result = action()
            if inspect.isawaitable(result):
                await result
        except (OuroError, OSError) as error:
            text = " ".join(str(plain_error(error)).split("\n"))
            self.conversation.status.show_message(text, "warning")

    @on(ConversationScreen.TurnEnded)
    def _turn_ended(self) -> None:
        self._collector.turn_ended()

    @on(ResumePanel.Chosen)
    def _use_resume_choice(self, message: ResumePanel.Chosen) -> None:
        """Continue with the part of the session that the user has chosen. Nothing is to be done for
        `full`: the whole session is resumed already.
        """
        resumed = self.front_end.session.resumed
        if resumed is not None and message.part != "full":
            events_of_part = resumed.continue_with(message.part)
            self.attempt_later(partial(self.front_end.run, events_of_part))

    @on(StartPanel.Chosen)
    def _open_chosen_session(self, message: StartPanel.Chosen) -> None:
        self.attempt_later(partial(self.front_end.open, OpenRequest(message.session_id)))

    def copy(self, text: str) -> str:
        """Copy to the clipboard through the terminal and through a program. Returns how it was copied,
        as a text for the user: with which program, or that it was sent to the terminal.
        """
        self.copy_to_clipboard(text)  # OSC 52
        return clipboard.copy_with_program(text) or clipboard.SENT_TO_TERMINAL

    @on(events.TextSelected)
    def _copy_selection(self) -> None:
        selected_text = self.screen.get_selected_text()
        if selected_text:
            self._copy_and_report(selected_text)

    @on(PromptArea.Marked)
    def _copy_marked(self, message: PromptArea.Marked) -> None:
        self._copy_and_report(message.text)

    @on(PromptArea.NothingMarked)
    def _explain_middle_button(self) -> None:
        """Say how to paste with the terminal, because ouro has found no marked text."""
        hint = "No marked text was found. Shift and the middle button paste in most terminals."
        self.conversation.status.show_message(hint)

    def _copy_and_report(self, text: str) -> None:
        """Copy the text that the mouse has marked, and show how it was copied."""
        report = self.copy(text)
        was_copied_by_program = report.startswith("with")  # such as `with wl-copy`
        if was_copied_by_program:
            report = f"copied {report}"
        self.conversation.status.show_message(report, seconds=2.0)

    @on(events.Print)
    def _log_print(self, event: events.Print) -> None:
        if event.text.strip():
            log.info("printed: %s", event.text.rstrip())

    async def _run_command(self, text: str) -> bool:
        """Run a slash command; returns False if the text is not one. The front end has the text of
        the command until it ends, so that it can show the text before the first output.
        """
        from ouro.commands.slash import dispatch  # too heavy to import before the first frame

        self.front_end.typed_command = text
        try:
            return await dispatch(self.front_end, text)
        finally:
            self.front_end.typed_command = ""


class KeyActions:
    """The actions of keys that the app carries out. The keymap calls each method by its name."""

    def __init__(self, app: OuroApp) -> None:
        self._app = app
        self._conversation = app.conversation
        self._turns = app.turns
        self._front_end = app.front_end
        self._changes = app.front_end.opener.changes
        self._unfolded_at = float("-inf")
        """When the key that unfolds tool outputs was last pressed."""
        self._interrupted_at = float("-inf")
        """When Esc has last stopped something."""
        self.redraw = app.paint_all
        self.mouse = self._change_mouse
        self.card_previous = partial(self._mark_card, -1)
        self.card_next = partial(self._mark_card, 1)

    @property
    def _panel(self) -> ResumePanel | StartPanel:
        """The panel above the prompt that gets the keys which send and queue while the prompt is
        empty. It may be closed.
        """
        conversation = self._conversation
        return conversation.resume if conversation.resume.is_open else conversation.start

    def send(self) -> None:
        self._panel.choose_marked()

    def queue(self) -> None:
        self._panel.mark_next()

    def clear(self) -> None:
        """Interrupt what runs, and show a hint that the same key quits. If the key is pressed while
        the hint is shown, quit.

        There is no hint if an interrupt has put queued messages into the prompt, because the key
        then clears them.
        """
        status = self._conversation.status
        if status.asks_to_quit:
            self._app.exit(0)
            return
        notes = []
        if self._conversation.interrupt():
            notes.append("interrupted")
        asks_to_quit = not self._conversation.prompt.text
        if asks_to_quit:
            notes.append(QUIT_HINT)
        status.show_message(" · ".join(notes), seconds=SECOND_CTRL_C, asks_to_quit=asks_to_quit)

    def leave(self) -> None:
        """Quit, unless the prompt has text or a sheet is open. If a task runs in the background, `/exit`
        asks the user first.
        """
        session = self._conversation.session
        if self._conversation.prompt.text or self._app.screen is not self._conversation:
            return
        tasks = session.background.list() if session is not None else ()
        if any(task.is_running and task.outlives_turn for task in tasks):
            self._turns.say(Draft("/exit"))
        else:
            self._app.exit(0)

    def interrupt(self) -> None:
        """What Esc does: the first of these that is possible. Dismiss the agent's question,
        interrupt the turn, remove the mark of the start panel, close the resume panel.

        The time is stored if this has stopped something, because `rewind` must know it. Removing the
        mark and closing the panel do not count: Esc Esc right after a resume rewinds.
        """
        question = self._conversation.questions.panel
        was_dismissed = question is not None and question.dismiss_question()
        has_stopped = was_dismissed or self._conversation.interrupt()
        if has_stopped:
            self._interrupted_at = time.monotonic()
        elif self._conversation.start.is_marked:
            self._conversation.start.unmark()
        elif self._conversation.resume.is_open:
            self._conversation.resume.close()
        elif self._conversation.prompt.clears_at_next_key:
            self._conversation.status.show_message(_SECOND_ESCAPE_CLEARS, seconds=CHORD_GAP)

    def rewind(self) -> None:
        """What Esc Esc does: clear the text of the prompt, or rewind if there is none. While a turn
        runs, or soon after Esc has stopped something, it interrupts instead, because the user then
        presses Esc again to stop more.
        """
        if self._turns.running or time.monotonic() - self._interrupted_at < SECOND_ESCAPE:
            self.interrupt()
            return
        if self._conversation.prompt.text:
            self._conversation.prompt.action_clear()
            self._conversation.status.show_message(_CLEARED)
            return
        session = self._conversation.session
        if session is not None and not session.rewind.has_anything:
            # Not an error in the transcript: Esc is often pressed once too often.
            self._conversation.status.show_message(_NOTHING_TO_REWIND)
            return
        self._turns.say(Draft("/rewind"))

    def mode(self) -> Awaitable[None]:
        """Use the next mode. This is not a coroutine function, so the next key waits for it: a
        message that is sent with that key must be sent in the new mode.
        """
        return self._changes.apply(self._use_next_mode)

    async def _use_next_mode(self, session: Session) -> None:
        from ouro.commands.mode import next_mode  # too heavy to import before the first frame

        session.set_mode(next_mode(session.status().mode))
        self._front_end.redraw()

    async def think(self) -> None:
        """Use the next effort. Raises UsageError if the model does not think."""
        await self._changes.apply(self._use_next_effort)

    async def _use_next_effort(self, session: Session) -> None:
        from ouro.commands.models import next_effort  # too heavy to import before the first frame

        await session.set_model(effort=next_effort(session.status().effort))
        self._front_end.redraw()

    def palette(self) -> None:
        """Open the list of commands, keys, sessions, models, settings, pages and files. It is empty
        when it opens, so that it opens at once and gets the next keys. Then it is filled.
        """
        title = "Commands, keys, settings, pages, models, sessions, files"
        picker = Picker(title, choices=(), search="", nothing="reading …")
        result = show_sheet(self._app, picker)
        self._app.attempt_later(partial(self._run_palette, picker, result))

    async def _run_palette(self, picker: Picker, result: Awaitable[str | None]) -> None:
        """Fill the open palette, and do what the user picks."""
        from ouro.frontends.tui.command_palette import palette_choices, run_choice  # rarely used

        front_end = self._front_end
        choices = await palette_choices(front_end.session, front_end.keymap)
        picker.fill(choices)
        choice = await result
        if choice is not None:
            await run_choice(self._app, choice)

    async def next_model(self, step: int = 1) -> None:
        """Use the next favorite model, or with -1 the previous one. Raises UsageError if there is
        none.
        """
        await self._changes.apply(partial(self._use_favorite, step))

    async def _use_favorite(self, step: int, session: Session) -> None:
        """Use the favorite model that is `step` places after the present one, and name it."""
        from ouro.commands.models import use_favorite  # too heavy to import before the first frame

        name = await use_favorite(session, step)
        self._front_end.redraw()
        self._conversation.status.show_message(f"Model: {name}", seconds=2.0)

    async def previous_model(self) -> None:
        await self.next_model(-1)

    def outputs(self) -> None:
        """Unfold or fold the tool outputs. If the key was pressed twice within SECOND_PRESS, also open
        the whole transcript.
        """
        now = self._app.pressed_at  # not the time of handling: a busy screen handles keys late
        was_just_pressed = now - self._unfolded_at < SECOND_PRESS
        self._unfolded_at = now
        self._conversation.transcript.toggle_outputs()
        if was_just_pressed:
            self.transcript()

    def transcript(self) -> None:
        """Read the whole transcript."""
        self._conversation.reader.open()

    def _change_mouse(self) -> None:
        """Leave the mouse to the terminal, which marks text in its own way; or use it again. Does nothing
        with a driver of Textual, as in tests: it cannot change this while it runs.
        """
        driver = self._app._driver
        if not isinstance(driver, TerminalDriver):
            return
        driver.use_mouse(not driver.uses_mouse)
        state = "on" if driver.uses_mouse else "off: the terminal marks text and scrolls"
        self._conversation.status.show_message(f"Mouse {state}")

    def _mark_card(self, by: int) -> None:
        """Mark the next tool call (`by` is 1) or the previous one (-1). After the last one the mark
        ends. Raises UsageError if there is no previous one.
        """
        is_marked = self._conversation.transcript.mark_card(by)
        if not is_marked and by < 0:
            raise UsageError(_NO_CARDS)

    def card(self) -> None:
        """Unfold or fold the marked tool call or thinking, else the last one. Raises UsageError if there
        is none.
        """
        if not self._conversation.transcript.toggle_card():
            raise UsageError(_NO_CARDS)

    def todos(self) -> None:
        if not self._conversation.todos.toggle():
            self._conversation.status.show_message("There is no plan.")

    async def queue_list(self) -> None:
        """Show the queued messages, to edit, move and remove them. Raises UsageError without any."""
        if not self._turns.waiting:
            raise UsageError("No message waits.")
        await self._front_end.show_queue()

    def jobs(self) -> None:
        """Move the running commands to the background. If none runs, show the list of background
        tasks.
        """
        background = self._front_end.session.background
        moved = background.move_running()
        if moved:
            subject = "Moved" if moved == 1 else f"{moved} commands moved"
            key = self._front_end.keymap.key_text("jobs")
            self._conversation.status.show_message(
                f"{subject} to the background: {key} lists it, then x ends it."
            )
            return
        from ouro.frontends.tui.screens.list_sheets import TasksSheet  # rarely used

        self._app.push_screen(TasksSheet(background.list, background.kill))

    async def terminal(self) -> None:
        """Open a sheet to type into the program that was started last in a terminal. Raises UsageError
        if there is none.
        """
        from ouro.frontends.tui.screens.pty_screen import PtySheet  # rarely used

        job = self._front_end.session.background.last_terminal()
        if job is None or job.pty is None:
            raise UsageError("No program waits in a terminal.")
        self._app.push_screen(PtySheet(job.command, job.pty))

    def import_memory(self) -> None:
        """Import what the start panel offers, by sending the commands `/memory import` as if the
        user had typed them. Raises UsageError if it offers nothing.
        """
        from ouro.commands.import_offer import import_commands  # used once a folder

        offer = self._conversation.start.take_offer()
        if offer is None:
            raise UsageError("Nothing is offered for import. /memory import PATH reads a file.")
        for command in import_commands(self._front_end.session, offer.paths):
            self._turns.say(Draft(command))

    async def receipt(self) -> None:
        if self._front_end.session.session_memory.manager is None:
            raise UsageError("Long-term memory is off for this session.")
        await self._front_end.browse("receipt")

    def help(self) -> None:
        """Show the keys and commands. The keys are first: `/help` begins with the commands."""
        from ouro.commands.help import (
            HELP_TITLE,
            help_text,
        )  # too heavy to import before the first frame

        keymap = self._front_end.keymap
        text = help_text(self._conversation.session, keymap.sections(), keys_first=True)
        self._app.push_screen(HelpSheet(keymap, text, HELP_TITLE))

    async def search_history(self) -> None:
        """Let the user pick an entry of the prompt history, the newest first. The picker begins with a
        search for the first line of the prompt. The picked entry replaces the text of the prompt.
        Raises UsageError if the history is empty.
        """
        prompt = self._conversation.prompt
        entries = [
            Choice(text, text[:MAX_SEARCHED_TEXT])
            for text in reversed(self._conversation.prompt_history.entries())
        ]
        if not entries:
            raise UsageError("The prompt history is empty.")
        first_line = prompt.text.split("\n")[0]
        opening_keys = self._front_end.keymap.keys("search_history")
        picker = HistoryPicker(entries, first_line, opening_keys)
        entry = await show_sheet(self._app, picker)
        if entry is not None:
            prompt.fill(entry)

    async def editor(self) -> None:
        """Let the user edit the text of the prompt, with its long pastes, in an editor."""
        prompt = self._conversation.prompt
        edited_text = await editor_and_pager.edit(self._app, prompt.whole_text)
        prompt.fill(edited_text)

    async def paste_image(self) -> None:
        """Attach the image on the clipboard. Raises UsageError if there is none."""
        image = await clipboard.clipboard_image()
        if image is None:
            raise UsageError("There is no image on the clipboard.")
        prompt = self._conversation.prompt
        prompt.put(prompt.attachments.add_image(image) + " ")

    def scroll(self, where: str) -> None:
        """Do what an action of SCROLLS does: scroll the text of the open question by a page, or move the
        cursor of a long message to its start or end, or else scroll the transcript.
        """
        question = self._conversation.questions.panel
        if question is not None and question.scrolls and where in ("page_up", "page_down"):
            question.scroll_body(-1 if where == "page_up" else 1)
            return
        has_moved_cursor = self._conversation.prompt.go_to_end(where)
        if not has_moved_cursor:
            getattr(self._conversation.transcript, f"action_{SCROLLS[where]}")()
