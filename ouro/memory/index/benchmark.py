"""Measures the search: with documents and queries whose answers are known, on a separate index; and
with the user's own notes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from ouro.errors import UsageError
from ouro.memory.index.embeddings import Embedder
from ouro.memory.index.index import Index
from ouro.memory.index.passages import POSITION_BITS
from ouro.memory.index.search import Search, SearchFilter
from ouro.memory.index.session_indexer import IndexedSession, add_words, save_session
from ouro.memory.index.vectors import Vectors
from ouro.memory.long_term.notes.note import parse_note
from ouro.utils.decoding import decode_json


class Document(msgspec.Struct, frozen=True):
    """A message of the benchmark; `session` and `turn` say where it belongs."""

    id: str
    text: str
    speaker: str = "user"
    date: str = ""
    session: int | str = 1
    turn: int = 0


class BenchmarkQuestion(msgspec.Struct, frozen=True):
    """A query of the benchmark."""

    qid: str
    """The id of the query, which is also that of the document that answers it."""
    query: str


class SearchAnswer(msgspec.Struct, frozen=True):
    """The hits, best first, and the time in milliseconds."""

    qid: str
    ids: tuple[str, ...]
    ms: float


def read_lines(path: Path, kind: type[Any]) -> list[Any]:
    """Returns the lines of a file of JSON lines as values of the type `kind`. Raises UsageError if
    it cannot be read, or a line is not valid.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    values = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                values.append(decode_json(line, kind))
            except msgspec.MsgspecError as error:
                raise UsageError(f"{path}, line {number}: {error}.") from error
    return values


def answer_questions(
    documents: Sequence[Document],
    questions: Sequence[BenchmarkQuestion],
    k: int,
    work: Path,
    embedder: Embedder | None,
) -> Iterator[SearchAnswer]:
    """Search for every question in an index of the documents, which is made in the folder `work`;
    yields the `k` best hits of each. Without an embedder words alone decide.
    """
    index = Index(work / "index.db")
    try:
        document_ids = _index_documents(index, documents)
        vectors = Vectors(index, embedder) if embedder else None
        if vectors:
            vectors.fill_all()
        speakers = tuple(dict.fromkeys(document.speaker for document in documents))
        search = Search(index, vectors, speakers)
        today = _last_day(documents)
        for question in questions:
            started = time.perf_counter()
            hits = search.find(question.query, k, SearchFilter(kinds=("message",)), today=today)
            milliseconds = (time.perf_counter() - started) * 1000
            yield SearchAnswer(
                question.qid,
                tuple(dict.fromkeys(document_ids[hit.row_id] for hit in hits)),
                round(milliseconds, 2),
            )
    finally:
        index.close()


def _index_documents(index: Index, documents: Sequence[Document]) -> dict[int, str]:
    """Write the documents into an empty index. Returns the ids of the documents by the ids of their
    passages.
    """
    document_ids: dict[int, str] = {}
    sessions: dict[str, IndexedSession] = {}
    with index.writing() as database:
        for document in documents:
            name = str(document.session)
            if name not in sessions:
                sessions[name] = IndexedSession(
                    seq=0, id=name, folder=name, project="", created_at=document.date
                )
                save_session(database, sessions[name])
            session = sessions[name]
            first = session.passages
            add_words(
                database,
                session,
                number=document.turn,
                role=document.speaker,
                at=document.date,
                text=document.text,
            )
            # `add_words` has added these passages; their ids follow each other.
            start = (session.seq << POSITION_BITS) + 1
            passages = range(start + first, start + session.passages)
            document_ids |= dict.fromkeys(passages, document.id)
            session.updated_at = document.date
        for session in sessions.values():
            save_session(database, session)
    return document_ids


def _last_day(documents: Sequence[Document]) -> date | None:
    """Returns the day of the newest document; None if none has a date."""
    last = max((document.date[:10] for document in documents), default="")
    try:
        return date.fromisoformat(last)
    except ValueError:
        return None


