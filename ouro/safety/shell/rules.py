"""Mode, rules and the hard floor, applied to a shell line."""

from __future__ import annotations

from collections.abc import Sequence

from ouro.safety.access import Effect
from ouro.safety.decision import Allow, Ask, Decision, Deny
from ouro.safety.policy import PLAN, Policy, joined_rules
from ouro.safety.rules import Rule
from ouro.safety.shell.classify import Judgement, Need, judge, rule_for
from ouro.safety.shell.paths import Places
from ouro.safety.shell.reading import escape, git_subcommand
from ouro.safety.shell.words import Command

_LONG = 60


def decide_line(policy: Policy, tool: str, text: str) -> Decision:
    """What to do with a shell line: each command in it is judged by itself."""
    judgement = judge(text, policy.workspace)
    if reason := _denial(policy, tool, judgement):
        return Deny(reason)
    if policy.mode == "plan" and not judgement.only_reads and not _only_reads_outside(judgement):
        return Deny(f"{PLAN} Shell lines that only read are allowed; this one does more, or cannot be judged.")
    if reason := judgement.floor or judgement.line.opaque:
        return Ask(reason)
    if any(need.kind == "memory" for need in judgement.needs) and (reason := policy.finds_secret(text)):
        return Deny(f"This would put a secret ({reason}) into the history of memory. Say it without the secret.")
    if rule := policy.first("ask", tool, Effect.RUN, lambda rule: _any_line(rule, judgement.line.commands)):
        return Ask(f"the rule `ask {rule}` says so")
    return _by_mode(policy, tool, judgement)


def _by_mode(policy: Policy, tool: str, judgement: Judgement) -> Decision:
    if policy.first("allow", tool, Effect.RUN, lambda rule: rule.pattern is None) and policy.mode != "plan":
        return Allow()
    if policy.mode == "auto":
        outside = _written_outside(policy, judgement)
        return Ask(f"it writes to {outside}, outside the workspace") if outside else Allow()
    if judgement.doubt:
        return Ask(judgement.doubt)
    missing = [need for need in judgement.needs if not _is_met(policy, tool, need)]
    if not missing:
        return Allow()
    return Ask(_reason(missing), joined_rules([rule_for(need, policy.workspace) for need in missing]))


def _only_reads_outside(judgement: Judgement) -> bool:
    known = not (judgement.floor or judgement.doubt or judgement.line.opaque)
    return known and all(need.kind == "read" for need in judgement.needs)


def _denial(policy: Policy, tool: str, judgement: Judgement) -> str:
    commands, fragments = judgement.line.commands, judgement.line.fragments
    rule = policy.first(
        "deny", tool, Effect.RUN, lambda rule: _any_line(rule, commands) or any(map(rule.matches_line, fragments))
    )
    if rule:
        return f"The rule `deny {rule}` forbids this. Do not try it another way; ask the user."
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
    """An allow rule covers a command, what is set for it, and options by which it would run something else."""
    settings = [f"{each.name}={each.value.text}" for each in command.assignments if not each.harmless]
    if settings and not (
        all(each.value.exact for each in command.assignments) and all(one in str(rule) for one in settings)
    ):
        return False
    way_out = escape(command)
    return rule.matches_line(" ".join([*settings, command.text])) and (
        not way_out or way_out in (rule.pattern or "").replace("*", "")
    )


def _any_line(rule: Rule, commands: Sequence[Command]) -> bool:
    """A deny or ask rule speaks of one of the commands, however its name and options are written."""
    for command in commands:
        arguments = [word.text for word in command.arguments]
        at, _ = git_subcommand(arguments) if command.program == "git" else (0, True)
        variants = (command.text, " ".join([command.program, *arguments]), " ".join([command.program, *arguments[at:]]))
        if any(rule.matches_line(" ".join(text.split())) for text in variants):
            return True
    return False


def _reason(missing: Sequence[Need]) -> str:
    verbs = {"command": "it runs", "memory": "it runs", "read": "it reads", "write": "it writes to"}
    first = missing[0]
    name = first.command.name if first.command and len(first.text) > _LONG else first.text
    settings = [each.name for each in first.command.assignments if not each.harmless] if first.command else []
    with_settings = f" with {', '.join(settings)} set" if settings else ""
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"{verbs[first.kind]} {name}{with_settings}{more}"
