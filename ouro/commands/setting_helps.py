"""What each setting means, read from the docstrings of `settings.py`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from itertools import zip_longest
from pathlib import Path

from ouro import settings
from ouro.utils.text import one_line


@cache
def setting_helps() -> Mapping[str, str]:
    """What each setting means, by its dotted name: the docstrings in `settings.py`."""
    tree = ast.parse(Path(settings.__file__).read_text(encoding="utf-8"))
    sections = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    return dict(_helps_in(sections, "Settings", prefix=""))


def _helps_in(
    sections: Mapping[str, ast.ClassDef], name: str, prefix: str
) -> list[tuple[str, str]]:
    """The dotted name and the docstring of each setting in a section and in the sections below it.

    Args:
        sections: the class of each section by its name.
        name: the class of this section.
        prefix: the dotted name of this section, with a dot at its end; empty for the outermost.
    """
    helps = list[tuple[str, str]]()
    statements = sections[name].body
    for statement, following in zip_longest(statements, statements[1:]):
        if not isinstance(statement, ast.AnnAssign):
            continue
        key = f"{prefix}{ast.unparse(statement.target)}"
        type_name = ast.unparse(statement.annotation)
        if type_name in sections:
            helps += _helps_in(sections, type_name, f"{key}.")
        else:
            helps.append((key, _constant_text(following)))
    return helps


def _constant_text(node: ast.stmt | None) -> str:
    """The text of a docstring, as one line; empty if the statement is not a docstring, or None."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return one_line(str(node.value.value), 300)
    return ""
