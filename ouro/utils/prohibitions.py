"""Prohibitions that name a file or a command: `Don't touch vendor/crc`, `ne lance jamais npm`.

Words of six languages are listed; a name is recognized by its form, so that it needs no language.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from ouro.utils.late_pattern import late_pattern

_NEGATIONS: Mapping[str, str] = {
    "English": r"never|not|cannot|no longer|\w+n['’]t|dont|avoid|stop|leave\b.{0,60}\balone|hands off",
    "German": (
        r"nie|niemals|nicht|keine?[nmrs]?|verboten|tabu|lass\w*\b.{0,60}\bin ruhe|finger weg"
    ),
    "French": (
        r"jamais|ne\b.{0,80}\bpas|n['’]\w+ pas|interdite?s?|éviter?|évitez"
        r"|laisse[rz]?\b.{0,60}\btranquilles?"
    ),
    "Spanish": r"nunca|jamás|no|prohibid[oa]s?|evit[ae]|dej[ae]\w*\b.{0,60}\ben paz",
    "Chinese": r"不要|不能|不得|不准|禁止|别|勿|不可",
    "Japanese": r"しない|禁止|ない(?:で|こと)|てはいけ|ません|触る?な",
}
_LANGUAGES_WITHOUT_SPACES = ("Chinese", "Japanese")
_NEGATION = late_pattern(
    "|".join(
        f"(?:{words})" if language in _LANGUAGES_WITHOUT_SPACES else rf"\b(?:{words})\b"
        for language, words in _NEGATIONS.items()
    ),
    re.IGNORECASE,
)
_CHANGE_VERB = late_pattern(
    r"\b(?:alter|chang|delet|edit|modif|mov|overwrit|remov|renam|replac|rewrit|touch|writ|leave"
    r"|hands off|änder|anfass|bearbeit|lösch|schreib|verschieb|anrühr|\bfass|\blass|finger weg"
    r"|laisse|supprim|touche|édite|écri|renomm"
    r"|borr|cambi|deja|edita|elimin|escrib|toc|toques)\w*"
    r"|修改|改动|改(?!成)|删|碰|编辑|编集|編集|変更|削除|触",
    re.IGNORECASE,
)
"""Verbs of a change: with one of them, a file after `in` is what must not change."""
_SHARE_VERB = late_pattern(r"\b(?:commit|push|check ?in|upload|track|publish)\w*", re.IGNORECASE)
"""`Never commit .env` does not forbid to change that file."""
_PLACE_PREPOSITION = late_pattern(
    r"\b(?:at|from|in|inside|into|on|outside|outside of|than|to|under|via|with|through|aus|außerhalb|bei|im"
    r"|mit|unter|von|à|avec|dans|hors de|sous|sur|con|en|fuera de|sobre)\s+(?:the\s+|der\s+|le\s+|la\s+)?$",
    re.IGNORECASE,
)
"""A preposition at the end of a text, before the place where something is done: `work in the `."""
_POINTING_WORD = late_pattern(
    r"\b(?:it|them|that|this|these|those|there|alone|hands off|sie|es|ihn|das|die|davon"
    r"|le|la|les|y|lo|las|los)\b|它|这个|那个|これ|それ|ここ|触",
    re.IGNORECASE,
)
"""Words that point to what the clause before names."""
_UNNAMED_PUSH = late_pattern(
    r"(?<!force )(?<!force-)\bpush(?:e[ns]?|es|ing|ear|er)?\b"
    r"(?!\s+(?:\w+ly\s+)?(?:a|auf|in|nach|on|sur|to)\b)",
    re.IGNORECASE,
)
"""A push to a named branch, or with force, is not every push: no name can stand for it."""
_CLAUSE_END = late_pattern(
    r"[,;:!?](?=\s|$)|\.(?=\s|$)|[，；。、：！？]|\s[—–-]\s|\b(?:instead|but)\b"
)
_CODE_SPAN = late_pattern(r"`([^`\n]+)`")
# A path with a slash, a name with an ending (`setup.py`), or one with a dot before it (`.env`).
_PATH_IN_TEXT = late_pattern(
    r"(?<![\w/.@:-])(?:\.{0,2}/)?(?:[A-Za-z0-9_@+.*-]+/)+[A-Za-z0-9_@+.*-]*"
    r"|(?<![\w/.@:-])\.?[A-Za-z0-9_@+*-][A-Za-z0-9_@+.*-]*\.[A-Za-z][A-Za-z0-9]{0,7}(?![\w/(])"
    r"|(?<![\w/.@:-])\.[a-z][\w-]+"
)
_PROGRAM_WORD = late_pattern(r"[A-Za-z][A-Za-z0-9_-]+")
_ALWAYS_PROGRAMS = frozenset(
    """
    ansible apt bazel brew bun bundle bzl cargo chmod chown cmake composer conda curl deno docker
    dotnet eslint gh git gradle helm jest kubectl mvn mypy npm npx pip pip3 pipenv pnpm podman poetry
    prettier psql pytest rm rsync ruff rustfmt scp ssh sudo systemctl terraform tofu tox uv vitest
    wget yarn
    """.split()
)
"""Programs that no one takes for an ordinary word, so that they need no code marks."""
_READING_PROGRAMS = frozenset(
    "bat cat cd diff du echo file find grep head less ls more pwd rg sort stat tail tree type wc"
    " which".split()
)
_READING_GIT_COMMANDS = frozenset("blame diff grep log ls-files show status".split())
_WRITING_SYNTAX = late_pattern(r">|\s-(?:delete|exec|execdir)\b|\btee\b")
"""With it, a line of programs that read may write, too."""
_COMMAND_PREFIX = late_pattern(r"\w+=.*|sudo|time|env|exec|nohup")
"""A word before a command that only says how it runs: `CI=1 sudo make`."""
_RUNNERS = frozenset(
    "bash bun bundle deno node npx pdm perl pipenv poetry python python3 ruby sh source uv uvx zsh".split()
)
"""Programs whose next words are what they run."""
_COMMAND_SEPARATOR = late_pattern(r"\|\||&&|[;|\n]")


def forbidden_names(text: str) -> tuple[str, ...]:
    """The files, folders and commands that a statement forbids; empty if it forbids none by name.

    Only a clause with a negation forbids: `Never flash with pio, use ./flash.sh` forbids `pio`. If
    such a clause has no name but a word like `it`, it forbids the files of the clause before it:
    `vendor/ is a mirror: leave it alone` forbids `vendor/`.
    """
    # A clause has the number of each code span, and `spans` its text.
    clauses = [clause for clause in _CLAUSE_END.split(_number_code_spans(text)) if clause.strip()]
    spans = _CODE_SPAN.findall(text)
    forbidden: dict[str, None] = {}
    for index, clause in enumerate(clauses):
        negation = _NEGATION.search(clause)
        if negation is None:
            continue
        names = list(_forbidden_in(clause, spans))
        if not names and index > 0 and _POINTING_WORD.search(clause):
            # `it` means a file of the clause before, not a command.
            named_before = _forbidden_in(clauses[index - 1], spans)
            names = [name for name in named_before if not is_command(name)]
        forbidden.update(dict.fromkeys(names))
    return tuple(forbidden)


def forbids_change(text: str) -> bool:
    """Whether a statement forbids by name to change something, or to run a command.

    `api/v2.py is not finished` only describes a file.
    """
    names = forbidden_names(text)
    if not names:
        return False
    return bool(_CHANGE_VERB.search(text)) or any(is_command(name) for name in names)


def is_command(name: str) -> bool:
    """Whether a forbidden name is a command, not a file or folder."""
    program = name.split(" ", 1)[0]
    return " " in name or program in _ALWAYS_PROGRAMS or not _PATH_IN_TEXT.fullmatch(name)


def breaks_prohibition(statement: str, tool: str, arguments: Mapping[str, object]) -> bool:
    """Whether a tool call runs a command, or changes a file, that a statement forbids by name. Reading a
    file does not count.

    `arguments`: those of the call, with a `command`, or a `path` or `file_path`.
    """
    names = forbidden_names(statement)
    if not names:
        return False
    command = arguments.get("command")
    if isinstance(command, str):
        return any(_line_breaks(name, command) for name in names)
    path = arguments.get("path") or arguments.get("file_path")
    if not isinstance(path, str) or tool in ("read", "glob", "grep", "ls"):
        return False
    return any(_covers(name, path) for name in names if not is_command(name))


def _command_candidates(text: str) -> tuple[str, ...]:
    """The names in a text that may be commands or scripts: all that is in code marks, all paths, and
    programs that no one takes for an ordinary word (`git push`). Some may be other things, such as
    `docs/readme.md`, so they are only compared with a command that was run.
    """
    spans = [" ".join(span.split()) for span in _CODE_SPAN.findall(text)]
    plain = _CODE_SPAN.sub(" ", text)
    paths = [match[0].rstrip(".") for match in _PATH_IN_TEXT.finditer(plain)]
    programs = _programs_in(_PROGRAM_WORD.findall(_PATH_IN_TEXT.sub(" ", plain)))
    return tuple(dict.fromkeys([*filter(None, spans), *paths, *programs]))


def line_names(line: str) -> frozenset[str]:
    """The names of the programs and scripts that a shell line runs, in the form in which a text
    would name them: without folders of the system. Empty if the line only reads.
    """
    if only_reads(line):
        return frozenset()
    return frozenset(_name_of(words[0]) for words in _commands_in(line))


def names_run(text: str, line: str) -> bool:
    """Whether a text names a command or a script that a shell line runs."""
    return any(runs_program(name, line) for name in _command_candidates(text))


def runs_program(name: str, line: str) -> bool:
    """Whether a shell line runs a command or a script of this name. A name of several words, such as
    `git push`, must be the beginning of the command.
    """
    program, *rest = name.split()
    candidates = (words for words in _commands_in(line) if words[1 : len(rest) + 1] == rest)
    return any(_name_of(words[0]) == _name_of(program) for words in candidates)


def _commands_in(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line. After a runner such as `uv run` the program may be
    the second or the third word: then the words from each of these on are yielded, too.
    """
    for words in filter(None, map(_command_words, _COMMAND_SEPARATOR.split(line))):
        yield words
        if words[0] in _RUNNERS:
            # `bash build.sh`, `uv run pytest`
            yield from filter(None, (words[1:], words[2:]))


