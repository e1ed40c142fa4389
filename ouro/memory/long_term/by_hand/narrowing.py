"""Lists of what is remembered: narrowed by scope or category, and one entry told whole."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ouro.errors import UsageError
from ouro.memory.long_term.by_hand.desk import Desk
from ouro.memory.long_term.by_hand.entries import Entry, all_entries, chain_of, find_entry, note_entries
from ouro.memory.long_term.git.values import CORE
from ouro.memory.long_term.notes.anchors import Anchors
from ouro.memory.long_term.notes.notebook import Kept


class Told(msgspec.Struct, frozen=True):
    """One entry, with all that is known of it."""

    entry: Entry
    path: str
    chain: tuple[Entry, ...] = ()
    """All versions, oldest first; empty for a core line."""
    note: Kept | None = None
    stale: tuple[str, ...] = ()
    """The files that it speaks of and that are not as they were."""


def listed(desk: Desk, what: str = "") -> list[Entry]:
    """The entries of a scope, a category, both (`repo patterns`), or a badge (`archived`); without a word all in use.

    Raises:
        UsageError: there is no such scope or category.
    """
    words = what.lower().replace("/", " ").replace(".md", "").split()
    entries = all_entries(desk, archived=True)
    for word in words:
        found = [each for each in entries if word in (each.scope, each.category, each.kind, *each.badges)]
        known = {"core", "note", "archived", "replaced", "contradicted", "unconfirmed", *desk.names, *CORE}
        known |= {each.category for each in all_entries(desk, archived=True)}
        if not found and word not in known:
            raise UsageError(f"There is no scope or category {word[:40]}.", f"There are {', '.join(sorted(known))}.")
        entries = found
    hidden = {"archived", "replaced"} - set(words)
    return [each for each in entries if not hidden & set(each.badges)]


def told(desk: Desk, named: str) -> Told:
    """One entry whole.

    Raises:
        UsageError: none is called so.
    """
    entry = find_entry(desk, named)
    folder = desk.scope(entry.scope).store.folder
    if entry.kind == "core":
        return Told(entry, str(folder / entry.file))
    kept = desk.notebook.find(entry.id)
    stale = Anchors(desk.root).changed(kept.note.anchors) if desk.root else ()
    chain = tuple(chain_of(note_entries(desk), entry))
    return Told(entry, str(folder / entry.file), chain, kept, stale)


def counts(entries: Sequence[Entry]) -> dict[str, int]:
    """How many entries each `scope/category` has."""
    found: dict[str, int] = {}
    for each in entries:
        key = f"{each.scope}/{each.category}"
        found[key] = found.get(key, 0) + 1
    return found
