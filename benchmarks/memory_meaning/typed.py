"""What becomes of a pair that is typed with `/remember`, without a model."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.memory_meaning import cases
from benchmarks.memory_meaning.judge import OTHERS
from benchmarks.memory_meaning.values import Pair
from ouro.memory.long_term import MemoryEditor, find_possibly_replaced, open_scopes, remember_text
from ouro.memory.long_term.store import user_store


def report_typed(half: str) -> None:
    """Print how many pairs are replaced or asked about: the wish for corrections, not for pairs
    that both hold.
    """
    for name in ("corrections", "both"):
        counts = Counter(_outcome(pair) for pair in cases.of(name, half))
        figures = ", ".join(
            f"{counts[outcome]} {outcome}" for outcome in ("replaced", "asked", "kept")
        )
        print(f"{half}: {name} typed without a model: {figures}")


def _outcome(pair: Pair) -> str:
    """`replaced`: the earlier statement is no longer in use; `asked`: the user is asked whether it
    is; `kept`: both are in use, or the user is asked about another one.
    """
    with tempfile.TemporaryDirectory() as folder:
        remember_text(_editor(folder), OTHERS[0])
        before = remember_text(_editor(folder), pair.before).entry
        doubtful = find_possibly_replaced(_editor(folder), pair.said)
        if doubtful:
            return "asked" if doubtful.text == before.text else "kept"
        replaced = remember_text(_editor(folder), pair.said).replaced
    return "replaced" if any(entry.text == before.text for entry in replaced) else "kept"


def _editor(folder: str) -> MemoryEditor:
    home = Path(folder)
    store = user_store(home / "memory", home / "history.git", lambda _text: "")
    return MemoryEditor(open_scopes([store]).opened)
