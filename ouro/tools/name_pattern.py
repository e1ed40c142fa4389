"""Glob patterns for file names, as in a shell or .gitignore."""

from __future__ import annotations

import re
from collections.abc import Callable

from ouro.errors import ToolError

_PIECE = re.compile(r"\*\*/|\*\*|\*|\?|\[[!^]?\]?[^\]]*\]|[^*?\[]+|\[")
_BRACES = re.compile(r"\{([^{}]*)\}")
_MAX_FORMS = 256
_MAX_STARS = 3
"""Regular expressions are exponential in stars: `*a*a*a*a*b` froze ouro. Above this, a state machine is used."""


def name_pattern(pattern: str) -> Callable[[str], bool]:
    """A matcher of paths: `*` stays in a folder, `**` crosses folders, `{a,b}` is either, `!` negates.

    A pattern without a slash matches the file name alone.

    Raises:
        ToolError: the pattern is not valid.
    """
    if pattern.startswith("!"):
        fits = name_pattern(pattern[1:])
        return lambda path: not fits(path)
    forms = [_in_every_folder(form) for form in expand_braces(pattern)]
    if any(sum("*" in piece for piece in _PIECE.findall(form)) > _MAX_STARS for form in forms):
        matchers = [_steps(form) for form in forms]
        return lambda path: any(_matches(steps, path) for steps in matchers)
    try:
        expression = re.compile("|".join(f"(?:{_expression(form)})" for form in forms), re.DOTALL)
    except re.error as error:
        raise ToolError(f"{pattern} is not a pattern for names: {error}.") from error
    return lambda path: expression.fullmatch(path) is not None


def expand_braces(pattern: str) -> list[str]:
    """Expand the braces of `pattern`.

    Raises:
        ToolError: there are too many.
    """
    found = _BRACES.search(pattern)
    if found is None:
        return [pattern]
    before, after = pattern[: found.start()], pattern[found.end() :]
    forms: list[str] = []
    for choice in found[1].split(","):
        forms += expand_braces(f"{before}{choice}{after}")
        if len(forms) > _MAX_FORMS:
            raise ToolError("The pattern has too many {…}: give fewer.")
    return forms


def _in_every_folder(pattern: str) -> str:
    if pattern.endswith("/"):
        pattern += "**"
    return pattern.removeprefix("/") if "/" in pattern else f"**/{pattern}"


def _expression(pattern: str) -> str:
    return "".join(_piece(piece) for piece in _PIECE.findall(pattern))


def _piece(piece: str) -> str:
    if piece == "**/":
        return "(?:.*/)?"
    if piece in ("**", "*", "?"):
        return {"**": ".*", "*": "[^/]*", "?": "[^/]"}[piece]
    if piece.startswith("[") and piece.endswith("]") and len(piece) > 2:
        inside = piece[1:-1].replace("\\", "\\\\").replace("[", "\\[")
        return f"[^/{inside[1:]}]" if inside[0] in "!^" else f"[{inside}]"
    return re.escape(piece)


def _steps(pattern: str) -> list[str | re.Pattern[str]]:
    """The pattern as stars (`*`, `**`, `**/`) and expressions for single characters."""
    steps: list[str | re.Pattern[str]] = []
    for piece in _PIECE.findall(pattern):
        if piece in ("*", "**", "**/"):
            steps.append(piece)
        elif piece == "?" or (piece.startswith("[") and piece.endswith("]") and len(piece) > 2):
            steps.append(re.compile(_piece(piece), re.DOTALL))
        else:
            steps += [re.compile(re.escape(char)) for char in piece]
    return steps


def _matches(steps: list[str | re.Pattern[str]], path: str) -> bool:
    """Follow all states at once, in time proportional to path length times pattern length."""
    states = _closed(steps, {0})
    for char in path:
        following: set[int] = set()
        for at in states:
            step = steps[at] if at < len(steps) else None
            if isinstance(step, re.Pattern):
                if step.fullmatch(char):
                    following |= _closed(steps, {at + 1})
            elif step is not None and (char != "/" or step != "*"):
                following.add(at)
                if step != "**/" or char == "/":
                    following |= _closed(steps, {at + 1})
        states = following
    return len(steps) in states


def _closed(steps: list[str | re.Pattern[str]], states: set[int]) -> set[int]:
    """The states, plus those behind stars that match the empty string."""
    found = set(states)
    for at in states:
        while at < len(steps) and isinstance(steps[at], str):
            at += 1  # noqa: PLW2901 - the next step
            found.add(at)
    return found
