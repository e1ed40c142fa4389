"""Finds whether a command only reads, and which files: the tables must list the command, its
options and its operands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise, product, takewhile
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
    """Returns what a command reads, if it only reads.

    Args:
        named: words that a rule of the user names, which are not checked.

    Returns:
        A tuple if it only reads: the words that name what it reads. A str if it may do more: the
        first word that the table does not list for it, which is empty for a command that changes
        files. None if the table does not list the command.
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
    changes_files = row.operands == "changes"
    if unlisted or changes_files:
        return unlisted
    return _read_operands(command, row, options, named)


def _read_operands(
    command: Command, row: CommandRow, options: ReadOptions, named: Collection[str]
) -> tuple[Word, ...] | str:
    """Returns the words of the files that a command of the table reads. If one of its operands is
    not listed, returns the first such operand, as a str. The caller must check the options before.
    """
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
        reads_value = "@" in row.valued[option]
        if reads_value:
            files = [*files, *options.values[option]]
    return tuple(files)


def _split_operands(
    command: Command, row: CommandRow, options: ReadOptions
) -> tuple[list[Word], list[Word]]:
    """Returns two lists: the texts that must be checked, such as the pattern of `grep` and the
    script of `sed`, and the operands that are files.
    """
    operands, values = options.operands, options.values
    lists_files = any(word.text == "--files" for word in command.arguments)  # as `rg --files`
    # Then no operand is the pattern: an option has given it, or none is needed.
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
    """Returns the operands that can change what a command without files does: the operators of
    `test`, the format of `printf`, and all operands of any other command.
    """
    if command.name in ("test", "["):
        return _test_operators(operands)
    if command.name == "printf":  # only the format string
        begins_with_dashes = [word.text for word in command.arguments[:1]] == ["--"]
        return operands[: 2 if begins_with_dashes else 1]
    return operands


def _is_listed_text(word: Word, name: str, row: CommandRow) -> bool:
    """Whether a command only reads with this pattern, script or other text: it matches what
    `SCRIPTS` lists for the command, or `SCRIPTS` lists nothing. A text that bash computes may be
    harmless only if the command takes no files.
    """
    script = SCRIPTS.get(name)
    if not word.exact:
        is_harmless_pattern = name in PATTERNS_FIRST and _is_path(word, may_begin_with_pattern=True)
        can_be_any_text = script is None and not word.glob
        if row.operands != "text" or not (is_harmless_pattern or can_be_any_text):
            return False
    return script is None or bool(script.fullmatch(word.text))


def _is_listed_file(word: Word, number: int, name: str, row: CommandRow) -> bool:
    """Whether the command only reads the operand with this number, counted from 0."""
    # Such a command reads one file: a second operand is a file that it writes.
    may_be_second = number > 0 or word.glob or word.under
    if row.operands == "file" and may_be_second:
        return False
    return _is_path(word, name in PATTERNS_FIRST) and not word.text.startswith("@")


def only_reads(command: Command) -> bool:
    """Whether a command only reads, no matter which files."""
    return isinstance(files_read(command), tuple)


def find_unlisted(command: Command, named: Collection[str] = ()) -> str:
    """Returns the first word with which a listed command may do more than it is listed for. Empty
    if there is none, or the command is not listed. Words that a rule of the user names (`named`) do
    not count.
    """
    result = files_read(command, named)
    return result if isinstance(result, str) else ""


def _first_not_named(texts: Iterable[str], named: Collection[str]) -> str:
    """Returns the first text that is not among the named ones; empty if there is none."""
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
        """Whether one of the options may be given, possibly abbreviated or with a value
        attached.
        """
        return any(_may_be(given, option) for given, option in product(self.given, options))


def _may_be(given: str, option: str) -> bool:
    """Whether `given`, as a command has it, may be the option `option`. A long option may be
    abbreviated, or have a value attached.
    """
    if given == option:
        return True
    are_long = len(given) > 1 and len(option) > 1
    return are_long and (given.startswith(option) or option.startswith(given))


def read_options(words: Sequence[Word], row: CommandRow) -> ReadOptions:
    """Sort the arguments of a command into operands, options and their values, by its row of the
    table.
    """
    options, rest = ReadOptions(), list(words)
    while rest:
        word = rest.pop(0)
        # For xxd, what looks like an option after a file is another file. For a wrapper, it is an
        # option of the inner command.
        ends_at_operand = row.operands in ("file", "command", "wrapped")
        is_after_end = bool(options.operands) and ends_at_operand
        is_option = word.text.startswith("-") and word.text != "-" and "*" not in row.letters
        if is_after_end or not is_option:
            options.operands.append(word)
        elif word.text == "--":
            options.operands += rest
            break
        elif not _read_option(word, row, rest, options=options):
            options.unlisted.append(word.text)
    return options


