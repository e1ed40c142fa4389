"""Mode, rules and the hard floor, applied to a shell line."""

from __future__ import annotations

from collections.abc import Sequence

from ouro.safety.decision import Allow, Ask, Decision, Deny, Effect
from ouro.safety.permissions import PLAN, Policy, joined_rules
from ouro.safety.rules import Rule
from ouro.safety.shell.classify import Judgement, Need, judge, rule_for
from ouro.safety.shell.command import Command
from ouro.safety.shell.paths import Places
from ouro.safety.shell.reading import git_subcommand, unlisted

_MAX_SHOWN = 60


def decide_line(policy: Policy, tool: str, text: str) -> Decision:
    """What to do with a shell line: each command in it is judged by itself."""
    judgement = judge(text, policy.workspace)
    if reason := _denial(policy, tool, judgement):
        return Deny(reason)
    if policy.mode == "plan" and not judgement.only_reads and not _only_reads_outside(judgement):
        return Deny(f"{PLAN} Shell lines that only read are allowed; this one does more, or cannot be judged.")
    if reason := judgement.floor or judgement.line.hidden:
        return Ask(reason)
    if any(need.kind == "memory" for need in judgement.needs) and (reason := policy.finds_secret(text)):
        return Deny(f"The commit message holds a secret ({reason}). Commit to memory without it.")
    if rule := policy.first("ask", tool, Effect.RUN, lambda rule: _any_line(rule, judgement.line.commands)):
        return Ask(f"the rule `ask {rule}` says so")
    return _by_mode(policy, tool, judgement)


def _by_mode(policy: Policy, tool: str, judgement: Judgement) -> Decision:
    if policy.first("allow", tool, Effect.RUN, lambda rule: rule.pattern is None) and policy.mode != "plan":
        return Allow()
    if policy.mode == "auto":
        outside = _written_outside(policy, judgement)
        return Ask(f"it writes to {outside}, outside the workspace") if outside else Allow()
    if judgement.opaque:
        return Ask(judgement.opaque)
    missing = [need for need in judgement.needs if not _is_met(policy, tool, need)]
    if not missing:
        return Allow()
    return Ask(_reason(missing), joined_rules([rule_for(need, policy.workspace) for need in missing]))


def _only_reads_outside(judgement: Judgement) -> bool:
    return not (judgement.floor or judgement.opaque) and all(need.kind == "read" for need in judgement.needs)


def _denial(policy: Policy, tool: str, judgement: Judgement) -> str:
    if rule := policy.first("deny", tool, Effect.RUN, lambda rule: _any_line(rule, judgement.line.commands)):
        return f"The rule `deny {rule}` forbids this. Do not retry it in another form; ask the user."
    for path, written in judgement.opened:
        rule = policy.on_path("deny", "read", Effect.READ, path, path)
        rule = rule or (policy.on_path("deny", "write", Effect.WRITE, path, path) if written else None)
        if rule:
            return f"The rule `deny {rule}` forbids {policy.workspace.shown(path)}."
    return ""


def _is_met(policy: Policy, tool: str, need: Need) -> bool:
    """Rules or mode allow one thing that a line needs."""
    if need.kind == "memory":
        return True
    if need.kind == "read":
        return all(policy.is_free("read", Effect.READ, path) for path in need.paths)
    writable = bool(need.paths) and all(
        policy.is_free("write", Effect.WRITE, path)
        and not policy.workspace.protection(path)
        and not policy.on_path("ask", "write", Effect.WRITE, path, path)
        for path in need.paths
    )
    command = need.command
    if command is None or writable:
        return writable
    return bool(policy.first("allow", tool, Effect.RUN, lambda rule: _allows(rule, command)))


def _written_outside(policy: Policy, judgement: Judgement) -> str:
    places = Places(policy.workspace, judgement.line)
    for path, written in judgement.opened:
        elsewhere = written and not policy.workspace.is_inside(path) and not places.is_temporary(path)
        if elsewhere and not policy.is_free("write", Effect.WRITE, path):
            return policy.workspace.shown(path)
    return ""


def _allows(rule: Rule, command: Command) -> bool:
    """Whether an allow rule covers a command, its settings, and an option that is not listed for it."""
    settings = [f"{one.name}={one.value.text}" for one in command.assignments if not one.harmless]
    if not all(one.value.exact for one in command.assignments) or not all(text in str(rule) for text in settings):
        return False
    option = unlisted(command)
    return rule.matches_line(" ".join([*settings, command.text])) and option in (rule.pattern or "").replace("*", "")


def _any_line(rule: Rule, commands: Sequence[Command]) -> bool:
    """Whether a deny or ask rule covers one of the commands, with or without folder and options of git."""
    for command in commands:
        arguments = [word.text for word in command.arguments]
        at, _ = git_subcommand(arguments) if command.program == "git" else (0, "")
        variants = (command.text, " ".join([command.program, *arguments]), " ".join([command.program, *arguments[at:]]))
        if any(rule.matches_line(" ".join(text.split())) for text in variants):
            return True
    return False


def _reason(missing: Sequence[Need]) -> str:
    verbs = {"command": "it runs", "memory": "it runs", "read": "it reads", "write": "it writes to"}
    first = missing[0]
    name = first.command.name if first.command and len(first.text) > _MAX_SHOWN else first.text
    settings = [one.name for one in first.command.assignments if not one.harmless] if first.command else []
    with_settings = f" with {', '.join(settings)} set" if settings else ""
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"{verbs[first.kind]} {name}{with_settings}{more}"
