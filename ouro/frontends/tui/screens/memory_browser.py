"""MemoryBrowser: the screen on which long-term memory is searched, read, edited and undone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from rich.cells import cell_len, set_cell_size
from textual import events, work

from ouro.commands import memory_changes, memory_history
from ouro.commands.action import Answer
from ouro.commands.checks import checks_of
from ouro.commands.render import as_text
from ouro.commands.slash import SessionContext
from ouro.errors import UsageError
from ouro.frontends.tui.blocks.styled_lines import crop
from ouro.frontends.tui.keymap import UNDO_MEMORY, Keymap
from ouro.frontends.tui.screens import memory_pages as pages
from ouro.frontends.tui.screens.browser import Browser, Page, PageLink
from ouro.frontends.tui.screens.dialogs import Keys
from ouro.frontends.tui.screens.memory_pages import MemoryRow, Tab
from ouro.frontends.tui.widgets.row_list import Cell, RowList, code_cells
from ouro.session import all_entries
from ouro.session.opening import OpenRequest
from ouro.utils.text import clean

BESIDE_FROM = 72
"""The minimum columns to show the page beside the list."""
FLAG_FROM_WIDTH = 30
"""The minimum width to show scope and flag."""
ABOUT_FROM_WIDTH = 48
"""The minimum width to show the details."""
MIN_ABOUT = 9
_MARK_WIDTH, _SCOPE_WIDTH = 2, 5
MAX_COMMITS = 500
SCOPES = ("all", "user", "repo")
EMPTY_TABS: Mapping[Tab, str] = {
    "core": "The core is empty. Type `#text` in the prompt to remember something.",
    "notes": (
        "No notes yet. ouro writes them as you work. Type `#text` in the prompt to remember"
        " something now."
    ),
    "timeline": "No commits yet.",
    "archive": "The archive is empty.",
    "receipt": "No memory was sent to the model.",
    "proposals": "No pending changes.",
}
"""The tabs in their order, and their texts when they are empty."""
TABS = tuple(EMPTY_TABS)
_FRAME_WIDTH = 4
"""The columns of the frame and of the space beside its content."""
KEYS: Mapping[str, tuple[str, ...]] = {
    "note": ("edit_note", "confirm_note", "archive_note"),
    "archived": ("restore_note", "edit_note"),
    "core": ("edit_note",),
    "commit": (UNDO_MEMORY,),
    "hunk": (UNDO_MEMORY,),
    "proposal": ("accept", "reject"),
}
"""The actions for each kind of marked item."""
ACTIONS: Mapping[str, Callable[[SessionContext, str], Awaitable[Answer]]] = {
    "edit_note": memory_changes.edit,
    "confirm_note": memory_changes.confirm,
    "archive_note": memory_changes.archive,
    "restore_note": memory_changes.restore,
    "accept": memory_changes.accept,
    "reject": memory_changes.reject,
}
"""The commands behind the keys; each takes the id of the marked item."""
_KINDS_TO_CHANGE: Mapping[str, tuple[str, ...]] = {
    "accept": ("proposal",),
    "reject": ("proposal",),
    "edit_note": ("note", "core"),
}
"""The kinds of items that an action applies to; every other action applies to notes."""


class MemoryList(RowList[MemoryRow]):
    """A list of entries of memory: each with its scope, text, flag and details."""

    def key_of(self, row: MemoryRow) -> object:
        """The link of the row, or its text: all lines of a core file have the same link."""
        return row.text if row.link is None or row.link.kind == "core" else row.link

    def cells(self, row: MemoryRow, is_marked: bool, width: int) -> Iterable[Cell]:
        """The scope, the text, the flag and the details of a row. The flag and the details together
        get two fifths of the width. A narrow screen leaves out the details, and a very narrow one
        also the scope and the flag.
        """
        list_width = width + _MARK_WIDTH
        shows_scope_and_flag = list_width >= FLAG_FROM_WIDTH
        right_width = list_width * 2 // 5
        flag = crop(clean(row.flag), right_width) if shows_scope_and_flag else ""
        about_width = right_width - cell_len(flag)
        about = ""
        if row.about and list_width >= ABOUT_FROM_WIDTH and about_width >= MIN_ABOUT:
            separator = " · " if flag else ""
            about = crop(f"{separator}{clean(row.about)}", about_width)
        scope_width = _SCOPE_WIDTH if shows_scope_and_flag else 0
        used_width = cell_len(flag) + cell_len(about)
        gap = "  " if used_width else ""
        text_width = max(1, width - scope_width - len(gap) - used_width)
        yield set_cell_size(row.scope, scope_width), "detail"
        yield from code_cells(row.text, text_width, "marked" if is_marked else "", fills=True)
        yield f"{gap}{flag}", "flag" if row.warns else "detail"
        yield about, "detail"


class MemoryBrowser(Browser):
    """The screen with all of memory, in tabs. Enter moves the focus to the page of the marked row;
    there, Enter follows a link, which may close the screen to open a session.
    """

    TITLE = "Memory"
    READS_PAGES = True
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-narrow"),
        (BESIDE_FROM, "-beside"),
    ]

    def __init__(self, context: SessionContext, keymap: Keymap, tab: Tab | None = None) -> None:
        """Without a tab it opens on the one with the newest entry."""
        super().__init__("memory-browser", keymap, "memory", MemoryList("browser-list"))
        self._session_context = context
        self._session = context.session
        self._tab: Tab = tab or "core"
        self._chooses_tab = tab is None
        self._scope = "all"
        self._category = ""
        """The category to which the rows are limited; empty: all."""
        self._rows: dict[Tab, list[MemoryRow]] = {}
        """The rows of each tab; empty until they are read."""
        self._followed: list[PageLink] = []
        """The links that were followed from the marked row to the visible page."""
        self._last_commit = ""
        """The commit of the last change made here, which can be undone."""
        self._undo_commit = ""
        """The commit of the undo that the last key made; the same key redoes it."""

    @property
    def is_loaded(self) -> bool:
        return bool(self._rows)

    async def _load(self) -> None:
        await self._load_rows()
        self._show_page_later()

    async def _load_rows(self) -> None:
        """Read the rows and show those of the tab. If memory cannot be read, the rows stay."""
        if await self._attempt(self._read_rows()):
            self._show()

    async def _read_rows(self) -> None:
        """Read the rows of all tabs. The first time, choose the tab of the newest entry."""
        memory = self._session.session_memory
        manager = memory.require()
        memory_entries, log_entries, proposals, checks = await asyncio.gather(
            memory.with_editor(lambda editor: all_entries(editor, archived=True, stale=True)),
            asyncio.to_thread(lambda: manager.timeline().log(MAX_COMMITS)),
            asyncio.to_thread(manager.proposals),
            asyncio.to_thread(checks_of, self._session),
        )
        if self._chooses_tab:
            self._tab, self._chooses_tab = pages.newest_tab(memory_entries), False
        self._rows = {
            **await asyncio.to_thread(pages.note_rows, memory_entries),
            "timeline": pages.log_rows(log_entries),
            "receipt": pages.receipt_rows(memory.recalled, memory.receipt(), checks),
            "proposals": pages.proposal_rows(proposals),
        }

    @work(group="load", exclusive=True)
    async def show_memory_change(self) -> None:
        """Load the rows again. If the user is not reading the page of the marked row, load it
        again, too.
        """
        await self._load_rows()
        if not self._page_view.has_focus:
            await self._show_page()

    def _search_for(self, text: str) -> None:  # noqa: ARG002 (read from the field: other filters change, too)
        self._show(keep_mark=False)

    def _show(self, *, keep_mark: bool = True) -> None:
        """Show the rows of the tab that fit the filters and the search, and their number. With
        `keep_mark` the same row stays marked. Does nothing until the rows are read.
        """
        if not self._rows:
            return
        words = self._search.value.lower().split()
        rows = self._rows[self._tab]
        matching_rows = [row for row in rows if self._matches(row, words)]
        self._list.show(
            matching_rows, "No matches." if rows else EMPTY_TABS[self._tab], keep_mark=keep_mark
        )
        count = f"{len(rows):,}"
        if len(matching_rows) != len(rows):
            count = f"{len(matching_rows):,} of {count}"
        self._count.update(" · ".join(filter(None, (self._scope, self._category, count))))
        self._show_frame()

    def _matches(self, row: MemoryRow, words: Sequence[str]) -> bool:
        """Whether a row fits both filters and has all searched words."""
        has_scope = self._scope in ("all", row.scope)
        has_category = self._category in ("", row.category)
        return has_scope and has_category and all(word in row.search_text for word in words)

    # Keys

    async def _take_key(self, event: events.Key) -> bool:
        """Handle a key. Returns False if it is text for the search field. The key that opens memory
        also closes it. The key of the receipt opens its tab, or closes the screen if the tab is
        open already.
        """
        if event.key not in self._keymap.keys(UNDO_MEMORY):
            self._undo_commit = ""  # only the next key after an undo is a redo
        if event.key in self._keymap.keys("memory"):
            self.dismiss(None)
        elif event.key in self._keymap.keys("receipt"):
            if self._tab == "receipt":
                self.dismiss(None)  # the screen ends; what follows is not seen any more
            self._go_to("receipt")
        else:
            return await super()._take_key(event)
        return True

    async def _open(self) -> None:
        """If the list has the focus, show the page of the marked row and move the focus to it. If
        the page has the focus, follow its marked link.
        """
        if self._page_view.has_focus:
            await self._follow()
        elif self._list.marked is not None:
            self.add_class("-looking")
            self._page_view.focus()

    async def _follow(self) -> None:
        """Follow the marked link of the page: show its page. A link to a message, which is a link to a
        turn without a number, closes the screen and opens the session there. A link to a hunk has no
        page of its own.
        """
        link = self._page_view.link
        if link is None or link.kind == "hunk":
            return
        if link.kind == "turn" and not link.turn:
            self.dismiss(OpenRequest(link.target, read_only=True, message=link.message))
        else:
            self._followed.append(link)
            await self._show_page()

    def action_close(self) -> None:
        """Go back one step: from a followed link to the page before, from the page to the list, or
        from the list out of the screen.
        """
        if self._followed:
            self._followed.pop()
            self._start_page(0.0)
        elif self._page_view.has_focus:
            self.remove_class("-looking")
            self._list.focus()
        else:
            self.dismiss(None)

    async def _next_tab(self) -> None:
        self._go_to(TABS[(TABS.index(self._tab) + 1) % len(TABS)])

    async def _previous_tab(self) -> None:
        self._go_to(TABS[TABS.index(self._tab) - 1])

    def _go_to(self, tab: Tab) -> None:
        """Show a tab from its beginning."""
        self._tab, self._category, self._chooses_tab = tab, "", False
        self.remove_class("-looking")
        if self._page_view.has_focus:
            self._list.focus()
        self._show(keep_mark=False)
        self._show_page_later()

    async def _change_memory(self) -> None:
        self._scope = SCOPES[(SCOPES.index(self._scope) + 1) % len(SCOPES)]
        self._show(keep_mark=False)

    async def _change_category(self) -> None:
        """Show only the rows of the next category of this tab; after the last one, show all."""
        all_rows = ""  # the filter that every category passes
        in_tab = {row.category for row in self._rows.get(self._tab, ())} - {all_rows}
        categories = [all_rows, *sorted(in_tab)]
        is_known = self._category in categories  # its last row may have been removed
        next_index = categories.index(self._category) + 1 if is_known else 0
        self._category = categories[next_index % len(categories)]
        self._show(keep_mark=False)

    # The page

    def _show_page_later(self) -> None:
        """Show the page of the marked row in a moment; links that were followed are left."""
        self._followed.clear()
        super()._show_page_later()

    async def _page(self) -> Page:
        """The page of the link that was followed last. If none was followed, it is the page of the
        marked row, which is empty without rows.
        """
        if self._followed:
            return await pages.linked_page(self._session, self._followed[-1])
        row = self._list.marked
        return await pages.row_page(self._session, row) if row is not None else Page()

    def _marked_link(self) -> PageLink | None:
        """The link to the object that keys such as undo change: the hunk that is marked in the
        page. If no hunk is marked, it is the link that was followed last, and if none was followed,
        the link of the marked row. None if there is no such object.
        """
        link = self._page_view.link if self._page_view.has_focus else None
        if link is not None and link.kind == "hunk":
            return link
        if self._followed:
            return self._followed[-1]
        return self._list.marked.link if self._list.marked is not None else None

    # Actions

    async def _run_key_action(self, action: str) -> None:
        """Run an action that changes the marked object, or any other action of the screen."""
        if action in ACTIONS:
            await self._change(action)
        else:
            await super()._run_key_action(action)

    async def _change(self, name: str) -> None:
        """Run the command of the action `name` on the marked item, and show the result.

        Raises:
            UsageError: the action does not apply to the marked item.
        """
        link = self._marked_link()
        kinds = _KINDS_TO_CHANGE.get(name, ("note",))
        if link is None or link.kind not in kinds:
            what = " or a line of the ".join(kinds)  # such as `note or a line of the core`
            raise UsageError(f"Mark a {what} first.")
        answer = await ACTIONS[name](self._session_context, link.target)
        # The value of an edit is a struct with the commit, that of any other command a mapping.
        if isinstance(answer.value, dict):
            self._last_commit = answer.value.get("undo", "")
        else:
            self._last_commit = answer.value.undo
        can_undo = bool(self._last_commit)
        await self._load()
        message = self._text_of(answer) or "Done."
        if can_undo:
            message = f"{message} · {self._letter(UNDO_MEMORY)} undoes it"
        self._show_message(message)

    async def _undo_change(self) -> None:
        """Undo the marked hunk or commit. If none is marked, undo the last change that was made on
        this screen. If the key is pressed again at once, undo the undo.

        Raises:
            UsageError: there is no change to undo.
        """
        link = self._marked_link()
        is_redo = bool(self._undo_commit)
        commit, hunk = self._undo_commit or self._last_commit, 0  # 0: the whole commit
        if not is_redo and link is not None and link.kind in ("commit", "hunk"):
            commit, hunk = link.target, link.hunk
        if not commit:
            raise UsageError("There is no change to undo.")
        answer = await memory_history.undo(self._session_context, [commit], hunk, yes=True)
        new_commit = answer.value.commit
        self._last_commit = new_commit if is_redo else ""
        self._undo_commit = "" if is_redo else new_commit
        await self._load()
        undone_text = f"{self._text_of(answer)} · {self._letter(UNDO_MEMORY)} redoes it"
        self._show_message("Redone." if is_redo else undone_text)

    def _text_of(self, answer: Answer) -> str:
        return as_text(answer.view, "/").replace("\n", " ")

    # The frame

    def _heading_text(self) -> str:
        """The names of the tabs. If not all names fit, the first names are left out until the open
        tab is visible, and the last ones that do not fit; arrows show that there are more.
        """
        names = self._tab_names()
        open_tab, width = TABS.index(self._tab), self.size.width - _FRAME_WIDTH
        width_before_arrow = max(0, width - 1)  # the last column may be taken by the arrow `›`
        first = 0
        while first < open_tab:
            names_to_open_tab = " ".join(names[first : open_tab + 1])
            if len(names_to_open_tab) <= width_before_arrow:
                break
            first += 1
        last = len(names)
        while last > open_tab + 1 and len(" ".join(names[first:last])) > width_before_arrow:
            last -= 1
        text = " ".join(names[first:last])
        if first > 0:
            text = f"‹{text[1:]}"  # its blank, or on a very narrow screen its bracket, is left out
        return text if last == len(names) else f"{text[:width_before_arrow]}›"

    def _tab_names(self) -> list[str]:
        """The names of the tabs. The open tab is in brackets, all others between blanks. The tab of
        proposals shows how many there are.
        """
        proposal_count = len(self._rows.get("proposals", ()))
        names = []
        for tab in TABS:
            has_count = tab == "proposals" and proposal_count > 0
            name = f"{tab} {proposal_count}" if has_count else tab
            names.append(f"[{name}]" if tab == self._tab else f" {name} ")
        return names

    def _keys(self) -> Keys:
        """The keys of the last line, for what is marked and where the focus is."""
        if self._search.has_focus:
            # In a text these keys move the cursor.
            tabs = [] if self._search.value else [("←→", "tabs")]
            return [
                ("Enter", "opens"),
                *tabs,
                ("Tab", "list"),
                *self._filters(self._keymap.key_text),
                ("Esc", "closes"),
            ]
        actions = self._keys_of_marked()
        if self._page_view.has_focus:
            return [*actions, ("↑↓", "links"), ("Enter", "follows"), ("Esc", "back")]
        return [
            *actions,
            ("Enter", "opens"),
            ("←→", "tabs"),
            *self._filters(self._letter),
            ("/", "search"),
            ("Esc", "closes"),
        ]

    def _keys_of_marked(self) -> list[tuple[str, str]]:
        """The keys that change the marked object, each with what it does. Empty if no object is
        marked, or if none of the keys can change it. A note on the tab of the archive is archived.
        A note that was reached through a link may be an active one.
        """
        link = self._marked_link()
        if link is None:
            return []
        kind: str = link.kind
        if kind == "note" and self._tab == "archive" and not self._followed:
            kind = "archived"
        labels = {UNDO_MEMORY: "undo this hunk" if kind == "hunk" else "undo"}
        return [
            (self._letter(name), labels.get(name, name.removesuffix("_note")))
            for name in KEYS.get(kind, ())
        ]

    def _filters(self, key_text: Callable[[str], str]) -> Keys:
        """The keys of the two filters. `key_text` returns the text of the key of an action."""
        return [(key_text("change_memory"), "scope"), (key_text("change_category"), "category")]
