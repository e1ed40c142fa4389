"""A note that says otherwise than another one, and it is not clear that it replaces it: the person is asked."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ouro.display import Question
from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.notes.note import Note
from ouro.memory.long_term.notes.notebook import Notebook, Written
from ouro.utils.text import escaped

BOTH, NEW, OLD, HERE = "keep both", "the new one replaces it", "the old one stays", "the new one is for this project"


def contradicted(note: Note) -> str:
    """The id of the note that this one contradicts; empty where it contradicts none."""
    return next((edge.id for edge in note.related if edge.relationship == "contradicts"), "")


def question_about(new: Note, old: Note, scopes: Sequence[Scope]) -> Question:
    """What the person is asked, with both notes."""
    can_narrow = new.scope == "user" and "repo" in scopes
    choices = (BOTH, NEW, OLD, *((HERE,) if can_narrow else ()))
    details = f"- before ({old.confirmed_at[:10] or old.created_at[:10]}): {old.text}\n- now: {new.text}"
    return Question("Two notes say otherwise than each other. Which holds?", choices, details=escaped(details))


def resolve(notebook: Notebook, new_id: str, old_id: str, answer: str) -> Written | None:
    """Do what the person said; None where both stay as they are. Blocks.

    Raises:
        NoteError: one of them is gone by now.
        LongTermMemoryError, OSError: it could not be written.
    """
    new = notebook.find(new_id).note
    apart = replace(new, related=tuple(edge for edge in new.related if edge.id != old_id))
    match answer:
        case str() if answer == BOTH:
            return notebook.rewrite(notebook.tied(apart, old_id, "relates-to"), "person")
        case str() if answer == NEW:
            return notebook.rewrite(notebook.successor(old_id, apart), "person")
        case str() if answer == OLD:
            return notebook.archive([new_id], "person")[0]
        case str() if answer == HERE:
            return notebook.rewrite(replace(apart, scope="repo"), "person")
        case _:
            return None
