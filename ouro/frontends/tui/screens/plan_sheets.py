"""Sheets over the question about a plan: edit its text, comment on its lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from textual import events, on
from textual.app import App
from textual.widgets import Static

from ouro.frontends.tui.blocks.styled_lines import code_content
from ouro.frontends.tui.screens.comment_sheet import CommentField, CommentSheet
from ouro.frontends.tui.screens.dialogs import Keys, make_frame, show_sheet
from ouro.frontends.tui.screens.text_edit_sheet import TextSheet
from ouro.frontends.tui.widgets.row_list import Cell, RowList
from ouro.session.plan_file import join_comments
from ouro.utils.text import clean, cut

if TYPE_CHECKING:
    from ouro.session.plan_approval import PlanApproval

_COMMENT_KEYS: Keys = (
    ("↑↓ Enter", "comments"),
    ("Delete", "removes"),
    ("Ctrl+S", "sends all"),
    ("Esc", "back"),
)
_COMMENT_MARK = "  ← "


async def edit_plan(app: App[Any], plan: PlanApproval) -> str:
    """Let the user change the plan that is asked about, and save it. Returns the new text; empty if
    the plan is unchanged.
    """
    old_text = plan.text
    text = await show_sheet(app, TextSheet("The plan", old_text))
    if text is None or text.strip() == old_text.strip():
        return ""
    return plan.change(text)


async def comment_on_plan(app: App[Any], plan: PlanApproval) -> str:
    """Let the user comment on lines of the plan; returns the comments as one message, empty if
    there are none.
    """
    return await show_sheet(app, PlanComments(plan.text)) or ""


class _PlanLines(RowList[int]):
    """The lines of a plan, by their numbers, each with its comment."""

    def __init__(self, lines: list[str], comments: dict[int, str]) -> None:
        super().__init__()
        self._lines = lines
        self._comments = comments

    def cells(self, number: int, is_marked: bool, width: int) -> Iterable[Cell]:
        """The cells of a line: its number, its text, and the comment on it. The text is cut to make
        room for the comment.
        """
        text, comment = self._line_and_comment(number)
        yield f"{number:>3} ", "detail"
        yield cut(text, max(1, self._line_width(width, comment))), "marked" if is_marked else ""
        if comment:
            yield f"{_COMMENT_MARK}{comment}", "found"

    def full_text_if_cut(self) -> str:
        """The whole marked line, and below it the whole comment on it. Empty if the list shows both
        without cutting them, or if no line is marked.
        """
        if self.marked is None:
            return ""
        width = self.scrollable_content_region.width - 2  # beside the mark of the row
        text, comment = self._line_and_comment(self.marked)
        is_line_cut = len(text) > self._line_width(width, comment)
        if not comment:
            return text.strip() if is_line_cut else ""
        row = f"{self.marked:>3} {text}{_COMMENT_MARK}{comment}"
        if not is_line_cut and len(row) <= width:
            return ""
        # The commented line may be an empty one.
        return "\n".join(filter(None, [text.strip(), f"← {comment}"]))

    def _line_and_comment(self, number: int) -> tuple[str, str]:
        """The text of the line, and the comment on it, which is empty if there is none."""
        text = clean(self._lines[number - 1]).replace("\t", "  ")
        return text, self._comments.get(number, "")

    def _line_width(self, width: int, comment: str) -> int:
        """How many columns of a line are shown beside its number: with a comment about half of them."""
        return width // 2 - 6 if comment else width - 4


class PlanComments(CommentSheet[int]):
    """Comments on single lines of a plan."""

    def __init__(self, text: str) -> None:
        self._text = text
        comments: dict[int, str] = {}
        self._lines = _PlanLines(text.splitlines(), comments)
        self._whole_line = Static(markup=False, classes="sheet--whole")
        """Shows the whole marked line, if the list cuts it."""
        field = CommentField()
        frame = make_frame(
            "Comment on lines of the plan",
            self._lines,
            self._whole_line,
            field,
            keys=_COMMENT_KEYS,
            id="plan",
        )
        super().__init__(frame, self._lines, field, comments)

    def on_mount(self) -> None:
        self._lines.show(range(1, len(self._text.splitlines()) + 1))
        self._lines.focus()

    def on_row_list_picked(self) -> None:
        self._begin_comment()

    @on(RowList.Marked)
    def _show_whole(self) -> None:
        """Show the whole marked line below the list if it is cut."""
        text = self._lines.full_text_if_cut()
        self._whole_line.display = bool(text)
        self._whole_line.update(code_content(text))

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_whole)

    def _end_comment(self) -> None:
        super()._end_comment()
        self._show_whole()

    async def _take_key(self, event: events.Key) -> bool:
        return self._take_comment_key(event.key)

    @property
    def _marked_key(self) -> int | None:
        return self._lines.marked

    def _message(self) -> str:
        return join_comments(self._text, list(self._comments.items()))
