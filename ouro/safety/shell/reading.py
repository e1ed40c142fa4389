"""Whether a command only reads, by the tables: every option and operand is listed there, or it is asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from ouro.safety.shell.command import Command, Word
from ouro.safety.shell.tables import (
    FIND_EXPRESSION,
    GIT_READER,
    GIT_READS,
    LISTS,
    PATTERNS_FIRST,
    SCRIPTS,
    Reader,
    names,
    readers,
)

_GIT_FORMAT = re.compile(r"%G|signature")
"""A format of git by which it runs a program."""


def reading(command: Command) -> tuple[Word, ...] | str | None:
    """The words that name what `command` reads; the first word that is not listed for it; None if it is not listed."""
    name, words = command.name, command.arguments
    texts = [word.text for word in words]
    if _lists(name, texts) and all(word.exact for word in words):
        return tuple(words)
    if name == "git":
        return _git(words)
    if name == "find":
        return _find(words)
    if name not in readers():
        return None
    if texts in (["--help"], ["--version"]):
        return ()
    row = readers()[name]
    parsed = parse_options(words, row)
    if isinstance(parsed, str):
        return parsed
    operands, values = parsed
    if row.operands == "changes":
        return ""
    script = SCRIPTS.get(name)
    checked: list[Word] = []
    has_no_pattern = {"e", "f", "regexp", "file"} & values.keys() or any(word.text == "--files" for word in words)
    if row.operands == "text":
        checked, operands = operands, []
    elif row.operands == "pattern" and not has_no_pattern:
        checked, operands = operands[:1], operands[1:]
    elif row.operands == "script":
        checked = [*values.get("e", []), *values.get("expression", [])] or [operands.pop(0) for _ in operands[:1]]
    if name in ("test", "["):
        checked = _test_operators(checked)
    if name == "printf":
        checked = checked[: 2 if texts[:1] == ["--"] else 1]  # the format
    for word in checked:
        is_pattern = name in PATTERNS_FIRST and _is_path(word, True)
        is_listed = word.exact or (row.operands == "text" and (is_pattern or not (script or word.glob)))
        if not is_listed or (script and not script.fullmatch(word.text)):
            return word.text
    for number, word in enumerate(operands):
        is_second = row.operands == "file" and (number or word.glob or word.under)
        if not _is_path(word, name in PATTERNS_FIRST) or word.text.startswith("@") or is_second:
            return word.text
    if name == "cd":
        return tuple(operands) or (Word("~"),)
    return (*operands, *(value for option in row.files for value in values.get(option, [])))


def unlisted(command: Command) -> str:
    """The word by which a listed command may do more than it is listed for; empty where there is none."""
    found = reading(command)
    return found if isinstance(found, str) else ""


def parse_options(words: Sequence[Word], row: Reader) -> tuple[list[Word], dict[str, list[Word]]] | str:
    """The operands, and the values by option; or the first option that is not listed or has a computed value."""
    operands: list[Word] = []
    values: dict[str, list[Word]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        is_late = row.operands == "file" and operands  # for xxd what looks like an option then is a file
        if "*" in row.letters or not word.text.startswith("-") or word.text == "-" or is_late:
            operands.append(word)
        elif word.text == "--":
            return [*operands, *rest], values
        else:
            name, value = _option(word, row)
            if value is None and name in row.valued and rest and not re.match(r"-[^\d]", rest[0].text):
                value = rest.pop(0)  # not an option: where a letter has no value, as `-l` of `git grep`, it would act
            if name is None or (name and (value is None or not value.exact)):
                return word.text
            if name and value:
                values.setdefault(name, []).append(value)
    return operands, values


def _option(word: Word, row: Reader) -> tuple[str | None, Word | None]:
    """The name of the option with a value that a word is, and the value in it; "" for flags; None if not listed."""
    text = word.text
    if not word.exact:
        # `--include=*.py` stays as it is: a file of such a name is asked about as one that is named like an option.
        valued = re.match(r"--([\w-]+)=[^/]+\Z", text)
        if not (valued and valued[1] in row.valued - row.files and _is_path(word)):
            return None, None
    if text.startswith("--"):
        name, equals, value = text[2:].partition("=")
        if name in row.long and not equals:
            return "", None
        return (name, Word(value) if equals else None) if name in row.valued else (None, None)
    if "#" in row.letters and re.fullmatch(r"-\d+", text):
        return "", None
    for at, letter in enumerate(text[1:], 2):
        if letter in row.valued:
            return letter, Word(text[at:]) if text[at:] else None
        if letter not in row.letters:
            return None, None
    return "", None


def _is_path(word: Word, may_begin_with_pattern: bool = False) -> bool:
    """An exact word, a found file, or a file pattern that no option comes out of."""
    if word.exact or word.under:
        return True
    return word.glob and not re.search(r"[$`{<>]", word.text) and (may_begin_with_pattern or word.text[0] not in "*?[")


def find_starts(words: Sequence[Word]) -> tuple[Word, ...]:
    """The paths of `find`: `-`, `(x`, `)` and `,` are such, too."""
    return tuple(takewhile(lambda word: not re.fullmatch(r"-.+|[(!]", word.text, re.DOTALL), words))


def find_runs(words: Sequence[Word]) -> list[tuple[int, int]]:
    """Where in the words of `find` the commands begin and end that it runs; one without an end goes to the last."""
    texts, found = [word.text for word in words], []
    for begin, text in enumerate(texts, 1):
        if text in ("-exec", "-execdir", "-ok", "-okdir"):
            ends = (at for at in range(begin, len(texts)) if texts[at] == ";" or texts[at - 1 : at + 1] == ["{}", "+"])
            found.append((begin, next(ends, len(texts))))
    return found


def _find(words: Sequence[Word]) -> tuple[Word, ...] | str:
    starts = find_starts(words)
    for word in starts:
        if not _is_path(word):
            return word.text
    rest = [*words]
    for begin, end in reversed(find_runs(words)):
        if words[begin - 1].text == "-exec" and end < len(words):
            del rest[begin - 1 : end + 1]  # each is judged by itself
    for word in rest[len(starts) :]:
        if not word.exact or (re.match(r"-[a-zA-Z]", word.text) and not FIND_EXPRESSION.fullmatch(word.text)):
            return word.text
    return starts


_GIT_VALUED = names("-C -c --git-dir --work-tree --exec-path --namespace --config-env")
_GIT_FLAGS = names("--no-pager -P --no-optional-locks --literal-pathspecs --version")


def git_subcommand(texts: Sequence[str]) -> tuple[int, str]:
    """Where in the arguments of git the subcommand is (or past the end), and the first option before it that is not
    listed. One `-C` is listed.
    """
    at, strange = 0, ""
    while at < len(texts) and texts[at].startswith("-"):
        is_listed = texts[at] in _GIT_FLAGS or (texts[at] == "-C" and "-C" not in texts[:at])
        strange = strange or ("" if is_listed else texts[at])
        at += 2 if texts[at] in _GIT_VALUED else 1
    return at, strange


def git_lists(subcommand: str, rest: Sequence[str]) -> bool:
    """Whether a subcommand that lists or changes something only lists."""
    return _lists(f"git {subcommand}", rest)


def _lists(command: str, rest: Sequence[str]) -> bool:
    is_listed = command in LISTS and not re.search(r"\s", "".join(rest))
    return is_listed and bool(re.fullmatch(LISTS[command], "".join(f" {text}" for text in rest)))


def _test_operators(words: list[Word]) -> list[Word]:
    """The words of `test` that are not operands: with two or three it is known which."""
    words = words[:-1] if words and words[-1].text == "]" else words
    words = words[1:] if len(words) > len("-f") and words[0].text == "!" else words
    has_two = len(words) == len(("x", "=", "y"))
    return words[1:2] if has_two else words[:1] if len(words) == len(("-f", "x")) else words


def _git(words: Sequence[Word]) -> tuple[Word, ...] | str | None:
    texts = [word.text for word in words]
    at, strange = git_subcommand(texts)
    if strange or at >= len(texts):
        return strange or None
    computed = next(
        (word.text for number, word in enumerate(words) if not (word.exact or (number > at and _is_path(word)))), ""
    )
    if texts[at] not in GIT_READS:
        return tuple(words) if git_lists(texts[at], texts[at + 1 :]) and not computed else None
    parsed = computed or parse_options(words[at + 1 :], GIT_READER)
    if isinstance(parsed, str):
        return parsed
    return next((text for text in texts if _GIT_FORMAT.search(text)), None) or tuple(words)
