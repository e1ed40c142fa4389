"""Which notes recall hands over, on two sets of messages with known answers: the one it is tuned on, and another.

PYTHONPATH=tests python -m benchmarks.recall_quality        (--all: each miss and each note too many)
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from fakes import recall_cases, recall_cases_elsewhere

from ouro.memory.index import Index, MemoryFolder, Search, Sources, local_embedder, vectors_for
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.memory.long_term.notes.notebook import Notebook
from ouro.memory.long_term.recall.recall import Recall, Situation
from ouro.memory.long_term.store import GitMemoryStore

SETS = (
    ("tuned on", recall_cases.NOTES, recall_cases.WANTED, recall_cases.EVERYDAY),
    ("not seen", recall_cases_elsewhere.NOTES, recall_cases_elsewhere.WANTED, recall_cases_elsewhere.NOTHING),
)


def main() -> None:
    """Ask both sets, by words and with vectors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    args = parser.parse_args()
    embedder = local_embedder()
    for name, notes, wanted, nothing in SETS:
        with tempfile.TemporaryDirectory() as folder:
            ways = {"words": None, **({"vectors": embedder} if embedder else {})}
            for way, used in ways.items():
                tell = teller(Path(folder) / way, notes, used)
                report(f"{name}, {way}", {text: tell(text) for text in (*wanted, *nothing)}, wanted, args.all)


def teller(folder: Path, notes, embedder):
    """Gives the names of the notes that are told with a text."""
    place = folder / "memory"
    place.mkdir(parents=True, mode=0o700)
    names = {f"mem_{number:08x}": name for number, name in enumerate(notes)}
    for note_id, name in names.items():
        note = Note(id=note_id, text=notes[name], scope="user")
        (place / note.file_name).write_text(note_text(note))
    index = Index(folder / "index.db")
    index.follow(Sources(memories=(MemoryFolder("user", "", place),)))
    vectors = vectors_for(index, embedder) if embedder else None
    while vectors and vectors.fill():
        pass
    notebook = Notebook({"user": GitMemoryStore(place, "user", folder / "history.git")})
    recall = Recall(Search(index, vectors), notebook, "memory-0")

    def tell(text: str) -> set[str]:
        return {names[item.id] for item in recall.local(text, Situation("")).items if item.state == "loaded"}

    return tell


def report(name: str, told, wanted, shows_all: bool) -> None:
    """One line for a set: what was found, what was too much, and what came where nothing is wanted."""
    hits = sum(bool(told[text] & right) for text, right in wanted.items())
    too_many = sum(len(told[text] - right) for text, right in wanted.items())
    nothing = [text for text in told if text not in wanted]
    loud = [text for text in nothing if told[text]]
    print(
        f"{name:<18} found {hits} of {len(wanted)}, {too_many} too many (precision {hits / (hits + too_many):.2f});"
        f" notes with {len(loud)} of {len(nothing)} messages that want none"
    )
    for text, found in told.items() if shows_all else ():
        if found != wanted.get(text, set()):
            print(f"    {text[-70:]!r}: {sorted(found)}, wanted {sorted(wanted.get(text, ()))}")


if __name__ == "__main__":
    main()
