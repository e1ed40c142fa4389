"""Settings: read from the user file, the project file, the environment and the flags; a later
source wins.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from ouro.errors import ConfigError
from ouro.settings import MODES_BY_WIDTH, THEME_NAMES, HookSettings, McpServerSettings, Settings
from ouro.utils.files import write_private
from ouro.utils.late_pattern import late_pattern
from ouro.utils.ouro_paths import get_config_path, get_themes_dir, tilde
from ouro.utils.sections import is_section
from ouro.utils.yaml import convert, parse_table, parse_yaml, read_yaml, unknown_key
from ouro.utils.yaml_nodes import Node, Scalar, Sequence, YamlTable


class SourcedValue(NamedTuple):
    """A value and its source: `default`, `FILE:LINE`, a variable or `flag`. Rules can have several
    sources.
    """

    value: Any
    source: str


SettingsByPlace = Mapping[str, Mapping[str, SourcedValue]]
"""The settings of each place by their dotted names; a later place wins, but a project can only
restrict.
"""

_PLAIN_SCALAR = late_pattern(r"-?[0-9][0-9_]*(?:\.[0-9]+)?|true|false")
ADD_UP = {"permissions.allow", "permissions.ask", "permissions.deny"}
"""Settings whose values in several places add up."""
ONLY_LOWER = {
    "limits.max_turns",
    "limits.max_cost",
    "limits.max_cost_day",
    "limits.max_cost_month",
    "limits.max_failures",
    "limits.max_idle_calls",
}
"""Settings that a project can only lower."""
ONLY_OFF = {"memory.enabled", "memory.capture", "memory.repo.enabled"}
"""Settings that a project can only switch off."""
_MISSPELT = 0.75
"""How much a misspelt name resembles the right one at least, from 0 to 1: `thme` has 0.89, `future`
for `capture` 0.62.
"""
MAY_BE_ZERO = {
    "compaction.keep",
    "compaction.reserve",
    "llm.max_retry_seconds",
    "llm.retry_seconds",
    "memory.history_versions",
    "memory.injection_token_budget",
    "sandbox.max_memory_mb",
    "session.background_idle_minutes",
    "tui.notify_seconds",
}
"""Numbers that may be 0; all others must be more."""
RANGES = {
    "compaction.at": (0.1, 0.95),
    "memory.cadence_turns": (1, 10),
    "memory.retrieval_hop_depth": (1, 3),
    "memory.retrieval_hypothesis_count": (1, 10),
    "memory.retrieval_top_k": (1, 100),
    "sessions.keep_days": (1, 99_999),  # more days ago is not a valid date
}
"""The lowest and the highest value of numbers that have a range."""
OPEN_TO_PROJECTS = {
    *ONLY_LOWER,
    *ONLY_OFF,
    "model",
    "effort",
    "permissions.mode",
    "permissions.ask",
    "permissions.deny",
    "shell.timeout_seconds",
    "mcp.servers",
    "lsp.servers",
    "hooks",
}
"""Settings that a project may set."""
SHARED_SETTINGS = frozenset(
    {
        "compaction.at",
        "compaction.auto",
        "compaction.keep",
        "compaction.reserve",
        "compaction.review",
        "effort",
        "memory.cadence_turns",
        "memory.categories",
        "memory.consolidation_threshold",
        "memory.core",
        "memory.half_life_days",
        "memory.history_versions",
        "memory.injection_token_budget",
        "memory.retrieval_top_k",
        "session.background_idle_minutes",
        "sessions.carry_over",
        "sessions.summaries",
        "sessions.titles",
        "shell.timeout_seconds",
        "skills.prompt_tokens",
        "tui.animations",
        "tui.editing",
        "tui.keys",
        "tui.mouse",
        "tui.notify_seconds",
        "tui.status",
        "tui.theme",
    }
)
"""The settings that `ouro sync` exchanges: no address, key, program, permission or limit of cost."""
LONG_TERM_VARIABLES = {
    "LONG_TERM_MEMORY_ENABLED": "memory.enabled",
    "LONG_TERM_MEMORY_CONSOLIDATION_THRESHOLD": "memory.consolidation_threshold",
}
NAMES = {
    "memory.core": (
        late_pattern(r"[a-z][a-z0-9-]*\.md"),
        "Lower case letters, digits and hyphens: `style.md`.",
    ),
    "sandbox.hosts": (
        late_pattern(r"(\*\.)?[^\s/*]+"),
        "The name of a host: `pypi.org`, `localhost:5432`.",
    ),
}
"""Settings that list names: the form of a name, and what to write."""


def load_settings(project: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Load the effective settings.

    Args:
        project: the root of the project whose settings count; None: no project's do.
        flags: dotted name of a setting -> the value that a flag gives it.

    Raises:
        ConfigError: a file or a variable has a value that is not valid.
    """
    return build_settings(explain_settings(settings_by_place(project, flags)))


