"""Decide on a shell line: an ordered list of rules, of which the first that applies decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import msgspec

from ouro.safety.permissions import PLAN, Permissions
from ouro.safety.rules import Allow, Ask, Decision, Deny, Effect, Limits, Rule
from ouro.safety.shell.command import Command, ShellLine, Word
from ouro.safety.shell.fetched_files import unknown_readers
from ouro.safety.shell.floor import floor, memory_reason, reads_all_below
from ouro.safety.shell.needs import Need, find_needs, only_sees_processes
from ouro.safety.shell.offered_rules import describe, offer_rules
from ouro.safety.shell.parse import MAX_CHARACTERS, parse_line
from ouro.safety.shell.paths import Places
from ouro.safety.shell.program_options import find_program_option
from ouro.safety.shell.read_only import find_unlisted, git_words, only_reads, read_options
from ouro.safety.shell.tables import UNKNOWN, names
from ouro.utils.git import find_root

_NOT_IN_PLAN_MODE = (
    f"{PLAN} Shell lines that only read are allowed; this one does more, or cannot be judged."
)
_OUTSIDE = "it runs outside of the sandbox, with all your rights"
_IN_CONTAINER = (
    "in the container, it gets the network of the machine and may change all of the workspace"
)
_GIT_THAT_PRINTS_NAMES = re.compile(
    r"(status|add|commit|rev-parse|ls-files|branch|remote|switch|push|fetch)(\0(?!-\w*[ipv]|--[ipv])[^\0]*)*"
    r"|log(\0(-n?\d*|[^-\0][^\0]*|--((oneline|graph|all|decorate|(short)?stat|name-(only|status)|follow|reverse|merges"
    r"|no-merges|(format|pretty|since|until|author|grep|date)=[^\0]*)?)))*"
)
"""A git command that prints names of files and commits, but no contents of files."""
_LOCAL_GIT_COMMANDS = names(
    "add am apply branch checkout cherry-pick commit merge mv notes reset restore revert rm stash"
    " switch tag"
)
_RECORDING_GIT_COMMANDS = names("add branch commit notes tag")
_PLAIN_REBASE_OPTIONS = names("--autostash --continue --onto --quiet -q")


class LineCase:
    """A shell line, and what the rules ask about it; each fact is computed when a rule needs it."""

    def __init__(self, policy: Permissions, tool: str, text: str, *, is_outside: bool) -> None:
        self.policy = policy
        self.tool = tool
        self.text = text
        self.is_outside = is_outside
        """Whether the call asks to leave the sandbox."""
        self.line = parse_line(text)
        self.places = Places(policy.workspace, self.line)

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        """What the line needs, each thing once."""
        return tuple(dict.fromkeys(find_needs(self.line, self.places)))

    @cached_property
    def missing(self) -> list[Need]:
        """What the line needs, and neither a rule nor the mode allows."""
        return [need for need in self.needs if not _is_met(self.policy, self.tool, need)]

    @cached_property
    def opaque(self) -> str:
        """Why it is not known what the line does; empty if it is known."""
        return self.line.opaque or self.places.lost or _find_unknown(self.line)

    @cached_property
    def floor(self) -> str:
        """Why the user is asked about the line in every mode, whatever the rules say; empty if
        not.
        """
        reason = floor(self.line, self.places, self.policy.fetched)
        return reason or memory_reason(self.line, self.text, self.places)

    @cached_property
    def limits(self) -> Limits:
        """The limits with which the line runs if all its needs are met."""
        return _limits_for(self.policy, self.places, self.line, self.needs)

    def offer(self, needs: Sequence[Need]) -> str:
        """Returns the rules that would always allow `needs`, as one text. Empty if a rule cannot be
        made for one of them, or if it is not known what the line does.
        """
        return "" if self.opaque else offer_rules(needs, self.policy.workspace)


class LineRule(msgspec.Struct, frozen=True):
    """One rule of the judge."""

    name: str
    decide: Callable[[LineCase], Decision | None]
    """Returns the decision; None if the rule does not apply."""


def decide_line(policy: Permissions, tool: str, text: str, *, outside: bool = False) -> Decision:
    """Decide whether a shell line runs, is denied, or needs a question: the first of `RULES` that
    applies decides. A line to which none applies runs with the limits that it needs.

    Args:
        tool: the name of the tool that would run the line.
        outside: whether the call asks to leave the sandbox.
    """
    case = LineCase(policy, tool, text, is_outside=outside)
    for rule in RULES:
        decision = rule.decide(case)
        if decision is not None:
            return decision
    return Allow(case.limits)


# -- the rules, in their order; each returns None for a line that it is not about


def _deny_by_rule(case: LineCase) -> Decision | None:
    """Deny a line that a `deny` rule of the user is about. The message names the path if the rule
    is about a path.
    """
    denied = _find_line_rule(case, "deny")
    if denied is None:
        return None
    rule, denied_path = denied
    if denied_path:
        return Deny(f"The rule `deny {rule}` forbids {denied_path}.")
    return Deny(
        f"The rule `deny {rule}` forbids this. Do not retry it in another form; ask the user."
    )


def _ask_about_a_long_line(case: LineCase) -> Decision | None:
    """Ask about a line with more than MAX_CHARACTERS; in plan mode deny it. To judge it would take
    seconds. None for a shorter line.
    """
    if len(case.text) <= MAX_CHARACTERS:
        return None
    if case.policy.mode == "plan":
        return Deny(_NOT_IN_PLAN_MODE)
    return Ask(case.line.hidden)  # which says that it is too long


def _deny_in_plan_mode(case: LineCase) -> Decision | None:
    """Deny a line in plan mode if it does more than read files, or if it is not known what it does."""
    if case.policy.mode != "plan":
        return None
    only_reads_files = all(need.kind == "read" for need in case.needs)
    if only_reads_files and not case.floor and not case.opaque:
        return None
    return Deny(_NOT_IN_PLAN_MODE)


def _ask_at_the_floor(case: LineCase) -> Decision | None:
    """Ask about a line of the hard floor, such as one that cannot be undone, or one that hides what
    it runs. No rule of the user can allow these. None for all other lines.
    """
    reason = case.floor or case.line.hidden
    return Ask(reason) if reason else None


def _deny_a_secret_in_memory(case: LineCase) -> Decision | None:
    """Deny a commit to long-term memory whose line holds a secret."""
    if not any(need.kind == "memory" for need in case.needs):
        return None
    if reason := case.policy.finds_secret(case.text):
        return Deny(f"The commit message holds a secret ({reason}). Commit to memory without it.")
    return None


def _ask_by_rule(case: LineCase) -> Decision | None:
    """Ask about a line that an `ask` rule of the user is about."""
    asked = _find_line_rule(case, "ask")
    if asked is None:
        return None
    rule, path = asked
    about_path = f"{path}: " if path else ""
    return Ask(f"{about_path}the rule `ask {rule}` says so")


def _allow_the_whole_tool(case: LineCase) -> Decision | None:
    """Allow every line if there is an allow rule without a pattern, such as `shell`; not in plan
    mode. It has all rights, unless the user confines what rules allow.
    """
    policy = case.policy
    rule = policy.find_rule("allow", case.tool, Effect.RUN, lambda rule: rule.pattern is None)
    if rule is None or policy.mode == "plan":
        return None
    wants_sandbox = policy.workspace.confines_allowed
    if wants_sandbox and (case.is_outside or not policy.workspace.confines()):
        return None
    return Allow(_limits_by_rule(policy, case.needs))


def _ask_about_a_leak(case: LineCase) -> Decision | None:
    """Ask about a line that may print what a rule denies to read."""
    leak = _find_leak(case)
    return Ask(leak) if leak else None


def _ask_to_leave_the_sandbox(case: LineCase) -> Decision | None:
    """Ask about a line that asks to leave the sandbox. None if it does not, or if rules of the user
    allow all it needs. The question offers rules for the commands that nothing allows yet.
    """
    if not case.is_outside or _is_allowed_by_rules(case):
        return None
    commands = [need for need in case.missing if need.kind == "command"]
    reason = _IN_CONTAINER if case.policy.workspace.in_container else _OUTSIDE
    return Ask(reason, case.offer(commands))


def _ask_to_write_elsewhere(case: LineCase) -> Decision | None:
    """Ask in the mode `auto` about a line that writes outside of the workspace, unless a rule
    allows the path. The sandbox would refuse it.
    """
    policy = case.policy
    if not _is_confined_auto(policy):
        return None
    for path, is_written, _ in case.places.opened_paths(case.line):
        is_elsewhere = is_written and case.places.is_elsewhere(path)
        if is_elsewhere and not policy.permits_path("write", Effect.WRITE, path):
            return Ask(f"it writes to {policy.workspace.shown(path)}, outside the workspace")
    return None


def _ask_about_an_unknown_reader(case: LineCase) -> Decision | None:
    """Ask in the mode `auto` about a line in which a program gets from a pipe what another one
    fetches from the network, if it is not known whether it runs that, and no rule allows it.
    """
    if not _is_confined_auto(case.policy):
        return None
    unknown = set(unknown_readers(case.line))
    needs = [need for need in case.missing if need.command in unknown]
    if not needs:
        return None
    name = needs[0].text.split()[0]
    return Ask(
        f"it is not known whether {name} runs what it gets from the network", case.offer(needs)
    )


def _allow_in_the_sandbox(case: LineCase) -> Decision | None:
    """Allow every line in the mode `auto` if it runs confined; None otherwise. A line that needs no
    more than rules and the mode allow gets the narrowest limits that it needs. Any other line may
    change the workspace without `.git`. If only local commands of git (`_is_local_git`) are
    not allowed yet, it may change `.git` too.
    """
    if not _is_confined_auto(case.policy):
        return None
    if not case.opaque and not case.missing:
        return Allow(case.limits)
    changes_only_git = not case.opaque and _changes_only_git(case.policy, case.missing)
    return Allow("repository" if changes_only_git else "workspace")


def _ask_what_nothing_allows(case: LineCase) -> Decision | None:
    """Ask about a line whose effect is not known, or that needs something that neither a rule nor
    the mode allows.
    """
    if not case.opaque and not case.missing:
        return None
    # With a sandbox an earlier rule has allowed every line in the mode `auto`.
    is_auto = case.policy.mode == "auto"
    why = " (auto asks, because no sandbox works here)" if is_auto else ""
    return Ask(f"{case.opaque or describe(case.missing)}{why}", case.offer(case.missing))


RULES = (
    LineRule("deny rule", _deny_by_rule),
    LineRule("long line", _ask_about_a_long_line),
    LineRule("plan mode", _deny_in_plan_mode),
    LineRule("floor", _ask_at_the_floor),
    LineRule("secret in memory", _deny_a_secret_in_memory),
    LineRule("ask rule", _ask_by_rule),
    LineRule("allow rule for the tool", _allow_the_whole_tool),
    LineRule("leak", _ask_about_a_leak),
    LineRule("outside of the sandbox", _ask_to_leave_the_sandbox),
    LineRule("write elsewhere", _ask_to_write_elsewhere),
    LineRule("unknown reader", _ask_about_an_unknown_reader),
    LineRule("sandbox", _allow_in_the_sandbox),
    LineRule("not allowed", _ask_what_nothing_allows),
)
"""The first rule that applies decides. A line to which none applies is allowed."""


# -- what the rules look at


def _is_confined_auto(policy: Permissions) -> bool:
    """Whether the mode is `auto`, and a sandbox confines the commands."""
    return policy.mode == "auto" and policy.workspace.confines()


def _is_allowed_by_rules(case: LineCase) -> bool:
    """Whether rules of the user allow everything that the line needs, so that it runs outside of
    the sandbox. False for a line that needs nothing: no rule is about it.
    """
    if not case.needs or case.missing or case.opaque:
        return False
    return case.limits == "off"  # needs that the sandbox itself meets have other limits


def _find_unknown(line: ShellLine) -> str:
    """Returns why it is not known what a line does: a command that may do more than read has a word
    that bash computes, or a path of the line may go through a link that it makes. Empty if neither
    is so.
    """
    for command in line.commands:
        word = command.computed
        if command.kind == "plain" and word is not None and not only_reads(command):
            return f"what {command.program} gets as {word.raw or word.text} is not known"
    makes_link = any(map(_makes_link, line.commands))
    if makes_link and (len(line.commands) > 1 or line.redirects):
        return "it may write or read through a link that it makes"
    return ""


def _makes_link(command: Command) -> bool:
    """Whether a command may make a link: `ln`, or `cp -s`."""
    if command.program == "cp":
        return read_options(command.arguments, UNKNOWN).has("s", "symbolic-link")
    return command.program in ("ln", "link")


def _changes_only_git(policy: Permissions, needs: Sequence[Need]) -> bool:
    """Whether all needs are local commands of git. In a folder below the root of the repository,
    whether they also leave the working tree as it is: outside of the folder, the sandbox would
    refuse half of the change.
    """
    if not all(map(_is_local_git, needs)):
        return False
    root = policy.workspace.root
    return find_root(root) == root or all(map(_leaves_working_tree, needs))


def _leaves_working_tree(need: Need) -> bool:
    """Whether a local command of git changes no files of the working tree."""
    return need.command is not None and need.command.arguments[0].text in _RECORDING_GIT_COMMANDS


def _is_local_git(need: Need) -> bool:
    """Whether a need is a git command that may write .git, and that runs no programs but git and
    the hooks of the repository. False if variables before the command may change what it does.
    """
    if need.command is None or need.command.name != "git" or need.command.settings:
        return False
    words = [word.text for word in need.command.arguments]
    if words[:1] == ["rebase"]:
        return not any(map(_is_other_rebase_option, words[1:]))
    return bool(words) and words[0] in _LOCAL_GIT_COMMANDS


def _is_other_rebase_option(word: str) -> bool:
    """Whether a word of `git rebase` is an option that may run programs (`--exec`), open an editor,
    or discard commits.
    """
    return word.startswith("-") and word not in _PLAIN_REBASE_OPTIONS


def _limits_for(
    policy: Permissions, places: Places, line: ShellLine, needs: Sequence[Need]
) -> Limits:
    """Returns the narrowest limits of the sandbox with which a line can run if all its needs are
    met.

    They are `off` in four cases: a rule of the user allows one of its commands, or allows to write
    a file outside of the workspace, and the user does not confine what rules allow; it shows the
    processes of the machine; it writes memory and other files.
    """
    if only_sees_processes(line):
        return "off"
    if any(map(_runs_a_command, needs)):
        return _limits_by_rule(policy, needs)
    written = _written_paths(needs)
    written_in_memory = [path for path in written if policy.workspace.is_memory(path)]
    commits_to_memory = any(need.kind == "memory" for need in needs)
    if written_in_memory or commits_to_memory:
        return "memory" if len(written_in_memory) == len(written) else "off"
    if any(map(places.is_outside, written)):  # a rule allows it, and the sandbox would refuse it
        return _limits_by_rule(policy, needs)
    return "workspace" if written or policy.mode in ("edit", "auto") else "read"


def _limits_by_rule(policy: Permissions, needs: Sequence[Need]) -> Limits:
    """Returns the limits for commands that rules allow: none, unless the user confines these. Then
    local commands of git may change `.git`.
    """
    if not policy.workspace.confines_allowed:
        return "off"
    commands = [*filter(_runs_a_command, needs)]
    changes_only_git = bool(commands) and _changes_only_git(policy, commands)
    return "repository" if changes_only_git else "workspace"


def _runs_a_command(need: Need) -> bool:
    """Whether a need is to run a command that may change anything. A command that only creates
    files is no such need: it names these files as its paths.
    """
    return need.kind == "command" and not need.paths


def _written_paths(needs: Sequence[Need]) -> list[Path]:
    """Returns the files that a line writes or creates, as far as its needs name them."""
    paths: list[Path] = []
    for need in needs:
        if need.kind in ("write", "command"):
            paths += need.paths
    return paths


def _find_line_rule(case: LineCase, kind: Literal["ask", "deny"]) -> tuple[Rule, str] | None:
    """Returns the first `ask` or `deny` rule about a command of the line. If there is none, the
    first rule about a path in it. The second value is that path as text; empty for a rule about a
    command. None if there is no such rule.
    """
    texts = _texts_for_rules(case.line.commands)
    matches = partial(_matches_one, texts=texts)
    if rule := case.policy.find_rule(kind, case.tool, Effect.RUN, matches):
        return rule, ""
    return _find_rule_for_paths(case, kind)


def _matches_one(rule: Rule, texts: Sequence[str]) -> bool:
    """Whether an `ask` or `deny` rule covers one of the texts, or the beginning of one."""
    return any(rule.matches_line(text, widely=True) for text in texts)


def _accept_each(_rule: Rule) -> bool:
    """The test for whether there is any rule."""
    return True


def _find_rule_for_paths(case: LineCase, kind: Literal["ask", "deny"]) -> tuple[Rule, str] | None:
    """Returns the first `ask` or `deny` rule about a path that the line opens, with the path as
    text. None if there is none. Rules about reading also count for a path that is written.
    """
    policy = case.policy
    # Without rules about paths these need not be computed, which takes long.
    has_rules = any(
        policy.find_rule(kind, effect.value, effect, test=_accept_each)
        for effect in (Effect.READ, Effect.WRITE)
    )
    if not has_rules:
        return None
    opened = [(path, is_written) for path, is_written, _ in case.places.opened_paths(case.line)]
    for path, is_written in dict.fromkeys(opened):
        # The paths that a line opens have their links followed already.
        rule = policy.find_path_rule(kind, "read", Effect.READ, path, unresolved=path)
        if rule is None and is_written:
            rule = policy.find_path_rule(kind, "write", Effect.WRITE, path, unresolved=path)
        if rule:
            return rule, policy.workspace.shown(path)
    return None


def _find_leak(case: LineCase) -> str:
    """Returns why a line may print something that a rule denies to read, although the line does not
    name it. Empty if it cannot. Commands that an allow rule covers are not looked at.

    The sandbox hides such files, but not their contents in git.
    """
    unreadable = case.policy.unreadable()
    if unreadable is None:
        return ""
    for command in case.line.commands:
        allows = partial(_allows, command=command)
        if case.policy.find_rule("allow", case.tool, Effect.RUN, allows):
            continue
        if leak := _find_command_leak(command, case, unreadable):
            return leak
    return ""


def _find_command_leak(command: Command, case: LineCase, unreadable: re.Pattern[str]) -> str:
    """Returns how a command may print files that a rule denies to read; empty if it cannot.
    `unreadable` matches their paths.
    """
    if command.program == "git" and not _prints_only_names(command):
        tracked_file = case.places.find_tracked(command, unreadable.fullmatch)
        return f"git may print {tracked_file}, which a rule denies to read" if tracked_file else ""
    if reads_all_below(command) and not case.policy.workspace.hides():
        return f"{command.program} may print what a rule denies to read: no sandbox hides it"
    return ""


def _prints_only_names(command: Command) -> bool:
    """Whether a command of git prints only names of files and commits, and no contents of files."""
    texts = [word.text for word in git_words(command.arguments)]
    return bool(_GIT_THAT_PRINTS_NAMES.fullmatch("\0".join(texts)))


def _is_met(policy: Permissions, tool: str, need: Need) -> bool:
    """Whether rules or the mode allow one thing that a line needs. If it is an allow rule for a
    command, its use is recorded.
    """
    if need.kind == "memory":  # only listed commands of git have this need
        return True
    if need.kind == "read":
        return all(policy.permits_path("read", Effect.READ, path) for path in need.paths)
    if need.paths and all(_is_writable(policy, path) for path in need.paths):
        return True
    if need.command is None:
        return False
    return _is_allowed_by_rule(policy, tool, need.command)


def _is_allowed_by_rule(policy: Permissions, tool: str, command: Command) -> bool:
    """Whether an allow rule covers a command. None does if the user confines what rules allow, but
    no sandbox works. The use of the rule is recorded.
    """
    workspace = policy.workspace
    if workspace.confines_allowed and not workspace.confines():
        return False
    # What is recorded with the used rule: later words may be secrets.
    plain_words = [
        word.text for word in command.words[:2] if re.fullmatch(r"[\w./-]{1,24}", word.text)
    ]
    allows = partial(_allows, command=command)
    return bool(policy.find_rule("allow", tool, Effect.RUN, allows, " ".join(plain_words)))


def _is_writable(policy: Permissions, path: Path) -> bool:
    """Whether rules or the mode allow to write a file, and it is not protected."""
    if not policy.permits_path("write", Effect.WRITE, path):
        return False
    return not policy.workspace.protection(path)


def _allows(rule: Rule, command: Command) -> bool:
    """Whether an allow rule covers a command. The rule must name in its own words each setting of
    the command, each option that is not listed for it, and each with which it runs a program.
    """
    settings = [f"{setting.name}={setting.value.text}" for setting in command.settings]
    if not all(assignment.value.exact for assignment in command.assignments):
        return False
    if any(text not in str(rule) for text in settings):
        return False
    if not rule.matches_line(" ".join([*settings, command.text])):
        return False
    # A star covers no such option: with `sort -o x *`, `--compress-program` would run a program.
    named = _words_named_by(rule, command)
    return not (find_unlisted(command, named) or find_program_option(command, named))


def _words_named_by(rule: Rule, command: Command) -> set[str]:
    """Returns the arguments of a command that the pattern of a rule names: they are whole words of
    it, and are not only matched by a star.
    """
    # `git push:*` is how other agents write `git push *`.
    words = (rule.pattern or "").replace(":*", " ").replace("*", "").split()
    pattern = f" {' '.join(words)} "  # blanks at both ends, so that only whole words are in it
    texts = [word.text for word in command.arguments]
    return {text for text in texts if f" {' '.join(text.split())} " in pattern}


def _texts_for_rules(commands: Sequence[Command]) -> list[str]:
    """Returns the texts with which deny and ask rules are compared, each once. These are, for every
    command: its text as it is written, the same without the folder of the program, and for git also
    without the options before the subcommand.
    """
    texts: list[str] = []
    for command in commands:
        variants = [list(command.arguments)]
        if command.program == "git":
            variants.append(git_words(command.arguments))
        texts.append(command.text)
        texts += [_text_of(command.program, words) for words in variants]
    return list(dict.fromkeys(" ".join(text.split()) for text in texts))


def _text_of(program: str, arguments: Sequence[Word]) -> str:
    return " ".join([program, *(word.text for word in arguments)])
