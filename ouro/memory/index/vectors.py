"""Vectors of passages and notes: made in the background, stored by model and text hash, searched by
numpy.

Two projects may use two models: the vectors of both are stored, so that no text is paid for twice.
Vectors of a model that was not used for `KEPT_DAYS` are deleted.

Vectors are stored in half precision. A search first compares one bit per dimension (48 bytes a
passage) of all vectors, then the exact vectors of the nearest ones.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.errors import SearchUnavailable
from ouro.memory.index.embeddings import Embedder, RemoteEmbedder
from ouro.memory.index.index import Index
from ouro.memory.index.late_numpy import LateNumpy
from ouro.utils.log import log

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
else:
    np = LateNumpy()

TABLES = ("notes", "messages")
BATCH = 64
KEPT_DAYS = 30
_READ_AT_ONCE = 20_000
_COUNTED_AT_ONCE = 1 << 16
"""Vectors that are compared at once; the data of so many fits into the processor's cache."""
_HAS_VECTOR = "EXISTS (SELECT 1 FROM vectors WHERE vectors.hash = {}.hash AND vectors.model = ?)"
_MAX_QUESTIONS = 64
_MAX_QUESTION = 2_000
_SAMPLE = 200
"""Vectors from which the usual cosine of a model is computed."""
_MIN_SAMPLE = 20
_NARROW = 0.4
"""A model whose vectors are usually closer than this uses a part of the scale (e5: 0.8, bge: 0.6)."""
_USUAL = 0.15
"""The usual cosine of all-MiniLM-L6-v2, for which weights and limits were measured."""


class _Bits(msgspec.Struct):
    """The signs of all vectors of one table, in order of creation."""

    ids: NDArray[np.int64]
    signs: NDArray[np.uint64]
    """One row for each 64 dimensions: reading row by row takes a third of the time."""
    stamp: int
    made: str
    """The index, the model, and the change of model that they belong to."""