def build_settings(given: Mapping[str, SourcedValue]) -> Settings:
    """The settings with these values, and the defaults for all others."""
    settings: Settings = _build(Settings(), given, prefix="")
    return settings


def explain_settings(places: SettingsByPlace) -> dict[str, SourcedValue]:
    """Every setting by its dotted name, in the order of the class, with the effective value and its
    source.
    """
    given = {path: SourcedValue(value, "default") for path, value in _leaf_values(Settings())}
    for place, settings_of_place in places.items():
        for path, new in settings_of_place.items():
            if place != "project" or _narrows(path, given[path], new):
                given[path] = _merge(path, given[path], new)
    return given


def settings_by_place(
    project: Path | None = None, flags: Mapping[str, Any] | None = None
) -> SettingsByPlace:
    """What the `user`, the `project`, the `environment` and the `flags` set, in this order. Raises
    ConfigError for a value that is not valid.

    Args:
        project: the root of the project whose settings count; None: no project's do.
        flags: dotted name of a setting -> the value that a flag gives it.
    """
    return {
        "user": _from_file(get_config_path()),
        "project": _from_project(project) if project else {},
        "environment": _from_environment(),
        "flags": dict(_from_flags(flags or {})),
    }


def stricter_mode(mode: str, places: SettingsByPlace) -> str:
    """`mode`, or the mode in the settings of the project if that permits less."""
    project_mode = places["project"].get("permissions.mode")
    if project_mode is None:
        return mode
    narrower: str = min(mode, project_mode.value, key=MODES_BY_WIDTH.index)
    return narrower


def project_hooks(project: Path) -> tuple[HookSettings, ...]:
    """The hooks in the settings of a trusted project."""
    setting = _from_project(project).get("hooks")
    return setting.value if setting else ()


def project_servers(project: Path) -> Mapping[str, McpServerSettings]:
    """The MCP servers in the settings of a trusted project."""
    setting = _from_project(project).get("mcp.servers")
    return setting.value if setting else {}


def unknown_variables() -> list[str]:
    """OURO_* variables that ouro does not read: they are misspelt, or for another version."""
    known_variables = {"OURO_HOME", *_variables()}
    return sorted(
        name for name in os.environ if name.startswith("OURO_") and name not in known_variables
    )


def misspelt_variables() -> list[str]:
    """A line for each OURO_* variable that ouro does not read, and whose name resembles one that it
    reads.
    """
    near_names = {name: _nearest(name, _variables()) for name in unknown_variables()}
    return [
        f"{name} is set, but there is no such setting. Did you mean {near}?"
        for name, near in near_names.items()
        if near
    ]


def _nearest(name: str, known: Iterable[str]) -> str:
    """The known name that a name is most probably misspelt for; empty if it resembles none."""
    import difflib  # few users have such a variable

    near = difflib.get_close_matches(name, [*known], n=1, cutoff=_MISSPELT)
    return near[0] if near else ""


def save_setting(path: str, value: str | tuple[str, ...]) -> None:
    """Save one setting in the user's file; comments and everything else in it stay.

    Args:
        path: the dotted name of a setting in a section: `tui.theme`.
        value: a plain word, or several.

    Raises:
        ConfigError: the file is broken, cannot be written, has a layout that must be edited by hand, or a variable sets
            the same.
    """
    file = get_config_path()
    name = tilde(file)
    # A list of ADD_UP is joined with that of the variable: it has an effect all the same.
    if path not in ADD_UP and (stronger := _from_environment().get(path)):
        raise ConfigError(
            f"The variable {stronger.source} sets `{path}`, and wins over {name}.",
            "Unset it first.",
        )
    new_values = {key: setting.value for key, setting in _from_file(file).items()} | {path: value}
    line = value if isinstance(value, str) else f"[{', '.join(value)}]"
    _rewrite(file, path, line, new_values)


def type_of(path: str) -> Any:
    """The type of a setting. Raises ConfigError if there is no such setting."""
    if path not in _names():
        raise unknown_key("config", path, _names())
    return _type_of(path)


