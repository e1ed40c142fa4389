"""Search: notes and messages relevant to a query.

They are found by words and, if there are any, by vectors. No model is called. The
score of a passage is the share of the query's words in it and its neighbours, plus the similarity
of its vector, plus a little for the speaker and the days that the query names.
"""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import (
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from ouro.errors import ModelError
from ouro.memory.index.passages import POSITION_BITS
from ouro.memory.index.query import SPEAKERS, ParsedQuery, parse_query
from ouro.memory.index.scoring import (
    DAYS_WEIGHT,
    EVERY_PASSAGE,
    Passage,
    PassageRange,
    highest_scores,
    match_days,
    score_passages,
    word_scores,
)

if TYPE_CHECKING:
    from ouro.memory.index.index import Index
    from ouro.memory.index.vectors import Vector, Vectors

HitKind = Literal["note", "core", "message", "output"]
KINDS: tuple[HitKind, ...] = ("note", "core", "message", "output")
_TABLE_WITH_VECTORS = {"note": "notes", "core": "notes", "message": "messages"}
"""The tables of the kinds whose texts have vectors."""
_NOTE_CANDIDATES = 150
_NEAREST_NOTES = 300
"""The number of candidates that are selected by the signs of their vectors."""
_MESSAGE_CANDIDATES = 200
"""The number of messages to score that are taken from each of words, vectors and days."""
_OUTPUT_WEIGHT = 0.7
"""The weight of a tool output; messages about it count more."""
_SESSIONS_OF_DAYS = 20
"""The most sessions of a day from which messages are taken."""


class MemoryHit(msgspec.Struct, frozen=True):
    """What a search found: a note, a core line, a message or a tool output."""

    id: str
    """The id of a note, `facts.md:3` for a core line, `<session id>:<message number>` for a
    message.
    """
    kind: HitKind
    text: str
    score: float
    parts: Mapping[str, float]
    """The terms of the score: `words`, `vectors`, `speaker`, `days`, `asks`, `session`."""
    row_id: int
    """The id of its row in the index."""
    at: str = ""
    session: str = ""
    title: str = ""
    project: str = ""
    number: int = 0
    """The number of the message; the line number of a core line; for a note the turn that it came
    from.
    """
    role: str = ""
    """The speaker; for an output the tool."""
    path: str = ""
    scope: str = ""
    category: str = ""
    confidence: float = 1.0
    source: str = ""
    branch: str = ""
    supersedes: str = ""
    archived: bool = False
    search_words: str = ""
    """Further words by which the note is found; they are not part of its text."""
    lacks_vector: bool = False
    """Whether it has no vector yet: then `vectors` of `parts` is the average of the others."""
    knows_only_english: bool = False
    """Whether the model of its vector is the local one: of two texts in another language it says
    little more than that they are in the same one.
    """


class SearchFilter(msgspec.Struct, frozen=True):
    """Limits of a search; empty fields do not limit."""

    kinds: tuple[HitKind, ...] = KINDS
    since: str = ""
    """`2026-11-21`, or with a time, in UTC."""
    scope: str = ""
    """If a scope or category is given, only notes and core lines are found."""
    category: str = ""
    project: str = ""
    """The folder of sessions, and the repository root of notes. The user's own notes are always
    found.
    """
    session: str = ""
    """The whole id of a session."""
    archived: bool = False
    """Also find archived notes."""
    notes_of: tuple[str, ...] | None = None
    """The roots of the repositories whose notes may be found in addition to the user's own; None:
    all.
    """
    here: str = ""
    """The root of the repository whose entry is found if another one has the same text, as in another
    clone.
    """


class _Request(msgspec.Struct, frozen=True):
    """One search with its limits, while the index is open for reading."""

    database: sqlite3.Connection
    question: ParsedQuery
    vector: Any
    """The vector of the question; None if words alone decide."""
    vectors: Vectors | None
    wanted: SearchFilter

    def nearest(self, table: str, count: int, limits: PassageRange) -> list[int]:
        """Returns the ids of about `count` passages whose vectors are nearest to that of the
        question; empty without vectors.
        """
        if self.vectors is None:
            return []
        return self.vectors.nearest(
            self.database, table, self.vector, count, is_limited=not limits.is_all
        )

    def cosines(self, table: str, ids: Iterable[int]) -> dict[int, float]:
        """Returns the cosine of the vector of each passage with that of the question, by id; empty
        without vectors.
        """
        if self.vectors is None:
            return {}
        return self.vectors.cosines(self.database, table, self.vector, sorted(ids))

    def words(
        self, table: str, limits: PassageRange, *, has_neighbours: bool = False
    ) -> dict[int, float]:
        """Returns the share of the query's words in each passage, weighted by their rarity, by id:
        see `word_scores`.
        """
        is_note_in_other_words = table == "notes" and not self.question.is_in_english
        return word_scores(
            self.database,
            table,
            self.question.words,
            limits,
            has_neighbours=has_neighbours,
            by_start=is_note_in_other_words,
        )


class Search:
    """Searches one index. Every method may block for some milliseconds, and raises
    SearchUnavailable.
    """

    def __init__(
        self, index: Index, vectors: Vectors | None = None, speakers: Sequence[str] = SPEAKERS
    ) -> None:
        self.index = index
        self.vectors = vectors
        self._speakers = speakers

    def _vectors_for(
        self, spoken: str, kinds: Collection[str]
    ) -> tuple[Vectors | None, Vector | None]:
        """Returns the vectors to compare with, and that of the question as `spoken`. Both are None
        if words alone decide: there are no vectors for these kinds, or the model does not answer.
        """
        tables = {_TABLE_WITH_VECTORS[kind] for kind in kinds if kind in _TABLE_WITH_VECTORS}
        if self.vectors is None or not self.vectors.are_usable(tables):
            return None, None
        try:
            return self.vectors, self.vectors.embed_questions([spoken])[0]
        except ModelError:
            return None, None  # the embedder has logged it

    def find(
        self, query: str, k: int = 5, wanted: SearchFilter | None = None, today: date | None = None
    ) -> list[MemoryHit]:
        """Returns the `k` best hits, best first, each text once. If the embedding model does not
        answer, only words are compared.

        Args:
            wanted: the limits of the search; None: no limits.
            today: the day to which relative dates of the query refer; None: today in UTC.
        """
        wanted = wanted or SearchFilter()
        question = parse_query(query, self._speakers, today or datetime.now(UTC).date())
        kinds = set(wanted.kinds)
        if wanted.scope or wanted.category:  # only notes and core lines have these
            kinds -= {"message", "output"}
        vectors, vector = self._vectors_for(question.spoken, kinds)
        hits: list[MemoryHit] = []
        with self.index.reading() as database:
            request = _Request(database, question, vector, vectors, wanted)
            if {"note", "core"} & kinds:
                hits += _find_notes(request)
            if "message" in kinds:
                hits += _find_messages(request, k)
            if "output" in kinds:
                hits += _find_outputs(request, k)
        # Copies of a session have the same messages: the best hit of each text is returned.
        by_text: dict[str, MemoryHit] = {}
        for hit in sorted(hits, key=lambda item: (-item.score, item.project != wanted.here)):
            by_text.setdefault(hit.text, hit)
        return list(by_text.values())[:k]

    def nearest_notes(
        self, texts: Sequence[str], k: int, wanted: Sequence[SearchFilter]
    ) -> list[MemoryHit]:
        """Returns the notes nearest in meaning to any of `texts`, best first: the `k` nearest for
        each text and each filter in `wanted`, each note once. The score of a note is its best
        cosine.

        Only vectors are used; empty without vectors. Raises ModelError.
        """
        if self.vectors is None or not self.vectors.are_usable(("notes",)):
            return []
        hits: list[MemoryHit] = []
        no_words = ParsedQuery(words=())
        vectors = self.vectors.embed_questions(texts)
        with self.index.reading() as database:
            for vector in vectors:
                for wanted_notes in wanted:
                    request = _Request(database, no_words, vector, self.vectors, wanted_notes)
                    hits += _find_nearest_notes(request, k)
        best_hits: dict[str, MemoryHit] = {}
        for hit in sorted(hits, key=lambda hit: -hit.score):
            best_hits.setdefault(hit.id, hit)
        return list(best_hits.values())


def _find_nearest_notes(request: _Request, k: int) -> list[MemoryHit]:
    """Returns the `k` notes whose vectors are nearest to that of the question, best first. The
    score of a note is its cosine.
    """
    nearest_ids = request.nearest("notes", _NEAREST_NOTES, _limit_notes(request))
    cosines = request.cosines("notes", nearest_ids)
    hits = [
        replace(hit, score=cosines[hit.row_id]) for hit in _note_hits(request.database, cosines)
    ]
    return heapq.nlargest(k, hits, key=lambda hit: hit.score)


def _note_hits(database: sqlite3.Connection, ids: Iterable[int]) -> list[MemoryHit]:
    """Returns the notes and core lines with these ids as hits, without scores and in no order."""
    rows = database.execute(
        "SELECT id AS row_id, note AS id, kind, text, at, session, project, iif(line, line, turn)"
        " AS number, path, scope, category, confidence, source, branch, supersedes, archived, search_words FROM"
        f" notes WHERE {_IN_LIST}",
        _json_list(ids),
    )
    names = [column[0] for column in rows.description]
    fields = ({**dict(zip(names, row, strict=True)), "score": 0.0, "parts": {}} for row in rows)
    return [MemoryHit(**(row | {"archived": bool(row["archived"])})) for row in fields]


_IN_LIST = "id IN (SELECT value FROM json_each(?))"
_IS_ALLOWED = (
    "(SELECT last FROM temp.allowed WHERE first <= passage ORDER BY first DESC LIMIT 1) >= passage"
)
"""The SQL condition that `passage`, an id, is in a range of `temp.allowed`."""
_ALLOWED_SESSIONS = f"SELECT first >> {POSITION_BITS} FROM temp.allowed"


def _json_list(ids: Iterable[int]) -> tuple[str]:
    """Returns the parameters of a statement with `_IN_LIST`."""
    return (json.dumps(sorted(ids)),)


def _find_notes(request: _Request) -> list[MemoryHit]:
    """Returns the notes and core lines with a score above 0, in no order.

    The candidates are those with the best words, the nearest vectors, and from the days that the
    query names. A candidate without a vector gets the average cosine.
    """
    limits = _limit_notes(request)
    if not limits.count:
        return []
    shares = request.words("notes", limits)
    nearest = request.nearest("notes", _NOTE_CANDIDATES, limits)
    candidates = {
        *highest_scores(shares, _NOTE_CANDIDATES),
        *nearest,
        *_notes_of_days(request, limits),
    }
    cosines = request.cosines("notes", candidates)
    average = sum(cosines.values()) / len(cosines) if cosines else 0.0
    is_local = request.vectors is not None and request.vectors.is_local
    hits = []
    for hit in _note_hits(request.database, candidates):
        parts = {"words": shares.get(hit.row_id, 0.0)}
        if cosines:
            parts["vectors"] = max(0.0, cosines.get(hit.row_id, average))
        if day_share := match_days(hit.at, request.question):
            parts["days"] = DAYS_WEIGHT * day_share
        if (score := sum(parts.values())) > 0:
            lacks_vector = bool(cosines) and hit.row_id not in cosines
            hits.append(
                replace(
                    hit,
                    parts=parts,
                    score=score,
                    lacks_vector=lacks_vector,
                    knows_only_english=is_local,
                )
            )
    return hits


def _limit_notes(request: _Request) -> PassageRange:
    """Returns which rows of the table `notes` pass the filter: notes, and core lines, which are in
    the same table. If these are not all rows, their ids are written into `temp.allowed`.
    """
    wanted = request.wanted
    kinds = ", ".join(f"'{kind}'" for kind in wanted.kinds)
    conditions = [f"notes.kind IN ({kinds})"]
    if not wanted.archived:
        conditions.append("notes.archived = 0")
    values: tuple[str, ...] = ()
    for condition, value in (
        ("notes.scope = ?", wanted.scope),
        ("notes.category = ?", wanted.category),
        ("notes.session = ?", wanted.session),
        ("notes.project IN ('', ?)", wanted.project),  # '': the user's own notes
        ("notes.at >= ?", wanted.since),
    ):
        if value:
            conditions.append(condition)
            values = (*values, value)
    if wanted.notes_of is not None:
        conditions.append("notes.project IN (SELECT '' UNION SELECT value FROM json_each(?))")
        values = (*values, json.dumps(wanted.notes_of))
    passes_filter = " AND ".join(conditions)
    (total,) = request.database.execute("SELECT count(*) FROM notes").fetchone()
    counts = f"SELECT count(*) FROM notes WHERE {passes_filter}"
    (count,) = request.database.execute(counts, values).fetchone()
    if count == total:
        return PassageRange(count)
    _clear_allowed(request.database)
    # The table has ranges, by their first and last id; here each has one id.
    request.database.execute(
        f"INSERT INTO temp.allowed SELECT id, id FROM notes WHERE {passes_filter}", values
    )
    return PassageRange(count, _IS_ALLOWED)


def _clear_allowed(database: sqlite3.Connection) -> None:
    """Create the table `temp.allowed`, or empty it. Its rows are ranges of ids."""
    database.execute(
        "CREATE TEMP TABLE IF NOT EXISTS allowed (first INTEGER PRIMARY KEY, last INTEGER NOT NULL)"
    )
    database.execute("DELETE FROM temp.allowed")


def _notes_of_days(request: _Request, limits: PassageRange) -> list[int]:
    """Returns the ids of the notes from the days that the query names, at most `_NOTE_CANDIDATES`
    for each span of days, its newest first.
    """
    ids: list[int] = []
    for first, last in request.question.days:
        until = (date.fromisoformat(last) + timedelta(days=1)).isoformat()
        rows = request.database.execute(
            f"SELECT id AS passage FROM notes WHERE at >= ? AND at < ? AND {limits.condition} ORDER"
            " BY at DESC LIMIT ?",
            (first, until, _NOTE_CANDIDATES),
        )
        ids += [passage_id for (passage_id,) in rows]
    return ids


def _find_messages(request: _Request, k: int) -> list[MemoryHit]:
    """Returns the best passages of messages of the user and the assistant, best first: up to three
    times `k`, so that `k` remain when the copies are removed that copied sessions have.
    """
    limits = _limit_messages(request, "messages")
    shares = request.words("messages", limits, has_neighbours=True)
    nearest = request.nearest("messages", _MESSAGE_CANDIDATES, limits)
    candidates = {
        *highest_scores(shares, _MESSAGE_CANDIDATES),
        *nearest,
        *_messages_of_days(request, limits),
    }
    passages = _read_passages(request, "messages", candidates)
    before = {passage_id - 1 for passage_id in candidates}
    after = {passage_id + 1 for passage_id in candidates}
    cosines = request.cosines("messages", before | candidates | after)
    terms = score_passages(passages, shares, cosines, request.question)
    return _best_hits("message", passages, terms_of_passage=terms, k=k)


def _find_outputs(request: _Request, k: int) -> list[MemoryHit]:
    """Returns the best tool outputs by words alone, best first: up to three times `k`, so that `k`
    remain when the copies are removed that copied sessions have. The score of an output is the
    share of the query's words in it, with the weight of outputs.
    """
    shares = request.words("outputs", _limit_messages(request, "outputs"))
    passages = _read_passages(request, "outputs", highest_scores(shares, _MESSAGE_CANDIDATES))
    terms = {passage.id: {"words": _OUTPUT_WEIGHT * shares[passage.id]} for passage in passages}
    return _best_hits("output", passages, terms_of_passage=terms, k=k)


def _limit_messages(request: _Request, table: Literal["messages", "outputs"]) -> PassageRange:
    """Returns which messages or outputs pass the filter: those of the wanted sessions, in each from
    the first one after `since` to the end. If the filter limits anything, one range of ids for each
    session is written into `temp.allowed`.
    """
    database, wanted = request.database, request.wanted
    column = "passages" if table == "messages" else "outputs"
    if not (wanted.session or wanted.project or wanted.since):
        total_query = f"SELECT coalesce(sum({column}), 0) FROM sessions"
        (total,) = database.execute(total_query).fetchone()
        return PassageRange(total)
    _clear_allowed(database)
    begin, end = f"(seq << {POSITION_BITS})", f"((seq + 1) << {POSITION_BITS}) - 1"
    # A session that began after `since` passes whole: only in older ones its first message is
    # searched for.
    first_since = (
        f"SELECT id FROM {table} WHERE id BETWEEN {begin} AND {end} AND at >= :since ORDER BY id"
        " LIMIT 1"
    )
    database.execute(
        f"INSERT INTO temp.allowed SELECT * FROM (SELECT iif(created_at >= :since, {begin},"
        f" ({first_since})) AS first, {end} FROM sessions WHERE :session IN ('', id) AND :project"
        " IN ('', project) AND updated_at >= :since) WHERE first IS NOT NULL",
        {"session": wanted.session, "project": wanted.project, "since": wanted.since},
    )
    count, first, last = database.execute(
        f"SELECT coalesce(sum({column}), 0), coalesce(min(first), 0), coalesce(max(last), 0)"
        f" FROM temp.allowed JOIN sessions ON seq = first >> {POSITION_BITS}"
    ).fetchone()
    # SQLite seeks to the span and filters the rows in it one by one.
    return PassageRange(count, f"passage BETWEEN {first} AND {last} AND {_IS_ALLOWED}")


def _messages_of_days(request: _Request, limits: PassageRange) -> list[int]:
    """Returns the ids of passages from the days that the query names: for each span of days at most
    `_MESSAGE_CANDIDATES`, from the newest sessions of these days.

    The ids of the passages of a session are a range that begins at its `seq << POSITION_BITS`.
    """
    session_condition = EVERY_PASSAGE if limits.is_all else f"seq IN ({_ALLOWED_SESSIONS})"
    ids: list[int] = []
    for first, last in request.question.days:
        until = (date.fromisoformat(last) + timedelta(days=1)).isoformat()
        rows = request.database.execute(
            "SELECT messages.id AS passage FROM (SELECT seq FROM sessions WHERE updated_at >= ?"
            f" AND created_at < ? AND {session_condition} ORDER BY seq DESC LIMIT ?) AS newest JOIN messages"
            " ON messages.id BETWEEN newest.seq << ? AND (newest.seq + 1) << ? WHERE messages.at >="
            f" ? AND messages.at < ? AND {limits.condition} LIMIT ?",
            (
                first,
                until,
                _SESSIONS_OF_DAYS,
                POSITION_BITS,
                POSITION_BITS,
                first,
                until,
                _MESSAGE_CANDIDATES,
            ),
        )
        ids += [passage_id for (passage_id,) in rows]
    return ids


def _read_passages(request: _Request, table: str, ids: Iterable[int]) -> list[Passage]:
    """Returns the messages or outputs with these ids that are not before `since`, with what is
    known about their session.
    """
    rows = request.database.execute(
        f"SELECT passage.id, number, role, at, text, sessions.id, title, project FROM {table} AS"
        f" passage JOIN sessions ON seq = session WHERE passage.{_IN_LIST} AND at >= ?",
        (*_json_list(ids), request.wanted.since),
    )
    return [Passage(*row) for row in rows]


def _best_hits(
    kind: HitKind,
    passages: Sequence[Passage],
    terms_of_passage: Mapping[int, dict[str, float]],
    k: int,
) -> list[MemoryHit]:
    """Returns the passages with a score above 0, best first, at most three times `k`. The score of
    a passage is the sum of its terms.
    """
    scores = {passage_id: sum(terms.values()) for passage_id, terms in terms_of_passage.items()}
    # Copies of a session have the same messages: so many that `k` different ones should remain.
    best = heapq.nlargest(3 * k, passages, key=lambda passage: (scores[passage.id], passage.id))
    return [
        MemoryHit(
            id=f"{passage.session}:{passage.number}",
            kind=kind,
            text=passage.text,
            score=scores[passage.id],
            parts=terms_of_passage[passage.id],
            row_id=passage.id,
            at=passage.at,
            session=passage.session,
            title=passage.title,
            project=passage.project,
            number=passage.number,
            role=passage.role,
        )
        for passage in best
        if scores[passage.id] > 0
    ]
