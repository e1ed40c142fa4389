"""Names of commands: a shell line without file names and texts, and what such a command is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ouro.utils.late_pattern import late_pattern

_MAX_OPERANDS = 3
_MAX_LENGTH = 100
_OMITTED = "…"
"""Stands for file names and texts that are left out of a command."""
_INTERPRETERS = {"bash", "deno", "java", "node", "perl", "php", "python", "python3", "ruby", "sh"}
_NOT_A_SCRIPT = ("-c", "-e", "/")
"""How the first argument of an interpreter begins if it runs a text, or a file outside of the
project.
"""
_IGNORED_PROGRAMS = frozenset(
    """
    . [ awk basename cat cd chmod chown cmp cp curl cut date df diff dirname du echo egrep env export expr false fd file
    find gh git grep head id jq kill less ln ls man md5sum mkdir mktemp more mv nl od pgrep pkill printenv printf ps pwd
    readlink realpath rg rm rmdir rsync scp sed seq sha256sum sleep sort source ssh stat tail tar tee test touch tr tree
    true type uname uniq unzip wc wget which whoami xargs xxd zip
    """.split()
)
"""Programs that show or move files: their exit codes say nothing about the project."""
_NEVER_FAIL = {"cd", "echo", "export", "mkdir", "printf", "set", "true"}
"""Programs whose failure says nothing about the project."""
_PLAIN_WORD = late_pattern(r"[\w./:=@+,%-]{1,60}")
"""A word without spaces and quotes: it can be no sentence."""
_FILE_NAME = late_pattern(r".*(?:/|::|\.[A-Za-z]\w{0,4}$)")
"""A word that looks like a file: `src/api`, `api.py`, `test_api.py::test_read`."""
_LETTERS = late_pattern(r"[a-z]{3,}")
_PROGRAMS_BY_SUBJECT = {
    "test": (
        "ava ctest jasmine jest karma mocha nose nose2 nox phpunit playwright pytest rspec tox"
        " unittest vitest"
    ),
    "lint": "biome clippy eslint flake8 golangci-lint pylint rubocop ruff shellcheck stylelint",
    "typecheck": "mypy pyright tsc",
    "format": "black clang-format gofmt isort prettier rustfmt",
    "build": "bazel cmake gradle gulp make mvn ninja rollup tsc webpack",
    "compile": "gcc javac make rustc tsc",
    "server": "flask gunicorn uvicorn vite",
    "migrate": "alembic",
}
"""The words of users for the work of these programs; the program names do not contain them."""
_SUBJECTS_OF_CHECKS = "test check lint typecheck build compile verify spec"
_WORDS_WITHOUT_SUBJECT = frozenset(
    """
    all bash bin bundle cargo cd deno dev dotnet exec file make node npm npx out poetry python quiet run script src tool
    venv verbose yarn
    """.split()
)


def normalize_command(text: str) -> str:
    """The only command of a shell line, without file names and texts, after a `cd` if there is one.
    Empty if the line has several commands, if its exit code may be from something else or says
    nothing about the project, or if the result is longer than `_MAX_LENGTH`.

    Only words such as options and targets remain, because the line is sent to later sessions: no
    sentence from outside may be sent with it.
    """
    from ouro.safety import parse_line  # imported late: a session starts without it

    parsed = parse_line(text)
    simple_commands = [command for command in parsed.commands if command.kind == "plain"]
    cd_targets = [command.text.split()[-1] for command in simple_commands if command.name == "cd"]
    commands = [command for command in simple_commands if command.name != "cd"]
    if parsed.opaque or len(commands) != 1:
        return ""
    command = commands[0]
    if command.program in _IGNORED_PROGRAMS or command.computed or command.stdin is not None:
        return ""
    line = _line_without_texts(command.program, [word.text for word in command.words])
    if not line:
        return ""
    if cd_targets:
        line = _cd_before_command(cd_targets[0]) + line
    return line if len(line) <= _MAX_LENGTH else ""


def _cd_before_command(folder: str) -> str:
    """`cd FOLDER && `; empty if the folder is not below the current one, or could be a sentence."""
    is_below = not folder.startswith(("/", "..", "~"))
    return f"cd {folder} && " if is_below and _PLAIN_WORD.fullmatch(folder) else ""


def _line_without_texts(program: str, words: Sequence[str]) -> str:
    """A command without file names and texts. Each row of words that are left out becomes one
    `_OMITTED`. `words` begin with the program as it was written.

    Empty if an interpreter runs no script of the project, or if the program's name is not a plain
    word: it could be a sentence for the model.
    """
    is_absolute = words[0].startswith("/")
    name = program if is_absolute else words[0]
    arguments = words[1:]
    is_interpreter = name in _INTERPRETERS
    runs_script = bool(arguments) and not arguments[0].startswith(_NOT_A_SCRIPT)
    if (is_interpreter and not runs_script) or not _PLAIN_WORD.fullmatch(name):
        return ""
    line = " ".join([name, *_words_without_texts(arguments, is_interpreter=is_interpreter)])
    return re.sub(rf"{_OMITTED}(?: {_OMITTED})+", _OMITTED, line)


def _words_without_texts(words: Sequence[str], *, is_interpreter: bool) -> Iterator[str]:
    """Yield each argument of a command, or `_OMITTED` instead of it.

    Options stay, and so do the first `_MAX_OPERANDS` other words, except for file names. The first
    word after an interpreter is its script, and stays. A word that could be a sentence never stays.
    """
    operands = 0
    for word in words:
        if word.startswith("-"):
            is_wanted = True
        else:
            operands += 1
            is_script = is_interpreter and operands == 1
            is_wanted = operands <= _MAX_OPERANDS and (is_script or not _FILE_NAME.fullmatch(word))
        yield word if is_wanted and _PLAIN_WORD.fullmatch(word) else _OMITTED


def describe_command(text: str) -> str:
    """A short name of a shell line: the normalized command, or the programs of a line with several
    commands. Empty for any other line. Empty, too, if one of several commands only shows or moves
    files, because the exit code of the line may be from that command.
    """
    if name := normalize_command(text):
        return name
    from ouro.safety import parse_line

    commands = [command for command in parse_line(text).commands if command.kind == "plain"]
    may_fail = {command.program for command in commands} - _NEVER_FAIL
    if len(commands) < 2 or not may_fail.isdisjoint(_IGNORED_PROGRAMS):
        return ""
    return name_programs(text)


def name_programs(text: str) -> str:
    """The programs of a line without their arguments, as `make … && pytest …`. Programs whose
    failure says nothing about the project, and names that could be a sentence, are left out.
    """
    from ouro.safety import parse_line

    programs = [command.program for command in parse_line(text).commands if command.kind == "plain"]
    names = [name for name in dict.fromkeys(programs) if _PLAIN_WORD.fullmatch(name)]
    return " && ".join(f"{name} {_OMITTED}" for name in names if name not in _NEVER_FAIL)


def is_check(name: str) -> bool:
    """Whether a normalized command tests, checks or builds the project, by the words in it and what
    its programs are known to do.
    """
    return not subjects_of(name).isdisjoint(subject_stems(_SUBJECTS_OF_CHECKS))


def subjects_of(command: str) -> set[str]:
    """The stems of the words in a command, and of what its known programs do."""
    from ouro.memory.index import find_stems

    programs = {word.rpartition("/")[2] for word in command.split()}
    subjects = [
        subject for subject, names in _PROGRAMS_BY_SUBJECT.items() if programs & set(names.split())
    ]
    return set(find_stems(subjects)) | subject_stems(command.lower())


def subject_stems(text: str) -> set[str]:
    """The stems of the words of a text in lower case, without those that name no subject."""
    from ouro.memory.index import find_stems

    words = (word for word in _LETTERS.findall(text) if word not in _WORDS_WITHOUT_SUBJECT)
    return set(find_stems(words))
