"""QuestionStack: the open questions of a session, of which the oldest is shown above the prompt."""

from __future__ import annotations

from collections.abc import Callable

from textual.containers import Vertical

from ouro.events import PLAN_QUESTION, PermissionAsked, QuestionAsked
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.widgets.question_panel import PermissionPanel, QuestionPanel


def make_panel(asked: PermissionAsked | QuestionAsked, keymap: Keymap) -> QuestionPanel:
    """The panel for a question: a permission, the plan, or any other question of the agent."""
    if isinstance(asked, PermissionAsked):
        return PermissionPanel(asked, keymap)
    # The modules of these panels are rarely needed.
    if asked.question_id.startswith(PLAN_QUESTION):
        from ouro.frontends.tui.widgets.plan_question import PlanQuestion

        return PlanQuestion(asked, keymap)
    from ouro.frontends.tui.widgets.agent_question import AgentQuestion

    return AgentQuestion(asked, keymap)


class QuestionStack(Vertical):
    """The open questions above the prompt; the oldest is shown."""

    def __init__(self, keymap: Keymap, typed_at: Callable[[], float]) -> None:
        """`typed_at` returns the time of the last key that was typed into the prompt."""
        super().__init__(id="questions")
        self._keymap = keymap
        self._typed_at = typed_at
        self._waiting: list[PermissionAsked | QuestionAsked] = []
        """The open questions, the oldest first."""
        self.panel: QuestionPanel | None = None
        """The panel of the oldest question; None without questions."""

    def ask(self, asked: PermissionAsked | QuestionAsked) -> None:
        self._waiting.append(asked)
        self._show_first()

    def close(self, question_id: str) -> None:
        self._waiting = [asked for asked in self._waiting if asked.question_id != question_id]
        self._show_first()

    def end_turn(self) -> None:
        """Remove the questions of the turn, but not those of the background."""
        self._waiting = [asked for asked in self._waiting if not asked.of_turn]
        self._show_first()

    def clear(self) -> None:
        """Remove all questions."""
        self._waiting = []
        self._show_first()

    def _show_first(self) -> None:
        """Show the panel of the oldest open question, or none. A panel that is shown already stays
        as it is.
        """
        first = self._waiting[0] if self._waiting else None
        first_id = first.question_id if first is not None else None
        if self.panel is not None and self.panel.question_id != first_id:
            self.panel.remove()
            self.panel = None
        if first is not None and self.panel is None:
            self.panel = make_panel(first, self._keymap)
            self.panel.note_typed_text(self._typed_at())
            self.mount(self.panel)
            self.panel.focus()
        if self.panel is not None:
            more = len(self._waiting) - 1
            self.panel.border_subtitle = f"{more} more after this" if more else ""
        self.display = self.panel is not None
        self.screen.set_class(self.display, "-asking")
