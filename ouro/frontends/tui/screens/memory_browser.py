"""MemoryBrowser: what is remembered, where it comes from, and the way to put it right."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.timer import Timer
from textual.widgets import Input, Static

from ouro.errors import OuroError, UsageError
from ouro.frontends.memory_rows import (
    SCOPES,
    TABS,
    Row,
    Scopes,
    Tab,
    log_rows,
    narrowed,
    note_rows,
    proposal_rows,
    row_key,
)
from ouro.frontends.tui import memory_pages as pages
from ouro.frontends.tui import outside
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.look import HEADER_FROM_HEIGHT
from ouro.frontends.tui.memory_deeds import Aim, MemoryDeeds
from ouro.frontends.tui.memory_foot import KEYS, WORDS, fitting, tabs_from
from ouro.frontends.tui.screens.sheet import Sheet
from ouro.frontends.tui.widgets.memory_detail import Link, MemoryDetail, Page
from ouro.frontends.tui.widgets.memory_list import MemoryList
from ouro.open_request import OpenRequest
from ouro.utils.terminal_text import clean

if TYPE_CHECKING:
    from ouro.session import Browsing, Entry, Listed, Proposal

BESIDE_FROM = 72
"""Columns from which the detail is shown beside the list."""
_LOOK_AFTER = 0.06
"""Seconds that a row has to be marked before its page is made."""
_LOGGED = 500
_STEPS = {"up": -1, "down": 1, "ctrl+p": -1, "ctrl+n": 1}
_PAGES = {"pageup": -1, "pagedown": 1}


class MemoryBrowser(Sheet["OpenRequest | None"]):
    """Typing searches; Tab gives the keys to the list, Enter to what is told of the marked row."""

    BINDINGS = [Binding("ctrl+c", "leave", show=False, priority=True)]  # noqa: RUF012 (Textual's own form)
    VERTICAL_BREAKPOINTS = [(0, "-low"), (HEADER_FROM_HEIGHT, "-normal")]  # noqa: RUF012 (as above)
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (BESIDE_FROM, "-beside")]  # noqa: RUF012 (as above)

    def __init__(self, memory: Browsing, keymap: Keymap, tab: Tab = "notes") -> None:
        super().__init__()
        self._memory = memory
        self._actions = keymap.of("memory")
        self._keymap = keymap
        self._tab: Tab = tab
        self._scope: Scopes = "all"
        self._listed: dict[str, Listed] = {}
        self._entries: dict[str, Entry] = {}
        self._proposals: dict[str, Proposal] = {}
        self._rows: dict[Tab, list[Row]] = {}
        self._followed: list[Link] = []
        """The links that led to the page that is shown, beyond the marked row."""
        self._last_commit = ""
        self._is_told = False
        self._look_timer: Timer | None = None
        self._search = Input(placeholder="type to search", compact=True, id="sessions-search")
        self._count = Static("reading …", id="sessions-count", markup=False)
        self._tabs = Static(id="memory-tabs", markup=False)
        self._list = MemoryList()
        self._detail = MemoryDetail()
        self._foot = Static(id="sessions-foot", markup=False)

    def compose(self) -> ComposeResult:
        """Search and count, the tabs, the list beside the detail, the keys."""
        with Vertical(classes="sheet", id="memory-browser"):
            with Horizontal(id="sessions-head"):
                yield Static("❯ ", id="sessions-sign", markup=False)
                yield self._search
                yield self._count
            yield self._tabs
            with Horizontal(id="memory-body"):
                yield self._list
                yield self._detail
            yield self._foot

    def on_mount(self) -> None:
        """What is typed goes into the search, from the first moment on."""
        self._search.focus()
        self._tell_frame()
        self.run_worker(self._load(), group="load")

    def on_resize(self) -> None:
        """The keys take the room there is."""
        self.call_after_refresh(self._tell_frame)

    def on_descendant_focus(self) -> None:
        """The keys are others in the search, the list and the detail."""
        self._tell_frame()

    async def _load(self) -> None:
        """Read everything anew, beside the loop."""
        try:
            listed, entries, proposals = await asyncio.gather(
                self._memory.all(),
                self._memory.ask(lambda chronicle: chronicle.log(_LOGGED)),
                self._memory.proposals(),
            )
        except (OuroError, OSError) as error:
            self._tell(_told(error), "-failed")
            return
        self._listed = {row_key(each): each for each in listed}
        self._entries = {each.commit.id: each for each in entries}
        self._proposals = {each.id: each for each in proposals}
        self._rows = {
            "notes": note_rows(listed, "notes"),
            "core": note_rows(listed, "core"),
            "archive": note_rows(listed, "archive"),
            "timeline": log_rows(entries),
            "proposals": proposal_rows(proposals),
        }
        self._show()
        self._mark_later()

    @on(Input.Changed, "#sessions-search")
    def _typed(self) -> None:
        self._is_told = False
        self._show(keep=False)

    def _show(self, *, keep: bool = True) -> None:
        rows = self._rows.get(self._tab)
        if rows is None:
            return
        found = narrowed(rows, self._search.value, self._scope)
        self._list.show(found, keep=keep)
        some = f"{len(found):,} of {len(rows):,}" if len(found) != len(rows) else f"{len(rows):,}"
        self._count.update(f"{self._scope} · {some}")
        self._tell_frame()

    # Keys

    async def _on_key(self, event: events.Key) -> None:
        self._is_told = False
        in_search, action = self._search.has_focus, self._actions.get(event.key, "")
        if event.key == "enter":
            await self._enter()
        elif event.key in ("tab", "shift+tab"):
            self._search.focus() if not in_search else self._list.focus()
        elif in_search and event.key in _STEPS:
            self._list.action_move(_STEPS[event.key])
        elif in_search and event.key in _PAGES:
            self._list.action_page(_PAGES[event.key])
        elif action and not (in_search and (event.is_printable or event.key in ("left", "right"))):
            await self._do(getattr(self, f"_{action}", None) or partial(self._act, action))
        else:
            return
        event.stop()
        event.prevent_default()

    async def _enter(self) -> None:
        if self._detail.has_focus:
            await self._do(self._follow)
        elif self._list.marked is not None:
            self._open_detail()

    def _open_detail(self) -> None:
        self.add_class("-looking")
        self._detail.focus()

    def on_memory_list_picked(self) -> None:
        """The mouse took a row."""
        self._open_detail()

    def on_memory_list_marked(self) -> None:
        """Tell of it, where it stays marked for a moment."""
        self._mark_later()

    def action_close(self) -> None:
        """Esc: back from what was followed, to the list, then out of here."""
        if self._followed:
            self._followed.pop()
            self.run_worker(self._look(), group="look", exclusive=True)
        elif self._detail.has_focus:
            self.remove_class("-looking")
            self._list.focus()
        else:
            self.dismiss(None)

    def action_leave(self) -> None:
        """Ctrl+C."""
        self.dismiss(None)

    async def _next_tab(self) -> None:
        self._go_to(1)

    async def _previous_tab(self) -> None:
        self._go_to(-1)

    def _go_to(self, by: int) -> None:
        self._tab = TABS[(TABS.index(self._tab) + by) % len(TABS)]
        self._followed.clear()
        self.remove_class("-looking")
        if self._detail.has_focus:
            self._list.focus()
        self._show(keep=False)
        self._mark_later()

    async def _change_memory(self) -> None:
        self._scope = SCOPES[(SCOPES.index(self._scope) + 1) % len(SCOPES)]
        self._show(keep=False)

    # What is told of the marked row

    def _mark_later(self) -> None:
        self._followed.clear()
        if self._look_timer is not None:
            self._look_timer.stop()
        self._look_timer = self.set_timer(
            _LOOK_AFTER, lambda: self.run_worker(self._look(), group="look", exclusive=True)
        )

    async def _look(self) -> None:
        try:
            page = await (pages.followed_page(self._memory, self._followed[-1]) if self._followed else self._page())
        except (OuroError, OSError) as error:
            page = pages.told_page(_told(error))
        self._detail.show(page)

    async def _page(self) -> Page:
        """Of the marked row."""
        row = self._list.marked
        if row is None:
            return pages.told_page("Nothing is here." if self._tab in self._rows else "")
        if self._tab == "timeline":
            return await pages.followed_page(self._memory, Link("commit", row.key))
        if self._tab == "proposals":
            return pages.proposal_page(self._proposals[row.key])
        listed = self._listed[row.key]
        if listed.kind == "note":
            return await pages.followed_page(self._memory, Link("note", listed.id))
        blame = await self._memory.ask(lambda chronicle: chronicle.blame(f"{listed.scope}/{listed.name}"))
        return pages.core_page(listed, blame.lines)

    async def _follow(self) -> None:
        link = self._detail.link
        if link is None:
            return
        if link.kind == "turn" and not link.turn:
            if link.target == self._memory.session_id:
                raise UsageError("That is the session that is open here.")
            self.dismiss(OpenRequest(link.target, read_only=True))
        elif link.kind != "hunk":
            self._followed.append(link)
            await self._look()

    # What is done

    async def _act(self, name: str) -> None:
        deeds = MemoryDeeds(self._memory, lambda text: outside.edit(self.app, text), self._last_commit)
        told = await deeds.do(name, self._aim())
        self._last_commit = deeds.last_commit
        if told:
            undo = f" {self._letter('take_back')} takes it back." if self._last_commit else ""
            await self._again(told + undo)

    def _aim(self) -> Aim:
        """What is marked: a row, or beyond it what was followed."""
        key = self._list.marked.key if self._list.marked else ""
        followed = self._followed[-1] if self._followed else None
        note = followed.target if followed and followed.kind == "note" else ""
        listed = self._listed.get(key)
        if not note and listed is not None and listed.kind == "note":
            note = listed.id
        link = self._detail.link if self._detail.has_focus else None
        is_hunk = link is not None and link.kind == "hunk"
        commit = link.target if link and is_hunk else key if self._tab == "timeline" else ""
        return Aim(
            note=note,
            core=listed if listed is not None and listed.kind == "core" and not note else None,
            proposal=key if self._tab == "proposals" else "",
            commit=commit,
            hunk=link.hunk if link and is_hunk else 0,
        )

    async def _again(self, told: str) -> None:
        await self._load()
        self._tell(told)

    async def _do(self, what: Callable[[], Awaitable[Any]]) -> None:
        """Do it; what went wrong is told."""
        try:
            await what()
        except (OuroError, OSError) as error:
            self._tell(_told(error), "-failed")

    # The frame

    def _tell_frame(self) -> None:
        names = [f"[{tab}]" if tab == self._tab else f" {tab} " for tab in TABS]
        waiting = len(self._rows.get("proposals", ()))
        names[-1] = names[-1].replace("proposals", f"proposals {waiting}") if waiting else names[-1]
        self._tabs.update(tabs_from(names, TABS.index(self._tab), self.size.width - 2))
        if not self._is_told:
            self._foot.set_class(False, "-asks", "-failed")
            self._foot.update(
                fitting(self._keys(), self._foot.size.width or self.app.size.width, 1 if self.has_class("-low") else 2)
            )

    def _keys(self) -> list[str]:
        if self._search.has_focus:
            return ["Enter looks", "Tab list", f"{self._keymap.shown('change_memory')} scope", "↑↓", "Esc closes"]
        does = [f"{self._letter(name)} {WORDS[name]}" for name in KEYS[self._tab]]
        if self._detail.has_focus:
            hunks = self._detail.link is not None and self._detail.link.kind == "hunk"
            return ["↑↓ links", "Enter follows", *(["u undo this hunk"] if hunks else does), "Esc back"]
        return ["←→ tabs", "Enter looks", *does, f"{self._letter('change_memory')} scope", "Tab search", "Esc closes"]

    def _letter(self, name: str) -> str:
        keys = self._keymap.keys(name)
        return next((each for each in keys if len(each) == 1), self._keymap.shown(name))

    def _tell(self, text: str, kind: str = "") -> None:
        self._is_told = True
        self._foot.set_class(False, "-asks", "-failed")
        self._foot.set_class(bool(kind), kind or "-asks")
        self._foot.update(clean(text))


def _told(error: Exception) -> str:
    return " ".join(str(error).split())
