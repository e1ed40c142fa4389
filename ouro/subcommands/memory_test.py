"""`ouro memory test`: recall measured on questions with known answers, or on the user's own notes."""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import cache, partial
from pathlib import Path

from msgspec.structs import asdict

from ouro.errors import UsageError
from ouro.memory.index.benchmark import (
    MOST_HITS,
    BenchmarkQuestion,
    Document,
    SearchQuality,
    answer_line,
    answers,
    ask_own_notes,
    measure,
    read_lines,
)
from ouro.memory.index.embeddings import local_embedder
from ouro.memory.index.search import Search
from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.notes.notebook import Notebook
from ouro.memory.long_term.recall.recall import Recall, Tuning
from ouro.memory.long_term.store import GitMemoryStore, repo_store, user_store
from ouro.subcommands.memory_index import opened_search
from ouro.subcommands.output import show, show_json, show_table
from ouro.utils.runtime import get_history_dir, get_memory_dir


def test_files(args: argparse.Namespace, work: Path) -> int:
    """Answer the questions of a file over the documents of another, one JSON line a question, best first."""
    if not (args.docs and args.queries):
        raise UsageError("--docs and --queries belong together.")
    documents = read_lines(Path(args.docs), Document)
    queries = read_lines(Path(args.queries), BenchmarkQuestion)
    embedder = None if args.words else local_embedder()
    with tempfile.TemporaryDirectory(prefix="ouro-test-") as folder:
        place = work if args.work else Path(folder)
        for answer in answers(documents, queries, args.k, place, embedder):
            sys.stdout.write(answer_line(answer) + "\n")
    return 0


def test_own_notes(args: argparse.Namespace) -> int:
    """Ask for each of the user's notes by the words of the turn that taught it."""
    with opened_search(words_only=args.words) as search:
        questions = ask_own_notes(search, cache(partial(_recall_in, search)))
    measured = measure(questions.answers, questions.wanted)
    if args.json:
        show_json({**asdict(measured), "without_a_turn": questions.without_a_turn})
    else:
        _print(measured, questions.texts, questions.without_a_turn)
    return int(measured.recall["10"] < args.at_least)


def _recall_in(search: Search, project: str) -> Recall:
    """Recall as a session in that repository has it, but for the budget: what is asked is where a note stands."""
    histories = get_history_dir()
    stores: dict[Scope, GitMemoryStore] = {"user": user_store(get_memory_dir(), histories, str)}
    if project:
        stores["repo"] = repo_store(Path(project), histories, str)
    return Recall(search, Notebook(stores), "memory", Tuning(MOST_HITS, budget=sys.maxsize))


def _print(measured: SearchQuality, texts: dict[str, str], without: int) -> None:
    if not measured.questions:
        show(f"There is no note whose turn is known, so nothing to ask for ({without} notes without one).")
        return
    show(f"{measured.questions} notes, each asked for by the words of the turn that taught it:")
    rows = [[f"Recall@{k}", f"{share:.3f}"] for k, share in measured.recall.items()]
    rows += [["NDCG@10", f"{measured.ndcg10:.3f}"], ["p50", f"{measured.p50_ms:.1f} ms"]]
    show_table([*rows, ["p95", f"{measured.p95_ms:.1f} ms"]])
    for note in measured.missed:
        show(f"missed  {note}  {' '.join(texts[note].split())[:120]}")
    if without:
        show(f"{without} notes name no turn that is still there; they were not asked for.")
