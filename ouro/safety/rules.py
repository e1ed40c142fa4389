"""Permission rules, such as `shell(git status *)` and `write(src/**)`, and the decisions on tool
calls.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, urljoin, urlsplit

import msgspec

from ouro.errors import ConfigError
from ouro.safety.workspace import Workspace
from ouro.settings import MODES_BY_WIDTH
from ouro.utils.decoding import decode_json
from ouro.utils.files import lock_file, write_private
from ouro.utils.late_pattern import late_pattern
from ouro.utils.ouro_paths import ensure_private_dir, tilde
from ouro.utils.path_encoding import path_text
from ouro.utils.text import readable_bytes
from ouro.utils.yaml import convert, read_yaml

Mode = Literal["ask", "edit", "plan", "auto"]
"""What runs without asking. `ask`: reading. `edit`: also changing files. `plan`: reading, and
nothing else runs. `auto`: everything except the hard floor.
"""


def narrower(one: Mode, other: Mode) -> Mode:
    """Returns the one of two modes that permits less."""
    return min(one, other, key=MODES_BY_WIDTH.index)


class Effect(StrEnum):
    """What a tool call touches outside of the session."""

    NONE = "none"
    READ = "read"
    """Reads files; the targets are paths."""
    WRITE = "write"
    """Changes files; the targets are paths."""
    RUN = "run"
    """Runs a shell line; the target is the line."""
    NET = "net"
    """Reaches a network; the target is a URL."""
    MCP = "mcp"
    """Calls a tool of an MCP server; the target is `server.tool`."""
    TOOL = "tool"
    """Runs a tool from a file of the user or the project; the target is its name."""


Limits = Literal["read", "memory", "workspace", "repository", "off"]
"""What a command may change in the sandbox: nothing; long-term memory; the workspace without .git;
the workspace with .git; off: everything that the user may change.
"""


class Allow(msgspec.Struct, frozen=True):
    """The call runs; a command within `limits`."""

    limits: Limits = "off"


class Ask(msgspec.Struct, frozen=True):
    """The call runs if the user allows it."""

    reason: str
    rule: str = ""
    """What the answer "always" would add; empty if that answer cannot be given."""


class Deny(msgspec.Struct, frozen=True):
    """The call does not run; `reason` is for the model."""

    reason: str


Decision = Allow | Ask | Deny
Kind = Literal["deny", "ask", "allow"]
"""The kinds of rules."""

_RULE_HINT = "Write what may be done: edit, shell(git status *), write(src/**)."
_RULE_TEXT = late_pattern(r"(?P<head>[A-Za-z_][\w*.-]*)(?:\((?P<pattern>.*)\))?", re.DOTALL)
_MCP_PREFIX = "mcp__"
"""Begins the names of MCP tools in other agents: `mcp__SERVER__TOOL`."""
_EFFECT_BY_WORD = {
    "read": Effect.READ,
    "write": Effect.WRITE,
    "run": Effect.RUN,
    "shell": Effect.RUN,
    "net": Effect.NET,
    "mcp": Effect.MCP,
    "tool": Effect.TOOL,
}


class Rule(msgspec.Struct, frozen=True):
    """One rule, such as `shell(git status *)`."""

    head: str
    """The tools, by a name with stars, or by what they do (`write`, `mcp`)."""
    pattern: str | None = None
    """What they touch; None: anything."""

    def __str__(self) -> str:
        return self.head if self.pattern is None else f"{self.head}({self.pattern})"

    def covers(self, tool: str, effect: Effect) -> bool:
        """Whether the rule is about this tool, by its name or by its effect: `write` covers every
        tool that changes files. The pattern is not looked at.
        """
        return _EFFECT_BY_WORD.get(self.head) is effect or fnmatch.fnmatchcase(tool, self.head)

    def matches_line(self, text: str, *, widely: bool = False) -> bool:
        """Whether the pattern covers a whole command; `git push *` covers `git push` too.

        Args:
            widely: whether further words may follow, so that `git push` covers `git push origin`;
                for rules that deny or ask.
        """
        if self.pattern is None:
            return True
        # `git push:*` is how other agents write `git push *`.
        pattern = " ".join(re.sub(r":\*$", " *", self.pattern).split())
        if widely or pattern.endswith(" *"):
            regex = _translate_glob(pattern.removesuffix(" *"), ".*") + r"(?: .*)?"
        else:
            regex = _translate_glob(pattern, ".*")
        return bool(re.fullmatch(regex, text, re.DOTALL))

    def matches_path(self, path: Path, root: Path, *, widely: bool = False) -> bool:
        """Whether the pattern covers a path, as `path_regex` says. A rule without a pattern covers
        all paths.

        Args:
            root: the folder that a relative pattern starts from.
            widely: whether case is ignored, as some disks do; for rules that deny or ask.
        """
        if self.pattern is None:
            return True
        flags = re.IGNORECASE if widely else 0
        return bool(
            re.fullmatch(path_regex(self.pattern, root), path_text(path), flags | re.DOTALL)
        )

    def matches_name(self, name: str) -> bool:
        """Whether the pattern covers the name of a tool: `github.*` covers `github.create_issue`, a
        tool of an MCP server.
        """
        return self.pattern is None or fnmatch.fnmatchcase(name, self.pattern)

    def matches_url(self, url: str) -> bool:
        """Whether the pattern covers a URL.

        A pattern without a scheme covers a host. One with a scheme covers the whole URL: without a
        path only the root of the host, or all of it if the host ends with a star.
        """
        if self.pattern is None:
            return True
        requested = requested_url(url)
        if "://" not in self.pattern:
            return fnmatch.fnmatchcase(requested.hostname or "", self.pattern.lower())
        scheme, _, rest = self.pattern.partition("://")
        host, slash, path = rest.partition("/")
        below_host = _translate_glob(f"/{path}", ".*")
        if not slash:
            below_host = ".*" if host.endswith("*") else "/?"
        # In the host a star is no slash: `https://*.a.example/*` is not
        # `https://evil.example/x.a.example/`.
        host_regex = _translate_glob(re.sub(r"\*+", "*", f"{scheme}://{host}".lower()), "[^/]*")
        return bool(re.fullmatch(host_regex + below_host, requested.geturl(), re.DOTALL))


def requested_url(url: str) -> SplitResult:
    """Returns the parts of a URL as a client requests it: without user, usual port and fragment,
    and with `..` in its path resolved. All parts are empty if the URL is not valid.
    """
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return urlsplit("")
    location = f"[{host}]" if ":" in host else host  # an address of IPv6
    if port not in (None, {"http": 80, "https": 443}.get(parts.scheme)):
        location += f":{port}"
    path = re.sub("%2e", ".", parts.path or "/", flags=re.IGNORECASE)
    if re.search(r"/\.\.?(/|\Z)", path):
        path = urlsplit(urljoin("http://host", path)).path  # resolves `.` and `..`
    return parts._replace(netloc=location, path=path, fragment="")


def parse_rule(text: str, where: str = "") -> Rule:
    """Parse a rule such as `edit` or `shell(git status *)`. The name of an MCP tool in other agents,
    such as `mcp__github__get_issue`, becomes `mcp(github.get_issue)`, and that of a server,
    `mcp__github`, all of its tools.

    Raises:
        ConfigError: it is not a rule, or has empty brackets; the message begins with `where`.
    """
    not_a_rule = ConfigError(f"{where}`{text}` is not a permission rule.", _RULE_HINT)
    match = _RULE_TEXT.fullmatch(text.strip())
    if not match:
        raise not_a_rule
    head, pattern = match["head"], match["pattern"]
    if pattern is None:
        return _parse_name(head)
    if not pattern.strip():
        raise not_a_rule
    return Rule(head, pattern.strip())


def _parse_name(name: str) -> Rule:
    """Returns the rule for the name of a tool or of an effect. A name with stars stays as it is: it
    is compared with the names of tools.
    """
    if "*" in name or not name.startswith(_MCP_PREFIX):
        return Rule(name)
    server, _, tool = name.removeprefix(_MCP_PREFIX).partition("__")
    return Rule("mcp", f"{server}.{tool or '*'}")


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Parse rules separated by commas. Raises ConfigError: one of them is not a rule.

    A comma separates only between `)` and a head with `(`, because patterns may have commas.
    """
    return tuple(
        parse_rule(piece) for piece in re.split(r"(?<=\)),\s*(?=[A-Za-z_][\w*.-]*\()", text)
    )


