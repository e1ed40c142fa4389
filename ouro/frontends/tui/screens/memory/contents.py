"""MemoryContents: the rows of the memory browser by tab, scope, category and search."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import TYPE_CHECKING, Literal

from ouro.frontends.memory_lines import SIGNS
from ouro.frontends.tui.screens.memory import pages
from ouro.frontends.tui.screens.memory.widgets import MemoryPage, MemoryRow, PageLink
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.events import NotesRecalled
    from ouro.session import (
        Browsing,
        Commit,
        FileEdit,
        ListedEntry,
        MemoryReceipt,
        Proposal,
        TimelineEntry,
        TurnEvidence,
    )

MAX_COMMITS = 500
_EMPTY_TABS: Mapping[Tab, str] = {
    "notes": "No notes yet. ouro writes them as you work. Type `#text` in the prompt to remember something now.",
    "core": "The core is empty. Type `#text` in the prompt to remember something.",
    "timeline": "No commits yet.",
    "archive": "The archive is empty.",
    "receipt": "No memory was sent to the model.",
    "proposals": "No pending changes.",
}


class MemoryContents:
    """The rows of each tab, the open tab, and its filters."""

    def __init__(self, memory: Browsing, tab: Tab) -> None:
        self._memory = memory
        self.tab: Tab = tab
        self._scope: Scopes = "all"
        self._category = ""
        self._listed: dict[str, ListedEntry] = {}
        self._proposals: dict[str, Proposal] = {}
        self._recalled: NotesRecalled | None = None
        self._receipt: MemoryReceipt | None = None
        self._rows: dict[Tab, list[MemoryRow]] = {}

    async def load(self) -> None:
        """Read everything again, in the background.

        Raises:
            OuroError, OSError: memory or its index cannot be read.
        """
        memory = self._memory
        listed, entries, proposals = await asyncio.gather(
            memory.all(), memory.ask(lambda timeline: timeline.log(MAX_COMMITS)), memory.proposals()
        )
        self._recalled, self._receipt = memory.recalled, memory.receipt
        self._proposals = {proposal.id: proposal for proposal in proposals}
        self._listed, rows = await asyncio.to_thread(_note_tabs, listed)
        self._rows = {
            **rows,
            "timeline": log_rows(entries),
            "receipt": receipt_rows(self._recalled, self._receipt),
            "proposals": proposal_rows(proposals),
        }

    @property
    def is_loaded(self) -> bool:
        return bool(self._rows)

    @property
    def waiting(self) -> int:
        return len(self._proposals)

    def matching(self, text: str) -> list[MemoryRow]:
        """The rows of the open tab that contain these words."""
        return narrowed(self._rows.get(self.tab, []), text, self._scope, self._category)

    def count(self, found: Sequence[MemoryRow]) -> str:
        whole = len(self._rows.get(self.tab, []))
        some = f"{len(found):,} of {whole:,}" if len(found) != whole else f"{whole:,}"
        return " · ".join(filter(None, (self._scope, self._category, some)))

    def empty_text(self, text: str) -> str:
        if not self._rows:
            return ""
        return "No matches." if self._rows[self.tab] or text else _EMPTY_TABS[self.tab]

    def go_by(self, by: int) -> None:
        self.go_to(TABS[(TABS.index(self.tab) + by) % len(TABS)])

    def go_to(self, tab: Tab) -> None:
        self.tab, self._category = tab, ""

    def next_scope(self) -> None:
        self._scope = SCOPES[(SCOPES.index(self._scope) + 1) % len(SCOPES)]

    def next_category(self) -> None:
        there = ["", *sorted({row.category for row in self._rows.get(self.tab, ()) if row.category})]
        place = there.index(self._category) if self._category in there else -1
        self._category = there[(place + 1) % len(there)]

    def listed(self, key: str) -> ListedEntry | None:
        """The note or core line of a row; None for other rows."""
        return self._listed.get(key)

    async def page(self, row: MemoryRow | None) -> MemoryPage:
        """The page of a row.

        Raises:
            OuroError: it does not exist any more.
        """
        if row is None:
            return MemoryPage()
        if self.tab == "timeline":
            return await pages.followed_page(self._memory, PageLink("commit", row.key))
        if self.tab == "proposals":
            return pages.proposal_page(self._proposals[row.key])
        if self.tab == "receipt":
            return await self._receipt_page(row)
        listed = self._listed[row.key]
        if listed.kind == "note":
            return await pages.followed_page(self._memory, PageLink("note", listed.id))
        blame = await self._memory.ask(lambda timeline: timeline.blame(f"{listed.scope}/{listed.name}"))
        return pages.core_page(listed, blame.lines)

    async def _receipt_page(self, row: MemoryRow) -> MemoryPage:
        assert self._recalled is not None
        assert self._receipt is not None
        item = next((note for note in self._recalled.items if note.id == row.key), None)
        if item is None:
            return pages.receipt_page(self._receipt.lines[int(row.key.removeprefix("line "))])
        page = pages.recalled_page(item, self._recalled)
        if item.id in self._listed:
            page.lines += (await pages.followed_page(self._memory, PageLink("note", item.id))).lines
        return page


def _note_tabs(listed: Sequence[ListedEntry]) -> tuple[dict[str, ListedEntry], dict[Tab, list[MemoryRow]]]:
    tabs: tuple[Tab, ...] = ("notes", "core", "archive")
    return {row_key(item): item for item in listed}, {tab: note_rows(listed, tab) for tab in tabs}


Tab = Literal["notes", "core", "timeline", "archive", "receipt", "proposals"]
TABS: tuple[Tab, ...] = ("notes", "core", "timeline", "archive", "receipt", "proposals")
Scopes = Literal["all", "user", "repo"]
SCOPES: tuple[Scopes, ...] = ("all", "user", "repo")
WRITERS: Mapping[str, str] = {"agent": "the agent", "person": "you", "consolidation": "a model"}
"""The author by the origin of a commit; other origins are shown as they are."""
_CHANGED = re.compile(r"changed (\d+) times?")
_MARK = re.compile(r"^([-+] )?[-*+] ")
_OUT_OF_FORCE = frozenset(("archived", "replaced"))


def note_rows(listed: Iterable[ListedEntry], tab: Tab) -> list[MemoryRow]:
    """Notes in force, lines of the core, or archived notes."""
    fits: Mapping[Tab, Callable[[ListedEntry], bool]] = {
        "notes": lambda item: item.kind == "note" and _OUT_OF_FORCE.isdisjoint(item.badges),
        "core": lambda item: item.kind == "core",
        "archive": lambda item: "archived" in item.badges,
    }
    return [_note_row(item, tab) for item in listed if fits[tab](item)]


def row_key(listed: ListedEntry) -> str:
    return listed.id if listed.kind == "note" else f"{listed.scope}/{listed.name}:{listed.line}"


def log_rows(entries: Iterable[TimelineEntry]) -> list[MemoryRow]:
    rows = []
    for entry in entries:
        commit, who = entry.commit, writer(entry.commit)
        searched = f"{commit.subject} {who} {commit.id} {entry.scope} {' '.join(commit.paths)} {commit.at}".lower()
        rows.append(
            MemoryRow(commit.id, entry.scope, _line(commit.subject), commit.at[5:10], who, searched, who, False)
        )
    return rows


def receipt_rows(recalled: NotesRecalled, receipt: MemoryReceipt) -> list[MemoryRow]:
    """The notes considered for the last message, then the core in every prompt."""
    rows = []
    for item in recalled.items:
        text = _line(item.text) or f"{item.id[:12]} (deleted since)"
        searched = f"{text} {item.id} {item.state} {item.reason} {item.scope}".lower()
        shown = f"{SIGNS[item.state]} {text}"
        rows.append(MemoryRow(item.id, item.scope, shown, "", f"{item.state}: {item.reason}", searched, "recalled"))
    for number, line in enumerate(receipt.lines):
        text = _item(line.text) or f"the whole of {line.file}"
        about = f"{line.state}: {line.reason}" if line.reason else line.file
        searched = f"{text} {line.file} {line.state} {line.reason} {line.scope}".lower()
        shown = f"{SIGNS[line.state]} {text}"
        rows.append(MemoryRow(f"line {number}", line.scope, shown, "", about, searched, "in each prompt"))
    return rows


def proposal_rows(proposals: Iterable[Proposal]) -> list[MemoryRow]:
    """Pending changes: the lines that would change."""
    rows = []
    for proposal in proposals:
        changed = "; ".join(_gist(edit) for edit in proposal.edits)
        named = " ".join(edit.name for edit in proposal.edits)
        searched = f"{changed} {named} {proposal.reason} {proposal.scope} {proposal.id}".lower()
        rows.append(MemoryRow(proposal.id, proposal.scope, changed, "pending", "", searched, proposal.origin))
    return rows


def _gist(edit: FileEdit) -> str:
    """The added lines, else the removed ones."""
    lines = changed_lines(edit)
    new = [line for line in lines if line[0] == "+"]
    return " ".join(map(_item, new or lines)) or edit.name


def changed_lines(edit: FileEdit) -> list[str]:
    """The changed lines of a file with `-` or `+`; of a note only its text, if that changed."""
    before, after = edit.before or "", edit.after or ""
    if words_of(before) != words_of(after):
        before, after = words_of(before), words_of(after)
    lines = list(unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]
    return [f"{line[:1]} {line[1:]}" for line in lines if line[1:].strip() and not line.startswith("@@")]


def words_of(text: str) -> str:
    """A note without its front matter; any other text as it is."""
    front, mark, words = text.partition("\n---\n")
    return words if mark and front.startswith("---") else text


def narrowed(rows: Sequence[MemoryRow], text: str, scope: Scopes, category: str = "") -> list[MemoryRow]:
    words = text.lower().split()
    return [
        row
        for row in rows
        if scope in ("all", row.scope)
        and category in ("", row.category)
        and all(word in row.searched for word in words)
    ]


def writer(commit: Commit) -> str:
    return WRITERS.get(commit.origin, commit.origin)


def said_lines(said: TurnEvidence) -> Iterator[tuple[str, str]]:
    """A turn: speaker and text of each message."""
    names = {"user": "you", "assistant": "ouro"}
    for who, text in said.words:
        yield names.get(who, who), clean(text).strip()


def _note_row(item: ListedEntry, tab: Tab) -> MemoryRow:
    badges = [badge for badge in item.badges if badge != "archived"] if tab == "archive" else item.badges
    flag = " · ".join(_CHANGED.sub(r"changed \1×", badge) for badge in badges)
    searched = f"{item.text} {item.category} {item.scope} {item.id} {' '.join(item.badges)} {item.name}".lower()
    text = _item(item.text) if tab == "core" else _line(item.text)
    return MemoryRow(row_key(item), item.scope, text, flag, item.category, searched, item.category)


def _item(text: str) -> str:
    return _MARK.sub(r"\1", _line(text))


def _line(text: str) -> str:
    return " ".join(clean(text).split())
