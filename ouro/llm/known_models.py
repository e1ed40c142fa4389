"""Known models: window, prices, abilities. By provider: the recommended model first, then newest first.

Where a provider charges more beyond a length, the window ends there: no session silently costs twice as much.
`window:` in models.yaml lifts that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from ouro.errors import NoModelError
from ouro.llm.model import ModelSpec, Prices
from ouro.utils.late_pattern import late_pattern

OUTPUT_SHARE = 6
"""An answer may take at most this share of the window, so that request and answer always fit."""
MAX_OUTPUT = 64_000
VERSION_TAIL = late_pattern(r"(-\d{4}-\d\d-\d\d|-20\d{6}|-\d{4}|-latest|:free|:beta)$")

NEEDS_LITELLM = late_pattern(r"openai/(gpt-[\d.]+-(codex|pro)|o[13]-pro|.*deep-research)")
"""OpenAI's models that are not served as chat completions: litellm translates."""


def find_known_spec(name: str) -> ModelSpec | None:
    """The entry of a model with exactly this name, ignoring dates and `openrouter/`."""
    tail = name.removeprefix("openrouter/")
    for candidate in (tail, VERSION_TAIL.sub("", tail), VERSION_TAIL.sub("", tail).replace(".", "-")):
        if found := KNOWN.get(candidate.lower()):
            return replace(found, name=name)
    return None


def _parse_row(row: str) -> ModelSpec:
    name, window, longest, prices, *abilities = row.split()
    return ModelSpec(
        name,
        int(window),
        min(int(longest), int(window) // OUTPUT_SHARE, MAX_OUTPUT),
        Prices(*map(float, prices.split("/"))),
        images="images" in abilities,
        thinking="thinking" in abilities,
        patches="patches" in abilities,
    )


_ROWS = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
TABLE = tuple(_parse_row(row) for row in _ROWS if not row.startswith("#"))
KNOWN = {spec.name.lower(): spec for spec in TABLE}


def find_model(word: str, groups: Iterable[Sequence[str]]) -> str | None:
    """The model that `word` means; earlier groups win, within a group the first is the newest.

    A whole name wins, then the name without its provider, then a part of it.

    Raises:
        NoModelError: models of several providers match.
    """
    wanted = word.strip().lower()
    part = re.compile(rf"(?<![a-z0-9]){re.escape(wanted)}(?![a-z/])")
    ways: tuple[Callable[[str], object], ...] = (
        lambda name: wanted == name,
        lambda name: wanted in {(tail := _without_provider(name)), tail.partition(":")[0], tail.rpartition("/")[2]},
        lambda name: part.search(_without_provider(name)),
    )
    groups = [list(group) for group in groups]
    for fits in ways:
        for group in groups:
            matches = [name for name in group if fits(name.lower())]
            if len({name.partition("/")[0] for name in matches}) > 1:
                shown = ", ".join(f"`{name}`" for name in matches[:4])
                raise NoModelError(f"`{word}` could be several models: {shown}.", "Give the name with its provider.")
            if matches:
                return matches[0]
    return None


def find_nearest(word: str, names: Sequence[str]) -> list[str]:
    """Up to three of the names: of the provider that the word names, else those that look like it."""
    import difflib

    providers = {name.partition("/")[0] for name in names}
    if provider := difflib.get_close_matches(word.lower(), providers, n=1, cutoff=0.82):
        return [name for name in names if name.startswith(f"{provider[0]}/")][:3]
    by_form: dict[str, str] = {}
    for name in names:
        by_form.setdefault(name.lower(), name)
        by_form.setdefault(_without_provider(name.lower()), name)
        for part in re.findall("[a-z]{4,}", _without_provider(name.lower())):
            by_form.setdefault(part, name)
    near = difflib.get_close_matches(word.lower(), by_form, n=6, cutoff=0.6)
    return list(dict.fromkeys(by_form[form] for form in near))[:3]


def _without_provider(name: str) -> str:
    return name.partition("/")[2] or name
