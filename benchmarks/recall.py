"""The time of recall and memory_search, with 10,000 notes and any number of passages of sessions.

    python -m benchmarks.recall --passages 1000000 --folder /tmp/recall

Words are distributed as in real text: a few are frequent, most are rare. Vectors are random, which
costs the same to search. The folder is kept and used again.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np  # with one thread: OPENBLAS_NUM_THREADS=1, as ouro has it

from ouro.memory.index import (
    Index,
    MemoryFolder,
    Search,
    SearchFilter,
    Sources,
    Vectors,
    local_embedder,
)
from ouro.memory.index.passages import POSITION_BITS, content_hash
from ouro.memory.long_term import GitMemoryStore, Notebook, NoteSelection, Recall, Situation
from ouro.memory.long_term.notes.note import Note, note_text

IN_A_SESSION = 50
WORDS = 200_000
DIMENSIONS = 384
SAMPLE = 300


class RandomEmbedder:
    """Random vectors."""

    name = "random"

    def __init__(self):
        self._random = np.random.default_rng(7)

    def embed(self, texts: Sequence[str]):
        """A row of length one for each text."""
        rows = self._random.standard_normal((len(texts), DIMENSIONS), dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def close(self):
        """Nothing to close."""


class Talk:
    """Texts whose word frequencies are those of natural language."""

    def __init__(self):
        self._random = random.Random(7)
        self._words = [_spelled(number) for number in range(WORDS)]
        self._weights = list(itertools.accumulate(1 / (rank + 3) for rank in range(WORDS)))

    def text(self, length: int) -> str:
        """A text of `length` words."""
        return " ".join(self._random.choices(self._words, cum_weights=self._weights, k=length))


def _spelled(number: int) -> str:
    """A number as a word that no stemmer shortens."""
    letters = ""
    while number or not letters:
        letters += "bcdfgkmptvxz"[number % 12] + "ao"[number % 2]
        number //= 12
    return letters + "x"


def fill(index: Index, passages: int, notes: int) -> None:
    """Put sessions and notes into an empty index."""
    talk = Talk()
    for first in range(0, passages, IN_A_SESSION * 200):
        with index.writing() as database:
            for start in range(first, min(passages, first + IN_A_SESSION * 200), IN_A_SESSION):
                _session(database, talk, start // IN_A_SESSION)
    with index.writing() as database:
        for number in range(notes):
            values = (f"/m/{number}.md", "note", f"mem_{number:08x}", 0, "user", "", "patterns", talk.text(25),
                      "2026-01-01T00:00:00Z", 0.9, "user", "", "", 0, "", 0, number)  # fmt: skip
            database.execute(
                f"INSERT INTO notes VALUES (NULL, {', '.join('?' * len(values))}, NULL, '')", values
            )


def _session(database, talk: Talk, number: int) -> None:
    day = f"{2020 + number % 6}-{number % 12 + 1:02}-{number % 28 + 1:02}T12:00:00.000Z"
    (seq,) = database.execute(
        "INSERT INTO sessions (id, folder, project, title, created_at, updated_at, passages, size,"
        " mtime, read, hash) VALUES (?, ?, ?, '', ?, ?, ?, 0, 0, 0, x'') RETURNING seq",
        (f"s{number}", f"s{number}", f"/p{number % 20}", day, day, IN_A_SESSION),
    ).fetchone()
    rows = []
    for step in range(1, IN_A_SESSION + 1):
        text = talk.text(30)
        rows.append(
            (
                seq << POSITION_BITS | step,
                seq,
                step,
                ("assistant", "user")[step % 2],
                day,
                text,
                content_hash(text),
            )
        )
    database.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", rows)


def measure(name: str, search: Search, wanted: SearchFilter, length: int) -> None:
    """Search for texts of `length` words, and print the times."""
    talk, spent = Talk(), []
    for _ in range(SAMPLE):
        query = talk.text(length)
        started, before = time.perf_counter(), time.process_time()
        search.find(query, 5, wanted)
        spent.append(
            ((time.process_time() - before) * 1000, (time.perf_counter() - started) * 1000)
        )
    print_times(name, spent)


def print_times(name: str, spent: Sequence[tuple[float, float]]) -> None:
    """Print times of CPU and by the clock."""
    cpu, wall = (sorted(each) for each in zip(*spent, strict=True))
    middle, high = SAMPLE // 2, int(SAMPLE * 0.95)
    figures = (
        f"CPU p50 {cpu[middle]:5.1f} p95 {cpu[high]:5.1f} ms   clock p50 {wall[middle]:5.1f} p95"
        f" {wall[high]:5.1f} ms"
    )
    print(f"{name:<52} {figures}", flush=True)


def whole_recall(folder: Path, notes: int, index: Index, vectors: Vectors) -> None:
    """Recall as a turn runs it, from files: index, search, read, rank, format."""
    place = folder / f"notes-{notes}"
    if not place.exists():
        place.mkdir(mode=0o700)
        talk = Talk()
        for number in range(notes):
            before = f"mem_{number - 1:08x}" if number % 10 == 9 else None
            note = Note(
                id=f"mem_{number:08x}",
                created_at="2026-01-01T00:00:00Z",
                scope="user",
                text=talk.text(25),
                entities=(f"file:src/m{number % 700}.py", "tool:pytest"),
                supersedes=before,
            )
            (place / note.file_name).write_text(note_text(note))
    started = time.perf_counter()
    index.update(Sources(memories=(MemoryFolder("user", "", place),)))
    print(f"{notes:,} note files read into the index in {time.perf_counter() - started:.1f} s")
    while vectors._fill_table("notes", 1_000):
        pass
    notebook = Notebook({"user": GitMemoryStore(place, "user", folder / "history.git")})
    for words in (6, 12, 40):
        for name, search in (
            ("words", Search(index)),
            ("words and vectors", Search(index, vectors)),
        ):
            talk, recall, spent = Talk(), Recall(search, NoteSelection(notebook, "memory-0")), []
            for number in range(SAMPLE):
                text = f"{talk.text(words)} src/m{number}.py pytest"
                began, before = time.perf_counter(), time.process_time()
                recall.find(text, Situation(""))
                spent.append(
                    ((time.process_time() - before) * 1000, (time.perf_counter() - began) * 1000)
                )
            print_times(f"the whole recall, {words} words said, by {name}", spent)


def first_vector() -> None:
    """The time of the first vector of a process."""
    embedder = local_embedder()
    if embedder is None:
        print("no local vectors here: ouro[vectors] is not installed")
        return
    started = time.perf_counter()
    embedder.embed(["hello"])
    print(f"first vector after {(time.perf_counter() - started) * 1000:.0f} ms")
    texts = [
        f"note number {number} says that the build needs a fresh cache" for number in range(256)
    ]
    started = time.perf_counter()
    embedder.embed(texts)
    print(f"{len(texts) / (time.perf_counter() - started):.0f} short notes a second")


def main() -> None:
    """Fill the folder if it is empty, and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--notes", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument(
        "--vectors", action="store_true", help="of the passages, too (those of notes always)"
    )
    args = parser.parse_args()
    first_vector()
    place = args.folder / f"index-{args.passages}.db"
    is_new = not place.exists()
    index = Index(place)
    if is_new:
        started = time.perf_counter()
        fill(index, args.passages, args.notes)
        print(f"filled in {time.perf_counter() - started:.0f} s")
    print(f"{args.passages:,} passages, {args.notes:,} notes, {index.state().size >> 20} MB")
    vectors = Vectors(index, RandomEmbedder())
    vectors.choose_model()
    while vectors._fill_table("notes", 1_000) or (
        args.vectors and vectors._fill_table("messages", 2_000)
    ):
        pass
    vectors.load_all_signs()
    for words in (6, 12, 40):
        for name, search in (
            ("words", Search(index)),
            ("words and vectors", Search(index, vectors)),
        ):
            measure(
                f"recall, {words} words asked, by {name}",
                search,
                SearchFilter(kinds=("note", "core")),
                words,
            )
            if args.vectors or name == "words":
                measure(
                    f"memory_search, {words} words asked, by {name}", search, SearchFilter(), words
                )
    index.close()
    if args.notes:
        index = Index(args.folder / f"notes-{args.notes}.db")
        vectors = Vectors(index, RandomEmbedder())
        vectors.choose_model()
        whole_recall(args.folder, args.notes, index, vectors)
        index.close()


if __name__ == "__main__":
    main()
