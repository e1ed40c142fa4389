"""Which commands only read: every option and operand must be in the tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import product, takewhile
from typing import NamedTuple

import msgspec

from ouro.safety.shell.command import Command, Word
from ouro.safety.shell.tables import (
    FIND_EXPRESSION,
    LISTS,
    PATTERNS_FIRST,
    SCRIPTS,
    CommandRow,
    rows,
)

_READING_OPERANDS = ("files", "file", "pattern", "script", "text", "changes")
"""Kinds of operands of the commands that run without asking, or, for `changes`, by a rule."""
_GIT_SETTING = re.compile(
    r"core\.pager=(cat)?|(color\.\w+|core\.quote[pP]ath|log\.(date|decorate))=\w+|(log\.showSignature|pager\.\w+)=false"
)
"""A setting of `git -c` that does not start a program."""
_GIT_FORMAT = re.compile(r"%G|signature")
"""A format with which git runs a program."""


def files_read(command: Command, named: Collection[str] = ()) -> tuple[Word, ...] | str | None:
    """The words that name what a command reads, if it only reads.

    Args:
        named: words that a rule of the user names, which are not checked.

    Returns:
        A tuple of words if it only reads; a str if it may do more: the first word that the table
        does not list for it; None if the table does not list the command.
    """
    name, words = command.name, command.arguments
    texts = [word.text for word in words]
    if _only_lists(name, texts) and all(word.exact for word in words):
        return tuple(words)
    if read := _READERS.get(name):
        return read(words, named)
    row = rows().get(name)
    if row is None or row.operands not in _READING_OPERANDS:
        return None
    if texts in (["--help"], ["--version"]):
        return ()
    options = read_options(words, row)
    unlisted = _first_not_named(options.unlisted, named)
    if unlisted or row.operands == "changes":  # it changes files also without such a word
        return unlisted
    return _read_operands(command, row, options, named)


def _read_operands(
    command: Command, row: CommandRow, options: ReadOptions, named: Collection[str]
) -> tuple[Word, ...] | str:
    """The files that a command of the table reads, or the first word that is not listed for it."""
    name = command.name
    checked, files = _split_operands(command, row, options)
    for word in checked:
        if word.text not in named and not _is_listed_text(word, name, row):
            return word.text
    for number, word in enumerate(files):
        if word.text not in named and not _is_listed_file(word, number, name, row):
            return word.text
    if name == "cd":
        return tuple(files) or (Word("~"),)  # without an operand it goes home
    for option in options.values:
        if "@" in row.valued[option]:
            files = [*files, *options.values[option]]
    return tuple(files)


def _split_operands(
    command: Command, row: CommandRow, options: ReadOptions
) -> tuple[list[Word], list[Word]]:
    """The operands that are text for the command, such as a pattern, and those that are files."""
    operands, values = options.operands, options.values
    lists_files = any(word.text == "--files" for word in command.arguments)  # as `rg --files`
    has_no_pattern = lists_files or bool({"e", "f", "regexp", "file"} & values.keys())
    scripts = [*values.get("e", []), *values.get("expression", [])]
    if row.operands == "text":
        return _checked_text(command, operands), []
    if row.operands == "pattern" and not has_no_pattern:
        return operands[:1], operands[1:]
    if row.operands == "script" and not scripts:
        return operands[:1], operands[1:]
    return (scripts if row.operands == "script" else []), operands


def _checked_text(command: Command, operands: list[Word]) -> list[Word]:
    """The operands of a command without files that can change what it does."""
    if command.name in ("test", "["):
        return _test_operators(operands)
    if command.name == "printf":  # only the format string
        begins_with_dashes = [word.text for word in command.arguments[:1]] == ["--"]
        return operands[: 2 if begins_with_dashes else 1]
    return operands


def _is_listed_text(word: Word, name: str, row: CommandRow) -> bool:
    """Whether a pattern, a script or another text of a command lets it only read."""
    script = SCRIPTS.get(name)
    if not word.exact:
        is_pattern = name in PATTERNS_FIRST and _is_path(word, True)
        is_harmless = is_pattern or not (script or word.glob)
        if row.operands != "text" or not is_harmless:
            return False
    return script is None or bool(script.fullmatch(word.text))


def _is_listed_file(word: Word, number: int, name: str, row: CommandRow) -> bool:
    """Whether the command only reads the operand of this number."""
    # The second operand of such a command is a file that it writes.
    if row.operands == "file" and (number or word.glob or word.under):
        return False
    return _is_path(word, name in PATTERNS_FIRST) and not word.text.startswith("@")


def only_reads(command: Command) -> bool:
    """Whether a command only reads, no matter which files."""
    return isinstance(files_read(command), tuple)


def find_unlisted(command: Command, named: Collection[str] = ()) -> str:
    """The first word with which a listed command may do more than it is listed for; empty if there is
    none. Words that a rule of the user names (`named`) do not count.
    """
    result = files_read(command, named)
    return result if isinstance(result, str) else ""


def _first_not_named(texts: Iterable[str], named: Collection[str]) -> str:
    """The first text that is not among the named ones; empty if there is none."""
    return next((text for text in texts if text not in named), "")


class ReadOptions(msgspec.Struct):
    """The words of a command, sorted by its row; options that are not listed are included."""

    operands: list[Word] = []
    values: dict[str, list[Word]] = {}
    """The values of each option, without its dashes."""
    given: set[str] = set()
    """The options of the command, without their dashes."""
    unlisted: list[str] = []
    """The options that are not listed, need a question, or have a computed value."""

    def has(self, *options: str) -> bool:
        """Whether one of the options may be given, possibly abbreviated or with a value attached."""
        return any(_may_be(given, option) for given, option in product(self.given, options))


def _may_be(given: str, option: str) -> bool:
    """Whether the option `given` is `option`, perhaps abbreviated or with a value, if it is long."""
    if given == option:
        return True
    are_long = len(given) > 1 and len(option) > 1
    return are_long and (given.startswith(option) or option.startswith(given))


def read_options(words: Sequence[Word], row: CommandRow) -> ReadOptions:
    """Sort the words of a command into operands, options and their values, by its row."""
    options, rest = ReadOptions(), list(words)
    while rest:
        word = rest.pop(0)
        # For xxd, what looks like an option after a file is another file.
        is_late = options.operands and row.operands in ("file", "command", "wrapped")
        if "*" in row.letters or not word.text.startswith("-") or word.text == "-" or is_late:
            options.operands.append(word)
        elif word.text == "--":
            options.operands += rest
            break
        elif not _read_option(word, row, rest, options):
            options.unlisted.append(word.text)
    return options


class _Option(NamedTuple):
    """One option as it is written: `-n5`, `--lines`, `--lines=5`."""

    name: str
    is_listed: bool
    is_valued: bool
    value: Word | None
    """The value in the same word; None if there is none."""


def _read_option(word: Word, row: CommandRow, rest: list[Word], found: ReadOptions) -> bool:
    """Read an option, and its value from `rest`; returns whether it is listed."""
    is_long = word.text.startswith("--")
    if not is_long and "#" in row.letters and re.fullmatch(r"-\d+", word.text):
        return True
    option = _long_option(word, row, found) if is_long else _short_options(word, row, found)
    if not option.is_valued:
        return option.is_listed and word.exact
    return _read_value(option, word, row, rest, found)


def _long_option(word: Word, row: CommandRow, found: ReadOptions) -> _Option:
    """Read an option `--name` or `--name=value`. A beginning of a listed name counts as that name,
    as in getopt.
    """
    name, equals, inside = word.text[2:].partition("=")
    found.given.add(name)
    is_listed = name in row.valued or (name in row.long and not equals)
    if not is_listed and len(name) > 1:
        name = next((option for option in row.valued if option.startswith(name)), name)
    is_valued = name in row.valued and bool(equals or name not in row.long)
    return _Option(name, is_listed, is_valued, Word(inside, word.exact) if equals else None)


def _short_options(word: Word, row: CommandRow, found: ReadOptions) -> _Option:
    """Read a word such as `-la`. Returns its last letter, or the first that takes a value; it counts
    as listed if all letters up to it are.
    """
    name, is_listed = "", True
    for at, name in enumerate(word.text[1:], 2):
        found.given.add(name)
        if name in row.valued:
            attached = word.text[at:]
            value = Word(attached, word.exact) if attached else None
            return _Option(name, is_listed, is_valued=True, value=value)
        is_listed = is_listed and name in row.letters
        if not (is_listed or name.isalnum()):
            break
    return _Option(name, is_listed, is_valued=False, value=None)


def _read_value(
    option: _Option, word: Word, row: CommandRow, rest: list[Word], found: ReadOptions
) -> bool:
    """Read the value of an option; returns whether the option is listed with it."""
    marks = row.valued[option.name]
    value = _take_value(option, marks, rest)
    if value is None:
        return False
    found.values.setdefault(option.name, []).append(value)
    if not option.is_listed or "!" in marks:
        return False
    if word.exact:
        return value.exact
    # `--include=*.py` stays unchanged: a file of that name needs a question, because it is named
    # like an option.
    return not marks and _is_path(word) and bool(re.match(r"--[\w-]+=[^/]+\Z", word.text))


def _take_value(option: _Option, marks: str, rest: list[Word]) -> Word | None:
    """The value of an option, from the same word or from the next one, which is removed from `rest`;
    None if there is none. An option with the mark `+` has a name before its value.
    """
    if "+" in marks and rest and rest[0].exact and not rest[0].text.startswith("-"):
        del rest[0]
    if option.value is not None:
        return option.value
    # The value must not look like an option: if the letter takes no value, as `-l` of `git
    # grep`, it would act.
    if rest and not re.match(r"-[^\d]", rest[0].text):
        return rest.pop(0)
    return None


def _is_path(word: Word, may_begin_with_pattern: bool = False) -> bool:
    """Whether it is an exact word, a found file, or a file pattern that cannot become an option."""
    if word.exact or word.under:
        return True
    return (
        word.glob
        and not re.search(r"[$`{<>]", word.text)
        and (may_begin_with_pattern or word.text[0] not in "*?[")
    )


def find_starts(words: Sequence[Word]) -> tuple[Word, ...]:
    """The paths of `find`, before its first test; `-`, `(x`, `)` and `,` count as paths, too."""
    return tuple(takewhile(lambda word: not re.fullmatch(r"-.+|[(!]", word.text, re.DOTALL), words))


def find_runs(words: Sequence[Word]) -> list[tuple[int, int]]:
    """The begin and end positions of the commands that `find` runs. A command without an end mark
    has all words up to the last.
    """
    texts, runs = [word.text for word in words], []
    for begin, text in enumerate(texts, 1):
        if text in ("-exec", "-execdir", "-ok", "-okdir"):
            ends = (
                at
                for at in range(begin, len(texts))
                if texts[at] == ";" or texts[at - 1 : at + 1] == ["{}", "+"]
            )
            runs.append((begin, next(ends, len(texts))))
    return runs


def _files_of_find(words: Sequence[Word], named: Collection[str]) -> tuple[Word, ...] | str:
    """The words of the paths that `find` reads, or its first word that is not listed."""
    starts = find_starts(words)
    unlisted = [word.text for word in starts if not _is_path(word)]
    rest = [*words]
    for begin, end in reversed(find_runs(words)):
        if words[begin - 1].text == "-exec" and end < len(words):
            del rest[begin - 1 : end + 1]  # each is judged separately
    unlisted += [word.text for word in rest[len(starts) :] if not _is_listed_test(word)]
    newer = [rest[at] for at, word in enumerate(rest[:-1], 1) if word.text == "-newer"]
    return _first_not_named(unlisted, named) or (*starts, *newer)


def _is_listed_test(word: Word) -> bool:
    """Whether a word of the expression of `find` is listed, or an operand of a test."""
    if not word.exact:
        return False
    is_test = re.match(r"-[a-zA-Z]", word.text)
    return not is_test or bool(FIND_EXPRESSION.fullmatch(word.text))


def git_words(words: Sequence[Word]) -> list[Word]:
    """The arguments of git from the subcommand on."""
    return read_options(words, rows()["git"]).operands


def split_git_words(words: Sequence[Word]) -> tuple[list[Word], list[str]]:
    """The arguments of git from the subcommand on, and the options before it that are not listed: a
    single `-C` is.
    """
    options = read_options(words, rows()["git"])
    settings = [
        word.text for word in options.values.get("c", ()) if not _GIT_SETTING.fullmatch(word.text)
    ]
    return options.operands, [
        *options.unlisted,
        *settings,
        *(["-C"] if len(options.values.get("C", ())) > 1 else []),
    ]


def git_lists(subcommand: str, rest: Sequence[str]) -> bool:
    """Whether a subcommand that lists or changes something only lists."""
    return _only_lists(f"git {subcommand}", rest)


def _only_lists(command: str, rest: Sequence[str]) -> bool:
    """Whether a command of the table LISTS has arguments with which it only lists something."""
    is_listed = command in LISTS and not re.search(r"\s", "".join(rest))
    return is_listed and bool(re.fullmatch(LISTS[command], "".join(f" {text}" for text in rest)))


def _test_operators(words: list[Word]) -> list[Word]:
    """The words of `test` that are operators: the first of two words, the second of three. With
    another number of words each may be one.
    """
    words = words[:-1] if words and words[-1].text == "]" else words
    if len(words) > 2 and words[0].text == "!":
        words = words[1:]
    if len(words) == 3:  # `x = y`
        return words[1:2]
    return words[:1] if len(words) == 2 else words  # `-f x`


def _computed_in_git(begin: Sequence[Word], operands: Sequence[Word]) -> list[str]:
    """The words up to the subcommand that are not exact, and the operands that are no paths."""
    computed = [word.text for word in begin if not word.exact]
    return computed + [word.text for word in operands if not _is_path(word)]


def _files_of_git(words: Sequence[Word], named: Collection[str]) -> tuple[Word, ...] | str | None:
    """All words of a git command that only reads; the first word that is not listed for it (a str);
    None if the subcommand may do more than read.
    """
    rest, unlisted = split_git_words(words)
    if unlisted_word := _first_not_named(unlisted, named):
        return unlisted_word
    if not rest:
        return None
    subcommand, *operands = rest
    computed = _computed_in_git(words[: len(words) - len(operands)], operands)
    row = rows().get(f"git-{subcommand.text}")
    if row is None or row.operands != "git":
        is_listed = not computed and git_lists(subcommand.text, [word.text for word in operands])
        return tuple(words) if is_listed else None
    formats = (word.text for word in words if _GIT_FORMAT.search(word.text))
    unlisted_word = _first_not_named(
        (*computed, *read_options(operands, row).unlisted, *formats), named
    )
    return unlisted_word or tuple(words)


_READERS: Mapping[
    str, Callable[[Sequence[Word], Collection[str]], tuple[Word, ...] | str | None]
] = {"git": _files_of_git, "find": _files_of_find}
"""Commands whose words are read in a way of their own."""
