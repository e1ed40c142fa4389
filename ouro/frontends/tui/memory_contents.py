"""MemoryContents: what the memory browser has to show, tab by tab, narrowed down to what was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

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
    receipt_rows,
    row_key,
)
from ouro.frontends.tui import memory_pages as pages
from ouro.frontends.tui.widgets.memory_detail import Link, Page

if TYPE_CHECKING:
    from ouro.events import NotesRecalled
    from ouro.session import Browsing, Listed, MemoryReceipt, Proposal

_LOGGED = 500
_NOTHING: Mapping[Tab, str] = {
    "notes": "No notes yet. They come as you work; `#text` in the prompt keeps something at once.",
    "core": "The core is empty. `#text` in the prompt keeps something at once.",
    "timeline": "Nothing was ever remembered here.",
    "archive": "The archive is empty.",
    "receipt": "Nothing of memory went to the model.",
    "proposals": "Nothing waits for you.",
}


class MemoryContents:
    """Which tab is open, what is in each, and by what it is narrowed down."""

    def __init__(self, memory: Browsing, tab: Tab) -> None:
        self._memory = memory
        self.tab: Tab = tab
        self._scope: Scopes = "all"
        self._category = ""
        self._listed: dict[str, Listed] = {}
        self._proposals: dict[str, Proposal] = {}
        self._recalled: NotesRecalled | None = None
        self._receipt: MemoryReceipt | None = None
        self._rows: dict[Tab, list[Row]] = {}

    async def load(self) -> None:
        """Read everything anew, beside the loop.

        Raises:
            OuroError, OSError: memory, or its index, cannot be read just now.
        """
        memory = self._memory
        listed, entries, proposals = await asyncio.gather(
            memory.all(), memory.ask(lambda timeline: timeline.log(_LOGGED)), memory.proposals()
        )
        self._recalled, self._receipt = memory.recalled, memory.receipt
        self._proposals = {each.id: each for each in proposals}
        self._listed, rows = await asyncio.to_thread(_note_tabs, listed)
        self._rows = {
            **rows,
            "timeline": log_rows(entries),
            "receipt": receipt_rows(self._recalled, self._receipt),
            "proposals": proposal_rows(proposals),
        }

    @property
    def is_loaded(self) -> bool:
        """Whether there is anything to show yet."""
        return bool(self._rows)

    @property
    def waiting(self) -> int:
        """How many proposals wait."""
        return len(self._proposals)

    def found(self, text: str) -> list[Row]:
        """The rows of the open tab that hold these words."""
        return narrowed(self._rows.get(self.tab, []), text, self._scope, self._category)

    def count(self, found: Sequence[Row]) -> str:
        """What it is narrowed down by, and how many are left."""
        whole = len(self._rows.get(self.tab, []))
        some = f"{len(found):,} of {whole:,}" if len(found) != whole else f"{whole:,}"
        return " · ".join(filter(None, (self._scope, self._category, some)))

    def nothing(self, text: str) -> str:
        """What is said where no row is left."""
        if not self._rows:
            return ""
        return "Nothing fits." if self._rows[self.tab] or text else _NOTHING[self.tab]

    def go_by(self, by: int) -> None:
        """To the tab beside."""
        self.go_to(TABS[(TABS.index(self.tab) + by) % len(TABS)])

    def go_to(self, tab: Tab) -> None:
        """To a tab; all of its categories are shown."""
        self.tab, self._category = tab, ""

    def next_scope(self) -> None:
        """Yours, the repository's, or both."""
        self._scope = SCOPES[(SCOPES.index(self._scope) + 1) % len(SCOPES)]

    def next_category(self) -> None:
        """The categories of the open tab one after the other, then all of them."""
        there = ["", *sorted({row.category for row in self._rows.get(self.tab, ()) if row.category})]
        place = there.index(self._category) if self._category in there else -1
        self._category = there[(place + 1) % len(there)]

    def listed(self, key: str) -> Listed | None:
        """The note or core line of a row; None where it is none."""
        return self._listed.get(key)

    async def page(self, row: Row | None) -> Page:
        """All there is to tell of a row.

        Raises:
            OuroError: it is not there any more.
        """
        if row is None:
            return Page()
        if self.tab == "timeline":
            return await pages.followed_page(self._memory, Link("commit", row.key))
        if self.tab == "proposals":
            return pages.proposal_page(self._proposals[row.key])
        if self.tab == "receipt":
            return await self._receipt_page(row)
        listed = self._listed[row.key]
        if listed.kind == "note":
            return await pages.followed_page(self._memory, Link("note", listed.id))
        blame = await self._memory.ask(lambda timeline: timeline.blame(f"{listed.scope}/{listed.name}"))
        return pages.core_page(listed, blame.lines)

    async def _receipt_page(self, row: Row) -> Page:
        assert self._recalled is not None
        assert self._receipt is not None
        item = next((each for each in self._recalled.items if each.id == row.key), None)
        if item is None:
            return pages.receipt_page(self._receipt.lines[int(row.key.removeprefix("line "))])
        page = pages.recalled_page(item, self._recalled)
        if item.id in self._listed:
            page.lines += (await pages.followed_page(self._memory, Link("note", item.id))).lines
        return page


def _note_tabs(listed: Sequence[Listed]) -> tuple[dict[str, Listed], dict[Tab, list[Row]]]:
    """Ten thousand of them take a moment."""
    tabs: tuple[Tab, ...] = ("notes", "core", "archive")
    return {row_key(each): each for each in listed}, {tab: note_rows(listed, tab) for tab in tabs}
