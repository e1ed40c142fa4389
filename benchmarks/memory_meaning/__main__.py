"""Statements in six languages: what they replace, where they are placed, what is kept.

python -m benchmarks.memory_meaning                                       rules alone
python -m benchmarks.memory_meaning --model openai/qwen-coder-1.5b --models-file models.yaml
    --half sealed      only the half that is never looked at; --ablation: the table without each row
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.memory_meaning import cases
from ouro.llm import Catalog, read_models_file
from ouro.memory.long_term import categories_with, place
from ouro.memory.long_term import patterns as table
from ouro.memory.long_term.capture.operations import Operation, OperationLimits
from ouro.memory.long_term.capture.session_parts import Spoken
from ouro.memory.long_term.capture.small_model import find_operations
from ouro.memory.long_term.notes.note import Note
from ouro.utils.relative_dates import local_day

OTHERS = ("Black formats the code", "Kaffee steht in der Küche")


class Asker:
    """Asks a model; without one every sentence is a fact, and no subject is named."""

    def __init__(self, model: Any = None, kind: str = "") -> None:
        self._model = model
        self._kind = kind
        """The label of every sentence; empty: the model labels."""

    async def __call__(self, messages: Any, schema: Any = None) -> str:
        asked = messages[-1].text
        is_label = asked.startswith(("The sentence: ", "Message: "))
        if is_label and self._kind:
            return json.dumps({"kind": self._kind, "label": "own"})
        if self._model is None:
            return json.dumps({"kind": "fact", "same": False})
        chunks = [chunk async for chunk in self._model.with_schema(schema).stream(messages)]
        return "".join(getattr(chunk, "text", "") for chunk in chunks)


async def operations(ask: Asker, said: str, known: Sequence[str] = ()) -> Sequence[Operation]:
    notes = [Note(id=f"mem_{number:08}", text=text) for number, text in enumerate(known)]
    limits = OperationLimits(notes, categories_with({}), ("user", "repo"))
    return await find_operations(ask, [Spoken(1, "user", said)], limits)


async def count_pairs(ask: Asker, name: str, half: str) -> str:
    """How many pairs are decided right."""
    pairs, right = cases.of(name, half), 0
    for pair in pairs:
        found = await operations(ask, pair.said, (*OTHERS, pair.before))
        replaced = {operation.target for operation in found if operation.verb == "supersede"}
        right += replaced == ({f"mem_{len(OTHERS):08}"} if name == "corrections" else set())
    return f"{right} of {len(pairs)}"


async def count_messages(ask: Asker, name: str, half: str) -> str:
    """How many messages are kept in the right scope, or leak: in silence, and after a question.

    What holds for today only is kept until the evening: no leak.
    """
    messages, counts = cases.of(name, half), {"stated": 0, "doubtful": 0}
    today = local_day().isoformat()
    for message in messages:
        found = await operations(ask, message.said)
        lasting = [item for item in found if item.until != today]
        kept = [item for item in lasting if re.search(message.wanted, item.text)]
        if any(not message.scope or message.scope == item.scope for item in kept):
            is_asked = all(item.certainty == "doubtful" for item in kept)
            counts["doubtful" if is_asked else "stated"] += 1
    asked = f", and {counts['doubtful']} asked about" if counts["doubtful"] else ""
    return f"{counts['stated']} of {len(messages)}{asked}"


def count_placed(half: str) -> str:
    found = cases.of("placed", half)
    right = sum(place(item.said, ("user", "repo")).scope == item.scope for item in found)
    return f"{right} of {len(found)}"


async def figures(ask: Asker, half: str) -> AsyncIterator[tuple[str, str]]:
    """Each figure, with its name, as soon as it is known."""
    pairs = Asker(ask._model, "fact")
    yield "corrections that replace", await count_pairs(pairs, "corrections", half)
    yield "pairs that both hold", await count_pairs(pairs, "both", half)
    yield "placed", count_placed(half)
    yield "kept and placed", await count_messages(ask, "kept", half)
    yield "leaked", await count_messages(ask, "not_kept", half)


async def report(ask: Asker, half: str) -> dict[str, str]:
    return {name: figure async for name, figure in figures(ask, half)}


async def show(ask: Asker, half: str) -> None:
    async for name, figure in figures(ask, half):
        print(f"{half}: {name} {figure}; load {os.getloadavg()[0]:.1f}", flush=True)


async def report_ablation(half: str) -> None:
    """Print the rows whose removal changes a figure, and count the others."""
    ask, whole, silent = Asker(), table.TABLE, 0
    before = await report(ask, half)
    for row in whole:
        table.TABLE = tuple(other for other in whole if other is not row)  # type: ignore[assignment]
        table.compiled.cache_clear()
        if any(other.group == row.group for other in table.TABLE):
            after = await report(ask, half)
            changed = [f"{name} {after[name]}" for name in before if after[name] != before[name]]
            silent += not changed
            if changed:
                print(f"without {row.group} ({row.language}): {', '.join(changed)}", flush=True)
    table.TABLE = whole
    table.compiled.cache_clear()
    print(f"{silent} rows change nothing here")


def main() -> None:
    """Print the figures of each half."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="", help="as in models.yaml; without it, rules alone")
    parser.add_argument("--models-file", type=Path)
    parser.add_argument("--half", choices=cases.HALVES)
    parser.add_argument("--ablation", action="store_true")
    args = parser.parse_args()
    model = Catalog(read_models_file(args.models_file)).make(args.model) if args.model else None
    for half in [args.half] if args.half else cases.HALVES:
        if args.ablation:
            asyncio.run(report_ablation(half))
            continue
        asyncio.run(show(Asker(model), half))


if __name__ == "__main__":
    main()
