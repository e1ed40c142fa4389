"""GuardedPicker: a list in which an Enter that was typed too early does not count."""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding

from ouro.display import Choice
from ouro.frontends.tui.screens.picker import Picker
from ouro.frontends.tui.widgets.question_panel import QuestionPanel


class GuardedPicker(Picker):
    """A short list. Enter counts only after a moment, because it may have been typed before the
    question appeared.
    """

    BINDINGS = [Binding("ctrl+c", "interrupt", show=False, priority=True)]  # noqa: RUF012 (Textual's own form)

    def __init__(self, title: str, choices: Sequence[Choice], esc: str, ctrl_c: str | None) -> None:
        """`esc` is the label of the Esc key, and `ctrl_c` the result of Ctrl+C."""
        super().__init__(title, choices, grace=QuestionPanel.GRACE)
        self._ctrl_c = ctrl_c
        *keys, _closes = self.key_line.keys
        self.key_line.keys = [*keys, ("Esc", esc)]

    def action_interrupt(self) -> None:
        self.dismiss(self._ctrl_c)