def path_rule(effect: str, path: Path, workspace: Workspace) -> str:
    """Returns the rule that is offered when the user is asked about `path`, for the answer
    "always".

    In the workspace it covers the top folder that the path is in; for a file in the root, only this
    file. Elsewhere it covers the folder of the path; for a path in home or in a folder such as
    /etc, only this path. Empty for a protected path, and for a name with wildcards.

    Args:
        effect: `read` or `write`, which the rule allows.
    """
    if workspace.protection(path):
        return ""
    if path.is_relative_to(workspace.root):
        pattern = _pattern_inside(path.relative_to(workspace.root))
    else:
        pattern = _pattern_outside(path, workspace.resolve("~"))
    pattern = readable_bytes(pattern)
    return f"{effect}({pattern})" if has_no_wildcard(pattern.removesuffix("/**")) else ""


def _pattern_inside(path: Path) -> str:
    """Returns the pattern for a path relative to the workspace: its top folder, a file in the root,
    or everything for the root itself.
    """
    names = path.parts
    if not names:
        return "./**"
    if len(names) == 1:
        return f"./{names[0]}"
    return f"{names[0]}/**"


def _pattern_outside(path: Path, home: Path) -> str:
    """Returns the pattern for an absolute path: it covers the folder of the path. If that folder is
    home, `/`, or a folder in `/`, it covers only the path itself.
    """
    if path.is_relative_to(home):
        below_home = path.relative_to(home)
        is_near_top = len(below_home.parts) < 2
        return f"~/{below_home}" if is_near_top else f"~/{below_home.parent}/**"
    is_near_top = len(path.parts) < 3
    return f"{path}" if is_near_top else f"{path.parent}/**"


