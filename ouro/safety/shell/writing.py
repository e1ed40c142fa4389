"""Which words of a command name what it writes, moves or removes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ouro.safety.shell.command import Command, Word
from ouro.safety.shell.tables import names

_OPERANDS = {  # which operands are written
    **dict.fromkeys(names("rm rmdir unlink mv tee touch truncate mkdir shred mkfifo"), slice(None)),
    **dict.fromkeys(["chmod", "chown", "chgrp"], slice(1, None)),
    **dict.fromkeys(names("cp ln install rsync scp split csplit"), slice(-1, None)),
}
_OPTIONS = {  # the options whose value is written
    **dict.fromkeys(["cp", "mv", "ln", "install"], "-t --target-directory"),
    "curl": "-o --output --output-dir -D --dump-header -c --cookie-jar --trace --trace-ascii --stderr --libcurl",
    "wget": "-O --output-document -P --directory-prefix -o --output-file -a --append-output",
    **dict.fromkeys(["tar", "gtar", "bsdtar"], "-C --directory -f --file"),
    "unzip": "-d",
    "sort": "-o --output",
    "patch": "-o --output -d --directory -r --reject-file",
    "git": "-C --git-dir --work-tree --output",
    **dict.fromkeys(names("gcc g++ cc clang ld pandoc"), "-o"),
    "make": "-C --directory",
}


def written_paths(command: Command) -> tuple[Word, ...]:
    """The words, or parts of words, that name what a well-known command writes."""
    name, words = command.program, command.arguments
    operands = tuple(word for word in words if not word.text.startswith("-"))
    found = [*operands[_OPERANDS[name]]] if name in _OPERANDS else []
    if name == "sed" and any(re.match(r"-[a-zA-Z]*i|--in", word.text) for word in words):
        found += operands[1:] or operands
    elif name == "dd":
        found += [Word(word.text[3:], word.exact) for word in operands if word.text.startswith("of=")]
    elif name == "git" and {"clone", "init", "worktree"} & {word.text for word in operands[:2]}:
        found += operands[-1:]
    return (*found, *_values(words, _OPTIONS.get(name, "").split()))


def _values(words: tuple[Word, ...], options: list[str]) -> Iterator[Word]:
    """The values of the options: in the same word or in the next, also after other letters (`-xzf x`)."""
    for number, word in enumerate(words):
        following = words[number + 1 : number + 2]
        name, equals, value = word.text.partition("=")
        for option in options:
            if option.startswith("--"):
                if len(name) > len("--x") and option.startswith(name):
                    yield from (Word(value, word.exact),) if equals else following
            elif found := re.match(rf"-(?!-)[a-zA-Z]*?{option[1]}(.*)", word.text, re.DOTALL):
                yield from (Word(found[1], word.exact),) if found[1] else following
