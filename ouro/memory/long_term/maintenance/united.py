"""One note out of several: what each of them knows beside its text."""

from __future__ import annotations

from collections.abc import Sequence

from ouro.memory.long_term.notes.note import Edge, Note, new_id

_MOST_ENTITIES = 24
_MOST_RELATIONS = 16


def united(notes: Sequence[Note], text: str, category: str, entities: Sequence[str] = ()) -> Note:
    """The note that takes the place of the last of `notes`, and says what all of them say.

    It is the person's only where all of them are; edges lead from it to those that go to the archive.
    """
    newest, ids = notes[-1], {each.id for each in notes}
    outside = [edge for each in notes for edge in each.related if edge.id not in ids]
    archived = [Edge(each.id, "relates-to") for each in notes[:-1]]
    named = [*entities, *(name for each in reversed(notes) for name in each.entities)]
    relations = dict.fromkeys(relation for each in reversed(notes) for relation in each.relations)
    return Note(
        id=new_id(),
        version=newest.version + 1,
        scope=newest.scope,
        category=category,
        supersedes=newest.id,
        related=tuple(dict.fromkeys([*outside, *archived])),
        session_id=newest.session_id,
        turn=newest.turn,
        trigger="consolidation",
        source="user" if all(each.source == "user" for each in notes) else "assistant",
        confidence=max(each.confidence for each in notes),
        confirmed_at=max(each.confirmed_at for each in notes),
        branch=newest.branch,
        entities=tuple(dict.fromkeys(named))[:_MOST_ENTITIES],
        relations=tuple(relations)[:_MOST_RELATIONS],
        anchors=tuple({anchor.path: anchor for each in notes for anchor in each.anchors}.values()),
        text=text,
    )