class _Option(NamedTuple):
    """One option as it is written: `-n5`, `--lines`, `--lines=5`."""

    name: str
    is_listed: bool
    is_valued: bool
    value: Word | None
    """The value in the same word; None if there is none."""


def _read_option(word: Word, row: CommandRow, rest: list[Word], options: ReadOptions) -> bool:
    """Read an option into `options`, with its value. The value may be the next word, which is then
    removed from `rest`. Returns whether the row lists the option with this value.
    """
    is_long = word.text.startswith("--")
    is_number = "#" in row.letters and re.fullmatch(r"-\d+", word.text)  # `head -5`
    if not is_long and is_number:
        return True
    option = _long_option(word, row, options) if is_long else _short_options(word, row, options)
    if not option.is_valued:
        return option.is_listed and word.exact
    return _read_value(option, word, row, rest, options)


def _long_option(word: Word, row: CommandRow, options: ReadOptions) -> _Option:
    """Read an option `--name` or `--name=value`, and note its name in `options.given`.

    The name may be the beginning of a listed option that takes a value. Then it takes a value too,
    as in getopt, so that the next word is not read as an operand. It does not count as listed:
    only full names do.
    """
    name, equals, inside = word.text[2:].partition("=")
    options.given.add(name)
    is_listed = name in row.valued or (name in row.long and not equals)
    if not is_listed and len(name) > 1:
        name = next((option for option in row.valued if option.startswith(name)), name)
    may_lack_value = name in row.long  # listed both with a value and without one
    is_valued = name in row.valued and bool(equals or not may_lack_value)
    return _Option(name, is_listed, is_valued, value=Word(inside, word.exact) if equals else None)


def _short_options(word: Word, row: CommandRow, options: ReadOptions) -> _Option:
    """Read a word such as `-la`, and note its letters in `options.given`. Returns the first letter
    that takes a value, with the value if it is attached; if there is no such letter, the last one.
    The option counts as listed only if all letters before it are listed as well.
    """
    name, is_listed = "", True
    for at, name in enumerate(word.text[1:], 2):  # `at` is the position after the letter
        options.given.add(name)
        if name in row.valued:
            attached = word.text[at:]
            value = Word(attached, word.exact) if attached else None
            return _Option(name, is_listed, is_valued=True, value=value)
        is_listed = is_listed and name in row.letters
        if not (is_listed or name.isalnum()):  # a sign that is no option: no letters follow
            break
    return _Option(name, is_listed, is_valued=False, value=None)


def _read_value(
    option: _Option, word: Word, row: CommandRow, rest: list[Word], options: ReadOptions
) -> bool:
    """Read the value of an option into `options`. Returns whether the option is listed and may have
    this value. False if there is no value, and for an option that always needs a question.
    """
    marks = row.valued[option.name]
    value = _take_value(option, marks, rest)
    if value is None:
        return False
    options.values.setdefault(option.name, []).append(value)
    if not option.is_listed or "!" in marks:
        return False
    if word.exact:
        return value.exact
    # A pattern such as `--include=*.py` may be replaced only by files with names that begin with
    # `--include=`. Such a file needs a question, because it is named like an option.
    return not marks and _is_path(word) and bool(re.match(r"--[\w-]+=[^/]+\Z", word.text))


def _take_value(option: _Option, marks: str, rest: list[Word]) -> Word | None:
    """Returns the value of an option. It is in the same word, or it is the next word, which is
    removed from `rest`. None if there is no value.

    An option with the mark `+` has a name before its value, which is removed from `rest` too.
    """
    has_name = "+" in marks
    if has_name and rest and rest[0].exact and not rest[0].text.startswith("-"):
        del rest[0]
    if option.value is not None:
        return option.value
    # A next word that looks like an option is not taken. The letter may have no value in this
    # command, such as `-l` of `git grep`: then the next word acts as an option.
    if rest and not re.match(r"-[^\d]", rest[0].text):
        return rest.pop(0)
    return None


def _is_path(word: Word, may_begin_with_pattern: bool = False) -> bool:
    """Whether a word certainly is a path: it is exact, or it stands for files below a folder, or it
    is a pattern of files that matches nothing which looks like an option.

    Args:
        may_begin_with_pattern: whether a pattern may start with `*`, because an option would be
            harmless.
    """
    if word.exact or word.under:
        return True
    return (
        word.glob
        and not re.search(r"[$`{<>]", word.text)
        and (may_begin_with_pattern or word.text[0] not in "*?[")
    )


def find_starts(words: Sequence[Word]) -> tuple[Word, ...]:
    """Returns the paths among the arguments of `find`: all words before its first test. A test
    begins with `-`, or is `(` or `!`.
    """
    return tuple(takewhile(lambda word: not re.fullmatch(r"-.+|[(!]", word.text, re.DOTALL), words))