class Vectors:
    """One per index and embedder. Every method may block, and raises ModelError and
    SearchUnavailable.
    """

    def __init__(self, index: Index, embedder: Embedder) -> None:
        self.embedder = embedder
        self._index = index
        self._bits: dict[str, _Bits] = {}
        self._questions: OrderedDict[str, Floats] = OrderedDict()
        self._length = 0
        """The length of the model's last vector; 0 before the first one."""
        self._lock = threading.RLock()
        self._stamped: dict[str, list[tuple[int, int]]] = {}
        """The passages of each table that got a stamp last, with their hashes."""
        self._usual: dict[int, float] = {}
        """The usual cosine of two texts, by the id of the model."""

    def fill(self, most: int = BATCH, tables: Sequence[str] = TABLES) -> int:
        """Make up to `most` missing vectors, notes first, then the newest passages; returns their
        number.
        """
        self.choose_model()
        done = 0
        for table in tables:
            if done < most:
                done += self._fill_table(table, most - done)
        return done

    def fill_all(
        self, tables: Sequence[str] = TABLES, seconds: float = math.inf, most: float = math.inf
    ) -> None:
        """Make all missing vectors, for about `seconds` and up to `most` of them, as `fill` orders
        them.
        """
        deadline, done = time.monotonic() + seconds, 0
        while time.monotonic() < deadline and (
            count := self.fill(int(min(BATCH, most - done)), tables)
        ):
            done += count

    def exist(self, tables: Iterable[str] = TABLES) -> bool:
        """Whether there are vectors of any model, and these tables are not empty."""
        with self._index.reading() as database:
            found = (
                database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() for table in tables
            )
            return (
                any(found)
                and database.execute("SELECT 1 FROM vectors LIMIT 1").fetchone() is not None
            )

    def are_missing(self) -> bool:
        """Whether a passage or note has no vector of this model yet."""
        self.choose_model()
        with self._index.reading() as database:
            found = (
                database.execute(f"SELECT 1 FROM {table} WHERE stamp IS NULL LIMIT 1")
                for table in TABLES
            )
            return any(rows.fetchone() for rows in found)

    def count_missing(self, table: str, most: int) -> int:
        """The number of passages without a vector, counted up to `most`."""
        self.choose_model()
        with self._index.reading() as database:
            (count,) = database.execute(
                f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE stamp IS NULL LIMIT ?)", (most,)
            ).fetchone()
        return int(count)

    def questions(self, texts: Sequence[str]) -> list[Floats]:
        """The vectors of several queries, in one call; the latest ones are cached."""
        texts = [text[:_MAX_QUESTION] for text in texts]
        with self._lock:
            new = [text for text in dict.fromkeys(texts) if text not in self._questions]
            if new:
                self._questions |= zip(new, self._embed(new), strict=True)
            found = [self._questions[text] for text in texts]
            while len(self._questions) > _MAX_QUESTIONS:
                self._questions.popitem(last=False)
        if found:
            self._choose_model_again(len(found[0]))
        return found

    def nearest(
        self,
        database: sqlite3.Connection,
        table: str,
        question: Floats,
        count: int,
        *,
        is_limited: bool = False,
    ) -> list[int]:
        """The ids of the passages (only those in `temp.allowed`, if `is_limited`) whose signs
        differ least.
        """
        with self._lock:
            bits = self._load_signs(database, table, len(question))
            chosen = (
                np.flatnonzero(_are_allowed(database, bits.ids))
                if is_limited
                else np.arange(len(bits.ids))
            )
            if not len(chosen):
                return []
            distances = _count_different_bits(bits.signs, _signs(question[None])[:, 0])
            chosen = chosen[_positions_of_smallest(distances[chosen], count)]
            return [int(identifier) for identifier in bits.ids[chosen]]

    def cosines(
        self, database: sqlite3.Connection, table: str, question: Floats, ids: Sequence[int]
    ) -> dict[int, float]:
        """The cosine of each passage to `question`; passages without a vector are left out.

        Those of a model with a narrow scale are spread, as if its texts were usually as far apart
        as those of the local model.
        """
        model = self._model_row(database, len(question))[0]
        rows = database.execute(
            f"SELECT passage.id, vectors.vector FROM {table} AS passage JOIN vectors ON"
            " vectors.hash = passage.hash AND vectors.model = ? WHERE passage.id IN (SELECT value"
            " FROM json_each(?))",
            (model, json.dumps(list(ids))),
        ).fetchall()
        if not rows:
            return {}
        found = _matrix([vector for _, vector in rows]) @ question
        usual = self._usual_cosine(database, model)
        if usual > _NARROW:
            found = _USUAL + (found - usual) * ((1 - _USUAL) / (1 - usual))
        return dict(zip((place for place, _ in rows), found.tolist(), strict=True))

    def _usual_cosine(self, database: sqlite3.Connection, model: int) -> float:
        """The mean cosine of two texts in the index; 0 while there are few vectors, and for a
        model whose scale is known.

        The keys are hashes, so the first ones are a random sample.
        """
        if not isinstance(self.embedder, RemoteEmbedder):
            return 0.0
        if model not in self._usual:
            rows = database.execute(
                "SELECT vector FROM vectors WHERE model = ? ORDER BY hash LIMIT ?",
                (model, _SAMPLE),
            ).fetchall()
            count = len(rows)
            if count < _MIN_SAMPLE:
                return 0.0
            total = _matrix([vector for (vector,) in rows]).sum(axis=0)
            # The square of the sum has each pair twice, and each vector with itself.
            self._usual[model] = float(total @ total - count) / (count * (count - 1))
        return self._usual[model]

    def choose_model(self) -> None:
        """Set the stamps for the vectors of this model: another process may have set them for
        another model.
        """
        today = datetime.now(UTC).date()
        with self._index.reading() as database:
            if self._is_chosen(
                database, (model := self._model_row(database, self._length))[0]
            ) and model[1] == str(today):
                return
        with self._index.writing() as database:
            model = self._model_row(database, self._length)
            if self._length and not model[0]:
                new = (self.embedder.name, self._length, str(today))
                database.execute("INSERT INTO models (name, length, used) VALUES (?, ?, ?)", new)
                model = self._model_row(database, self._length)
            database.execute("UPDATE models SET used = ? WHERE id = ?", (str(today), model[0]))
            if not self._is_chosen(database, model[0]):
                _restamp(database, model[0])
            unused = (str(today - timedelta(days=KEPT_DAYS)),)
            database.execute(
                "DELETE FROM vectors WHERE model IN (SELECT id FROM models WHERE used < ?)", unused
            )
            database.execute("DELETE FROM models WHERE used < ?", unused)

    def _model_row(self, database: sqlite3.Connection, length: int) -> tuple[int, str]:
        """The id of the model and the day of its last use; 0 if it has no vector of this length
        yet.

        Length 0 is the latest one.
        """
        found = database.execute(
            "SELECT id, used FROM models WHERE name = ? AND ? IN (0, length) ORDER BY used DESC, id"
            " DESC LIMIT 1",
            (self.embedder.name, length),
        ).fetchone()
        return found or (0, "")

    @staticmethod
    def _is_chosen(database: sqlite3.Connection, model: int) -> bool:
        """Whether the stamps in the tables are for this model."""
        return bool(
            database.execute("SELECT value FROM facts WHERE name = 'model'").fetchone()
            == (str(model),)
        )

    def _embed(self, texts: Sequence[str]) -> Floats:
        """The vectors of texts. Stores their length."""
        rows = self.embedder.embed(texts)
        self._length = rows.shape[1]
        return rows

    def _choose_model_again(self, length: int) -> None:
        """Before a search: set the stamps again if another model was chosen meanwhile."""
        try:
            with self._index.reading() as database:
                model, _ = self._model_row(database, length)
                if not model or self._is_chosen(database, model):
                    return
            self.choose_model()
        except SearchUnavailable as error:
            log.warning("some vectors are not looked at: %s", error)

    def _fill_table(self, table: str, most: int) -> int:
        """Make up to `most` missing vectors of a table, and set the stamps of their rows; returns
        the number of rows.
        """
        with self._index.reading() as database:
            rows = database.execute(
                f"SELECT id, hash, text FROM {table} WHERE stamp IS NULL ORDER BY id DESC LIMIT ?",
                (most,),
            ).fetchall()
            known = database.execute(
                "SELECT hash FROM vectors WHERE model = ? AND hash IN (SELECT value FROM"
                " json_each(?))",
                (
                    self._model_row(database, self._length)[0],
                    json.dumps([hashed for _, hashed, _ in rows]),
                ),
            ).fetchall()
        places = [(place, hashed) for place, hashed, _ in rows]
        # The same again: the file was removed or replaced, and what is written is not what is
        # read. A caller that asks until none is missing would never end.
        if not rows or places == self._stamped.pop(table, None):
            return 0
        new = {hashed: text for _, hashed, text in rows if (hashed,) not in known}
        vectors = self._embed(list(new.values())) if new else ()
        self.choose_model()  # the length of the vectors is known only now; it may have changed
        with self._index.writing() as database:
            model, _ = self._model_row(database, self._length)
            values = [
                (hashed, model, vector.astype(np.float16).tobytes())
                for hashed, vector in zip(new, vectors, strict=True)
            ]
            database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", values)
            if not self._is_chosen(database, model):
                return 0  # another process uses another model now; the stamps are for that model
            (last,) = database.execute(f"SELECT coalesce(max(stamp), 0) FROM {table}").fetchone()
            stamps = [
                (last + step, place, hashed, model)
                for step, (place, hashed, _) in enumerate(rows, 1)
            ]
            updated = database.executemany(
                f"UPDATE {table} SET stamp = ? WHERE id = ? AND hash = ? AND"
                f" {_HAS_VECTOR.format(table)}",
                stamps,
            )
        self._stamped[table] = places
        return updated.rowcount

    def warm(self) -> None:
        """Load the signs of all vectors, so that the first search does not wait for them."""
        for table in TABLES:
            with self._index.reading() as database, self._lock:
                self._load_signs(database, table, self._length)

    def _load_signs(self, database: sqlite3.Connection, table: str, length: int) -> _Bits:
        """The signs of all vectors of a table; only those with a new stamp are read."""
        model, _ = self._model_row(database, length)
        facts = database.execute(
            "SELECT value FROM facts WHERE name IN ('made', 'stamped') ORDER BY name"
        )
        made = " ".join([str(model), *(value for (value,) in facts)])
        bits = self._bits.get(table)
        if bits is None or bits.made != made:
            bits = _Bits(np.empty(0, np.int64), np.empty((0, 0), np.uint64), 0, made)
        ids, signs, stamp = [bits.ids], [bits.signs], bits.stamp
        while rows := database.execute(
            f"SELECT passage.id, passage.stamp, vectors.vector FROM {table} AS passage JOIN vectors"
            " ON vectors.hash = passage.hash AND vectors.model = ? WHERE passage.stamp > ?"
            " ORDER BY passage.stamp LIMIT ?",
            (model, stamp, _READ_AT_ONCE),
        ).fetchall():
            vectors = np.frombuffer(b"".join(row[2] for row in rows), np.float16).reshape(
                len(rows), -1
            )
            signs.append(_signs(vectors))
            ids.append(np.array([row[0] for row in rows], np.int64))
            stamp = rows[-1][1]
        if stamp > bits.stamp:
            bits = _Bits(
                np.concatenate(ids),
                np.concatenate([some for some in signs if some.size], axis=1),
                stamp,
                made,
            )
        self._bits[table] = bits
        return bits


