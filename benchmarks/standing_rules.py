"""Standing rules for a kind of task: found with the second question, and without it.

python -m benchmarks.standing_rules          by words, and by vectors if the local model is installed

Written before the second question; its thresholds were chosen on it. Twelve rules among
other notes, a task for each that names none of its subjects, and twelve tasks for which there is no
rule.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ouro.events import RecalledNote
from ouro.memory.index import Index, MemoryFolder, Search, Sources, Vectors
from ouro.memory.index.embeddings import local_embedder
from ouro.memory.long_term import GitMemoryStore, Notebook, NoteSelection, Recall, Situation
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.memory.long_term.recall import candidates as recall_module

RULES = {
    "Unit tests use real files in a temporary folder, no mocks": "Write a unit test for parse_amount",
    "A migration must be reversible, with a down step": "Add a migration that drops the old column",
    "Commit subjects are in the imperative, at most 50 letters": "Commit what you have so far",
    "Docstrings follow the Google style": "Add docstrings to the helpers in cart.py",
    "Log lines are JSON with a trace id": "Log every failed login attempt",
    "Public functions have type hints": "Write a function that merges two baskets",
    "Branch names start with the ticket number": "Create a branch for the new footer",
    "SQL keywords are written in capitals": "Write the SQL for the monthly report",
    "Error messages name what the user can do next": "Improve the error message of the upload",
    "Neue Endpunkte brauchen einen Eintrag in der OpenAPI-Datei": "Bau einen neuen Endpunkt für Rechnungen",
    "Les composants React sont des fonctions, sans classes": "Écris un composant React pour le menu",
    "测试数据放在 fixtures 目录": "给购物车写测试数据",
}
OTHERS = (
    "The staging server is heron", "Otto runs the payment team", "The office has a blue door",
    "We chose Kafka because of its retention", "The CDN cache lives for six hours",
    "Customers are hospitals", "The vendor folder is a mirror of upstream", "Ines is on call",
)  # fmt: skip
WITHOUT = (
    "Explain how the event loop of Node works", "Sort these names: Zoe, Ada, Max",
    "Rename total to sum in basket.py", "Translate this sentence into Dutch",
    "Convert the loop to a list comprehension", "Zeig mir den Inhalt von README.md",
    "Remove the unused import in a.py", "Run the linter again", "Print the first ten lines of the log file",
    "Move the button to the right", "Undo the last change", "Continue with the next step please",
)  # fmt: skip


def main() -> None:
    """Print one line for each way."""
    embedder = local_embedder()
    for way, used in (("words", None), *([("vectors", embedder)] if embedder else [])):
        for name in ("without", "with"):
            with tempfile.TemporaryDirectory() as folder:
                report(f"{way}, {name} the second question", Path(folder), used, name == "with")


def report(name: str, folder: Path, embedder: Any, is_asked: bool) -> None:
    """Print how many rules are found, and how many notes are sent with the other tasks."""
    recall, situation, texts = prepare(folder, embedder)
    limit = contextlib.nullcontext() if is_asked else without_the_second_question()
    with limit:
        measure(name, recall, situation, texts)


@contextlib.contextmanager
def without_the_second_question() -> Iterator[None]:
    kept, recall_module.STANDING_CATEGORIES = recall_module.STANDING_CATEGORIES, ()
    try:
        yield
    finally:
        recall_module.STANDING_CATEGORIES = kept


def measure(name: str, recall: Recall, situation: Situation, texts: Mapping[str, str]) -> None:
    rules_sent = others_sent = 0
    for rule, task in RULES.items():
        items = recall.find(task, situation).items
        sent = {texts[item.id] for item in items if item.state == "loaded"}
        rules_sent += rule in sent
        others_sent += len(sent - {rule})
    wrong = [_count_sent(recall.find(task, situation).items) for task in WITHOUT]
    print(
        f"{name}: {rules_sent} of {len(RULES)} rules, {others_sent} other notes beside them; {sum(wrong)} notes"
        f" with {len(WITHOUT)} tasks without a rule; load {os.getloadavg()[0]:.0f}",
        flush=True,
    )


def _count_sent(items: Sequence[RecalledNote]) -> int:
    return sum(item.state == "loaded" for item in items)


def prepare(folder: Path, embedder: Any) -> tuple[Recall, Situation, dict[str, str]]:
    place = folder / "memory"
    place.mkdir(mode=0o700)
    texts: dict[str, str] = {}
    for number, text in enumerate((*RULES, *OTHERS)):
        category = "project-conventions" if text in RULES else "user-facts"
        note = Note(id=f"mem_{number:08x}", text=text, scope="user", category=category)
        texts[note.id] = text
        (place / note.file_name).write_text(note_text(note))
    index = Index(folder / "index.db")
    index.update(Sources(memories=(MemoryFolder("user", "", place),)))
    vectors = Vectors(index, embedder) if embedder else None
    while vectors and vectors.fill():
        pass
    notebook = Notebook({"user": GitMemoryStore(place, "user", folder / "history.git")})
    return (
        Recall(Search(index, vectors), NoteSelection(notebook, "memory-0")),
        Situation(str(folder)),
        texts,
    )


if __name__ == "__main__":
    main()
