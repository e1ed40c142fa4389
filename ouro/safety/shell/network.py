"""Which commands fetch from the network, where they put it, and which run a file or their input."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from ouro.safety.shell.command import Command, Word
from ouro.safety.shell.read_only import git_words, only_reads, read_options
from ouro.safety.shell.tables import UNKNOWN, names, rows
from ouro.safety.shell.wrappers import SHELLS, WORDS_FROM_INPUT
from ouro.utils.addresses import split_url

FETCHERS = names(
    "curl wget fetch aria2c axel nc ncat netcat socat http https xh lynx w3m links lftp ftp sftp"
)
_STREAMERS = names("curl nc ncat netcat socat http https xh lynx w3m links")
"""Programs that print what they fetch, unless an option names a file."""
_COPIERS = names("scp rsync")
"""They fetch if an operand is on another machine, as `host:file`."""
_FETCHING_SUBCOMMANDS = {
    "git": "clone|submodule add",
    "gh": "api|(repo|gist) clone|gist view|(release|run) download|pr (checkout|diff)",
    "glab": "api|repo clone|(release|job) download|mr (checkout|diff)",
    "aws": "s3 (cp|sync|mv)|s3api get-object",
    "gsutil": "cp|rsync|cat|mv",
    "gcloud": "storage (cp|cat|rsync)",
    "az": "storage (blob|file|fs) .*download.*",
    **dict.fromkeys(("docker", "podman", "nerdctl"), "cp|container cp"),
    "kubectl": "cp",
    **dict.fromkeys(("pip", "pip3"), "download"),
    "npm": "pack",
    "svn": "checkout|co|export|cat|update|up",
    "hg": "clone|pull",
    "rclone": "copy|copyto|sync|cat",
    "gem": "fetch",
    **dict.fromkeys(("hf", "huggingface-cli"), "download"),
    "kaggle": ".*download.*",
    **dict.fromkeys(("apt", "apt-get"), "download|source"),
}
"""The first words, without options, with which a program fetches from the network."""
_FETCH_ONLY_BY_SUBCOMMAND = names("""
    git gh glab pip pip3 pipx uv npm pnpm yarn bun npx uvx cargo go poetry brew gem docker podman kubectl
    """)
"""An address among the words of these does not mean that they fetch. Which packages they install is
decided by the project; an address as a package is found by `runs_an_address`.
"""
_REMOTE_FILE = re.compile(r"(?!\./)([\w.-]+@)?[\w.-]+:(?!\\)\S*")
_ADDRESS = re.compile(
    r"(?<![\w+.-])(https?|ftps?|sftp|ssh|git|s3|gs|rsync|(git|hg|svn)\+\w+)://"
    r"(?!(localhost|127(\.\d+){3}|0\.0\.0\.0|\[::1\])([:/'\"\s]|\Z))"
)
"""The address of another machine, also inside of a text."""
_GIT_ADDRESS = re.compile(r"\w[\w+.-]*://\S+|[\w.-]+@[\w.-]+:\S+|\w+::\S+")
_INSTALLERS = {
    **dict.fromkeys(("pip", "pip3", "pipx"), "install|run|inject"),
    "uv": "pip install|add|tool (install|run)|run",
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), "i|install|add|exec|x|dlx"),
    **dict.fromkeys(("npx", "bunx", "uvx", "pnpx"), ".*"),
    "cargo": "install|add",
    "go": "run|install",
    **dict.fromkeys(("docker", "podman"), "build|buildx build"),
    **dict.fromkeys(("gem", "brew"), "install|tap"),
    "poetry": "add",
    "nix": "run|shell|develop|build",
    "deno": "run|install|test|eval|serve|x",
    "kubectl": "apply|create",
    "helm": "install|upgrade",
}
"""The first words with which a program runs what it gets as an address, or installs it."""
_PACKAGE_ADDRESS = re.compile(
    r"([^@\s]+@|[^@\s]+ @ |[^=\s]+=)?"
    r"((https?|ssh|git|(git|hg|svn)\+\w+)://|git@|(github|gitlab|bitbucket|gist):)\S+"
)
_GO_PACKAGE = re.compile(r"[\w-]+(\.[\w-]+)+/\S+@\S+")
INTERPRETERS = re.compile(
    r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|julia|guile|tclsh|wish|expect|pwsh|osascript|Rscript"
    r"|racket|groovy|scala|kotlin|elixir|escript|octave|runghc|ts-node|tsx|swift|raku)[\d.]*"
)
_TEXT_OPTIONS = (
    (re.compile(r"(ba|da|z|k|a|fi)?sh|rbash|(python|pypy)[\d.]*"), re.compile(r"-[a-zA-Z]*[cm]")),
    (re.compile(r"php[\d.]*"), re.compile(r"-r|--run")),
    (re.compile(".*"), re.compile(r"-[a-zA-Z0]*[eE]|-[pc]|--(eval|print|execute)|-Command")),
)
"""Interpreters, and the options whose value is the text of a program; the first match counts."""
_LOADING_OPTIONS = names("-r --require --import --loader --experimental-loader")
"""Options of interpreters whose value is a file that they run first."""
_VALUED_OPTIONS = (
    (re.compile(r"(python|pypy)[\d.]*"), names("-W -X")),
    (re.compile(".*"), names("-I") | _LOADING_OPTIONS),
)
"""Interpreters, and their options whose value is not their script; the first match counts."""
_SUBCOMMANDS_OF_INTERPRETERS = names("run test serve")
_RUNNERS_OF_FILES = names("""
    make gmake just ninja cmake awk gawk mawk sed psql mysql mariadb sqlite3 duckdb gdb lldb vim nvim vi ex ed emacs
    kubectl helm terraform tofu ansible-playbook docker podman pip pip3 pipx uv npm pnpm yarn npx bunx cargo go gem java
    javac gcc g++ cc clang rustc m4 bc parallel dpkg rpm installer brew nix crontab dotnet mvn gradle erl ghci
    """)
"""Programs that run or install a file if one of their words names it."""
_RUNNERS_OF_INPUT = {
    **dict.fromkeys(
        names("ed ex m4 parallel irb pry ghci jshell erl iex R sqlplus crontab at batch ssh"),
        "(?!)",
    ),
    **dict.fromkeys(
        names("psql mysql mariadb mongosh mongo redis-cli"),
        r"(?s:.*)\0(-[ce]|--command|--execute|--eval)[\0=](?s:.*)",
    ),
    **dict.fromkeys(("sqlite3", "duckdb"), r"(?s:.*)\0[^-\0][^\0]*\0[^-\0](?s:.*)"),
    **dict.fromkeys(
        ("docker", "podman", "nerdctl"), r"\0(?!(run|exec|load|import|build|stack)\0)(?s:.*)"
    ),
    "kubectl": r"\0(?!(apply|create|replace|exec|run)\0)(?s:.*)",
}
"""Programs that run their input, each with a pattern of the words with which it does not. There is a
zero character before and after each word.
"""
_PROGRAM_OPTION = re.compile(r"-[a-zA-Z]*[fxsSr]|--(file|makefile|requirement|script|from-file)")
"""An option of `_RUNNERS_OF_FILES` whose value is a file that they run."""
_STDIN_FILES = names("- /dev/stdin /dev/fd/0 /proc/self/fd/0")
_DATA_TOOLS = names("""
    gzip gunzip zstd unzstd xz unxz bzip2 bunzip2 lz4 pandoc xmllint xq htmlq pup html2text tidy mlr csvjson csvcut
    csvlook csvstat csvgrep in2csv dasel gron jless less more pg bat batcat pv iconv dos2unix shasum b3sum hexyl
    wl-copy pbcopy xclip xsel protoc openssl ts sponge cpio patch gojq jaq qsv xsv xml xmlstarlet textutil dc convert
    magick ffmpeg ffprobe identify tesseract pdftotext unzip 7z 7za split csplit sum pr fmt tsort look comm col
    colrm numfmt factor envsubst dd install logger mail
    export declare local readonly unset shopt read mapfile wait kill jobs trap alias :
    """)
"""Programs that treat files and input as data."""
_OWN_PROGRAMS = names("""
    npm pnpm yarn npx bunx uvx uv poetry cargo go java make gmake just gh glab git aws gsutil curl wget nc bc awk gawk
    mawk sed docker podman kubectl psql mysql mariadb sqlite3 duckdb redis-cli
    """)
"""Programs that may run something, but not their input. The exceptions are in `runs_input`."""
_SCRIPTED = names("sed gsed awk gawk mawk")
"""Programs whose script may run lines of their input, unless they only read."""
_BUILDERS = names("make gmake gcc g++ cc clang")
_EXTRACTORS = names("tar gtar bsdtar unzip 7z 7za 7zz cpio patch unar ar dpkg-deb")
_RUNNING_WORD = re.compile(
    r"\b(exec|eval|execfile|runpy|subprocess|system|popen|spawn\w*|child_process|new Function|pickle|marshal|dofile"
    r"|instance_eval|chmod)\b",
    re.IGNORECASE,
)
"""A word of a program by which it may run a file."""


def is_run_by_bash(command: Command) -> bool:
    """Whether bash runs a command itself: it is neither a wrapper nor a guess."""
    return command.kind == "plain"


def fetches(command: Command) -> bool:
    """Whether a command may fetch from the network: by its name, its subcommand, an operand on
    another machine, or an address among its words.
    """
    name = command.program
    if name in FETCHERS or _has_subcommand(command, _FETCHING_SUBCOMMANDS.get(name)):
        return True
    if name == "ssh":
        return True
    if name in _COPIERS:
        return any(_REMOTE_FILE.fullmatch(word.text) for word in command.arguments)
    if name == "git":
        return _pulls_from_an_address(command) or _gets_an_archive(command)
    if name in _FETCH_ONLY_BY_SUBCOMMAND or _is_listed(command):
        return False
    return any(_ADDRESS.search(word.text) for word in command.arguments)


def names_of_fetched(command: Command) -> list[str]:
    """Returns the names that a command gives to what it fetches, if its words name no other: the
    last part of each address, also without `.git`.
    """
    options = read_options(command.arguments, UNKNOWN)
    takes_names = options.has("O", "J", "remote-name", "remote-name-all")
    if command.program in _STREAMERS and not takes_names:
        return []
    target = "".join(word.text for word in target_words(command))
    if command.program == "git" and ":" not in target:  # the folder of the clone is named
        return []
    last_parts: list[str] = []
    for word in command.arguments:
        name = re.split(r"[/:]", _address_path(word.text).rstrip("/"))[-1]
        if name != word.text:
            last_parts += [name, name.removesuffix(".git")]
    return [name for name in dict.fromkeys(last_parts) if name not in ("", ".", "..")]


def _address_path(text: str) -> str:
    """Returns the path of a URL. A text that is no valid URL is returned unchanged: curl expands
    `http://[1-3].example/x.sh`, so this names a file, too.
    """
    parts = split_url(text)
    return parts.path if "://" in text and parts.scheme else text


def target_words(command: Command) -> Sequence[Word]:
    """Returns the last operand of a command that fetches, if it may be the place for that. Empty for
    a command that only prints, or whose place is named by an option.
    """
    if command.program in FETCHERS:
        return ()
    operands = [word for word in command.arguments if not word.text.startswith("-")]
    has_place = command.program in _FETCHING_SUBCOMMANDS or command.program in _COPIERS
    return operands[-1:] if has_place else ()


def changes_the_folder(command: Command) -> bool:
    """Whether a command may replace any file of its folder by what it fetches or unpacks."""
    if command.program == "git":
        return _pulls_from_an_address(command) or _has_subcommand(command, "apply|am")
    is_forge = command.program in ("gh", "glab")
    is_checkout = is_forge and _has_subcommand(command, "(pr|mr) checkout")
    return is_checkout or command.program in _EXTRACTORS


def runs_an_address(command: Command) -> bool:
    """Whether a command runs or installs what is at an address among its words."""
    texts = [word.text for word in command.arguments]
    if any(_ADDRESS.match(word.text) for word in _files_of_interpreter(command)):
        return True
    is_pip_module = texts[:3] == ["-m", "pip", "install"]
    if not is_pip_module and not _has_subcommand(command, _INSTALLERS.get(command.program)):
        return False
    if command.program == "go":
        return any(map(_GO_PACKAGE.fullmatch, texts))
    return any(map(_PACKAGE_ADDRESS.fullmatch, texts))


def program_words(command: Command) -> Sequence[Word]:
    """Returns the words that name files which a command runs, or installs for others to run."""
    if command.program in ("source", "."):
        return command.arguments[:1]
    if "/" in command.name:
        return command.words[:1]
    if _is_interpreter(command):
        is_module = [word.text for word in command.arguments[:1]] == ["-m"]
        words_of_module = command.arguments[2:] if is_module else ()  # `python -m pip install FILE`
        return (*_files_of_interpreter(command), *words_of_module)
    return command.arguments if command.program in _RUNNERS_OF_FILES else ()


def runs_one_file(command: Command) -> bool:
    """Whether the `program_words` of a command certainly are programs, not other arguments."""
    return "/" in command.name or command.program in ("source", ".") or _is_interpreter(command)


def program_text(command: Command) -> str:
    """Returns the text that an interpreter runs, from an option or a here-document; empty if there
    is none.
    """
    if not _is_interpreter(command):
        return ""
    texts = [word.text for word in command.arguments]
    option = _option_of_text(command)
    programs = [following for text, following in pairwise(texts) if option.fullmatch(text)]
    return "\n".join([*programs, command.stdin or ""])


def may_run_files(text: str) -> bool:
    """Whether the text of a program has a word by which it may run a file of any name."""
    return bool(_RUNNING_WORD.search(text))


def may_run_its_folder(command: Command) -> bool:
    """Whether a command may run files of its folder that no word of it names, as `make`, `pytest`
    and the modules of an interpreter.
    """
    if command.program in _BUILDERS:
        return not only_reads(command)
    is_known = _is_listed(command) or command.program in rows()
    return not (is_known or command.program in _DATA_TOOLS or fetches(command))


def runs_input(command: Command) -> bool:
    """Whether a command runs its input as a program, or sends it to one."""
    gets_programs = any(word.text == WORDS_FROM_INPUT for word in program_words(command))
    runs_script = command.program in _SCRIPTED and not only_reads(command)
    if gets_programs or runs_script or may_run_files(program_text(command)):
        return True
    pattern = _RUNNERS_OF_INPUT.get(command.program)
    if pattern is None:
        return command.program in _RUNNERS_OF_FILES and _names_input_as_program(command)
    words = "".join(f"\0{word.text}" for word in command.arguments)
    return not only_reads(command) and not re.fullmatch(pattern, f"{words}\0")


def _names_input_as_program(command: Command) -> bool:
    """Whether a word of a command names its input as a file. A single `-` only counts as the value
    of an option for the program.
    """
    for before, word in pairwise((Word(""), *command.arguments)):
        value = re.sub(r"^(-[a-zA-Z]|--[\w-]+=)", "", word.text)
        is_program = word.text != "-" or _PROGRAM_OPTION.fullmatch(before.text)
        if value in _STDIN_FILES and is_program:
            return True
    return False


def reads_input_as_data(command: Command) -> bool:
    """Whether it is known that a command does not run its input, except as in `runs_input`: it is
    listed, or has a program of its own, which is judged elsewhere.
    """
    has_own_program = _is_interpreter(command) or "/" in command.name
    is_known = command.program in _DATA_TOOLS or command.program in _OWN_PROGRAMS
    return has_own_program or is_known or _is_listed(command)


def _is_interpreter(command: Command) -> bool:
    return command.program in SHELLS or bool(INTERPRETERS.fullmatch(command.program))


def _is_listed(command: Command) -> bool:
    """Whether the tables list what a command reads or changes, so that it runs nothing."""
    row = rows().get(command.program)
    is_in_table = row is not None and row.operands not in ("any", "command", "wrapped")
    return is_in_table or only_reads(command)


def _has_subcommand(command: Command, pattern: str | None) -> bool:
    """Whether the first operands of a command match a pattern; False without a pattern."""
    if pattern is None:
        return False
    words = git_words(command.arguments) if command.program == "git" else command.arguments
    operands = " ".join(word.text for word in words if not word.text.startswith("-"))
    return bool(re.match(rf"({pattern})( |\Z)", operands, re.DOTALL))


def _pulls_from_an_address(command: Command) -> bool:
    """Whether a git command gets commits from an address instead of a remote of the repository."""
    words = [word.text for word in git_words(command.arguments)]
    return words[:1] in (["pull"], ["fetch"]) and any(map(_GIT_ADDRESS.fullmatch, words[1:]))


def _gets_an_archive(command: Command) -> bool:
    """Whether a git command prints an archive of another repository."""
    words = [word.text for word in git_words(command.arguments)]
    return words[:1] == ["archive"] and any(text.startswith("--remote") for text in words)


def _files_of_interpreter(command: Command) -> list[Word]:
    """Returns the words of the files that an interpreter or a shell runs: those that options load,
    and the script, if it does not run a text or a module. Empty for other programs.
    """
    if not _is_interpreter(command):
        return []
    files: list[Word] = []
    text_option = _option_of_text(command)
    program = command.program
    valued = next(options for name, options in _VALUED_OPTIONS if name.fullmatch(program))
    for before, word in pairwise((Word(""), *command.arguments)):
        option, equals, value = word.text.partition("=")
        if before.text in _LOADING_OPTIONS:
            files.append(word)
        elif equals and option in _LOADING_OPTIONS:
            files.append(Word(value))
        elif text_option.fullmatch(before.text):
            break
        elif before.text not in valued and not _is_option(word):
            return [*files, word]
    return files


def _is_option(word: Word) -> bool:
    """Whether an argument of an interpreter is an option or a subcommand, and not its script."""
    return word.text.startswith(("-", "+")) or word.text in _SUBCOMMANDS_OF_INTERPRETERS


def _option_of_text(command: Command) -> re.Pattern[str]:
    """Returns a pattern of the options of an interpreter whose value is the text of a program."""
    name = command.program
    return next(option for program, option in _TEXT_OPTIONS if program.fullmatch(name))
