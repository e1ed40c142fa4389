"""Vectors of passages and notes: made beside the conversation, kept by the hash of the text, searched by numpy.

Each is kept in half precision. What is compared with all of them is one bit a dimension (48 bytes a passage); the
nearest by bits are compared exactly.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ouro.memory.search.embeddings import Embedder
from ouro.memory.search.index import Index
from ouro.memory.search.index_schema import SHIFT
from ouro.memory.search.search import Only

TABLES = ("notes", "messages")
BATCH = 64
_READ_AT_ONCE = 20_000
_COUNTED_AT_ONCE = 1 << 16
"""Vectors; what is needed for so many stays in the processor's cache."""
_MOST_QUESTIONS = 64
_LONGEST_QUESTION = 2_000

Floats = NDArray[np.float32]


class _Bits(msgspec.Struct):
    """The signs of all vectors of one table, in the order in which they came."""

    ids: NDArray[np.int64]
    signs: NDArray[np.uint64]
    """A row for each 64 dimensions: read row by row, all of them take a third of the time."""
    stamp: int
    made: str
    """Which index they are of."""


class Vectors:
    """One for an index and an embedder; every method may block: call it from a thread."""

    def __init__(self, index: Index, embedder: Embedder) -> None:
        self.embedder = embedder
        self._index = index
        self._bits: dict[str, _Bits] = {}
        self._questions: OrderedDict[str, Floats] = OrderedDict()
        self._lock = threading.RLock()

    def fill(self, most: int = BATCH, tables: Sequence[str] = TABLES) -> int:
        """Make up to `most` vectors that are missing, notes and what is newest first; gives how many came.

        Raises:
            SearchUnavailable: the index cannot be written just now.
            ModelError: the model did not answer.
        """
        self._choose_model()
        done = 0
        for table in tables:
            while done < most and (came := self._fill(table, min(BATCH, most - done))):
                done += came
        return done

    def missing(self) -> int:
        """How many passages and notes have no vector yet."""
        with self._index.reading() as database:
            counts = [f"(SELECT count(*) FROM {table} WHERE stamp IS NULL)" for table in TABLES]
            return int(database.execute(f"SELECT {' + '.join(counts)}").fetchone()[0])

    def question(self, text: str) -> Floats:
        """The vector of a question; of the last ones it is remembered.

        Raises:
            ModelError: the model did not answer.
        """
        text = text[:_LONGEST_QUESTION]
        with self._lock:
            if text not in self._questions:
                self._questions[text] = self.embedder.embed([text])[0]
                if len(self._questions) > _MOST_QUESTIONS:
                    self._questions.popitem(last=False)
            return self._questions[text]

    def questions(self, texts: Sequence[str]) -> list[Floats]:
        """The vectors of several questions, asked for at once.

        Raises:
            ModelError: the model did not answer.
        """
        texts = [text[:_LONGEST_QUESTION] for text in texts]
        return list(self.embedder.embed(texts)) if texts else []

    def nearest(
        self, database: sqlite3.Connection, table: str, question: Floats, count: int, only: Only | None = None
    ) -> list[int]:
        """The ids of the passages, of `only` these where they are given, whose signs differ least from `question`'s."""
        with self._lock:
            bits = self._load(database, table)
            chosen = np.arange(len(bits.ids)) if only is None else np.flatnonzero(_among(bits.ids, only))
            if not len(chosen):
                return []
            distances = _differences(bits.signs, _signs(question[None])[:, 0])
            chosen = chosen[_least(distances[chosen], count)]
            return [int(each) for each in bits.ids[chosen]]

    def cosines(
        self, database: sqlite3.Connection, table: str, question: Floats, ids: Sequence[int]
    ) -> dict[int, float]:
        """How close each of these passages is to `question`; those that have no vector yet are left out."""
        rows = database.execute(
            f"SELECT passage.id, vectors.vector FROM {table} AS passage JOIN vectors ON vectors.hash = passage.hash"
            " AND vectors.model = ? WHERE passage.id IN (SELECT value FROM json_each(?))",
            (self.embedder.name, json.dumps(list(ids))),
        ).fetchall()
        if not rows:
            return {}
        matrix = np.frombuffer(b"".join(vector for _, vector in rows), np.float16).reshape(len(rows), -1)
        found = matrix.astype(np.float32) @ question
        return dict(zip((place for place, _ in rows), found.tolist(), strict=True))

    def _choose_model(self) -> None:
        """Another model than last time makes all vectors anew."""
        with self._index.reading() as database:
            row = database.execute("SELECT value FROM facts WHERE name = 'model'").fetchone()
        if row == (self.embedder.name,):
            return
        with self._index.writing() as database:
            database.execute("INSERT OR REPLACE INTO facts VALUES ('model', ?)", (self.embedder.name,))
            for table in TABLES if row else ():
                database.execute(f"UPDATE {table} SET stamp = NULL WHERE stamp IS NOT NULL")
            database.execute("DELETE FROM vectors WHERE model <> ?", (self.embedder.name,))
        with self._lock:
            self._bits.clear()
            self._questions.clear()

    def _fill(self, table: str, most: int) -> int:
        with self._index.reading() as database:
            rows = database.execute(
                f"SELECT id, hash, text FROM {table} WHERE stamp IS NULL ORDER BY id DESC LIMIT ?", (most,)
            ).fetchall()
            hashes = json.dumps([hashed for _, hashed, _ in rows])
            known = database.execute(
                "SELECT hash FROM vectors WHERE model = ? AND hash IN (SELECT value FROM json_each(?))",
                (self.embedder.name, hashes),
            ).fetchall()
        new = {hashed: text for _, hashed, text in rows if (hashed,) not in known}
        vectors = self.embedder.embed(list(new.values())) if new else ()
        values = [
            (hashed, self.embedder.name, vector.astype(np.float16).tobytes())
            for hashed, vector in zip(new, vectors, strict=True)
        ]
        with self._index.writing() as database:
            database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", values)
            (last,) = database.execute(f"SELECT coalesce(max(stamp), 0) FROM {table}").fetchone()
            stamps = [(last + step, place, hashed) for step, (place, hashed, _) in enumerate(rows, 1)]
            database.executemany(f"UPDATE {table} SET stamp = ? WHERE id = ? AND hash = ?", stamps)
        return len(rows)

    def warm(self) -> None:
        """Have the signs of all vectors in memory, so that the first search need not read them."""
        for table in TABLES:
            stamp = -1
            while stamp != (stamp := self._warm(table)):
                pass

    def _warm(self, table: str) -> int:
        with self._index.reading() as database, self._lock:
            return self._load(database, table).stamp

    def _load(self, database: sqlite3.Connection, table: str) -> _Bits:
        """The signs, with some more of those that came since last time."""
        (made,) = database.execute("SELECT value FROM facts WHERE name = 'made'").fetchone()
        bits = self._bits.get(table)
        if bits is None or bits.made != made:
            bits = _Bits(np.empty(0, np.int64), np.empty((0, 0), np.uint64), 0, made)
        rows = database.execute(
            f"SELECT passage.id, passage.stamp, vectors.vector FROM {table} AS passage JOIN vectors"
            " ON vectors.hash = passage.hash AND vectors.model = ? WHERE passage.stamp > ?"
            " ORDER BY passage.stamp LIMIT ?",
            (self.embedder.name, bits.stamp, _READ_AT_ONCE),
        ).fetchall()
        if rows:
            signs = _signs(np.frombuffer(b"".join(row[2] for row in rows), np.float16).reshape(len(rows), -1))
            ids = np.array([row[0] for row in rows], np.int64)
            signs = np.concatenate([bits.signs, signs], axis=1) if len(bits.ids) else signs
            bits = _Bits(np.concatenate([bits.ids, ids]), signs, rows[-1][1], made)
        self._bits[table] = bits
        return bits


