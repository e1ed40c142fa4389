"""Which sentences become notes, and what a statement replaces: on the tuned half and on the
held-out half.

PYTHONPATH=tests python -m benchmarks.capture_quality        (--all: each error of the first half)
    --model openai/qwen-coder-1.5b --models-file models.yaml [--cases 20]    else a classifier that accepts everything
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

from cases import capture as capture_cases
from cases.capture import Case

from ouro.llm import Catalog, read_models_file
from ouro.memory.backend import MessageRecord
from ouro.memory.long_term import categories_with
from ouro.memory.long_term.capture.operations import OperationLimits
from ouro.memory.long_term.capture.session_parts import SessionPart, split_uncaptured
from ouro.memory.long_term.capture.small_model import find_operations
from ouro.memory.long_term.supersession import find_replaced, fold_words
from ouro.messages import Message, ToolCall, ToolReply, assistant, tool, user

OTHERS = ("Black formats the code", "Kaffee steht in der Küche")


def main() -> None:
    """Print one line for each half."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true")
    parser.add_argument(
        "--model", default="", help="as in models.yaml; without it, one that accepts everything"
    )
    parser.add_argument("--models-file", type=Path)
    parser.add_argument("--cases", type=int, default=1_000, help="of each half, at most")
    args = parser.parse_args()
    model = Catalog(read_models_file(args.models_file)).make(args.model) if args.model else None

    async def ask(messages, schema) -> str:
        if model is None:
            return json.dumps({"kind": "fact", "same": False})
        chunks = [chunk async for chunk in model.with_schema(schema).stream(messages)]
        return "".join(getattr(chunk, "text", "") for chunk in chunks)

    for name, cases in (("tuned on", capture_cases.WORK), ("held out", capture_cases.HELD_OUT)):
        step = max(1, len(cases) // args.cases)
        asyncio.run(report_capture(name, cases[::step], ask, args.all and name == "tuned on"))
    for name, pairs in (
        ("tuned on", capture_cases.PAIRS_WORK),
        ("held out", capture_cases.PAIRS_HELD_OUT),
    ):
        report_pairs(name, pairs, args.all and name == "tuned on")


async def report_capture(name: str, cases: Sequence[Case], ask, shows_all: bool) -> None:
    """Print the precision and the recall of the captured notes."""
    right = wrong = missed = asked = 0

    async def counting(messages, schema) -> str:
        nonlocal asked
        asked += 1
        return await ask(messages, schema)

    for case in cases:
        notes = await captured(case, counting)
        hits = [note for note in notes if case.kept and fold_words(note) in fold_words(case.kept)]
        right, wrong = right + bool(hits), wrong + len(notes) - bool(hits)
        missed += bool(case.kept) and not hits
        if shows_all and (len(notes) != bool(hits) or (case.kept and not hits)):
            print(f"    {case.said!r}: {notes}")
    print(
        f"{name}: precision {right / (right + wrong):.2f} ({wrong} wrong), recall"
        f" {right / (right + missed):.2f} ({missed} missed) of {len(cases)}; asked {asked} times"
    )


async def captured(case: Case, ask) -> list[str]:
    """The notes of one turn."""
    limits = OperationLimits((), categories_with({}), ("user", "repo"))
    part = next(iter(parts_of(case)))
    own = [said for said in part.spoken if said.is_own]
    return [operation.text for operation in await find_operations(ask, own, limits)]


def parts_of(case: Case) -> Iterator[SessionPart]:
    calls = [
        ToolCall(str(number), "tool", arguments) for number, arguments in enumerate(case.calls)
    ]
    replies = [tool(*(ToolReply(call.id, call.name, "ok") for call in calls))] if calls else []
    messages: list[Message] = [
        user(case.said),
        *([assistant("", *calls)] if calls else []),
        *replies,
        assistant("Ok."),
    ]
    return split_uncaptured(
        [MessageRecord(number, "", message) for number, message in enumerate(messages, 1)], 0
    )


def report_pairs(name: str, pairs, shows_all: bool) -> None:
    """Print how many statements replace the right entry, and how many rightly replace none."""
    faults = []
    for before, said, is_replaced in pairs:
        entries = [
            SimpleNamespace(id=str(number), text=text)
            for number, text in enumerate((*OTHERS, before))
        ]
        if [entry.text for entry in find_replaced(said, entries)] != (
            [before] if is_replaced else []
        ):
            faults.append((is_replaced, before, said))
    replaces = sum(pair[2] for pair in pairs)
    missed = sum(fault[0] for fault in faults)
    print(
        f"{name}: replaced {replaces - missed} of {replaces},"
        f" both stayed {len(pairs) - replaces - len(faults) + missed} of {len(pairs) - replaces}"
    )
    for is_replaced, before, said in faults if shows_all else ():
        print(f"    {'replace' if is_replaced else 'keep both'}: {before!r} / {said!r}")


if __name__ == "__main__":
    main()
