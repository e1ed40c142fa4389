"""Commands that run other commands: env, xargs, find -exec, sudo, bash -c."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ouro.safety.shell.command import Assignment, Command, Word
from ouro.safety.shell.read_only import (
    ReadOptions,
    files_read,
    find_runs,
    find_starts,
    read_options,
)
from ouro.safety.shell.tables import CommandRow, names, rows

SHELLS = names("sh bash dash zsh ksh ash fish rbash")
_UNDERSTOOD = re.compile(r"[nPL] -?\d+|I \{\}|d \\n")
"""With these valued options a wrapper is judged by the command that it runs; with others the line
is opaque.
"""
_DURATION = re.compile(r"\d+(\.\d+)?[smhd]?")
_RUNNERS = names("""
    sudo doas su pkexec run0 watch strace ltrace gdb flock parallel uvx npx bunx ssh script xvfb-run unshare
    chroot busybox toybox caffeinate entr rlwrap chpst systemd-run prlimit taskset chrt nsenter runuser setpriv
    firejail bwrap expect torsocks proxychains hyperfine perf valgrind unbuffer
    """)
_RUNNING_SUBCOMMANDS = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), ("exec", "x", "dlx")),
    **dict.fromkeys(("docker", "podman", "kubectl"), ("run", "exec")),
    **dict.fromkeys(
        ("uv", "poetry", "pipenv", "conda", "rustup", "hatch", "pdm", "pixi", "rye"), ("run",)
    ),
    **dict.fromkeys(("bundle", "direnv", "mise", "asdf"), ("exec", "x")),
    "nix": ("run", "shell", "develop"),
}
_NAME_FILTERS = {
    **dict.fromkeys(names("head tail"), r"-n?\d*"),
    **dict.fromkeys(names("sort uniq"), r"-[rufdiVnbs]+"),
    **dict.fromkeys(names("grep egrep fgrep rg"), r"-[viEFwxe]+"),
}
"""The options with which a filter prints lines unchanged; not `head -v` (prints headers) or `grep
-n` (numbers).
"""
_NAME_LISTERS = {  # without letters that take a value: `-tl` of rg is a type
    "find": r"(?!.* -(printf|ls|exec)).*",
    "rg": (
        r"(?=.*( -\w*l| --files))"
        r"( -[liwFPSsu0]+| -[gte]| --(files(-with-matches)?|hidden|(glob|type)(=\S*)?)| [^-\s]\S*)*"
    ),
    "grep": r"(?=.* -\w*l)( -[rlniIEFPwsh]+| -e| --(include|exclude|exclude-dir)=\S*| [^-\s]\S*)*",
    "git": (
        r" (diff --name-only|(ls-files( -[cmoz]+| --(others|cached|modified|exclude-standard))*"
        r"|grep -[inIEFw]*l[inIEFw]*)( --)?( [^-\s]\S*)*)"
    ),
    "ls": r"( -[1aA]+)*( [^-\s]\S*)*",
}
"""The arguments with which a command prints only names of files below its folder arguments."""
_ALTERNATIVES = names("-o -or , ! -not (")
ODD_NAME = re.compile(r"""(^|/)[-@]|[\s'"\\]""")
"""A name that `xargs`, or the command that it runs, may read as something else."""
_SETTING = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


class InnerCommands(msgspec.Struct, frozen=True):
    """What a command runs."""

    commands: tuple[Command, ...] = ()
    guesses: tuple[Command, ...] = ()
    script: str = ""
    transparent: bool = False
    """Whether the command does nothing else."""
    opaque: str = ""
    hidden: str = ""


def inner_commands(command: Command) -> InnerCommands | None:
    """What `command` runs; None for a command that runs nothing else."""
    name, words = command.program, command.arguments
    texts = [word.text for word in words]
    if texts == ["--version"]:
        return None
    if name in SHELLS:
        return _shell(command)
    if name in ("eval", "trap", "alias", "source", "."):
        scripts = {
            "eval": texts,
            "trap": texts[:1],
            "alias": [text.partition("=")[2] for text in texts],
        }
        computed = "" if all(word.exact for word in words) else f"what {name} would run is computed"
        guesses = _suffixes(words) if computed else ()
        return InnerCommands(
            (),
            guesses,
            " ".join(scripts.get(name, [])),
            opaque=f"{name} runs text",
            hidden=computed,
        )
    if name in ("find", "gfind"):
        return _find(words)
    row = rows().get(name)
    if row and row.operands in ("command", "wrapped") and name != "git":
        return _unwrap(command, row)
    if name in _RUNNERS:
        return InnerCommands(guesses=_suffixes(words))
    start = next(
        (at for at, text in enumerate(texts, 1) if text in _RUNNING_SUBCOMMANDS.get(name, ())), 0
    )
    return InnerCommands(guesses=_suffixes(words[start:])) if start else None


def _shell(command: Command) -> InnerCommands:
    words, name = command.arguments, command.program
    option = next(
        (at for at, word in enumerate(words) if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word.text)),
        -1,
    )
    operand = next(
        (at for at, word in enumerate(words) if at > option and not re.match(r"[-+]", word.text)),
        None,
    )
    if operand is not None and not all(word.exact for word in words[: operand + 1]):
        return InnerCommands(hidden=f"what {name} would run is computed", guesses=_suffixes(words))
    if operand is not None and option < 0:
        return InnerCommands()
    script = words[operand].text if operand is not None else command.stdin
    if script is None or (option >= 0 and operand is None):
        return InnerCommands(hidden=f"{name} reads its commands from its input")
    return InnerCommands(script=script, transparent=True, opaque=f"{name} runs a script")


