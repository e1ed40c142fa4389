"""ConversationScreen: header, transcript, questions, prompt and status line of a session."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace
from textual import on
from textual.app import ComposeResult
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from ouro import events
from ouro.display import Display
from ouro.errors import OuroError
from ouro.events import Event
from ouro.frontends.drafts import DraftSaver, join_unsent
from ouro.frontends.file_index import ProjectFiles
from ouro.frontends.history import PromptHistory
from ouro.frontends.saved_file_list import SavedFileList
from ouro.frontends.session_format import LEFT_BRANCH, format_tokens, script_state
from ouro.frontends.tui.blocks.messages import AnswerBlock, UserMessage
from ouro.frontends.tui.blocks.styled_lines import tidy
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screen_constants import (
    ALL_AROUND_FROM_HEIGHT,
    BOX_FROM_HEIGHT,
    HEADER_FROM_HEIGHT,
    ROOMY_FROM_HEIGHT,
)
from ouro.frontends.tui.screen_settings import ScreenSettings
from ouro.frontends.tui.screens.sheet_layout import StyledOnce
from ouro.frontends.tui.scrolling_layout import ScrollingLayout
from ouro.frontends.tui.terminal_progress import (
    NO_PROGRESS,
    WAITING,
    WORKING,
    TerminalProgress,
    shows_progress,
)
from ouro.frontends.tui.transcript_writer import TranscriptWriter, blocks_of
from ouro.frontends.tui.widgets.attachment_bar import AttachmentBar
from ouro.frontends.tui.widgets.completion import MAX_SUGGESTIONS, Completion
from ouro.frontends.tui.widgets.prompt import PromptArea
from ouro.frontends.tui.widgets.prompt_frame import PromptFrame
from ouro.frontends.tui.widgets.question_panel import QuestionPanel
from ouro.frontends.tui.widgets.question_stack import QuestionStack
from ouro.frontends.tui.widgets.start_panel import StartPanel
from ouro.frontends.tui.widgets.status import Header, ResumePanel, StatusLine, TodoPanel
from ouro.frontends.tui.widgets.transcript import TranscriptView
from ouro.frontends.tui.widgets.transcript_reader import TranscriptReader
from ouro.frontends.welcome import welcome
from ouro.session.turn_queue import Draft, TurnObserver, TurnQueue
from ouro.utils.log import log
from ouro.utils.ouro_paths import get_file_lists_dir, get_history_path
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.frontends.tui.screens.memory_browser import MemoryBrowser
    from ouro.frontends.tui.widgets.plan_question import PlanAct, PlanQuestion
    from ouro.session import Attachment, Session

MAX_BLOCKS = 1_000
"""With more blocks, those far above are dropped."""
JOBS_INTERVAL = 2.0
"""Seconds between two checks of the background jobs."""
START_PANEL_DELAY = 0.1
"""Seconds after the session is open, before the start panel is filled."""
NOTIFICATION_SECONDS = 86_400.0
"""Seconds of a notice that is removed together with its cause: long enough for any cause."""
MIN_KEPT_TURNS = 3
"""So many of the last turns stay when blocks are dropped."""
_TERMINAL_HINT_DELAY = 1.0
"""Seconds that a program runs in a terminal before the key that types into it is named."""


def _loaded_user_messages(session: Session) -> list[str]:
    """The messages of the user in a resumed session that are loaded. Empty for a new session."""
    if session.resumed is None:
        return []
    shown_events = session.scrollback.shown_events()
    return [event.text for event in shown_events if isinstance(event, events.Prompted)]


class ConversationScreen(StyledOnce[None], TurnObserver, inherit_bindings=False):
    """Passes the events of a session to widgets, and rings the bell when the user is needed.

    Args:
        run_command: runs a slash command; returns False if the text is not one.
        takes_focus: whether the prompt has the focus first; otherwise a sheet has it.
    """

    class TurnEnded(Message):
        """A turn or a shell line has ended."""

    VERTICAL_BREAKPOINTS = [  # noqa: RUF012 (Textual's own form)
        (0, "-tiny"),
        (BOX_FROM_HEIGHT, "-low"),
        (HEADER_FROM_HEIGHT, "-short"),
        (ALL_AROUND_FROM_HEIGHT, "-normal"),
        (ROOMY_FROM_HEIGHT, "-roomy"),
    ]

    def __init__(
        self,
        settings: ScreenSettings,
        keymap: Keymap,
        run_command: Callable[[str], Awaitable[bool]],
        *,
        takes_focus: bool = True,
    ) -> None:
        super().__init__()
        self._compositor = ScrollingLayout()
        self.AUTO_FOCUS = "*" if takes_focus else ""  # type: ignore[misc]  # Textual reads it from the instance
        self.browser: MemoryBrowser | None = None
        """The memory browser, while it is open over the conversation."""
        self.turns = self._make_turns()
        self._run_command = run_command
        self._bell_after = settings.bell_after
        self._editing = settings.editing
        self._welcomes = settings.welcomes
        self._shows_start = settings.shows_start
        self.syncs = settings.syncs
        """Whether to synchronize in the background of the start."""
        self._is_loading_earlier = False
        self._has_sent = False
        self.draft = DraftSaver(self._unsent_text)
        self._jobs_timer: Timer | None = None
        self._window_title: str | None = None
        has_bar = shows_progress(os.environ)
        self._progress = TerminalProgress(self._write, self.set_interval) if has_bar else None
        self.reports_focus = False
        """Whether the terminal reports if it has the focus."""
        self.prompt_history = PromptHistory(get_history_path())
        self.header = Header(settings)
        self.transcript = TranscriptView(
            id="transcript",
            outputs_key=keymap.key_text("outputs"),
            receipt_key=keymap.key_text("receipt"),
            send_key=keymap.key_text("send_offered"),
        )
        self.transcript.can_focus = False
        self.writer = TranscriptWriter(self.transcript, moves=settings.animations)
        self.todos = TodoPanel()
        self.resume = ResumePanel()
        self.start = StartPanel(keymap.key_text("import_memory"))
        self._files: ProjectFiles | None = None
        """The files that `@` completes, of the session on the screen; None before it is open."""
        self.completion = Completion(lambda: self.session, self._find_files)
        self.prompt = PromptArea(
            keymap, self.prompt_history, self.completion, self.turns.withdraw, self.start.move
        )
        self._terminal_hint = f"{keymap.key_text('terminal')} types into the program."
        self.questions = QuestionStack(keymap, lambda: self.prompt.typed_at)
        self.box = PromptFrame(self.prompt, self._describe_wait, moves=settings.animations)
        self.attachments = AttachmentBar(self._find_attachments)
        self.status = StatusLine(settings.status)
        self.reader = TranscriptReader(
            self.transcript, self.show_earlier, self._focus_again, keymap.keys("outputs")
        )

    async def _find_attachments(self, text: str) -> Sequence[Attachment]:
        return await self.session.attachments_of(text) if self.session else ()

    def _make_turns(self) -> TurnQueue:
        return TurnQueue(self, lines_in_terminal=True)

    def compose(self) -> ComposeResult:
        """The widgets from top to bottom. While the transcript is read (`TranscriptReader`), only its
        title, the transcript and the line of the reader are visible.
        """
        yield self.header
        yield Static("Transcript", id="reader-title")
        yield self.transcript
        yield self.todos
        yield self.questions
        yield self.resume
        yield self.start
        yield self.completion
        yield self.attachments
        yield self.box
        yield self.status
        yield self.reader

    # The session

    @property
    def session(self) -> Session | None:
        """The session on the screen; None before the first one is open."""
        return self.turns.session

    def attach(self, session: Session, *, has_begun_turn: bool = False) -> None:
        """Show this session. The first one of this screen gets the welcome and the start panel.

        `session` is the session of the turn queue. `has_begun_turn` says that the first turn of a
        new session has begun while Textual was imported. Then there is no transcript yet, and the
        start panel comes too late.
        """
        if self.questions.panel is not None:  # of the session before: nothing closes it any more
            self.questions.clear()
            self._return_from_questions()
        self._files = ProjectFiles(
            session.find_files,
            self._suggest,
            lambda: SavedFileList(get_file_lists_dir(), session.cwd),
        )
        self.prompt_history.begin_session(session.cwd, _loaded_user_messages(session))
        if has_begun_turn:
            self.show_state()
        else:
            self.show_again()
        if self._welcomes and session.resumed is None:
            block = AnswerBlock(welcome(session))
            # With a message the end is shown, where it appears; else the welcome's start.
            has_message = has_begun_turn or self._has_sent or bool(self.turns.waiting)
            self.transcript.add(block, start=None if has_message else block)
        self._welcomes = False
        self.start.close()
        self._restore_draft(session)
        if self._shows_start and session.resumed is None and not has_begun_turn:
            # After the first frame: the list of sessions may take a while.
            self.set_timer(START_PANEL_DELAY, lambda: self.run_worker(self._show_start(session)))
        self._shows_start = False

    def _restore_draft(self, session: Session) -> None:
        """Put the text that a killed ouro left for this session or folder into the prompt."""
        text = self.draft.begin(session)
        if text:
            change = self.prompt.receive_draft(text)
            self.status.show_message(f"Your unsent text of last time {change}.")

    def _unsent_text(self) -> str:
        """All that is unsent: the message that starts a turn, the queue, and the text of the prompt."""
        starting_text = self.turns.starting.text if self.turns.starting else ""
        texts = [starting_text, *self.turns.waiting, *self.prompt.unsent_texts]
        return join_unsent(texts, self.prompt.undone_text)

    async def _show_start(self, session: Session) -> None:
        """Show the start panel, unless the user has begun or changed the session meanwhile. If the last
        sessions cannot be read, it has none.
        """
        try:
            sessions = await session.session_catalog.sessions()
        except (OuroError, OSError) as error:
            log.warning("the last sessions: %s", error)
            sessions = []
        has_turns = bool(self.turns.busy or self.turns.waiting or session.rewind.points())
        has_begun = has_turns or self._has_sent
        if session is self.session and not has_begun:
            self.start.show(session, sessions)
            await self._offer_import(session)

    async def _offer_import(self, session: Session) -> None:
        """Offer to import the memory of other agents, once for a folder, if it can be shown now."""
        from ouro.commands.import_offer import find_offer, note_offer  # used after the first frame

        offer = await find_offer(session)
        if offer is None or session is not self.session:
            return
        if self.start.is_open and self.start.has_room:
            self.start.offer(offer)
            await note_offer(session)

    def show_again(self) -> None:
        """Show the whole transcript again, after it has changed. If a turn runs, its events that are
        not saved yet are shown, too.
        """
        if self.session is None:
            return
        shown_events: Iterable[Event] = self.session.scrollback.shown_events()
        if self.turns.running:
            shown_events = self.turns.shown_events_so_far()
        self.writer.show_only(shown_events)
        self.todos.todos = self.session.todos
        self.resume.close()
        self.show_state()

    def show_state(self) -> None:
        """Show the state of the session in the widgets around the transcript. While jobs may end, this
        is done again after a while.
        """
        session = self.session
        if session is None:
            return
        self.status.status = session.status()
        self.status.refresh()
        self._update_script(session)
        self.box.show_mode(self.status.status.mode)
        self.header.session_title = session.title
        self._show_window_title(session.title)
        self.start.update(session)
        self._show_queue()
        self._watch_jobs_if_any()

    def _update_script(self, session: Session) -> None:
        """Start the user's status command for the new state, and show its line."""
        script = session.extensions.status_script
        if script is not None:
            show_line = partial(setattr, self.status, "script")
            script.update(script_state(session), show_line, self._warn)

    def _warn(self, text: str) -> None:
        self.show(events.Notice(text, "warning"))

    async def go_to(self, message: int) -> None:
        """Scroll to the message of this number, also one that is not read from disk yet, or is on a
        branch that was left. If it cannot be read, show the error.
        """
        if self.session is None:
            return
        try:
            position = await self.session.scrollback.reach(message)
        except OuroError as error:
            self.show(events.Notice(str(error), "error"))
            return
        self.show_again()
        self.transcript.go_to_prompt(position.prompts)
        if position.is_left:
            self.show(events.Notice(LEFT_BRANCH, "warning"))

    @on(TranscriptView.QueueClicked)
    def _open_queue(self) -> None:
        self.turns.say(Draft("/queue"))

    @on(TranscriptView.TopReached)
    def _load_earlier(self) -> None:
        self.run_worker(self.show_earlier())

    async def show_earlier(self) -> bool:
        """Read a page of earlier messages from disk and show it above. Returns False if nothing was
        shown: there is no page, it cannot be read, another one is being read, or the session is
        another now.
        """
        session = self.session
        if session is None or self._is_loading_earlier or not session.scrollback.has_more:
            return False
        self._is_loading_earlier = True
        try:
            earlier = await session.scrollback.show_more()
        except OuroError as error:
            self.show(events.Notice(str(error), "error"))
            return False
        finally:
            self._is_loading_earlier = False
        if session is self.session:
            blocks = blocks_of(earlier, self.transcript)
            for block in blocks:
                block.set_open(self.reader.is_open)
            self.transcript.prepend(blocks)
        return session is self.session

    # What the turn queue reports

    def _name_terminal_key(self) -> None:
        """Name the key that types into the running program, if a turn runs one in a terminal."""
        if self.turns.session is None or not self.turns.running:
            return
        if self.turns.session.background.last_terminal() is not None:
            self.status.show_message(self._terminal_hint, seconds=6.0)

    def _ask(self, event: events.PermissionAsked | events.QuestionAsked) -> None:
        """Show a question, and call the user: by the bell, the window title and a notification."""
        self.reader.close()
        self.questions.ask(event)
        self.box.wait_for_answer(True)
        self._show_window_title(self.header.session_title)
        self.ring("ouro waits for your answer")
        if self.app.screen is not self:
            self.notify("ouro waits for your answer, behind this.", timeout=NOTIFICATION_SECONDS)

    def _return_from_questions(self) -> None:
        """Give the prompt the focus, because no question is open any more."""
        self.app.clear_notifications()
        self.box.wait_for_answer(False)
        self._show_window_title(self.header.session_title)
        self.prompt.focus()

    def _show_in_transcript(self, event: Event) -> None:
        """Write an event into the transcript. A change that the user made in the memory browser is
        written without its diff, because the browser has shown what it changes.
        """
        is_of_user = isinstance(event, events.CoreChanged) and event.origin in ("person", "undo")
        if is_of_user and self.browser is not None:
            event = replace(event, display=Display(summary=""))
        self.writer.show(event)

    def show(self, event: Event) -> None:
        """Show an event: in the transcript, and in the widgets around it."""
        self._show_in_transcript(event)
        self.box.note_event(event)
        if self.browser is not None and isinstance(
            event, events.NotesRecalled | events.NoteKept | events.CoreChanged
        ):
            self.browser.show_memory_change()
        match event:
            case events.PermissionAsked() | events.QuestionAsked():
                self._ask(event)
            case events.ToolRunning():
                self.set_timer(_TERMINAL_HINT_DELAY, self._name_terminal_key)
            case events.QuestionClosed(question_id=question_id):
                self.questions.close(question_id)
                if self.questions.panel is None:
                    self._return_from_questions()
            case events.TodosChanged(todos=todos):
                self.todos.todos = todos
            case (
                events.SubagentProgress()
                | events.NotesRecalled()
                | events.UsageUpdated()
                | events.TurnFinished()
                | events.Titled()
            ):  # they change figures of the status line, or the title
                self.show_state()
            case _:
                pass

    def turn_began(self) -> None:
        """Show that a turn runs, and close the panels that are only shown before the first turn."""
        self.show_state()
        self.resume.close()
        self.start.close()
        self.box.work_begins()
        self._drop_old_blocks()

    def turn_ended(self, outcome: events.Outcome, seconds: float) -> None:  # noqa: ARG002 (of TurnObserver)
        """Show that nothing runs any more, and ring after a long turn. If the turn ended before its
        message was shown, the message returns to the prompt.
        """
        if not self.is_attached:  # ouro is ending
            return
        self.box.work_ends()
        if self.status.message == self._terminal_hint:  # the program has ended with the turn
            self.status.end_message()
        self._return_message()
        had_question = self.questions.panel is not None
        self.questions.end_turn()
        if had_question and self.questions.panel is None:
            self.prompt.focus()  # the question that was just removed had the focus
        self.show_state()
        self.post_message(self.TurnEnded())
        if self._bell_after < seconds:
            self.ring("ouro is done")

    def _return_message(self) -> None:
        """If a turn ended before its message was shown, return it to the prompt, above the text."""
        draft = self.turns.starting
        if draft is not None:
            self.return_text(self.prompt.attachments.restore(draft))

    def return_text(self, text: str) -> None:
        """Return a text that was not used to the prompt, above the text there."""
        self.prompt.fill("\n".join(filter(None, [text, self.prompt.text])))

    def queue_changed(self) -> None:
        self._show_queue()

    def _show_queue(self) -> None:
        """Show the messages that wait, and save them with the draft."""
        waiting, steering = self.turns.waiting, self.turns.steering
        queued = waiting[len(steering) :]  # those that steer come first
        self.writer.show_queue(steering, queued, self.turns.starting)
        self.status.queued = len(queued)
        self.draft.save_soon()

    def on_resize(self) -> None:
        if self.questions.panel is not None:  # the panel's own size may not have changed
            self.questions.panel.on_resize()

    def _on_screen_suspend(self) -> None:
        """Hide the cursor of the prompt, because a sheet covers this screen."""
        self.prompt.is_covered = True
        # The sheet shows this screen behind it, and may have drawn it with the cursor already.
        self.app.screen.refresh()

    def on_screen_resume(self) -> None:
        self.prompt.is_covered = False
        self.app.clear_notifications()  # those of the sheet that was closed

    def on_mount(self) -> None:
        if self._editing == "vim":
            self.prompt.use_editing("vim")

    def _describe_wait(self) -> str:
        """What a turn waits for while the model is silent. A server on this machine reads a long
        request for minutes before it writes.
        """
        if self.session is None:
            return "waiting for the model"
        status = self.session.status()
        size = f"about {format_tokens(status.context)} tokens"
        if status.spec is not None and status.spec.on_this_machine:
            return f"the model reads {size}"
        return f"waiting for the model · {size} sent"

    def _watch_jobs_if_any(self) -> None:
        """Show the state again after JOBS_INTERVAL if a job may end before then. This is needed
        because the end of a job is no event.
        """
        if self._jobs_timer is None and self._may_have_jobs:
            self._jobs_timer = self.set_timer(JOBS_INTERVAL, self._show_jobs)

    def _show_jobs(self) -> None:
        self._jobs_timer = None
        if self._may_have_jobs:
            self.show_state()

    @property
    def _may_have_jobs(self) -> bool:
        """Whether a background job runs, or a turn, which may start one at any time."""
        status = self.status.status
        return status is not None and (bool(status.jobs) or self.turns.busy)

    async def run_command(self, text: str) -> bool:
        return await self._run_command(text)

    def _drop_old_blocks(self) -> None:
        """If there are MAX_BLOCKS, drop the blocks before the last MIN_KEPT_TURNS messages of the user,
        also from the session's memory; scrolling up reads them again.

        Drops nothing while the user reads above. Also drops nothing if screen and session differ in
        these messages, because then it is not known which blocks belong to the first of them.
        """
        blocks = self.transcript.blocks
        if self.session is None or not self.transcript.following or len(blocks) < MAX_BLOCKS:
            return
        shown_messages = [
            (index, block) for index, block in enumerate(blocks) if isinstance(block, UserMessage)
        ]
        shown_messages = shown_messages[-MIN_KEPT_TURNS:]
        loaded_messages = self.session.scrollback.last_prompts(MIN_KEPT_TURNS)
        loaded_texts = [tidy(text) for _number, text in loaded_messages]
        shown_texts = [block.text for _index, block in shown_messages]
        if not loaded_messages or loaded_texts != shown_texts:
            return
        (first_number, _), (first_index, _) = loaded_messages[0], shown_messages[0]
        if self.session.scrollback.hide_before(first_number):
            self.transcript.discard(*blocks[:first_index])

    # QuestionStack

    @on(QuestionPanel.Answered)
    def _answer(self, message: QuestionPanel.Answered) -> None:
        if self.session is not None:
            self.session.answer(message.question_id, message.answer)

    @on(QuestionPanel.KeyForPrompt)
    def _pass_to_prompt(self, message: QuestionPanel.KeyForPrompt) -> None:
        self.prompt.post_message(message.key)

    def on_plan_question_wanted(self, message: PlanQuestion.Wanted) -> None:
        """Open the sheet in which the plan is changed or commented on."""
        if self.session is not None and self.questions.panel is not None:
            self.run_worker(self._change_plan(message.act, self.session, self.questions.panel))

    async def _change_plan(self, act: PlanAct, session: Session, panel: QuestionPanel) -> None:
        """Let the user edit the plan, which is then shown, or comment on it, which is the answer."""
        from ouro.frontends.tui.screens.plan_sheets import comment_on_plan, edit_plan

        try:
            if act == "edit" and (text := await edit_plan(self.app, session.plan)):
                self.transcript.add(AnswerBlock(text))
            elif act == "comment" and (comments := await comment_on_plan(self.app, session.plan)):
                self._send_comments(comments, session, panel)
        except OSError as error:
            self.show(events.Notice(f"The plan could not be saved: {error}.", "error"))
        self._focus_again()

    def _send_comments(self, comments: str, session: Session, panel: QuestionPanel) -> None:
        """Answer the question about the plan with comments. If it was closed meanwhile, by another
        front end or with its turn, they go to the prompt.
        """
        if self.questions.panel is panel:
            session.answer(panel.question_id, events.Reply((comments,)))
            return
        self.return_text(comments)
        text = "The question about the plan is closed: the comments are in the prompt."
        self.show(events.Notice(text, "warning"))

    # The prompt

    def _focus_again(self) -> None:
        (self.questions.panel or self.prompt).focus()

    @on(PromptArea.Submitted)
    def _submit(self, message: PromptArea.Submitted) -> None:
        """Send or queue a message, and show the end of the transcript."""
        self.transcript.follow()
        self._has_sent = True
        self.start.close()
        if message.later:
            self.turns.queue(message.draft)
        else:
            self.turns.say(message.draft)

    def _find_files(self, text: str) -> list[str] | None:
        return self._files.search(text, MAX_SUGGESTIONS) if self._files else None

    @on(PromptArea.Changed)
    @on(PromptArea.SelectionChanged)
    def _suggest(self) -> None:
        """After a change of the prompt, show what completes its text and what it attaches, save it as
        the draft, and let memory prepare to recall.
        """
        if self.prompt.text and self.status.asks_to_quit:
            self.status.end_message()  # the next Ctrl+C clears the text
        if self.prompt.vim_mode in ("", "INSERT"):
            self.completion.show_suggestions(self.prompt.before_cursor)
        self.attachments.show_attachments_of(self.prompt.text)
        self.draft.save_soon()
        if self.prompt.text and self.session is not None and self.session.session_memory.recall:
            self.session.session_memory.recall.prepare()

    @on(Completion.Picked)
    def _accept(self) -> None:
        self.prompt.accept()

    def interrupt(self) -> bool:
        """Interrupt the turn, and return all queued messages to the prompt; returns False if
        nothing is running.
        """
        if not self.turns.interrupt():
            return False
        drafts: list[Draft] = []
        while (draft := self.turns.withdraw()) is not None:
            drafts.insert(0, draft)  # the newest is withdrawn first
        if drafts:
            texts = [self.prompt.attachments.restore(draft) for draft in drafts]
            if self.prompt.text:
                texts.append(self.prompt.text)
            self.prompt.fill("\n".join(texts))
        return True

    # The terminal

    def ring(self, text: str) -> None:
        """Ring the bell, and show a desktop notification where the terminal can (OSC 9).

        It does neither if the terminal reports that it has the focus, or with `tui.notify_seconds:
        0`.
        """
        user_looks_here = self.reports_focus and self.app.app_focus
        if not self._bell_after or user_looks_here:
            return
        self.app.bell()
        self._write(f"\x1b]9;{text}\x07")

    def _show_window_title(self, title: str) -> None:
        """Write the title of the window if it has changed: a mark for a turn or a question, and the
        title of the session. The progress bar of the terminal shows the same as the mark.
        """
        mark, progress = ("● ", WORKING) if self.turns.running else ("", NO_PROGRESS)
        if self.questions.panel is not None:
            mark, progress = "? ", WAITING
        if self._progress is not None:
            self._progress.show(progress)
        window_title = f"{mark}ouro"
        if title:
            window_title = f"{mark}ouro · {clean(title)}".replace("\n", " ")
        if window_title != self._window_title:
            self._window_title = window_title
            self._write(f"\x1b]2;{window_title}\x07")

    def show_window_title_again(self) -> None:
        """Write the title of the window again: another program had the terminal meanwhile."""
        if self._window_title is not None:
            self._write(f"\x1b]2;{self._window_title}\x07")
        if self._progress is not None:
            self._progress.repeat()

    def _write(self, sequence: str) -> None:
        # Written through the driver, so that no other output gets into the sequence.
        if self.app._driver is not None:
            self.app._driver.write(sequence)
