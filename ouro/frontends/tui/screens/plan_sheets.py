"""Sheets over the question about a plan: edit its text, comment on its lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import App
from textual.binding import Binding
from textual.widgets import Input

from ouro.frontends.tui.screens.sheet import Sheet, make_frame, show_sheet
from ouro.frontends.tui.screens.text_sheet import TextSheet
from ouro.frontends.tui.widgets.row_list import Cell, RowList
from ouro.session.plan_file import join_comments
from ouro.utils.text import clean, cut

if TYPE_CHECKING:
    from ouro.session.plan_approval import PlanApproval


async def edit_plan(app: App[Any], plan: PlanApproval) -> str:
    """Let the user change the plan that is asked about; returns the new text, empty: unchanged."""
    before = plan.text
    text = await show_sheet(app, TextSheet("The plan", before))
    if text is None or text.strip() == before.strip():
        return ""
    return plan.change(text)


async def comment_on_plan(app: App[Any], plan: PlanApproval) -> str:
    """The user's comments on lines of the plan as one message; empty if there are none."""
    return await show_sheet(app, PlanComments(plan.text)) or ""


class _PlanLines(RowList[int]):
    """The lines of a plan, by their numbers, each with its comment."""

    def __init__(self, lines: list[str], comments: dict[int, str]) -> None:
        super().__init__()
        self._lines = lines
        self._comments = comments

    def cells(self, number: int, is_marked: bool, width: int) -> Iterable[Cell]:
        text = cut(clean(self._lines[number - 1]).replace("\t", "  "), max(1, width - 4))
        yield f"{number:>3} ", "detail"
        comment = self._comments.get(number, "")
        if not comment:
            yield text, "marked" if is_marked else ""
            return
        yield cut(text, max(1, width // 2 - 6)), "marked" if is_marked else ""
        yield f"  ← {comment}", "found"


class PlanComments(Sheet[str | None]):
    """Comments on single lines: Enter writes one, Ctrl+S sends all."""

    BINDINGS = [Binding("ctrl+s", "send", show=False, priority=True)]  # noqa: RUF012 (as above)

    def __init__(self, text: str) -> None:
        self._text = text
        self._comments: dict[int, str] = {}
        self._lines = _PlanLines(text.splitlines(), self._comments)
        self._field = Input(
            placeholder="comment on this line",
            select_on_focus=False,
            compact=True,
            id="picker-search",
        )
        self._field.display = False
        keys = "↑↓ Enter comments · Delete removes · Ctrl+S sends all · Esc back"
        frame = make_frame(
            "Comment on lines of the plan", self._lines, self._field, keys=keys, id="plan"
        )
        super().__init__(frame)

    def on_mount(self) -> None:
        self._lines.show(range(1, len(self._text.splitlines()) + 1))
        self._lines.focus()

    def action_send(self) -> None:
        if self._field.display:
            self._keep_comment()
        message = join_comments(self._text, list(self._comments.items()))
        self.dismiss(message or None)

    def action_close(self) -> None:
        if self._field.display:
            self._end_comment()
        else:
            self.dismiss(None)

    def on_input_submitted(self) -> None:
        self._keep_comment()

    def on_row_list_picked(self) -> None:
        self._begin_comment()

    async def _take_key(self, event: events.Key) -> bool:
        if self._field.display or self._lines.marked is None:
            return False
        if event.key == "enter":
            self._begin_comment()
        elif event.key in ("delete", "backspace"):
            self._comments.pop(self._lines.marked, None)
            self._lines.refresh()
        else:
            return False
        return True

    def _begin_comment(self) -> None:
        self._field.value = self._comments.get(self._lines.marked or 0, "")
        self._field.display = True
        self._field.focus()
        self._field.cursor_position = len(self._field.value)

    def _keep_comment(self) -> None:
        number, written = self._lines.marked, self._field.value.strip()
        if number is not None and written:
            self._comments[number] = written
        elif number is not None:
            self._comments.pop(number, None)
        self._end_comment()

    def _end_comment(self) -> None:
        self._field.display = False
        self._lines.focus()
        self._lines.refresh()
