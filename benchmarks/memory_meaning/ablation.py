"""What each row of the table of words is worth: the cases that are wrong without it.

python -m benchmarks.memory_meaning --ablation      (with PYTHONPATH=tests also the cases of capture)

Every statement of all sets is judged with a classifier that accepts everything. A row is taken out,
and the cases in which it matches anything are judged again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from benchmarks.memory_in_use import stories
from benchmarks.memory_meaning import cases
from benchmarks.memory_meaning.judge import Asker, is_kept, is_replaced_right, operations
from benchmarks.memory_meaning.values import Message, Pair, Placed
from ouro.memory.long_term import place
from ouro.memory.long_term import statement_patterns as table
from ouro.memory.long_term.capture.small_model import split_sentences
from ouro.memory.long_term.notes.note import Note
from ouro.memory.long_term.statement_patterns import StatementPattern
from ouro.memory.long_term.supersession import find_replaced, fold_words, strip_introduction

MAX_SHOWN = 3


class Judged(NamedTuple):
    name: str
    texts: tuple[str, ...]
    """What the rules read: the message, its sentences, and what was known before."""
    is_right: Callable[[], bool]


class RowWorth(NamedTuple):
    row: StatementPattern
    lost: tuple[str, ...]
    """The cases that are right only with the row."""
    gained: tuple[str, ...]
    """The cases that are right only without it."""


def judged_cases() -> list[Judged]:
    return [*_meaning_cases(), *_story_cases(), *_capture_cases()]


def worth_of_rows(judged: Sequence[Judged]) -> Iterator[RowWorth]:
    """The worth of each row, with all others in place."""
    right = {case: case.is_right() for case in judged}
    whole = table.TABLE
    for row in whole:
        if "(?P<" in row.pattern:
            continue  # the code reads its groups
        pattern = re.compile(row.pattern, 0 if row.has_case else re.IGNORECASE)
        near = [case for case in judged if any(map(pattern.search, case.texts))]
        use_rows([other for other in whole if other is not row])
        after = {case: case.is_right() for case in near}
        use_rows(whole)
        lost = tuple(case.name for case in near if right[case] and not after[case])
        gained = tuple(case.name for case in near if after[case] and not right[case])
        yield RowWorth(row, lost, gained)


def use_rows(rows: Sequence[StatementPattern]) -> None:
    table.TABLE = tuple(rows)  # type: ignore[assignment]
    table.compiled.cache_clear()


def report_ablation() -> None:
    """Print the table of docs/benchmarks.md."""
    judged = judged_cases()
    print(f"{len(judged)} cases, {sum(case.is_right() for case in judged)} right")
    print("| row | lost without it | gained | for example |\n|---|---|---|---|")
    for worth in worth_of_rows(judged):
        example = "; ".join(worth.lost[:1])
        name = f"`{worth.row.group}` {worth.row.language}"
        print(f"| {name} | {len(worth.lost)} | {len(worth.gained)} | {example} |", flush=True)


def _texts(*said: str) -> tuple[str, ...]:
    parts = [sentence for text in said for sentence in (text, *split_sentences(text))]
    return tuple(dict.fromkeys([*parts, *map(strip_introduction, parts)]))


def _meaning_cases() -> Iterator[Judged]:
    ask = Asker()
    for half in cases.HALVES:
        for name in ("corrections", "both"):
            for pair in cases.of(name, half):
                texts = _texts(pair.before, pair.said)
                yield Judged(pair.said, texts, lambda n=name, p=pair: _is_right_pair(n, p))
        for placed in cases.of("placed", half):
            yield Judged(placed.said, _texts(placed.said), lambda p=placed: _is_placed(p))
        for name in ("kept", "not_kept"):
            for message in cases.of(name, half):
                work = lambda n=name, m=message: _is_right_message(ask, n, m)  # noqa: E731
                yield Judged(message.said, _texts(message.said), work)


def _is_right_pair(name: str, pair: Pair) -> bool:
    return asyncio.run(is_replaced_right(Asker(kind="fact"), name, pair))


def _is_placed(placed: Placed) -> bool:
    return place(placed.said, ("user", "repo")).scope == placed.scope


def _is_right_message(ask: Asker, name: str, message: Message) -> bool:
    verdict = asyncio.run(is_kept(ask, message))
    return verdict == "stated" if name == "kept" else verdict != "stated"


def _story_cases() -> Iterator[Judged]:
    """The statements of `benchmarks.memory_in_use`: kept, and in the right scope and category."""
    for story in chain.from_iterable(stories.SETS.values()):
        said = story.said[-1]
        yield Judged(said, _texts(said), lambda s=said, w=story.place: _is_story_kept(s, w))


def _is_story_kept(said: str, wanted: str) -> bool:
    scope, _, kinds = wanted.partition(" ")
    found_operations = asyncio.run(operations(Asker(), said))
    placed = [place(item.text, ("user", "repo"), item.scope) for item in found_operations]
    return any(item.scope == scope and item.category in kinds for item in placed)


def _capture_cases() -> Iterator[Judged]:
    """The cases of `benchmarks.capture_quality`, if the tests are on the path."""
    try:
        from fakes import capture_cases
    except ImportError:
        return
    from benchmarks.capture_quality import captured

    ask = Asker()

    def is_right(case: capture_cases.Case) -> bool:
        notes = asyncio.run(captured(case, ask))
        hits = [note for note in notes if case.kept and fold_words(note) in fold_words(case.kept)]
        return len(notes) == bool(hits) and bool(hits) == bool(case.kept)

    for case in (*capture_cases.WORK, *capture_cases.HELD_OUT):
        yield Judged(case.said, _texts(case.said), lambda c=case: is_right(c))
    for before, said, is_replaced in (*capture_cases.PAIRS_WORK, *capture_cases.PAIRS_HELD_OUT):
        texts = _texts(before, said)
        yield Judged(said, texts, lambda b=before, s=said, r=is_replaced: _is_pair(b, s, r))


def _is_pair(before: str, said: str, is_replaced: object) -> bool:
    return bool(find_replaced(said, [Note(id="1", text=before)])) == bool(is_replaced)
