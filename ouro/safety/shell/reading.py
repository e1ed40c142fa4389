"""Whether a command only reads, by the tables: every option and operand is listed there, or it is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from ouro.safety.shell.command import Command, Word
from ouro.safety.shell.tables import (
    FIND_EXPRESSION,
    GIT_READER,
    GIT_READS,
    STARTING_WITH_PATTERNS,
    TEST_WORDS,
    VERSIONED,
    Reader,
    names,
    readers,
)

_S = r"s(?P<d>[/|#,:@])(\\.|(?!(?P=d))[^\\\n;])*(?P=d)(\\[^\n]|(?!(?P=d))[^\\\n;])*(?P=d)[gIip0-9]*"
_ADDRESS = r"(\d+|\$|/(\\[^\n]|[^/\\\n])*/)"
_SED_COMMAND = re.compile(rf"\s*({_ADDRESS}(\s*,\s*(\+?\d+|{_ADDRESS}))?)?\s*!?\s*([pdq=]|{_S})\s*(;|$)")
_AWK_NAME = re.compile(r"getline|system|ARGV|ENVIRON|PROCINFO|close|fflush|function|func\b|[|>@`]|/inet")
_AWK_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
_AWK_CALLS = names(
    """
    if for while print printf length substr split gsub sub match index tolower toupper sprintf int
    """
)
_JQ_FORBIDDEN = re.compile(r"\b(import|include|modulemeta|get_search_list|env|input_filename|debug|stderr)\b|[$@]")
_SETTINGS_OF_SHELL = re.compile(r"[-+][euxo]+|pipefail")
_GIT_FORMAT = re.compile(r"%G|signature")
_GIT_LISTS = {
    "branch": r"--list|-[larv]+|--all|--remotes|--show-current|--merged|--no-merged|--contains|--sort=\S+|--format=.*",
    "tag": r"--list|-l|-n\d*|--sort=\S+|--contains|--points-at",
}
_GIT_CONFIG_READS = r"--(get|get-all|get-regexp|list|show-origin|show-scope|name-only|global|local|system)|-[lz]"


class CommandReading(msgspec.Struct, frozen=True):
    paths: tuple[Word, ...] = ()
    moves_to: Word | None = None
    """The folder that it changes to."""


def reading(command: Command) -> CommandReading | str | None:
    """What `command` reads; the first word that is not listed for it; or None for a command that is not listed."""
    name, words = command.name, command.arguments
    if name in VERSIONED and [word.text for word in words] in (["--version"], ["-V"], ["version"]):
        return CommandReading()
    if name == "git":
        return _git(words)
    row = readers().get(name)
    if row is None:
        return None
    if row.operands in ("text", "find"):
        return _words_only(name, words)
    found = _parsed(words, row)
    if isinstance(found, str):
        return found
    operands, values = found
    if row.operands == "changes":
        return ""
    return _operands(name, row, operands, values)


def unlisted(command: Command) -> str:
    """The word by which a listed command may do more than it is listed for; empty where there is none."""
    found = reading(command)
    return found if isinstance(found, str) else ""


def _parsed(words: Sequence[Word], row: Reader) -> tuple[list[Word], dict[str, list[Word]]] | str:
    """The operands, and the values by option; or the first option that is not listed."""
    operands: list[Word] = []
    values: dict[str, list[Word]] = {}
    rest, has_ended = list(words), False
    while rest:
        word = rest.pop(0)
        text = word.text
        if has_ended or not text.startswith("-") or text == "-":
            operands.append(word)
            continue
        if text == "--":
            has_ended = True
            continue
        option = _option(word, row)
        if option is None or (option[0] and option[1] is None and not rest):
            return text
        name, value = option
        if name:
            values.setdefault(name, []).append(value if value is not None else rest.pop(0))
    return operands, values


def _option(word: Word, row: Reader) -> tuple[str, Word | None] | None:
    """The option with a value that a word is, with the value that is in it; no name for flags; None if not listed."""
    text = word.text
    if not word.exact:
        return None
    if text.startswith("--"):
        name, equals, value = text[2:].partition("=")
        if name in row.long and not equals:
            return "", None
        return (name, Word(value) if equals else None) if name in row.valued else None
    if "#" in row.letters and re.fullmatch(r"-\d+", text):
        return "", None
    for at, letter in enumerate(text[1:], 2):
        if letter in row.valued:
            return letter, Word(text[at:]) if text[at:] else None
        if letter not in row.letters:
            return None
    return "", None


def _operands(name: str, row: Reader, operands: list[Word], values: dict[str, list[Word]]) -> CommandReading | str:
    files = [value for option in row.files for value in values.get(option, [])]
    others = [value for option, found in values.items() if option not in row.files for value in found]
    if strange := next((word for word in (*others, *files) if not word.exact), None):
        return strange.text
    if row.operands == "pattern" and not {"e", "f", "regexp", "file"} & values.keys():
        if operands and not operands[0].exact:
            return operands[0].text
        del operands[:1]
    if row.operands == "script":
        programs = values.get("e", []) + values.get("expression", []) or [operands.pop(0) for _ in operands[:1]]
        for program in programs:
            if not program.exact or not _is_harmless(name, program.text):
                return program.text
    if row.operands == "date":
        return next((word.text for word in operands if not word.text.startswith("+")), None) or CommandReading()
    if row.operands == "file" and len(operands) > 1:
        return operands[1].text
    for word in operands:
        if word.text.startswith("@") or not _is_path(word, name in STARTING_WITH_PATTERNS):
            return word.text
    if name == "cd":
        return CommandReading(moves_to=operands[0] if operands else Word("~"))
    return CommandReading((*operands, *files))


def _is_path(word: Word, may_begin_with_pattern: bool) -> bool:
    """An exact word, or a file pattern that no option comes out of."""
    if word.exact:
        return True
    return word.glob and not re.search(r"[$`{<>]", word.text) and (may_begin_with_pattern or word.text[0] not in "*?[")


def _is_harmless(name: str, program: str) -> bool:
    if name == "sed":
        at = 0
        while at < len(program):
            if not (found := _SED_COMMAND.match(program, at)) or found.end() == at:
                return False
            at = found.end()
        return bool(program)
    if name == "jq":
        return not _JQ_FORBIDDEN.search(program)
    return not _AWK_NAME.search(program) and set(_AWK_CALL.findall(program)) <= _AWK_CALLS and "\\" not in program


def _words_only(name: str, words: Sequence[Word]) -> CommandReading | str:
    if name == "find":
        return _find(words)
    for at, word in enumerate(words):
        text = word.text
        is_listed = word.exact or (word.glob and not re.search(r"[$`{<>]", text) and name in ("echo", "printf"))
        if name in ("test", "["):
            is_listed &= not text.startswith("-") or bool(TEST_WORDS.fullmatch(text))
        elif name == "set":
            is_listed &= bool(_SETTINGS_OF_SHELL.fullmatch(text))
        elif name == "exit":
            is_listed &= text.isdecimal()
        elif name == "printf":
            is_listed &= at > 0 or not text.startswith("-")
        elif name == "command":
            is_listed &= at > 0 or text in ("-v", "-V")
        if not is_listed:
            return text
    return CommandReading()


def _find(words: Sequence[Word]) -> CommandReading | str:
    starts = []
    for word in words:
        if re.match(r"[-(!]", word.text):
            break
        if not _is_path(word, may_begin_with_pattern=False):
            return word.text
        starts.append(word)
    for word in words[len(starts) :]:
        if not word.exact or (re.match(r"-[a-zA-Z]", word.text) and not FIND_EXPRESSION.fullmatch(word.text)):
            return word.text
    return CommandReading(tuple(starts))


def may_name(word: Word) -> Iterator[str]:
    text = word.text
    if not text.startswith("-"):
        yield text
        if "=" in text:
            yield text.partition("=")[2]
    elif "=" in text:
        yield text.partition("=")[2]
    elif found := re.match(r"-[A-Za-z]+([/~.].*)", text):
        yield found[1]


# -- git


def git_subcommand(texts: Sequence[str]) -> tuple[int, str]:
    """Where in the arguments of git the subcommand is (or past the end), and the first option before it that is not
    listed."""
    at, strange, folders = 0, "", 0
    while at < len(texts) and texts[at].startswith("-"):
        if texts[at] in ("-C", "-c", "--git-dir", "--work-tree", "--exec-path", "--namespace", "--config-env"):
            folders += texts[at] == "-C"
            strange = strange or (texts[at] if texts[at] != "-C" or folders > 1 else "")
            at += 1
        elif texts[at] not in ("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--version"):
            strange = strange or texts[at]
        at += 1
    return at, strange


def _git(words: Sequence[Word]) -> CommandReading | str | None:
    texts = [word.text for word in words]
    at, strange = git_subcommand(texts)
    if strange or at >= len(texts):
        return strange or None
    subcommand, rest = texts[at], list(words[at + 1 :])
    if computed := next((word.text for word in words if not _is_path(word, False)), ""):
        return computed if subcommand in GIT_READS else None
    if subcommand in GIT_READS:
        pass
    elif not git_reads(subcommand, texts[at + 1 :]):
        return None
    elif subcommand in ("branch", "tag", "config", "remote", "worktree"):
        return next((text for text in texts if _GIT_FORMAT.search(text)), None) or CommandReading(tuple(words))
    else:
        rest = rest[1:]
    found = _parsed(rest, GIT_READER)
    if isinstance(found, str):
        return found
    if strange := next((text for text in texts if _GIT_FORMAT.search(text)), ""):
        return strange
    return CommandReading(tuple(words))


def git_reads(subcommand: str, rest: Sequence[str]) -> bool:
    operands = [text for text in rest if not text.startswith("-")]
    flags = [text for text in rest if text.startswith("-")]
    match subcommand:
        case "branch" | "tag":
            lists = any(re.match(r"--list|-l$|--contains|--merged|--no-merged|--points-at", text) for text in flags)
            return all(re.fullmatch(_GIT_LISTS[subcommand], text) for text in flags) and (lists or not operands)
        case "config":
            asks = any(re.match(r"--get|--list|-l", text) for text in flags) or operands[:1] in (["get"], ["list"])
            return all(re.fullmatch(_GIT_CONFIG_READS, text) for text in flags) and (asks or len(operands) == 1)
        case "remote":
            return list(rest) in ([], ["-v"], ["--verbose"]) or rest[:1] == ["get-url"]
        case "stash":
            return rest[:1] in (["list"], ["show"])
        case "worktree":
            return list(rest) in (["list"], ["list", "--porcelain"])
        case "reflog":
            return not rest or rest[0] == "show"
    return False