def has_no_wildcard(text: str) -> bool:
    """Whether a text means only itself in the pattern of a rule: it has no wildcard, bracket or
    line break.
    """
    return not re.search(r"[*?\[\]\n()]", text)


def absolute_pattern(pattern: str, root: Path) -> str:
    """Returns the pattern as an absolute one: a relative pattern is put below `root`, and `~`
    becomes home. Empty for a bare name, such as `*.pem` or `build/`, which may be in any folder.
    """
    if pattern.endswith("/") and len(pattern) > 1:
        pattern = pattern.rstrip("/")
    if pattern.startswith("~"):
        return os.path.expanduser(pattern)  # noqa: PTH111 - a pattern is not a path
    if pattern.startswith("/"):
        return pattern
    return f"{root}/{pattern.removeprefix('./')}" if "/" in pattern else ""


def path_regex(pattern: str, root: Path) -> str:
    """Returns the regular expression for the paths that a pattern covers, and for all paths below
    them. It is compared with the text of `path_text`.

    A relative pattern starts from `root`, a pattern with `~` from home. A bare name may be in any
    folder.
    """
    pattern = readable_bytes(pattern)
    full = readable_bytes(absolute_pattern(pattern, root))
    if not full:  # a bare name
        return rf"(?:.*/)?{_translate_glob(pattern.rstrip('/'), '[^/]*')}(?:/.*)?"
    return _translate_glob(full.removesuffix("/**"), "[^/]*") + r"(?:/.*)?"


def _translate_glob(pattern: str, star: str) -> str:
    """Translate a pattern to a regular expression: `*` becomes `star`, `**` anything, `**/` any
    folders or none, and `?` one character.

    In `*a*b*c` the first `*` only needs its shortest match: the next `*` can match the rest. Such a
    star becomes an atomic group, `(?>.*?a)`, which is never tried again with a longer match. So
    the time is linear.
    """
    texts = re.split(r"\*\*/|\*+", pattern)  # between the stars
    marks = re.findall(r"\*\*/|\*+", pattern)
    stars = [{"**/": "(?:.*/)?", "*": star}.get(mark, ".*") for mark in marks]
    regex = _escape_literal(texts[0])
    next_stars = (*stars, "")[1:]  # of the last one, none
    for current, text, following in zip(stars, texts[1:], next_stars, strict=True):
        # The next star must be able to match the text too, if the text occurs again later. A star
        # that stops at slashes cannot if the text has a `?`, which also matches a slash.
        may_skip_text = current == ".*" or (current == star and "?" not in text)
        literal = _escape_literal(text)
        is_shortest_enough = may_skip_text and current == following
        regex += f"(?>{current}?{literal})" if is_shortest_enough else current + literal
    return regex


def _escape_literal(text: str) -> str:
    """A text without stars as a regular expression; `?` stands for any character."""
    return re.escape(text).replace(r"\?", ".")


_FILE_HEADER = (
    '# Rules from the answer "always" and from /permissions, by folder. Delete a line to be asked'
    " again.\n"
)
_MAX_USES = 100_000
"""Maximum bytes of the record of uses; of a larger record only the last use of each rule stays."""


class RuleUse(msgspec.Struct, frozen=True):
    """The last use of an allow rule: what it allowed, and when."""

    project: str
    rule: str
    what: str
    at: str