def _restamp(database: sqlite3.Connection, model: int) -> None:
    """Set the stamps for another model: only passages with a vector of it have one."""
    facts = [("model", str(model)), ("stamped", os.urandom(8).hex())]
    database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts)
    for table in TABLES:
        has_vector = _HAS_VECTOR.format(table)
        database.execute(
            f"UPDATE {table} SET stamp = NULL WHERE stamp IS NOT NULL AND NOT {has_vector}",
            (model,),
        )
        (last,) = database.execute(f"SELECT coalesce(max(stamp), 0) FROM {table}").fetchone()
        found = database.execute(
            f"SELECT id FROM {table} WHERE stamp IS NULL AND {has_vector}", (model,)
        ).fetchall()
        stamps = [(last + step, place) for step, (place,) in enumerate(found, 1)]
        database.executemany(f"UPDATE {table} SET stamp = ? WHERE id = ?", stamps)


def _matrix(vectors: Sequence[bytes]) -> Floats:
    """Stored vectors as rows."""
    halves = np.frombuffer(b"".join(vectors), np.float16).reshape(len(vectors), -1)
    return halves.astype(np.float32)


def _signs(vectors: NDArray[np.floating[Any]]) -> NDArray[np.uint64]:
    """One bit per dimension, padded to multiples of 64: a column for each vector."""
    packed = np.packbits(vectors > 0, axis=1)
    return np.ascontiguousarray(
        np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64).T
    )


