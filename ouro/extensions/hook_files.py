"""Hook files: the hooks in settings, in front matter and in the files of Claude Code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import msgspec

from ouro.errors import ConfigError, OuroError
from ouro.extensions.checks import Check
from ouro.extensions.plugins import plugin_folder, plugin_tables
from ouro.extensions.tool_names import demand_tools, own_rule
from ouro.settings import FailureAction, HookEvent, HookSettings
from ouro.utils.lenient_json import amount, dictionaries, dictionary, read_json
from ouro.utils.runtime import get_config_path, tilde
from ouro.utils.text import one_line

DEFAULT_SECONDS = 60
LOOPBACK = ("127.0.0.1", "localhost", "::1")
EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
CLAUDE_EVENTS: Mapping[str, HookEvent] = {
    "SessionStart": "session-start",
    "UserPromptSubmit": "user-prompt",
    "PreToolUse": "before-tool",
    "PostToolUse": "after-tool",
    "PreCompact": "before-compaction",
    "PostCompact": "after-compaction",
    "Stop": "turn-end",
    "SubagentStop": "subagent-end",
    "SessionEnd": "session-end",
    "Notification": "notification",
}
"""The events, by their names in Claude Code's settings.json."""
EVENT_NAMES = {event: name for name, event in CLAUDE_EVENTS.items()}
_KNOWN_KEYS = {
    "agent",
    "args",
    "async",
    "command",
    "if",
    "model",
    "on_failure",
    "once",
    "prompt",
    "statusMessage",
    "timeout",
    "type",
    "url",
}
_OF_KIND = {"command": "command", "http": "url", "prompt": "prompt", "agent": "prompt"}
_CHECKER = "explore"
"""A type of hook in Claude Code -> the key that it needs."""
OF_TOOLS = ("before-tool", "after-tool")


class HookTraits(msgspec.Struct, frozen=True):
    """What is special about a hook."""

    prompt: str = ""
    """The check that a model carries out."""
    model: str = ""
    condition: str = ""
    """A permission rule: of a tool, the hook runs only for calls that the rule covers."""
    in_background: bool = False
    """Nobody waits for it, and it decides nothing."""
    is_once: bool = False
    """It runs once in a session."""
    checker: str = ""
    """The kind of subagent that carries out the check; empty: a model answers without tools."""

    def __str__(self) -> str:
        """`if shell(git *), async, once`."""
        condition = f"if {self.condition}" if self.condition else ""
        in_background = "async" if self.in_background else ""
        return ", ".join(filter(None, (condition, in_background, "once" if self.is_once else "")))


class Hook(msgspec.Struct, frozen=True):
    event: HookEvent
    command: str
    url: str
    matcher: str
    """Names, or a regular expression for a part of a name; empty: everything."""
    seconds: float
    place: str
    """The file that it comes from: `~/.ouro/config.yaml`."""
    is_project: bool
    """Whether it is from a project or plugin: it may refuse, but never permit."""
    check: Check | None = None
    """The check that it enforces; a check with a rule does not run a command."""
    plugin: str = ""
    """The folder of the plugin that it comes from."""
    agent: str = ""
    """The kind of subagent that it is for, from its file; empty: all, and the agent of the session.
    """
    on_failure: FailureAction = ""
    traits: HookTraits = HookTraits()

    @property
    def is_guard(self) -> bool:
        """Whether its failure refuses the call: a guard that did not answer has permitted nothing.

        A server that is not on this machine is reported at the start, and not called.
        """
        is_called = bool(self.command or self.check or self.traits.prompt) or is_loopback(self.url)
        is_waited_for = is_called and not self.traits.in_background
        return self.event == "before-tool" and self.on_failure != "permit" and is_waited_for

    @property
    def label(self) -> str:
        asker = self.traits.checker or "prompt"
        asked = f"{asker}: {self.traits.prompt}" if self.traits.prompt else ""
        refused = f"refuses {self.check.rule if self.check else ''}"
        return one_line(self.command or self.url or asked or refused, 80)

    def matches(self, names: Sequence[str], agent: str) -> bool:
        """Whether it applies to one of these names (without names: always) and to the subagent with
        that id.
        """
        if self.agent not in ("", kind_of(agent)):
            return False
        if self.matcher in ("", "*") or not names:
            return True
        if re.fullmatch(r"[\w ,|-]+", self.matcher):
            return not {*re.split(r" *[,|] *", self.matcher.strip())}.isdisjoint(names)
        try:
            return any(re.search(self.matcher, name) for name in names)
        except re.error:
            return True  # fail closed: better to run a guard too often than never


def load_hooks(
    users: Sequence[HookSettings],
    projects: Sequence[HookSettings],
    claude_files: Mapping[Path, bool],
) -> tuple[tuple[Hook, ...], tuple[str, ...]]:
    """The hooks by priority, including those of plugins, and a line for each entry that is not
    used.

    Blocks.

    Args:
        users, projects: the hooks of the user's and of the project's config.yaml.
        claude_files: settings files of Claude Code, and whether one is of the project.
    """
    problems: list[str] = []
    found: list[Hook] = []
    settings = ((tilde(get_config_path()), False, users), (".ouro/config.yaml", True, projects))
    for place, is_project, hooks in settings:
        found += [_hook_of_settings(own, place, is_project=is_project) for own in hooks]
    for hook in found:
        problems += _check_hook(hook)
    for path, is_project in claude_files.items():
        try:
            events = dictionary(read_json(path).get("hooks"))
        except ConfigError as error:
            problems.append(f"{error.message} None of its hooks runs.")
        else:
            found += events_hooks(events, tilde(path), is_project, problems)
    for name, events in plugin_tables("hooks", problems).items():
        # Like a project, a plugin permits nothing: the user has seen a list, not its programs.
        found += events_hooks(events, f"plugin {name}", True, problems, str(plugin_folder(name)))
    return tuple(found), tuple(problems)


