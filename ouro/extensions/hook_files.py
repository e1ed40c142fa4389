"""Hook files: the hooks in settings, in front matter and in the files of Claude Code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product, starmap
from pathlib import Path
from typing import Any, get_args

import msgspec

from ouro.errors import ConfigError, OuroError
from ouro.extensions.correction_checks import Check
from ouro.extensions.plugins import plugin_folder, plugin_tables
from ouro.extensions.tool_names import demand_tools, own_rule
from ouro.settings import FailureAction, HookEvent, HookSettings
from ouro.utils.lenient_json import amount, dictionaries, dictionary, read_json
from ouro.utils.ouro_paths import get_config_path, get_home, tilde
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
_EVENT_OF_NAME: Mapping[str, HookEvent] = {**CLAUDE_EVENTS, **{event: event for event in EVENTS}}
"""The events, by their names in Claude Code and in ouro."""
EVENT_NAMES = {event: name for name, event in CLAUDE_EVENTS.items()}
"""The names in Claude Code, by event."""
_ENTRY_KEYS = {
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
"""The keys of a hook in Claude Code's format that have an effect here."""
_NEEDED_KEY = {"command": "command", "http": "url", "prompt": "prompt", "agent": "prompt"}
"""A type of hook in Claude Code -> the key that it needs."""
_DEFAULT_CHECKER = "explore"
"""The kind of subagent that carries out a check which names none."""
TOOL_EVENTS = ("before-tool", "after-tool")
"""The events that are about a tool call."""


class HookTraits(msgspec.Struct, frozen=True):
    """What is special about a hook."""

    prompt: str = ""
    """The check that a model carries out."""
    model: str = ""
    """The model that answers; empty: the usual small one."""
    condition: str = ""
    """A permission rule: a hook of a tool runs only for calls that the rule covers."""
    in_background: bool = False
    """Whether nobody waits for it; then it decides nothing."""
    is_once: bool = False
    """Whether it runs only once in a session."""
    checker: str = ""
    """The kind of subagent that carries out the check; empty: a model answers without tools."""

    def __str__(self) -> str:
        """The traits for lists of hooks: `if shell(git *), async, once`."""
        condition = f"if {self.condition}" if self.condition else ""
        in_background = "async" if self.in_background else ""
        return ", ".join(filter(None, (condition, in_background, "once" if self.is_once else "")))


class Hook(msgspec.Struct, frozen=True):
    """A program, address, prompt or rule that runs at an event of a session."""

    event: HookEvent
    command: str
    """A bash line; empty if the hook does not run a command."""
    url: str
    """An address on this machine that gets the event; empty if there is none."""
    matcher: str
    """Names, or a regular expression for a part of a name; empty: everything."""
    seconds: float
    """Its time limit."""
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
    """`permit`: if a guard fails, the call runs all the same."""
    traits: HookTraits = HookTraits()

    @property
    def is_guard(self) -> bool:
        """Whether its failure refuses the call: a guard that did not answer has permitted nothing.
        It is a guard if it runs before a tool and is waited for, unless `on_failure` permits the
        call.
        """
        # A server that is not on this machine is not called, which is reported at the start.
        is_called = bool(self.command or self.check or self.traits.prompt) or is_loopback(self.url)
        is_waited_for = is_called and not self.traits.in_background
        return self.event == "before-tool" and self.on_failure != "permit" and is_waited_for

    @property
    def label(self) -> str:
        """What it runs, calls, asks or refuses, in one line for the user."""
        if self.command or self.url:
            text = self.command or self.url
        elif self.traits.prompt:
            text = f"{self.traits.checker or 'prompt'}: {self.traits.prompt}"
        else:
            text = f"refuses {self.check.rule if self.check else ''}"
        return one_line(text, 80)

    def matches(self, names: Sequence[str], agent: str) -> bool:
        """Whether the hook runs at an event of its kind.

        Args:
            names: the names that its matcher is compared with, of which one must match; if there are
                none, every matcher matches.
            agent: the id of the subagent that the event is about; empty for the agent itself.
        """
        if self.agent not in ("", kind_of(agent)):
            return False
        if self.matcher in ("", "*") or not names:
            return True
        is_list_of_names = re.fullmatch(r"[\w ,|-]+", self.matcher)  # `Edit|Write`: whole names
        if is_list_of_names:
            wanted_names = re.split(r" *[,|] *", self.matcher.strip())
            return any(starmap(_names_tool, product(wanted_names, names)))
        try:
            return any(re.search(self.matcher, name) for name in names)
        except re.error:
            return True  # fail closed: better to run a guard too often than never


def _names_tool(wanted: str, name: str) -> bool:
    """Whether a name in a matcher means a tool: `mcp__github` means all tools of this server, as in
    permission rules. Fail closed: a guard of a whole server would never run otherwise.
    """
    is_server = wanted.startswith("mcp__") and "__" not in wanted.removeprefix("mcp__")
    return wanted == name or (is_server and name.startswith(f"{wanted}__"))