def write_setting(path: str, text: str, project: Path | None = None) -> tuple[Any, str]:
    """Write a setting, given as text like that of a variable, into the user's file or that of a
    project; empty removes it. Comments and everything else stay.

    Returns:
        The value, and the name of the file. The value may not be in effect: a variable wins over it.

    Raises:
        ConfigError: there is no such setting, the value is not valid, a project may not set it, or the file must be
            edited by hand.
    """
    kind = type_of(path)
    file = project / ".ouro" / "config.yaml" if project else get_config_path()
    name = tilde(file)
    if project and path not in OPEN_TO_PROJECTS:
        raise ConfigError(f"A project may not set `{path}`.", "Set it without --project.")
    if project and not file.resolve().is_relative_to(project.resolve()):
        raise ConfigError(f"{name} leads out of the project.")
    new_values = {key: setting.value for key, setting in _from_file(file).items()}
    value, yaml_text = None, ""
    if text:
        node = _parse_text(text, kind, path)
        value = _check_value(path, convert(node, to=kind, name=path, path=path), path)
        yaml_text = _as_yaml(node, text)
        new_values[path] = value
    else:
        new_values.pop(path, None)
    _rewrite(file, path, line=yaml_text, new_values=new_values)
    return value, name


def shared_settings() -> dict[str, str]:
    """The settings of the user's file that `ouro sync` sends, as text that `write_setting` takes.

    Raises:
        ConfigError: the file has a value that is not valid.
    """
    from ouro.utils.lenient_json import dump_json  # the first frame needs no msgspec

    user_settings = _from_file(get_config_path())
    return {
        name: setting.value if isinstance(setting.value, str) else dump_json(setting.value)
        for name, setting in user_settings.items()
        if name in SHARED_SETTINGS and setting.value is not None
    }


def check_setting(path: str, text: str) -> None:
    """Raise ConfigError if `write_setting` would refuse this value."""
    kind = type_of(path)
    _check_value(path, convert(_parse_text(text, kind, path), to=kind, name=path, path=path), path)


def _as_yaml(node: Node, text: str) -> str:
    """A value as it is written into the settings file: a list in brackets, unless `text`, which the
    user has typed for it, is YAML already.
    """
    from ouro.utils.yaml_edit import as_scalar  # a start changes no settings

    if isinstance(node, Scalar):
        return node.text if _PLAIN_SCALAR.fullmatch(node.text) else as_scalar(node.text)
    is_yaml = text.startswith(("[", "{"))
    items = [item.text for item in getattr(node, "items", ()) if isinstance(item, Scalar)]
    return text if is_yaml else f"[{', '.join(map(as_scalar, items))}]"


def _rewrite(file: Path, path: str, line: str, new_values: Mapping[str, Any]) -> None:
    """Write a value into a file of settings, and check that its settings are then `new_values`. Raises
    ConfigError if they would not be, or if the file cannot be written; then it is not changed.

    Args:
        path: the name of the setting.
        line: the value as YAML; empty removes the setting.
    """
    from ouro.utils.yaml_edit import with_value

    name = tilde(file)
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        new_text = (
            with_value(text, path=path.split("."), value=line, name=name) if line or text else text
        )
        read_back = {
            key: setting.value for key, setting in _read_leaves(parse_table(new_text, name), name)
        }
        if read_back != new_values:
            raise ConfigError(
                f"{name} has a layout that cannot be changed automatically.",
                f"Write `{path}: {line}` there.",
            )
        write_private(file, new_text)
    except OSError as error:
        raise ConfigError(f"{name} cannot be written: {error.strerror}.") from error


def _merge(path: str, old: SourcedValue, new: SourcedValue) -> SourcedValue:
    """The value of a setting that two places set. Lists of rules are joined, servers of the earlier place
    `old` win over those of the later one, and any other setting has the value of the later one.
    """
    source = new.source if old.source == "default" else f"{old.source}, {new.source}"
    if path in ADD_UP:
        return SourcedValue(tuple(dict.fromkeys((*old.value, *new.value))), source)
    # Later places, such as a project, add servers but replace none.
    if path in ("mcp.servers", "lsp.servers"):
        return SourcedValue({**new.value, **old.value}, source)
    return new


