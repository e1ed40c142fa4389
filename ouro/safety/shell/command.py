"""The words, commands and redirections of a shell line, as values."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from typing import Literal

import msgspec

_HARMLESS_VARIABLES = re.compile(
    r"(LANG|LANGUAGE|LC_[A-Z]+|TZ|CI|NO_COLOR|FORCE_COLOR|CLICOLOR(_FORCE)?|COLUMNS|LINES|TERM|RUST_BACKTRACE"
    r"|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONUTF8|PYTHONHASHSEED|NODE_ENV)"
)

_NUMBER = r"(0|-?[1-9][0-9]{0,5})"
_SEVERAL = re.compile(
    rf"((?:--[\w-]+=)?[\w./*?@%+:-]*)(?:\{{{_NUMBER}\.\.{_NUMBER}\}}|\{{([\w./*?@%+:-]*(?:,[\w./*?@%+:-]*)+)\}}"
    rf"|\$\(seq (?:{_NUMBER} )?{_NUMBER}\))([\w./*?@%+:-]*)(?=[\s;&|<>()]|\Z)"
)
"""A word that bash expands to several: `{1..3}`, `src/{a,b}.py`, `$(seq 3)`."""
_MAX_WORDS = 40
_TESTS = {"-e", "-f", "-d", "-r", "-w", "-x", "-s", "-L", "-h", "-z", "-n"}


class Word(msgspec.Struct, frozen=True):
    text: str
    """The text without quotes."""
    exact: bool = True
    """Whether bash does not expand it."""
    glob: bool = False
    """Whether it contains an unquoted `*`, `?` or `[`."""
    raw: str = ""
    """The word as it was written."""
    under: tuple[str, ...] = ()
    """Set if it represents files below these folders, like `{}` of `find -exec`."""
    regular: bool = False
    """Whether none of these files is a link."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The parts that may be a path: `x`, `of=x`, `--file=x`, `-f/x`."""
        if self.under:
            return self.under
        whole = (
            ()
            if self.text.startswith("-")
            else (self.text, *([self.text[1:]] if self.text[:1] == "@" else []))
        )
        if "=" in self.text:
            return (*whole, self.text.partition("=")[2])
        inside = re.match(r"-[A-Za-z]+([/~.].*)", self.text)
        return (inside[1],) if inside else whole


class Assignment(msgspec.Struct, frozen=True):
    name: str
    value: Word

    @property
    def harmless(self) -> bool:
        """Whether it cannot make a program run another one, or work in another place."""
        is_plain = _HARMLESS_VARIABLES.fullmatch(self.name) and re.fullmatch(
            r"[\w.:@+-]*", self.value.text
        )
        return bool(
            is_plain
            or re.fullmatch(r"(GIT_|MAN|GH_)?PAGER=(cat)?", f"{self.name}={self.value.text}")
        )


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
    """Whether its input comes from another command."""
    source: Command | None = None
    """The command that its input comes from, if it is a single one."""
    stdin: str | None = None
    """The text of its here-document."""
    kind: Literal["plain", "wrapper", "guess"] = "plain"
    """A wrapper only runs the command after it. A guess is what a command may run: for deny rules
    and floor.
    """

    @property
    def name(self) -> str:
        return self.words[0].text

    @property
    def program(self) -> str:
        """The name without the folder."""
        return self.name.rsplit("/", 1)[-1]

    @property
    def text(self) -> str:
        """The words with one space between them."""
        return " ".join(word.text for word in self.words)

    @property
    def arguments(self) -> tuple[Word, ...]:
        return self.words[1:]

    @property
    def computed(self) -> Word | None:
        """The first word whose value is known only when bash runs."""
        return next((word for word in self.words if not (word.exact or word.glob)), None)

    @property
    def settings(self) -> tuple[Assignment, ...]:
        """The assignments that may change what the command does."""
        return tuple(assignment for assignment in self.assignments if not assignment.harmless)


def several_words(text: str, at: int) -> list[Word]:
    """The words to which bash expands the word at a position, if it is one like `{1..3}`; otherwise
    none.
    """
    match = _SEVERAL.match(text, at)
    if not match or not shutil.which("bash"):
        return []
    texts = _expand(*match.groups())
    if not all(texts) or len(texts) > _MAX_WORDS:
        return []
    found: list[Word] = []
    for word in texts:
        is_glob = bool(re.search(r"[*?]", word))
        found.append(Word(word, not is_glob, is_glob, match[0]))
    return found


def _expand(
    head: str,
    first: str | None,
    last: str | None,
    listed: str | None,
    start: str | None,
    end: str | None,
    tail: str,
) -> list[str]:
    """The texts of `a{1..3}b`, `a{x,y}b` or `$(seq 2 3)`; none for `a$(seq 3)b`."""
    if listed:
        return [f"{head}{value}{tail}" for value in listed.split(",")]
    if end and head + tail:
        return []
    numbers = range(int(first or start or 1), int(last or end or 0) + 1)
    return [f"{head}{number}{tail}" for number in numbers[: _MAX_WORDS + 1]]


def is_plain_test(words: Sequence[Word]) -> bool:
    """Whether `[[` only looks at one file or compares two texts."""
    raws = [word.raw for word in words[words[0].raw == "!" :]] if words else []
    has_one = len(raws) == len(("-f", "x", "]]")) and raws[0] in _TESTS
    has_two = len(raws) == len(("x", "=", "y", "]]")) and raws[1] in ("=", "==", "!=")
    return (has_one or has_two) and raws[-1] == "]]"


class ShellLine(msgspec.Struct):
    """A parsed shell line: its commands in order, including nested ones."""

    commands: list[Command] = []
    redirects: list[Redirect] = []
    opaque: str = ""
    """Why it cannot be judged; empty if it is understood."""
    hidden: str = ""
    """Why not even its commands are known; then it is also opaque."""
    values: dict[str, Word] = {}
    """The variables that are set. If the value is not known, it is not exact; if `read` sets it, it
    has no `raw`.
    """
    rounds: int = 0
    bodies: list[str] = []
    """The here-documents."""

    def make_opaque(self, reason: str) -> None:
        """Note why the line cannot be judged; the first reason counts."""
        self.opaque = self.opaque or reason

    def hide(self, reason: str) -> None:
        """Note why the commands are not known; the first reason counts."""
        self.hidden = self.hidden or reason
