"""Commands that run other commands: env, xargs, find -exec, sudo, bash -c."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence

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
WORDS_FROM_INPUT = "…"
"""The text of the word that stands for those that `xargs` reads."""
_UNDERSTOOD_OPTION = re.compile(r"[nPL] -?\d+|I \{\}|d \\n")
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
_FIND_ALTERNATIVES = names("-o -or , ! -not (")
ODD_NAME = re.compile(r"""(^|/)[-@]|[\s'"\\]""")
"""A name that `xargs`, or the command that it runs, may read as something else."""
_MAX_STARTS_GUESSED = 12
_ENV_SETTING = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


class InnerCommands(msgspec.Struct, frozen=True):
    """What a command runs."""

    commands: tuple[Command, ...] = ()
    guesses: tuple[Command, ...] = ()
    """What it may run, if that is not known exactly."""
    script: str = ""
    """A shell script that it runs."""
    transparent: bool = False
    """Whether the command does nothing else."""
    opaque: str = ""
    """Why the line cannot be judged; empty if it can."""
    hidden: str = ""
    """Why what it runs cannot be listed; empty if it is listed, or if the command itself is
    judged.
    """


def inner_commands(command: Command) -> InnerCommands | None:
    """Returns what a command runs besides itself. None for a command that runs nothing else. git is
    not unwrapped: its operands begin with its subcommand, which is no command of its own.
    """
    if [word.text for word in command.arguments] == ["--version"]:
        return None
    name = command.program
    if read := _READERS.get(name):
        return read(command)
    row = rows().get(name)
    if row and row.operands in ("command", "wrapped") and name != "git":
        return _unwrap(command, row)
    return _guess_inner(command)


def _guess_inner(command: Command) -> InnerCommands | None:
    """Returns guesses at what a command may run, for a program that is known to run commands, but
    whose arguments are not understood here. None for other programs, and without a subcommand that
    runs commands.
    """
    words = command.arguments
    if command.program in _RUNNERS:
        return InnerCommands(guesses=_guess_suffixes(words))
    subcommands = _RUNNING_SUBCOMMANDS.get(command.program, ())
    for at, word in enumerate(words, 1):
        if word.text in subcommands:
            return InnerCommands(guesses=_guess_suffixes(words[at:]))
    return None


_SCRIPT_OPTION = re.compile(r"-[a-zA-Z]*c[a-zA-Z]*")
"""An option that a text to run follows: `-c`, `-lc`."""


def _inner_of_shell(command: Command) -> InnerCommands:
    """Returns what a shell runs: the text after `-c`, or a script that it reads from a
    here-document. The result is empty for `bash FILE`, which is judged as a command `bash` of its
    own.
    """
    words, name = command.arguments, command.program
    script_options = [at for at, word in enumerate(words) if _SCRIPT_OPTION.fullmatch(word.text)]
    has_script_text = bool(script_options)
    first = script_options[0] + 1 if script_options else 0
    operands = [at for at in range(first, len(words)) if not words[at].text.startswith(("-", "+"))]
    if not operands:
        return _shell_script(name, None if has_script_text else command.stdin)
    operand = operands[0]  # the text after `-c`, or the file
    if not all(word.exact for word in words[: operand + 1]):
        return InnerCommands(
            hidden=f"what {name} would run is computed", guesses=_guess_suffixes(words)
        )
    if has_script_text:
        return _shell_script(name, words[operand].text)
    return InnerCommands()  # `bash FILE`


def _shell_script(name: str, script: str | None) -> InnerCommands:
    """Returns what the shell `name` runs, if `script` is the text of its script. None: the shell
    reads its script from its input, so the commands are not known.
    """
    if script is None:
        return InnerCommands(hidden=f"{name} reads its commands from its input")
    return InnerCommands(script=script, transparent=True, opaque=f"{name} runs a script")


def _inner_of_eval(command: Command) -> InnerCommands:
    """Returns what `eval`, `trap` and `alias` run: text among their words. What `source` and `.`
    run is in a file, and is not read. The line is opaque in each case.
    """
    name, words = command.program, command.arguments
    texts = [word.text for word in words]
    scripts = {
        "eval": texts,
        "trap": texts[:1],
        "alias": [text.partition("=")[2] for text in texts],
    }
    script, opaque = " ".join(scripts.get(name, [])), f"{name} runs text"
    if all(word.exact for word in words):
        return InnerCommands(script=script, opaque=opaque)
    hidden = f"what {name} would run is computed"
    return InnerCommands(
        guesses=_guess_suffixes(words), script=script, opaque=opaque, hidden=hidden
    )


def _inner_of_find(command: Command) -> InnerCommands | None:
    """Returns the commands that `find` runs with `-exec` and the like. In them `{}` stands for a
    file below the folders of `find`. They count as piped, because they get what `find` has found.
    None if it runs no command.
    """
    words = command.arguments
    commands: list[Command] = []
    starts = find_starts(words)
    folders: tuple[str, ...] = ()
    if all(word.exact for word in starts):
        folders = tuple(word.text for word in starts) or (".",)
    runs = find_runs(words)
    texts = [word.text for word in words]
    tests = texts[: runs[0][0] - 1] if runs else []  # before the first command
    asks_for_regular = ("-type", "f") in itertools.pairwise(tests)
    # With `-o` and the like another test may let a link through.
    is_regular = asks_for_regular and _FIND_ALTERNATIVES.isdisjoint(texts)
    for begin, end in runs:
        if end > begin:
            commands.append(Command(_with_names(words[begin:end], folders, is_regular), piped=True))
    return InnerCommands(tuple(commands)) if commands else None


def _with_names(
    words: Sequence[Word], folders: tuple[str, ...], is_regular: bool = False
) -> tuple[Word, ...]:
    """Returns the words of a command that `find -exec` runs. A word `{}` gets the note that it
    represents a file below `folders`; with `is_regular`, that this file is not a link. A word such
    as `a{}b` only gets the note that its text is not known. Other words stay as they are.
    """
    named: list[Word] = []
    for word in words:
        if "{}" not in word.text:
            named.append(word)
            continue
        under = folders if word.text == "{}" else ()
        named.append(replace(word, exact=False, under=under, regular=is_regular))
    return tuple(named)


def folders_of_names(command: Command | None) -> tuple[str, ...]:
    """Returns the folders whose file names arrive at the end of a pipe. `command` is the last one
    of the pipe: it lists the names, or filters them. Empty if other text may arrive, and for None.
    """
    lister = _find_lister(command)
    if lister is None:
        return ()
    files = files_read(lister)
    if not isinstance(files, tuple) or not all(_names_exact_files(word, lister) for word in files):
        return ()
    # `_NAME_LISTERS` has the arguments with which a command prints nothing but names.
    text = "".join(f" {word.text}" for word in lister.arguments)
    if not re.fullmatch(_NAME_LISTERS[lister.name], text):
        return ()
    if lister.name == "git":
        return (".",)
    folders = tuple(word.text for word in files)
    # `ls` prints the names in a folder without the folder: the next command takes them for names
    # in its own folder.
    if lister.name == "ls":
        return (*folders, ".")
    return folders or (".",)


def _find_lister(command: Command | None) -> Command | None:
    """Returns the first command of the pipe that ends with `command`, if it is one that may list
    names of files, and if the filters after it do not change the lines. Otherwise None.
    """
    while command is not None and command.program in _NAME_FILTERS and command.source is not None:
        if not _prints_lines_unchanged(command):
            return None
        command = command.source
    if command is None or command.name not in _NAME_LISTERS or command.assignments:
        return None
    return command


def _prints_lines_unchanged(command: Command) -> bool:
    """Whether a filter reads nothing but its input, and has no option that changes the lines."""
    reads_only_input = files_read(command) == ()
    if not reads_only_input:
        return False
    options = [word.text for word in command.arguments if word.text[:1] == "-"]
    return all(re.fullmatch(_NAME_FILTERS[command.program], option) for option in options)


def _names_exact_files(word: Word, command: Command) -> bool:
    """Whether a word is a known folder without odd characters in its name: a command that lists
    files prints the name of the folder before theirs. The names that git prints are in its index,
    and are checked elsewhere.
    """
    return word.exact and (command.name == "git" or not ODD_NAME.search(word.text))


def _unwrap(command: Command, row: CommandRow) -> InnerCommands | None:
    """Returns the command that a wrapper such as `env`, `xargs` or `sudo` runs. None if the wrapper
    only prints.

    If an option is not understood, the line becomes opaque, and the inner command may begin at any
    word: the commands that begin at each of the words are guesses. A wrapper is transparent,
    because it does nothing itself.
    """
    if _only_prints(command):
        return None
    name = command.program
    options = read_options(command.arguments, row)
    if name == "env" and options.has("S", "split-string"):
        guesses = _guess_suffixes(command.arguments)
        return InnerCommands(hidden="env -S splits text into a command", guesses=guesses)
    words, assignments = options.operands, list(command.assignments)
    # Leaves the words and the assignments of the inner command in these lists.
    is_begin_understood = _remove_own_words(name, words, assignments)
    if not words:
        return InnerCommands(opaque=f"{name} is not understood")
    if name == "xargs":
        folders = folders_of_names(command.source)
        names_from_input = Word(WORDS_FROM_INPUT, exact=False, under=folders)
        words = [*_with_names(words, folders), names_from_input]
    inner = replace(
        command,
        words=tuple(words),
        assignments=tuple(assignments),
        piped=command.piped or name == "xargs",
    )
    if is_begin_understood and _is_understood(command, row, options):
        return InnerCommands((inner,), transparent=True)
    return InnerCommands(
        (inner,), _guess_suffixes(words), transparent=True, opaque=f"{name} runs a command"
    )


def _only_prints(command: Command) -> bool:
    """Whether a wrapper runs nothing: `env` alone, `command -v ls`."""
    words = command.arguments
    if not words:
        return command.program == "env"
    return command.program == "command" and words[0].text in ("-v", "-V")


def _is_understood(command: Command, row: CommandRow, options: ReadOptions) -> bool:
    """Whether a wrapper with these options does nothing but run its inner command, so that only the
    inner command must be judged. False for a wrapper that is named by a path: it may be another
    program.
    """
    if row.operands != "command" or command.name != command.program or options.unlisted:
        return False
    for option, values in options.values.items():
        if not all(_UNDERSTOOD_OPTION.fullmatch(f"{option} {value.text}") for value in values):
            return False
    return True


def _remove_own_words(name: str, words: list[Word], assignments: list[Assignment]) -> bool:
    """Remove from `words` the wrapper's own words, which stand before the inner command: the
    duration of `timeout`, and the settings of `env`, which are moved to `assignments`. Returns
    whether these words are understood.
    """
    if name == "env":
        return _move_env_settings(words, assignments)
    if name == "timeout" and words:
        duration = words.pop(0)
        return duration.exact and bool(_DURATION.fullmatch(duration.text))
    return True


def _move_env_settings(words: list[Word], assignments: list[Assignment]) -> bool:
    """Move the settings at the beginning of the words of `env` from `words` to `assignments`;
    returns whether all are understood. A `-` alone, which empties the environment, is removed too,
    and is not understood.
    """
    is_understood = True
    while words and ((setting := _ENV_SETTING.match(words[0].text)) or words[0].text == "-"):
        word = words.pop(0)
        is_understood = is_understood and bool(setting) and word.exact
        if setting:
            assignments.append(Assignment(setting[1], replace(word, text=setting[2])))
    return is_understood


def _guess_suffixes(words: Sequence[Word]) -> tuple[Command, ...]:
    """Returns guesses at an inner command of which it is not known where it begins. It may begin at
    each of the first _MAX_STARTS_GUESSED words, or be the text of a word with blanks.
    """
    scripts = [tuple(map(Word, word.text.split())) for word in words if re.search(r"\s", word.text)]
    first_words = [at for at, word in enumerate(words[:_MAX_STARTS_GUESSED]) if word.text]
    starts = [tuple(words[at:]) for at in first_words]
    return tuple(Command(parts, kind="guess") for parts in (*starts, *scripts) if parts)


_READERS: Mapping[str, Callable[[Command], InnerCommands | None]] = {
    **dict.fromkeys(SHELLS, _inner_of_shell),
    **dict.fromkeys(names("eval trap alias source ."), _inner_of_eval),
    **dict.fromkeys(names("find gfind"), _inner_of_find),
}
"""Programs whose commands are read in a way of their own."""
