"""Sheets over the question about a plan: edit its text, comment on its lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import App

from ouro.frontends.tui.screens.comment_sheet import CommentField, CommentSheet
from ouro.frontends.tui.screens.dialogs import Keys, make_frame, show_sheet
from ouro.frontends.tui.screens.text_sheet import TextSheet
from ouro.frontends.tui.widgets.row_list import Cell, RowList
from ouro.session.plan_file import join_comments
from ouro.utils.text import clean, cut

if TYPE_CHECKING:
    from ouro.session.plan_approval import PlanApproval

_COMMENT_KEYS: Keys = (
    ("↑↓", ""),
    ("Enter", "comments"),
    ("Delete", "removes"),
    ("Ctrl+S", "sends all"),
    ("Esc", "back"),
)


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


class PlanComments(CommentSheet[int]):
    """Comments on single lines of a plan."""

    def __init__(self, text: str) -> None:
        self._text = text
        comments: dict[int, str] = {}
        self._lines = _PlanLines(text.splitlines(), comments)
        field = CommentField()
        frame = make_frame(
            "Comment on lines of the plan", self._lines, field, keys=_COMMENT_KEYS, id="plan"
        )
        super().__init__(frame, self._lines, field, comments)

    def on_mount(self) -> None:
        self._lines.show(range(1, len(self._text.splitlines()) + 1))
        self._lines.focus()

    def on_row_list_picked(self) -> None:
        self._begin_comment()

    async def _take_key(self, event: events.Key) -> bool:
        return self._take_comment_key(event.key)

    @property
    def _marked_key(self) -> int | None:
        return self._lines.marked

    def _message(self) -> str:
        return join_comments(self._text, list(self._comments.items()))