def _find(words: Sequence[Word]) -> InnerCommands | None:
    found: list[Command] = []
    starts = find_starts(words)
    folders: tuple[str, ...] = ()
    if all(word.exact for word in starts):
        folders = tuple(word.text for word in starts) or (".",)
    runs = find_runs(words)
    texts = [word.text for word in words]
    tests = texts[: runs[0][0] - 1] if runs else []  # before the first command
    is_regular = ("-type", "f") in itertools.pairwise(tests) and _ALTERNATIVES.isdisjoint(texts)
    for begin, end in runs:
        if end > begin:
            found.append(Command(_with_names(words[begin:end], folders, is_regular), piped=True))
    return InnerCommands(tuple(found)) if found else None


def _with_names(
    words: Sequence[Word], folders: tuple[str, ...], is_regular: bool = False
) -> tuple[Word, ...]:
    """The words, where `{}` represents a file below the folders; a word that only contains `{}` may
    be anything.
    """
    return tuple(
        (
            replace(
                word, exact=False, under=folders if word.text == "{}" else (), regular=is_regular
            )
            if "{}" in word.text
            else word
        )
        for word in words
    )


def folders_of_names(command: Command | None) -> tuple[str, ...]:
    """The folders whose files a command prints the names of; empty if it may print other text."""
    while command is not None and command.program in _NAME_FILTERS and command.source is not None:
        if not _prints_lines_unchanged(command):
            return ()
        command = command.source
    if command is None or command.name not in _NAME_LISTERS or command.assignments:
        return ()
    found = files_read(command)
    if not isinstance(found, tuple) or not all(_is_exact(word, command) for word in found):
        return ()
    text = "".join(f" {word.text}" for word in command.arguments)
    if not re.fullmatch(_NAME_LISTERS[command.name], text):
        return ()
    folders = tuple(word.text for word in found) if command.name != "git" else ()
    return folders if folders and command.name != "ls" else (*folders, ".")


def _prints_lines_unchanged(command: Command) -> bool:
    """Whether a filter reads only its input, and has no option that changes the lines."""
    if files_read(command) != ():
        return False
    options = [word.text for word in command.arguments if word.text[:1] == "-"]
    return all(re.fullmatch(_NAME_FILTERS[command.program], option) for option in options)


def _is_exact(word: Word, command: Command) -> bool:
    return word.exact and (command.name == "git" or not ODD_NAME.search(word.text))


def _unwrap(command: Command, row: CommandRow) -> InnerCommands | None:
    name = command.program
    if name == "command" and command.arguments and command.arguments[0].text in ("-v", "-V"):
        return None
    found = read_options(command.arguments, row)
    if name == "env" and found.has("S", "split-string"):
        guesses = _suffixes(command.arguments)
        return InnerCommands(hidden="env -S splits text into a command", guesses=guesses)
    words, assignments = found.operands, list(command.assignments)
    is_understood = _is_understood(command, row, found)
    if name == "env":
        is_understood = _take_settings(words, assignments) and is_understood
    if name == "timeout" and words:
        word = words.pop(0)
        is_understood = is_understood and word.exact and bool(_DURATION.fullmatch(word.text))
    if not words:
        only_prints = name == "env" and not command.arguments
        return None if only_prints else InnerCommands(opaque=f"{name} is not understood")
    if name == "xargs":
        folders = folders_of_names(command.source)
        words = [*_with_names(words, folders), Word("…", exact=False, under=folders)]
    inner = replace(
        command,
        words=tuple(words),
        assignments=tuple(assignments),
        piped=command.piped or name == "xargs",
    )
    if is_understood:
        return InnerCommands((inner,), transparent=True)
    return InnerCommands(
        (inner,), _suffixes(words), transparent=True, opaque=f"{name} runs a command"
    )


def _is_understood(command: Command, row: CommandRow, found: ReadOptions) -> bool:
    """Whether a wrapper with these options is judged by the command that it runs."""
    if row.operands != "command" or command.name != command.program or found.unlisted:
        return False
    for option, values in found.values.items():
        if not all(_UNDERSTOOD.fullmatch(f"{option} {value.text}") for value in values):
            return False
    return True


def _take_settings(words: list[Word], assignments: list[Assignment]) -> bool:
    """Move the settings of `env` from its words to the assignments; returns whether all are
    understood.
    """
    is_understood = True
    while words and ((setting := _SETTING.match(words[0].text)) or words[0].text == "-"):
        word = words.pop(0)
        is_understood = is_understood and bool(setting) and word.exact
        if setting:
            assignments.append(Assignment(setting[1], replace(word, text=setting[2])))
    return is_understood


def _suffixes(words: Sequence[Word]) -> tuple[Command, ...]:
    """Candidates for the inner command if its start is unknown."""
    scripts = [tuple(map(Word, word.text.split())) for word in words if re.search(r"\s", word.text)]
    starts = [tuple(words[at:]) for at in range(min(len(words), 12)) if words[at].text]
    return tuple(Command(parts, kind="guess") for parts in (*starts, *scripts) if parts)