class HookOrigin(msgspec.Struct, frozen=True):
    """Where hooks are written."""

    place: str
    """The file, or the plugin, as users see it."""
    is_project: bool
    """Whether it is of a project or plugin: then the hooks permit nothing."""
    plugin: str = ""
    """The folder of the plugin; empty if it is not of one."""


def load_hooks(
    users: Sequence[HookSettings],
    projects: Sequence[HookSettings],
    claude_files: Mapping[Path, bool],
) -> tuple[tuple[Hook, ...], tuple[str, ...]]:
    """The hooks of the user, of the project, of the files of Claude Code and of plugins, in this
    order; and a line for each entry that is not used or does not work as it is written. Blocks.

    Args:
        users, projects: the hooks of the user's and of the project's config.yaml.
        claude_files: settings files of Claude Code, and whether one is of the project.
    """
    user_origin = HookOrigin(tilde(get_config_path()), is_project=False)
    project_origin = HookOrigin(".ouro/config.yaml", is_project=True)
    hooks = [
        *(_hook_of_settings(settings, user_origin) for settings in users),
        *(_hook_of_settings(settings, project_origin) for settings in projects),
    ]
    problems: list[str] = []
    for hook in hooks:
        problems += _check_hook(hook)

    for path, is_project in claude_files.items():
        try:
            events = dictionary(read_json(path).get("hooks"))
        except ConfigError as error:
            problems.append(f"{error.message} None of its hooks runs.")
        else:
            file_hooks, file_problems = parse_hooks(events, HookOrigin(tilde(path), is_project))
            hooks += file_hooks
            problems += file_problems

    plugins, unreadable = plugin_tables("hooks")
    problems += unreadable
    for name, events in plugins.items():
        # Like a project, a plugin permits nothing: the user has seen a list, not its programs.
        origin = HookOrigin(f"plugin {name}", is_project=True, plugin=str(plugin_folder(name)))
        plugin_hooks, plugin_problems = parse_hooks(events, origin)
        hooks += plugin_hooks
        problems += plugin_problems
    return tuple(hooks), tuple(problems)


def check_matchers(hooks: Iterable[Hook], root: Path) -> list[str]:
    """A line for each tool that the matcher of a hook names and that does not exist.

    Args:
        root: the root of the project, whose own tools are not known here.
    """
    tool_folders = (get_home() / "tools", root / ".ouro" / "tools")
    has_own_tools = any(folder.is_dir() for folder in tool_folders)
    lines: list[str] = []
    for hook in hooks:
        if hook.event in TOOL_EVENTS:
            from ouro.extensions.known_names import describe_unknown_tools  # few have hooks

            texts = describe_unknown_tools(hook.matcher, is_complete=not has_own_tools)
            lines += [f"{hook.place}: {text}" for text in texts]
    return list(dict.fromkeys(lines))


def _hook_of_settings(settings: HookSettings, origin: HookOrigin) -> Hook:
    """The hook that an entry of config.yaml describes."""
    return Hook(
        event=settings.event,
        command=settings.command,
        url=settings.url,
        matcher=settings.matcher,
        seconds=float(settings.timeout_seconds),
        place=origin.place,
        is_project=origin.is_project,
        on_failure=settings.on_failure,
        traits=HookTraits(
            prompt=settings.prompt,
            model=settings.model,
            condition=settings.if_,
            in_background=settings.async_,
            is_once=settings.once,
            checker=settings.agent,
        ),
    )


def kind_of(agent: str) -> str:
    """The kind of a subagent by its id: `explore` of `explore-1`."""
    return agent.rpartition("-")[0]


def _check_hook(hook: Hook) -> Iterator[str]:
    """Yields a line for each part of a hook that does not work as it is written."""
    if hook.url and not is_loopback(hook.url):
        yield (
            f"{hook.place}: the hook {hook.url} is not on this machine (http://127.0.0.1): it is"
            " not called."
        )
    try:
        re.compile(hook.matcher if hook.matcher != "*" else "")
    except re.error as error:
        yield f"{hook.place}: the matcher `{hook.matcher}` is not valid ({error}): it fits all."
    if hook.traits.condition and hook.event not in TOOL_EVENTS:
        yield f"{hook.place}: a hook for {hook.event} with `if` never runs: there is no tool call."
    elif hook.traits.condition and not is_rule(hook.traits.condition):
        yield f"{hook.place}: `if: {hook.traits.condition}` is not a permission rule: the hook always runs."
    if hook.traits.in_background and hook.event == "before-tool":
        yield f"{hook.place}: the hook `{hook.label}` is `async`: it refuses nothing."


