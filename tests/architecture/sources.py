"""Every product module, read and parsed once for all architecture tests."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Source(NamedTuple):
    """One module of the product."""

    name: str
    """Below `ouro/`, as `memory/manager.py`."""
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]
    """All nodes of the tree: each walk over all modules takes a second."""


@cache
def sources() -> tuple[Source, ...]:
    """All modules of `ouro/`, sorted by name."""
    paths = sorted((ROOT / "ouro").rglob("*.py"))
    gc.disable()  # garbage collections take as long as parsing
    found = tuple(
        Source(path.relative_to(ROOT / "ouro").as_posix(), text, tree, tuple(ast.walk(tree)))
        for path in paths
        for text in [path.read_text()]
        for tree in [ast.parse(text)]
    )
    gc.freeze()  # each garbage collection over the trees takes two seconds
    gc.enable()
    return found
