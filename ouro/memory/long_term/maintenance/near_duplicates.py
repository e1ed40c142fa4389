"""Near-duplicates: notes that say about the same. Asks no model; what it finds, a model has to confirm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations

from rapidfuzz import fuzz, process

from ouro.memory.long_term.notes.note import Note

MOST_IN_A_CLUSTER = 8
_SAME_WORDS = 75
"""Of 100: the share of one text's words that the other has too."""
_ALIKE = 55
"""Of 100: how alike the two texts are, with the words in one order."""
_NEIGHBOURS = 12
Alike = Callable[[Note], Collection[str]]
"""The ids of notes that mean about the same; none where there are no vectors. May block."""
Clusters = Sequence[tuple[Note, ...]]


def clusters(
    notes: Sequence[Note],
    fresh: Collection[str],
    alike: Alike = lambda _note: (),
    check: Callable[[int, int], None] = lambda _done, _all: None,
) -> Clusters:
    """Groups of 2 to 8 notes that may be one; each of one scope and one branch, oldest first.

    Args:
        notes: all that may be merged: neither superseded nor archived ones, nor what waits for the person.
        fresh: the ids of those whose likes are looked for.
        alike: finds what is close in meaning.
        check: told how many of `fresh` were looked at; what it raises ends the work.
    """
    known = {each.id: each for each in notes}
    groups: dict[tuple[str, str], list[Note]] = defaultdict(list)
    for each in notes:
        groups[each.scope, each.branch or ""].append(each)
    joined: dict[str, set[str]] = {each.id: {each.id} for each in notes}
    wanted = [each for each in notes if each.id in fresh]
    words = {place: {each.id: plain(each.text) for each in group} for place, group in groups.items()}
    for done, note in enumerate(wanted):
        check(done, len(wanted))
        here = words[note.scope, note.branch or ""]
        near = dict.fromkeys([*_by_words(note, here), *(each for each in alike(note) if each in here)])
        for other in near:
            _join(joined, note.id, other, known)
    found = {id(each): each for each in joined.values() if len(each) > 1}
    ordered = [tuple(sorted((known[each] for each in group), key=age)) for group in found.values()]
    return sorted(ordered, key=lambda group: age(group[0]))


def age(note: Note) -> tuple[str, str]:
    """What older notes have less of."""
    return note.updated_at or note.created_at, note.id


def plain(text: str) -> str:
    """The words of a text, as they are compared."""
    return " ".join(text.casefold().split()).rstrip(".!")


def _by_words(note: Note, texts: Mapping[str, str]) -> Iterator[str]:
    own = texts[note.id]
    found = process.extract(own, texts, scorer=fuzz.token_set_ratio, score_cutoff=_SAME_WORDS, limit=_NEIGHBOURS)
    for text, _, note_id in found:
        if note_id != note.id and fuzz.token_sort_ratio(own, text) >= _ALIKE:
            yield note_id


def _join(joined: dict[str, set[str]], one: str, other: str, known: Mapping[str, Note]) -> None:
    """Put the groups of two notes together, unless that is too many, or two of them contradict each other."""
    group = joined[one] | joined[other]
    if one == other or len(group) > MOST_IN_A_CLUSTER or _has_contradiction(group, known):
        return
    for each in group:
        joined[each] = group


def _has_contradiction(group: Collection[str], known: Mapping[str, Note]) -> bool:
    """The person is asked about those: nothing is merged over their head."""
    return any(_contradicts(known[a], b) or _contradicts(known[b], a) for a, b in combinations(group, 2))


def _contradicts(note: Note, other: str) -> bool:
    return any(each.id == other and each.relationship == "contradicts" for each in note.related)
