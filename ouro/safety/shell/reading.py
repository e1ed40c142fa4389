"""Shell commands that only read: which they are, what they read, and the options that make them do more."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from ouro.safety.shell.words import Command, Word, names

_TALKERS = names(
    """
    echo printf pwd true false : whoami id uname arch basename dirname seq sleep which type nproc
    uptime printenv locale tr exit return break continue wait test [ command env tput getconf expr
    shift groups
    """
)
"""Read no file that an argument names."""
_PLAIN_READERS = names(
    """
    cat head tail wc ls stat df nl tac rev cut paste comm join fold expand unexpand column strings od hexdump md5sum
    sha1sum sha256sum sha512sum cksum readlink realpath cmp jq du cd egrep fgrep grep zcat uniq read set
    """
)
_READERS: dict[str, tuple[str, ...]] = {  # with the options by which they would do more
    **dict.fromkeys(_PLAIN_READERS, ()),
    "diff": ("--to-file", "--from-file"),
    "file": ("-C", "--compile"),
    "date": ("-s", "--set"),
    "tree": ("-o", "-R"),
    "sort": ("-o", "--output", "--compress-program", "-T", "--temporary-directory", "--files0-from"),
    "find": ("-delete", "-fprint", "-fprintf", "-fprint0", "-fls", "-files0-from", "-follow", "-L"),
    "fd": ("-x", "-X", "--exec", "--exec-batch", "-L", "--follow"),
    "rg": ("--pre", "--pre-glob", "--hostname-bin", "-z", "--search-zip", "-L", "--follow"),
    "awk": ("-f", "-i", "-l", "-E", "--file", "--include", "--load", "--exec"),
    "sed": ("-i", "--in-place", "-f", "--file"),
}
_READERS["gawk"] = _READERS["mawk"] = _READERS["awk"]
_PATTERN_FIRST = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "rg"), "ef"),
    "sed": "e",
    **dict.fromkeys(("awk", "gawk", "mawk", "jq", "fd"), ""),
}
"""Whose first word is a pattern, not a path, unless one of these options gives it."""
_VERSIONED = names(
    """
    python python3 node npm cargo rustc gcc clang make cmake ruby perl java uv pip pip3 ruff mypy
    pytest docker git bash rg fd yarn pnpm deno bun poetry
    """
)
_GIT_PLAIN_READS = names(
    """
    status log diff show blame shortlog rev-parse ls-files ls-tree describe rev-list cat-file grep merge-base name-rev
    count-objects whatchanged for-each-ref show-ref diff-tree version show-branch cherry
    """
)
_GIT_SOMETIMES = {"branch", "tag", "remote", "stash", "config", "worktree", "reflog", "submodule"}
_GIT_LISTS = {
    "branch": r"--list|-l|-a|-r|-v|-vv|-av|-rv|-avv|--all|--remotes|--show-current|--merged|--no-merged|--contains"
    r"|--sort=\S+|--format=.*",
    "tag": r"--list|-l|-n\d*|--sort=\S+|--contains|--points-at",
}
_GIT_CONFIG_READS = r"--(get|get-all|get-regexp|list|show-origin|show-scope|name-only|global|local|system)|-[lz]"
_GIT_ESCAPES = (
    *("--ext-diff", "--textconv", "--filters", "--output", "--open-files-in-pager", "-O", "--exec", "--upload-pack"),
    *("--show-signature", "--no-index", "--edit-description", "--contents"),
)
_SED_SCRIPT = re.compile(
    r"(\s*((\d+|\$|/[^/\\]*/)(\s*,\s*(\+?\d+|\$|/[^/\\]*/))?)?\s*!?\s*"
    r"([pdq=]|s(?P<d>[/|#,:@])[^\n;]*?(?P=d)[^\n;]*?(?P=d)[gIip0-9]*)\s*(;|$))+"
)
_TAR_ESCAPES = (
    *("--to-command", "--checkpoint-action", "--use-compress-program", "-I", "--rsh-command", "--info-script", "-F"),
    "--new-volume-script",
)
_ESCAPES = _READERS | dict.fromkeys(("tar", "gtar", "bsdtar"), _TAR_ESCAPES)
_SED_ESCAPE = re.compile(r"(^|[;\n\d/$}|#,g\s])[ewrRW](\s|$|\w*[;\n])")
_AWK_ESCAPE = re.compile(r"system|getline|ARGV|ENVIRON|[|>@]|close|fflush")
_LONG_ENOUGH = 3


class Reading(msgspec.Struct, frozen=True):
    """A command that only reads, and the words that may be paths."""

    paths: tuple[Word, ...]
    moves_to: Word | None = None
    """Where it changes directory to."""


def reading(command: Command) -> Reading | None:
    """What `command` reads; None where it might do anything else."""
    name = command.name
    if name in _VERSIONED and [word.text for word in command.arguments] in (["--version"], ["-V"], ["version"]):
        return Reading(())
    if name in _TALKERS:
        return Reading(()) if _only_talks(command) else None
    if name == "git":
        return _git_reading(command)
    if name not in _READERS or escape(command) or not _all_tame(command.arguments, any_name=not _READERS[name]):
        return None
    return _special(command)


def escape(command: Command) -> str:
    """The option or text by which a known command would write or run something else; empty where there is none."""
    name = command.program
    texts = [word.text for word in command.arguments]
    if name == "git":
        at, _ = git_subcommand(texts)
        guarded = at < len(texts) and texts[at] in _GIT_PLAIN_READS
        return _git_escape(texts) or (_computed(command.arguments) if guarded else "")
    if found := next((text for text in texts if _is_option(text, _ESCAPES.get(name, ()), name == "find")), ""):
        return found
    if name in ("awk", "gawk", "mawk") and (found := next((text for text in texts if _AWK_ESCAPE.search(text)), "")):
        return found
    if name == "sed" and (found := next((text for text in texts if _SED_ESCAPE.search(text)), "")):
        return found
    return _computed(command.arguments) if _ESCAPES.get(name) else ""


def _computed(words: Sequence[Word]) -> str:
    """A word that may turn into one of the options; empty where there is none."""
    return "" if _all_tame(words) else next(word.text for word in words if not word.exact)


def written_paths(command: Command) -> tuple[Word, ...]:
    """The words that name what a well-known command writes, moves or removes."""
    plain = tuple(word for word in command.arguments if not word.text.startswith("-"))
    match command.program:
        case "rm" | "rmdir" | "unlink" | "mv" | "tee" | "touch" | "truncate" | "mkdir" | "shred":
            return plain
        case "chmod" | "chown" | "chgrp":
            return plain[1:]
        case "cp" | "ln" | "install" | "rsync" | "scp":
            named = next(
                (word for word in command.arguments if word.text.startswith(("-t", "--target-directory="))), None
            )
            target = (Word(re.sub(r"^(-t|--target-directory=)", "", named.text)),) if named else ()
            return (*plain[-1:], *(word for word in target if word.text))
        case "sed" if any(re.match(r"-[a-zA-Z]*i|--in", word.text) for word in command.arguments):
            return plain[1:] or plain
        case "dd":
            return tuple(Word(word.text[3:], word.exact) for word in plain if word.text.startswith("of="))
    return ()


def may_leave(word: Word) -> Iterator[str]:
    """The paths that a word, or the value of an option, may name."""
    text = word.text
    if not text.startswith("-"):
        yield text
    elif "=" in text:
        yield text.partition("=")[2]
    elif found := re.match(r"-[A-Za-z]+([/~.].*)", text):
        yield found[1]


def _only_talks(command: Command) -> bool:
    texts = [word.text for word in command.arguments]
    if command.name in ("printf", "test", "["):
        return "-v" not in texts
    if command.name in ("command", "env"):
        return command.name == "env" or any(re.fullmatch(r"-[vV]", text) for text in texts[:1])
    return True


def _all_tame(words: Sequence[Word], *, any_name: bool = False) -> bool:
    """Nothing in the words is computed but file patterns, and none of those can become an option that matters.

    Args:
        any_name: no option of the command matters, so that a file may be called like one.
    """
    for word in words:
        if word.text == "--":
            any_name = True
        if not word.exact and (not word.glob or re.search(r"[$`{<>]", word.text)):
            return False
        if not word.exact and not any_name and re.match(r"[-*?\[]", word.text):
            return False
    return True


def _special(command: Command) -> Reading | None:
    name, words = command.name, command.arguments
    plain = [word for word in words if not word.text.startswith("-")]
    match name:
        case "uniq" if len(plain) > 1:
            return None
        case "date" if any(not word.text.startswith("+") for word in plain):
            return None
        case "read":
            return Reading(()) if all(re.fullmatch(r"-r|[a-z_]\w*", word.text) for word in words) else None
        case "set":
            return Reading(()) if all(re.fullmatch(r"[-+][euxo]+|pipefail", word.text) for word in words) else None
        case "cd":
            return Reading((), moves_to=plain[0] if plain else Word("~")) if len(plain) < 2 else None
        case "sed" if not _sed_only_prints(words):
            return None
    return Reading(tuple(_without_pattern(name, words)))


def _sed_only_prints(words: Sequence[Word]) -> bool:
    scripts = [words[at + 1] for at, word in enumerate(words[:-1]) if word.text in ("-e", "--expression")]
    if not scripts:
        scripts = [word for word in words if not word.text.startswith("-")][:1]
    return bool(scripts) and all(word.exact and _SED_SCRIPT.fullmatch(word.text) for word in scripts)


def _without_pattern(name: str, words: Sequence[Word]) -> Iterator[Word]:
    """The words but the one that is a pattern or a script."""
    letters = _PATTERN_FIRST.get(name)
    given = letters is None or any(
        (letters and re.match(rf"-[a-zA-Z]*[{letters}]", word.text)) or re.match(r"--(re|fi|ex)", word.text)
        for word in words
    )
    for word in words:
        if not given and not word.text.startswith("-"):
            given = True
        else:
            yield word


def _is_option(text: str, options: Sequence[str], single_dash: bool) -> bool:
    """`text` is one of `options`: also shortened (`--out`), with a value, or among other letters (`-uo`)."""
    name = text.partition("=")[0]
    for option in options:
        if single_dash or not option.startswith("-"):
            if name == option:
                return True
        elif option.startswith("--"):
            if name.startswith("--") and len(name) >= _LONG_ENOUGH and option.startswith(name):
                return True
        elif re.match(rf"-[a-zA-Z0-9]*{option[1]}", text):
            return True
    return False


# -- git


def git_subcommand(texts: Sequence[str]) -> tuple[int, bool]:
    """Where in the arguments of git the subcommand stands (or past the end),
    and whether only tame options precede it."""
    at, tame = 0, True
    while at < len(texts) and texts[at].startswith("-"):
        if texts[at] in ("-C", "-c", "--git-dir", "--work-tree", "--exec-path", "--namespace", "--config-env"):
            tame = tame and texts[at] == "-C"
            at += 1
        elif texts[at] not in ("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--version"):
            tame = False
        at += 1
    return at, tame


def _git_escape(texts: Sequence[str]) -> str:
    at, tame = git_subcommand(texts)
    if not tame:
        return next(text for text in texts if text.startswith("-") and text != "-C")
    return next((text for text in texts[at:] if _is_option(text, _GIT_ESCAPES, False)), "")


def _git_reading(command: Command) -> Reading | None:
    words = command.arguments
    texts = [word.text for word in words]
    at, tame = git_subcommand(texts)
    if not tame or at >= len(texts) or texts[at] not in _GIT_PLAIN_READS | _GIT_SOMETIMES or not _all_tame(words):
        return None
    rest = texts[at + 1 :]
    if _git_escape(texts) or not git_reads(texts[at], rest):
        return None
    return Reading(tuple(words))


def git_reads(subcommand: str, rest: Sequence[str]) -> bool:
    """The arguments of a subcommand that can also write say that it reads."""
    plain = [text for text in rest if not text.startswith("-")]
    flags = [text for text in rest if text.startswith("-")]
    match subcommand:
        case "branch" | "tag":
            lists = any(re.match(r"--list|-l$|--contains|--merged|--no-merged|--points-at", text) for text in flags)
            return all(re.fullmatch(_GIT_LISTS[subcommand], text) for text in flags) and (lists or not plain)
        case "config":
            asks = any(re.match(r"--get|--list|-l", text) for text in flags) or plain[:1] in (["get"], ["list"])
            return all(re.fullmatch(_GIT_CONFIG_READS, text) for text in flags) and (asks or len(plain) == 1)
        case "remote":
            return list(rest) in ([], ["-v"], ["--verbose"]) or rest[:1] == ["get-url"]
        case "stash":
            return rest[:1] in (["list"], ["show"])
        case "worktree" | "submodule":
            return list(rest) in (["list"], ["list", "--porcelain"], ["status"])
        case "reflog":
            return not rest or rest[0] == "show"
    return True
