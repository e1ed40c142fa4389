"""The stems of words, as the word index makes them: `painting` and `paint` have one stem."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from functools import cache

from ouro.memory.index.words import SIGN

_MAX_KNOWN_STEMS = 16_384
_known_stems: dict[str, str] = {}
"""The stems that were found so far, by word."""
_lock = threading.Lock()


def find_stems(words: Iterable[str]) -> list[str]:
    """Returns the stem of each word, in their order. A text without a letter or digit is its own
    stem. If a text has several words, it is the stem that comes first in the alphabet. A word with
    vowel signs (Hindi), which the word index reads as several ones, is its own stem, too.
    """
    words = list(words)
    with _lock:
        new_words = list({word for word in words if word not in _known_stems})
        if new_words:
            if len(_known_stems) + len(new_words) > _MAX_KNOWN_STEMS:
                _known_stems.clear()
                new_words = list(set(words))
            _known_stems.update(_read_stems(new_words))
        return [_known_stems[word] for word in words]


def _read_stems(words: list[str]) -> dict[str, str]:
    """Returns the stem of each word, by word. The tokenizer of the word index makes it: each word
    is written as a row, and the stems in the row (its `terms`) are read. The rows are not kept.

    A row with several stems gives the first one in the alphabet; a row without any, the word
    itself.
    """
    database = _tokenizer()
    database.execute("BEGIN")
    try:
        database.executemany("INSERT INTO word (rowid, text) VALUES (?, ?)", enumerate(words))
        terms = database.execute("SELECT doc, min(term) FROM terms GROUP BY doc").fetchall()
    finally:
        database.execute("ROLLBACK")
    stems = {word: word for word in words}
    for number, term in terms:
        if not SIGN.search(words[number]):
            stems[words[number]] = str(term)
    return stems


@cache
def _tokenizer() -> sqlite3.Connection:
    """Returns an empty database in memory, with the tokenizer of the word index."""
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    database.execute(
        "CREATE VIRTUAL TABLE word USING fts5(text, tokenize = 'porter unicode61"
        " remove_diacritics 2')"
    )
    database.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(word, 'instance')")
    return database
