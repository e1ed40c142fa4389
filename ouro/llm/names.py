"""Short names: which model `sonnet`, `gpt-5` or `qwen3` means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ouro.errors import NoModelError


def find_model(word: str, groups: Iterable[Sequence[str]]) -> str | None:
    """The one model that `word` means; earlier groups come first, in a group the first is the newest.

    A whole name wins, then the name without its provider, then a part of it.

    Raises:
        NoModelError: models of several providers have it in their names.
    """
    wanted = word.strip().lower()
    listed = [list(group) for group in groups]
    for fits in (_is_it, _is_its_tail, _is_a_part):
        for group in listed:
            if matches := [name for name in group if fits(wanted, name.lower())]:
                return _one_of(word, matches)
    return None


def nearest(word: str, names: Iterable[str]) -> list[str]:
    """Names that look like `word`, the likest first."""
    import difflib

    by_form: dict[str, str] = {}
    for name in names:
        by_form.setdefault(name.lower(), name)
        by_form.setdefault(_tail(name.lower()), name)
    near = difflib.get_close_matches(word.lower(), by_form, n=6, cutoff=0.6)
    return list(dict.fromkeys(by_form[form] for form in near))[:3]


def _one_of(word: str, matches: list[str]) -> str:
    providers = {name.partition("/")[0] for name in matches}
    if len(providers) == 1:
        return matches[0]
    shown = ", ".join(f"`{name}`" for name in matches[:4])
    raise NoModelError(f"`{word}` could be several models: {shown}.", "Give the name with its provider.")


def _tail(name: str) -> str:
    return name.partition("/")[2] or name


def _is_it(wanted: str, name: str) -> bool:
    return wanted == name


def _is_its_tail(wanted: str, name: str) -> bool:
    tail = _tail(name)
    return wanted in {tail, tail.partition(":")[0], tail.rpartition("/")[2]}


def _is_a_part(wanted: str, name: str) -> bool:
    return bool(re.search(rf"(?<![a-z0-9]){re.escape(wanted)}(?![a-z])", _tail(name)))
