"""SessionPicker: search, preview, rename, delete and open sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from datetime import datetime
from typing import TYPE_CHECKING

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.timer import Timer
from textual.widgets import Input, Static

from ouro.errors import OuroError
from ouro.frontends.session_lines import now as current_time
from ouro.frontends.session_lines import title
from ouro.frontends.session_matches import ALL, SessionMatches, alike
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screens.sessions.widgets import SessionKeyLine, SessionList, SessionPreview
from ouro.frontends.tui.screens.sheet import LineSheet, Sheet
from ouro.session.opening import OpenRequest
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.session import SessionCatalog, SessionInfo

GetCatalog = Callable[[], Awaitable["SessionCatalog"]]
WIDE_FROM = 112
"""Columns from which the preview is shown beside the list."""
_STEPS = {"up": -1, "down": 1, "ctrl+p": -1, "ctrl+n": 1}
_PAGES = {"pageup": -1, "pagedown": 1}
SEARCH_MESSAGES_AFTER = 0.15
"""Seconds without a key after which messages are searched, too."""
SHOW_HITS_EVERY = 0.05
"""Seconds between two updates of the list while messages are searched."""


class SessionPicker(Sheet["OpenRequest | None"]):
    """Typing searches titles at once, messages a moment later. Tab moves the focus to the list."""

    BINDINGS = [Binding("ctrl+c", "leave", show=False, priority=True)]  # noqa: RUF012 (Textual's own form)
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE_FROM, "-wide")]  # noqa: RUF012 (as above)

    def __init__(
        self,
        get_catalog: GetCatalog,
        keymap: Keymap,
        *,
        search: str = "",
        only: Collection[str] = (),
        rename: Callable[[str, str], bool] = lambda _session_id, _title: False,
        esc: str = "closes",
        now: Callable[[], datetime] = current_time,
    ) -> None:
        """`rename` renames a session that is open here and returns whether it was; `esc` labels the Esc key."""
        super().__init__()
        self.wants_to_leave = False
        """Ctrl+C closed it."""
        self._get_catalog = get_catalog
        self._only = only
        self._actions = keymap.of("sessions")
        self._session_catalog: SessionCatalog | None = None
        self._matches: SessionMatches | None = None
        self._asked_in_search = False
        self._search_timer: Timer | None = None
        self._search = Input(search, placeholder="type to search", compact=True, id="sessions-search")
        self._search.cursor_blink = False
        self._count = Static("reading the list …", id="sessions-count", markup=False)
        self._heading = Static(id="sessions-heading", markup=False)
        self._list = SessionList(now)
        self._preview = SessionPreview()
        self._key_line = SessionKeyLine(keymap, esc)
        restore_key = keymap.shown("restore_session")
        self._changes = SessionChanges(self._key_line, restore_key, rename, self._reload)

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet", id="session-picker"):
            with Horizontal(id="sessions-head"):
                yield Static("❯ ", id="sessions-sign", markup=False)
                yield self._search
                yield self._count
            yield self._heading
            with Horizontal(id="sessions-body"):
                yield self._list
                yield self._preview
            yield self._key_line

    def on_mount(self) -> None:
        self._search.focus()
        self.run_worker(self._load(), group="load")

    def on_resize(self) -> None:
        self.call_after_refresh(self._refresh_frame)

    def on_descendant_focus(self) -> None:
        self._show_keys()

    async def _load(self) -> None:
        session_catalog = self._session_catalog = self._changes.session_catalog = await self._get_catalog()
        sessions = await session_catalog.sessions(self._progress)
        matches = self._matches = SessionMatches(sessions, session_catalog.is_here, self._only)
        self._apply_search(self._search.value)
        await asyncio.to_thread(alike, "", [""])  # imports rapidfuzz before a key needs it
        matches.allow_fuzzy(alike)
        self._show()

    def _progress(self, done: int, of: int) -> None:
        if of > done:
            self.app.call_from_thread(self._count.update, f"reading the list … {done:,} of {of:,}")

    # Search

    @on(Input.Changed, "#sessions-search")
    def _typed(self, event: Input.Changed) -> None:
        self._key_line.clear_message()
        self._apply_search(event.value)

    def _apply_search(self, text: str) -> None:
        if self._matches is None:
            return
        changed = self._matches.look_for(text)
        self._show(keep=not changed)
        if changed and self._matches.query:
            if self._search_timer is not None:
                self._search_timer.stop()
            self._search_timer = self.set_timer(
                SEARCH_MESSAGES_AFTER, lambda: self.run_worker(self._search_messages(), group="words", exclusive=True)
            )
        elif changed:
            self.workers.cancel_group(self, "words")

    async def _search_messages(self) -> None:
        """Add hits as they are found, many with one update."""
        session_catalog, matches = self._session_catalog, self._matches
        if session_catalog is None or matches is None:
            return
        query, shown_at = matches.query, 0.0
        loop = asyncio.get_running_loop()
        found = session_catalog.search(list(matches.in_scope), query)
        self._show_count(" · searching …")
        try:
            async for hit in found:
                if matches.query != query:
                    return
                matches.add(hit)
                if loop.time() - shown_at > SHOW_HITS_EVERY:
                    shown_at = loop.time()
                    self._show(" · searching …")
        finally:
            await found.aclose()
        self._show()

    def _show(self, doing: str = "", *, keep: bool = True) -> None:
        if self._matches is not None:
            found = self._matches.matches()
            is_all = self._matches.scope == ALL
            self._list.show(found, words=self._matches.query.split(), with_project=is_all, keep=keep)
            self._refresh_frame()
            self._show_count(doing, len(found))

    def _show_count(self, doing: str = "", found: int | None = None) -> None:
        if self._matches is None:
            return
        all_there_are = len(self._matches.in_scope)
        shown = f"{found:,} of {all_there_are:,}" if found is not None and self._matches.query else f"{all_there_are:,}"
        self._count.update(f"{self._matches.scope} · {shown}{doing}")

    def _refresh_frame(self) -> None:
        self._heading.update(self._list.heading())
        self._show_keys()

    # Keys

    async def _on_key(self, event: events.Key) -> None:
        if self._changes.to_delete is not None:
            event.stop()
            event.prevent_default()
            await self._answer_delete(event)
            return
        self._key_line.clear_message()
        action = self._actions.get(event.key, "")
        in_list = self._list.has_focus
        if event.key == "enter":
            self._open()
        elif event.key in ("tab", "shift+tab") or (in_list and event.key == "slash"):
            (self._search if in_list else self._list).focus()
        elif not in_list and event.key in _STEPS:
            self._list.action_move(_STEPS[event.key])
        elif not in_list and event.key in _PAGES:
            self._list.action_page(_PAGES[event.key])
        elif action and (in_list or not event.is_printable):
            getattr(self, f"_{action}")()
        else:
            return
        event.stop()
        event.prevent_default()

    def on_row_list_picked(self) -> None:
        self._open()

    def on_row_list_marked(self) -> None:
        if self._session_catalog is not None:
            self._preview.look(self._list.marked, self._session_catalog)

    def action_close(self) -> None:
        if self._changes.to_delete is not None:
            self._end_question()
        elif self.has_class("-looking"):
            self.remove_class("-looking")
        else:
            self.dismiss(None)

    def action_leave(self) -> None:
        self.wants_to_leave = True
        self.dismiss(None)

    def _open(self, *, fork: bool = False) -> None:
        if self._list.marked is not None:
            self.dismiss(OpenRequest(self._list.marked.info.id, fork=fork))

    def _change_scope(self) -> None:
        if self._matches is not None:
            self._matches.next_scope()
            self._show(keep=False)
            if self._matches.query:
                self.run_worker(self._search_messages(), group="words", exclusive=True)

    def _fork_session(self) -> None:
        self._open(fork=True)

    def _look_inside(self) -> None:
        self.toggle_class("-looking")

    # Rename and trash

    def _rename_session(self) -> None:
        if self._list.marked is not None:
            self.run_worker(self._rename(self._list.marked.info))

    async def _rename(self, info: SessionInfo) -> None:
        name: str | None = await self.app.push_screen_wait(LineSheet("New title", secret=False, text=title(info)))
        await self._changes.rename(info, name or "")

    def _delete_session(self) -> None:
        if self._list.marked is not None:
            self._asked_in_search = self._search.has_focus
            self._list.focus()  # the search field would take the answer as text
            self._changes.ask_to_delete(self._list.marked.info)

    async def _answer_delete(self, event: events.Key) -> None:
        info = self._end_question()
        if info is not None and (event.key in ("y", "Y") or self._actions.get(event.key) == "delete_session"):
            await self._changes.delete(info)

    def _end_question(self) -> SessionInfo | None:
        info = self._changes.end_question()
        if self._asked_in_search:
            self._search.focus()
        self._show_keys()
        return info

    def _restore_session(self) -> None:
        if self._changes.can_restore:
            self.run_worker(self._changes.restore())
        elif not self._list.has_focus:
            self._search.value = ""

    async def _reload(self) -> None:
        if self._session_catalog is not None and self._matches is not None:
            self._matches.change(await self._session_catalog.sessions())
            self._show()
            self.on_row_list_marked()  # its title may have changed

    def _show_keys(self) -> None:
        self._key_line.show_keys(
            in_list=self._list.has_focus,
            shows_all=self._matches is not None and self._matches.scope == ALL,
            previews=not self.has_class("-wide"),
            one_line=self.has_class("-low"),
        )


class SessionChanges:
    """Renames, deletes and restores sessions; shows questions and results in the key line.

    Args:
        key_line: shows questions and results.
        restore_key: the key that restores a session, for messages.
        rename_open: renames the session if it is open here; returns whether it was.
        changed: loads the list again.
    """

    def __init__(
        self,
        key_line: SessionKeyLine,
        restore_key: str,
        rename_open: Callable[[str, str], bool],
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self.session_catalog: SessionCatalog | None = None
        self.to_delete: SessionInfo | None = None
        """The session of the open question."""
        self._key_line = key_line
        self._restore_key = restore_key
        self._rename_open = rename_open
        self._changed = changed
        self._deleted: list[SessionInfo] = []

    @property
    def can_restore(self) -> bool:
        return bool(self._deleted)

    async def rename(self, info: SessionInfo, text: str) -> None:
        name = " ".join(clean(text).split())
        if name and self.session_catalog is not None and name != info.title:
            if not self._rename_open(info.id, name):
                await self._do(self.session_catalog.rename(info.id, name))
            await self._changed()

    def ask_to_delete(self, info: SessionInfo) -> None:
        self.to_delete = info
        self._key_line.show_message(f"Move to trash? y yes · other keys no · “{title(info)}”")

    def end_question(self) -> SessionInfo | None:
        """Close the question; returns its session."""
        info, self.to_delete = self.to_delete, None
        self._key_line.clear_message()
        return info

    async def delete(self, info: SessionInfo) -> None:
        if self.session_catalog is not None and await self._do(self.session_catalog.delete(info.id)):
            self._deleted.append(info)
            await self._changed()
            self._key_line.show_message(f"In the trash. {self._restore_key} restores it. “{title(info)}”")

    async def restore(self) -> None:
        info = self._deleted.pop()
        if self.session_catalog is not None and await self._do(self.session_catalog.restore(info.id)):
            await self._changed()
            self._key_line.show_message(f"Restored “{title(info)}”.")

    async def _do(self, change: Awaitable[None]) -> bool:
        """Make the change; returns False and shows the error if it fails."""
        try:
            await change
        except (OuroError, OSError) as error:
            self._key_line.show_message(" ".join(str(error).split("\n")), "-failed")
            return False
        return True