def is_rule(condition: str) -> bool:
    """Whether the condition of a hook is a permission rule about a tool that ouro has, by its name
    here or in Claude Code.
    """
    try:
        demand_tools([own_rule(condition)])
    except OuroError:
        return False
    return True


def parse_hooks(events: Mapping[str, Any], origin: HookOrigin) -> tuple[list[Hook], list[str]]:
    """The hooks in an object in Claude Code's format, and a line for each that is not used or does
    not work as it is written.

    Args:
        events: the groups of hooks by the name of the event, in Claude Code or in ouro.
    """
    hooks: list[Hook] = []
    problems: list[str] = []
    for name, groups in events.items():
        event = _EVENT_OF_NAME.get(name)
        if event is None:
            from ouro.extensions.known_names import EVENTS_ELSEWHERE, nearest_name

            near = nearest_name(name, (*CLAUDE_EVENTS, *EVENTS))
            is_mistake = near and name not in EVENTS_ELSEWHERE
            hint = f" Did you mean {near}?" if is_mistake else ""
            problems.append(
                f"{origin.place}: ouro has no event {name}: its hooks do not run.{hint}"
            )
            continue
        for group in dictionaries(groups):
            matcher = str(group.get("matcher") or "")
            for entry in dictionaries(group.get("hooks")):
                hook, entry_problems = _read_entry(entry, event, matcher, origin)
                problems += entry_problems
                if hook is not None:
                    problems += _check_hook(hook)
                    hooks.append(hook)
    return hooks, problems


def _read_entry(
    entry: Mapping[str, Any], event: HookEvent, matcher: str, origin: HookOrigin
) -> tuple[Hook | None, list[str]]:
    """Read one hook in Claude Code's format. Returns it, or None if ouro has no such type of hook,
    and a line for each problem.
    """
    kind, name = str(entry.get("type", "command")), EVENT_NAMES[event]
    needed_key = _NEEDED_KEY.get(kind, "")
    command = _command_line(entry)
    values = {"command": command, "url": _word(entry, "url"), "prompt": _word(entry, "prompt")}
    if not values.get(needed_key):
        return None, [
            f"{origin.place}: a hook of type {kind} for {name} does not run: ouro has commands,"
            " HTTP, prompts and agents."
        ]
    problems: list[str] = []
    if ignored := sorted(set(entry) - _ENTRY_KEYS):
        keys = ", ".join(ignored)
        problems.append(f"{origin.place}: `{keys}` of a hook for {name} has no effect here.")
    hook = Hook(
        event=event,
        command=command if needed_key == "command" else "",
        url=values["url"] if needed_key == "url" else "",
        matcher=matcher,
        seconds=_parse_seconds(entry.get("timeout")),
        place=origin.place,
        is_project=origin.is_project,
        plugin=origin.plugin,
        on_failure="permit" if entry.get("on_failure") == "permit" else "",
        traits=HookTraits(
            prompt=values["prompt"] if needed_key == "prompt" else "",
            model=_word(entry, "model"),
            condition=_word(entry, "if"),
            in_background=_is_true(entry.get("async")),
            is_once=_is_true(entry.get("once")),
            checker=(_word(entry, "agent") or _DEFAULT_CHECKER) if kind == "agent" else "",
        ),
    )
    return hook, problems


def _word(entry: Mapping[str, Any], key: str) -> str:
    """The text of a key; empty if it has none, or another type of value."""
    value = entry.get(key)
    return value if isinstance(value, str) else ""


def _is_true(value: Any) -> bool:
    """Whether the value of a key means true. In JSON it is a boolean, in front matter the text
    `true`.
    """
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _parse_seconds(value: Any) -> float:
    """The time limit of a hook in seconds; DEFAULT_SECONDS if the value is not a number above 0. In
    front matter a number is text.
    """
    try:
        return amount(float(value)) or DEFAULT_SECONDS
    except (TypeError, ValueError, OverflowError):
        return DEFAULT_SECONDS


def _command_line(entry: Mapping[str, Any]) -> str:
    """The command of an entry as a bash line; empty if it has none. If it has `args`, it is a
    program with these arguments: all words are quoted, and only `${CLAUDE_PROJECT_DIR}` is
    expanded.
    """
    command, arguments = str(entry.get("command") or ""), entry.get("args")
    if not command or not isinstance(arguments, list):
        return command
    import shlex  # few hooks have arguments

    line = shlex.join(map(str, [command, *arguments]))
    expanded = "'\"$CLAUDE_PROJECT_DIR\"'"  # ends the quote around it, and begins it again
    return line.replace("${CLAUDE_PROJECT_DIR}", expanded)


def is_loopback(url: str) -> bool:
    """Whether an address is that of a server on this machine, by http. False if it is not valid."""
    from ouro.utils.addresses import split_url  # few hooks have an address

    address = split_url(url)
    return address.scheme == "http" and address.hostname in LOOPBACK
