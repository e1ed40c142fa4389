"""SessionPicker: the screen on which sessions are searched, previewed, changed and opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size
from textual import events, work

from ouro.errors import OuroError, UsageError
from ouro.frontends.session_format import (
    format_age,
    now,
    preview_lines,
    session_labels,
    session_title,
)
from ouro.frontends.session_matches import ALL, SessionMatch, SessionMatches, find_similar
from ouro.frontends.tui.blocks.styled_lines import crop
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screens.browser import Browser, Page
from ouro.frontends.tui.screens.dialogs import Keys, LineSheet
from ouro.frontends.tui.widgets.row_list import Cell, RowList
from ouro.session.opening import OpenCatalog, OpenRequest
from ouro.utils.ouro_paths import tilde
from ouro.utils.text import byte_size, clean, dollars, plural

if TYPE_CHECKING:
    from ouro.session import SessionCatalog, SessionInfo

MIN_WIDTH_FOR_PREVIEW = 112
"""The minimum columns to show the preview beside the list."""
MESSAGE_SEARCH_DELAY = 0.15
"""Seconds without a key after which messages are searched too."""
SHOW_INTERVAL = 0.05
"""Seconds between two updates of the list while messages are searched."""
_MARK_WIDTH, _AGE_WIDTH, _PROJECT_WIDTH = 2, 11, 28
_FIGURES = (("messages", 10), ("size", 9), ("cost", 9))
_TIGHT_FIGURES = (("msgs", 6), ("size", 8), ("cost", 8))
_MIN_WIDTH_TIGHT, _MIN_WIDTH_FULL, _MIN_WIDTH_PROJECT = 64, 76, 96
"""The minimum widths to show figures or the project, figures with more room, and both."""
_GAP, _PINNED = "  ", "★ "
_MIN_LABELS_WIDTH = 12
"""With less room than this, labels are left out if they do not fit."""
_MIN_WIDTH_OF_SCOPE = 60
"""Columns from which there is room beside the title to say why all projects are listed."""
_MIN_FIRST_PAGE = 40
"""The fewest rows of the first page, which is shown before the whole list was read."""
_CHARACTERS_BEFORE_MATCH = 8


class _RowLayout(NamedTuple):
    """What a row of the list has room for."""

    columns: list[tuple[str, int]]
    """The names and widths of the figures."""
    title_width: int
    """The columns of the title, which gets what is left."""
    has_project: bool
    """Whether the project is shown at the end."""


class SessionList(RowList[SessionMatch]):
    """A list of sessions: each with its title and figures, or the match in its messages."""

    def __init__(self) -> None:
        super().__init__("browser-list")
        self.words: list[str] = []
        """The searched words. A row begins near the first of them."""
        self.with_project = False
        """Whether the list has sessions of several projects, and so shows the project."""
        self.with_cost = True
        """Whether the cost of any session is known."""

    def key_of(self, row: SessionMatch) -> object:
        return row.info.id

    def heading(self) -> str:
        """The line above the list, with the name of each column above its figures."""
        columns, title_width, has_project = self._layout()
        figures = "".join(f"{name:>{width}}" for name, width in columns)
        project = "  project" if has_project else ""
        return set_cell_size("  title", title_width + _MARK_WIDTH) + figures + project

    def _layout(self) -> _RowLayout:
        """The layout of a row for the present width. On a narrow screen the project is shown rather
        than the figures; the age is always shown.
        """
        width = self.scrollable_content_region.width
        columns = [("age", _AGE_WIDTH)]
        has_project = self.with_project and width >= _MIN_WIDTH_TIGHT
        min_width_for_figures = _MIN_WIDTH_PROJECT if has_project else _MIN_WIDTH_TIGHT
        if width >= min_width_for_figures:
            figures = _FIGURES if width >= _MIN_WIDTH_FULL else _TIGHT_FIGURES
            columns += figures if self.with_cost else figures[:-1]  # the last one is the cost
        used_width = sum(width for _name, width in columns) + _MARK_WIDTH
        if has_project:
            used_width += _PROJECT_WIDTH
        return _RowLayout(columns, max(0, width - used_width), has_project)

    def cells(self, row: SessionMatch, is_marked: bool, width: int) -> Iterable[Cell]:  # noqa: ARG002 (see _layout)
        """The title of a session, its figures, and its project if there is room. If a message
        matches the search, the text around the match is shown, and of the figures only the age.
        """
        info = row.info
        figures = (
            format_age(info.updated_at, now()),
            f"{info.messages:,}",
            byte_size(info.size),
            dollars(info.cost),
        )
        columns, title_width, has_project = self._layout()
        if row.snippet:
            columns = columns[:1]
        name = session_title(info) + (" (copy)" if info.fork_of else "")
        name = f"{_PINNED if info.pinned else ''}{name}"
        yield from self._name_cells(
            name, session_labels(info), room=title_width, is_marked=is_marked
        )
        for (_name, width_of_column), figure in zip(columns, figures, strict=False):
            yield f"{figure:>{width_of_column}}", "detail"
        if row.snippet:
            yield f"  {self._start_near_match(row.snippet)}", "found"
        elif has_project:
            yield f"  {clean(tilde(Path(info.project)))}", "detail"

    def _start_near_match(self, snippet: str) -> str:
        """The part of a snippet that begins shortly before the first searched word. It is the whole
        snippet if it has none of the words.
        """
        lower_snippet = snippet.lower()
        match_starts = [lower_snippet.find(word) for word in self.words if word in lower_snippet]
        start = max(0, min(match_starts, default=0) - _CHARACTERS_BEFORE_MATCH)
        return f"{'…' if start else ''}{clean(snippet[start:])}"

    def _name_cells(self, name: str, labels: str, room: int, is_marked: bool) -> Iterable[Cell]:
        """The title of a session, then its labels (branch, changed files and tags), in exactly
        `room` columns. Labels that would be cut to almost nothing are left out.
        """
        style = "marked" if is_marked else ""
        labels_room = room - cell_len(name) - len(_GAP)
        if not labels or labels_room < min(cell_len(labels), _MIN_LABELS_WIDTH):
            yield set_cell_size(crop(name, room), room), style
            return
        yield f"{name}{_GAP}", style
        yield set_cell_size(crop(labels, labels_room), labels_room), "detail"


def _has_cost(sessions: Sequence[SessionInfo]) -> bool:
    return any(info.cost is not None for info in sessions)


class SessionPicker(Browser):
    """The screen on which the user picks a session.

    Typing searches the titles at once, and the messages a moment later.
    """

    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-narrow"),
        (MIN_WIDTH_FOR_PREVIEW, "-beside"),
    ]
    TITLE = "Sessions"
    _list: SessionList

    def __init__(
        self,
        get_catalog: OpenCatalog,
        keymap: Keymap,
        *,
        only: Collection[str] = (),
        rename: Callable[[str, str], bool] = lambda _session_id, _title: False,
        label: Callable[[str, Sequence[str], bool], bool] = lambda _id, _tags, _pinned: False,
        esc: str = "closes",
    ) -> None:
        """Make the screen.

        Args:
            only: the ids of the sessions to show; empty: all.
            rename: gives a title to the session with an id, if it is open here; returns whether
                it is.
            label: the same for its tags, and for whether it is pinned.
            esc: what the last line says that Esc does.
        """
        super().__init__("session-picker", keymap, "sessions", SessionList())
        self.wants_to_leave = False
        """Whether Ctrl+C closed it."""
        self._get_catalog = get_catalog
        self._only = only
        self._rename_open = rename
        self._label_open = label
        self._esc = esc
        self._session_catalog: SessionCatalog
        self._matches: SessionMatches
        self._is_loaded = False
        """Whether the list was read, so that there are matches."""
        self._session_to_delete: SessionInfo | None = None
        """The session that the open question is about; None without a question."""
        self._was_in_search = False
        """Whether the search field had the focus when the question was asked."""
        self._deleted: list[SessionInfo] = []
        """The sessions that were deleted here and not restored, the last one at the end."""

    async def _load(self) -> None:
        """Show the first page of the list, then the whole list. After that, import what the search
        for similar titles needs, and use it from then on.
        """
        session_catalog = self._session_catalog = await self._get_catalog()

        def show_progress(done: int, of: int) -> None:
            """Show how many of the sessions were read. A thread calls it."""
            if of > done:
                self.app.call_from_thread(
                    self._count.update, f"reading the list … {done:,} of {of:,}"
                )

        if not self._only:
            await self._show_first_page()
        sessions = await session_catalog.sessions(show_progress)
        self._list.with_cost = _has_cost(sessions)
        self._matches = SessionMatches(sessions, session_catalog.is_here, self._only)
        self._is_loaded = True
        self._search_for(self._search.value)
        await asyncio.to_thread(find_similar, "", [""])  # imports rapidfuzz before a key needs it
        self._matches.is_fuzzy = True
        self._show()

    async def _show_first_page(self) -> None:
        """Show the top of the list until all of it has been read."""
        first = await self._session_catalog.first_page(max(_MIN_FIRST_PAGE, self.app.size.height))
        if any(info.is_listed for info in first):
            self._list.with_cost = _has_cost(first)
            self._matches = SessionMatches(first, self._session_catalog.is_here)
            self._show()
            self._count.update("reading the list …")

    # Search

    def _search_for(self, text: str) -> None:
        """Search the titles for a text at once, and the messages a moment later, so that a search
        of the messages does not begin with each key. Does nothing until the list is read.
        """
        if not self._is_loaded:
            return
        changed = self._matches.set_search(text)
        self._show(keep_mark=not changed)
        if changed and self._matches.query:
            self._search_messages(MESSAGE_SEARCH_DELAY)
        elif changed:  # the search is empty: end the one of the messages that may still run
            self.workers.cancel_group(self, "words")

    @work(group="words", exclusive=True)
    async def _search_messages(self, delay: float = 0.0) -> None:
        """Search the messages of the sessions after `delay` seconds, and add each match to the list
        when it is found. Ends if the user searches for something else.
        """
        await asyncio.sleep(delay)
        matches, loop = self._matches, asyncio.get_running_loop()
        query = matches.query
        hits = self._session_catalog.search(list(matches.in_scope), query)
        self._show_count(" · searching …")
        shown_at = 0.0
        try:
            async for hit in hits:
                if matches.query != query:
                    return
                matches.add_hit(hit)
                if loop.time() - shown_at > SHOW_INTERVAL:  # several matches with one update
                    shown_at = loop.time()
                    self._show(" · searching …")
        finally:
            await hits.aclose()
        self._show()

    def _show(self, activity: str = "", *, keep_mark: bool = True) -> None:
        """Show the matches and their number. Behind it stands `activity`, which says what still
        runs; it is empty if nothing does. With `keep_mark` the same row stays marked.
        """
        self._list.words = self._matches.query.split()
        self._list.with_project = self._matches.scope == ALL
        self._list.show(self._matches.matches(), self._text_without_rows(), keep_mark=keep_mark)
        self._show_frame()
        self._show_count(activity, len(self._list.rows))

    def _text_without_rows(self) -> str:
        """What the list shows if it has no rows."""
        if not self._is_loaded:
            return ""
        hidden = self._matches.hidden_count
        if hidden:
            key = self._letter_or_key("show_headless")
            return (
                f"No matches. {key} also shows {plural(hidden, 'session')} of scripts (`ouro -p`)."
            )
        return "No matches." if self._matches.is_narrowed else "No sessions yet."

    def _show_count(self, activity: str = "", match_count: int | None = None) -> None:
        """Show the scope, how many sessions are in it, and the activity. With `match_count` and a
        search, also show how many of them match.
        """
        count = f"{len(self._matches.in_scope):,}"
        if match_count is not None and self._matches.is_narrowed:
            count = f"{match_count:,} of {count}"
        scope, hidden = self._matches.scope, ""
        if self.app.size.width >= _MIN_WIDTH_OF_SCOPE:
            scope = self._matches.scope_text
            if self._matches.hidden_count:
                hidden = f" · {self._matches.hidden_count:,} headless hidden"
        self._count.update(f"{scope} · {count}{hidden}{activity}")

    def _heading_text(self) -> str:
        return self._list.heading()

    async def _page(self) -> Page:
        """The preview of the marked session: what is known about it, the text around a match of the
        search, and its first and last messages. If the messages cannot be read, it has the error
        instead.
        """
        match = self._list.marked
        if match is None:
            return Page()
        info = match.info
        facts = [
            tilde(Path(info.project)),
            info.model.rpartition("/")[2],
            f"began {info.created_at[:10]}",
            plural(info.messages, "message"),
            byte_size(info.size),
            dollars(info.cost),
            info.short_id,
            session_labels(info),
        ]
        if info.pinned:
            facts.append("pinned")
        if info.fork_of:
            facts.append(f"a copy of {info.fork_of[:8]}")
        page = Page(session_title(info), " · ".join(filter(None, facts)))
        page.add("")
        try:
            preview = await self._session_catalog.preview(info)
        except (OuroError, OSError) as error:
            page.add(str(error))
            return page
        if match.snippet:
            page.add(f"… {match.snippet} …", "who")
            page.add("")
        for speaker, text in preview_lines(preview, max(20, self._page_view.size.width)):
            page.add(text, speaker=speaker)
            page.add("")
        return page

    # Keys

    async def _take_key(self, event: events.Key) -> bool:
        """Handle a key; returns False if it is text for the search field. While the question of a
        deletion is open, every key is its answer, and only `y` or the key that deletes confirms.
        """
        if self._session_to_delete is None:
            return await super()._take_key(event)
        info = self._end_question()
        confirms = event.key in ("y", "Y") or self._actions.get(event.key) == "delete_session"
        if confirms and await self._attempt(self._session_catalog.store.delete_session(info.id)):
            self._deleted.append(info)
            await self._reload()
            key = self._keymap.key_text("restore_session")
            self._show_message(f"In the trash. {key} restores it. “{session_title(info)}”")
        return True

    def action_close(self) -> None:
        """Go back one step: close the question or the preview, or leave."""
        if self._session_to_delete is not None:
            self._end_question()
        elif self.has_class("-looking"):
            self.remove_class("-looking")
            self._show_frame()
        else:
            self.dismiss(None)

    def action_leave(self) -> None:
        self.wants_to_leave = True
        super().action_leave()

    async def _open(self, *, fork: bool = False) -> None:
        if self._list.marked is not None:
            self.dismiss(OpenRequest(self._list.marked.info.id, fork=fork))

    async def _fork_session(self) -> None:
        await self._open(fork=True)

    async def _change_scope(self) -> None:
        """Show the sessions of the next scope, such as all instead of this project, and search them for
        the same text. Does nothing until the list is read.
        """
        if not self._is_loaded:
            return
        self._matches.next_scope()
        self._show(keep_mark=False)
        if self._matches.query:
            self._search_messages()

    async def _show_headless(self) -> None:
        """Show the sessions that only programs have used, or hide them again. Does nothing until the
        list is read.
        """
        if not self._is_loaded:
            return
        self._matches.toggle_headless()
        self._show()
        if self._matches.query:
            self._search_messages()

    async def _look_inside(self) -> None:
        self.toggle_class("-looking")
        self._show_frame()

    async def _rename_session(self) -> None:
        """Ask for a new title and give it to the marked session."""
        if self._list.marked is None:
            return
        info = self._list.marked.info

        async def rename(text: str | None) -> None:
            """Use the typed title, unless it is empty or the old one; None if the user cancelled."""
            name = " ".join(clean(text or "").split())
            if not name or name == info.title:
                return
            if not self._rename_open(info.id, name):
                await self._attempt(self._session_catalog.rename(info.id, name))
            await self._reload()

        self.app.push_screen(LineSheet("New title", secret=False, text=session_title(info)), rename)

    async def _pin_session(self) -> None:
        if self._list.marked is not None:
            info = self._list.marked.info
            await self._label(info, info.tags, pinned=not info.pinned)

    async def _tag_session(self) -> None:
        """Ask for the tags of the marked session and set them."""
        if self._list.marked is None:
            return
        info = self._list.marked.info

        async def tag(text: str | None) -> None:
            """Use the typed tags; None means that the user cancelled."""
            if text is None:
                return
            # Imported late: the screen appears before the modules of a session are loaded.
            from ouro.session.session_labels import read_tags

            try:
                new_tags, _removed = read_tags(text)
            except UsageError as error:
                self._show_message(str(error))
                return
            await self._label(info, new_tags, pinned=info.pinned)

        tags_text = " ".join(info.tags)
        self.app.push_screen(
            LineSheet("Tags, with blanks between", secret=False, text=tags_text), tag
        )

    async def _label(self, info: SessionInfo, tags: Sequence[str], *, pinned: bool) -> None:
        """Set the tags and the pin of a session. If the session is open in this process, the
        session itself does it, otherwise the catalog.
        """
        if not self._label_open(info.id, tags, pinned):
            await self._attempt(self._session_catalog.label(info, tags, pinned=pinned))
        await self._reload()

    async def _delete_session(self) -> None:
        """Ask whether the marked session shall go to the trash; `_take_key` gets the answer."""
        if self._list.marked is None:
            return
        self._was_in_search = self._search.has_focus
        self._list.focus()  # in the search field the key of the answer would be text
        self._session_to_delete = self._list.marked.info
        title = session_title(self._session_to_delete)
        self._show_message(f"Move to trash? y yes · other keys no · “{title}”")

    def _end_question(self) -> SessionInfo:
        """Close the question about a deletion; returns the session that it was about."""
        info, self._session_to_delete = self._session_to_delete, None
        self.key_line.show_keys()
        assert info is not None
        if self._was_in_search:
            self._search.focus()
        self._show_frame()
        return info

    async def _restore_session(self) -> None:
        """Restore the session that was deleted last. If no session was deleted here, empty the
        search field if it has the focus, because the key, Ctrl+U, does that in every other field.
        """
        if self._deleted:
            info = self._deleted.pop()
            if await self._attempt(self._session_catalog.store.restore_session(info.id)):
                await self._reload()
                self._show_message(f"Restored “{session_title(info)}”.")
        elif self._search.has_focus:
            self._search.value = ""

    async def _reload(self) -> None:
        """Read the sessions again, after one was changed, and show those that match."""
        sessions = await self._session_catalog.sessions()
        self._list.with_cost = _has_cost(sessions)
        self._matches.set_sessions(sessions)
        self._show()

    def _keys(self) -> Keys:
        """The keys for the last line. A key that is empty is not shown. While the list has the
        focus, single letters are named if an action has one.
        """
        is_in_list = self._list.has_focus
        key_text = self._letter_or_key
        shows_all = self._is_loaded and self._matches.scope == ALL
        shows_preview = self.has_class("-beside")
        return [
            ("Enter", "resumes"),
            ("" if shows_preview else key_text("look_inside"), "preview"),
            (self._keymap.key_text("change_scope"), "this project" if shows_all else "all"),
            self._headless_key(),
            (key_text("fork_session"), "fork"),
            (key_text("rename_session"), "rename"),
            (key_text("tag_session"), "tag"),
            (key_text("pin_session"), "pin"),
            (key_text("delete_session"), "delete"),
            ("Tab", "search" if is_in_list else "list"),
            ("Esc", "back" if self.has_class("-looking") else self._esc),
        ]

    def _headless_key(self) -> tuple[str, str]:
        """The key that shows or hides headless sessions, for the last line; empty if it has none to
        show or hide.
        """
        if not self._is_loaded:
            return "", ""
        if self._matches.shows_headless:
            return self._letter_or_key("show_headless"), "hide headless"
        key = self._letter_or_key("show_headless") if self._matches.hidden_count else ""
        return key, "headless"

    def _letter_or_key(self, action: str) -> str:
        """How the last line names the key of an action: a letter while the list has the focus."""
        return (self._letter if self._list.has_focus else self._keymap.key_text)(action)
