"""Questions: the questions that wait, one shown at a time."""

from __future__ import annotations

from textual.containers import Vertical

from ouro.events import PermissionAsked, QuestionAsked
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.widgets.permission import PermissionPanel
from ouro.frontends.tui.widgets.question import AskPanel
from ouro.frontends.tui.widgets.question_panel import QuestionPanel


class Questions(Vertical):
    """The place above the prompt where questions appear, in the order they were asked."""

    def __init__(self, keymap: Keymap) -> None:
        super().__init__(id="questions")
        self._keymap = keymap
        self._waiting: list[PermissionAsked | QuestionAsked] = []
        self._panel: QuestionPanel | None = None

    @property
    def panel(self) -> QuestionPanel | None:
        """The question on the screen."""
        return self._panel

    def ask(self, asked: PermissionAsked | QuestionAsked) -> None:
        """Show a question, after those before it."""
        self._waiting.append(asked)
        self._show_first()

    def close(self, question_id: str) -> None:
        """A question does not wait any more."""
        self._waiting = [asked for asked in self._waiting if asked.question_id != question_id]
        self._show_first()

    def end_turn(self) -> None:
        """No question of a turn waits any more."""
        self._waiting = [asked for asked in self._waiting if isinstance(asked, QuestionAsked) and not asked.of_turn]
        self._show_first()

    def _show_first(self) -> None:
        first = self._waiting[0] if self._waiting else None
        if self._panel is not None and (first is None or self._panel.question_id != first.question_id):
            self._panel.remove()
            self._panel = None
        if first is not None and self._panel is None:
            kind = PermissionPanel if isinstance(first, PermissionAsked) else AskPanel
            self._panel = kind(first, self._keymap)  # type: ignore[arg-type]
            self.mount(self._panel)
            self._panel.focus()
        if self._panel is not None:
            more = len(self._waiting) - 1
            self._panel.border_subtitle = f"{more} more after this" if more else ""
        self.display = self._panel is not None
        self.screen.set_class(self.display, "-asking")
