"""How many decisions the functions of a folder make: `PYTHONPATH=tests python -m architecture.density [FOLDER]`.

With `--write` the lists of this test suite are made shorter after a clean-up; they never grow.

A decision: if, elif, for, while, conditional expression, each further operand of and/or, except,
case, each `for` and each `if` of a comprehension.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from architecture.sources import ROOT, Source, sources

MANY_DECISIONS = 15
FUNCTIONS = Path(__file__).with_name("dense_functions.txt")
"""Functions with more than MANY_DECISIONS, as `file: function`."""
COMPREHENSIONS = Path(__file__).with_name("dense_comprehensions.txt")
"""Comprehensions inside of others or with two `for`, as `file: count`."""

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_ONE = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp, ast.ExceptHandler, ast.match_case)


class Function(NamedTuple):
    """A function with the number of its decisions and lines."""

    name: str
    """As `memory/manager.py: load`."""
    decisions: int
    lines: int


def functions_of(source: Source) -> Iterator[Function]:
    """Each function of a module; inner functions count for the outer one, too."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            yield Function(f"{source.name}: {node.name}", _count_decisions(node), lines)


@cache
def all_functions() -> tuple[Function, ...]:
    """The functions of all modules: counting their decisions takes a second."""
    return tuple(chain.from_iterable(map(functions_of, sources())))


def dense_comprehensions() -> dict[str, int]:
    """How many comprehensions of each module are dense."""
    return {source.name: count for source in sources() if (count := _count_dense(source))}


def dense_functions() -> set[str]:
    """The functions with more than MANY_DECISIONS."""
    return {item.name for item in all_functions() if item.decisions > MANY_DECISIONS}


def known_functions() -> set[str]:
    """The functions that may have more."""
    return set(FUNCTIONS.read_text().splitlines())


def known_comprehensions() -> dict[str, int]:
    """How many comprehensions of each module may be dense."""
    rows = (line.rpartition(": ") for line in COMPREHENSIONS.read_text().splitlines())
    return {name: int(count) for name, _, count in rows}


def _count_decisions(function: ast.AST) -> int:
    count = 0
    for node in ast.walk(function):
        count += isinstance(node, _ONE)
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        if isinstance(node, _COMPREHENSIONS):
            count += sum(1 + len(generator.ifs) for generator in node.generators)
    return count


def _count_dense(source: Source) -> int:
    return sum(_is_dense(node) for node in source.nodes if isinstance(node, _COMPREHENSIONS))


def _is_dense(node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> bool:
    inner = any(isinstance(item, _COMPREHENSIONS) for item in ast.walk(node) if item is not node)
    return inner or len(node.generators) > 1


def _write() -> None:
    functions = known_functions() & dense_functions()
    FUNCTIONS.write_text("".join(f"{name}\n" for name in sorted(functions)))
    known, found = known_comprehensions(), dense_comprehensions()
    counts = {name: min(count, found[name]) for name, count in known.items() if name in found}
    COMPREHENSIONS.write_text("".join(f"{name}: {count}\n" for name, count in counts.items()))


def _sources_of(folder: Path) -> tuple[Source, ...]:
    found = []
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text())
        name = path.relative_to(folder).as_posix()
        found.append(Source(name, "", tree, tuple(ast.walk(tree))))
    return tuple(found)


def _print_figures(folder: Path) -> None:
    functions: list[Function] = []
    dense = 0
    for source in _sources_of(folder):
        functions += functions_of(source)
        dense += _count_dense(source)
    sizes = Counter(
        "over 15" if item.decisions > MANY_DECISIONS else "10 to 15"
        for item in functions
        if item.decisions > 10
    )
    lines = sum(item.lines for item in functions) or 1
    share = 100 * sum(item.decisions for item in functions) / lines
    print(
        f"{len(functions)} functions, over 10 decisions: {sizes.total()}, over 15: {sizes['over 15']}"
    )
    print(f"{share:.1f} decisions per 100 function lines, {dense} dense comprehensions")


if __name__ == "__main__":
    if "--write" in sys.argv:
        _write()
    _print_figures(
        Path(sys.argv[1]) if sys.argv[1:] and sys.argv[1] != "--write" else ROOT / "ouro"
    )
