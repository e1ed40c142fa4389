"""What a person wants forgotten: found, shown, and taken out of use. The history of git keeps it (see true forget)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ouro.errors import SearchUnavailable, UsageError
from ouro.events import CoreChanged
from ouro.memory.long_term.by_hand.desk import Desk
from ouro.memory.long_term.by_hand.entries import Entry, all_entries, chain_of, note_entries, plain
from ouro.memory.long_term.by_hand.remember import MOST_CHARACTERS, folded
from ouro.memory.long_term.git.files import ARCHIVE
from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.notes.note import note_text
from ouro.utils.log import log
from ouro.utils.text import one_line

MOST_FOUND = 20
_SHARE = 0.6
"""Of the best hit's score: what is worth less has to do with something else."""


class Forgotten(msgspec.Struct, frozen=True):
    """What went."""

    entries: tuple[Entry, ...]
    changes: tuple[CoreChanged, ...]
    """One for each scope; each can be undone."""


def fitting(desk: Desk, text: str) -> list[Entry]:
    """What would go: the entry of that id, else those that hold all the words, else what the search finds.

    Raises:
        UsageError: nothing was said.
    """
    words = folded(text[:MOST_CHARACTERS]).split()
    entries = all_entries(desk)
    if not words:
        raise UsageError(
            "Say what to forget: words of it, or its id.", commands=["memory forget the staging password rule"]
        )
    named = [each for each in entries if _is_named(each, text.strip())]
    if named:
        return named
    holding = [each for each in entries if set(words) <= set(folded(each.text).split())]
    return (holding or _found(desk, text, entries))[:MOST_FOUND]


def forget(desk: Desk, entries: Sequence[Entry]) -> Forgotten:
    """Take core lines out, and put notes into the archive with all that came before them: one commit a scope.

    Raises:
        UsageError: a line is not there any more.
        LongTermMemoryError, OSError: it could not be written.
    """
    done = []
    for scope in desk.names:
        own = [each for each in entries if each.scope == scope]
        changes = {**_without_lines(desk, scope, own), **_put_away(desk, scope, own)}
        if changes and (event := desk.write(scope, changes, f"Forget: {one_line('; '.join(e.text for e in own), 80)}")):
            done.append(event)
    return Forgotten(tuple(entries), tuple(done))


def _is_named(entry: Entry, text: str) -> bool:
    return text == entry.id or (text.startswith("mem_") and len(text) >= 8 and entry.id.startswith(text))


def _found(desk: Desk, text: str, entries: list[Entry]) -> list[Entry]:
    """By the search: stems, spelling, rarity."""
    if desk.index is None:
        return []
    from ouro.memory.index.search import Search, SearchFilter

    places = {f"{desk.scope(each.scope).store.folder}/{each.file}": each for each in entries if each.kind == "note"}
    lines = {(f"{desk.scope(e.scope).store.folder}/{e.file}", e.line): e for e in entries if e.kind == "core"}
    try:
        hits = Search(desk.index(), None).find(text, MOST_FOUND, SearchFilter(kinds=("note", "core")))
    except SearchUnavailable as error:
        log.warning("forget looks for words only: %s", error)
        return []
    least = hits[0].score * _SHARE if hits else 0.0
    found = [places.get(h.path) or lines.get((h.path, h.number)) for h in hits if h.score >= least]
    return [each for each in found if each is not None]


def _without_lines(desk: Desk, scope: Scope, entries: Sequence[Entry]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for name in dict.fromkeys(each.file for each in entries if each.kind == "core"):
        lines = desk.text(scope, name).splitlines()
        for each in sorted((e for e in entries if e.file == name), key=lambda e: -e.line):
            if each.line > len(lines) or plain(lines[each.line - 1]) != each.text:
                raise UsageError(f"{each.id} has changed meanwhile.", "Look again.")
            del lines[each.line - 1]
        text = "\n".join(lines).strip("\n")
        changes[name] = f"{text}\n" if text.strip() else None
    return changes


def _put_away(desk: Desk, scope: Scope, entries: Sequence[Entry]) -> dict[str, str | None]:
    notes = [each for each in entries if each.kind == "note"]
    known = note_entries(desk) if notes else []
    chains = {each.id: each for note in notes for each in chain_of(known, note) if each.scope == scope}
    changes: dict[str, str | None] = {}
    for each in chains.values():
        if not each.archived:
            kept = desk.notebook.find(each.id)
            changes |= {kept.name: None, f"{ARCHIVE}/{kept.note.file_name}": note_text(kept.note)}
    return changes