def _narrows(path: str, old: SourcedValue, new: SourcedValue) -> bool:
    """Whether a project may set this value: it must not allow more than the user's own."""
    if path == "permissions.mode":
        return MODES_BY_WIDTH.index(new.value) < MODES_BY_WIDTH.index(old.value)
    if path in ONLY_LOWER:
        if new.value is None:  # no limit
            return False
        return old.value is None or new.value < old.value
    if path in ONLY_OFF:
        return new.value is False
    # Hooks of a project never replace those of the user. `project_hooks` returns them separately,
    # because they may do less.
    return path != "hooks"


def _from_project(root: Path) -> dict[str, SourcedValue]:
    """The settings of a trusted project. Raises ConfigError if it sets what only the user may."""
    path = root / ".ouro" / "config.yaml"
    if path.resolve() == get_config_path().resolve() or not path.exists():
        return {}  # in the user's own folder both are the same file
    if not path.resolve().is_relative_to(root.resolve()):
        raise ConfigError(
            f"{tilde(path)} leads out of the project: it is not read.",
            "Put a regular file in its place.",
        )
    settings = _from_file(path)
    for name, setting in settings.items():
        is_mode = name == "permissions.mode"
        is_wide_mode = is_mode and setting.value in ("edit", "auto")
        if name not in OPEN_TO_PROJECTS or is_wide_mode:
            shown_setting = f"`{name}: {setting.value}`" if is_mode else f"`{name}`"
            raise ConfigError(
                f"{setting.source}: a project may not set {shown_setting}.",
                f"Set it in {tilde(get_config_path())}.",
            )
    return settings


def _from_file(path: Path) -> dict[str, SourcedValue]:
    """The settings of a file. Raises ConfigError."""
    name = tilde(path)
    return dict(_read_leaves(read_yaml(path, name), name))


def _read_leaves(
    table: YamlTable, name: str, prefix: str = ""
) -> Iterator[tuple[str, SourcedValue]]:
    """Yield each setting in a table, with its value and its place, also those of inner tables. Raises
    ConfigError for an unknown or invalid one.

    Args:
        name: the file, for messages.
        prefix: the dotted name of the table, with a dot at its end; empty for the whole file.
    """
    for key, node in table.entries.items():
        path, where = f"{prefix}{key}", f"{name}:{table.key_lines[key]}"
        if path in _names():
            value = _check_value(
                path, convert(node, to=_type_of(path), name=name, path=path), where
            )
            yield path, SourcedValue(value, where)
            continue
        keys_of_section = [known for known in _names() if known.startswith(f"{path}.")]
        if not keys_of_section:
            # `permisions` above `mode: ask` is shown with its first key: `permisions.mode`.
            inner = node.entries if isinstance(node, YamlTable) else {}
            raise unknown_key(where, f"{path}.{next(iter(inner))}" if inner else path, _names())
        if isinstance(node, YamlTable):
            yield from _read_leaves(node, name, f"{path}.")
            continue
        is_commented_out = isinstance(node, Scalar) and node.is_null
        if not is_commented_out:
            raise ConfigError(
                f"{where}: `{path}` is a section: set one of its keys, such as"
                f" `{keys_of_section[0]}`."
            )


def theme_names() -> tuple[str, ...]:
    """The values of `tui.theme`: ouro's themes, and those of the user. Blocks."""
    return (*THEME_NAMES, *sorted(path.stem for path in get_themes_dir().glob("*.yaml")))


def _check_theme(value: Any, where: str) -> None:
    """Raises ConfigError if there is no such theme."""
    if value in THEME_NAMES or value in theme_names():  # the second reads the user's folder
        return
    shown = f"`{value}`" if value else "empty"
    raise ConfigError(
        f"{where}: `tui.theme` must be one of {', '.join(theme_names())}, not {shown}."
    )


def _check_value(path: str, value: Any, where: str) -> Any:
    """Returns the value unchanged. Raises ConfigError if it is not valid, though its type is right."""
    if path == "tui.theme":
        _check_theme(value, where)
    if isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(path, value, where)
    if path == "hooks":
        for hook in value:
            _check_hook(hook, where)
    if path in NAMES:
        pattern, hint = NAMES[path]
        for name in value:
            if not pattern.fullmatch(name):
                raise ConfigError(f"{where}: `{name}` in `{path}` is not valid.", hint)
    return value


