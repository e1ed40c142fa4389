"""The words, commands and redirections of a shell line, as values."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

_HARMLESS_VARIABLES = re.compile(
    r"(LANG|LANGUAGE|LC_[A-Z]+|TZ|CI|NO_COLOR|FORCE_COLOR|CLICOLOR(_FORCE)?|COLUMNS|LINES|TERM|RUST_BACKTRACE"
    r"|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONUTF8|PYTHONHASHSEED|NODE_ENV)"
)
"""Variables that make no program run another or act elsewhere."""


class Word(msgspec.Struct, frozen=True):
    """One word without quotes; not exact if bash would expand it."""

    text: str
    exact: bool = True
    glob: bool = False
    """It holds an unquoted `*`, `?` or `[`."""


class Assignment(msgspec.Struct, frozen=True):
    """`name=value`."""

    name: str
    value: Word

    @property
    def harmless(self) -> bool:
        """Whether the variable makes no program run another or act elsewhere."""
        return bool(_HARMLESS_VARIABLES.fullmatch(self.name))


class Redirect(msgspec.Struct, frozen=True):
    """`operator target`, such as `>> log`."""

    operator: str
    target: Word

    @property
    def duplicates(self) -> bool:
        """Whether it only joins descriptors: `2>&1`, `>&-`."""
        return self.operator in (">&", "<&") and bool(re.fullmatch(r"\d+-?|-", self.target.text))

    @property
    def writes(self) -> bool:
        return ">" in self.operator and not self.duplicates


class Command(msgspec.Struct, frozen=True):
    words: tuple[Word, ...]
    assignments: tuple[Assignment, ...] = ()
    piped: bool = False
    """Its input comes from another command."""
    stdin: str | None = None
    """The text of its here-document."""
    kind: Literal["plain", "wrapper", "guess"] = "plain"
    """A wrapper only runs the command after it; a guess is what a command may run, for deny rules and the floor."""

    @property
    def name(self) -> str:
        return self.words[0].text

    @property
    def program(self) -> str:
        return self.name.rsplit("/", 1)[-1]

    @property
    def text(self) -> str:
        """The words with one space between them."""
        return " ".join(word.text for word in self.words)

    @property
    def arguments(self) -> tuple[Word, ...]:
        return self.words[1:]
