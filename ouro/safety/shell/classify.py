"""Classify a shell line: its commands that do more than read in the workspace, and the files that it opens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from ouro.safety.rules import path_rule, plain
from ouro.safety.shell.command import Assignment, Command, Redirect
from ouro.safety.shell.floor import floor
from ouro.safety.shell.inner import SHELLS
from ouro.safety.shell.memory import memory_git, memory_reason
from ouro.safety.shell.parse import ShellLine, parse_line
from ouro.safety.shell.paths import HARMLESS_DEVICES, Places
from ouro.safety.shell.reading import CommandReading, may_name, reading, unlisted
from ouro.safety.shell.tables import names
from ouro.safety.shell.writing import written_paths
from ouro.safety.workspace import Workspace

_TWO_WORDS = names(
    """
    git cargo go docker kubectl gh uv pip pip3 poetry brew apt conda bundle dotnet mvn gradle rustup make just
    tox nox pnpm yarn npm bun deno helm terraform
    """
)
_THREE_WORDS = (
    "npm run", "yarn run", "pnpm run", "bun run", "uv run", "uv pip", "poetry run", "docker compose", "python -m",
    "python3 -m", "gh pr", "gh issue", "bundle exec", "pnpm exec",
)  # fmt: skip
_LEVELS = {**dict.fromkeys(_TWO_WORDS, 2), **dict.fromkeys(_THREE_WORDS, 3)}
"""How many words name what a command does."""
_INTERPRETERS = re.compile(r"(python|pypy|perl|ruby|node|deno|bun|php|lua|awk|gawk|mawk|osascript)[\d.]*")
_NARROW = names(
    """
    rm rmdir mv cp ln chmod chown curl wget ssh scp rsync tee sed find xargs kill touch mkdir tar unzip dd
    truncate eval source . nc npx uvx bunx watch parallel
    """
) | {"docker run", "docker exec", "uv run", "uv run python", "poetry run", "bundle exec", "pnpm exec"}
"""Offered as a rule only word for word: what they do depends on every word."""
_ACTING = re.compile(
    r"(LD_|DYLD_|GIT_|BASH|ZDOTDIR|PROMPT|PS\d|PYTHON(STARTUP|HOME|INSPECT)|NODE_OPTIONS|PERL5|RUBYOPT|JAVA_TOOL|IFS|SHELL"
    r"|\w*(PAGER|EDITOR|BROWSER)$|PATH$|ENV$|HOME$|\w*_proxy$)",
    re.IGNORECASE,
)
"""Variables by which a program is made to run another: never offered as a rule."""


class Need(msgspec.Struct, frozen=True):
    """One permission that a line needs: a command, a path to read or write, a commit to long-term memory."""

    kind: Literal["command", "read", "write", "memory"]
    text: str
    command: Command | None = None
    paths: tuple[Path, ...] = ()
    """What is read or written; for a command that only creates files, those files."""


class Judgement(msgspec.Struct, frozen=True):
    """What a shell line does, before modes and rules are applied."""

    line: ShellLine
    needs: tuple[Need, ...]
    floor: str
    opaque: str
    """Why it cannot be judged."""
    opened: tuple[tuple[Path, bool], ...]
    """Every path that a word or redirection may name, and whether it is written."""

    @property
    def only_reads(self) -> bool:
        return not (self.needs or self.floor or self.opaque)


def judge(text: str, workspace: Workspace) -> Judgement:
    line = parse_line(text)
    places = Places(workspace, line)
    needs = [need for command in line.commands if command.kind == "plain" for need in _needs(command, places)]
    needs += [need for redirect in line.redirects for need in _redirect_needs(redirect, places)]
    asked = floor(line, places) or memory_reason(line, text, places)
    opaque = line.opaque or places.lost
    return Judgement(line, tuple(dict.fromkeys(needs)), asked, opaque, tuple(_opened(line, places)))


def rule_for(need: Need, workspace: Workspace) -> str:
    """The rule that would always allow `need`; empty if no rule is sensible."""
    if need.kind == "memory":
        return ""
    if need.kind != "command" or need.command is None:
        return path_rule(need.kind, need.paths[0], workspace)
    return _command_rule(need.command)


def _needs(command: Command, places: Places) -> Iterator[Need]:
    found = reading(command)
    is_harmless = all(one.harmless and re.fullmatch(r"[\w.:@+-]*", one.value.text) for one in command.assignments)
    if memory_git(command, places):
        yield Need("memory", command.text, command)
    elif not isinstance(found, CommandReading) or not is_harmless:
        created: tuple[Path, ...] = ()
        if command.name in ("mkdir", "touch") and all(word.exact for word in command.words):
            created = tuple(path for word in written_paths(command) for path in places.named(word.text))
        yield Need("command", command.text, command, created)
    elif command.program == "git" and (setting := places.program_of_git(command)):
        yield Need("command", f"git with the repository's {setting[:30]}", command)
    elif strange := next(filter(None, map(places.strange_match, command.words)), ""):
        yield Need("command", f"{command.name}: {strange}", command)
    elif command.name == "diff" and any(path.is_dir() for word in found.paths for path in places.read(word)):
        yield Need("command", command.text, command)  # it compares folders and follows links
    else:
        yield from _read_needs(found, places)


def _read_needs(found: CommandReading, places: Places) -> Iterator[Need]:
    for word in (*found.paths, found.moves_to) if found.moves_to else found.paths:
        paths = list(places.read(word)) if not word.text.startswith("-") else []
        paths += [path for text in may_name(word) for path in places.named(text)]
        if outside := next(filter(places.is_outside, paths), None):
            yield Need("read", places.workspace.shown(outside), paths=(outside,))


def _redirect_needs(redirect: Redirect, places: Places) -> Iterator[Need]:
    if redirect.duplicates or not redirect.target.exact or redirect.target.text in HARMLESS_DEVICES:
        return
    for path in places.named(redirect.target.text):
        if redirect.writes:
            yield Need("write", places.workspace.shown(path), paths=(path,))
        elif places.is_outside(path):
            yield Need("read", places.workspace.shown(path), paths=(path,))


def _opened(line: ShellLine, places: Places) -> Iterator[tuple[Path, bool]]:
    for redirect in line.redirects:
        if not redirect.duplicates and redirect.target.text not in HARMLESS_DEVICES:
            yield from ((path, redirect.writes) for path in places.named(redirect.target.text))
    for command in line.commands:
        if not isinstance(reading(command), CommandReading):
            yield from ((path, True) for word in written_paths(command) for path in places.named(word.text))
        for word in command.arguments:
            yield from ((path, False) for text in may_name(word) for path in places.named(text))
            if word.glob and not word.text.startswith("-"):
                yield from ((path, False) for path in places.read(word))


def _command_rule(command: Command) -> str:
    words = [word.text for word in command.words]
    if (
        not all(word.exact for word in command.words[:2])
        or not all(plain(text) for text in words[:3])
        or unlisted(command)
        or not words[0].strip()
    ):
        return ""
    if command.program in SHELLS or not all(_may_be_offered(one) for one in command.assignments):
        return ""
    settings = "".join(f"{one.name}={one.value.text} " for one in command.assignments if not one.harmless)
    pattern = _plain_rule(command, words)
    return f"shell({settings}{pattern})" if pattern else ""


def _may_be_offered(setting: Assignment) -> bool:
    return setting.harmless or (setting.value.exact and plain(setting.value.text) and not _ACTING.match(setting.name))


def _plain_rule(command: Command, words: list[str]) -> str:
    if _INTERPRETERS.fullmatch(command.program) and not (len(words) > 2 and words[1] == "-m"):
        scripted = len(words) > 1 and not words[1].startswith("-")
        return f"{words[0]} {words[1]} *" if scripted else ""
    prefix = _prefix(words)
    if prefix in _NARROW or command.program in _NARROW or prefix.split()[-1].startswith("-"):
        whole = all(word.exact for word in command.words) and plain(command.text)
        return command.text if whole else ""
    return f"{prefix} *"


def _prefix(words: list[str]) -> str:
    """The command with its subcommand: `git push`, `npm run test`, `pytest`."""
    for length in (2, 1):
        if (levels := _LEVELS.get(" ".join(words[:length]))) and len(words) > length:
            return " ".join(words[:levels])
    return words[0]