def _check_number(path: str, value: float, where: str) -> None:
    """Raises ConfigError for a number out of range."""
    may_be_zero = path in MAY_BE_ZERO
    is_allowed_zero = value == 0 and may_be_zero
    if not 0 < value < math.inf and not is_allowed_zero:
        wanted = "0 or more" if may_be_zero else "more than 0"
        if value == math.inf:
            wanted = "finite"
        raise ConfigError(f"{where}: `{path}` must be {wanted}, not `{value}`.")
    low, high = RANGES.get(path, (value, value))  # without a range every number is accepted
    if not low <= value <= high:
        raise ConfigError(f"{where}: `{path}` must be from {low} to {high}, not `{value}`.")


def _check_hook(hook: Any, where: str) -> None:
    """Raises ConfigError for a hook that could never run."""
    # It would fail at each call, and a failed hook refuses nothing.
    if hook.timeout_seconds <= 0:
        raise ConfigError(f"{where}: `timeout_seconds` of a hook must be more than 0.")
    actions = [action for action in (hook.command, hook.url, hook.prompt) if action]
    if len(actions) != 1:
        needed = "needs one of `command`, `url` and `prompt`, and not several."
        raise ConfigError(f"{where}: a hook for {hook.event} {needed}")
    if hook.agent and not hook.prompt:
        raise ConfigError(f"{where}: a hook for {hook.event} with `agent` needs a `prompt`.")


def _from_environment() -> dict[str, SourcedValue]:
    """The settings in environment variables. Raises ConfigError."""
    settings = {}
    for variable, path in _variables().items():
        if text := os.environ.get(variable, "").strip():
            kind = _type_of(path)
            value = convert(_parse_text(text, kind, variable), to=kind, name=variable, path=path)
            settings[path] = SourcedValue(_check_value(path, value, variable), variable)
    return settings


def _from_flags(flags: Mapping[str, Any]) -> Iterator[tuple[str, SourcedValue]]:
    """The settings from the command line, or from a program, which may pass any value."""
    for path, value in flags.items():
        if value in (None, (), []):
            continue
        import msgspec  # the first frame has no flags, and does not need the import

        from ouro.utils.decoding import from_plain

        if path not in _names():
            raise unknown_key("The options", path, _names())
        try:
            converted = from_plain(value, _type_of(path))
        except msgspec.ValidationError as error:
            raise ConfigError(f"The options: `{path}` cannot be `{value}`: {error}.") from error
        yield path, SourcedValue(_check_value(path, converted, "The options"), "flag")


def _variables() -> dict[str, str]:
    """The setting of each environment variable. The names of older versions come first, so that
    `OURO_*` wins if both are set.
    """
    return LONG_TERM_VARIABLES | {
        "OURO_" + path.upper().replace(".", "_"): path for path in _names()
    }


def _parse_text(text: str, to: Any, variable: str) -> Node:
    """The text of a variable, or of `config set`, as a node of YAML for the type `to`. A type with keys
    and a list in brackets are read as YAML; another list is split at the commas outside of
    parentheses; any other text is one value.
    """
    # Settings have few types: the name is enough to recognize `tuple[…]` and `Mapping[…]`.
    is_list = str(to).startswith("tuple")
    has_keys = str(to).startswith("collections.abc.Mapping")
    if has_keys or (is_list and text.startswith(("[", "{"))):
        return parse_yaml(text, variable)
    if not is_list:
        return Scalar(text)
    comma_outside_parentheses = r",\s*(?![^(]*\))"
    return Sequence(tuple(Scalar(item) for item in re.split(comma_outside_parentheses, text)))


@cache
def _names() -> tuple[str, ...]:
    """The dotted name of every setting."""
    return tuple(path for path, _value in _leaf_values(Settings()))


def _leaf_values(section: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting in a section, also in inner ones, as its dotted name and its value."""
    for name, value in vars(section).items():
        if is_section(value):
            yield from _leaf_values(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


@cache
def _type_of(path: str) -> Any:
    """The type of a setting. It is evaluated on demand: the types of all sections take 1 ms, and few
    starts need one.
    """
    kind: Any = Settings
    for name in path.split("."):
        kind = get_type_hints(kind)[name]
    return kind


def _build(section: Any, given: Mapping[str, SourcedValue], prefix: str) -> Any:
    """A copy of a section and of the sections in it, with the values of `given`.

    Args:
        given: the value of every setting by its dotted name; a field without a value there is a
            section.
        prefix: the dotted name of the section, with a dot at its end.
    """
    values = {}
    for name, inner in vars(section).items():
        path = prefix + name
        values[name] = given[path].value if path in given else _build(inner, given, f"{path}.")
    return type(section)(**values)
