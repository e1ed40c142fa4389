"""Which notes recall returns, on sets of messages with known answers: the set it is tuned on, and
two others.

PYTHONPATH=tests python -m benchmarks.recall_quality        (--all: each missed and each wrong note)
PYTHONPATH=tests python -m benchmarks.recall_quality --fit  (the weights of `relevance`, of the
first two sets)
PYTHONPATH=tests python -m benchmarks.recall_quality --elsewhere  (what is shown of another project)
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from cases import recall, recall_elsewhere, recall_unseen

from ouro.memory.index import (
    Index,
    MemoryFolder,
    Search,
    SearchFilter,
    Sources,
    Vectors,
    local_embedder,
)
from ouro.memory.long_term import GitMemoryStore, Notebook, NoteSelection, Recall, Situation
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.memory.long_term.recall.relevance import compute_features, find_strong, questions_in

SETS = (
    ("tuned on", recall.NOTES, recall.WANTED, recall.EVERYDAY),
    (
        "looked at",
        recall_elsewhere.NOTES,
        recall_elsewhere.WANTED,
        recall_elsewhere.NOTHING,
    ),
    (
        "not seen",
        recall_unseen.NOTES,
        recall_unseen.WANTED,
        recall_unseen.NOTHING,
    ),
)
SHRINK = 0.3
"""The factor of the L2 penalty."""
LENIENCE = 1.5
"""Added to the bias, in log-odds: a missing note is worse than an unneeded one."""


def main() -> None:
    """Ask each set, by words and with vectors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--elsewhere", action="store_true")
    args = parser.parse_args()
    embedder = local_embedder()
    if args.fit:
        print({name: round(float(weight), 2) for name, weight in fitted(embedder).items()})
        return
    if args.elsewhere:
        report_elsewhere(embedder)
        return
    for name, notes, wanted, nothing in SETS:
        with tempfile.TemporaryDirectory() as folder:
            ways = {"words": None, **({"vectors": embedder} if embedder else {})}
            for way, used in ways.items():
                recalled = recaller(Path(folder) / way, notes, used)
                report(
                    f"{name}, {way}",
                    {text: recalled(text) for text in (*wanted, *nothing)},
                    wanted,
                    args.all,
                )


def fitted(embedder) -> dict[str, float]:
    """The weights of a logistic regression over all pairs of messages and hits, by Newton's method.

    Each message is asked in the whole set, and in a memory of a few notes, in which cosines are
    less informative.
    """
    import numpy as np  # late: ouro imports it with one thread

    feature_rows: list[dict[str, float]] = []
    answers_wanted: list[bool] = []
    for _, notes, wanted, nothing in SETS[:2]:
        groups = [((*wanted, *nothing), notes), *small_memories(notes, wanted, nothing)]
        for texts, some in groups:
            with tempfile.TemporaryDirectory() as folder:
                search, _, names = memory(Path(folder), some, embedder)
                for text in texts:
                    hits = search.find(text, 30, SearchFilter(kinds=("note",)))
                    feature_rows += compute_features(text, hits)
                    answers_wanted += [names[hit.id] in wanted.get(text, ()) for hit in hits]
    names = list(feature_rows[0])
    values = np.array([[row[name] for name in names] for row in feature_rows])
    scale = np.array(
        [1.0 if name == "bias" else values[:, at].std() for at, name in enumerate(names)]
    )
    scaled, answers = values / scale, np.array(answers_wanted, float)
    weights, shrink = (
        np.zeros(len(names)),
        np.diag([0.0 if name == "bias" else SHRINK for name in names]),
    )
    for _ in range(50):
        chance = 1 / (1 + np.exp(-np.clip(scaled @ weights, -30, 30)))
        slope = scaled.T @ (chance - answers) + shrink @ weights
        curve = (
            (scaled * (chance * (1 - chance))[:, None]).T @ scaled
            + shrink
            + 1e-9 * np.eye(len(names))
        )
        weights -= np.linalg.solve(curve, slope)
    fitted_weights = dict(zip(names, weights / scale, strict=True))
    return {**fitted_weights, "bias": fitted_weights["bias"] + LENIENCE}