class RuleStore:
    """The saved rules of one project and their last uses. One file has all projects; only the user
    can read it.

    In the file, `ask` and `deny` rules have these words in front.
    """

    def __init__(self, path: Path, project: Path) -> None:
        self._path = path
        self._uses_path = path.with_name("permissions_used.jsonl")
        """The file with the record of uses."""
        self._project = path_text(project.resolve())
        """The folder of the project, as the file names it."""

    def load(self, kind: Kind = "allow") -> tuple[str, ...]:
        """Returns the project's saved rules of a kind, oldest first; empty if there is no file.

        Raises:
            ConfigError: the file does not hold rules; it is not changed.
        """
        return self.load_kinds()[kind]

    def load_kinds(self) -> Mapping[Kind, tuple[str, ...]]:
        """Returns the project's saved rules by their kinds, each oldest first. Raises ConfigError
        if the file does not hold rules.
        """
        rules_by_kind: dict[Kind, tuple[str, ...]] = {"allow": (), "ask": (), "deny": ()}
        for kind, rule in map(_parse_saved_rule, self._read().get(self._project, ())):
            rules_by_kind[kind] += (rule,)
        return rules_by_kind

    def add(self, rule: str, kind: Kind = "allow") -> None:
        """Save a rule; it is on disk when this returns. Rules that other sessions saved stay.

        Raises:
            ConfigError: the file does not hold rules.
            OSError: it cannot be written.
        """
        parsed = parse_rule(rule)  # raises ConfigError before anything is saved
        text = _format_saved_rule(kind, str(parsed))
        self._change(lambda saved: saved if text in saved else (*saved, text))

    def remove(self, rule: str, kind: Kind = "allow") -> None:
        """Delete a saved rule, if it is there. Raises ConfigError if the file does not hold rules,
        OSError if it cannot be written.
        """
        removed = _format_saved_rule(kind, rule)
        self._change(lambda saved: tuple(text for text in saved if text != removed))

    def note_use(self, rule: str, what: str) -> None:
        """Append to the record of uses what an allow rule has just allowed. A failure is ignored.

        If the record is larger than `_MAX_USES`, it is rewritten with the last use of each rule.
        """
        use = RuleUse(self._project, rule, what, at=datetime.now(UTC).isoformat(timespec="seconds"))
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._uses_path, flags, 0o600)
            try:
                os.write(descriptor, msgspec.json.encode(use) + b"\n")
                size = os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
            if size > _MAX_USES:
                self._keep_last_uses()

    def _keep_last_uses(self) -> None:
        """Rewrite the record of uses with only the last use of each rule. Raises OSError."""
        last_uses = {
            (use.project, use.rule): msgspec.json.encode(use).decode() for use in self._all_uses()
        }
        write_private(self._uses_path, "".join(f"{line}\n" for line in last_uses.values()))

    def uses(self) -> dict[str, RuleUse]:
        """Returns the last use of each rule in this project, by the text of the rule."""
        return {use.rule: use for use in self._all_uses() if use.project == self._project}

    def _all_uses(self) -> Iterator[RuleUse]:
        """Yield the recorded uses of all projects, oldest first. Lines that cannot be read are left
        out.
        """
        if not self._uses_path.is_file():
            return
        for line in self._uses_path.read_bytes().splitlines():
            with suppress(msgspec.MsgspecError):
                yield decode_json(line, RuleUse)

    def _change(self, change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> None:
        """Replace the project's rules in the file by what `change` makes of them, under the lock of
        the file. If nothing changes, it is not written. Projects that have no rules left are
        removed from it.
        """
        import yaml

        ensure_private_dir(self._path.parent)
        with lock_file(self._path.with_suffix(".lock")):
            projects = self._read()
            saved = projects.get(self._project, ())
            changed = change(saved)
            if changed == saved:
                return
            all_projects = {**projects, self._project: changed}
            lists = {name: list(rules) for name, rules in all_projects.items() if rules}
            text = yaml.safe_dump(lists, allow_unicode=True, sort_keys=True)
            write_private(self._path, _FILE_HEADER + text)

    def _read(self) -> dict[str, tuple[str, ...]]:
        """Returns the saved texts of the rules by the folders of their projects. Raises ConfigError
        if the file cannot be read, or a rule of this project is not valid.
        """
        table = read_yaml(self._path)
        projects = {
            name: convert(node, to=tuple[str, ...], name=str(self._path), path=name)
            for name, node in table.entries.items()
        }
        for rule in projects.get(self._project, ()):
            _kind, text = _parse_saved_rule(rule)
            parse_rule(text, f"{tilde(self._path)}: ")  # raises ConfigError
        return projects


_NAMED_KINDS: tuple[Kind, ...] = ("ask", "deny")


def _parse_saved_rule(saved: str) -> tuple[Kind, str]:
    """Returns the kind and the rule of a saved text. A text that does not begin with a kind is an
    `allow` rule.
    """
    word, _, rule = saved.partition(" ")
    for kind in _NAMED_KINDS:
        if word == kind:
            return kind, rule
    return "allow", saved


def _format_saved_rule(kind: Kind, rule: str) -> str:
    """Returns the text of a rule in the file. A rule that is not an `allow` rule has its kind
    before it.
    """
    return rule if kind == "allow" else f"{kind} {rule}"
