"""SessionPicker: find a session among all there are, look into it, name it, put it away, and go on with it."""

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
from ouro.frontends.session_lines import now as the_time
from ouro.frontends.session_lines import title
from ouro.frontends.session_matches import ALL, SessionMatches, alike
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screens.sessions.widgets import SessionFoot, SessionList, SessionPreview
from ouro.frontends.tui.screens.sheet import LineSheet, Sheet
from ouro.session.opening import OpenRequest
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.session import SessionCatalog, SessionInfo

GetCatalog = Callable[[], Awaitable["SessionCatalog"]]
WIDE_FROM = 112
"""Columns from which what is in a session is shown beside the list."""
_STEPS = {"up": -1, "down": 1, "ctrl+p": -1, "ctrl+n": 1}
_PAGES = {"pageup": -1, "pagedown": 1}
_SEARCH_AFTER = 0.15
"""Seconds without a key after which what was said is searched, too."""
_SHOW_EACH = 0.05
"""Seconds between two pictures of what a search finds."""


class SessionPicker(Sheet["OpenRequest | None"]):
    """Typing searches titles at once and what was said a moment later. Tab gives the keys to the list."""

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
        now: Callable[[], datetime] = the_time,
    ) -> None:
        """`rename` is asked first to name a session that is open here; `esc` says what Esc does."""
        super().__init__()
        self.wants_to_leave = False
        """Ctrl+C closed it."""
        self._get_shelf = get_catalog
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
        self._foot = SessionFoot(keymap, esc)
        back_key = keymap.shown("restore_session")
        self._changes = SessionChanges(self._foot, back_key, rename, self._list_again)

    def compose(self) -> ComposeResult:
        """Search and count, the columns' names, the sessions beside what is in the marked one, the keys."""
        with Vertical(classes="sheet", id="session-picker"):
            with Horizontal(id="sessions-head"):
                yield Static("❯ ", id="sessions-sign", markup=False)
                yield self._search
                yield self._count
            yield self._heading
            with Horizontal(id="sessions-body"):
                yield self._list
                yield self._preview
            yield self._foot

    def on_mount(self) -> None:
        """What is typed goes into the search, from the first moment on."""
        self._search.focus()
        self.run_worker(self._load(), group="load")

    def on_resize(self) -> None:
        """The columns and the keys take the room there is."""
        self.call_after_refresh(self._refresh_frame)

    def on_descendant_focus(self) -> None:
        """The keys are others in the search and in the list."""
        self._tell_keys()

    async def _load(self) -> None:
        session_catalog = self._session_catalog = self._changes.session_catalog = await self._get_shelf()
        sessions = await session_catalog.sessions(self._progress)
        matches = self._matches = SessionMatches(sessions, session_catalog.is_here, self._only)
        self._look_for(self._search.value)
        await asyncio.to_thread(alike, "", [""])  # imported, so that no key waits for it
        matches.allow_fuzzy(alike)
        self._show()

    def _progress(self, done: int, of: int) -> None:
        """The list has to be made from the sessions themselves: say how far that is."""
        if of > done:
            self.app.call_from_thread(self._count.update, f"reading the list … {done:,} of {of:,}")

    # What is looked for

    @on(Input.Changed, "#sessions-search")
    def _typed(self, event: Input.Changed) -> None:
        self._foot.hear()
        self._look_for(event.value)

    def _look_for(self, text: str) -> None:
        if self._matches is None:
            return
        changed = self._matches.look_for(text)
        self._show(keep=not changed)
        if changed and self._matches.query:
            if self._search_timer is not None:
                self._search_timer.stop()
            self._search_timer = self.set_timer(
                _SEARCH_AFTER, lambda: self.run_worker(self._search_words(), group="words", exclusive=True)
            )
        elif changed:
            self.workers.cancel_group(self, "words")

    async def _search_words(self) -> None:
        """Add what is found while it is found, a picture for many."""
        session_catalog, matches = self._session_catalog, self._matches
        if session_catalog is None or matches is None:
            return
        query, shown_at = matches.query, 0.0
        loop = asyncio.get_running_loop()
        found = session_catalog.search(list(matches.in_scope), query)
        self._tell_count(" · searching …")
        try:
            async for hit in found:
                if matches.query != query:
                    return
                matches.add(hit)
                if loop.time() - shown_at > _SHOW_EACH:
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
            self._tell_count(doing, len(found))

    def _tell_count(self, doing: str = "", found: int | None = None) -> None:
        if self._matches is None:
            return
        all_there_are = len(self._matches.in_scope)
        shown = f"{found:,} of {all_there_are:,}" if found is not None and self._matches.query else f"{all_there_are:,}"
        self._count.update(f"{self._matches.scope} · {shown}{doing}")

    def _refresh_frame(self) -> None:
        self._heading.update(self._list.heading())
        self._tell_keys()

    # Keys

    async def _on_key(self, event: events.Key) -> None:
        if self._changes.doomed is not None:
            event.stop()
            event.prevent_default()
            await self._answer_delete(event)
            return
        self._foot.hear()
        action = self._actions.get(event.key, "")
        in_list = self._list.has_focus
        if event.key == "enter":
            self._take()
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
        """The mouse took a session."""
        self._take()

    def on_row_list_marked(self) -> None:
        """Look into it."""
        if self._session_catalog is not None:
            self._preview.look(self._list.marked, self._session_catalog)

    def action_close(self) -> None:
        """Esc: out of what is shown over the list, then out of here."""
        if self._changes.doomed is not None:
            self._spare()
        elif self.has_class("-looking"):
            self.remove_class("-looking")
        else:
            self.dismiss(None)

    def action_leave(self) -> None:
        """Ctrl+C."""
        self.wants_to_leave = True
        self.dismiss(None)

    def _take(self, *, fork: bool = False) -> None:
        if self._list.marked is not None:
            self.dismiss(OpenRequest(self._list.marked.info.id, fork=fork))

    def _change_scope(self) -> None:
        if self._matches is not None:
            self._matches.next_scope()
            self._show(keep=False)
            if self._matches.query:
                self.run_worker(self._search_words(), group="words", exclusive=True)

    def _fork_session(self) -> None:
        self._take(fork=True)

    def _look_inside(self) -> None:
        self.toggle_class("-looking")

    # Names and the trash

    def _rename_session(self) -> None:
        if self._list.marked is not None:
            self.run_worker(self._rename(self._list.marked.info))

    async def _rename(self, info: SessionInfo) -> None:
        said: str | None = await self.app.push_screen_wait(LineSheet("The new title", secret=False, text=title(info)))
        await self._changes.rename(info, said or "")

    def _delete_session(self) -> None:
        if self._list.marked is not None:
            self._asked_in_search = self._search.has_focus
            self._list.focus()  # the search would take the answer for a word
            self._changes.doom(self._list.marked.info)

    async def _answer_delete(self, event: events.Key) -> None:
        info = self._spare()
        if info is not None and (event.key in ("y", "Y") or self._actions.get(event.key) == "delete_session"):
            await self._changes.delete(info)

    def _spare(self) -> SessionInfo | None:
        info = self._changes.spare()
        if self._asked_in_search:
            self._search.focus()
        self._tell_keys()
        return info

    def _restore_session(self) -> None:
        if self._changes.can_restore:
            self.run_worker(self._changes.restore())
        elif not self._list.has_focus:
            self._search.value = ""

    async def _list_again(self) -> None:
        if self._session_catalog is not None and self._matches is not None:
            self._matches.change(await self._session_catalog.sessions())
            self._show()
            self.on_row_list_marked()  # the same one may have another name now

    def _tell_keys(self) -> None:
        self._foot.tell_keys(
            in_list=self._list.has_focus,
            shows_all=self._matches is not None and self._matches.scope == ALL,
            looks=not self.has_class("-wide"),
            only_one=self.has_class("-low"),
        )


