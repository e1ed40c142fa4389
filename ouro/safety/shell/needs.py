"""What a shell line needs before it may run: commands, paths to read or write, commits to long-term
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from ouro.safety.shell.command import Command, Redirect, ShellLine, Word
from ouro.safety.shell.floor import memory_git, reads_all_below
from ouro.safety.shell.paths import HARMLESS_DEVICES, Places, written_paths
from ouro.safety.shell.read_only import files_read
from ouro.safety.shell.tables import names

_PROCESS_VIEWERS = names("ps pgrep lsof ss netstat")
"""Commands that show the processes of the machine. They run outside of the sandbox, where they
would see only its own processes, alone or combined with `_FILTERS`.
"""
_FILTERS = names("grep egrep head tail wc sort uniq cut awk echo true sleep")
_CREATORS = ("mkdir", "touch")


class Need(msgspec.Struct, frozen=True):
    """One permission that a line needs: a command, a path to read or write, a commit to long-term
    memory.
    """

    kind: Literal["command", "read", "write", "memory"]
    text: str
    command: Command | None = None
    paths: tuple[Path, ...] = ()
    """The files that are read or written; for a command that only creates files, these files."""


def find_needs(line: ShellLine, places: Places) -> Iterator[Need]:
    """Yields everything that a line needs, in the order of the line. The same need may come twice.

    A command is needed as a whole if a program of the workspace may run in its place, or if it
    mixes processes of the machine with other work. A wrapper such as `env`, and a guess, need
    nothing themselves: what they run is in the line too.
    """
    for command in line.commands:
        is_from_workspace = command.kind != "guess" and places.has_program(command.name)
        if is_from_workspace or _mixes_processes(command, line):
            yield Need("command", command.text, command)
        elif command.kind == "plain":
            yield from _command_needs(command, places)
    for redirect in line.redirects:
        yield from _redirect_needs(redirect, places)


def only_sees_processes(line: ShellLine) -> bool:
    """Whether a line only shows processes or sockets of the machine: at least one command does
    that, all others are filters, and no file is written.
    """
    others = [command for command in line.commands if command.program not in _PROCESS_VIEWERS]
    has_no_viewer = len(others) == len(line.commands)
    if has_no_viewer:
        return False
    filters = all(map(_is_filter, others))
    writes = any(
        redirect.writes and redirect.target.text not in HARMLESS_DEVICES
        for redirect in line.redirects
    )
    return filters and not writes


def _is_filter(command: Command) -> bool:
    """Whether a command is one of `_FILTERS` and reads nothing but its input."""
    if command.program not in _FILTERS or reads_all_below(command):
        return False
    files = files_read(command)
    return files == ()  # it only reads, and names no file


def _mixes_processes(command: Command, line: ShellLine) -> bool:
    """Whether a command shows processes of the machine, in a line that does not only filter them.
    Then it needs a permission of its own.
    """
    if command.kind == "guess" or command.program not in _PROCESS_VIEWERS:
        return False
    return not only_sees_processes(line)


def _redirect_needs(redirect: Redirect, places: Places) -> Iterator[Need]:
    """Yield a need for each path that a redirection writes, or reads outside of the workspace. A
    computed target makes the line opaque, so it is left out here.
    """
    target = redirect.target
    if redirect.duplicates or not target.exact or target.text in HARMLESS_DEVICES:
        return
    for path in places.paths_of(target.text):
        shown = places.workspace.shown(path)
        if redirect.writes:
            yield Need("write", shown, paths=(path,))
        elif places.is_outside(path):
            yield Need("read", shown, paths=(path,))


def _command_needs(command: Command, places: Places) -> Iterator[Need]:
    """Yields what one command needs; nothing for a command that only reads in the workspace."""
    # A tuple only if the command only reads.
    files = files_read(command)
    if memory_git(command, places):
        yield Need("memory", command.text, command)
    elif not isinstance(files, tuple) or command.settings:  # it may do more than read
        yield Need("command", command.text, command, paths=_created_files(command, places))
    elif setting := _program_of_git(command, places):
        yield Need("command", f"git with the repository's {setting[:30]}", command)
    elif reason := _strange_files(command, places):
        yield Need("command", f"{command.name}: {reason}", command)
    else:
        # bash reads the folders in which it looks for the files of a pattern.
        patterns = (word for word in command.arguments if word.glob)
        for word in (*files, *patterns):
            yield from _outside_needs(word, places)


def _created_files(command: Command, places: Places) -> tuple[Path, ...]:
    """Returns the files that `mkdir` or `touch` creates. Empty for any other command, and if bash
    computes one of the words.
    """
    if command.name not in _CREATORS or not all(word.exact for word in command.words):
        return ()
    paths: list[Path] = []
    for word in written_paths(command):
        paths += places.paths_of(word.text)
    return tuple(paths)


def _program_of_git(command: Command, places: Places) -> str:
    """Returns a setting of the repository by which a command of git runs a program. Empty if there
    is none, or if it is not a command of git.
    """
    return places.program_of_git(command) if command.program == "git" else ""


def _strange_files(command: Command, places: Places) -> str:
    """Returns why the files that the words of a command stand for cannot be judged; empty if
    they can.
    """
    for word in command.words:
        if reason := places.strange_match(command, word):
            return reason
    return places.odd_name(command)


def _outside_needs(word: Word, places: Places) -> Iterator[Need]:
    """Yields one need: to read the first path outside of the workspace that a word may name. Yields
    nothing if all of them are inside.
    """
    outside = next(filter(places.is_outside, places.paths_of_word(word)), None)
    if outside is not None:
        yield Need("read", places.workspace.shown(outside), paths=(outside,))