def _name_of(word: str) -> str:
    """The name of a program without its folder, if that is one of the system. The path of a script stays,
    without `./`.
    """
    is_of_system = word.startswith(("/usr/", "/bin/", "/opt/", "/sbin/"))
    return word.rsplit("/", 1)[-1] if is_of_system else word.removeprefix("./")


def only_reads(line: str) -> bool:
    """Whether a shell line surely changes nothing: it only runs programs that read."""
    commands = map(_command_words, _COMMAND_SEPARATOR.split(line))
    return all(_only_reads_command(words, line) for words in commands if words)


def _number_code_spans(text: str) -> str:
    """The text with the number of each code span in its place (`` `0` ``), so that no mark inside of
    a span ends a clause.
    """
    numbers = iter(range(len(text)))
    return _CODE_SPAN.sub(lambda _found: f"`{next(numbers)}`", text)


def _forbidden_in(clause: str, spans: list[str]) -> Iterator[str]:
    """Yield the files and commands that a clause forbids. A file is not forbidden if it is only the
    place of something (`never run npm in web/`), or if only sharing it is forbidden (`never commit
    .env`).
    """
    for number in _CODE_SPAN.findall(clause):
        yield " ".join(spans[int(number)].split())
    plain = _CODE_SPAN.sub(" ", clause)
    has_change = bool(_CHANGE_VERB.search(plain))
    is_shared = bool(_SHARE_VERB.search(plain)) and not has_change
    for match in _PATH_IN_TEXT.finditer(plain):
        is_place = bool(_PLACE_PREPOSITION.search(plain[: match.start()])) and not has_change
        if not is_place and not is_shared:
            yield match[0].rstrip(".")
    if _UNNAMED_PUSH.search(plain) and not re.search(r"\bdocker\b", plain, re.IGNORECASE):
        yield "git push"
    yield from _programs_in(_PROGRAM_WORD.findall(_PATH_IN_TEXT.sub(" ", plain)))