def _signs(vectors: NDArray[np.floating[Any]]) -> NDArray[np.uint64]:
    """A bit a dimension, filled up to whole numbers of 64: a column for each vector."""
    packed = np.packbits(vectors > 0, axis=1)
    return np.ascontiguousarray(np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64).T)


def _differences(signs: NDArray[np.uint64], question: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """In how many dimensions each column differs from `question`."""
    found = np.zeros(signs.shape[1], np.uint16)
    for start in range(0, len(found), _COUNTED_AT_ONCE):
        part = slice(start, start + _COUNTED_AT_ONCE)
        for row, own in zip(signs, question, strict=True):
            found[part] += np.bitwise_count(row[part] ^ own)
    return found


def _least(distances: NDArray[np.uint16], count: int) -> NDArray[np.intp]:
    """The places of the `count` least, in no order. They are small numbers: to count them is faster than to sort."""
    if count >= len(distances):
        return np.arange(len(distances))
    limit = int(np.searchsorted(np.cumsum(np.bincount(distances)), count))
    near, at_limit = np.flatnonzero(distances < limit), np.flatnonzero(distances == limit)
    return np.concatenate([near, at_limit[: count - len(near)]])


def _among(ids: NDArray[np.int64], only: Only) -> NDArray[np.bool_]:
    """Which of these are meant: a glance at a table by session first, since looking a million ids up takes long."""
    sessions = ids >> SHIFT
    by_id = np.array(only.ids, np.int64)
    known = np.zeros(int(sessions.max(initial=0)) + 1, np.int8)
    for state, wanted in ((1, by_id >> SHIFT), (2, np.array(only.sessions, np.int64))):
        known[wanted[wanted < len(known)]] = state
    found: NDArray[np.bool_] = known[sessions] == 2
    in_part = np.flatnonzero(known[sessions] == 1)
    found[in_part] = np.isin(ids[in_part], by_id)
    return found
