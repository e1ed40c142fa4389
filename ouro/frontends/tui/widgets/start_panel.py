"""StartPanel: a panel above the prompt before the first message: facts, last sessions, and a tip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.style import Style
from textual.widget import Widget

from ouro.frontends.session_format import format_age, now, session_title
from ouro.frontends.tui.widgets.transcript import TranscriptView
from ouro.utils.ouro_paths import tilde
from ouro.utils.text import clean, join_names, one_line, plural

if TYPE_CHECKING:
    from ouro.session import AgentMemory, Session, SessionInfo

MAX_SESSIONS = 3
"""Sessions that are listed."""
MIN_HEIGHT = 16
"""Lines of a terminal in which there is room for it."""
TIPS = (
    "@ attaches a file: @api.py, @api.py:10-40, @src/",
    "! runs a shell line; !! does not show it to the agent",
    "Esc Esc goes back to an earlier message; /undo restores the files",
    "Shift+Tab changes how much ouro asks",
    "Ctrl+R searches what you have typed before",
    "/remember TEXT keeps a fact beyond this session",
    "A message sent while ouro works steers it; Alt+Enter is a new line",
    "/diff shows what changed, /context what is sent to the model",
    "/resume lists the sessions, and searches in what was said",
)
_NAME_WIDTH = 9
_AGE_WIDTH = 11


class StartPanel(Widget):
    """Folder, model, memory, the last sessions here, and a tip; it closes with the first message.

    Next to a welcome or notices it has fewer rows, so that their first lines stay on the screen.
    The prompt keeps the focus. On empty input Down or Tab marks a session, Enter resumes it.
    """

    @dataclass
    class Chosen(Message):
        session_id: str

    def __init__(self, import_key: str = "") -> None:
        """`import_key` is the key that imports the memory of other agents, if it is offered."""
        super().__init__(id="start")
        self.clock = now
        self._import_key = import_key
        self._offer: AgentMemory | None = None
        """The memory of other agents that can be imported; None if there is none."""
        self._facts: Sequence[tuple[str, str]] = ()
        """Pairs of a name and a text."""
        self._sessions: Sequence[SessionInfo] = ()
        self._tip = ""
        self._marked_index = -1
        """The index of the marked session; -1: none."""

    @property
    def is_open(self) -> bool:
        return bool(self._facts)

    @property
    def is_marked(self) -> bool:
        return self.is_open and self._marked_index >= 0 and self._lists_sessions

    def show(self, session: Session, sessions: Sequence[SessionInfo]) -> None:
        """Show the facts of a new session, a tip, and the last sessions of this folder, at most
        MAX_SESSIONS. `sessions` are all sessions, the last used first. Sessions without messages
        and those of scripts are left out.
        """
        self._facts = session_facts(session)
        is_here = session.session_catalog.is_here
        listed = [info for info in sessions if info.is_listed and is_here(info.project)]
        others = [info for info in listed if info.messages and info.id != session.id]
        self._sessions = others[:MAX_SESSIONS]
        self._tip = TIPS[sum(session.id.encode()) % len(TIPS)]  # another one for each session
        self._marked_index = -1
        self.display = True
        self.refresh(layout=True)

    def update(self, session: Session) -> None:
        """Show the facts again, because a command may have changed the model, the mode or memory. Does
        nothing while the panel is closed.
        """
        if not self.is_open:
            return
        facts = session_facts(session)
        if facts != self._facts:
            self._facts = facts
            self.refresh(layout=True)

    def offer(self, agent_memory: AgentMemory) -> None:
        """Offer an import. The offer stays until it is taken, even if the panel is closed."""
        self._offer = agent_memory
        self.refresh(layout=True)

    def take_offer(self) -> AgentMemory | None:
        """Remove the offer and return it; None if there is none."""
        offer, self._offer = self._offer, None
        self.refresh(layout=True)
        return offer

    @property
    def has_room(self) -> bool:
        return self.app.size.height >= MIN_HEIGHT

    def close(self) -> None:
        self._facts, self._marked_index = (), -1
        self.display = False

    def move(self, by: int) -> bool:
        """Mark the next session (`by` is 1) or the previous one (-1). Before the first session, no
        session is marked. Returns False if the panel cannot use the key: it is closed, it lists no
        sessions, or `by` is -1 and none is marked.
        """
        has_none_above = by < 0 and self._marked_index < 0
        if not self.is_open or not self._lists_sessions or has_none_above:
            return False
        self._marked_index = min(self._marked_index + by, len(self._sessions) - 1)
        self.refresh()
        return True

    def mark_next(self) -> None:
        """Mark the next session; after the last one the first."""
        if self._marked_index == len(self._sessions) - 1:
            self._marked_index = -1
        self.move(1)

    def unmark(self) -> None:
        self._marked_index = -1
        self.refresh()

    def choose_marked(self) -> None:
        if self.is_marked:
            self._choose(self._marked_index)

    def on_click(self, event: events.Click) -> None:
        """Choose the session that was clicked: its text has its index as `meta`."""
        index = event.style.meta.get("index")
        if index is not None:
            self._choose(index)

    def _choose(self, index: int) -> None:
        self.post_message(self.Chosen(self._sessions[index].id))

    def render(self) -> Content:
        return Content("\n").join(self._rows(self.size.width))

    def get_content_height(self, _container: Size, _viewport: Size, width: int) -> int:
        return len(self._rows(width))

    def _rows(self, width: int) -> list[Content]:
        """The facts, what can be imported, the last sessions and the tip, cut to this width. The
        list of sessions is left out if it does not fit as a whole, and the tip if no row is free.
        Empty if the panel is closed, or the terminal too low for the facts.
        """
        if not self.is_open or not self.has_room:
            return []
        rows = self._fact_rows()
        if self._lists_sessions:
            rows += self._session_rows()
        free_rows = self._free_rows()
        if len(rows) < free_rows:
            rows.append(_fact_row("tip", self._tip))
        shown_rows = rows if len(rows) <= free_rows else []
        return [row.truncate(max(1, width), ellipsis=True) for row in shown_rows]

    @property
    def _lists_sessions(self) -> bool:
        """Whether there are sessions, and room for them below the facts."""
        rows = len(self._fact_rows()) + len(self._session_rows())
        return bool(self._sessions) and rows <= self._free_rows()

    def _free_rows(self) -> int:
        """The rows between the last line of the transcript and the prompt."""
        transcript = self.screen.query_one(TranscriptView)
        others = [widget for widget in self.siblings if widget.display and widget != transcript]
        rows_of_others = sum(widget.outer_size.height for widget in others)
        margins = self.styles.margin.height
        used_rows = rows_of_others + margins + transcript.virtual_size.height
        return self.screen.size.height - used_rows

    def on_resize(self) -> None:
        """Fit the rows again: they were chosen before the transcript had its new width."""
        self.call_after_refresh(self.refresh, layout=True)

    def _fact_rows(self) -> list[Content]:
        facts = list(self._facts)
        if self._offer is not None:
            facts.append(("import", _offer_text(self._offer, self._import_key)))
        return [_fact_row(name, text) for name, text in facts]

    def _session_rows(self) -> list[Content]:
        """The rows of the last sessions, after one with the keys."""
        keys = "↓ marks one · Enter resumes it"
        head = Content.assemble(("sessions ", "$muted"), (keys, "$faint"))
        return [head, *(self._session_row(index) for index in range(len(self._sessions)))]

    def _session_row(self, index: int) -> Content:
        """The row of the session at this index of the list: its age and title, with a sign if it is
        marked.
        """
        info = self._sessions[index]
        title = session_title(info)
        age = f"{format_age(info.updated_at, self.clock()):<{_AGE_WIDTH}}"
        if index == self._marked_index:
            row = Content.assemble("❯ ", age, title).stylize("$mark bold")
        else:
            row = Content.assemble("  ", (age, "$muted"), title)
        return row.stylize(Style.from_meta({"index": index}))


def _fact_row(name: str, text: str) -> Content:
    return Content.assemble((f"{name:<{_NAME_WIDTH}}", "$muted"), text)


def session_facts(session: Session) -> list[tuple[str, str]]:
    """The facts about a session before its first message, as pairs of a name and a text."""
    status = session.status()
    folder = tilde(session.cwd)
    return [
        ("folder", " · ".join(filter(None, [clean(folder), one_line(status.branch, 40)]))),
        ("model", f"{clean(status.model)} · {status.mode}"),
        ("memory", _memory_text(session)),
    ]


def _offer_text(offer: AgentMemory, key: str) -> str:
    """What can be imported, and with which key."""
    agents = join_names(offer.agents)
    return (
        f"{key} reads {plural(offer.entries, 'entry', 'entries')} of {agents}, once and with undo"
    )


def _memory_text(session: Session) -> str:
    """How many lines of long-term memory are in each request, and how many changes wait for approval."""
    if session.session_memory.manager is None:
        return "off for this session"
    receipt = session.session_memory.receipt()
    loaded_lines = [line for line in receipt.lines if line.state == "loaded"]
    in_use = "nothing remembered yet"
    if loaded_lines:
        in_use = f"{plural(len(loaded_lines), 'line')} in each request"
    waiting = f"{len(receipt.waiting)} waiting for approval" if receipt.waiting else ""
    return " · ".join(filter(None, [in_use, waiting, "/memory shows it"]))
