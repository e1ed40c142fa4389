"""Search for sessions that have all words of a query."""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import chain

from ouro.memory.index.index import Index
from ouro.memory.index.passages import POSITION_BITS
from ouro.memory.index.words import findable, quote_word
from ouro.memory.sessions.session_catalog import SessionHit

_MAX_MATCHES = 400
_CHARACTERS_BEFORE, _EXCERPT_LENGTH = 20, 60


def search_sessions(index: Index, words: str, limit: int = 20) -> list[SessionHit]:
    """Returns at most `limit` sessions that have all the words in one passage or in their summary.
    Those with a passage come first, best first. The last word may be the beginning of one.
    """
    query_words = re.findall(r"\w+", words)
    if not query_words:
        return []
    hits: dict[str, SessionHit] = {}
    with index.reading() as database:
        for hit in chain(
            _sessions_with_passage(database, query_words, limit),
            _sessions_with_summary(database, query_words),
        ):
            hits.setdefault(hit.session_id, hit)
    return list(hits.values())[:limit]


def _sessions_with_passage(
    database: sqlite3.Connection, words: Sequence[str], limit: int
) -> Iterator[SessionHit]:
    """Yield the best passage with all words of each session, best first, for at most `limit`
    sessions.
    """
    match_expression = " ".join(map(quote_word, words)) + "*"
    rows = database.execute(
        "SELECT rowid, bm25(messages_words) AS score FROM messages_words"
        " WHERE messages_words MATCH ? ORDER BY score, rowid DESC LIMIT ?",
        (match_expression, _MAX_MATCHES),
    ).fetchall()
    best_passages: dict[int, tuple[int, float]] = {}
    for passage, score in rows:
        session = passage >> POSITION_BITS
        best_passages.setdefault(session, (passage, -score))
    for seq, (passage, score) in list(best_passages.items())[:limit]:
        row = database.execute(
            "SELECT sessions.id, messages.number, snippet(messages_words, 0, '', '', '…', 16),"
            " messages.text FROM messages_words JOIN messages ON messages.id ="
            " messages_words.rowid JOIN sessions ON sessions.seq = ? WHERE messages_words MATCH"
            " ? AND messages_words.rowid = ?",
            (seq, match_expression, passage),
        ).fetchone()
        if row is None:
            continue
        session_id, number, snippet, text = row
        # SQLite makes the snippet by the words of the index, which are other ones for some texts.
        excerpt = snippet if findable(text) == text else _excerpt(text, words)
        yield SessionHit(session_id, number, snippet=" ".join(excerpt.split()), score=score)


def _sessions_with_summary(
    database: sqlite3.Connection, words: Sequence[str]
) -> Iterator[SessionHit]:
    """Yield the sessions with all words in their summary, the most recently used first."""
    # In a pattern of LIKE, `_` stands for any character. `%` cannot be in a word.
    patterns = [f"%{word.replace('_', '!_')}%" for word in words]
    has_all_words = " AND ".join(["summary LIKE ? ESCAPE '!'"] * len(patterns))
    summaries = database.execute(
        f"SELECT id, summary FROM sessions WHERE {has_all_words} ORDER BY updated_at DESC", patterns
    )
    for session_id, summary in summaries:
        yield SessionHit(session_id, number=0, snippet=" ".join(summary.split()))


def _excerpt(text: str, words: Sequence[str]) -> str:
    """Returns the part of a text around the first of the words, ignoring accents and case; its
    beginning if it has none of them.
    """
    folded = _fold_letters(text)
    offsets = [folded.find(_fold_letters(word)) for word in words]
    first = min((offset for offset in offsets if offset >= 0), default=0)
    start = max(0, first - _CHARACTERS_BEFORE)
    end = start + _EXCERPT_LENGTH
    before, after = "…" if start else "", "…" if end < len(text) else ""
    return f"{before}{text[start:end]}{after}"


def _fold_letters(text: str) -> str:
    """Returns the text without accents and in lower case, with the same length."""
    return "".join(unicodedata.normalize("NFD", letter)[0].lower()[0] for letter in text)
