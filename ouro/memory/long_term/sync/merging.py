"""Two versions of one memory file made one, so that nothing that either side wrote is lost."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ouro.memory.long_term.notes.note import Edge, Note, is_note_name, note_text, parse_note


class Merged(msgspec.Struct, frozen=True):
    """What a file is to hold."""

    text: str | None
    """None: it goes."""
    also: str = ""
    """The other version, where both are to be kept: the text of a note of its own."""
    also_name: str = ""
    conflict: str = ""
    """What the person is to be told."""


def merge(name: str, base: str | None, ours: str | None, theirs: str | None) -> Merged:
    """The file `name`, of which `base` was the last version that both sides knew (None: it was not there).

    What only one side changed is as that side has it. Core files are united line by line, with the lines that either
    side has removed gone; a file that is gone has none. A note that one side changed and the other removed stays. One
    that both have changed keeps the later version, and the other one beside it where it says something else.
    """
    if ours == theirs or theirs == base:
        return Merged(ours)
    if ours == base:
        return Merged(theirs)
    is_note = is_note_name(name.rpartition("/")[2])
    if is_note and (ours is None or theirs is None):
        return Merged(theirs if ours is None else ours, conflict=f"{name} was changed here and removed there: it stays")
    if is_note and ours is not None and theirs is not None:
        return _merge_notes(name, ours, theirs)
    return Merged(united(base or "", ours or "", theirs or "") or None)


def united(base: str, ours: str, theirs: str) -> str:
    """The lines of both; a line of `base` that one side has removed is gone, one that it only moved is not.

    They stand as in `ours`, each line that only `theirs` has behind the one that it stands behind there. Where both
    changed a line, both versions stand.
    """
    mine, other = ours.splitlines(), theirs.splitlines()
    gone = {line for line in base.splitlines() if line not in mine or line not in other}
    lines = [line for line in mine if line not in gone or not line.strip()]
    at = 0
    for line in other:
        if not line.strip() or line in gone:
            continue
        if line not in lines:
            lines.insert(at, line)
        at = lines.index(line) + 1
    return "\n".join(_without_double_blanks(lines)) + "\n" if lines else ""


def _without_double_blanks(lines: Sequence[str]) -> list[str]:
    return [line for place, line in enumerate(lines) if line.strip() or (place and lines[place - 1].strip())]


def _merge_notes(name: str, ours: str, theirs: str) -> Merged:
    mine, other = parse_note(_base(name), ours).note, parse_note(_base(name), theirs).note
    newer, older = (mine, other) if mine.updated_at >= other.updated_at else (other, mine)
    if " ".join(mine.text.split()) == " ".join(other.text.split()):
        sure = max(mine.confidence, other.confidence)
        confirmed = max(mine.confirmed_at, other.confirmed_at)
        return Merged(note_text(replace(newer, confidence=sure, confirmed_at=confirmed)))
    kept = _beside(older, newer)
    told = f"{name} was changed on both sides: the later version counts, the other one is {kept.id}"
    return Merged(note_text(newer), note_text(kept), kept.file_name, told)


def _beside(older: Note, newer: Note) -> Note:
    # The same on every machine that merges these two, and in a merge that was ended and is made again.
    number = hashlib.sha256(f"{newer.id}\0{older.text}".encode(errors="replace")).hexdigest()[:32]
    return replace(older, id=f"mem_{number}", related=(*older.related, Edge(newer.id, "contradicts")))


def _base(name: str) -> str:
    return name.rpartition("/")[2]
