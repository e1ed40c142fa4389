"""Decide on a shell line by mode, rules and the hard floor."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from ouro.safety.permissions import PLAN, Permissions, join_rules
from ouro.safety.rules import (
    Allow,
    Ask,
    Decision,
    Deny,
    Effect,
    Limits,
    Rule,
    has_no_wildcard,
    path_rule,
)
from ouro.safety.shell.command import Command
from ouro.safety.shell.floor import floor, memory_git, memory_reason, reads_all_below
from ouro.safety.shell.parse import MAX_CHARACTERS, ShellLine, parse_line
from ouro.safety.shell.paths import HARMLESS_DEVICES, Places, written_paths
from ouro.safety.shell.read_only import files_read, find_unlisted, git_words, only_reads
from ouro.safety.shell.tables import names
from ouro.safety.shell.wrappers import SHELLS
from ouro.safety.workspace import Workspace

_MAX_SHOWN = 60
_NOT_IN_PLAN_MODE = (
    f"{PLAN} Shell lines that only read are allowed; this one does more, or cannot be judged."
)
_SEES_PROCESSES = names("ps pgrep lsof ss netstat")
"""Commands that run outside of the sandbox, because it has its own processes. They may be combined
with `_FILTERS`.
"""
_FILTERS = names("grep egrep head tail wc sort uniq cut awk echo true sleep")
_PREFIX = re.compile(
    r"((npm|yarn|pnpm|bun|uv|poetry)\0run|uv\0pip|docker\0compose|python3?\0-m|gh\0(pr|issue)|(bundle|pnpm)\0exec)\0[^\0]+"
    r"|(git|cargo|go|docker|kubectl|gh|uv|pip3?|poetry|brew|apt|conda|bundle|dotnet|mvn|gradle|rustup|make|just|tox|nox"
    r"|pnpm|yarn|npm|bun|deno|helm|terraform)\0[^\0]+|[^\0]*"
)
"""The words that name what a command does."""
_INTERPRETERS = re.compile(
    r"(python|pypy|perl|ruby|node|deno|bun|php|lua|awk|gawk|mawk|osascript)[\d.]*"
)
_NARROW = names("""
    rm rmdir mv cp ln chmod chown curl wget ssh scp rsync tee sed find xargs kill touch mkdir tar unzip dd
    truncate eval source . nc npx uvx bunx watch parallel
    """) | {
    "docker run",
    "docker exec",
    "uv run",
    "uv run python",
    "poetry run",
    "bundle exec",
    "pnpm exec",
}
"""These are offered as a rule only word for word, because their effect depends on every word."""
_GIT_OF_NAMES = re.compile(
    r"(status|add|commit|rev-parse|ls-files|branch|remote|switch|push|fetch)(\0(?!-\w*[ipv]|--[ipv])[^\0]*)*"
    r"|log(\0(-n?\d*|[^-\0][^\0]*|--((oneline|graph|all|decorate|(short)?stat|name-(only|status)|follow|reverse|merges"
    r"|no-merges|(format|pretty|since|until|author|grep|date)=[^\0]*)?)))*"
)
"""A git command that prints names of files and commits, but no contents of files."""
_LOCAL_GIT = names(
    "add am apply branch checkout cherry-pick commit merge mv notes reset restore revert rm stash"
    " switch tag"
)
_ACTING = re.compile(
    r"(LD_|DYLD_|GIT_|BASH|ZDOTDIR|PROMPT|PS\d|PYTHON(STARTUP|HOME|INSPECT)|NODE_OPTIONS|PERL5|RUBYOPT|JAVA_TOOL|IFS|SHELL"
    r"|\w*(PAGER|EDITOR|BROWSER)$|PATH$|ENV$|HOME$|\w*_proxy$)",
    re.IGNORECASE,
)
"""Variables that can make a program run another one: never offered as a rule."""


class Need(msgspec.Struct, frozen=True):
    """One permission that a line needs: a command, a path to read or write, a commit to long-term
    memory.
    """

    kind: Literal["command", "read", "write", "memory"]
    text: str
    command: Command | None = None
    paths: tuple[Path, ...] = ()
    """The files that are read or written; for a command that only creates files, these files."""


def decide_line(policy: Permissions, tool: str, text: str, *, outside: bool = False) -> Decision:
    """What to do with a shell line: each command in it is judged separately."""
    line = parse_line(text)
    places = Places(policy.workspace, line)
    if denied := _find_line_rule(policy, "deny", tool, line, places):
        rule, shown = denied
        retry = "" if shown else " Do not retry it in another form; ask the user."
        return Deny(f"The rule `deny {rule}` forbids {shown or 'this'}.{retry}")
    # It needs a question in any case, and judging it would take seconds.
    if len(text) > MAX_CHARACTERS:
        return Deny(_NOT_IN_PLAN_MODE) if policy.mode == "plan" else Ask(line.hidden)
    needs = tuple(dict.fromkeys(_needs(line, places)))
    opaque = line.opaque or places.lost or _find_unknown(line)
    always = floor(line, places) or memory_reason(line, text, places)
    if policy.mode == "plan" and (always or opaque or any(need.kind != "read" for need in needs)):
        return Deny(_NOT_IN_PLAN_MODE)
    if always or line.hidden:
        return Ask(always or line.hidden)
    if any(need.kind == "memory" for need in needs) and (reason := policy.finds_secret(text)):
        return Deny(f"The commit message holds a secret ({reason}). Commit to memory without it.")
    if asked := _find_line_rule(policy, "ask", tool, line, places):
        rule, shown = asked
        return Ask(f"{shown}: the rule `ask {rule}` says so".removeprefix(": "))
    if (
        policy.find_rule("allow", tool, Effect.RUN, lambda rule: rule.pattern is None)
        and policy.mode != "plan"
    ):
        return Allow()
    if leak := _find_leak(policy, tool, line, places):
        return Ask(leak)
    missing = [need for need in needs if not _is_met(policy, tool, need)]
    limits = _limits(policy, line, needs)
    by_rule = bool(needs) and not missing and not opaque and limits == "off"
    if outside and not by_rule:
        commands = [need for need in missing if need.kind == "command"]
        offered = (
            "" if opaque else join_rules([_rule_for(need, policy.workspace) for need in commands])
        )
        return Ask("it runs outside of the sandbox, with all your rights", offered)
    if policy.mode == "auto" and policy.workspace.confines():
        for path, is_written, _ in places.opened(line):
            if (
                is_written
                and places.is_elsewhere(path)
                and not policy.permits_path("write", Effect.WRITE, path)
            ):
                return Ask(f"it writes to {policy.workspace.shown(path)}, outside the workspace")
        if not (opaque or missing):
            return Allow(limits)
        return Allow(
            "repository" if not opaque and all(map(_is_local_git, missing)) else "workspace"
        )
    if opaque or missing:
        why = "" if policy.mode != "auto" else " (auto asks, because no sandbox works here)"
        offered = (
            "" if opaque else join_rules([_rule_for(need, policy.workspace) for need in missing])
        )
        return Ask(f"{opaque or _reason(missing)}{why}", offered)
    return Allow(limits)


def _find_unknown(line: ShellLine) -> str:
    """Why the effect of a line is not known: a command that may change something has a computed
    word. Else empty.
    """
    for command in line.commands:
        if command.kind == "plain" and (word := command.computed) and not only_reads(command):
            return f"what {command.program} gets as {word.raw or word.text} is not known"
    return ""


def _is_local_git(need: Need) -> bool:
    """Whether a need is a git command that writes .git, and runs nothing but git and the hooks of
    the repository.
    """
    if need.command is None or need.command.name != "git" or need.command.settings:
        return False
    words = [word.text for word in need.command.arguments]
    return bool(words) and words[0] in _LOCAL_GIT


def _limits(policy: Permissions, line: ShellLine, needs: Sequence[Need]) -> Limits:
    """What a line may change if all its needs are met; what a rule of the user allows runs outside
    of the sandbox.
    """
    if any(need.kind == "command" and not need.paths for need in needs) or _only_sees_processes(
        line
    ):
        return "off"
    written = [path for need in needs if need.kind in ("write", "command") for path in need.paths]
    in_memory = [path for path in written if policy.workspace.is_memory(path)]
    if in_memory or any(need.kind == "memory" for need in needs):
        return "memory" if len(in_memory) == len(written) else "off"
    return "workspace" if written or policy.mode in ("edit", "auto") else "read"


def _only_sees_processes(line: ShellLine) -> bool:
    """Whether a line only shows processes or sockets of the machine."""
    found = [command for command in line.commands if command.program not in _SEES_PROCESSES]
    filters = all(
        command.program in _FILTERS and files_read(command) == () and not reads_all_below(command)
        for command in found
    )
    writes = any(
        redirect.writes and redirect.target.text not in HARMLESS_DEVICES
        for redirect in line.redirects
    )
    return len(found) < len(line.commands) and filters and not writes


# -- what a line needs


def _needs(line: ShellLine, places: Places) -> Iterator[Need]:
    for command in line.commands:
        is_mixed = command.program in _SEES_PROCESSES and not _only_sees_processes(line)
        if command.kind != "guess" and (is_mixed or places.has_program(command.name)):
            yield Need("command", command.text, command)
        elif command.kind == "plain":
            yield from _command_needs(command, places)
    for redirect in line.redirects:
        if (
            not redirect.duplicates
            and redirect.target.exact
            and redirect.target.text not in HARMLESS_DEVICES
        ):
            for path in places.named(redirect.target.text):
                if redirect.writes or places.is_outside(path):
                    yield Need(
                        "write" if redirect.writes else "read",
                        places.workspace.shown(path),
                        paths=(path,),
                    )


def _command_needs(command: Command, places: Places) -> Iterator[Need]:
    found = files_read(command)
    if memory_git(command, places):
        yield Need("memory", command.text, command)
    elif not isinstance(found, tuple) or command.settings:
        created: tuple[Path, ...] = ()
        if command.name in ("mkdir", "touch") and all(word.exact for word in command.words):
            created = tuple(
                path for word in written_paths(command) for path in places.named(word.text)
            )
        yield Need("command", command.text, command, created)
    elif command.program == "git" and (setting := places.program_of_git(command)):
        yield Need("command", f"git with the repository's {setting[:30]}", command)
    elif strange := next(
        filter(None, (places.strange_match(command, word) for word in command.words)), ""
    ) or (places.odd_name(command)):
        yield Need("command", f"{command.name}: {strange}", command)
    else:
        for word in (*found, *(word for word in command.arguments if word.glob)):
            if outside := next(filter(places.is_outside, places.of_word(word)), None):
                yield Need("read", places.workspace.shown(outside), paths=(outside,))


# -- rules


def _find_line_rule(
    policy: Permissions, kind: Literal["ask", "deny"], tool: str, line: ShellLine, places: Places
) -> tuple[Rule, str] | None:
    """A rule that asks about or denies the line, and the path in it that the rule is about; empty
    for a command.
    """
    texts = _texts(line.commands)
    if rule := policy.find_rule(
        kind, tool, Effect.RUN, lambda rule: any(map(rule.matches_line, texts))
    ):
        return rule, ""
    has_rules = any(
        policy.find_rule(kind, effect.value, effect, bool) for effect in (Effect.READ, Effect.WRITE)
    )
    opened = (
        dict.fromkeys((path, is_written) for path, is_written, _ in places.opened(line))
        if has_rules
        else ()
    )
    for path, is_written in opened:
        rule = policy.find_path_rule(kind, "read", Effect.READ, path, path)
        if rule is None and is_written:
            rule = policy.find_path_rule(kind, "write", Effect.WRITE, path, path)
        if rule:
            return rule, policy.workspace.shown(path)
    return None


def _find_leak(policy: Permissions, tool: str, line: ShellLine, places: Places) -> str:
    """Why a line may print what a rule denies to read, although the line does not name it; empty if
    it cannot.

    The sandbox hides such files, but not their contents in git.
    """
    unreadable = policy.unreadable()
    if unreadable is None:
        return ""
    for command in line.commands:
        if policy.find_rule("allow", tool, Effect.RUN, partial(_allows, command=command)):
            continue
        texts = (
            [word.text for word in git_words(command.arguments)[0]]
            if command.program == "git"
            else []
        )
        if command.program == "git" and not _GIT_OF_NAMES.fullmatch("\0".join(texts)):
            if found := places.tracked(command, unreadable.fullmatch):
                return f"git may print {found}, which a rule denies to read"
        elif reads_all_below(command) and not policy.workspace.hides():
            return f"{command.program} may print what a rule denies to read: no sandbox hides it"
    return ""


def _is_met(policy: Permissions, tool: str, need: Need) -> bool:
    """Whether rules or mode allow one thing that a line needs."""
    command = need.command
    if need.kind == "memory":
        return True
    if need.kind == "read":
        return all(policy.permits_path("read", Effect.READ, path) for path in need.paths)
    is_writable = bool(need.paths) and all(
        policy.permits_path("write", Effect.WRITE, path) and not policy.workspace.protection(path)
        for path in need.paths
    )
    if command is None or is_writable:
        return is_writable
    # Words after the first two may be secrets, which are not recorded.
    shown = " ".join(
        word.text for word in command.words[:2] if re.fullmatch(r"[\w./-]{1,24}", word.text)
    )
    return bool(
        policy.find_rule("allow", tool, Effect.RUN, lambda rule: _allows(rule, command), shown)
    )


def _allows(rule: Rule, command: Command) -> bool:
    """Whether an allow rule covers a command, its settings, and each option that is not listed for
    it.
    """
    settings = [f"{setting.name}={setting.value.text}" for setting in command.settings]
    if not all(setting.value.exact for setting in command.assignments) or any(
        text not in str(rule) for text in settings
    ):
        return False
    # A star covers no such option: with `sort -o x *`, `--compress-program` would run a program.
    pattern = f" {' '.join((rule.pattern or '').replace(':*', ' ').replace('*', '').split())} "
    named = {
        word.text for word in command.arguments if f" {' '.join(word.text.split())} " in pattern
    }
    return rule.matches_line(" ".join([*settings, command.text])) and not find_unlisted(
        command, named
    )


def _texts(commands: Sequence[Command]) -> list[str]:
    """The texts of commands that deny and ask rules cover: with and without folder and options of
    git.
    """
    texts: list[str] = []
    for command in commands:
        arguments = command.arguments
        variants = [arguments, git_words(arguments)[0]] if command.program == "git" else [arguments]
        texts += [
            command.text,
            *(" ".join([command.program, *(word.text for word in words)]) for words in variants),
        ]
    return list(dict.fromkeys(" ".join(text.split()) for text in texts))


# -- the text of the question


def _reason(missing: Sequence[Need]) -> str:
    verbs = {"command": "it runs", "memory": "it runs", "read": "it reads", "write": "it writes to"}
    first = missing[0]
    name = first.command.name if first.command and len(first.text) > _MAX_SHOWN else first.text
    settings = [setting.name for setting in first.command.settings] if first.command else []
    with_settings = f" with {', '.join(settings)} set" if settings else ""
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"{verbs[first.kind]} {name}{with_settings}{more}"


def _rule_for(need: Need, workspace: Workspace) -> str:
    """The rule that would always allow `need`; empty if no rule is sensible."""
    if need.kind == "memory":
        return ""
    if need.kind != "command" or need.command is None:
        return path_rule(need.kind, need.paths[0], workspace)
    command = need.command
    words = [word.text for word in command.words]
    is_plain = all(word.exact for word in command.words[:2]) and all(
        has_no_wildcard(text) for text in words[:3]
    )
    if not is_plain or not words[0].strip() or find_unlisted(command) or command.program in SHELLS:
        return ""
    if command.stdin is not None and command.name != "git":
        return ""  # its effect depends on the text
    for setting in command.settings:
        if (
            not setting.value.exact
            or not has_no_wildcard(setting.value.text)
            or _ACTING.match(setting.name)
        ):
            return ""
    pattern = _pattern(command, words)
    settings = "".join(f"{setting.name}={setting.value.text} " for setting in command.settings)
    return f"shell({settings}{pattern})" if pattern else ""


def _pattern(command: Command, words: list[str]) -> str:
    if _INTERPRETERS.fullmatch(command.program) and not (len(words) > 2 and words[1] == "-m"):
        is_script = len(words) > 1 and not words[1].startswith("-")
        return f"{words[0]} {words[1]} *" if is_script else ""
    found = _PREFIX.match("\0".join(words))
    prefix = found[0].replace("\0", " ") if found else ""
    if prefix in _NARROW or command.program in _NARROW or prefix.split()[-1].startswith("-"):
        whole = all(word.exact for word in command.words) and has_no_wildcard(command.text)
        return command.text if whole else ""
    return f"{prefix} *"