def _count_different_bits(
    signs: NDArray[np.uint64], question: NDArray[np.uint64]
) -> NDArray[np.uint16]:
    """In how many dimensions each vector has another sign than the question."""
    found = np.zeros(signs.shape[1], np.uint16)
    for start in range(0, len(found), _COUNTED_AT_ONCE):
        part = slice(start, start + _COUNTED_AT_ONCE)
        for row, word in zip(signs, question, strict=True):
            found[part] += np.bitwise_count(row[part] ^ word)
    return found


def _positions_of_smallest(distances: NDArray[np.uint16], count: int) -> NDArray[np.intp]:
    """The positions of the `count` smallest, unordered. They are small integers: counting is faster
    than sorting.
    """
    if count >= len(distances):
        return np.arange(len(distances))
    limit = int(np.searchsorted(np.cumsum(np.bincount(distances)), count))
    near, at_limit = np.flatnonzero(distances < limit), np.flatnonzero(distances == limit)
    return np.concatenate([near, at_limit[: count - len(near)]])


def _are_allowed(database: sqlite3.Connection, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each id is in a range of `temp.allowed`."""
    rows = database.execute("SELECT first, last FROM temp.allowed ORDER BY first").fetchall()
    firsts, lasts = np.array([(-1, -1), *rows], np.int64).T
    found: NDArray[np.bool_] = ids <= lasts[np.searchsorted(firsts, ids, side="right") - 1]
    return found