class SearchQuality(msgspec.Struct, frozen=True):
    """How good the answers of a benchmark are, and how long they took."""

    questions: int
    recall: Mapping[str, float]
    """Share of the answers within the first 5, 10 and 25, over the questions."""
    ndcg10: float
    p50_ms: float
    p95_ms: float
    missed: tuple[str, ...]


def measure_answers(given_answers: Sequence[SearchAnswer]) -> SearchQuality:
    """Returns the quality of these answers. The only correct hit of each has the id of its
    query.
    """
    ranks = [
        answer.ids.index(answer.qid) if answer.qid in answer.ids else math.inf
        for answer in given_answers
    ]
    times = sorted(answer.ms for answer in given_answers) or [0.0]
    return SearchQuality(
        questions=len(given_answers),
        recall={str(k): _mean([float(rank < k) for rank in ranks]) for k in (5, 10, 25)},
        ndcg10=_mean([1 / math.log2(rank + 2) if rank < 10 else 0.0 for rank in ranks]),
        p50_ms=times[len(times) // 2],
        p95_ms=times[min(len(times) - 1, int(0.95 * len(times)))],
        missed=tuple(
            answer.qid for answer, rank in zip(given_answers, ranks, strict=True) if rank >= 10
        ),
    )


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0


MAX_HITS = 25
_IS_CURRENT_NOTE = "kind = 'note' AND archived = 0 AND note NOT IN (SELECT supersedes FROM notes)"


class OwnNotesAnswers(msgspec.Struct, frozen=True):
    """What recall found for the words of the turns that notes came from."""

    answers: Sequence[SearchAnswer]
    """The query of each has the id of its note."""
    texts: Mapping[str, str]
    """The text of each note by its id."""
    skipped: int
    """The notes that were not searched for: no session shows their source, or the user wrote them
    between two turns.
    """


def ask_own_notes(
    search: Search, recall: Callable[[str, str, str], Sequence[str]]
) -> OwnNotesAnswers:
    """Recall every current note by the user's words in the turn that it came from; returns what was
    found. Blocks for some milliseconds a note.

    Args:
        recall: returns the ids of the notes for a text, a repository (its root, or empty) and a
            branch.
    """
    with search.index.reading() as database:
        notes = database.execute(
            f"SELECT note, text, session, turn, project, branch, path FROM notes WHERE {_IS_CURRENT_NOTE}"
        ).fetchall()
    answers: list[SearchAnswer] = []
    texts: dict[str, str] = {}
    for note, text, session, turn, project, branch, path in notes:
        file_text = Path(path).read_text(errors="replace")
        # A note that the user wrote with a command does not come from the words of a turn.
        is_of_turn = parse_note(Path(path).name, file_text).note.trigger != "user"
        if is_of_turn and (question := _words_of_turn(search, session, turn)):
            started = time.perf_counter()
            ids = tuple(recall(question, project, branch))
            milliseconds = (time.perf_counter() - started) * 1000
            answers.append(SearchAnswer(note, ids, round(milliseconds, 2)))
            texts[note] = text
    return OwnNotesAnswers(answers, texts, len(notes) - len(texts))


def _words_of_turn(search: Search, session: str, turn: int) -> str:
    """Returns the texts of the user in a turn of an indexed session, from 1; empty if there is no
    such turn.
    """
    with search.index.reading() as database:
        session_row = database.execute(
            "SELECT seq FROM sessions WHERE id = ?", (session,)
        ).fetchone()
        seq = session_row[0] if session_row else -1
        rows = database.execute(
            "SELECT number, text FROM messages WHERE id BETWEEN ? AND ? AND role = 'user' ORDER"
            " BY id",
            (seq << POSITION_BITS, (seq + 1) << POSITION_BITS),
        ).fetchall()
    numbers = list(dict.fromkeys(number for number, _ in rows))  # of messages with passages
    if not 0 < turn <= len(numbers):
        return ""
    return "\n".join(text for number, text in rows if number == numbers[turn - 1])
