"""An embedding model of words alone: texts are close if they share words."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np

DIMENSIONS = 256


class WordEmbedder:
    """Nearly one dimension per word; records its requests."""

    def __init__(self, name: str = "words") -> None:
        self.name = name
        self.asked: list[tuple[str, ...]] = []

    def embed(self, texts: Sequence[str]):
        """A row of length one for each text."""
        self.asked.append(tuple(texts))
        return np.array([vector_of(text) for text in texts], np.float32)

    def close(self) -> None:
        """Nothing to close."""


def vector_of(text: str) -> list[float]:
    """The word counts of a text by dimension, scaled to length one."""
    row = np.full(DIMENSIONS, 1e-3)
    for word in re.findall(r"\w+", text.lower()):
        row[zlib.crc32(word.encode()) % DIMENSIONS] += 1
    return [float(each) for each in row / np.linalg.norm(row)]