def small_memories(notes, wanted, nothing):
    """Groups of four messages that need a note and five that need none, with a memory of their
    notes and six others.
    """
    asked, others = list(wanted), list(notes)
    for at in range(0, len(asked), 4):
        texts = asked[at : at + 4]
        names = {
            name for text in texts for right in wanted[text] for name in (right, f"{right}, nearly")
        }
        some = {*names, *others[at : at + 3], *others[-at - 3 :][:3]}
        yield (*texts, *nothing[at : at + 5]), {name: notes[name] for name in some if name in notes}


def memory(folder: Path, notes, embedder):
    """The search over these notes, with all vectors; the notebook; and the names by id."""
    place = folder / "memory"
    place.mkdir(parents=True, mode=0o700)
    names = {f"mem_{number:08x}": name for number, name in enumerate(notes)}
    for note_id, name in names.items():
        note = Note(id=note_id, text=notes[name], scope="user")
        (place / note.file_name).write_text(note_text(note))
    index = Index(folder / "index.db")
    index.update(Sources(memories=(MemoryFolder("user", "", place),)))
    vectors = Vectors(index, embedder) if embedder else None
    while vectors and vectors.fill():
        pass
    return (
        Search(index, vectors),
        Notebook({"user": GitMemoryStore(place, "user", folder / "history.git")}),
        names,
    )


def recaller(folder: Path, notes, embedder):
    """A function that returns the names of the notes that recall sends with a text."""
    search, notebook, names = memory(folder, notes, embedder)
    recall = Recall(search, NoteSelection(notebook, "memory-0"))

    def recalled(text: str) -> set[str]:
        return {
            names[item.id]
            for item in recall.find(text, Situation("")).items
            if item.state == "loaded"
        }

    return recalled


def report_elsewhere(embedder) -> None:
    """Print how often a note of another project is shown: for messages that it answers, for those
    that need no note, and for the messages of the other sets, which are about something else.
    """
    for name, notes, wanted, nothing in SETS:
        others = [text for other in SETS if other[0] != name for text in (*other[2], *other[3])]
        with tempfile.TemporaryDirectory() as folder:
            search, _, names = memory(Path(folder), notes, embedder)
            ways = {"words": Search(search.index), **({"vectors": search} if embedder else {})}
            for way, used in ways.items():
                best = {text: best_strong(used, text) for text in (*wanted, *nothing, *others)}
                right = sum(names.get(best[text], "") in wanted[text] for text in wanted)
                wrong = sum(bool(best[text]) for text in wanted) - right
                loud = sum(bool(best[text]) for text in nothing)
                strange = sum(bool(best[text]) for text in others)
                print(
                    f"{name}, {way:<8} shown for {right} of {len(wanted)}, wrong for {wrong}; for"
                    f" {loud} of {len(nothing)} that need none; for {strange} of {len(others)} of"
                    " other sets"
                )


def best_strong(search: Search, text: str) -> str:
    """The id of the note that is shown for a message; empty if none is near enough."""
    for question in questions_in(text):
        hits = find_strong(question, search.find(question, 10, SearchFilter(kinds=("note",))))
        if hits:
            return hits[0].id
    return ""


def report(name: str, recalled, wanted, shows_all: bool) -> None:
    """Print one line for a set: found notes, wrong notes, and notes for messages that need none."""
    hits = sum(bool(recalled[text] & right) for text, right in wanted.items())
    too_many = sum(len(recalled[text] - right) for text, right in wanted.items())
    nothing = [text for text in recalled if text not in wanted]
    loud = [text for text in nothing if recalled[text]]
    print(
        f"{name:<18} found {hits} of {len(wanted)}, {too_many} wrong (precision"
        f" {hits / (hits + too_many):.2f}); notes with {len(loud)} of {len(nothing)} messages that"
        " need none"
    )
    for text, found in recalled.items() if shows_all else ():
        if found != wanted.get(text, set()):
            print(f"    {text[-70:]!r}: {sorted(found)}, wanted {sorted(wanted.get(text, ()))}")


if __name__ == "__main__":
    main()
