"""The words, commands and redirections that a shell line is made of, as values."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

_HARMLESS = re.compile(
    r"(LANG|LANGUAGE|LC_[A-Z]+|TZ|CI|NO_COLOR|FORCE_COLOR|CLICOLOR(_FORCE)?|COLUMNS|LINES|TERM|RUST_BACKTRACE"
    r"|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONUTF8|PYTHONHASHSEED|NODE_ENV|[a-z][a-z0-9_]*)"
)
_SIMPLE_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "e": "\x1b",
    "E": "\x1b",
}


class Word(msgspec.Struct, frozen=True):
    """One word after quoting; a guess where it holds something that the shell would compute."""

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
        """No program acts on it in a way that could run something else or change where it acts."""
        return bool(_HARMLESS.fullmatch(self.name)) and not self.name.endswith("_proxy")


class Redirect(msgspec.Struct, frozen=True):
    """`operator target`, such as `>> log`."""

    operator: str
    target: Word

    @property
    def writes(self) -> bool:
        """It opens the target for writing."""
        return ">" in self.operator and not self.duplicates

    @property
    def duplicates(self) -> bool:
        """It only joins descriptors: `2>&1`, `>&-`."""
        return self.operator in (">&", "<&") and bool(re.fullmatch(r"\d+-?|-", self.target.text))


class Command(msgspec.Struct, frozen=True):
    """One simple command."""

    words: tuple[Word, ...]
    assignments: tuple[Assignment, ...] = ()
    piped: bool = False
    """Its input comes from another command."""
    stdin: str | None = None
    """What a here-document feeds it, where that is known."""
    kind: Literal["plain", "wrapper", "guess"] = "plain"
    """A wrapper only runs the commands that follow; a guess is what a command may run, looked at by deny rules
    and the hard floor only."""

    @property
    def name(self) -> str:
        """The first word."""
        return self.words[0].text

    @property
    def program(self) -> str:
        """The name without its folder."""
        return self.name.rsplit("/", 1)[-1]

    @property
    def text(self) -> str:
        """The words with one space between them."""
        return " ".join(word.text for word in self.words)

    @property
    def arguments(self) -> tuple[Word, ...]:
        """The words after the name."""
        return self.words[1:]


def names(text: str) -> frozenset[str]:
    """The words of a long table."""
    return frozenset(text.split())


def unescaped_ansi(raw: str) -> Word:
    """What stands between the quotes of `$'…'`, decoded."""

    def decode(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "xuU":
            return chr(int(code[1:], 16))
        if code[0] in "01234567":
            return chr(int(code, 8))
        return _SIMPLE_ESCAPES.get(code, code)

    pattern = r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U000[0-9a-fA-F]{1,5}|[0-7]{1,3}|[^xuUc])"
    text = re.sub(pattern, decode, raw, flags=re.DOTALL)
    return Word(text, exact=not re.search(r"\\[xuUc]", raw.replace("\\\\", "")) or "\\" not in text)
