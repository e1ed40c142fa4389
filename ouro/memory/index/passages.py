"""Passages: the parts of a text that are indexed, their ids and hashes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

MAX_PASSAGE = 1_000
"""Maximum characters of a passage; the local embedding model reads about so much of a text."""
MAX_PASSAGES = 60
"""Maximum passages of one message; the rest of a longer message cannot be found."""
POSITION_BITS = 20
"""The id of a passage: the `seq` of its session and, in so many bits, its position. Neighbours have
adjacent ids.
"""

_PASSAGE_BORDERS = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?:;])\s"),
    re.compile(r"\s"),
)
"""Where a text may be cut, the best kind first."""


def split_passages(text: str) -> list[str]:
    """Returns a text cut into passages of at most `MAX_PASSAGE` characters: between paragraphs if
    possible, otherwise between lines, sentences or words. At most `MAX_PASSAGES`.
    """
    text = text.strip()
    passages: list[str] = []
    while text and len(passages) < MAX_PASSAGES:
        end = len(text) if len(text) <= MAX_PASSAGE else _end_of_piece(text)
        passages.append(text[:end].rstrip())
        text = text[end:].lstrip()
    return passages


def _end_of_piece(text: str) -> int:
    """Returns the end of the first passage of a long text: the last border of the best kind that
    leaves it at least a third of the maximum length.
    """
    for border in _PASSAGE_BORDERS:
        ends = [match.end() for match in border.finditer(text, MAX_PASSAGE // 3, MAX_PASSAGE)]
        if ends:
            return ends[-1]
    return MAX_PASSAGE


def searched_text(text: str, search_words: Sequence[str]) -> str:
    """Returns what is searched of a note: its text, and on the next line its search words. The SQL
    of `schema.searched_column` makes the same.
    """
    return f"{text}\n{', '.join(search_words)}" if search_words else text


def content_hash(text: str) -> int:
    """Returns a hash of a text, by which its vector is stored: a signed number of 64 bits."""
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
