"""Texts as passages: as much as one can be asked about, and one vector can hold."""

from __future__ import annotations

import hashlib
import re

LONGEST = 1_000
"""Characters; about what the local embedding model reads of a text."""
MOST = 60
"""Passages of one message; what follows in a longer one is read, but not found."""

_BORDERS = (re.compile(r"\n\s*\n"), re.compile(r"\n"), re.compile(r"(?<=[.!?:;])\s"), re.compile(r"\s"))


def passages(text: str) -> list[str]:
    """`text` cut at paragraphs, else lines, sentences, words, into pieces of at most `LONGEST` characters."""
    text = text.strip()
    found: list[str] = []
    while text and len(found) < MOST:
        cut = len(text) if len(text) <= LONGEST else _cut(text)
        found.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return found


def _cut(text: str) -> int:
    """Where the first piece ends: the last border of the best kind that leaves at least a third of the room used."""
    head = text[:LONGEST]
    for border in _BORDERS:
        places = [found.end() for found in border.finditer(head, LONGEST // 3)]
        if places:
            return places[-1]
    return LONGEST


def content_hash(text: str) -> int:
    """64 bits that stand for a text: the key of its vector."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big", signed=True)
