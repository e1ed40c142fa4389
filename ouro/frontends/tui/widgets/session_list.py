"""SessionList: ten thousand sessions as lines; only those in sight are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from rich.cells import set_cell_size
from rich.segment import Segment
from textual.strip import Strip

from ouro.frontends.session_lines import age, cost, size, title
from ouro.frontends.session_matches import Match
from ouro.frontends.tui.look import short_path
from ouro.frontends.tui.widgets.row_list import RowList, fitted
from ouro.utils.text import clean

_AGE, _PROJECT = 11, 28
_FIGURES = (("messages", 10), ("size", 9), ("cost", 9))
_TIGHT_FIGURES = (("msgs", 6), ("size", 8), ("cost", 8))
_TIGHT_FROM, _FULL_FROM, _PROJECT_FROM = 64, 76, 96
"""Widths from which the figures are shown beside the age, and with room; and the project beside the figures."""
_LEAD = 8
"""Characters that are shown before the words that were looked for."""
COPY = "(copy)"
"""The mark of a session that began as a copy."""


class SessionList(RowList[Match]):
    """The sessions that fit, one of them marked. It does not know what is done with them."""

    COMPONENT_CLASSES = {"sessions--marked", "sessions--detail", "sessions--found"}  # noqa: RUF012 (Textual's own form)

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__("sessions")
        self._now = now
        self._words: tuple[str, ...] = ()
        self._with_project = False

    def show(
        self, matches: Sequence[Match], *, words: Sequence[str] = (), with_project: bool, keep: bool = True
    ) -> None:
        """Have these lines, found by these words; with `keep` the same session stays marked where it is there still."""
        before = self.marked
        self._words, self._with_project = tuple(words), with_project
        places = (place for place, each in enumerate(matches) if before and each.info.id == before.info.id)
        self.put(matches, next(places, min(self.place, max(0, len(matches) - 1))) if keep else 0)
        after = self.marked
        if (before and before.info.id) != (after and after.info.id):
            self.post_message(self.Marked())

    def heading(self) -> str:
        """The names of the columns, as wide as they are."""
        return (
            set_cell_size("  title", self._title_width())
            + "".join(f"{name:>{width}}" for name, width in self._columns())
            + ("  project" if self._shows_project() else "")
        )

    def render_line(self, y: int) -> Strip:
        """Line `y` of what is in sight."""
        place, width = y + self.scroll_offset.y, self._width
        if not 0 <= place < len(self._rows):
            return Strip.blank(width, self.rich_style)
        segments = self._segments(self._rows[place], place == self.place)
        return Strip(segments).crop_extend(0, width, self.rich_style)

    def _segments(self, match: Match, is_marked: bool) -> list[Segment]:
        base = self.rich_style
        detail = base + self.get_component_rich_style("sessions--detail", partial=True)
        shown = base + self.get_component_rich_style("sessions--marked", partial=True) if is_marked else base
        info = match.info
        figures = (age(info.updated_at, self._now()), f"{info.messages:,}", size(info.size), cost(info.cost))
        room = max(0, self._title_width() - 2)
        name = title(info) + (f" {COPY}" if info.fork_of else "")
        segments = [
            Segment("❯ " if is_marked else "  ", shown),
            Segment(set_cell_size(fitted(name, room), room), shown),
        ]
        columns = list(zip(self._columns(), figures, strict=False))
        for (_name, width), text in columns[: 1 if match.snippet else None]:
            segments.append(Segment(f"{text:>{width}}", detail))
        if match.snippet:
            found = base + self.get_component_rich_style("sessions--found", partial=True)
            segments.append(Segment(f"  {self._said(match.snippet)}", found))
        elif self._shows_project():
            segments.append(Segment(f"  {clean(short_path(Path(info.project)))}", detail))
        return segments

    def _said(self, snippet: str) -> str:
        """What was said, from shortly before the first of the words that were looked for."""
        places = [place for word in self._words if (place := snippet.lower().find(word)) >= 0]
        start = max(0, min(places, default=0) - _LEAD)
        return ("…" if start else "") + clean(snippet[start:])

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    def _columns(self) -> list[tuple[str, int]]:
        figures = _FIGURES if self._width >= _FULL_FROM else _TIGHT_FIGURES
        return [("age", _AGE), *(figures if self._width >= _TIGHT_FROM else ())]

    def _shows_project(self) -> bool:
        return self._with_project and self._width >= _PROJECT_FROM

    def _title_width(self) -> int:
        taken = sum(width for _name, width in self._columns()) + (_PROJECT if self._shows_project() else 0)
        return max(0, self._width - taken)
