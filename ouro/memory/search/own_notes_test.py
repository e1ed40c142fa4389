"""The user's own notes as a test: each is asked for by the words of the turn that taught it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ouro.memory.long_term.recall.recall import Recall, Situation
from ouro.memory.search.index_schema import SHIFT
from ouro.memory.search.retrieval_test import Answer
from ouro.memory.search.search import Search

MOST_HITS = 25
_LATEST = "kind = 'note' AND archived = 0 AND note NOT IN (SELECT supersedes FROM notes)"


class OwnQuestions(msgspec.Struct, frozen=True):
    """What was asked, what came, and what should have come."""

    answers: list[Answer]
    wanted: dict[str, list[str]]
    texts: dict[str, str]
    """Of each note that was asked for, by its id."""
    without_a_turn: int
    """Notes that were not asked for, since no session tells what taught them."""


def ask_own_notes(search: Search, recall_in: Callable[[str], Recall]) -> OwnQuestions:
    """Ask for every note that is in force, by the recall of the turns. Blocks for some milliseconds a note.

    Args:
        search: has the notes and the sessions that taught them.
        recall_in: recall as it is in the repository with that root; empty: outside of any.

    Raises:
        SearchUnavailable: the index cannot be read just now.
    """
    with search.index.reading() as database:
        notes = database.execute(
            f"SELECT note, text, session, turn, project, branch FROM notes WHERE {_LATEST}"
        ).fetchall()
    found: list[Answer] = []
    texts: dict[str, str] = {}
    for note, text, session, turn, project, branch in notes:
        if question := _words_of_turn(search, session, turn):
            recalled = recall_in(project).local(question, Situation(project, branch))
            ids = tuple(item.id for item in recalled.items if item.state == "loaded")
            found.append(Answer(note, ids, round(recalled.milliseconds, 2)))
            texts[note] = text
    return OwnQuestions(found, {note: [note] for note in texts}, texts, len(notes) - len(texts))


def _words_of_turn(search: Search, session: str, turn: int) -> str:
    """What the person said in that turn of that session; empty where it is gone."""
    with search.index.reading() as database:
        row = database.execute("SELECT seq FROM sessions WHERE id = ?", (session,)).fetchone()
        if row is None or turn < 1:
            return ""
        span = (row[0] << SHIFT, (row[0] + 1) << SHIFT)
        said = "FROM messages WHERE id BETWEEN ? AND ? AND role = 'user'"
        number = database.execute(
            f"SELECT DISTINCT number {said} ORDER BY number LIMIT 1 OFFSET ?", (*span, turn - 1)
        ).fetchone()
        if number is None:
            return ""
        rows = database.execute(f"SELECT text {said} AND number = ? ORDER BY id", (*span, *number))
        return "\n".join(text for (text,) in rows)
