"""MemoryContents: what the memory browser has to show, tab by tab, narrowed down to what was asked for."""

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
    from ouro.session import Browsing, Commit, FileEdit, Listed, MemoryReceipt, Proposal, TimelineEntry, TurnEvidence

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
        self._rows: dict[Tab, list[MemoryRow]] = {}

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

    def found(self, text: str) -> list[MemoryRow]:
        """The rows of the open tab that hold these words."""
        return narrowed(self._rows.get(self.tab, []), text, self._scope, self._category)

    def count(self, found: Sequence[MemoryRow]) -> str:
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

    async def page(self, row: MemoryRow | None) -> MemoryPage:
        """All there is to tell of a row.

        Raises:
            OuroError: it is not there any more.
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
        item = next((each for each in self._recalled.items if each.id == row.key), None)
        if item is None:
            return pages.receipt_page(self._receipt.lines[int(row.key.removeprefix("line "))])
        page = pages.recalled_page(item, self._recalled)
        if item.id in self._listed:
            page.lines += (await pages.followed_page(self._memory, PageLink("note", item.id))).lines
        return page


def _note_tabs(listed: Sequence[Listed]) -> tuple[dict[str, Listed], dict[Tab, list[MemoryRow]]]:
    """Ten thousand of them take a moment."""
    tabs: tuple[Tab, ...] = ("notes", "core", "archive")
    return {row_key(each): each for each in listed}, {tab: note_rows(listed, tab) for tab in tabs}


Tab = Literal["notes", "core", "timeline", "archive", "receipt", "proposals"]
TABS: tuple[Tab, ...] = ("notes", "core", "timeline", "archive", "receipt", "proposals")
Scopes = Literal["all", "user", "repo"]
SCOPES: tuple[Scopes, ...] = ("all", "user", "repo")
WRITERS: Mapping[str, str] = {"agent": "the agent", "person": "you", "consolidation": "a model"}
"""Who wrote it, in the reader's words, by the origin of a commit; the others are called as they are."""
_CHANGED = re.compile(r"changed (\d+) times?")
_MARK = re.compile(r"^([-+] )?[-*+] ")
_OUT_OF_FORCE = frozenset(("archived", "replaced"))


def note_rows(listed: Iterable[Listed], tab: Tab) -> list[MemoryRow]:
    """Notes in force, lines of the core, or what is in the archive."""
    fits: Mapping[Tab, Callable[[Listed], bool]] = {
        "notes": lambda each: each.kind == "note" and _OUT_OF_FORCE.isdisjoint(each.badges),
        "core": lambda each: each.kind == "core",
        "archive": lambda each: "archived" in each.badges,
    }
    return [_note_row(each, tab) for each in listed if fits[tab](each)]


def row_key(listed: Listed) -> str:
    """What a note, or a line of the core, is known by."""
    return listed.id if listed.kind == "note" else f"{listed.scope}/{listed.name}:{listed.line}"


def log_rows(entries: Iterable[TimelineEntry]) -> list[MemoryRow]:
    """Commits."""
    rows = []
    for each in entries:
        commit, who = each.commit, writer(each.commit)
        searched = f"{commit.subject} {who} {commit.id} {each.scope} {' '.join(commit.paths)} {commit.at}".lower()
        rows.append(MemoryRow(commit.id, each.scope, _line(commit.subject), commit.at[5:10], who, searched, who, False))
    return rows


def receipt_rows(recalled: NotesRecalled, receipt: MemoryReceipt) -> list[MemoryRow]:
    """What was considered for the last message, then what of the core stands in every prompt."""
    rows = []
    for item in recalled.items:
        text = _line(item.text) or f"{item.id[:12]}, gone since"
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
    """What waits for the person: the lines that would change."""
    rows = []
    for each in proposals:
        changed = "; ".join(_gist(edit) for edit in each.edits)
        named = " ".join(edit.name for edit in each.edits)
        searched = f"{changed} {named} {each.reason} {each.scope} {each.id}".lower()
        rows.append(MemoryRow(each.id, each.scope, changed, "waits", "", searched, each.origin))
    return rows


def _gist(edit: FileEdit) -> str:
    """What comes new, else what goes."""
    lines = changed_lines(edit)
    new = [line for line in lines if line[0] == "+"]
    return " ".join(map(_item, new or lines)) or edit.name


def changed_lines(edit: FileEdit) -> list[str]:
    """What becomes of a file, line by line behind a `-` or `+`; of a note its words, as long as they change."""
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
    """Those that hold all these words, of that scope and category."""
    words = text.lower().split()
    return [
        row
        for row in rows
        if scope in ("all", row.scope)
        and category in ("", row.category)
        and all(word in row.searched for word in words)
    ]


def writer(commit: Commit) -> str:
    """Who made a commit."""
    return WRITERS.get(commit.origin, commit.origin)


def said_lines(said: TurnEvidence) -> Iterator[tuple[str, str]]:
    """A turn: who, and what."""
    names = {"user": "you", "assistant": "ouro"}
    for who, text in said.words:
        yield names.get(who, who), clean(text).strip()


def _note_row(each: Listed, tab: Tab) -> MemoryRow:
    badges = [badge for badge in each.badges if badge != "archived"] if tab == "archive" else each.badges
    flag = " · ".join(_CHANGED.sub(r"changed \1×", badge) for badge in badges)
    searched = f"{each.text} {each.category} {each.scope} {each.id} {' '.join(each.badges)} {each.name}".lower()
    text = _item(each.text) if tab == "core" else _line(each.text)
    return MemoryRow(row_key(each), each.scope, text, flag, each.category, searched, each.category)


def _item(text: str) -> str:
    """Without the mark of its list."""
    return _MARK.sub(r"\1", _line(text))


def _line(text: str) -> str:
    return " ".join(clean(text).split())
