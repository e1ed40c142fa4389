"""MemoryBrowser: long-term memory on the whole screen: search, read, edit, undo."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.timer import Timer
from textual.widgets import Input, Static

from ouro.errors import OuroError, UsageError
from ouro.frontends.tui import external
from ouro.frontends.tui.keymap import UNDO_MEMORY, Keymap
from ouro.frontends.tui.screens.memory import pages
from ouro.frontends.tui.screens.memory.contents import TABS, MemoryContents, Tab
from ouro.frontends.tui.screens.memory.widgets import MemoryDetail, MemoryList, MemoryPage, PageLink
from ouro.frontends.tui.screens.sheet import Sheet
from ouro.session.opening import OpenRequest
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.session import Browsing, ListedEntry

BESIDE_FROM = 72
"""Columns from which the page is shown beside the list."""
SHOW_PAGE_AFTER = 0.06
"""Seconds that a row has to be marked before its page is made."""
_FILTERS = {"memory": "scope", "category": "category"}
"""Filters of the list, besides the search."""
_STEPS = {"up": -1, "down": 1, "ctrl+p": -1, "ctrl+n": 1}
_PAGES = {"pageup": -1, "pagedown": 1}


class MemoryBrowser(Sheet["OpenRequest | None"]):
    """Typing searches. Tab moves the focus to the list, Enter to the page of the marked row."""

    BINDINGS = [Binding("ctrl+c", "leave", show=False, priority=True)]  # noqa: RUF012 (Textual's own form)
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (BESIDE_FROM, "-beside")]  # noqa: RUF012 (as above)

    def __init__(self, memory: Browsing, keymap: Keymap, tab: Tab = "notes") -> None:
        super().__init__()
        self._memory = memory
        self._actions = keymap.of("memory")
        self._keymap = keymap
        self._contents = MemoryContents(memory, tab)
        self._followed: list[PageLink] = []
        """The links followed from the marked row to the shown page."""
        self._last_commit = ""
        self._has_message = False
        self._look_timer: Timer | None = None
        self._search = Input(placeholder="type to search", compact=True, id="sessions-search")
        self._search.cursor_blink = False
        self._count = Static("reading …", id="sessions-count", markup=False)
        self._tabs = Static(id="memory-tabs", markup=False)
        self._list = MemoryList()
        self._detail = MemoryDetail()
        self._foot = Static(id="sessions-foot", markup=False)

    def compose(self) -> ComposeResult:
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
        self._search.focus()
        self._show_frame()
        self.run_worker(self._load(), group="load")

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_frame)

    def on_descendant_focus(self) -> None:
        self._show_frame()

    async def _load(self) -> None:
        await self._load_all()
        self._show_page_later()

    async def _load_all(self) -> None:
        try:
            await self._contents.load()
        except (OuroError, OSError) as error:
            self._show_message(_one_line(error), "-failed")
        else:
            self._show()

    @work(group="load", exclusive=True)
    async def memory_changed(self) -> None:
        """Load again; a page with the focus stays."""
        await self._load_all()
        if not self._detail.has_focus:
            await self._look()

    @on(Input.Changed, "#sessions-search")
    def _typed(self) -> None:
        self._has_message = False
        self._show(keep=False)

    def _show(self, *, keep: bool = True) -> None:
        if not self._contents.is_loaded:
            return
        text = self._search.value
        found = self._contents.matching(text)
        self._list.show(found, self._contents.empty_text(text), keep=keep)
        self._count.update(self._contents.count(found))
        self._show_frame()

    # Keys

    async def _on_key(self, event: events.Key) -> None:
        self._has_message = False
        in_search, action = self._search.has_focus, self._actions.get(event.key, "")
        if event.key == "enter":
            await self._enter()
        elif event.key in self._keymap.keys("memory"):
            self.dismiss(None)
        elif event.key in self._keymap.keys("receipt"):
            self._go_to("receipt")
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

    def on_row_list_picked(self) -> None:
        self._open_detail()

    def on_row_list_marked(self) -> None:
        self._show_page_later()

    def action_close(self) -> None:
        if self._followed:
            self._followed.pop()
            self.run_worker(self._look(), group="look", exclusive=True)
        elif self._detail.has_focus:
            self.remove_class("-looking")
            self._list.focus()
        else:
            self.dismiss(None)

    def action_leave(self) -> None:
        self.dismiss(None)

    async def _next_tab(self) -> None:
        self._contents.go_by(1)
        self._tab_changed()

    async def _previous_tab(self) -> None:
        self._contents.go_by(-1)
        self._tab_changed()

    def _go_to(self, tab: Tab) -> None:
        self._contents.go_to(tab)
        self._tab_changed()

    def _tab_changed(self) -> None:
        self._followed.clear()
        self.remove_class("-looking")
        if self._detail.has_focus:
            self._list.focus()
        self._show(keep=False)
        self._show_page_later()

    async def _change_memory(self) -> None:
        self._contents.next_scope()
        self._show(keep=False)

    async def _change_category(self) -> None:
        self._contents.next_category()
        self._show(keep=False)

    # The page

    def _show_page_later(self) -> None:
        self._followed.clear()
        if self._look_timer is not None:
            self._look_timer.stop()
        self._look_timer = self.set_timer(
            SHOW_PAGE_AFTER, lambda: self.run_worker(self._look(), group="look", exclusive=True)
        )

    async def _look(self) -> None:
        try:
            page = await self._page()
        except (OuroError, OSError) as error:
            page = pages.text_page(_one_line(error))
        self._detail.show(page)
        self._show_frame()

    async def _page(self) -> MemoryPage:
        if self._followed:
            return await pages.followed_page(self._memory, self._followed[-1])
        return await self._contents.page(self._list.marked)

    async def _follow(self) -> None:
        link = self._detail.link
        if link is None:
            return
        if link.kind == "turn" and not link.turn:
            self.dismiss(OpenRequest(link.target, read_only=True, message=link.message))
        elif link.kind != "hunk":
            self._followed.append(link)
            await self._look()

    # Actions

    async def _act(self, name: str) -> None:
        actions = MemoryActions(self._memory, lambda text: external.edit(self.app, text), self._last_commit)
        message = await actions.do(name, self._aim())
        self._last_commit = actions.last_commit
        if message:
            undo = f" {self._letter(UNDO_MEMORY)} undoes it." if self._last_commit else ""
            await self._again(message + undo)

    def _aim(self) -> MarkedItem:
        row, tab = self._list.marked, self._contents.tab
        key = row.key if row else ""
        link = self._detail.link if self._detail.has_focus else None
        if link is not None and link.kind == "hunk":
            return MarkedItem(commit=link.target, hunk=link.hunk)
        if self._followed:
            followed = self._followed[-1]
            is_note, is_commit = followed.kind == "note", followed.kind == "commit"
            return MarkedItem(note=followed.target if is_note else "", commit=followed.target if is_commit else "")
        listed = self._contents.listed(key)
        return MarkedItem(
            note=listed.id if listed is not None and listed.kind == "note" else "",
            core=listed if listed is not None and listed.kind == "core" else None,
            proposal=key if tab == "proposals" else "",
            commit=key if tab == "timeline" else "",
        )

    async def _again(self, message: str) -> None:
        await self._load()
        self._show_message(message)

    async def _do(self, what: Callable[[], Awaitable[Any]]) -> None:
        """Run it; an error is shown in the last line."""
        try:
            await what()
        except (OuroError, OSError) as error:
            self._show_message(_one_line(error), "-failed")

    # The frame

    def _show_frame(self) -> None:
        open_tab, waiting = self._contents.tab, self._contents.waiting
        names = [f"[{tab}]" if tab == open_tab else f" {tab} " for tab in TABS]
        names[-1] = names[-1].replace("proposals", f"proposals {waiting}") if waiting else names[-1]
        self._tabs.update(tab_line(names, TABS.index(open_tab), self.size.width - 2))
        if not self._has_message:
            self._foot.set_class(False, "-asks", "-failed")
            self._foot.update(
                fitting(self._keys(), self._foot.size.width or self.app.size.width, 1 if self.has_class("-low") else 2)
            )

    def _keys(self) -> list[str]:
        if self._search.has_focus:
            filters = [f"{self._keymap.shown(f'change_{name}')} {word}" for name, word in _FILTERS.items()]
            return ["Enter opens", "Tab list", *filters, "Esc closes"]
        if self._detail.has_focus:
            return [*self._does(), "↑↓ links", "Enter follows", "Esc back"]
        filters = [f"{self._letter(f'change_{name}')} {word}" for name, word in _FILTERS.items()]
        return [*self._does(), "Enter opens", "←→ tabs", *filters, "Tab search", "Esc closes"]

    def _does(self) -> list[str]:
        aim = self._aim()
        if aim.hunk:
            return [f"{self._letter(UNDO_MEMORY)} undo this hunk"]
        is_archived = self._contents.tab == "archive" and not self._followed
        kinds = {
            "proposal": aim.proposal,
            "commit": aim.commit,
            "core": aim.core,
            "archived" if is_archived else "note": aim.note,
        }
        kind = next((name for name, there in kinds.items() if there), "")
        return [f"{self._letter(name)} {WORDS[name]}" for name in KEYS.get(kind, ())]

    def _letter(self, name: str) -> str:
        keys = self._keymap.keys(name)
        return next((key for key in keys if len(key) == 1), self._keymap.shown(name))

    def _show_message(self, text: str, kind: str = "") -> None:
        self._has_message = True
        self._foot.set_class(False, "-asks", "-failed")
        self._foot.set_class(bool(kind), kind or "-asks")
        self._foot.update(clean(text))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


@dataclass(frozen=True, slots=True)
class MarkedItem:
    """The marked item; unused fields are empty."""

    note: str = ""
    core: ListedEntry | None = None
    proposal: str = ""
    commit: str = ""
    hunk: int = 0


class MemoryActions:
    """What the keys do to the marked item. Each action returns a message, empty if nothing was done.

    Args:
        edit: opens the user's editor.
        last_commit: the last change made here, which can be undone.
    """

    def __init__(self, memory: Browsing, edit: Callable[[str], Awaitable[str]], last_commit: str) -> None:
        self._memory = memory
        self._edit_text = edit
        self.last_commit = last_commit

    async def do(self, name: str, aim: MarkedItem) -> str:
        """Run the action of that name.

        Raises:
            UsageError: it does not apply to the marked item.
        """
        if name == UNDO_MEMORY:
            return await self._undo(aim)
        self.last_commit = ""
        if name in ("accept", "reject"):
            return await self._answer(aim.proposal, accepts=name == "accept")
        if name == "edit_note":
            return await self._edit(aim)
        if not aim.note:
            raise UsageError("Mark a note first.")
        actions = {
            "confirm_note": (self._memory.confirm, "Confirmed."),
            "archive_note": (self._memory.archive, "Archived. It is no longer recalled."),
            "restore_note": (self._memory.confirm, "Restored."),
        }
        action, message = actions[name]
        self.last_commit = await action(aim.note)
        return message

    async def _undo(self, aim: MarkedItem) -> str:
        """Undo the marked hunk or commit, else the last change made here."""
        from ouro.session import describe_commits  # too heavy to import before the first frame

        commit, hunk = (aim.commit, aim.hunk) if aim.commit else (self.last_commit, 0)
        if not commit:
            raise UsageError("There is no change to undo.")
        done = await self._memory.undo(commit, hunk)
        self.last_commit = ""
        left = (
            f" {len(done.conflicts)} changes could not be undone: their lines have changed since."
            if done.conflicts
            else ""
        )
        return f"Undone{f' hunk {hunk} of' if hunk else ''}: {describe_commits(done.commits)}.{left}"

    async def _answer(self, proposal: str, *, accepts: bool) -> str:
        if not proposal:
            raise UsageError("Mark a proposal first.")
        await (self._memory.accept if accepts else self._memory.reject)(proposal)
        return "Accepted." if accepts else "Rejected. The git history keeps it."

    async def _edit(self, aim: MarkedItem) -> str:
        named = f"{aim.core.scope}/{aim.core.name}" if aim.core is not None else aim.note
        if not named:
            raise UsageError("Mark a note or a line of the core first.")
        opened = await self._memory.open_file(named)
        saved = await self._memory.save(opened, await self._edit_text(opened.text))
        self.last_commit = saved.undo
        if not saved.changed:
            return "No changes."
        return "Saved." + "".join(f" {problem}." for problem in saved.problems)


KEYS: Mapping[str, tuple[str, ...]] = {
    "note": ("edit_note", "confirm_note", "archive_note"),
    "archived": ("restore_note", "edit_note"),
    "core": ("edit_note",),
    "commit": (UNDO_MEMORY,),
    "proposal": ("accept", "reject"),
}
"""The actions for each kind of marked item."""
WORDS: Mapping[str, str] = {
    "edit_note": "edit",
    "confirm_note": "confirm",
    "archive_note": "archive",
    "restore_note": "restore",
    UNDO_MEMORY: "undo",
    "accept": "accept",
    "reject": "reject",
}
"""Their labels in the key line."""


def fitting(parts: Sequence[str], width: int, lines: int) -> str:
    """The items on at most `lines` lines; items that do not fit are left out before the last."""
    shown = list(parts)
    while len(fitted := _lines(shown, width)) > lines and len(shown) > 2:
        shown.pop(-2)
    return "\n".join(fitted)


def _lines(parts: Sequence[str], width: int) -> list[str]:
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines


def tab_line(names: Sequence[str], place: int, width: int) -> str:
    """The tab line, scrolled so that the open tab is in sight; arrows show that there are more."""
    first = 0
    while first < place and len(" ".join(names[first : place + 1])) > width - 1:
        first += 1
    text = " ".join(names[first:])
    text = f"‹{text[1:]}" if first else text
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}›"