def _programs_in(words: Sequence[str]) -> Iterator[str]:
    """Yield the programs among the words of a sentence, each with its subcommand: `git push`."""
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if word.lower() in _ALWAYS_PROGRAMS:
            yield f"{word} {following}" if _is_subcommand(word, following) else word


def _is_subcommand(program: str, word: str) -> bool:
    """Whether a word after a program is one of its subcommands, and not a word of the sentence."""
    subcommands = {
        "terraform": {"apply", "destroy", "import"},
        "git": {"push", "commit", "rebase", "merge", "reset", "add", "stash", "tag", "clean"},
        "npm": {"install", "publish", "run", "update", "audit"},
        "docker": {"push", "run", "build", "compose", "system"},
        "kubectl": {"apply", "delete", "edit", "exec"},
        "pip": {"install", "uninstall"},
        "cargo": {"publish", "update", "fix"},
        "gh": {"pr", "release", "repo"},
        "poetry": {"add", "update", "publish"},
    }
    return word.lower() in subcommands.get(program.lower(), ())


def _line_breaks(name: str, command: str) -> bool:
    """Whether a shell line runs the forbidden command `name`, or changes the forbidden file."""
    commands = map(_command_words, _COMMAND_SEPARATOR.split(command))
    return any(_command_breaks(name, words, command) for words in commands if words)