class SessionChanges:
    """Tells at the foot what is asked and what came of it.

    Args:
        foot: where it is told.
        back_key: the key that takes a session back, as people write it.
        rename_open: is asked first to name a session; False: it is not the one that is open here.
        changed: lists the sessions again.
    """

    def __init__(
        self,
        foot: SessionFoot,
        back_key: str,
        rename_open: Callable[[str, str], bool],
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self.session_catalog: SessionCatalog | None = None
        self.doomed: SessionInfo | None = None
        """Waits for the second step of its deletion."""
        self._foot = foot
        self._back_key = back_key
        self._rename_open = rename_open
        self._changed = changed
        self._deleted: list[SessionInfo] = []

    @property
    def can_restore(self) -> bool:
        """Whether something was put into the trash here."""
        return bool(self._deleted)

    async def rename(self, info: SessionInfo, said: str) -> None:
        """Call it what was said, where anything was."""
        name = " ".join(clean(said).split())
        if name and self.session_catalog is not None and name != info.title:
            if not self._rename_open(info.id, name):
                await self._do(self.session_catalog.rename(info.id, name))
            await self._changed()

    def doom(self, info: SessionInfo) -> None:
        """The first step: ask."""
        self.doomed = info
        self._foot.tell(f"To the trash? y: yes · else: no · “{title(info)}”")

    def spare(self) -> SessionInfo | None:
        """It is answered; gives what was asked about."""
        info, self.doomed = self.doomed, None
        self._foot.hear()
        return info

    async def delete(self, info: SessionInfo) -> None:
        """The second step."""
        if self.session_catalog is not None and await self._do(self.session_catalog.delete(info.id)):
            self._deleted.append(info)
            await self._changed()
            self._foot.tell(f"In the trash: {self._back_key} takes it back. “{title(info)}”")

    async def restore(self) -> None:
        """Take back what went last."""
        info = self._deleted.pop()
        if self.session_catalog is not None and await self._do(self.session_catalog.restore(info.id)):
            await self._changed()
            self._foot.tell(f"“{title(info)}” is back.")

    async def _do(self, change: Awaitable[None]) -> bool:
        """Make the change, and show why where it fails."""
        try:
            await change
        except (OuroError, OSError) as error:
            self._foot.tell(" ".join(str(error).split("\n")), "-failed")
            return False
        return True
