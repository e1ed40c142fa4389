"""The signs of vectors, one bit for each dimension: searched for the nearest ones, and stored in the
index, so that a process does not read all vectors to make them.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ouro.memory.index.late_numpy import LateNumpy
from ouro.utils.log import log

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = LateNumpy()

MIN_STORED = 512
"""So many vectors are read in 4 ms: fewer new ones are not stored."""
_MAX_STORED = 20_000
"""The most vectors of one stored row, 1 MB, and the most that are read at once."""
_COUNTED_AT_ONCE = 1 << 16
"""Vectors that are compared at once; the data of so many fits into the processor's cache."""
_BYTES_OF_ID = 8
BYTES_OF_WORD = 8
"""Signs are stored in words of 64 dimensions."""
_IS_OF = "source = ? AND model = ? AND made = ?"
_CREATE_TABLE = (
    "CREATE TABLE IF NOT EXISTS signs (source TEXT NOT NULL, model INTEGER NOT NULL, made TEXT NOT"
    " NULL, stamp INTEGER NOT NULL, ids BLOB NOT NULL, signs BLOB NOT NULL, PRIMARY KEY (source,"
    " stamp)) WITHOUT ROWID"
)
"""Each row has the signs of the vectors of the table `source` up to a stamp, after those of the row
before it. The table is made when it is first needed: an index of an earlier version has none.
"""


class SignsOrigin(NamedTuple):
    """What signs belong to. If one of these is different, they are loaded again."""

    model: int
    """The id of the model of the vectors."""
    index_id: str
    """The id of the index, and of the last change of model."""


class VectorSigns(msgspec.Struct):
    """The signs of all vectors of one table, in order of creation. Rows that were removed since may
    be among them.
    """

    ids: NDArray[np.int64]
    signs: NDArray[np.uint64]
    """One row for each 64 dimensions: reading row by row takes a third of the time."""
    stamp: int
    """The highest stamp of a row whose vector is in it."""
    origin: SignsOrigin


def nearest_ids(
    signs: VectorSigns, question: NDArray[np.float32], count: int, allowed: NDArray[np.intp] | None
) -> list[int]:
    """Returns the ids of the `count` vectors, in no order, whose signs differ least from those of
    the vector `question`; only of those at the positions `allowed`, if these are given.
    """
    positions = np.arange(len(signs.ids)) if allowed is None else allowed
    if not len(positions):
        return []
    distances = _count_different_bits(signs.signs, _signs(question[None])[:, 0])
    positions = positions[_positions_of_smallest(distances[positions], count)]
    return [int(row_id) for row_id in signs.ids[positions]]


def read_allowed(database: sqlite3.Connection) -> list[tuple[int, int]]:
    """Returns the ranges of `temp.allowed`, by their first and last id, in order."""
    return database.execute("SELECT first, last FROM temp.allowed ORDER BY first").fetchall()


def allowed_positions(database: sqlite3.Connection, ids: NDArray[np.int64]) -> NDArray[np.intp]:
    """Returns the positions of the ids that are in a range of `temp.allowed`."""
    rows = read_allowed(database)
    # The first range has no id: an id before all others is found in it.
    firsts, lasts = np.array([(-1, -1), *rows], np.int64).T
    last_range_before = np.searchsorted(firsts, ids, side="right") - 1
    return np.flatnonzero(ids <= lasts[last_range_before])


def add_new_signs(database: sqlite3.Connection, table: str, loaded: VectorSigns) -> VectorSigns:
    """Returns `loaded` with the signs of the vectors that have a higher stamp, which are read."""
    parts = [loaded]
    while part := _make_signs(database, table, loaded.origin, parts[-1].stamp):
        parts.append(part)
    return _join(parts)


def _make_signs(
    database: sqlite3.Connection, table: str, origin: SignsOrigin, stamp: int
) -> VectorSigns | None:
    """Returns the signs of the next vectors after a stamp, at most `_MAX_STORED`; they are made
    from the vectors. None if there are none.
    """
    rows = read_next_vectors(database, table, origin, stamp)
    if not rows:
        return None
    vectors = np.frombuffer(b"".join(row[2] for row in rows), np.float16).reshape(len(rows), -1)
    ids = np.array([row[0] for row in rows], np.int64)
    return VectorSigns(ids, _signs(vectors), stamp=rows[-1][1], origin=origin)


def read_next_vectors(
    database: sqlite3.Connection, table: str, origin: SignsOrigin, stamp: int
) -> list[tuple[int, int, bytes]]:
    """Returns the next vectors after a stamp, at most `_MAX_STORED`: the id of the passage, its stamp
    and the vector as it is stored.
    """
    return database.execute(
        f"SELECT passage.id, passage.stamp, vectors.vector FROM {table} AS passage JOIN vectors"
        " ON vectors.hash = passage.hash AND vectors.model = ? WHERE passage.stamp > ?"
        " ORDER BY passage.stamp LIMIT ?",
        (origin.model, stamp, _MAX_STORED),
    ).fetchall()


def _join(parts: list[VectorSigns]) -> VectorSigns:
    """Returns the signs of several parts in one; the last one has the highest stamp."""
    last = parts[-1]
    if len(parts) == 1:
        return last
    signs = [part.signs for part in parts if part.signs.size]
    ids = np.concatenate([part.ids for part in parts])
    return VectorSigns(
        ids, signs=np.concatenate(signs, axis=1), stamp=last.stamp, origin=last.origin
    )


