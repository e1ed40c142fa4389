"""Permissions: decide on tool calls by mode, rules and the hard floor."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import NamedTuple

from ouro.safety import protected
from ouro.safety.rules import (
    Allow,
    Ask,
    Decision,
    Deny,
    Effect,
    Kind,
    Mode,
    Rule,
    RuleStore,
    absolute_pattern,
    has_no_wildcard,
    narrower,
    parse_rule,
    parse_rules,
    path_regex,
    path_rule,
    requested_url,
)
from ouro.safety.workspace import FetchedFiles, Workspace
from ouro.utils.late_pattern import late_pattern
from ouro.utils.path_encoding import path_text, text_path
from ouro.utils.text import readable_bytes

MAX_RULES = 3
"""The maximum number of rules that one answer may add."""
_MAX_UNREADABLE = 500
"""Files that rules deny to read and that a sandbox can hide."""
_MAX_NAMES = 1_000_000
"""Names that are looked at to find them."""
_CHANGE_TIME_MARGIN = 2_000_000_000
"""Nanoseconds after which another change of a folder certainly gets a later time of change."""
_ENCODED_DATA = late_pattern(r"[A-Za-z0-9+=%]{64,}")
"""Encoded data in an address: it is longer than a hash, and unlike the words of a title it has no
`-` or `_`.
"""
_WHO_RUNS = {
    Effect.MCP: "the MCP server {} runs it, outside of the sandbox",
    Effect.TOOL: "the file of {} runs, in the sandbox",
}
"""Why ouro asks about tools of which only the name is known, by their effect."""
PLAN = (
    "Plan mode is on: do not change or run anything. Read and search as needed, then tell the user"
    " your plan."
)


def join_rules(rules: Sequence[str]) -> str:
    """Returns the rules that one answer would add as one text, each once, separated by commas.

    Empty if there are more than `MAX_RULES`, or if one is empty, which means that it cannot be
    saved.
    """
    unique = list(dict.fromkeys(rules))
    return ", ".join(unique) if all(unique) and len(unique) <= MAX_RULES else ""


def _allows_outside(rule: Rule, area: Path | None) -> bool:
    """Whether an allow rule may count for a path outside of the workspace: its pattern must begin
    with / or ~.

    If the path is in a place of keys (`area`; None: in none), the part of the pattern before its
    first wildcard must name that place or a path in it. So `read(~/**)` does not allow to read
    keys.
    """
    pattern = rule.pattern or ""
    if not pattern.startswith(("/", "~")):
        return False
    start = Path(os.path.expanduser(pattern.partition("*")[0]))  # noqa: PTH111 - a pattern
    return area is None or protected.is_under(start, area)


def _is_below(folder: str, starts: tuple[str, ...]) -> bool:
    """Whether the path of a folder begins with one of `starts`, so that denied paths may be in
    it.
    """
    return f"{path_text(folder)}/".startswith(starts)


def _folder_above(start: str) -> str:
    """Returns the folder to search for paths that begin with `start`: `/a` for `/a/b` and
    `/a/b/`.
    """
    above = os.path.dirname(start.rstrip("/"))  # noqa: PTH120 - for every command
    return str(text_path(above or "/"))


def _question_about_host(tool: str, host: str) -> Ask:
    """Returns the question about an address whose host no rule names. It offers a rule for the
    host, or for all addresses if the host is unknown or has a wildcard.
    """
    rule = f"{tool}({host})" if host and has_no_wildcard(host) else tool
    return Ask(f"it reaches {host or 'the network'}", rule)


class _FolderNames(NamedTuple):
    """What a search for files that rules deny to read has found in one folder."""

    name_count: int
    """How many names are in the folder."""
    unreadable: Sequence[str]
    """The paths in it that rules deny to read."""
    folders: Sequence[str]
    """The folders in it that must be searched."""


class Permissions:
    """Decides on tool calls, and saves the rules of the user.

    Args:
        mode: may be set at any time.
        allow, ask, deny: rules, such as `shell(git status *)`; deny goes before ask, ask before
            allow.
        saved: keeps the rules that the user saves, and what rules have allowed.
        finds_secret: returns the kind of secret in a text; such a text is not committed to memory.

    Raises:
        ConfigError: one of the rules is not valid.
    """

    def __init__(
        self,
        workspace: Workspace,
        mode: Mode,
        *,
        allow: Sequence[str] = (),
        ask: Sequence[str] = (),
        deny: Sequence[str] = (),
        saved: RuleStore | None = None,
        finds_secret: Callable[[str], str] = lambda _text: "",
    ) -> None:
        self.workspace = workspace
        self.finds_secret = finds_secret
        self._mode: Mode = mode
        self._parent: Permissions | None = None
        """The permissions of the session, if these are of a subagent."""
        self._rules: dict[Kind, list[Rule]] = {
            "deny": [parse_rule(text) for text in deny],
            "ask": [parse_rule(text) for text in ask],
            "allow": [parse_rule(text) for text in allow],
        }
        self.saved = saved
        self.fetched = FetchedFiles()
        self._used_rules: dict[str, str] = {}
        """The allow rules that the present decision depends on -> what they allow."""
        self._names_by_folder: dict[tuple[str, str], tuple[tuple[int, ...], _FolderNames]] = {}
        """By the folder and the pattern of denied paths: the state of the folder, and its names."""

    @property
    def mode(self) -> Mode:
        """The mode that holds now. The mode of a subagent is never wider than its session's."""
        return narrower(self._mode, self._parent.mode) if self._parent else self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode

    def narrow(self, mode: Mode, workspace: Workspace, deny: Sequence[str] = ()) -> Permissions:
        """Returns the permissions of a subagent: the same rules, these `deny` rules added, and
        another mode. If the mode of the session is narrower than `mode`, now or later, it holds for
        the subagent too.
        """
        # The deny rules of the session are read in the session, so that a later one holds too.
        rules = {**self._rules, "deny": list(map(parse_rule, deny))}
        return self._variant(mode, self, workspace, rules)

    def _variant(
        self,
        mode: Mode,
        parent: Permissions | None,
        workspace: Workspace | None = None,
        rules: dict[Kind, list[Rule]] | None = None,
    ) -> Permissions:
        """Returns other permissions in the mode `mode`, which share with these what is not given.
        They note the allow rules that their decisions use apart from those of these permissions.

        Args:
            parent: the permissions of its session; None: it is not of a subagent.
            workspace: its workspace; None: the same.
            rules: its rules; None: the same.
        """
        variant = Permissions(
            workspace or self.workspace, mode, saved=self.saved, finds_secret=self.finds_secret
        )
        variant._parent = parent
        variant._rules = self._rules if rules is None else rules
        variant.fetched = self.fetched
        variant._names_by_folder = self._names_by_folder
        return variant

    @property
    def rules(self) -> tuple[tuple[Kind, str], ...]:
        """The rules in force with their kinds, strongest first."""
        return tuple((kind, str(rule)) for kind in self._rules for rule in self._rules_of(kind))

    def decide(
        self, tool: str, effect: Effect, targets: Sequence[str], *, outside: bool = False
    ) -> Decision:
        """Decide whether a call of a tool runs, is denied, or needs a question.

        If it runs, the allow rules that were needed for it are recorded as used.

        Args:
            tool: the name of the tool.
            effect: what it does to the targets.
            targets: what the call would touch, as `Effect` says; empty if that is not known.
            outside: whether the call asks to leave the sandbox.
        """
        self._used_rules.clear()
        decision = self._decide(tool, effect, targets, outside)
        if isinstance(decision, Allow) and self.saved is not None:
            for rule, what in self._used_rules.items():
                self.saved.note_use(rule, what or tool)
        return decision

    def _decide(self, tool: str, effect: Effect, targets: Sequence[str], outside: bool) -> Decision:
        """Decide on each target, and make one decision of all. The parameters are those of
        `decide`.

        If one of them is a Deny, the first Deny is returned. Otherwise all questions are joined to
        one. If there is no question, the decision on the first target is returned.
        """
        if rule := self.find_rule("deny", tool, effect, lambda rule: rule.pattern is None):
            return Deny(
                f"The rule `deny {rule}` forbids this. Do not retry it in another form; ask the"
                " user."
            )
        decisions = [
            self._decide_target(tool, effect, target, outside) for target in targets or ("",)
        ]
        for decision in decisions:
            if isinstance(decision, Deny):
                return decision
        asked = [decision for decision in decisions if isinstance(decision, Ask)]
        if not asked:
            return decisions[0]
        reasons = "; ".join(dict.fromkeys(ask.reason for ask in asked))
        return Ask(reasons, join_rules([ask.rule for ask in asked]))

    def edits_by_mode(self, tool: str, targets: Sequence[str]) -> bool:
        """Whether this change of files would be allowed in the mode `edit`. Always False if the
        mode is not `ask`, and for a subagent, whose mode the user cannot set.
        """
        if self.mode != "ask" or self._parent is not None:
            return False
        wider = self._variant("edit", parent=None)
        return isinstance(wider._decide(tool, Effect.WRITE, targets, outside=False), Allow)

    def find_allowance_by_judge(
        self, tool: str, effect: Effect, targets: Sequence[str], *, outside: bool = False
    ) -> Allow | None:
        """Returns the Allow with which a call runs once a model, the judge, has allowed it instead
        of the user; None if only the user may decide.

        A model may decide about a call that the mode `auto` would allow, and about hosts that no
        rule names. A command then runs confined as in `auto`, never with all rights of the user.
        """
        if effect is Effect.NET:
            may_decide = bool(targets) and all(
                self._model_may_decide_url(tool, url) for url in targets
            )
            return Allow() if may_decide else None
        if self.mode == "plan" and effect is not Effect.READ:
            return None
        decision = self._in_mode_auto()._decide(tool, effect, targets, outside)
        if not isinstance(decision, Allow):
            return None
        if effect is not Effect.RUN:
            return decision
        # The sandbox must also hide what rules deny to read: no user looks at the command.
        is_confined = decision.limits != "off" and self.workspace.hides()
        return decision if is_confined else None

    def _model_may_decide_url(self, tool: str, url: str) -> bool:
        """Whether a model may decide about an address: it is allowed, or it is only asked about
        because no rule names its host. It may not if a `deny` or `ask` rule is about the address,
        or if the address has no host, or holds a secret or encoded data.
        """
        decision = self._decide_url(tool, url)
        host = requested_url(url).hostname
        if not host:
            return False
        if isinstance(decision, Allow):
            return True
        # Encoded data or an `ask` rule make another question; a secret or a `deny` rule, a Deny.
        return decision == _question_about_host(tool, host)

    def _in_mode_auto(self) -> Permissions:
        """Returns the same permissions in the mode `auto`; those of a subagent with the permissions
        of its session in the mode `auto`, too.
        """
        parent = self._parent._in_mode_auto() if self._parent else None
        return self._variant("auto", parent)

    def admit(self, effect: Effect, targets: Sequence[str]) -> None:
        """Let the running call, which was allowed, open its paths although the workspace would
        refuse some of them: paths outside of it, and protected paths that the call changes. What a
        shell line will fetch from the network is noted.
        """
        if effect is Effect.RUN:
            self._note_fetched(targets)
        if effect not in (Effect.READ, Effect.WRITE):
            return
        for target in targets:
            path = self.workspace.resolve(target)
            if effect is Effect.WRITE:
                self.fetched.note_overwritten(path)
            changes_protected = effect is Effect.WRITE and self.workspace.protection(path)
            if changes_protected or not self.workspace.is_inside(path):
                self.workspace.grant(path, "write" if effect is Effect.WRITE else "read")

    def _note_fetched(self, lines: Sequence[str]) -> None:
        """Note what these shell lines will fetch from the network, for the question about a line
        that runs it.
        """
        from ouro.safety.shell.fetched_files import note_fetched
        from ouro.safety.shell.parse import parse_line
        from ouro.safety.shell.paths import Places

        for line in map(parse_line, lines):
            note_fetched(line, Places(self.workspace, line), self.fetched)

    def find_danger(self, line: str) -> str:
        """Returns why a shell line that the user typed is dangerous: it cannot be undone, or acts
        outside of the workspace. Empty if it is not.
        """
        from ouro.safety.shell.floor import floor
        from ouro.safety.shell.parse import parse_line
        from ouro.safety.shell.paths import Places

        parsed = parse_line(line)
        return floor(parsed, Places(self.workspace, parsed))

    def remember(self, rule: str, kind: Kind = "allow", *, save: bool = True) -> None:
        """Add a rule, or several separated by commas, and save them for the project (unless `save`
        is False). Rules that hold already are left out.

        Raises:
            ConfigError: one of them is not a rule, or the saved rules cannot be read.
            OSError: they cannot be saved. They hold nevertheless.
        """
        new = [added for added in parse_rules(rule) if added not in self._rules[kind]]
        self._rules[kind] += new  # before they are saved: they hold even if that fails
        if save and self.saved is not None:
            for added in new:
                self.saved.add(str(added), kind)

    def revoke(self, rule: str, kind: Kind) -> None:
        """Remove a rule, also from the saved rules of the project."""
        self._rules[kind][:] = [other for other in self._rules[kind] if str(other) != rule]
        if self.saved is not None:
            self.saved.remove(rule, kind)

    @contextmanager
    def widen(self, allow: Sequence[str]) -> Iterator[None]:
        """Inside this context these allow rules hold too. Raises ConfigError if one of them is not
        a rule.
        """
        added = [parse_rule(text) for text in allow]
        self._rules["allow"] += added
        try:
            yield
        finally:
            # By identity: the user may have a rule that is equal, which must stay.
            ids = set(map(id, added))
            # In place: a subagent that was started inside of this context shares the list.
            self._rules["allow"][:] = [rule for rule in self._rules["allow"] if id(rule) not in ids]

    def find_rule(
        self, kind: Kind, tool: str, effect: Effect, test: Callable[[Rule], bool], what: str = ""
    ) -> Rule | None:
        """Returns the first rule of a kind that is about the tool and passes the test; None if
        there is none. An allow rule is noted as used: `decide` records that if the call runs.

        Args:
            test: whether the pattern of a rule covers the target.
            what: what an allow rule would allow, for the record of its use; empty: the tool.
        """
        rule = next(filter(test, self._rules_about(kind, tool, effect)), None)
        if rule is not None and kind == "allow":
            self._used_rules[str(rule)] = what
        return rule

    def find_path_rule(
        self, kind: Kind, tool: str, effect: Effect, path: Path, unresolved: Path
    ) -> Rule | None:
        """Returns the first rule of a kind (`ask` or `deny`) that covers a path: as it is with
        links followed (`path`), or as it was named (`unresolved`). A rule about writing also covers
        it by one of its other names (hard links). None if there is none.
        """
        other_names = self.workspace.other_names(path).found if effect is Effect.WRITE else ()
        places = list(product((path, unresolved, *other_names), self._roots))
        return self.find_rule(
            kind,
            tool,
            effect,
            lambda rule: any(rule.matches_path(place, root, widely=True) for place, root in places),
        )

    @property
    def _roots(self) -> tuple[Path, ...]:
        """The folders that a relative pattern may start from: the root of the workspace. For a
        subagent, whose workspace may be another folder, also the roots of its session.
        """
        return (self.workspace.root, *(self._parent._roots if self._parent else ()))

    def unreadable(self) -> re.Pattern[str] | None:
        """Returns a regular expression that matches the whole text of a path that rules deny to
        read (the text of `path_text`). None if there is no such rule.
        """
        patterns = [path_regex(pattern, root) for pattern, root in self._denied_patterns()]
        return re.compile("|".join(patterns), re.IGNORECASE | re.DOTALL) if patterns else None

    def _denied_patterns(self) -> list[tuple[str, Path]]:
        """Returns the patterns of the rules that deny to read, each paired with every folder that
        it may start from.
        """
        rules = self._rules_about("deny", "read", Effect.READ)
        patterns = [rule.pattern for rule in rules if rule.pattern]
        return list(product(patterns, self._roots))

    def unreadable_files(self) -> list[Path]:
        """Returns the existing files and folders that rules deny to read, with links followed.

        They are searched below the fixed beginning of each pattern; for a bare name, below the
        workspace. Blocks.

        Raises:
            OSError: there are too many of them, or too many files to search.
        """
        unreadable = self.unreadable()
        if unreadable is None:
            return []
        starts = self._starts_of_denied()
        folders = [_folder_above(start) for start in starts]
        visited: set[str] = set()
        paths: list[Path] = []
        name_count = 0
        while folders:
            folder = folders.pop()
            if folder in visited:
                continue
            visited.add(folder)
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                names = self._names_in(folder, unreadable)
                name_count += names.name_count
                paths += map(Path, map(os.path.realpath, names.unreadable))
                folders += [inner for inner in names.folders if _is_below(inner, starts)]
            if len(paths) > _MAX_UNREADABLE or name_count > _MAX_NAMES:
                raise OSError("the files that rules deny to read are too many to hide, or to find")
        return [path for path in dict.fromkeys(paths) if path.exists()]

    def _starts_of_denied(self) -> tuple[str, ...]:
        """Returns the text before the first wildcard of each pattern that rules deny to read. A
        path that is denied begins with one of them.
        """
        starts = [
            re.split(r"[*?]", readable_bytes(absolute_pattern(pattern, root)))[0]
            for pattern, root in self._denied_patterns()
        ]
        if all(starts):
            return tuple(starts)
        # A bare name is denied everywhere below these folders.
        roots = [f"{path_text(root)}/" for root in (*self.workspace.roots, *self._roots)]
        return (*filter(None, starts), *roots)

    def _names_in(self, folder: str, unreadable: re.Pattern[str]) -> _FolderNames:
        """Returns the names in a folder that the pattern `unreadable` matches, and the folders in
        it that must be searched.

        The folder is read again only if it changed: no program can set its time of change (ctime).
        """
        status = os.stat(folder)  # noqa: PTH116 - for many folders
        state = (status.st_dev, status.st_ino, status.st_ctime_ns, status.st_mtime_ns)
        known = self._names_by_folder.get((folder, unreadable.pattern))
        if known is not None:
            known_state, known_names = known
            if known_state == state:
                return known_names
        with os.scandir(folder) as scan:
            entries = [*scan]
        matching = [
            entry.path for entry in entries if unreadable.fullmatch(readable_bytes(entry.path))
        ]
        # `.git/objects` has many folders, and no file that a user names in a rule.
        inner = (entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
        searched = [
            path for path in inner if path not in matching and not path.endswith("/.git/objects")
        ]
        names = _FolderNames(len(entries), matching, searched)
        if time.time_ns() - status.st_ctime_ns > _CHANGE_TIME_MARGIN:
            self._names_by_folder[folder, unreadable.pattern] = state, names
        return names

    def restricts_reading(self, path: Path) -> bool:
        """Whether a search must skip this file, because a rule denies to read it or asks about
        it.
        """
        kinds: tuple[Kind, ...] = ("deny", "ask")
        return any(self.find_path_rule(kind, "grep", Effect.READ, path, path) for kind in kinds)

    def permits_path(self, tool: str, effect: Effect, path: Path) -> bool:
        """Whether a path may be read or written without a question, by an allow rule or by the
        mode.

        The caller must check ask and deny rules and protected paths before. Memory files may always
        be written.
        """
        workspace = self.workspace
        inside = workspace.is_inside(path)
        area = None if inside else protected.reserved_area(path)
        if effect is Effect.WRITE and workspace.is_memory(path):
            return True

        def allows(rule: Rule) -> bool:
            is_about_place = inside or _allows_outside(rule, area)
            return is_about_place and rule.matches_path(path, workspace.root)

        if self.find_rule("allow", tool, effect, allows, workspace.shown(path)) is not None:
            return True
        if effect is Effect.READ:
            return inside or (self.mode == "auto" and area is None)
        return inside and self.mode in ("edit", "auto")

    def _rules_about(self, kind: Kind, tool: str, effect: Effect) -> Iterator[Rule]:
        """Returns the rules of a kind that are about a tool, whatever their patterns are."""
        return (rule for rule in self._rules_of(kind) if rule.covers(tool, effect))

    def _rules_of(self, kind: Kind) -> Sequence[Rule]:
        """The rules of a kind. A subagent has the deny rules of its session and its own; the rules
        of other kinds are in lists that it shares with its session.
        """
        rules = self._rules[kind]
        if kind == "deny" and self._parent is not None:
            return [*self._parent._rules_of("deny"), *rules]
        return rules

    def _decide_target(self, tool: str, effect: Effect, target: str, outside: bool) -> Decision:
        """Decide on one target: by the effect it is a path, a shell line, an address, or the name
        of a tool. For any other effect only an ask rule without a pattern counts. `outside`:
        whether the call asks to leave the sandbox, which matters only for a shell line.
        """
        if effect in (Effect.READ, Effect.WRITE):
            return self._decide_file(tool, effect, target)
        if effect is Effect.RUN:
            # Imported late: only shell lines need its tables and grammar.
            from ouro.safety.shell.judge import decide_line

            return decide_line(self, tool, target, outside=outside)
        if effect is Effect.NET:
            return self._decide_url(tool, target)
        if effect in _WHO_RUNS:
            return self._decide_named_tool(tool, effect, target)
        rule = self.find_rule("ask", tool, effect, lambda rule: rule.pattern is None)
        return Ask(f"the rule `ask {rule}` says so") if rule else Allow()

    def _decide_file(self, tool: str, effect: Effect, target: str) -> Decision:
        """Decide on reading or writing a path.

        In this order: a deny rule and the plan mode deny; a protected path and an ask rule need a
        question; the mode or an allow rule allows. Everything else needs a question.
        """
        path = self.workspace.resolve(target)
        # Also without following links, because a rule may name the link.
        expanded = os.path.expanduser(target.replace("\0", ""))  # noqa: PTH111 - Path's raises for ~nobody
        unresolved = Path(os.path.normpath(self.workspace.root / expanded))
        if rule := self.find_path_rule("deny", tool, effect, path, unresolved):
            return Deny(f"The rule `deny {rule}` forbids {target}.")
        if effect is Effect.WRITE and self.mode == "plan":
            return Deny(PLAN)
        shown = self.workspace.shown(path)
        if effect is Effect.WRITE and (reason := self.workspace.protection(path)):
            return Ask(f"{shown}: {reason}")
        if rule := self.find_path_rule("ask", tool, effect, path, unresolved):
            return Ask(f"{shown}: the rule `ask {rule}` says so")
        if self.permits_path(tool, effect, path):
            return Allow()
        question = (
            f"it changes {shown}"  # reading inside the workspace was allowed above
            if self.workspace.is_inside(path)
            else f"{shown} is outside the workspace"
        )
        return Ask(question, path_rule(effect.value, path, self.workspace))

    def _decide_url(self, tool: str, url: str) -> Decision:
        """Decide on an address.

        In this order: a deny rule and a secret in the address deny; a long text that may be encoded
        data and an ask rule need a question; an allow rule allows. Another host needs a question.
        """
        if rule := self.find_rule("deny", tool, Effect.NET, lambda rule: rule.matches_url(url)):
            return Deny(f"The rule `deny {rule}` forbids {url}.")
        if secret := self.finds_secret(url):
            return Deny(f"The address holds {secret}. Nothing secret leaves this machine.")
        if data := _ENCODED_DATA.search(url):
            return Ask(f"the address carries {len(data[0])} characters that may be encoded data")
        if rule := self.find_rule("ask", tool, Effect.NET, lambda rule: rule.matches_url(url)):
            return Ask(f"the rule `ask {rule}` says so")
        host = requested_url(url).hostname or ""
        if self.find_rule("allow", tool, Effect.NET, lambda rule: rule.matches_url(url), host):
            return Allow()
        return _question_about_host(tool, host)

    def _decide_named_tool(self, tool: str, effect: Effect, name: str) -> Decision:
        """Decide on a tool of an MCP server, or a tool from a file. Only its name is known, so it
        is allowed only by an allow rule or in the mode `auto`.
        """
        if rule := self.find_rule("deny", tool, effect, lambda rule: rule.matches_name(name)):
            return Deny(f"The rule `deny {rule}` forbids {name}.")
        if self.mode == "plan":
            return Ask(f"plan mode is on, and {name} may change something")
        if rule := self.find_rule("ask", tool, effect, lambda rule: rule.matches_name(name)):
            return Ask(f"the rule `ask {rule}` says so")
        if self.mode == "auto" or self.find_rule(
            "allow", tool, effect, lambda rule: rule.matches_name(name), name
        ):
            return Allow()
        offered = f"{effect.value}({name})" if has_no_wildcard(name) else ""
        # The server of `server.tool`; of a tool from a file its name.
        owner = name.partition(".")[0]
        return Ask(_WHO_RUNS[effect].format(owner), offered)