def find_runs(words: Sequence[Word]) -> list[tuple[int, int]]:
    """Returns the commands that `find` runs with `-exec` and the like. Each is two positions: that
    of its first word, and that of its end mark `;` or `{} +`. A command without an end mark ends
    with the last word.
    """
    texts = [word.text for word in words]
    runs: list[tuple[int, int]] = []
    for begin, text in enumerate(texts, 1):  # `begin` is the position after `-exec`
        if text in ("-exec", "-execdir", "-ok", "-okdir"):
            end_marks = (
                at
                for at in range(begin, len(texts))
                if texts[at] == ";" or texts[at - 1 : at + 1] == ["{}", "+"]
            )
            runs.append((begin, next(end_marks, len(texts))))
    return runs


def _files_of_find(words: Sequence[Word], named: Collection[str]) -> tuple[Word, ...] | str:
    """Returns the words of the paths that `find` reads: the folders where it starts, and the files
    after `-newer`. If a word is not listed, returns the first such word, as a str. The words of a
    complete `-exec` are left out, because the command in it is judged by itself.
    """
    starts = find_starts(words)
    unlisted = [word.text for word in starts if not _is_path(word)]
    rest = [*words]
    for begin, end in reversed(find_runs(words)):  # the last first: earlier positions stay
        has_end_mark = end < len(words)
        if words[begin - 1].text == "-exec" and has_end_mark:
            del rest[begin - 1 : end + 1]
    unlisted += [word.text for word in rest[len(starts) :] if not _is_listed_test(word)]
    files_after_newer: list[Word] = []
    for word, following in pairwise(rest):
        if word.text == "-newer":
            files_after_newer.append(following)
    return _first_not_named(unlisted, named) or (*starts, *files_after_newer)


def _is_listed_test(word: Word) -> bool:
    """Whether a word of the expression of `find` is a listed test or action. A word that does not
    begin with `-` and a letter is an operand of one: it must only be known.
    """
    if not word.exact:
        return False
    is_test = re.match(r"-[a-zA-Z]", word.text)
    return not is_test or bool(FIND_EXPRESSION.fullmatch(word.text))


def git_words(words: Sequence[Word]) -> list[Word]:
    """Returns the arguments of git from its subcommand on, without the options before it."""
    return read_options(words, rows()["git"]).operands


def split_git_words(words: Sequence[Word]) -> tuple[list[Word], list[str]]:
    """Returns two lists: the arguments of git from its subcommand on, and the options before it
    that are not listed. Settings (`-c`) that may start a program are not listed, nor is `-C` if it
    comes more than once.
    """
    options = read_options(words, rows()["git"])
    settings = [word.text for word in options.values.get("c", ())]
    unlisted = [*options.unlisted]
    unlisted += [text for text in settings if not _GIT_SETTING.fullmatch(text)]
    if len(options.values.get("C", ())) > 1:
        unlisted.append("-C")
    return options.operands, unlisted


def git_lists(subcommand: str, rest: Sequence[str]) -> bool:
    """Whether a subcommand of git only lists something with the arguments `rest`. It is a
    subcommand, such as `branch`, that lists or changes.
    """
    return _only_lists(f"git {subcommand}", rest)


def _only_lists(command: str, rest: Sequence[str]) -> bool:
    """Whether a command of the table `LISTS` only lists something with the arguments `rest`. False
    for a command that is not in the table, and if an argument has white space.
    """
    if command not in LISTS or re.search(r"\s", "".join(rest)):
        return False
    arguments = "".join(f" {text}" for text in rest)
    return bool(re.fullmatch(LISTS[command], arguments))


def _test_operators(words: list[Word]) -> list[Word]:
    """Returns the words of `test` that are operators: the first of two words (`-f x`), the second
    of three (`x = y`). With another number of words each may be one.
    """
    if words and words[-1].text == "]":
        words = words[:-1]
    if len(words) > 2 and words[0].text == "!":
        words = words[1:]
    if len(words) == 3:
        return words[1:2]
    if len(words) == 2:
        return words[:1]
    return words


def _computed_in_git(begin: Sequence[Word], operands: Sequence[Word]) -> list[str]:
    """Returns the texts of the computed words of a git command. Up to its subcommand (`begin`)
    these are the words that are not exact; of its operands, those that are not paths for certain.
    """
    computed = [word.text for word in begin if not word.exact]
    return computed + [word.text for word in operands if not _is_path(word)]


def _files_of_git(words: Sequence[Word], named: Collection[str]) -> tuple[Word, ...] | str | None:
    """Returns whether a git command only reads, in the form of `files_read`. If it only reads, the
    result is all of its words, because each may name something that it reads.
    """
    rest, unlisted = split_git_words(words)
    if unlisted_word := _first_not_named(unlisted, named):
        return unlisted_word
    if not rest:
        return None
    subcommand, *operands = rest
    words_before_operands = words[: len(words) - len(operands)]
    computed = _computed_in_git(words_before_operands, operands)
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
