"""The rules that the answer "always" to a question about a shell line would save, and the reason
that the question gives.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ouro.safety.permissions import join_rules
from ouro.safety.rules import has_no_wildcard, path_rule
from ouro.safety.shell.command import Assignment, Command
from ouro.safety.shell.needs import Need
from ouro.safety.shell.program_options import find_program_option
from ouro.safety.shell.read_only import find_unlisted
from ouro.safety.shell.tables import names
from ouro.safety.shell.wrappers import SHELLS
from ouro.safety.workspace import Workspace

_MAX_LENGTH_SHOWN = 60
_VERBS = {"command": "it runs", "memory": "it runs", "read": "it reads", "write": "it writes to"}
_NAMING_WORDS = re.compile(
    r"((npm|yarn|pnpm|bun|uv|poetry)\0run|uv\0pip|docker\0compose|python3?\0-m|gh\0(pr|issue)|(bundle|pnpm)\0exec)\0[^\0]+"
    r"|(git|cargo|go|docker|kubectl|gh|uv|pip3?|poetry|brew|apt|conda|bundle|dotnet|mvn|gradle|rustup|make|just|tox|nox"
    r"|pnpm|yarn|npm|bun|deno|helm|terraform)\0[^\0]+|[^\0]*"
)
"""The first words of a command, joined by zero characters, that name what it does: `npm run test`,
`git commit`, `ls`.
"""
_INTERPRETERS = re.compile(
    r"(python|pypy|perl|ruby|node|deno|bun|php|lua|awk|gawk|mawk|osascript)[\d.]*"
)
_ONLY_WORD_FOR_WORD = names("""
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
_ACTING_VARIABLE = re.compile(
    r"(LD_|DYLD_|GIT_|BASH|ZDOTDIR|PROMPT|PS\d|PYTHON(STARTUP|HOME|INSPECT)|NODE_OPTIONS|PERL5|RUBYOPT|JAVA_TOOL|IFS|SHELL"
    r"|\w*(PAGER|EDITOR|BROWSER)$|PATH$|ENV$|HOME$|\w*_proxy$)",
    re.IGNORECASE,
)
"""Variables that can make a program run another one: never offered as a rule."""


def describe(missing: Sequence[Need]) -> str:
    """Returns the reason for a question about needs that nothing allows. It names the first one,
    with the variables that its command sets, and the number of the others.
    """
    first, *others = missing
    name = first.text
    if first.command and len(first.text) > _MAX_LENGTH_SHOWN:
        name = first.command.name
    settings = [setting.name for setting in first.command.settings] if first.command else []
    with_settings = f" with {', '.join(settings)} set" if settings else ""
    and_more = f" and {len(others)} more" if others else ""
    return f"{_VERBS[first.kind]} {name}{with_settings}{and_more}"


def offer_rules(needs: Sequence[Need], workspace: Workspace) -> str:
    """Returns the rules that would always allow `needs`, as one text; empty if one of them cannot
    have a rule, or there would be too many.
    """
    return join_rules([_rule_for(need, workspace) for need in needs])


def _rule_for(need: Need, workspace: Workspace) -> str:
    """Returns the rule that would always allow one need; empty if it cannot have one."""
    if need.kind == "memory":  # is allowed without a rule
        return ""
    if need.kind != "command" or need.command is None:
        return path_rule(need.kind, need.paths[0], workspace)
    return _rule_for_command(need.command)


def _rule_for_command(command: Command) -> str:
    """Returns the rule that would always allow a command: `shell(…)` with the settings of the
    command and the pattern of `_pattern`. Empty if such a rule would not tell what the command
    does.
    """
    if not _has_plain_name(command) or find_unlisted(command) or command.program in SHELLS:
        return ""
    # What such a command does depends on the text of its input.
    if command.stdin is not None and command.name != "git":
        return ""
    if not all(map(_may_be_in_a_rule, command.settings)):
        return ""
    pattern = _pattern(command, [word.text for word in command.words])
    settings = "".join(f"{setting.name}={setting.value.text} " for setting in command.settings)
    return f"shell({settings}{pattern})" if pattern else ""


def _has_plain_name(command: Command) -> bool:
    """Whether the first words of a command, which name what it does, can be part of a rule. bash
    must not compute the first two, and the first three must have no wildcards.
    """
    if not all(word.exact for word in command.words[:2]):
        return False
    if not all(has_no_wildcard(word.text) for word in command.words[:3]):
        return False
    return bool(command.name.strip())


def _may_be_in_a_rule(setting: Assignment) -> bool:
    """Whether a setting can be part of a rule: its value is known, and it cannot make programs run
    others.
    """
    value = setting.value
    return value.exact and has_no_wildcard(value.text) and not _ACTING_VARIABLE.match(setting.name)


def _pattern(command: Command, words: list[str]) -> str:
    """Returns the pattern of the rule for a command with these words: the program with its
    subcommand, and `*`. For an interpreter it is the program with the script, and `*`.

    If the effect of a command depends on every word, the pattern is the whole command. Empty if
    there is no pattern that is safe.
    """
    is_module = words[1:2] == ["-m"] and len(words) > 2  # `python -m pytest`
    if _INTERPRETERS.fullmatch(command.program) and not is_module:
        is_script = len(words) > 1 and not words[1].startswith("-")
        return f"{words[0]} {words[1]} *" if is_script else ""
    # A zero character joins the words, because no word can contain one.
    match = _NAMING_WORDS.match("\0".join(words))
    prefix = match[0].replace("\0", " ") if match else ""
    if _needs_whole_command(command, prefix):
        is_whole = all(word.exact for word in command.words) and has_no_wildcard(command.text)
        return command.text if is_whole else ""
    return f"{prefix} *"


def _needs_whole_command(command: Command, prefix: str) -> bool:
    """Whether a rule must have the whole command, because its effect depends on every word.
    `prefix` has the words that name what it does.
    """
    if prefix in _ONLY_WORD_FOR_WORD or command.program in _ONLY_WORD_FOR_WORD:
        return True
    if find_program_option(command):
        return True
    return prefix.split()[-1].startswith("-")  # the last word is not a subcommand, but an option
