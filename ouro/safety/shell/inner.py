"""Commands that run other commands: env, xargs, find -exec, sudo, bash -c."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ouro.safety.shell.command import Assignment, Command, Word
from ouro.safety.shell.tables import names

SHELLS = names("sh bash dash zsh ksh ash fish rbash")
_WRAPPERS = {  # with their options that take a value
    "env": "-u --unset -C --chdir",
    "nice": "-n --adjustment",
    "ionice": "-c -n --class --classdata",
    "timeout": "-s -k --signal --kill-after",
    "stdbuf": "-i -o -e --input --output --error",
    "exec": "-a",
    "xargs": "-I -n -P -L -d -a -s -E --max-args --max-procs --delimiter --replace --arg-file --max-lines --max-chars",
    "time": "-f -o --format --output",
    **dict.fromkeys(("command", "builtin", "nohup", "coproc", "setsid", "noglob", "nocorrect"), ""),
}
_UNDERSTOOD = {
    "timeout": re.compile(r"\d+(\.\d+)?[smhd]?"),
    "nice": re.compile(r"-n|-?\d+|-n-?\d+"),
    "env": re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL),
}
"""The arguments with which a wrapper is judged by what it runs; with any other the line is opaque."""
_RUNNERS = names(
    """
    sudo doas su pkexec run0 watch strace ltrace gdb flock parallel uvx npx bunx ssh script xvfb-run unshare
    chroot busybox toybox caffeinate entr rlwrap chpst systemd-run prlimit taskset chrt nsenter runuser setpriv
    firejail bwrap expect torsocks proxychains hyperfine perf valgrind unbuffer
    """
)
_RUNNING_SUBCOMMANDS = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), ("exec", "x", "dlx")),
    **dict.fromkeys(("docker", "podman", "kubectl"), ("run", "exec")),
    **dict.fromkeys(("uv", "poetry", "pipenv", "conda", "rustup", "hatch", "pdm", "pixi", "rye"), ("run",)),
    **dict.fromkeys(("bundle", "direnv", "mise", "asdf"), ("exec", "x")),
    "nix": ("run", "shell", "develop"),
}
_SETTING = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


class Inner(msgspec.Struct, frozen=True):
    """The commands that a command runs."""

    commands: tuple[Command, ...] = ()
    guesses: tuple[Command, ...] = ()
    scripts: tuple[str, ...] = ()
    transparent: bool = False
    """The command does nothing else."""
    opaque: str = ""
    hidden: str = ""


def inner_commands(command: Command) -> Inner | None:
    """What `command` runs; None for a command that runs nothing else."""
    name = command.program
    texts = [word.text for word in command.arguments]
    if command.kind == "guess" or texts == ["--version"]:
        return None
    if name in SHELLS:
        return _shell(command)
    if name in ("eval", "trap", "source", ".", "alias"):
        return _evaluated(command)
    if name in ("find", "gfind"):
        return _find(command)
    if name in _WRAPPERS:
        return _wrapped(command)
    if name in _RUNNERS:
        return Inner(guesses=_suffixes(command.arguments))
    starts = [at for at, text in enumerate(texts, 1) if text in _RUNNING_SUBCOMMANDS.get(name, ())]
    return Inner(guesses=_suffixes(command.arguments[starts[0] :])) if starts else None


def _shell(command: Command) -> Inner:
    words, name = command.arguments, command.program
    for number, word in enumerate(words):
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word.text):
            script = next((word for word in words[number + 1 :] if not re.match(r"[-+]", word.text)), None)
            if script is None or not script.exact:
                return Inner(hidden=f"what {name} -c would run is computed", guesses=_suffixes(words))
            return Inner(scripts=(script.text,), transparent=True, opaque=f"{name} runs a script")
        if not re.match(r"[-+]", word.text):
            return Inner() if word.exact else Inner(hidden=f"what {name} would run is computed")
    if command.stdin is not None:
        return Inner(scripts=(command.stdin,), transparent=True, opaque=f"{name} runs a script")
    return Inner(hidden=f"{name} reads its commands from its input")


def _evaluated(command: Command) -> Inner:
    words, opaque = command.arguments, f"{command.name} runs text"
    if command.name == "alias":
        return Inner(opaque=opaque, scripts=tuple(word.text.partition("=")[2] for word in words))
    if command.name in ("source", "."):
        is_computed = any(not word.exact for word in words[:1])
        return Inner(opaque="it sources a script", hidden="what it would source is computed" if is_computed else "")
    words = words[:1] if command.name == "trap" else words
    if all(word.exact for word in words):
        return Inner(opaque=opaque, scripts=(" ".join(word.text for word in words),))
    return Inner(hidden=f"what {command.name} would run is computed", guesses=_suffixes(words))


def _find(command: Command) -> Inner | None:
    words, found = command.arguments, []
    for number, word in enumerate(words):
        if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((at for at in range(number + 1, len(words)) if words[at].text in (";", "+")), len(words))
            inside = [replace(word, exact=False) if "{}" in word.text else word for word in words[number + 1 : end]]
            found += [Command(tuple(inside), piped=True)] if inside else []
    return Inner(tuple(found), opaque="find runs a command") if found else None


def _wrapped(command: Command) -> Inner | None:
    name, words = command.program, list(command.arguments)
    if name == "command" and words and words[0].text in ("-v", "-V"):
        return None
    if name == "env" and any(re.match(r"-[a-zA-Z]*S|--s", word.text) for word in words):
        return Inner(hidden="env -S splits text into a command", guesses=_suffixes(words))
    assignments, own = list(command.assignments), []
    while words and (words[0].text.startswith("-") or (name == "env" and _SETTING.match(words[0].text))):
        own.append(words.pop(0))
        if name == "env" and (found := _SETTING.match(own[-1].text)):
            assignments.append(Assignment(found[1], replace(own[-1], text=found[2])))
        elif own[-1].text in _WRAPPERS[name].split() and words:
            own.append(words.pop(0))
    if name == "timeout" and words:
        own.append(words.pop(0))
    if not words:
        return None if name == "env" and not own else Inner(opaque=f"{name} is not understood")
    if name == "xargs":
        words.append(Word("…", exact=False))
    is_understood = name in _UNDERSTOOD and all(word.exact and _UNDERSTOOD[name].fullmatch(word.text) for word in own)
    inner = replace(command, words=tuple(words), assignments=tuple(assignments), piped=command.piped or name == "xargs")
    opaque = "" if is_understood and command.name == name else f"{name} runs a command"
    return Inner((inner,), transparent=True, opaque=opaque, guesses=() if is_understood else _suffixes(words))


def _suffixes(words: Sequence[Word]) -> tuple[Command, ...]:
    """Candidates for the inner command, if its start is unknown."""
    texts = [word.text.split() for word in words if re.search(r"\s", word.text)]
    scripts = [Command(tuple(map(Word, parts)), kind="guess") for parts in texts if parts]
    starts = [at for at in range(min(len(words), 12)) if words[at].text]
    return (*(Command(tuple(words[at:]), kind="guess") for at in starts), *scripts)
