"""Whether a shell line may run what it fetches from the network."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import pairwise

from ouro.safety.shell.command import Command, ShellLine, Word
from ouro.safety.shell.network import FETCHERS, INTERPRETERS, fetches, is_run_by_bash, runs_input
from ouro.safety.shell.read_only import ReadOptions, only_reads, read_options
from ouro.safety.shell.tables import names, rows
from ouro.safety.shell.wrappers import SHELLS

_ADDRESS_OF_THIS_MACHINE = re.compile(
    r"(https?://)?(?P<host>localhost|127(\.\d{1,3}){3}|0\.0\.0\.0|\[::1\])(:\d{1,5})?(?P<path>/.*)?",
    re.ASCII,
)
_ONE_QUOTED_WORD = re.compile(r'"(?P<text>([^"$`\\]|\$[A-Za-z_]\w*)*)"')
"""Text in double quotes with variables, which stays one word: `"$@"` may become several."""
_SETTERS = names("export declare typeset local readonly set read mapfile readarray getopts printf")
"""Commands that set variables, some only with certain arguments."""
_RUNNERS_OF_TEXT = SHELLS | names("eval trap find gfind")
"""Their variables are also those of the commands that they run."""
RUNS_WHAT_IT_FETCHES = "it runs what it fetches from the network"
_STDIN_FILES = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
"""The names of the input of a command as a file."""
_PROGRAM_OPTIONS = ("-c", "-e", "-Command")
"""The options of interpreters whose value is a program."""


def check_fetch(line: ShellLine) -> str:
    """Returns why a line that fetches from the network needs a question: it may run what it
    fetches. Empty if it fetches nothing, or runs nothing of it.
    """
    if _pipes_into_a_program(line):
        return RUNS_WHAT_IT_FETCHES
    fetchers = [command for command in line.commands if command.program in FETCHERS]
    if not fetchers:
        return ""
    may_leave = not (_keeps_environment(line) and all(map(_fetches_here, fetchers)))
    if any(_runs_input(command, line) for command in line.commands) or (line.opaque and may_leave):
        return RUNS_WHAT_IT_FETCHES
    return ""


def _pipes_into_a_program(line: ShellLine) -> bool:
    """Whether a command gets from a pipe what an earlier one fetches, and runs it."""
    has_fetched = False
    for command in filter(is_run_by_bash, line.commands):
        if has_fetched and command.piped and runs_input(command):
            return True
        has_fetched = has_fetched or fetches(command)
    return False


def fetches_elsewhere(command: Command) -> bool:
    """Whether a command may fetch from the network, and not only from a server on this machine."""
    return fetches(command) and not _fetches_here(command)


def _fetches_here(command: Command) -> bool:
    """Whether a command is a plain `curl` of a server on this machine, such as one that the line has
    started.
    """
    if command.program != "curl" or command.kind != "plain" or command.assignments:
        return False
    options = read_options(command.arguments, rows()["curl-here"])
    has_address = bool(options.operands) and not options.unlisted
    if _asks_a_proxy(options):
        return False
    return has_address and all(map(_names_this_machine, options.operands))


def _asks_a_proxy(options: ReadOptions) -> bool:
    """Whether a request may make a proxy on this machine fetch from another one: its method holds
    an address, or a header names another host.
    """
    values = options.values
    methods = [*values.get("X", []), *values.get("request", [])]
    headers = [*values.get("H", []), *values.get("header", [])]
    return not all(re.fullmatch(r"[A-Za-z]+", method.text) for method in methods) or any(
        re.match(r"\s*(host\b|@)", header.text, re.IGNORECASE) for header in headers
    )


def _names_this_machine(word: Word) -> bool:
    """Whether a word is certainly the address of a server on this machine. A word that bash expands
    may become another one: `localhost?e*` may become the name `localhost.evil.example` of a file.
    """
    if word.exact:  # bash expands nothing in it
        return bool(_ADDRESS_OF_THIS_MACHINE.fullmatch(word.text))
    if word.glob:
        match = _ADDRESS_OF_THIS_MACHINE.fullmatch(word.raw)
        if match is None or re.search(r"[$`]", word.raw):
            return False
        # The pattern must be in the path. In `[::1]` bash would see a class of characters.
        return match["host"] != "[::1]" and match["path"] is not None
    # `word.text` has the values of variables that the line may have set: only the word as it is
    # written (`raw`) is certain, such as "http://localhost/$page".
    quoted = _ONE_QUOTED_WORD.fullmatch(word.raw)
    return quoted is not None and bool(_ADDRESS_OF_THIS_MACHINE.fullmatch(quoted["text"]))


def _keeps_environment(line: ShellLine) -> bool:
    """Whether a line sets no variable that `curl` may obey, such as `http_proxy`. Other variables
    that are not exported do not reach it.
    """
    if any(map(_may_be_obeyed, line.values)):
        return False
    for command in line.commands:
        if command.program in _SETTERS and not only_reads(command):
            return False
        if command.settings and command.program in _RUNNERS_OF_TEXT:
            return False
    return True


def _may_be_obeyed(name: str) -> bool:
    """Whether a program may obey a variable that the line sets without exporting it: it may be
    exported already, or be one of bash.
    """
    return name in os.environ or "proxy" in name.lower() or name.startswith("BASH")


def _runs_input(command: Command, line: ShellLine) -> bool:
    """Whether a command is an interpreter, such as python, and runs its input or the output of
    another command, as in `python -c "$(curl …)"`. Its input is not run if it has a program of its
    own, as a script or after `-c` or `-e`. The text of a quoted here-document is known.

    Of a shell only an input that it reads as a file counts, as in `bash /dev/stdin`: the commands
    of a text that it runs are in the line themselves, and `_pipes_into_a_program` finds a pipe.
    """
    words = command.arguments
    if command.program in ("source", ".", *SHELLS):
        return any(word.text in _STDIN_FILES for word in words)
    if not INTERPRETERS.fullmatch(command.program) or only_reads(command):
        return False
    is_computed = any(re.search(r"[$<]\(|`", word.text) for word in words)
    has_unknown_program = any(
        option.text in _PROGRAM_OPTIONS and not program.exact for option, program in pairwise(words)
    )
    text = command.stdin
    is_input_known = text is not None and not (line.opaque and re.search(r"[$`]", text))
    is_input_run = not is_input_known and not _has_program([word.text for word in words])
    return is_computed or has_unknown_program or is_input_run


def _has_program(texts: Sequence[str]) -> bool:
    """Whether an interpreter with these arguments has a program that is not its input."""
    for before, text in pairwise(("", *texts)):
        if before in _PROGRAM_OPTIONS:
            return text not in _STDIN_FILES
        is_operand = text == "-" or not text.startswith("-")
        is_value = before in ("-W", "-X") or text == "run"  # `deno run -`
        if is_operand and not is_value:
            return text not in _STDIN_FILES
    return False
