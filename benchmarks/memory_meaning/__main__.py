"""Statements in six languages: what they replace, where they are placed, what is kept.

python -m benchmarks.memory_meaning                                       rules alone
python -m benchmarks.memory_meaning --model openai/qwen-coder-1.5b --models-file models.yaml
    --half sealed      only the half that is never looked at; --ablation: the table without each row
    --typed            corrections and pairs that are typed with /remember, without a model
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.memory_meaning import cases
from benchmarks.memory_meaning.ablation import report_ablation
from benchmarks.memory_meaning.judge import Asker, is_kept, is_replaced_right
from benchmarks.memory_meaning.typed import report_typed
from ouro.llm import Catalog, read_models_file
from ouro.memory.long_term import place


async def count_pairs(ask: Asker, name: str, half: str) -> str:
    """How many pairs are decided right."""
    pairs = cases.of(name, half)
    right = sum([await is_replaced_right(ask, name, pair) for pair in pairs])
    return f"{right} of {len(pairs)}"


async def count_messages(ask: Asker, name: str, half: str) -> str:
    """How many messages are kept in the right scope, or leak: in silence, and after a question."""
    messages = cases.of(name, half)
    verdicts = [await is_kept(ask, message) for message in messages]
    asked = f", and {verdicts.count('doubtful')} asked about" if "doubtful" in verdicts else ""
    return f"{verdicts.count('stated')} of {len(messages)}{asked}"


def count_placed(half: str) -> str:
    statements = cases.of("placed", half)
    right = sum(place(item.said, ("user", "repo")).scope == item.scope for item in statements)
    return f"{right} of {len(statements)}"


async def figures(ask: Asker, half: str) -> AsyncIterator[tuple[str, str]]:
    """Each figure, with its name, as soon as it is known."""
    pairs = Asker(ask._model, "fact")
    yield "corrections that replace", await count_pairs(pairs, "corrections", half)
    yield "pairs that both hold", await count_pairs(pairs, "both", half)
    yield "placed", count_placed(half)
    yield "kept and placed", await count_messages(ask, "kept", half)
    yield "leaked", await count_messages(ask, "not_kept", half)


async def show(ask: Asker, half: str) -> None:
    async for name, figure in figures(ask, half):
        print(f"{half}: {name} {figure}; load {os.getloadavg()[0]:.1f}", flush=True)


def main() -> None:
    """Print the figures of each half."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="", help="as in models.yaml; without it, rules alone")
    parser.add_argument("--models-file", type=Path)
    parser.add_argument("--half", choices=cases.HALVES)
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--typed", action="store_true")
    args = parser.parse_args()
    model = Catalog(read_models_file(args.models_file)).make(args.model) if args.model else None
    if args.ablation:
        report_ablation()
        return
    for half in [args.half] if args.half else cases.HALVES:
        if args.typed:
            report_typed(half)
            continue
        asyncio.run(show(Asker(model), half))


if __name__ == "__main__":
    main()
