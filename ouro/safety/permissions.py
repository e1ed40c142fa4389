"""What may run without asking, what is asked, and what never runs: mode, rules and the hard floor."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from ouro.safety import protected
from ouro.safety.access import Effect
from ouro.safety.rules import Rule, any_match, parse_rule, parse_rules, plain
from ouro.safety.shell_judge import Judgement, Need, judge, path_rule, rule_for
from ouro.safety.shell_places import Places
from ouro.safety.shell_reading import escape, git_subcommand
from ouro.safety.shell_word import Command
from ouro.safety.workspace import Workspace

Mode = Literal["ask", "edit", "plan", "auto"]
"""How much is free: ask first, edit files, plan only, everything but the hard floor."""
_MOST_RULES = 3
_LONG = 60
_PLAN = (
    "Plan mode is on: nothing may be changed or run. Read and search as needed, then tell the user what you would do."
)


@dataclass(frozen=True, slots=True)
class Allow:
    """Go ahead."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The person decides; `rule` is what "always" would save, empty where it cannot be remembered."""

    reason: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Deny:
    """No; `reason` is told to the model."""

    reason: str


Decision = Allow | Ask | Deny


class Permissions:
    """Decides on each tool call, and remembers what the person said.

    Args:
        allow, ask, deny: rules, such as `shell(git status *)`; deny goes before ask, ask before allow.
        on_remember: is given each rule that the person wants kept.

    Raises:
        ConfigError: one of the rules cannot be read.
    """

    def __init__(
        self,
        workspace: Workspace,
        mode: Mode,
        *,
        allow: Sequence[str] = (),
        ask: Sequence[str] = (),
        deny: Sequence[str] = (),
        on_remember: Callable[[str], None] | None = None,
    ) -> None:
        self.mode: Mode = mode
        self._workspace = workspace
        self._allow = [parse_rule(text) for text in allow]
        self._ask = [parse_rule(text) for text in ask]
        self._deny = [parse_rule(text) for text in deny]
        self._on_remember = on_remember

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules in force, strongest first, each as `allow shell(git status *)`."""
        named = (("deny", self._deny), ("ask", self._ask), ("allow", self._allow))
        return tuple(f"{kind} {rule}" for kind, rules in named for rule in rules)

    def decide(self, tool: str, effect: Effect, targets: Sequence[str]) -> Decision:
        """What to do with a call of `tool` that would touch `targets`."""
        if rule := any_match(self._deny, tool, effect, lambda rule: rule.pattern is None):
            return Deny(f"The rule `deny {rule}` forbids this. Do not try it another way; ask the user.")
        decisions = [self._on_target(tool, effect, target) for target in targets or ("",)]
        for kind in (Deny, Ask):
            if found := [decision for decision in decisions if isinstance(decision, kind)]:
                return _joined_ask(found) if kind is Ask else found[0]
        return Allow()

    def admit(self, effect: Effect, targets: Sequence[str]) -> None:
        """After an allow or a yes: the workspace lets this call open its outside or protected paths."""
        if effect not in (Effect.READ, Effect.WRITE):
            return
        for target in targets:
            path = self._workspace.resolve(target)
            writes = effect is Effect.WRITE and self._workspace.protection(path)
            if writes or not self._workspace.is_inside(path):
                self._workspace.grant(path)

    def remember(self, rule: str) -> None:
        """Allow what `rule` names from now on; several rules may stand with commas between them.

        Raises:
            ConfigError: the rule cannot be read.
        """
        for each in parse_rules(rule):
            if each not in self._allow:
                self._allow.append(each)
                if self._on_remember:
                    self._on_remember(str(each))

    def _on_target(self, tool: str, effect: Effect, target: str) -> Decision:
        if effect in (Effect.READ, Effect.WRITE):
            return self._on_path(tool, effect, target)
        if effect is Effect.RUN:
            return self._on_line(tool, target)
        if effect is Effect.NET:
            return self._on_url(tool, target)
        rule = any_match(self._ask, tool, effect, lambda rule: rule.pattern is None)
        return Ask(f"the rule `ask {rule}` says so") if rule else Allow()

    # -- files

    def _on_path(self, tool: str, effect: Effect, target: str) -> Decision:
        path = self._workspace.resolve(target)
        named = self._named(target)
        if rule := any_match(self._deny, tool, effect, lambda rule: self._covers(rule, path, named)):
            return Deny(f"The rule `deny {rule}` forbids {target}.")
        if effect is Effect.WRITE and self.mode == "plan":
            return Deny(_PLAN)
        shown = self._workspace.shown(path)
        if effect is Effect.WRITE and (reason := self._workspace.protection(path)):
            return Ask(f"{shown}: {reason}")
        if rule := any_match(self._ask, tool, effect, lambda rule: self._covers(rule, path, named)):
            return Ask(f"the rule `ask {rule}` says so")
        if self._is_free(tool, effect, path):
            return Allow()
        place = f"{shown} is outside the workspace" if not self._workspace.is_inside(path) else f"it changes {shown}"
        return Ask(place, path_rule(effect.value, path, self._workspace))

    def _is_free(self, tool: str, effect: Effect, path: Path) -> bool:
        """Mode or rules let the path be read or written without a question; ask and deny were looked at before."""
        if any_match(self._allow, tool, effect, lambda rule: rule.matches_path(path, self._workspace.root)):
            # Only a rule that begins with / or ~ is about the disk outside of the workspace.
            if self._workspace.is_inside(path):
                return True
            return bool(any_match(self._allow, tool, effect, lambda rule: self._reaches(rule, path)))
        if effect is Effect.READ:
            keys = any(protected.is_under(path, area) for area in protected.reserved())
            return self._workspace.is_inside(path) or (self.mode == "auto" and not keys)
        return self.mode in ("edit", "auto") and self._workspace.is_inside(path)

    def _reaches(self, rule: Rule, path: Path) -> bool:
        anchored = rule.pattern is not None and rule.pattern.startswith(("/", "~"))
        return anchored and rule.matches_path(path, self._workspace.root)

    def _covers(self, rule: Rule, path: Path, named: Path) -> bool:
        root = self._workspace.root
        return rule.matches_path(path, root, widely=True) or rule.matches_path(named, root, widely=True)

    def _named(self, target: str) -> Path:
        """The path as it was said, links not followed: a rule about a link holds too."""
        expanded = os.path.expanduser(target.replace("\0", ""))  # noqa: PTH111 - Path's raises for ~nobody
        return Path(os.path.normpath(self._workspace.root / expanded))

    # -- the network

    def _on_url(self, tool: str, url: str) -> Decision:
        if rule := any_match(self._deny, tool, Effect.NET, lambda rule: rule.matches_url(url)):
            return Deny(f"The rule `deny {rule}` forbids {url}.")
        if rule := any_match(self._ask, tool, Effect.NET, lambda rule: rule.matches_url(url)):
            return Ask(f"the rule `ask {rule}` says so")
        if self.mode == "auto" or any_match(self._allow, tool, Effect.NET, lambda rule: rule.matches_url(url)):
            return Allow()
        host = urlsplit(url).hostname or ""
        return Ask(f"it reaches {host or 'the network'}", f"{tool}({host})" if host and plain(host) else tool)

    # -- shell lines

    def _on_line(self, tool: str, text: str) -> Decision:
        judgement = judge(text, self._workspace)
        if reason := self._denial(tool, judgement):
            return Deny(reason)
        if self.mode == "plan" and not judgement.only_reads:
            outside = judgement.needs if not (judgement.floor or judgement.doubt or judgement.line.opaque) else ()
            if not outside or any(need.kind != "read" for need in outside):
                return Deny(f"{_PLAN} Shell lines that only read are allowed; this one does more, or cannot be judged.")
        if judgement.floor:
            return Ask(judgement.floor)
        if judgement.line.opaque:
            return Ask(judgement.line.opaque)
        commands = judgement.line.commands
        if rule := next((rule for rule in self._running(self._ask, tool) if _any_line(rule, commands)), None):
            return Ask(f"the rule `ask {rule}` says so")
        return self._on_judged(tool, judgement)

    def _on_judged(self, tool: str, judgement: Judgement) -> Decision:
        if any(rule.pattern is None for rule in self._running(self._allow, tool)):
            return Allow()
        if self.mode == "auto":
            outside = self._written_outside(judgement)
            return Ask(f"it writes to {outside}, outside the workspace") if outside else Allow()
        missing = [need for need in judgement.needs if not self._is_met(tool, need)]
        if judgement.doubt:
            return Ask(judgement.doubt)
        if not missing:
            return Allow()
        return Ask(_reason(missing), self._offer(missing))

    def _denial(self, tool: str, judgement: Judgement) -> str:
        for rule in self._running(self._deny, tool):
            if _any_line(rule, judgement.line.commands) or any(map(rule.matches_line, judgement.line.fragments)):
                return f"The rule `deny {rule}` forbids this. Do not try it another way; ask the user."
        for path, written in judgement.opened:
            effects = (("read", Effect.READ), ("write", Effect.WRITE)) if written else (("read", Effect.READ),)
            for name, effect in effects:
                found = any_match(self._deny, name, effect, lambda rule: self._covers(rule, path, path))  # noqa: B023
                if found:
                    return f"The rule `deny {found}` forbids {self._workspace.shown(path)}."
        return ""

    def _running(self, rules: Sequence[Rule], tool: str) -> Iterator[Rule]:
        return (rule for rule in rules if rule.covers(tool, Effect.RUN))

    def _is_met(self, tool: str, need: Need) -> bool:
        """Rules or mode allow one thing that a line needs."""
        if need.kind == "read":
            return all(self._is_free("read", Effect.READ, path) for path in need.paths)
        free = bool(need.paths) and all(self._may_write(path) for path in need.paths)
        if need.command is None or free:
            return free
        command = need.command
        return any(_allows(rule, command) for rule in self._running(self._allow, tool))

    def _may_write(self, path: Path) -> bool:
        """A shell line may write there: as the file tools may, and no ask rule speaks of it."""
        asked = any_match(self._ask, "write", Effect.WRITE, lambda rule: self._covers(rule, path, path))
        return not asked and not self._workspace.protection(path) and self._is_free("write", Effect.WRITE, path)

    def _written_outside(self, judgement: Judgement) -> str:
        places = Places(self._workspace, judgement.line)
        for path, written in judgement.opened:
            elsewhere = written and not self._workspace.is_inside(path) and not places.is_temporary(path)
            if elsewhere and not self._is_free("write", Effect.WRITE, path):
                return self._workspace.shown(path)
        return ""

    def _offer(self, missing: Sequence[Need]) -> str:
        rules = list(dict.fromkeys(rule_for(need, self._workspace) for need in missing))
        return ", ".join(rules) if all(rules) and len(rules) <= _MOST_RULES else ""


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
    verbs = {"command": "it runs", "read": "it reads", "write": "it writes to"}
    first = missing[0]
    name = first.command.name if first.command and len(first.text) > _LONG else first.text
    settings = [each.name for each in first.command.assignments if not each.harmless] if first.command else []
    with_settings = f" with {', '.join(settings)} set" if settings else ""
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"{verbs[first.kind]} {name}{with_settings}{more}"


def _joined_ask(found: Sequence[Decision]) -> Ask:
    asks = [each for each in found if isinstance(each, Ask)]
    rules = list(dict.fromkeys(each.rule for each in asks))
    whole = all(rules) and len(rules) <= _MOST_RULES
    return Ask("; ".join(dict.fromkeys(each.reason for each in asks)), ", ".join(rules) if whole else "")