def read_signs(database: sqlite3.Connection, table: str, origin: SignsOrigin) -> VectorSigns:
    """Returns the signs that are stored in the index; none if they are damaged."""
    parts = [
        VectorSigns(np.empty(0, np.int64), np.empty((0, 0), np.uint64), stamp=0, origin=origin)
    ]
    try:
        for stamp, stored_ids, stored_signs in read_stored_rows(database, table, origin):
            ids = np.frombuffer(stored_ids, np.int64)
            signs = np.frombuffer(stored_signs, np.uint64).reshape(-1, len(ids))
            parts.append(VectorSigns(ids, signs, stamp, origin))
        return _join(parts)
    except (TypeError, ValueError) as error:
        log.warning("the stored signs of vectors are not used: %s", error)
        return parts[0]


def read_stored_rows(
    database: sqlite3.Connection, table: str, origin: SignsOrigin
) -> list[tuple[int, bytes, bytes]]:
    """Returns the stored signs of a table in rows: the highest stamp, the ids of the passages, and
    their signs. In these the first word of all passages is followed by the second of all.
    """
    if not _has_table(database):
        return []
    return database.execute(
        f"SELECT stamp, ids, signs FROM signs WHERE {_IS_OF} ORDER BY stamp", (table, *origin)
    ).fetchall()


def are_signs_unstored(database: sqlite3.Connection, table: str, origin: SignsOrigin) -> bool:
    """Whether the signs of at least `MIN_STORED` vectors of a table are not stored."""
    stamp = _stored_stamp(database, table, origin) if _has_table(database) else 0
    (count,) = database.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE stamp > ? LIMIT ?)", (stamp, MIN_STORED)
    ).fetchone()
    return bool(count == MIN_STORED)


def store_next_signs(database: sqlite3.Connection, table: str, origin: SignsOrigin) -> None:
    """Store the signs of the next vectors that are not stored. What is stored for another model or
    index is removed first; so is everything of this table if many of its rows were removed.
    """
    database.execute(_CREATE_TABLE)
    database.execute("DELETE FROM signs WHERE model <> ? OR made <> ?", origin)
    (stored,) = database.execute(
        f"SELECT coalesce(sum(length(ids)), 0) / {_BYTES_OF_ID} FROM signs WHERE {_IS_OF}",
        (table, *origin),
    ).fetchone()
    (in_use,) = database.execute(
        f"SELECT count(*) FROM {table} WHERE stamp <= ?", (_stored_stamp(database, table, origin),)
    ).fetchone()
    if stored - in_use > max(MIN_STORED, in_use / 10):
        database.execute("DELETE FROM signs WHERE source = ?", (table,))
    signs = _make_signs(database, table, origin, _stored_stamp(database, table, origin))
    if signs is not None:
        row = (table, *origin, signs.stamp, signs.ids.tobytes(), signs.signs.tobytes())
        database.execute("INSERT OR REPLACE INTO signs VALUES (?, ?, ?, ?, ?, ?)", row)


def _stored_stamp(database: sqlite3.Connection, table: str, origin: SignsOrigin) -> int:
    """Returns the stamp up to which the signs of a table are stored."""
    (stamp,) = database.execute(
        f"SELECT coalesce(max(stamp), 0) FROM signs WHERE {_IS_OF}", (table, *origin)
    ).fetchone()
    return int(stamp)


def _has_table(database: sqlite3.Connection) -> bool:
    """Whether the index has the table of stored signs."""
    return bool(database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'signs'").fetchone())


def _signs(vectors: NDArray[np.floating[Any]]) -> NDArray[np.uint64]:
    """Returns the signs of vectors (rows), one bit per dimension: a column for each vector, with 64
    dimensions in each number. Missing dimensions at the end are 0.
    """
    packed = np.packbits(vectors > 0, axis=1)
    missing_bytes = -packed.shape[1] % 8  # to the next multiple of 8, the bytes of a number
    padded = np.pad(packed, ((0, 0), (0, missing_bytes)))
    return np.ascontiguousarray(padded.view(np.uint64).T)


def _count_different_bits(
    signs: NDArray[np.uint64], question: NDArray[np.uint64]
) -> NDArray[np.uint16]:
    """Returns the number of dimensions in which each vector has another sign than the question.
    Both are in the form of `_signs`.
    """
    counts = np.zeros(signs.shape[1], np.uint16)
    for start in range(0, len(counts), _COUNTED_AT_ONCE):
        part = slice(start, start + _COUNTED_AT_ONCE)
        for row, word in zip(signs, question, strict=True):
            counts[part] += np.bitwise_count(row[part] ^ word)
    return counts


def _positions_of_smallest(distances: NDArray[np.uint16], count: int) -> NDArray[np.intp]:
    """Returns the positions of the `count` smallest distances, in no order. Because these are small
    integers, counting them is faster than sorting.
    """
    if count >= len(distances):
        return np.arange(len(distances))
    limit = int(np.searchsorted(np.cumsum(np.bincount(distances)), count))
    near, at_limit = np.flatnonzero(distances < limit), np.flatnonzero(distances == limit)
    return np.concatenate([near, at_limit[: count - len(near)]])
