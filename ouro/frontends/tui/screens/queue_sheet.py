"""QueueSheet: the messages that wait; each can be edited, moved and removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from textual import events

from ouro.frontends.tui.blocks.styled_lines import crop
from ouro.frontends.tui.screens.dialogs import Keys, Sheet, make_frame, show_sheet
from ouro.frontends.tui.screens.text_edit_sheet import TextSheet
from ouro.frontends.tui.widgets.row_list import Cell, RowList
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.session import TurnQueue

REFRESH_SECONDS = 0.3
"""Seconds between two looks at the queue, which becomes shorter while the agent works."""
_MOVE_STEPS = {"shift+up": -1, "shift+down": 1, "K": -1, "J": 1}
_KEYS: Keys = (
    ("↑↓", ""),
    ("Enter", "edits"),
    ("Shift+↑↓", "moves"),
    ("Delete", "removes"),
    ("Esc", "closes"),
)


class QueueRow(NamedTuple):
    """A message that waits."""

    position: int
    """Its index in the queue."""
    text: str
    steers: bool
    """Whether it steers the running turn."""


class _QueueRows(RowList[QueueRow]):
    """The queued messages, one line each."""

    def cells(self, row: QueueRow, is_marked: bool, width: int) -> Iterable[Cell]:
        """The number of a message, an arrow if it steers the turn, and its text in one line."""
        label = f"{row.position + 1} {'→ ' if row.steers else ''}"
        yield label, "detail"
        one_line_text = clean(row.text).replace("\n", " ⏎ ")
        yield crop(one_line_text, max(1, width - len(label))), "marked" if is_marked else ""


class QueueSheet(Sheet[None]):
    """The queued messages, to edit, move and remove. Those with `→` steer the running turn; the
    others wait for later turns.

    Args:
        return_text: takes the edited text of a message that was sent meanwhile.
    """

    def __init__(self, queue: TurnQueue, return_text: Callable[[str], None]) -> None:
        self._queue = queue
        self._return_text = return_text
        self._rows = _QueueRows()
        super().__init__(make_frame("Queued messages", self._rows, keys=_KEYS, id="queue"))

    def on_mount(self) -> None:
        self.set_interval(REFRESH_SECONDS, self._fill)
        self._fill()
        self._rows.focus()

    def on_row_list_picked(self) -> None:
        self.run_worker(self._edit())

    def _fill(self) -> None:
        """Show the queue as it is now, if it has changed. The first messages steer the turn."""
        steering_count = len(self._queue.steering)
        rows = [
            QueueRow(index, text, steers=index < steering_count)
            for index, text in enumerate(self._queue.waiting)
        ]
        if rows != self._rows.rows:
            self._rows.show(rows, "No message waits.", keep_mark=False)
            self._rows.styles.height = max(1, len(rows))

    async def _take_key(self, event: events.Key) -> bool:
        """Edit, remove or move the marked message; returns False for any other key, and for an
        empty queue.
        """
        row = self._rows.marked
        if row is None:
            return False
        if event.key == "enter":
            self.run_worker(self._edit())
        elif event.key in ("delete", "backspace"):
            self._queue.remove(row.position)
            self._fill_and_mark(row.position)
        elif event.key in _MOVE_STEPS:
            new_index = self._queue.move(row.position, _MOVE_STEPS[event.key])
            self._fill_and_mark(new_index)
        else:
            return False
        return True

    async def _edit(self) -> None:
        """Edit the marked message in a sheet. An empty or unchanged text changes nothing. The edit of
        a message that was delivered meanwhile goes to the prompt.
        """
        row = self._rows.marked
        if row is None:
            return
        text = await show_sheet(self.app, TextSheet("Queued message", row.text))
        waiting = self._queue.waiting
        if not text or not text.strip() or text.strip() == row.text.strip():
            return
        if row.text not in waiting:
            self._return_text(text.strip())
            self.key_line.show_message(
                "It was sent meanwhile: the edit is in the prompt", "-failed"
            )
            return
        index = row.position
        has_same_index = waiting[index : index + 1] == (row.text,)
        if not has_same_index:  # messages before it were delivered
            index = waiting.index(row.text)
        self._queue.change(index, text.strip())
        self._fill_and_mark(index)

    def _fill_and_mark(self, index: int) -> None:
        """Show the queue again, with the mark at this index."""
        self._fill()
        self._rows.action_move(index - self._rows.marked_index)
