"""How the lines of a model are indented in the file it means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

Reindent = Callable[[str], str]
"""Gives a line of the model the indentation that it has to have in the file."""


def reindent_between(wanted: Sequence[str], found: Sequence[str]) -> Reindent | None:
    """The way from the indentation of `wanted` to that of `found`; None where there is no single way."""
    known: dict[str, str] = {}
    for mine, its in zip(wanted, found, strict=True):
        if mine.strip() and known.setdefault(_indent(mine), _indent(its)) != _indent(its):
            return None
    depths = sorted((_width(mine), _width(its)) for mine, its in known.items())
    if any(first[1] >= second[1] for first, second in pairwise(depths)):
        return None
    units = _units(known)

    def reindent(line: str) -> str:
        if not line.strip():
            return ""
        own = _indent(line)
        return _indent_for(own, known, units) + line[len(own) :]

    return reindent


def _indent_for(own: str, known: dict[str, str], units: tuple[str, str]) -> str:
    if own in known or not known:
        return known.get(own, own)
    nearest = min(known, key=lambda each: (abs(_width(each) - _width(own)), not own.startswith(each)))
    if own.startswith(nearest):
        return known[nearest] + _converted(own[len(nearest) :], units)
    if nearest.startswith(own):
        return known[nearest].removesuffix(_converted(nearest[len(own) :], units))
    return own


def _converted(indent: str, units: tuple[str, str]) -> str:
    mine, its = units
    if mine == its:
        return indent
    steps, rest = divmod(_width(indent), _width(mine))
    return its * steps + " " * rest


def _units(known: dict[str, str]) -> tuple[str, str]:
    """One step of indentation, on the model's side and in the file."""
    pairs = sorted(((mine, its) for mine, its in known.items()), key=lambda pair: _width(pair[0]))
    for (mine, its), (deeper, its_deeper) in zip([("", ""), *pairs], pairs, strict=False):
        if deeper.startswith(mine) and its_deeper.startswith(its) and deeper != mine and its_deeper != its:
            step, its_step = deeper[len(mine) :], its_deeper[len(its) :]
            if ("\t" in step) != ("\t" in its_step):
                return _one(step, its_step)
    tabs_in_file = any("\t" in its for its in known.values()) and not any("\t" in mine for mine in known)
    return ("    ", "\t") if tabs_in_file else ("", "")


def _one(step: str, its_step: str) -> tuple[str, str]:
    """The units of two indentations that are the same number of steps deep, one of them in tabs."""
    tabs = max(step.count("\t"), its_step.count("\t"))
    return step[: len(step) // tabs] or " ", its_step[: len(its_step) // tabs] or " "


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _width(indent: str) -> int:
    return len(indent.expandtabs(4))
