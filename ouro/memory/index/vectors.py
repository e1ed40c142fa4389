"""Vectors of passages and notes: makes them, stores them by model and hash of the text, and
searches them: with numpy, or in plain Python if that is not imported and there are few.

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
import sys
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ouro.errors import SearchUnavailable
from ouro.memory.index.embeddings import LOCAL_NAME, Embedder, LocalEmbedder, RemoteEmbedder
from ouro.memory.index.late_numpy import LateNumpy
from ouro.memory.index.plain_vectors import (
    PlainSigns,
    add_new_plain_signs,
    cosine,
    nearest_plain,
    pack,
    read_plain_signs,
)
from ouro.memory.index.question_process import running_question_process
from ouro.memory.index.schema import searched_column
from ouro.memory.index.vector_signs import (
    SignsOrigin,
    VectorSigns,
    add_new_signs,
    allowed_positions,
    are_signs_unstored,
    nearest_ids,
    read_allowed,
    read_signs,
    store_next_signs,
)
from ouro.utils.log import log

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ouro.memory.index.index import Index

    Floats = NDArray[np.float32]
    Vector = array[float] | Floats
    """`QuestionProcess` returns arrays of Python, an embedder those of numpy."""
else:
    np = LateNumpy()

TABLES = ("notes", "messages")
BATCH = 64
"""Vectors that are made in one call of the model."""
KEPT_DAYS = 30
"""Vectors of a model that was not used for so many days are deleted."""
_HAS_VECTOR = "EXISTS (SELECT 1 FROM vectors WHERE vectors.hash = {}.hash AND vectors.model = ?)"
_MAX_CACHED_QUESTIONS = 64
_MAX_QUESTION_CHARACTERS = 2_000
_MAX_PLAIN = 65_536
"""So many vectors are searched in plain Python in 12 ms; numpy takes 45 to import."""
_SAMPLE_VECTORS = 200
"""Vectors from which the usual cosine of a model is computed."""
_MIN_SAMPLE_VECTORS = 20
_NARROW_COSINE = 0.4
"""A model whose vectors are usually closer than this uses a part of the scale (e5: 0.8, bge:
0.6).
"""
_USUAL_COSINE_OF_LOCAL = 0.15
"""The usual cosine of all-MiniLM-L6-v2, for which weights and limits were measured."""


class Vectors:
    """The vectors of one index by one embedder. Every method may block, and raises ModelError and
    SearchUnavailable.
    """

    def __init__(self, index: Index, embedder: Embedder) -> None:
        self.embedder = embedder
        self._index = index
        self._signs_by_table: dict[str, VectorSigns] = {}
        self._plain_signs_by_table: dict[str, PlainSigns] = {}
        self._questions: OrderedDict[str, Vector] = OrderedDict()
        """The vectors of the last questions, by their text."""
        self._length = 0
        """The length of the model's last vector; 0 before the first one."""
        self._lock = threading.RLock()
        self._stamped_rows: dict[str, list[tuple[int, int]]] = {}
        """The rows of each table that `_fill_table` gave a stamp last: id and hash."""
        self._usual_cosines: dict[int, float] = {}
        """The usual cosine of two texts, by the id of the model."""

    @property
    def is_local(self) -> bool:
        """Whether they are made by the local model, which knows only English."""
        return self.embedder.name == LOCAL_NAME

    def fill(self, max_vectors: int = BATCH, tables: Sequence[str] = TABLES) -> int:
        """Make up to `max_vectors` missing vectors, in the order of the tables, in each the newest
        first. Returns how many rows got one.
        """
        self.choose_model()
        count = 0
        for table in tables:
            if count < max_vectors:
                count += self._fill_table(table, max_vectors - count)
        return count

    def fill_all(
        self,
        tables: Sequence[str] = TABLES,
        seconds: float = math.inf,
        max_vectors: float = math.inf,
    ) -> None:
        """Make all missing vectors, in the order of `fill`. Ends after about `seconds`, or after
        `max_vectors` vectors.
        """
        deadline, total = time.monotonic() + seconds, 0
        while time.monotonic() < deadline:
            count = self.fill(int(min(BATCH, max_vectors - total)), tables)
            if not count:
                return
            total += count

    def are_usable(self, tables: Iterable[str] = TABLES) -> bool:
        """Whether one of these tables has rows, and there are vectors of any model."""
        with self._index.reading() as database:
            has_rows = any(_has_rows(database, table) for table in tables)
            return has_rows and _has_rows(database, "vectors")

    def are_missing(self) -> bool:
        """Whether a passage or note has no vector of this model yet."""
        self.choose_model()
        with self._index.reading() as database:
            queries = (
                database.execute(f"SELECT 1 FROM {table} WHERE stamp IS NULL LIMIT 1")
                for table in TABLES
            )
            return any(rows.fetchone() for rows in queries)

    def is_ready(self, table: str) -> bool:
        """Whether each row of a table has its vector of this model, and the model was used today. A
        search then needs neither `choose_model` nor `fill`, which write.
        """
        today = str(datetime.now(UTC).date())
        with self._index.reading() as database:
            model, last_used = self._model_row(database, self._length)
            if last_used != today or not self._has_stamps_of(database, model):
                return False
            query = f"SELECT 1 FROM {table} WHERE stamp IS NULL LIMIT 1"
            return database.execute(query).fetchone() is None

    def count_missing(self, table: str, max_count: int) -> int:
        """Returns the number of rows of a table without a vector of this model, counted up to
        `max_count`. The stamps of the rows are set for this model first: a row without a stamp has
        no vector of it.
        """
        self.choose_model()
        with self._index.reading() as database:
            (count,) = database.execute(
                f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE stamp IS NULL LIMIT ?)",
                (max_count,),
            ).fetchone()
        return int(count)

    def embed_questions(self, texts: Sequence[str]) -> list[Vector]:
        """Returns the vectors of queries, in their order. Those that are not cached are made in one
        call of the model.
        """
        texts = [text[:_MAX_QUESTION_CHARACTERS] for text in texts]
        with self._lock:
            new_texts = [text for text in dict.fromkeys(texts) if text not in self._questions]
            if new_texts:
                self._questions |= zip(new_texts, self._embed(new_texts), strict=True)
            vectors = [self._questions[text] for text in texts]
            while len(self._questions) > _MAX_CACHED_QUESTIONS:
                self._questions.popitem(last=False)
        if vectors:
            self._choose_model_if_changed(len(vectors[0]))
        return vectors

    def nearest(
        self,
        database: sqlite3.Connection,
        table: str,
        question: Vector,
        count: int,
        *,
        is_limited: bool = False,
    ) -> list[int]:
        """Returns the ids of the `count` passages of a table, in no order, whose signs differ least
        from those of the vector `question`. If `is_limited`, only passages in `temp.allowed` are
        compared.
        """
        with self._lock:
            if self._is_plain(database, table):
                plain_signs = self._load_plain_signs(database, table, len(question))
                ranges = read_allowed(database) if is_limited else None
                return nearest_plain(plain_signs, question, count, ranges)
            signs = self._load_signs(database, table, len(question))
            allowed = allowed_positions(database, signs.ids) if is_limited else None
            return nearest_ids(signs, np.asarray(question, np.float32), count, allowed)

    def cosines(
        self, database: sqlite3.Connection, table: str, question: Vector, ids: Sequence[int]
    ) -> dict[int, float]:
        """Returns the cosine of each passage with the vector `question`, by id. Passages without a
        vector are left out.

        The limits of the search were measured with the local model. If the vectors of another model
        are usually closer to each other (e5: 0.8), its cosines are rescaled.
        """
        model, _last_used = self._model_row(database, len(question))
        rows = database.execute(
            f"SELECT passage.id, vectors.vector FROM {table} AS passage JOIN vectors ON"
            " vectors.hash = passage.hash AND vectors.model = ? WHERE passage.id IN (SELECT value"
            " FROM json_each(?))",
            (model, json.dumps(list(ids))),
        ).fetchall()
        if not rows:
            return {}
        if not _has_imported_numpy():
            return {row_id: cosine(vector, question) for row_id, vector in rows}
        cosines = _matrix([vector for _, vector in rows]) @ np.asarray(question, np.float32)
        usual_cosine = self._usual_cosine(database, model)
        if usual_cosine > _NARROW_COSINE:
            cosines = _rescale(cosines, usual_cosine)
        return dict(zip((row_id for row_id, _ in rows), cosines.tolist(), strict=True))

    def _usual_cosine(self, database: sqlite3.Connection, model: int) -> float:
        """Returns the mean cosine of two texts of a sample in the index, for a remote model. 0
        while there are few vectors, and for the local model, whose scale is known.

        The vectors are sorted by hashes, so the first ones are a random sample.
        """
        if not isinstance(self.embedder, RemoteEmbedder):
            return 0.0
        if model not in self._usual_cosines:
            rows = database.execute(
                "SELECT vector FROM vectors WHERE model = ? ORDER BY hash LIMIT ?",
                (model, _SAMPLE_VECTORS),
            ).fetchall()
            count = len(rows)
            if count < _MIN_SAMPLE_VECTORS:
                return 0.0
            total = _matrix([vector for (vector,) in rows]).sum(axis=0)
            # The square of the sum has each pair twice, and each vector with itself.
            self._usual_cosines[model] = float(total @ total - count) / (count * (count - 1))
        return self._usual_cosines[model]

    def choose_model(self) -> None:
        """Make this model the one that the stamps of rows are for: another process may have set
        them for another model. Record that this model was used today, and delete the vectors of
        models that were not used for KEPT_DAYS.

        The length of a new model's vectors is not known before the first one: until then it has no
        id (0), and no row has a stamp.
        """
        today = datetime.now(UTC).date()
        with self._index.reading() as database:
            model_id, last_used = self._model_row(database, self._length)
            if self._has_stamps_of(database, model_id) and last_used == str(today):
                return
        with self._index.writing() as database:
            model_id, _last_used = self._model_row(database, self._length)
            if self._length and not model_id:
                new_row = (self.embedder.name, self._length, str(today))
                database.execute(
                    "INSERT INTO models (name, length, used) VALUES (?, ?, ?)", new_row
                )
                model_id, _last_used = self._model_row(database, self._length)
            database.execute("UPDATE models SET used = ? WHERE id = ?", (str(today), model_id))
            if not self._has_stamps_of(database, model_id):
                _set_stamps_for(database, model_id)
            oldest_day = (str(today - timedelta(days=KEPT_DAYS)),)
            database.execute(
                "DELETE FROM vectors WHERE model IN (SELECT id FROM models WHERE used < ?)",
                oldest_day,
            )
            database.execute("DELETE FROM models WHERE used < ?", oldest_day)

    def _model_row(self, database: sqlite3.Connection, length: int) -> tuple[int, str]:
        """Returns the id of this model in the table `models`, and the day of its last use; (0, "")
        if the table does not have it.

        A model of one name may have several rows, one for each length of its vectors.

        Args:
            length: the length of the vectors; 0: not known, then the row that was used last counts.
        """
        row = database.execute(
            "SELECT id, used FROM models WHERE name = ? AND ? IN (0, length) ORDER BY used DESC, id"
            " DESC LIMIT 1",
            (self.embedder.name, length),
        ).fetchone()
        return row or (0, "")

    @staticmethod
    def _has_stamps_of(database: sqlite3.Connection, model: int) -> bool:
        """Whether the stamps in the tables are for this model."""
        return bool(
            database.execute("SELECT value FROM facts WHERE name = 'model'").fetchone()
            == (str(model),)
        )

    def _embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Returns the vectors of texts, and sets `_length`. While the process for the first message
        runs, it is asked for those of the local model.
        """
        vectors: list[Vector] = []
        process = running_question_process()
        if process is not None and isinstance(self.embedder, LocalEmbedder):
            vectors.extend(process.embed(texts))
        if not vectors:
            vectors.extend(self.embedder.embed(texts))
        self._length = len(vectors[0])
        return vectors

    def _choose_model_if_changed(self, length: int) -> None:
        """Set the stamps for this model, if another process has set them for another model. Called
        before a search, because only rows with a stamp are searched. A failure is logged.

        Args:
            length: the length of this model's vectors.
        """
        try:
            with self._index.reading() as database:
                model, _ = self._model_row(database, length)
                if not model or self._has_stamps_of(database, model):
                    return
            self.choose_model()
        except SearchUnavailable as error:
            log.warning("some vectors are not looked at: %s", error)

    def _fill_table(self, table: str, max_rows: int) -> int:
        """Make up to `max_rows` missing vectors of a table, the newest rows first. Each row whose
        vector exists gets a stamp, a number that only grows: by it other processes find new
        vectors. Returns the number of rows that got a stamp.

        Returns 0, too, if further calls would bring nothing: another process has made its model the
        one that stamps are for, or the last call wrote to another file than is read.
        """
        with self._index.reading() as database:
            rows = database.execute(
                f"SELECT id, hash, {searched_column(table)} FROM {table} WHERE stamp IS NULL ORDER BY id DESC LIMIT ?",
                (max_rows,),
            ).fetchall()
            existing = database.execute(
                "SELECT hash FROM vectors WHERE model = ? AND hash IN (SELECT value FROM"
                " json_each(?))",
                (
                    self._model_row(database, self._length)[0],
                    json.dumps([text_hash for _, text_hash, _ in rows]),
                ),
            ).fetchall()
        rows_to_stamp = [(row_id, text_hash) for row_id, text_hash, _ in rows]
        # The last call gave these rows their stamps, and they have none again: the file was removed
        # or replaced, so what is written is not what is read. A caller that asks until none is
        # missing would never end.
        last_stamped_rows = self._stamped_rows.pop(table, None)
        if not rows or rows_to_stamp == last_stamped_rows:
            return 0

        # Make and store the vectors, then give each row with a vector its stamp.
        new_texts = {text_hash: text for _, text_hash, text in rows if (text_hash,) not in existing}
        vectors = self._embed(list(new_texts.values())) if new_texts else ()
        self.choose_model()  # the length of the vectors is known only now; it may have changed
        with self._index.writing() as database:
            model, _ = self._model_row(database, self._length)
            values = [
                (text_hash, model, _as_stored(vector))
                for text_hash, vector in zip(new_texts, vectors, strict=True)
            ]
            database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", values)
            if not self._has_stamps_of(database, model):
                return 0  # another process uses another model now; the stamps are for that model
            first_stamp = _take_stamps(database, table, len(rows))
            stamps = [
                (stamp, row_id, text_hash, model)
                for stamp, (row_id, text_hash, _) in enumerate(rows, first_stamp)
            ]
            updated = database.executemany(
                f"UPDATE {table} SET stamp = ? WHERE id = ? AND hash = ? AND"
                f" {_HAS_VECTOR.format(table)}",
                stamps,
            )
        self._stamped_rows[table] = rows_to_stamp
        return updated.rowcount

    def load_all_signs(self) -> None:
        """Load the signs (one bit for each number) of all vectors, so that the first search does
        not wait for them.
        """
        for table in TABLES:
            with self._index.reading() as database, self._lock:
                self._load_signs(database, table, self._length)

    def store_signs(self) -> None:
        """Store the signs of all vectors in the index, if those of many are not there, so that the
        next process does not read all vectors. They are stored in portions.
        """
        self.choose_model()
        for table in TABLES:
            while self._are_signs_unstored(table):
                with self._index.writing() as database:
                    origin = self._signs_origin(database, self._length)
                    store_next_signs(database, table, origin)

    def has_work(self) -> bool:
        """Whether vectors are missing, or the signs of many are not stored."""
        return self.are_missing() or any(map(self._are_signs_unstored, TABLES))

    def _are_signs_unstored(self, table: str) -> bool:
        with self._index.reading() as database:
            origin = self._signs_origin(database, self._length)
            return are_signs_unstored(database, table, origin)

    def _load_signs(self, database: sqlite3.Connection, table: str, length: int) -> VectorSigns:
        """Returns the signs of all vectors of this model in a table. Those that were loaded before
        stay in memory; only rows with a new stamp are read. If the index was made again, or the
        stamps were set for another model, all are loaded again.
        """
        origin = self._signs_origin(database, length)
        loaded = self._signs_by_table.get(table)
        if loaded is None or loaded.origin != origin:
            loaded = read_signs(database, table, origin)
        self._signs_by_table[table] = add_new_signs(database, table, loaded)
        return self._signs_by_table[table]

    def _is_plain(self, database: sqlite3.Connection, table: str) -> bool:
        """Whether a table is searched in plain Python."""
        if _has_imported_numpy():
            return False
        (count,) = database.execute(f"SELECT coalesce(max(stamp), 0) FROM {table}").fetchone()
        return bool(count <= _MAX_PLAIN)

    def _load_plain_signs(
        self, database: sqlite3.Connection, table: str, length: int
    ) -> PlainSigns:
        """Returns the same signs as `_load_signs`, for plain Python."""
        origin = self._signs_origin(database, length)
        loaded = self._plain_signs_by_table.get(table)
        if loaded is None or loaded.origin != origin:
            loaded = read_plain_signs(database, table, origin, length)
        add_new_plain_signs(database, table, loaded)
        self._plain_signs_by_table[table] = loaded
        return loaded

    def _signs_origin(self, database: sqlite3.Connection, length: int) -> SignsOrigin:
        """Returns what signs of this model belong to now."""
        model, _last_used = self._model_row(database, length)
        facts = database.execute(
            "SELECT value FROM facts WHERE name IN ('made', 'stamped') ORDER BY name"
        )
        return SignsOrigin(model, " ".join(value for (value,) in facts))


def _has_rows(database: sqlite3.Connection, table: str) -> bool:
    return database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None


def _set_stamps_for(database: sqlite3.Connection, model: int) -> None:
    """Set the stamps of all rows for a model: a row has a stamp if this model has made a vector of
    it, else NULL. A row that keeps its vector keeps its stamp; other rows with a vector get new
    stamps, which are higher than all before.
    """
    # A new value of `stamped` tells every process to read all stamps again.
    facts = [("model", str(model)), ("stamped", os.urandom(8).hex())]
    database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts)
    for table in TABLES:
        has_vector = _HAS_VECTOR.format(table)
        database.execute(
            f"UPDATE {table} SET stamp = NULL WHERE stamp IS NOT NULL AND NOT {has_vector}",
            (model,),
        )
        rows = database.execute(
            f"SELECT id FROM {table} WHERE stamp IS NULL AND {has_vector}", (model,)
        ).fetchall()
        first_stamp = _take_stamps(database, table, len(rows))
        stamps = [(stamp, row_id) for stamp, (row_id,) in enumerate(rows, first_stamp)]
        database.executemany(f"UPDATE {table} SET stamp = ? WHERE id = ?", stamps)


def _take_stamps(database: sqlite3.Connection, table: str, count: int) -> int:
    """Take `count` new stamps for rows of a table; returns the first. They are higher than all that
    a row of it has or had: the row with the highest stamp may have been removed, and who has read
    its vector looks only for higher ones.
    """
    fact = f"last stamp of {table}"
    (last_stamp,) = database.execute(
        f"SELECT max(coalesce((SELECT max(stamp) FROM {table}), 0), coalesce((SELECT CAST(value AS"
        " INTEGER) FROM facts WHERE name = ?), 0))",
        (fact,),
    ).fetchone()
    database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (fact, str(last_stamp + count)))
    return int(last_stamp) + 1


def _as_stored(vector: Vector) -> bytes:
    """Returns a vector in half precision."""
    if isinstance(vector, array):
        return pack(vector)
    return vector.astype(np.float16).tobytes()


def _has_imported_numpy() -> bool:
    return "numpy" in sys.modules


def _matrix(vectors: Sequence[bytes]) -> Floats:
    """Returns stored vectors, of half precision, as the rows of a matrix of 32-bit numbers."""
    halves = np.frombuffer(b"".join(vectors), np.float16).reshape(len(vectors), -1)
    return halves.astype(np.float32)


def _rescale(cosines: Floats, usual_cosine: float) -> Floats:
    """Returns cosines on the scale of the local model: `usual_cosine`, that of the other model,
    becomes the usual cosine of the local one, and 1 stays 1.
    """
    stretch = (1 - _USUAL_COSINE_OF_LOCAL) / (1 - usual_cosine)
    return _USUAL_COSINE_OF_LOCAL + (cosines - usual_cosine) * stretch
