"""Search sessions by words in their messages, for the session picker, at each key press."""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterator, Sequence

from ouro.memory.index.index import Index
from ouro.memory.index.schema import SHIFT
from ouro.memory.index.tokenizer import findable, phrase
from ouro.memory.sessions.session_catalog import SessionHit

_WORD = re.compile(r"\w+")
_MAX_PASSAGES = 400
_BEFORE, _SHOWN = 20, 60
"""Characters of an excerpt."""


def search_sessions(index: Index, words: str, project: str | None = None, limit: int = 20) -> list[SessionHit]:
    """The sessions with all of `words` in one passage, best first; the last word may be a prefix.

    `project` keeps to the sessions of one folder.

    Raises:
        SearchUnavailable: the index cannot be read just now.
    """
    found = _WORD.findall(words)
    if not found:
        return []
    question = " ".join(map(phrase, found)) + "*"
    with index.reading() as database:
        rows = database.execute(
            "SELECT rowid, bm25(messages_words) AS score FROM messages_words"
            " WHERE messages_words MATCH ? ORDER BY score, rowid DESC LIMIT ?",
            (question, _MAX_PASSAGES),
        ).fetchall()
        best: dict[int, tuple[int, float]] = {}
        for passage, score in rows:
            best.setdefault(passage >> SHIFT, (passage, -score))
        hits: list[SessionHit] = []
        for seq, (passage, score) in best.items():
            if len(hits) == limit:
                break
            row = database.execute(
                "SELECT sessions.id, messages.number, snippet(messages_words, 0, '', '', '…', 16), messages.text"
                " FROM messages_words JOIN messages ON messages.id = messages_words.rowid"
                " JOIN sessions ON sessions.seq = ?"
                " WHERE messages_words MATCH ? AND messages_words.rowid = ? AND (? IS NULL OR sessions.project = ?)",
                (seq, question, passage, project, project),
            ).fetchone()
            if row:
                session_id, number, snippet, text = row
                # SQLite counts indexed words; map the count back to the original text.
                snippet = snippet if findable(text) == text else excerpt(text, found)
                hits.append(SessionHit(session_id, number, " ".join(snippet.split()), score))
        seen = {hit.session_id for hit in hits}
        summed_up = (hit for hit in _by_summary(database, found, project) if hit.session_id not in seen)
        return [*hits, *summed_up][:limit]


def excerpt(text: str, words: Sequence[str]) -> str:
    """The part of `text` around the first match of `words`, ignoring accents and case."""
    plain = _plain(text)
    places = [place for word in words if (place := plain.find(_plain(word))) >= 0]
    start = max(0, min(places, default=0) - _BEFORE)
    shown = text[start : start + _SHOWN]
    return f"{'…' if start else ''}{shown}{'…' if start + _SHOWN < len(text) else ''}"


def _plain(text: str) -> str:
    """As long as `text`."""
    return "".join(unicodedata.normalize("NFD", letter)[0].lower()[0] for letter in text)


def _by_summary(database: sqlite3.Connection, words: Sequence[str], project: str | None) -> Iterator[SessionHit]:
    """The sessions with all words in the summary, last used first."""
    patterns = [f"%{word.replace('_', '!_')}%" for word in words]
    wanted = " AND ".join(["summary LIKE ? ESCAPE '!'"] * len(patterns))
    rows = database.execute(
        f"SELECT id, summary FROM sessions WHERE {wanted} AND (? IS NULL OR project = ?) ORDER BY updated_at DESC",
        (*patterns, project, project),
    )
    for session_id, summary in rows:
        yield SessionHit(session_id, 0, " ".join(summary.split()))
