"""What is listed of long-term memory, as rows that can be narrowed down: one way for every front end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import TYPE_CHECKING, Literal

from ouro.frontends.memory_receipt import SIGNS
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.events import NotesRecalled
    from ouro.session import Commit, FileEdit, Listed, MemoryReceipt, Proposal, SaidTurn, TimelineEntry

Tab = Literal["notes", "core", "timeline", "archive", "receipt", "proposals"]
TABS: tuple[Tab, ...] = ("notes", "core", "timeline", "archive", "receipt", "proposals")
Scopes = Literal["all", "user", "repo"]
SCOPES: tuple[Scopes, ...] = ("all", "user", "repo")
WRITERS: Mapping[str, str] = {"agent": "the agent", "person": "you", "consolidation": "a model"}
"""Who wrote it, in the reader's words, by the origin of a commit; the others are called as they are."""
_CHANGED = re.compile(r"changed (\d+) times?")
_MARK = re.compile(r"^([-+] )?[-*+] ")
_OUT_OF_FORCE = frozenset(("archived", "replaced"))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a list."""

    key: str
    """Of the note, core line, commit or proposal."""
    scope: str
    text: str
    flag: str
    """What is to be seen at once."""
    about: str
    """What is said behind that, where there is room."""
    searched: str
    """What typing looks through, in small letters."""
    category: str = ""
    """What it can be chosen by: the category; of a commit, who made it."""
    warns: bool = True
    """The flag says that something is not as it should be."""


def note_rows(listed: Iterable[Listed], tab: Tab) -> list[Row]:
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


def log_rows(entries: Iterable[TimelineEntry]) -> list[Row]:
    """Commits."""
    rows = []
    for each in entries:
        commit, who = each.commit, writer(each.commit)
        searched = f"{commit.subject} {who} {commit.id} {each.scope} {' '.join(commit.paths)} {commit.at}".lower()
        rows.append(Row(commit.id, each.scope, _line(commit.subject), commit.at[5:10], who, searched, who, False))
    return rows


def receipt_rows(recalled: NotesRecalled, receipt: MemoryReceipt) -> list[Row]:
    """What was considered for the last message, then what of the core stands in every prompt."""
    rows = []
    for item in recalled.items:
        text = _line(item.text) or f"{item.id[:12]}, gone since"
        searched = f"{text} {item.id} {item.state} {item.reason} {item.scope}".lower()
        shown = f"{SIGNS[item.state]} {text}"
        rows.append(Row(item.id, item.scope, shown, "", f"{item.state}: {item.reason}", searched, "recalled"))
    for number, line in enumerate(receipt.lines):
        text = _item(line.text) or f"the whole of {line.file}"
        about = f"{line.state}: {line.reason}" if line.reason else line.file
        searched = f"{text} {line.file} {line.state} {line.reason} {line.scope}".lower()
        shown = f"{SIGNS[line.state]} {text}"
        rows.append(Row(f"line {number}", line.scope, shown, "", about, searched, "in each prompt"))
    return rows


def proposal_rows(proposals: Iterable[Proposal]) -> list[Row]:
    """What waits for the person: the lines that would change."""
    rows = []
    for each in proposals:
        changed = "; ".join(_gist(edit) for edit in each.edits)
        named = " ".join(edit.name for edit in each.edits)
        searched = f"{changed} {named} {each.reason} {each.scope} {each.id}".lower()
        rows.append(Row(each.id, each.scope, changed, "waits", "", searched, each.origin))
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


def narrowed(rows: Sequence[Row], text: str, scope: Scopes, category: str = "") -> list[Row]:
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


def said_lines(said: SaidTurn) -> Iterator[tuple[str, str]]:
    """A turn: who, and what."""
    names = {"user": "you", "assistant": "ouro"}
    for who, text in said.words:
        yield names.get(who, who), clean(text).strip()


def _note_row(each: Listed, tab: Tab) -> Row:
    badges = [badge for badge in each.badges if badge != "archived"] if tab == "archive" else each.badges
    flag = " · ".join(_CHANGED.sub(r"changed \1×", badge) for badge in badges)
    searched = f"{each.text} {each.category} {each.scope} {each.id} {' '.join(each.badges)} {each.name}".lower()
    text = _item(each.text) if tab == "core" else _line(each.text)
    return Row(row_key(each), each.scope, text, flag, each.category, searched, each.category)


def _item(text: str) -> str:
    """Without the mark of its list."""
    return _MARK.sub(r"\1", _line(text))


def _line(text: str) -> str:
    return " ".join(clean(text).split())
