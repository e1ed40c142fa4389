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
"""Variables that, with a plain value, do not make a program run another one."""

_NUMBER_PATTERN = r"(0|-?[1-9][0-9]{0,5})"
_BRACE_WORD = re.compile(
    rf"((?:--[\w-]+=)?[\w./*?@%+:-]*)(?:\{{{_NUMBER_PATTERN}\.\.{_NUMBER_PATTERN}\}}|\{{([\w./*?@%+:-]*(?:,[\w./*?@%+:-]*)+)\}}"
    rf"|\$\(seq (?:{_NUMBER_PATTERN} )?{_NUMBER_PATTERN}\))([\w./*?@%+:-]*)(?=[\s;&|<>()]|\Z)"
)
"""A word that bash expands to several: `{1..3}`, `src/{a,b}.py`, `$(seq 3)`."""
_MAX_WORDS = 40
"""The words that one word with braces may become."""
_FILE_TESTS = {"-e", "-f", "-d", "-r", "-w", "-x", "-s", "-L", "-h", "-z", "-n"}


class Word(msgspec.Struct, frozen=True):
    """A word of a shell line, as bash passes it to a command."""

    text: str
    """The text without quotes."""
    exact: bool = True
    """Whether bash does not expand it."""
    glob: bool = False
    """Whether it contains an unquoted `*`, `?` or `[`."""
    raw: str = ""
    """The word as it was written."""
    under: tuple[str, ...] = ()
    """The folders below which the files are that it stands for, as `{}` of `find -exec` does. Empty
    for an ordinary word.
    """
    regular: bool = False
    """Whether it stands for such files, and none of them is a link."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The parts of the word that may be a path: the word itself unless it is an option, and
        what comes after `@`, after `=`, and after the letters of a short option. So `@x`, `of=x`
        and `--file=x` hold the path `x`, and `-f/x` holds `/x`.
        """
        if self.under:
            return self.under
        whole: tuple[str, ...] = ()
        if self.text.startswith("@"):  # curl and others read the file after it
            whole = (self.text, self.text[1:])
        elif not self.text.startswith("-"):
            whole = (self.text,)
        if "=" in self.text:
            return (*whole, self.text.partition("=")[2])
        in_option = re.match(r"-[A-Za-z]+([/~.].*)", self.text)
        return (in_option[1],) if in_option else whole


class Assignment(msgspec.Struct, frozen=True):
    """`NAME=value` before a command, or alone."""

    name: str
    value: Word

    @property
    def harmless(self) -> bool:
        """Whether the assignment cannot make a program run another one, or work in another place.
        This is so for a harmless variable with a plain value, and for a pager that is turned off.
        """
        has_plain_value = re.fullmatch(r"[\w.:@+-]*", self.value.text)
        if has_plain_value and _HARMLESS_VARIABLES.fullmatch(self.name):
            return True
        text = f"{self.name}={self.value.text}"
        turns_off_pager = re.fullmatch(r"(GIT_|MAN|GH_)?PAGER=(cat)?", text)
        return bool(turns_off_pager)


class Redirect(msgspec.Struct, frozen=True):
    """`operator target`, such as `>> log`."""

    operator: str
    target: Word
    commands_before: int = 0
    """The number of commands of the line that were read before it."""

    @property
    def duplicates(self) -> bool:
        """Whether it only joins descriptors: `2>&1`, `>&-`."""
        return self.operator in (">&", "<&") and bool(re.fullmatch(r"\d+-?|-", self.target.text))

    @property
    def writes(self) -> bool:
        return ">" in self.operator and not self.duplicates


