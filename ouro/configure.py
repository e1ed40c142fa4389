"""Change settings: `ouro config set` and `unset`, and `/config` as a list to choose from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from ouro import settings
from ouro.commands.action import ActionContext, Answer
from ouro.commands.render import line
from ouro.commands.setting_helps import setting_helps
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.settings_sources import SourcedValue, theme_names, type_of, write_setting
from ouro.utils.git import find_root
from ouro.utils.text import one_line

if TYPE_CHECKING:
    from ouro.commands.front_end import FrontEnd

_NEXT_START = "It takes effect with the next start of ouro."
_NEXT_SESSION = "It takes effect with the next session: /clear begins one."
_PROJECT = "It takes effect with the next session, after you have trusted the folder again."
_VALUE_OF_WORD = {"on": "true", "off": "false"}
Scope = Literal["user", "project"]


async def set_value(context: ActionContext, key: str, value: str, project: bool = False) -> Answer:
    """Write a setting into the user's file or the project's, and use it at once where that is
    possible. A folder outside of a repository is a project of its own.
    """
    if not value:
        raise UsageError(f"`{key}` needs a value.", f"Usage: config set {key} VALUE")
    if type_of(key) is bool:
        value = _VALUE_OF_WORD.get(value.lower(), value)
    root = find_root(context.cwd) if project else None
    parsed, file = write_setting(key, value, root)
    when = _PROJECT if project else await _use_now(context, key, parsed)
    return Answer({"key": key, "value": value}, [line(f"{key}: {value}, in {file}. {when}")])


async def unset_value(context: ActionContext, key: str, project: bool = False) -> Answer:
    """Remove a setting from the user's file or the project's."""
    type_of(key)  # raises ConfigError if there is no such setting
    root = find_root(context.cwd) if project else None
    _, file = write_setting(key, text="", project=root)
    return Answer(
        {"key": key}, [line(f"{key} is no longer set in {file}. {_when_it_takes_effect(key)}")]
    )


async def choose_setting(
    front_end: FrontEnd, given: Mapping[str, SourcedValue], key: str = ""
) -> str:
    """Let the user choose a setting and its new value; returns the arguments of `/config set`,
    empty if they cancel.

    Args:
        key: the setting, if it is chosen already; or words that the list is searched for.
    """
    helps = setting_helps()
    choices = [_setting_choice(name, given[name], helps.get(name, "")) for name in given]
    if key and key not in given:
        key = await front_end.choose_matching("Settings", choices, key) or ""
    elif not key:
        key = await front_end.choose("Settings", choices) or ""
    if not key:
        return ""
    values = _values_of(key)
    default = one_line(str(_value_text(default_of(key)))) or "unset"
    title = f"{key} (default: {default})\n{helps.get(key, '')}"
    present_value = _value_text(given[key].value)
    if not values:
        ask = getattr(front_end, "ask", None)
        if ask is None:  # it has no prompt in which a value could be typed
            meaning = title.replace("\n", ". ")
            front_end.say(f"{meaning} Change it: /config set {key} VALUE")
            return ""
        typed = await ask(title, draft=present_value)
        return f"{key} {typed}" if typed not in ("", present_value) else ""
    options = [Choice(value, value) for value in values]
    value = await front_end.choose(title, options, present_value)
    return "" if value is None else f"{key} {value}"


def _setting_choice(key: str, setting: SourcedValue, meaning: str) -> Choice:
    """A setting with its value and meaning, and with its source unless that is the default."""
    value = _value_text(setting.value)
    source = "" if setting.source == "default" else f"{setting.source}. "
    return Choice(key, f"{key}: {value}" if value else key, f"{source}{meaning}")


def default_of(key: str) -> Any:
    """The default of a setting."""
    value: Any = settings.Settings()
    for name in key.split("."):
        value = getattr(value, name)
    return value


def _values_of(key: str) -> list[str]:
    """The values to choose from; empty if the user types the value."""
    if key == "tui.theme":
        return list(theme_names())
    kind = type_of(key)
    if kind is bool:
        return ["true", "false"]
    return [str(value) for value in get_args(kind)] if get_origin(kind) is Literal else []


def _value_text(value: Any) -> str:
    """A value as the user would type it for `config set`; empty if it cannot be typed."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return str(value) if isinstance(value, str | int | float) else ""


async def _use_now(context: ActionContext, key: str, value: Any) -> str:
    """Use a new value at once if the session can; returns a sentence that says when it takes effect."""
    session, front_end = context.session, getattr(context, "front_end", None)
    if session is None or front_end is None:
        return _when_it_takes_effect(key)
    if key == "model":
        await session.set_model(value)
    elif key == "effort" and session.status().can_think:
        await session.set_model(effort=value)
    elif key == "permissions.mode" and value != "auto":
        session.set_mode(value)  # but not `auto`: it needs a consent, for which `/mode` asks
    elif key == "tui.theme" and await _try_theme(front_end, value):
        return "It is in use."
    else:
        return _when_it_takes_effect(key)
    front_end.redraw()
    return "It is in use."


async def _try_theme(front_end: FrontEnd, name: str) -> bool:
    """Use a theme at once. Returns False if the front end has no colours of its own."""
    try:
        await front_end.use_theme(name)
    except UsageError:
        return False
    return True


def _when_it_takes_effect(key: str) -> str:
    """A sentence that says when a saved setting takes effect, if not at once."""
    return _NEXT_START if key.startswith("tui.") else _NEXT_SESSION
