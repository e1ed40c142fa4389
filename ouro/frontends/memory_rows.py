"""What is listed of long-term memory, as rows that can be narrowed down: one way for every front end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ouro.utils.terminal_text import clean

if TYPE_CHECKING:
    from ouro.session import Commit, Entry, Listed, Proposal, SaidTurn

Tab = Literal["notes", "core", "timeline", "archive", "proposals"]
TABS: tuple[Tab, ...] = ("notes", "core", "timeline", "archive", "proposals")
Scopes = Literal["all", "user", "repo"]
SCOPES: tuple[Scopes, ...] = ("all", "user", "repo")
WRITERS: Mapping[str, str] = {"agent": "the agent", "person": "you", "consolidation": "merged by a model"}
"""Who wrote it, in the reader's words, by the origin of a commit; the others are called as they are."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a list."""

    key: str
    """Of the note, core line, commit or proposal."""
    scope: str
    text: str
    about: str
    """Badges, or what else is to be seen at once."""
    searched: str
    """What typing looks through, in small letters."""


def note_rows(listed: Iterable[Listed], tab: Tab) -> list[Row]:
    """Notes in force, lines of the core, or what is in the archive."""
    fits: Mapping[Tab, Callable[[Listed], bool]] = {
        "notes": lambda each: each.kind == "note" and not {"archived", "replaced"} & set(each.badges),
        "core": lambda each: each.kind == "core",
        "archive": lambda each: "archived" in each.badges,
    }
    return [_note_row(each) for each in listed if fits[tab](each)]


def row_key(listed: Listed) -> str:
    """What a note, or a line of the core, is known by."""
    return listed.id if listed.kind == "note" else f"{listed.scope}/{listed.name}:{listed.line}"


def log_rows(entries: Iterable[Entry]) -> list[Row]:
    """Commits."""
    rows = []
    for each in entries:
        commit, who = each.commit, writer(each.commit)
        about = f"{who} {commit.at[5:10]}"
        searched = f"{commit.subject} {who} {commit.id} {each.scope} {' '.join(commit.paths)} {commit.at}".lower()
        rows.append(Row(commit.id, each.scope, _line(commit.subject), about, searched))
    return rows


def proposal_rows(proposals: Iterable[Proposal]) -> list[Row]:
    """What waits for the person."""
    rows = []
    for each in proposals:
        changed = "; ".join(f"{edit.name}: {' '.join((edit.after or 'removed').split())}" for edit in each.edits)
        rows.append(Row(each.id, each.scope, _line(changed), "waits", f"{changed} {each.reason} {each.scope}".lower()))
    return rows


def narrowed(rows: Sequence[Row], text: str, scope: Scopes) -> list[Row]:
    """Those that hold all these words, of that scope."""
    words = text.lower().split()
    return [
        row for row in rows if scope in ("all", row.scope) and all(word in row.searched for word in words)
    ]  # fmt: skip


def writer(commit: Commit) -> str:
    """Who made a commit."""
    return WRITERS.get(commit.origin, commit.origin)


def said_lines(said: SaidTurn) -> Iterator[tuple[str, str]]:
    """A turn: who, and what."""
    names = {"user": "you", "assistant": "ouro"}
    for who, text in said.words:
        yield names.get(who, who), clean(text).strip()


def _note_row(each: Listed) -> Row:
    badges = " · ".join(each.badges)
    about = badges or each.category
    searched = f"{each.text} {each.category} {each.scope} {each.id} {badges} {each.name}".lower()
    return Row(row_key(each), each.scope, _line(each.text), about, searched)


def _line(text: str) -> str:
    return " ".join(clean(text).split())