class Command(msgspec.Struct, frozen=True):
    """A command of a shell line: its words, and what comes before and into it."""

    words: tuple[Word, ...]
    assignments: tuple[Assignment, ...] = ()
    piped: bool = False
    """Whether its input comes from another command."""
    source: Command | None = None
    """The command that its input comes from, if it is a single one."""
    stdin: str | None = None
    """The text of its here-document."""
    kind: Literal["plain", "wrapper", "guess"] = "plain"
    """A wrapper only runs the command after it. A guess is what a command may run; only deny rules,
    ask rules and the floor look at it.
    """

    @property
    def name(self) -> str:
        return self.words[0].text

    @property
    def program(self) -> str:
        """The name without the folder."""
        return self.words[0].text.rsplit("/", 1)[-1]  # not `self.name`: the judge asks often

    @property
    def text(self) -> str:
        """The words with one space between them."""
        return " ".join(word.text for word in self.words)

    @property
    def arguments(self) -> tuple[Word, ...]:
        return self.words[1:]

    @property
    def computed(self) -> Word | None:
        """The first word whose value is known only when bash runs; None if there is none."""
        return next((word for word in self.words if not (word.exact or word.glob)), None)

    @property
    def settings(self) -> tuple[Assignment, ...]:
        """The assignments that may change what the command does."""
        return tuple(assignment for assignment in self.assignments if not assignment.harmless)


def several_words(text: str, at: int) -> list[Word]:
    """Returns the words to which bash expands the word at the position `at`, if it has braces such
    as `{1..3}`. Empty if it has none, if these are more than `_MAX_WORDS` words, if one of them is
    empty, because bash drops it, or if there is no bash: another shell would then run the line.
    """
    match = _BRACE_WORD.match(text, at)
    if not match or not shutil.which("bash"):
        return []
    texts = _expand(*match.groups())
    if not all(texts) or len(texts) > _MAX_WORDS:
        return []
    words: list[Word] = []
    for word in texts:
        is_glob = bool(re.search(r"[*?]", word))
        words.append(Word(word, exact=not is_glob, glob=is_glob, raw=match[0]))
    return words


def _expand(
    head: str,
    first: str | None,
    last: str | None,
    choices: str | None,
    start: str | None,
    end: str | None,
    tail: str,
) -> list[str]:
    """Returns the texts to which bash expands a word such as `a{1..3}b`, `a{x,y}b` or `$(seq 2 3)`.
    Empty for `a$(seq 3)b`. Of numbers at most `_MAX_WORDS` + 1 are returned: one more than allowed
    shows the caller that there are too many.

    The arguments are the groups of _BRACE_WORD: `head` and `tail` around the braces, `first` and
    `last` of `{1..3}`, `choices` of `{x,y}`, `start` (None: 1) and `end` of seq.
    """
    if choices:
        return [f"{head}{value}{tail}" for value in choices.split(",")]
    # Only the first and the last number of seq are joined with the text around it.
    if end and head + tail:
        return []
    numbers = range(int(first or start or 1), int(last or end or 0) + 1)
    return [f"{head}{number}{tail}" for number in numbers[: _MAX_WORDS + 1]]


def is_plain_test(words: Sequence[Word]) -> bool:
    """Whether the words after `[[` only test one file or compare two texts, perhaps after a `!`."""
    raws = [word.raw for word in words]
    if raws[:1] == ["!"]:
        raws = raws[1:]
    has_one = len(raws) == len(("-f", "x", "]]")) and raws[0] in _FILE_TESTS
    has_two = len(raws) == len(("x", "=", "y", "]]")) and raws[1] in ("=", "==", "!=")
    return (has_one or has_two) and raws[-1] == "]]"


class ShellLine(msgspec.Struct):
    """A parsed shell line: its commands in order, including nested ones. The parser fills it."""

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
    """How often the body of a loop was read up to its `done`."""
    bodies: list[str] = []
    """The here-documents."""
    has_loop: bool = False
    """Whether commands may run again after those that follow them."""

    def make_opaque(self, reason: str) -> None:
        """Note why the line cannot be judged; the first reason counts."""
        self.opaque = self.opaque or reason

    def hide(self, reason: str) -> None:
        """Note why the commands are not known; the first reason counts."""
        self.hidden = self.hidden or reason
