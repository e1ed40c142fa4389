"""Mode and rules together: what they say about a path, for files and shell lines alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ouro.safety import protected
from ouro.safety.access import Effect
from ouro.safety.decision import Ask, Decision, Mode
from ouro.safety.rules import Rule
from ouro.safety.workspace import Workspace

MOST_RULES = 3
"""Rules that one answer of "always" may save."""
PLAN = (
    "Plan mode is on: nothing may be changed or run. Read and search as needed, then tell the user what you would do."
)


@dataclass
class Policy:
    """The rules and the mode in force."""

    workspace: Workspace
    mode: Mode
    allow: list[Rule] = field(default_factory=list)
    ask: list[Rule] = field(default_factory=list)
    deny: list[Rule] = field(default_factory=list)
    finds_secret: Callable[[str], str] = lambda _text: ""
    """Says which kind of secret is in a text; empty where there is none."""

    def speaking(self, kind: Literal["allow", "ask", "deny"], tool: str, effect: Effect) -> Iterator[Rule]:
        """The rules of one kind that are about a tool."""
        rules: list[Rule] = getattr(self, kind)
        return (rule for rule in rules if rule.covers(tool, effect))

    def first(
        self, kind: Literal["allow", "ask", "deny"], tool: str, effect: Effect, test: Callable[[Rule], bool]
    ) -> Rule | None:
        """The first rule of one kind that is about a tool and passes the test."""
        return next((rule for rule in self.speaking(kind, tool, effect) if test(rule)), None)

    def on_path(self, kind: Literal["ask", "deny"], tool: str, effect: Effect, path: Path, said: Path) -> Rule | None:
        """The first rule that asks about or denies a path: the real one, or the one that was said."""
        root = self.workspace.root
        return self.first(
            kind, tool, effect, lambda rule: any(rule.matches_path(each, root, widely=True) for each in (path, said))
        )

    def is_free(self, tool: str, effect: Effect, path: Path) -> bool:
        """Mode or allow rules let a path be read or written; ask and deny rules are not looked at."""
        inside, root = self.workspace.is_inside(path), self.workspace.root
        area = None if inside else protected.reserved_area(path)
        if effect is Effect.WRITE and self.workspace.is_memory(path):
            return True
        for rule in self.speaking("allow", tool, effect):
            # Only a rule that begins with / or ~ covers the disk outside of the workspace, and only one that names a
            # place of keys covers that.
            start = Path(os.path.expanduser((rule.pattern or "").partition("*")[0]))  # noqa: PTH111 - a pattern
            covers = inside or (rule.pattern or "").startswith(("/", "~"))
            if covers and (area is None or protected.is_under(start, area)) and rule.matches_path(path, root):
                return True
        if effect is Effect.READ:
            return inside or (self.mode == "auto" and area is None)
        return inside and self.mode in ("edit", "auto")

    def said(self, target: str) -> Path:
        """The path as it was said, links not followed: a rule about a link holds too."""
        expanded = os.path.expanduser(target.replace("\0", ""))  # noqa: PTH111 - Path's raises for ~nobody
        return Path(os.path.normpath(self.workspace.root / expanded))


def joined(found: Sequence[Decision]) -> Ask:
    """Several questions as one."""
    asks = [each for each in found if isinstance(each, Ask)]
    return Ask("; ".join(dict.fromkeys(each.reason for each in asks)), joined_rules([each.rule for each in asks]))


def joined_rules(rules: Sequence[str]) -> str:
    """Several rules as one text; empty where one of them cannot be remembered, or where they are many."""
    unique = list(dict.fromkeys(rules))
    return ", ".join(unique) if all(unique) and len(unique) <= MOST_RULES else ""
