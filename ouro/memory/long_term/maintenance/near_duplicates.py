"""Near-duplicates: clusters of notes with similar text or vectors. A model confirms them before they are merged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations

from rapidfuzz import fuzz, process

from ouro.memory.long_term.notes.note import Note

MAX_CLUSTER = 8
_SAME_WORDS = 75
"""Of 100: the share of one text's words that the other has too."""
_ALIKE = 55
"""Of 100: how alike the two texts are, with the words in one order."""
_NEIGHBOURS = 12
Alike = Callable[[Note], Collection[str]]
"""Returns the ids of notes that mean about the same; none without vectors. May block."""
Clusters = Sequence[tuple[Note, ...]]


def clusters(
    notes: Sequence[Note],
    fresh: Collection[str],
    alike: Alike = lambda _note: (),
    check: Callable[[int, int], None] = lambda _done, _all: None,
) -> Clusters:
    """Clusters of 2 to 8 notes of one scope and branch, oldest first.

    Args:
        notes: those that may be merged: not superseded, archived or pending.
        fresh: the ids of the notes to find duplicates of.
        alike: finds notes of similar meaning.
        check: called with (done, total) of `fresh`; what it raises ends the work.
    """
    known = {note.id: note for note in notes}
    groups: dict[tuple[str, str], list[Note]] = defaultdict(list)
    for note in notes:
        groups[note.scope, note.branch or ""].append(note)
    joined: dict[str, set[str]] = {note.id: {note.id} for note in notes}
    wanted = [note for note in notes if note.id in fresh]
    words = {place: {note.id: plain(note.text) for note in group} for place, group in groups.items()}
    for done, note in enumerate(wanted):
        check(done, len(wanted))
        here = words[note.scope, note.branch or ""]
        near = dict.fromkeys([*_by_words(note, here), *(other for other in alike(note) if other in here)])
        for other in near:
            _join(joined, note.id, other, known)
    found = {id(group): group for group in joined.values() if len(group) > 1}
    ordered = [tuple(sorted((known[note_id] for note_id in group), key=age)) for group in found.values()]
    return sorted(ordered, key=lambda group: age(group[0]))


def age(note: Note) -> tuple[str, str]:
    return note.updated_at or note.created_at, note.id


def plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".!")


def _by_words(note: Note, texts: Mapping[str, str]) -> Iterator[str]:
    own = texts[note.id]
    found = process.extract(own, texts, scorer=fuzz.token_set_ratio, score_cutoff=_SAME_WORDS, limit=_NEIGHBOURS)
    for text, _, note_id in found:
        if note_id != note.id and fuzz.token_sort_ratio(own, text) >= _ALIKE:
            yield note_id


def _join(joined: dict[str, set[str]], one: str, other: str, known: Mapping[str, Note]) -> None:
    """Join the groups of two notes, unless the result is too large or two of its notes contradict each other."""
    group = joined[one] | joined[other]
    if one == other or len(group) > MAX_CLUSTER or _has_contradiction(group, known):
        return
    for note_id in group:
        joined[note_id] = group


def _has_contradiction(group: Collection[str], known: Mapping[str, Note]) -> bool:
    return any(_contradicts(known[a], b) or _contradicts(known[b], a) for a, b in combinations(group, 2))


def _contradicts(note: Note, other: str) -> bool:
    return any(edge.id == other and edge.relationship == "contradicts" for edge in note.related)
