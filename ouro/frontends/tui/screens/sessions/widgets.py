"""SessionList: ten thousand sessions as lines; only those in sight are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.strip import Strip
from textual.timer import Timer
from textual.widgets import Static

from ouro.errors import OuroError
from ouro.frontends.session_lines import age, cost, preview_lines, size, title
from ouro.frontends.session_matches import SessionMatch
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.look import short_path
from ouro.frontends.tui.widgets.row_list import RowList, fitted
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.session import SessionCatalog, SessionExcerpt, SessionInfo

_AGE, _PROJECT = 11, 28
_FIGURES = (("messages", 10), ("size", 9), ("cost", 9))
_TIGHT_FIGURES = (("msgs", 6), ("size", 8), ("cost", 8))
_TIGHT_FROM, _FULL_FROM, _PROJECT_FROM = 64, 76, 96
"""Widths from which figures are shown, then with more room, then with the project."""
_LEAD = 8
"""Characters shown before the found words."""
COPY = "(copy)"
"""The mark of a fork."""


class SessionList(RowList[SessionMatch]):
    COMPONENT_CLASSES = {"sessions--marked", "sessions--detail", "sessions--found"}  # noqa: RUF012 (Textual's own form)

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__("sessions")
        self._now = now
        self._words: tuple[str, ...] = ()
        self._with_project = False

    def show(
        self, matches: Sequence[SessionMatch], *, words: Sequence[str] = (), with_project: bool, keep: bool = True
    ) -> None:
        """Show these matches; with `keep` the same session stays marked."""
        before = self.marked
        self._words, self._with_project = tuple(words), with_project
        places = (place for place, match in enumerate(matches) if before and match.info.id == before.info.id)
        self.put(matches, next(places, min(self.place, max(0, len(matches) - 1))) if keep else 0)
        after = self.marked
        if (before and before.info.id) != (after and after.info.id):
            self.post_message(self.Marked())

    def heading(self) -> str:
        return (
            set_cell_size("  title", self._title_width())
            + "".join(f"{name:>{width}}" for name, width in self._columns())
            + ("  project" if self._shows_project() else "")
        )

    def render_line(self, y: int) -> Strip:
        """StyledLine `y` of what is in sight."""
        place, width = y + self.scroll_offset.y, self._width
        if not 0 <= place < len(self._rows):
            return Strip.blank(width, self.rich_style)
        segments = self._segments(self._rows[place], place == self.place)
        return Strip(segments).crop_extend(0, width, self.rich_style)

    def _segments(self, match: SessionMatch, is_marked: bool) -> list[Segment]:
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
            segments.append(Segment(f"  {self._excerpt(match.snippet)}", found))
        elif self._shows_project():
            segments.append(Segment(f"  {clean(short_path(Path(info.project)))}", detail))
        return segments

    def _excerpt(self, snippet: str) -> str:
        """The found text, from shortly before the first found word."""
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


PREVIEW_AFTER = 0.06
"""Seconds that a session is marked before its preview is read."""


class SessionPreview(VerticalScroll, can_focus=False):
    """Title, figures, summary, the first and the last messages."""

    COMPONENT_CLASSES = {"preview--title", "preview--detail", "preview--who", "preview--found"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__(id="session-preview")
        self._words = Static(markup=False)
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield self._words

    def look(self, marked: SessionMatch | None, session_catalog: SessionCatalog) -> None:
        """Show the marked session, if it stays marked for a moment; None clears the preview."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(
            PREVIEW_AFTER, lambda: self.run_worker(self._read(marked, session_catalog), group="look", exclusive=True)
        )

    async def _read(self, marked: SessionMatch | None, session_catalog: SessionCatalog) -> None:
        if marked is None:
            self._words.update("")
            return
        try:
            preview = await session_catalog.preview(marked.info)
        except (OuroError, OSError) as error:
            self._words.update(self._head(marked.info).append(f"\n{clean(str(error))}"))
        else:
            self._show_words(marked.info, preview, marked.snippet)

    def _show_words(self, info: SessionInfo, preview: SessionExcerpt, snippet: str) -> None:
        text = self._head(info)
        if snippet:
            text.append(f"\n… {clean(snippet)} …\n", self._style("found"))
        for who, words in preview_lines(preview, max(20, self.size.width)):
            text.append("\n")
            if who:
                text.append(f"{who}  ", self._style("who"))
            text.append(f"{words}\n")
        self._words.update(text)
        self.scroll_home(animate=False)

    def _head(self, info: SessionInfo) -> Text:
        text = Text(overflow="fold").append(title(info), self._style("title"))
        facts = [short_path(Path(info.project)), info.model.rpartition("/")[2], f"began {info.created_at[:10]}"]
        facts += [f"{info.messages:,} messages", size(info.size), cost(info.cost), info.id[:8]]
        facts += [f"a copy of {info.fork_of[:8]}"] if info.fork_of else []
        text.append("\n" + clean(" · ".join(filter(None, facts))) + "\n", self._style("detail"))
        return text

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"preview--{name}", partial=True)


class SessionKeyLine(Static):
    """The last one or two lines of the picker: the keys, or a message."""

    def __init__(self, keymap: Keymap, esc: str) -> None:
        super().__init__(id="sessions-foot", markup=False)
        self._keymap = keymap
        self._esc = esc
        self._has_message = False

    def show_message(self, text: str, kind: str = "-asks") -> None:
        """Show a question (`-asks`) or an error (`-failed`) until `clear_message`."""
        self._has_message = True
        self.set_class(False, "-asks", "-failed")
        self.add_class(kind)
        self.update(text)

    def clear_message(self) -> None:
        self._has_message = False

    def show_keys(self, *, in_list: bool, shows_all: bool, previews: bool, one_line: bool) -> None:
        """Show the keys.

        Args:
            in_list: the list has the focus, so letters are keys too.
            shows_all: the sessions of all projects are listed.
            previews: a key shows the preview, because it has no room beside the list.
            one_line: there is room for one line.
        """
        if self._has_message:
            return
        name = self._letter if in_list else self._keymap.shown
        parts = [
            "Enter",
            f"{self._keymap.shown('change_scope')} {'this project' if shows_all else 'all'}",
            f"{name('fork_session')} fork",
            f"{name('rename_session')} rename",
            f"{name('delete_session')} delete",
            f"{name('look_inside')} preview" if previews else "",
            "Tab search" if in_list else "Tab list",
            f"Esc {self._esc}",
        ]
        self.set_class(False, "-asks", "-failed")
        self.update(_in_lines(parts, self.size.width or self.app.size.width, one_line))

    def _letter(self, name: str) -> str:
        keys = self._keymap.keys(name)
        return next((key for key in keys if len(key) == 1 or key == "space"), self._keymap.shown(name))


def _in_lines(parts: Sequence[str], width: int, one_line: bool) -> str:
    """The keys on one line or two; on one, keys that do not fit are left out before the last."""
    lines = [""]
    shown = [part for part in parts if part]
    while one_line and len(" · ".join(shown)) > width and len(shown) > 2:
        shown.pop(-2)
    for part in shown:
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        lines = [*lines[:-1], longer] if len(longer) <= width else [*lines, part]
    return "\n".join(lines)
