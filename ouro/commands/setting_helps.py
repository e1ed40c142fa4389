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
    return dict(_helps_in(sections, "Settings", ""))


def _helps_in(
    sections: Mapping[str, ast.ClassDef], name: str, prefix: str
) -> list[tuple[str, str]]:
    """The dotted names of the settings of a section, and of those below it, with their docstrings.

    Args:
        sections: the class of each section by its name.
        name: the class of this section.
        prefix: the dotted name of this section, with a dot at its end.
    """
    helps = list[tuple[str, str]]()
    body = sections[name].body
    for node, following in zip_longest(body, body[1:]):
        if not isinstance(node, ast.AnnAssign):
            continue
        key, kind = f"{prefix}{ast.unparse(node.target)}", ast.unparse(node.annotation)
        if kind in sections:
            helps += _helps_in(sections, kind, f"{key}.")
        else:
            helps.append((key, _constant_text(following)))
    return helps


def _constant_text(node: ast.stmt | None) -> str:
    """The docstring that follows a field, as one line; empty if another statement follows it."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return one_line(str(node.value.value), 300)
    return ""
