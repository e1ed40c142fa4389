"""AgentsApp: the list of background sessions, which is kept up to date, with their questions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import chain

from textual import events, on
from textual.app import App, ComposeResult
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from ouro.errors import OuroError
from ouro.frontends.background.background_sessions import (
    AgentRow,
    AgentWatch,
    send_answer,
    stop_agent,
)
from ouro.frontends.background.session_rows import MARKS, folder_name
from ouro.frontends.session_format import format_age
from ouro.frontends.tui.blocks.styled_lines import join_fitting
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screen_settings import ScreenSettings
from ouro.frontends.tui.screens.conversation import ConversationScreen
from ouro.frontends.tui.themes import ANSI, THEMES, make_theme
from ouro.frontends.tui.widgets.question_panel import PermissionPanel, QuestionPanel
from ouro.frontends.tui.widgets.question_stack import make_panel
from ouro.utils.text import clean, dollars, one_line, plural, without_marks

POLL_SECONDS = 1.0
LINES_PER_ROW = 2
"""A session has two lines: what it is, and what it wrote last."""
KEYS = "↑↓ · Enter attach · x end · q leave"
PERMIT_KEYS = "y s a n d answer · Tab comment"
REPLY_KEYS = "a digit answers · Tab another answer"
MORE_KEYS = "Enter attach · x end · q leave"
FIELD_KEYS = "Enter sends · Esc back"
NO_SESSIONS = 'No session runs in the background.\n\nStart one: ouro --bg "fix the failing test"'
MIN_WIDTH_FOR_ID = 60
"""The minimum columns of a list with the ids of sessions: a narrower one has the room for titles."""
_STATE_STYLES = {
    "waiting": "$warning bold",
    "working": "$success",
    "idle": "$muted",
    "silent": "$error",
    "refused": "$error",
    "ended": "$faint",
}


class AgentTable(Widget, can_focus=True):
    """The sessions, two lines each; the marked one is always visible."""

    class Marked(Message):
        """Another session is marked."""

    def __init__(self) -> None:
        super().__init__(id="agents")
        self.rows: list[AgentRow] = []
        self.has_asked = False
        """Whether the list was read at least once: until then it does not say that there are none."""
        self._marked = ""
        """The id of the marked session; empty if none was marked yet."""
        self._first = 0
        """The index of the first session that is visible."""

    @property
    def marked_row(self) -> AgentRow | None:
        """The marked session; None if there is none."""
        return next((row for row in self.rows if row.id == self._marked), None)

    def mark(self, session_id: str) -> None:
        self._marked = session_id

    def show(self, rows: list[AgentRow]) -> None:
        """Show these sessions. The marked session stays marked at its new index. If it is gone, the
        session that is now at its index is marked.
        """
        old_index = self._marked_index
        self.rows, self.has_asked = rows, True
        if self.marked_row is None and rows:
            self._marked = rows[min(old_index, len(rows) - 1)].id
        self.refresh(layout=True)

    def move(self, by: int) -> None:
        """Mark the session that is `by` rows below the marked one, or above it if `by` is negative. If
        there are fewer rows, mark the last or the first one.
        """
        if self.rows:
            index = max(0, min(len(self.rows) - 1, self._marked_index + by))
            self._marked = self.rows[index].id
            self.refresh()
            self.post_message(self.Marked())

    @property
    def _marked_index(self) -> int:
        """The index of the marked session; 0 if there is none."""
        return next((index for index, row in enumerate(self.rows) if row.id == self._marked), 0)

    def get_content_height(self, _container: Size, _viewport: Size, _width: int) -> int:
        return max(LINES_PER_ROW, LINES_PER_ROW * len(self.rows))

    def render(self) -> Content:
        """The visible rows, scrolled so that the marked session is among them."""
        if not self.rows:
            return Content(NO_SESSIONS if self.has_asked else "…")
        row_count = max(1, self.size.height // LINES_PER_ROW)
        index = self._marked_index
        # As little scrolling as needed.
        self._first = max(index - row_count + 1, min(self._first, index))
        visible_rows = self.rows[self._first : self._first + row_count]
        return Content("\n").join(chain.from_iterable(map(self._lines, visible_rows)))

    def on_click(self, event: events.Click) -> None:
        """Mark the session that was clicked."""
        index = self._first + event.y // LINES_PER_ROW
        if 0 <= index < len(self.rows):
            self.move(index - self._marked_index)

    def _lines(self, row: AgentRow) -> tuple[Content, Content]:
        """A session in two lines. The first has its state, id, folder and title, and at the right
        its cost and age. The second has the open question, or the last line that the session wrote.
        """
        width = max(20, self.size.width)
        is_marked = row.id == self._marked
        age = format_age(row.record.started_at, datetime.now(UTC))
        figures = " · ".join(filter(None, (dollars(row.cost), age)))
        room = width - len(figures) - 2  # two blanks before the figures
        head = Content.assemble(
            ("❯ " if is_marked else "  ", "$mark bold"),
            (f"{MARKS[row.state]} {row.state:<8}", _STATE_STYLES[row.state]),
            (f"{row.record.short_id}  " if width >= MIN_WIDTH_FOR_ID else "", "$muted"),
            (f"{one_line(folder_name(row), 16)}  ", "$secondary"),
            (one_line(clean(row.title), 120), "bold" if is_marked else ""),
        ).truncate(max(1, room), ellipsis=True)
        gap = " " * max(1, width - head.cell_length - len(figures))
        style = "$warning" if row.question is not None else "$muted"
        last_line = Content.styled(f"    {one_line(without_marks(row.line), 300)}", style)
        return (
            Content.assemble(head, gap, (figures, "$muted")),
            last_line.truncate(width, ellipsis=True),
        )


class AgentsApp(App[AgentRow], inherit_bindings=False):
    """The screen of `ouro agents`. Its result is the session to open; None if the user leaves."""

    VERTICAL_BREAKPOINTS = ConversationScreen.VERTICAL_BREAKPOINTS
    CSS_PATH = "ouro.tcss"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, settings: ScreenSettings, marked_id: str = "") -> None:
        """`marked_id` is the session that is marked at first; empty: the first one."""
        # None: Textual decides by its own settings.
        super().__init__(ansi_color=True if settings.theme == ANSI else None)
        self._answer_keys = Keymap(settings.keys)
        self._rings = settings.bell_after > 0
        self._watch = AgentWatch()
        self._known_questions: set[str] | None = None
        """The questions of the last reading, as the ids of session and question; None before it."""
        self._session_to_end = ""
        """The id of the session that ends if the user confirms it; empty without a question."""
        self._reports_focus = False
        """Whether the terminal reports if it has the focus."""
        self._is_reading = False
        self.table = AgentTable()
        self.table.mark(marked_id)
        self.panel: QuestionPanel | None = None
        """The panel with the question of the marked session; None without one."""
        self._shown_question: tuple[str, str] | None = None
        """The session and the id of the question in the panel."""
        self._head = Static(id="agents-head", markup=False)
        self._foot = Static(id="agents-foot", markup=False)
        self._marks_next_question = False
        """Whether a question was answered here, so that the next one is to be marked."""
        self._key_actions: dict[str, Callable[[], None]] = {
            "up": partial(self.table.move, -1),
            "down": partial(self.table.move, 1),
            "enter": self._open,
            "x": self._ask_end,
            "escape": self._leave_or_hint,
            **dict.fromkeys(("q", "ctrl+c", "ctrl+d"), partial(self.exit, None)),
        }
        for name, colors in THEMES.items():
            self.register_theme(make_theme(name, colors))
        # The background of the terminal is not known here: `auto` uses its own colours.
        self.theme = settings.theme if settings.theme in THEMES else ANSI

    def on_load(self) -> None:
        """Let tasks start in the next step of the event loop, as they do with Python 3.11. With newer
        versions Textual lets them start within `create_task`, before its caller has kept the task.
        """
        asyncio.get_running_loop().set_task_factory(None)

    def compose(self) -> ComposeResult:
        yield from (self._head, self.table, self._foot)

    def on_mount(self) -> None:
        self.screen.add_class("-agents")
        self.table.focus()
        self._show_foot()
        self.set_interval(POLL_SECONDS, self._poll)
        self._poll()

    def on_resize(self) -> None:
        """Show the keys that fit now. Textual gives the app its new size only after this."""
        if not self._session_to_end:
            self.call_later(self._show_foot)

    async def on_unmount(self) -> None:
        await self._watch.close()

    def on_app_focus(self) -> None:
        self._reports_focus = True

    on_app_blur = on_app_focus

    # Keys

    async def on_key(self, event: events.Key) -> None:
        """Handle a key while the list has the focus. It answers the question whether a session is
        to end, or is an action of the list, or goes to the shown question. Keys in the text field
        of the question are not for the list.
        """
        if self.panel is not None and self.panel.has_focus_within:
            return
        event.stop()
        if self._session_to_end:
            self._answer_end(event.key)
        elif (key_action := self._key_actions.get(event.key)) is not None:
            key_action()
        elif self.panel is not None:
            self._pass_to_panel(self.panel, event)

    def _pass_to_panel(self, panel: QuestionPanel, event: events.Key) -> None:
        """Let a key of the list scroll the question, or answer it."""
        if event.key in ("pageup", "pagedown"):
            panel.scroll_body(1 if event.key == "pagedown" else -1)
        else:
            panel.take_key(event)

    def _leave_or_hint(self) -> None:
        """Leave the list on Esc. At a question Esc may be meant as an answer, so the list stays."""
        if self.panel is None:
            self.exit(None)
        else:
            self._say("The question stays open. q leaves the list.")

    def on_descendant_focus(self) -> None:
        """Show the keys for what has the focus now. If the panel of the question itself has got the
        focus, the list gets it back, because its keys answer the question, too.
        """
        if self.panel is not None and self.focused is self.panel:
            self.table.focus()  # Esc in the field gives the panel the focus
        elif not self._session_to_end:
            self._show_foot()

    def _open(self) -> None:
        """End the app with the marked session as its result, or say why it cannot be attached to."""
        row = self.table.marked_row
        if row is None:
            return
        if row.state in ("silent", "refused"):
            self._say(row.line)
        else:
            self.exit(row)

    def _ask_end(self) -> None:
        """Ask whether the marked session is to end. If it has ended already, remove it from the
        list without asking.
        """
        row = self.table.marked_row
        if row is None:
            return
        if row.state == "ended":
            self.run_worker(self._end(row.id))
            return
        self._session_to_end = row.id
        self._say(f"End {row.record.short_id}? It can be resumed. y: end it · any other key: no")

    def _answer_end(self, key: str) -> None:
        """Take a key as the answer to whether a session ends."""
        session_id, self._session_to_end = self._session_to_end, ""
        self._show_foot()
        if key == "y":
            self._say(f"{session_id[:8]} ends …")
            self.run_worker(self._end(session_id))

    async def _end(self, session_id: str) -> None:
        """End a session, or remove it from the list, and say what failed."""
        try:
            await stop_agent(session_id)
        except (OuroError, OSError) as error:
            self._say(str(error))
        else:
            self._show_foot()
        self._poll()

    # Questions

    @on(QuestionPanel.Answered)
    def _take_answer(self, message: QuestionPanel.Answered) -> None:
        row = self.table.marked_row
        if row is not None and self._shown_question == (row.id, message.question_id):
            self.run_worker(self._send_answer(row, message))

    async def _send_answer(self, row: AgentRow, message: QuestionPanel.Answered) -> None:
        """Send an answer to the session, and read the list again."""
        try:
            connection = await self._watch.connection(row.record)
            await send_answer(connection, message.question_id, message.answer)
        except (OuroError, OSError) as error:
            self._say(str(error))
        # Also after an error: mostly another viewer was faster, and the question is closed.
        self._marks_next_question = True
        self.table.focus()
        self._poll()

    @on(AgentTable.Marked)
    async def _show_question(self) -> None:
        """Show the question of the marked session, or none if it has none. A question that is shown
        already stays as it is.
        """
        row = self.table.marked_row
        question = row.question if row is not None else None
        question_key = None
        if row is not None and question is not None:
            question_key = (row.id, question.question_id)
        if question_key == self._shown_question:
            return
        self._shown_question = question_key
        await self._close_panel()
        if self._shown_question != question_key:
            return  # another session was marked meanwhile: its question is shown
        if question is not None:
            self.panel = make_panel(question, self._answer_keys)
            await self.mount(self.panel, before=self._foot)
        if not self._session_to_end:
            self._show_foot()

    async def _close_panel(self) -> None:
        """Remove the shown question. If it had the focus, the list gets it."""
        if self.panel is None:
            return
        panel, self.panel = self.panel, None
        had_focus = panel.has_focus_within
        await panel.remove()
        if had_focus:
            self.table.focus()

    # The list

    def _poll(self) -> None:
        """Read the list, unless it is being read."""
        if not self._is_reading:
            self._is_reading = True
            self.run_worker(self._read_once())

    async def _read_once(self) -> None:
        """Read and show the list once. From then on `_poll` may start the next reading."""
        try:
            await self._read()
        finally:
            self._is_reading = False

    async def _read(self) -> None:
        """Read the list and show it, with the question of the marked session."""
        try:
            rows = await self._watch.rows()
        except (OuroError, OSError) as error:
            self._say(str(error))
            return
        self.table.show(rows)
        self._mark_next_question()
        self._show_head(rows)
        self._ring_for(rows)
        await self._show_question()

    def _mark_next_question(self) -> None:
        """If a question was answered here, mark the first session that has a question. If the
        marked session has another question, it stays marked, and this is tried again after the next
        reading.
        """
        row = self.table.marked_row
        marked_has_question = row is not None and row.question is not None
        if not self._marks_next_question or marked_has_question:
            return
        rows_with_question = [row for row in self.table.rows if row.question is not None]
        if rows_with_question:
            self.table.mark(rows_with_question[0].id)
        self._marks_next_question = False

    def _ring_for(self, rows: list[AgentRow]) -> None:
        """Ring the bell for a new question, unless the user looks at this terminal."""
        questions = {
            f"{row.id} {row.question.question_id}" for row in rows if row.question is not None
        }
        is_first_reading = self._known_questions is None  # then no question is new
        new_questions = questions - (self._known_questions or set())
        self._known_questions = questions
        if is_first_reading or not new_questions or not self._rings:
            return
        user_looks_here = self._reports_focus and self.app_focus
        if not user_looks_here:
            self.bell()

    def _show_head(self, rows: list[AgentRow]) -> None:
        """Show how many sessions there are, and how many are in each state."""
        counts = Counter(row.state for row in rows)
        state_texts = [f"{counts[state]} {state}" for state in MARKS if state in counts]
        title = f"ouro · {plural(len(rows), 'background session')}"
        self._head.update(" · ".join([title, *state_texts]))

    def _show_foot(self) -> None:
        """Show the keys of the list or of the shown question, as many as fit into the width."""
        keys = KEYS
        if self.panel is not None and self.panel.has_focus_within:
            keys = FIELD_KEYS
        elif self.panel is not None:
            answers = PERMIT_KEYS if isinstance(self.panel, PermissionPanel) else REPLY_KEYS
            keys = f"{answers} · {MORE_KEYS}"
        margins = 2
        self._say(join_fitting(keys.split(" · "), self.size.width - margins, 1))

    def _say(self, text: str) -> None:
        self._foot.update(one_line(clean(text), 300))
