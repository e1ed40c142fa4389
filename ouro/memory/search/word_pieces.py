"""Text to the word pieces of a BERT vocabulary (lower case)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

_LONGEST_WORD = 100
_SPLIT = re.compile(r"\w+|[^\w\s]", re.UNICODE)
_CJK = re.compile("([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f])")


class WordPieces:
    """A vocabulary, and how a text is taken apart into it."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._ids = {line.rstrip("\n"): number for number, line in enumerate(lines)}
        self._start, self._end = self._ids["[CLS]"], self._ids["[SEP]"]
        self._unknown = self._ids["[UNK]"]
        self._pieces = lru_cache(maxsize=20_000)(self._pieces_of)

    def encode(self, text: str, most: int) -> list[int]:
        """The ids of a text between the marks of its start and end; `most` ids at most."""
        ids = [self._start]
        for word in _words(text):
            ids += self._pieces(word)
            if len(ids) >= most:
                break
        return [*ids[: most - 1], self._end]

    def _pieces_of(self, word: str) -> tuple[int, ...]:
        """The longest pieces that are known, from the left."""
        if len(word) > _LONGEST_WORD:
            return (self._unknown,)
        pieces: list[int] = []
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            for end in range(len(word), start, -1):
                piece = self._ids.get(mark + word[start:end])
                if piece is not None:
                    break
            else:
                return (self._unknown,)
            pieces.append(piece)
            start = end
        return tuple(pieces)


def _words(text: str) -> list[str]:
    """Words and signs of a text, in lower case, without accents."""
    text = text.lower()
    if not text.isascii():
        text = "".join(each for each in unicodedata.normalize("NFD", text) if unicodedata.category(each) != "Mn")
        text = _CJK.sub(r" \1 ", text)
    return [
        piece
        for word in _SPLIT.findall(text)
        for piece in (word.replace("_", " _ ").split() if "_" in word else (word,))
    ]
