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
from ouro.utils.path_escapes import path_text
from ouro.utils.text import readable_bytes
from ouro.utils.yaml import convert, read_yaml

Mode = Literal["ask", "edit", "plan", "auto"]
"""What runs without asking. `ask`: reading. `edit`: also changing files. `plan`: reading, and
nothing else runs. `auto`: everything except the hard floor.
"""


def narrower(one: Mode, other: Mode) -> Mode:
    """The one of two modes that permits less."""
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
_RULE_TEXT = late_pattern(r"([A-Za-z_][\w*.-]*)(?:\((.*)\))?", re.DOTALL)
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
        """Whether the rule is about this tool; `write` covers every tool that changes files."""
        return _EFFECT_BY_WORD.get(self.head) is effect or fnmatch.fnmatchcase(tool, self.head)

    def matches_line(self, text: str) -> bool:
        """Whether the pattern covers a whole command; `git push *` covers `git push` too."""
        if self.pattern is None:
            return True
        pattern = " ".join(re.sub(r":\*$", " *", self.pattern).split())
        if pattern.endswith(" *"):
            regex = _translate_glob(pattern.removesuffix(" *"), ".*") + r"(?: .*)?"
        else:
            regex = _translate_glob(pattern, ".*")
        return bool(re.fullmatch(regex, text, re.DOTALL))

    def matches_path(self, path: Path, root: Path, *, widely: bool = False) -> bool:
        """Whether the pattern covers a path: relative to `root`, to home with `~`, or a bare name
        anywhere.

        Args:
            widely: ignore case, as some disks do; for rules that deny.
        """
        if self.pattern is None:
            return True
        flags = re.IGNORECASE if widely else 0
        return bool(
            re.fullmatch(path_regex(self.pattern, root), path_text(path), flags | re.DOTALL)
        )

    def matches_name(self, name: str) -> bool:
        """Whether the pattern covers a tool of an MCP server: `github.*` covers
        `github.create_issue`.
        """
        return self.pattern is None or fnmatch.fnmatchcase(name, self.pattern)

    def matches_url(self, url: str) -> bool:
        """Whether the pattern covers a URL by its host, or by its prefix if the pattern has a
        scheme.
        """
        if self.pattern is None:
            return True
        requested = requested_url(url)
        if "://" not in self.pattern:
            return fnmatch.fnmatchcase(requested.hostname or "", self.pattern.lower())
        scheme, _, rest = self.pattern.partition("://")
        host, slash, path = rest.partition("/")
        below = ".*" if host.endswith("*") else "/?"
        if slash:
            below = _translate_glob(f"/{path}", ".*")
        # In the host a star is no slash: `https://*.a.example/*` is not
        # `https://evil.example/x.a.example/`.
        location = _translate_glob(re.sub(r"\*+", "*", f"{scheme}://{host}".lower()), "[^/]*")
        return bool(re.fullmatch(location + below, requested.geturl(), re.DOTALL))


def requested_url(url: str) -> SplitResult:
    """The parts of a URL as it is requested: without user, usual port, fragment, and `..` in its
    path. All are empty if it is not valid.
    """
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return urlsplit("")
    location = f"[{host}]" if ":" in host else host
    if port not in (None, {"http": 80, "https": 443}.get(parts.scheme)):
        location += f":{port}"
    path = re.sub("%2e", ".", parts.path or "/", flags=re.IGNORECASE)
    if re.search(r"/\.\.?(/|\Z)", path):
        path = urlsplit(urljoin("http://host", path)).path
    return parts._replace(netloc=location, path=path, fragment="")