def _hook_of_settings(settings: HookSettings, place: str, *, is_project: bool) -> Hook:
    """A hook of the settings as a hook to run; `place` is the file that has it."""
    return Hook(
        settings.event,
        settings.command,
        settings.url,
        settings.matcher,
        float(settings.timeout_seconds),
        place,
        is_project,
        on_failure=settings.on_failure,
        traits=HookTraits(
            settings.prompt,
            settings.model,
            settings.if_,
            settings.async_,
            settings.once,
            settings.agent,
        ),
    )


def kind_of(agent: str) -> str:
    """The kind of a subagent by its id: `explore` of `explore-1`."""
    return agent.rpartition("-")[0]


def _check_hook(hook: Hook) -> Iterator[str]:
    """What will not work as it is written in a hook, as warnings."""
    if hook.url and not is_loopback(hook.url):
        yield (
            f"{hook.place}: the hook {hook.url} is not on this machine (http://127.0.0.1): it is"
            " not called."
        )
    try:
        re.compile(hook.matcher if hook.matcher != "*" else "")
    except re.error as error:
        yield f"{hook.place}: the matcher `{hook.matcher}` is not valid ({error}): it fits all."
    if hook.traits.condition and hook.event not in OF_TOOLS:
        yield f"{hook.place}: a hook for {hook.event} with `if` never runs: there is no tool call."
    elif hook.traits.condition and not is_rule(hook.traits.condition):
        yield f"{hook.place}: `if: {hook.traits.condition}` is not a permission rule: the hook always runs."
    if hook.traits.in_background and hook.event == "before-tool":
        yield f"{hook.place}: the hook `{hook.label}` is `async`: it refuses nothing."


def is_rule(condition: str) -> bool:
    try:
        demand_tools([own_rule(condition)])
    except OuroError:
        return False
    return True


def events_hooks(
    events: Mapping[str, Any], place: str, is_project: bool, problems: list[str], plugin: str = ""
) -> Iterator[Hook]:
    """The hooks in an object with Claude Code's format; each hook that is not used adds a line to
    `problems`.
    """
    for name, groups in events.items():
        event = CLAUDE_EVENTS.get(name) or next((own for own in EVENTS if own == name), None)
        if event is None:
            problems.append(f"{place}: ouro has no event {name}: its hooks do not run.")
            continue
        for group in dictionaries(groups):
            matcher = str(group.get("matcher") or "")
            for entry in dictionaries(group.get("hooks")):
                hook = _read_entry(entry, event, matcher, (place, is_project, plugin), problems)
                if hook is not None:
                    problems += _check_hook(hook)
                    yield hook


def _read_entry(
    entry: Mapping[str, Any],
    event: HookEvent,
    matcher: str,
    origin: tuple[str, bool, str],
    problems: list[str],
) -> Hook | None:
    """The hook of an entry in Claude Code's format; None, and a line in `problems`, if it does not
    run.
    """
    place, is_project, plugin = origin
    kind, name = entry.get("type", "command"), EVENT_NAMES[event]
    command, needed = _command_line(entry), _OF_KIND.get(str(kind), "")
    values = {"command": command, "url": _word(entry, "url"), "prompt": _word(entry, "prompt")}
    if not values.get(needed):
        known = "commands, HTTP, prompts and agents"
        problems.append(
            f"{place}: a hook of type {kind} for {name} does not run: ouro has {known}."
        )
        return None
    if ignored := sorted(set(entry) - _KNOWN_KEYS):
        problems.append(f"{place}: `{', '.join(ignored)}` of a hook for {name} has no effect here.")
    return Hook(
        event,
        command if needed == "command" else "",
        values["url"] if needed == "url" else "",
        matcher,
        _parse_seconds(entry.get("timeout")),
        place,
        is_project,
        plugin=plugin,
        on_failure="permit" if entry.get("on_failure") == "permit" else "",
        traits=HookTraits(
            values["prompt"] if needed == "prompt" else "",
            _word(entry, "model"),
            _word(entry, "if"),
            _is_true(entry.get("async")),
            _is_true(entry.get("once")),
            (_word(entry, "agent") or _CHECKER) if kind == "agent" else "",
        ),
    )


def _word(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""


def _is_true(value: Any) -> bool:
    """In front matter `true` is text."""
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _parse_seconds(value: Any) -> float:
    """In front matter numbers are text."""
    try:
        return amount(float(value)) or DEFAULT_SECONDS
    except (TypeError, ValueError, OverflowError):
        return DEFAULT_SECONDS


def _command_line(entry: Mapping[str, Any]) -> str:
    """The command as a bash line. With `args` it is quoted, and only `${CLAUDE_PROJECT_DIR}` is
    expanded.
    """
    command, arguments = str(entry.get("command") or ""), entry.get("args")
    if not command or not isinstance(arguments, list):
        return command
    line = shlex.join(map(str, [command, *arguments]))
    return line.replace("${CLAUDE_PROJECT_DIR}", "'\"$CLAUDE_PROJECT_DIR\"'")


def is_loopback(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in LOOPBACK