def _command_words(part: str) -> list[str]:
    """The words of one command, without variables and programs in front that only run it."""
    try:
        words = shlex.split(part)
    except ValueError:
        words = part.split()
    while words and _COMMAND_PREFIX.fullmatch(words[0]):
        words = words[1:]
    return words


def _command_breaks(name: str, words: Sequence[str], line: str) -> bool:
    """Whether a command of a line is the forbidden command `name`, or touches the forbidden file
    other than to read it.
    """
    if is_command(name):
        forbidden = name.split()
        begins_with = list(words[: len(forbidden)])
        without_folder = [begins_with[0].rsplit("/", 1)[-1], *begins_with[1:]]
        return forbidden in (begins_with, without_folder)
    if words[0].removeprefix("./") == name.removeprefix("./"):
        return True
    return not _only_reads_command(words, line) and any(_covers(name, word) for word in words[1:])


def _only_reads_command(words: Sequence[str], line: str) -> bool:
    """Whether a command surely changes nothing. It may change something if anything in the whole
    `line` can write, such as a redirection.
    """
    if _WRITING_SYNTAX.search(line):
        return False
    is_git_read = words[0] == "git" and len(words) > 1 and words[1] in _READING_GIT_COMMANDS
    return words[0] in _READING_PROGRAMS or is_git_read


def _covers(name: str, path: str) -> bool:
    """Whether `path` is the forbidden file or folder `name`, or is inside of it."""
    forbidden, path = name.strip("/").removeprefix("./"), path.removeprefix("./")
    forbidden = forbidden.removesuffix("/**").removesuffix("/*")
    if "*" in forbidden:
        pattern = "[^/]*".join(map(re.escape, forbidden.split("*")))
        return bool(re.fullmatch(rf"(?:.*/)?{pattern}", path))
    return path == forbidden or path.startswith(f"{forbidden}/") or f"/{forbidden}/" in f"/{path}/"