def parse_rule(text: str, where: str = "") -> Rule:
    """Parse a rule. Raises ConfigError if it is not a rule; the message begins with `where`."""
    match = _RULE_TEXT.fullmatch(text.strip())
    if not match or (match[2] is not None and not match[2].strip()):
        raise ConfigError(f"{where}`{text}` is not a permission rule.", _RULE_HINT)
    return Rule(match[1], match[2].strip() if match[2] is not None else None)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Parse rules separated by commas. Raises ConfigError: one of them is not a rule."""
    return tuple(
        parse_rule(piece) for piece in re.split(r"(?<=\)),\s*(?=[A-Za-z_][\w*.-]*\()", text)
    )


def path_rule(effect: str, path: Path, workspace: Workspace) -> str:
    """The rule that allows to read or write `path` and the files beside it; empty for a protected
    path, or a name with pattern characters. `effect`: `read` or `write`.
    """
    root, home = workspace.root, workspace.resolve("~")
    if workspace.protection(path):
        return ""
    if path.is_relative_to(root):
        names = path.relative_to(root).parts
        pattern = f"./{names[0]}" if names else "./**"
        if len(names) > 1:
            pattern = f"{names[0]}/**"
    else:
        base, start = (path.relative_to(home), "~/") if path.is_relative_to(home) else (path, "")
        # Not all of home, nor all of a folder such as /etc.
        is_near_top = len(base.parts) < (2 if start else 3)
        pattern = f"{start}{base}" if is_near_top else f"{start}{base.parent}/**"
    pattern = readable_bytes(pattern)
    return f"{effect}({pattern})" if has_no_wildcard(pattern.removesuffix("/**")) else ""


def has_no_wildcard(text: str) -> bool:
    """Whether a text means only itself in the pattern of a rule."""
    return not re.search(r"[*?\[\]\n()]", text)


def absolute_pattern(pattern: str, root: Path) -> str:
    """The pattern with `root` or the home folder before it; empty for a bare name, which may be in
    any folder.
    """
    pattern = pattern.rstrip("/") if pattern.endswith("/") and len(pattern) > 1 else pattern
    if pattern.startswith("~"):
        return os.path.expanduser(pattern)  # noqa: PTH111 - a pattern is not a path
    if pattern.startswith("/"):
        return pattern
    return f"{root}/{pattern.removeprefix('./')}" if "/" in pattern else ""


def path_regex(pattern: str, root: Path) -> str:
    """The regular expression for the paths that a pattern covers, and for what is below them. It is
    for paths as `path_text` writes them.
    """
    pattern = readable_bytes(pattern)
    full = readable_bytes(absolute_pattern(pattern, root))
    if not full:
        return rf"(?:.*/)?{_translate_glob(pattern.rstrip('/'), '[^/]*')}(?:/.*)?"
    return _translate_glob(full.removesuffix("/**"), "[^/]*") + r"(?:/.*)?"


def _translate_glob(pattern: str, star: str) -> str:
    """Translate a pattern to a regular expression: `**` is anything, `*` is `star`, `?` is one
    character.

    If the same star follows, the shortest match of the first is enough: `*a*b*c` is matched in
    linear time.
    """
    texts = re.split(r"\*\*/|\*+", pattern)
    stars = [
        {"**/": "(?:.*/)?", "*": star}.get(mark, ".*") for mark in re.findall(r"\*\*/|\*+", pattern)
    ]
    regex = _escape_literal(texts[0])
    for current, text, following in zip(stars, texts[1:], (*stars, "")[1:], strict=True):
        # `?` matches a slash, but a star may not.
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
        self._uses = path.with_name("permissions_used.jsonl")
        self._project = path_text(project.resolve())

    def load(self, kind: Kind = "allow") -> tuple[str, ...]:
        """The project's rules of a kind, oldest first; none if there is no file.

        Raises:
            ConfigError: the file does not hold rules; it is not changed.
        """
        return self.load_kinds()[kind]

    def load_kinds(self) -> Mapping[Kind, tuple[str, ...]]:
        """The project's rules by kind, oldest first. Raises ConfigError if the file does not hold
        rules.
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
        parse_rule(rule)  # raises ConfigError before anything is saved
        self._change(
            lambda saved: (
                saved
                if _format_saved_rule(kind, rule) in saved
                else (*saved, _format_saved_rule(kind, rule))
            )
        )

    def remove(self, rule: str, kind: Kind = "allow") -> None:
        """Delete a saved rule, if it is there. Raises ConfigError if the file does not hold rules,
        OSError if it cannot be written.
        """
        self._change(
            lambda saved: tuple(text for text in saved if text != _format_saved_rule(kind, rule))
        )

    def note_use(self, rule: str, what: str) -> None:
        """Record what an allow rule has allowed; a failure is ignored."""
        use = RuleUse(self._project, rule, what, datetime.now(UTC).isoformat(timespec="seconds"))
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._uses, flags, 0o600)
            try:
                os.write(descriptor, msgspec.json.encode(use) + b"\n")
                size = os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
            if size > _MAX_USES:
                last_uses = {
                    (use.project, use.rule): msgspec.json.encode(use).decode()
                    for use in self._all_uses()
                }
                write_private(self._uses, "".join(f"{line}\n" for line in last_uses.values()))

    def uses(self) -> dict[str, RuleUse]:
        """The last use of each rule in this project."""
        return {use.rule: use for use in self._all_uses() if use.project == self._project}

    def _all_uses(self) -> Iterator[RuleUse]:
        """Yield the recorded uses of all projects, oldest first; skips lines that cannot be read."""
        for row in self._uses.read_bytes().splitlines() if self._uses.is_file() else ():
            with suppress(msgspec.MsgspecError):
                yield decode_json(row, RuleUse)

    def _change(self, change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> None:
        """Change the rules of the project in the file, under its lock. A project without rules is
        left out.
        """
        import yaml

        ensure_private_dir(self._path.parent)
        with lock_file(self._path.with_suffix(".lock")):
            projects = self._read()
            saved = projects.get(self._project, ())
            if (changed := change(saved)) != saved:
                texts = {
                    name: list(rules)
                    for name, rules in {**projects, self._project: changed}.items()
                    if rules
                }
                write_private(
                    self._path,
                    _FILE_HEADER + yaml.safe_dump(texts, allow_unicode=True, sort_keys=True),
                )

    def _read(self) -> dict[str, tuple[str, ...]]:
        """The rules of all projects. Raises ConfigError if a rule of this project is invalid."""
        table = read_yaml(self._path)
        projects = {
            name: convert(node, tuple[str, ...], str(self._path), name)
            for name, node in table.entries.items()
        }
        for rule in projects.get(self._project, ()):
            _kind, text = _parse_saved_rule(rule)
            parse_rule(text, f"{tilde(self._path)}: ")  # only for its error
        return projects


_NAMED_KINDS: tuple[Kind, ...] = ("ask", "deny")


def _parse_saved_rule(saved: str) -> tuple[Kind, str]:
    """The kind and the rule of a saved text; without a kind it is `allow`, as earlier versions
    wrote it.
    """
    word, _, rule = saved.partition(" ")
    for kind in _NAMED_KINDS:
        if word == kind:
            return kind, rule
    return "allow", saved


def _format_saved_rule(kind: Kind, rule: str) -> str:
    """The text that the file has for a rule."""
    return rule if kind == "allow" else f"{kind} {rule}"
