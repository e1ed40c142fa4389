"""The categories of notes: the built-in ones, and those of the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ouro.memory.long_term.git.values import Scope


def categories_of(own: Mapping[str, Sequence[str]]) -> dict[str, Scope]:
    """All categories of notes, each with the scope that it usually lives in."""
    from ouro.memory.long_term.notes.note import CATEGORIES

    named = {" ".join(name.split()).casefold().replace(" ", "-").replace("_", "-"): each for name, each in own.items()}
    added: dict[str, Scope] = {name: "user" if "user" in scopes[:1] else "repo" for name, scopes in named.items()}
    return {**CATEGORIES, **added}
