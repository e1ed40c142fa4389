"""Commands that run other commands: env, xargs, find -exec, sudo, bash -c."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ouro.safety.shell.words import Assignment, Command, Word, names

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "rbash"})
_ANY = Word("…", exact=False)
_VALUED = {  # options of transparent wrappers that take the next word
    "env": ("-u", "--unset", "-C", "--chdir"),
    "nice": ("-n", "--adjustment"),
    "ionice": ("-c", "-n", "--class", "--classdata"),
    "timeout": ("-s", "-k", "--signal", "--kill-after"),
    "stdbuf": ("-i", "-o", "-e", "--input", "--output", "--error"),
    "exec": ("-a",),
    "xargs": ("-I", "-n", "-P", "-L", "-d", "-a", "-s", "-E", "--max-args", "--max-procs", "--delimiter", "--replace",
              "--arg-file", "--max-lines", "--max-chars", "--eof"),
    "time": ("-f", "-o", "--format", "--output"),
}  # fmt: skip
_TRANSPARENT = names(
    """
    env command builtin exec nohup time coproc nice ionice timeout stdbuf setsid xargs noglob
    nocorrect
    """
)
_RUNNERS = names(
    """
    sudo doas su pkexec run0 watch strace ltrace gdb flock parallel uvx npx bunx ssh script xvfb-run
    unshare chroot busybox toybox caffeinate entr rlwrap chpst systemd-run prlimit taskset chrt
    nsenter runuser setpriv firejail bwrap expect torsocks proxychains hyperfine perf valgrind
    unbuffer
    """
)
_RUNNER_WORDS = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), ("exec", "x", "dlx")),
    **dict.fromkeys(("docker", "podman", "kubectl"), ("run", "exec")),
    **dict.fromkeys(("uv", "poetry", "pipenv", "conda", "rustup", "hatch", "pdm", "pixi", "rye"), ("run",)),
    **dict.fromkeys(("bundle", "direnv", "mise", "asdf"), ("exec", "x")),
    "nix": ("run", "shell", "develop"),
}
_FIND_ACTIONS = ("-exec", "-execdir", "-ok", "-okdir")


class Inner(msgspec.Struct, frozen=True):
    """What a command would run besides itself."""

    commands: tuple[Command, ...] = ()
    guesses: tuple[Command, ...] = ()
    scripts: tuple[str, ...] = ()
    transparent: bool = False
    """The command does nothing of its own."""
    doubt: str = ""
    opaque: str = ""


def inner_commands(command: Command) -> Inner:
    """What `command` would run; empty for a command that runs nothing else."""
    name = command.program
    if name in SHELLS:
        return _shell(command)
    if name in ("find", "gfind"):
        return _find(command)
    if name in ("eval", "trap", "source", ".", "alias"):
        return _evaluated(command)
    if name in _TRANSPARENT:
        return _wrapped(command)
    if name in _RUNNERS:
        return _runner(command.arguments)
    if name in _RUNNER_WORDS:
        start = next((at for at, word in enumerate(command.arguments) if word.text in _RUNNER_WORDS[name]), None)
        return Inner() if start is None else _runner(command.arguments[start + 1 :])
    return Inner()


def _shell(command: Command) -> Inner:
    words = command.arguments
    for number, word in enumerate(words):
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word.text):
            script = next((each for each in words[number + 1 :] if not re.match(r"[-+]", each.text)), None)
            if script is None or not script.exact:
                return Inner(opaque=f"what {command.program} -c would run is computed", guesses=_suffixes(words))
            return Inner(scripts=(script.text,), transparent=True)
        if not re.match(r"[-+]", word.text):
            return Inner() if word.exact else Inner(opaque=f"what {command.program} would run is computed")
    if command.stdin is not None:
        return Inner(scripts=(command.stdin,), transparent=True)
    if len(words) == 1 and words[0].text == "--version":
        return Inner()
    return Inner(opaque=f"{command.program} reads its commands from its input")


def _find(command: Command) -> Inner:
    found: list[Command] = []
    words = command.arguments
    for number, word in enumerate(words):
        if word.text in _FIND_ACTIONS:
            end = next((at for at in range(number + 1, len(words)) if words[at].text in (";", "+")), len(words))
            inside = tuple(
                replace(each, exact=False) if "{}" in each.text else each for each in words[number + 1 : end]
            )
            if inside:
                found.append(Command(inside, piped=True))
    return Inner(tuple(found), doubt=_shell_inside(found))


def _shell_inside(commands: Sequence[Command]) -> str:
    inside = any(command.program in SHELLS for command in commands)
    return "it hands file names to a shell" if inside else ""


def _evaluated(command: Command) -> Inner:
    words = command.arguments
    if command.name == "alias":
        return Inner(doubt="it defines an alias", scripts=tuple(word.text.partition("=")[2] for word in words))
    if command.name in ("source", "."):
        computed = any(not word.exact for word in words[:1])
        return Inner(opaque="what it would source is computed" if computed else "", doubt="it sources a script")
    if command.name == "trap":
        words = words[:1]
    if all(word.exact for word in words):
        return Inner(doubt=f"{command.name} runs text", scripts=(" ".join(word.text for word in words),))
    return Inner(opaque=f"what {command.name} would run is computed", guesses=_suffixes(words))


def _wrapped(command: Command) -> Inner:
    name, words = command.program, list(command.arguments)
    if name == "command" and words and re.fullmatch(r"-[pvV]*[vV][pvV]*", words[0].text):
        return Inner()
    if name == "env" and any(re.match(r"-[a-zA-Z]*S|--s", word.text) for word in words):
        return Inner(opaque="env -S splits text into a command", guesses=_suffixes(words))
    assignments = list(command.assignments)
    while words and (words[0].text.startswith("-") or (name == "env" and _NAMED.match(words[0].text))):
        word = words.pop(0)
        if name == "env" and (found := _NAMED.match(word.text)):
            assignments.append(Assignment(found[1], replace(word, text=found[2])))
        elif word.text in _VALUED.get(name, ()) and words:
            words.pop(0)
        elif word.text == "--" and name != "env":
            break
    if name == "timeout" and words:
        words.pop(0)
    return _wrapped_inner(command, words, assignments)


_NAMED = re.compile(r"(\w+)=(.*)", re.DOTALL)


def _wrapped_inner(command: Command, words: list[Word], assignments: list[Assignment]) -> Inner:
    name = command.program
    if not words:
        return Inner(guesses=_suffixes(command.arguments))
    if name == "xargs":
        inner = Command((*words, _ANY), tuple(assignments), piped=True)
        return Inner((inner,), transparent=True, doubt=_shell_inside([inner]))
    inner = replace(command, words=tuple(words), assignments=tuple(assignments))
    writes_file = name == "time" and any(word.text.startswith(("-o", "--o")) for word in command.arguments)
    moves = name == "env" and any(word.text.startswith(("-C", "--c")) for word in command.arguments)
    return Inner((inner,), transparent=True, doubt=f"{name} has options of its own" if writes_file or moves else "")


def _runner(words: Sequence[Word]) -> Inner:
    """A command that may run what its arguments say: nobody but it knows where that starts."""
    texts = [word.text.split() for word in words if re.search(r"\s", word.text)]
    scripts = tuple(Command(tuple(Word(part) for part in parts)) for parts in texts if parts)
    return Inner(guesses=_suffixes(words) + scripts)


def _suffixes(words: Sequence[Word]) -> tuple[Command, ...]:
    return tuple(Command(tuple(words[start:])) for start in range(min(len(words), 12)) if words[start].text)
