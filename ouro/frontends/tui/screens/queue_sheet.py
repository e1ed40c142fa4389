"""QueueSheet: the messages that wait; each can be edited, moved and removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from textual import events

from ouro.frontends.tui.blocks.lines import crop
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
QueueRow = tuple[int, str, bool]
"""The place of a message in the queue, its text, and whether it steers the running turn."""


class _QueueRows(RowList[QueueRow]):
    """The queued messages, one line each."""

    def cells(self, row: QueueRow, is_marked: bool, width: int) -> Iterable[Cell]:
        """The number of a message, an arrow if it steers the turn, and its text in one line."""
        place, text, steers = row
        label = f"{place + 1} {'→ ' if steers else ''}"
        yield label, "detail"
        one_line_text = clean(text).replace("\n", " ⏎ ")
        yield crop(one_line_text, max(1, width - len(label))), "marked" if is_marked else ""


class QueueSheet(Sheet[None]):
    """The queued messages, to edit, move and remove. Those with `→` steer the running turn; the
    others wait for later turns.
    """

    def __init__(self, queue: TurnQueue) -> None:
        self._queue = queue
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
            (place, text, place < steering_count) for place, text in enumerate(self._queue.waiting)
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
        place, _text, _ = row
        if event.key == "enter":
            self.run_worker(self._edit())
        elif event.key in ("delete", "backspace"):
            self._queue.remove(place)
            self._show_place(place)
        elif event.key in _MOVE_STEPS:
            self._show_place(self._queue.move(place, _MOVE_STEPS[event.key]))
        else:
            return False
        return True

    async def _edit(self) -> None:
        """Edit the marked message in a sheet. An empty text changes nothing, and neither does an edit
        of a message that was delivered meanwhile.
        """
        row = self._rows.marked
        if row is None:
            return
        place, old_text, _ = row
        text = await show_sheet(self.app, TextSheet("Queued message", old_text))
        waiting = self._queue.waiting
        if not text or not text.strip() or old_text not in waiting:
            return
        has_same_place = waiting[place : place + 1] == (old_text,)
        if not has_same_place:  # messages before it were delivered
            place = waiting.index(old_text)
        self._queue.change(place, text.strip())
        self._show_place(place)

    def _show_place(self, place: int) -> None:
        """Show the queue again, with the mark at this place."""
        self._fill()
        self._rows.action_move(place - self._rows.marked_index)
