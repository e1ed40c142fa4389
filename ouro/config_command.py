"""The command `config`: it shows the settings with their sources, and lets the user choose one to
change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ouro.commands.action import ActionContext, Answer
from ouro.commands.render import Quote, columns, line
from ouro.safety import CONFIG_FILE
from ouro.settings import SettingsSources
from ouro.settings_sources import (
    explain_settings,
    settings_by_place,
    type_of,
    unknown_variables,
)
from ouro.subcommand_setup import trust_of
from ouro.utils.ouro_paths import get_config_path, tilde
from ouro.utils.sections import is_section


async def config_list(context: ActionContext) -> Answer | None:
    """Show all settings, with their values and sources."""
    return await _config(context, as_list=True)


async def config_get(context: ActionContext, key: str) -> Answer:
    """Show the value of one setting, and its source. In a session, it is the value of the session.
    Raises ConfigError if there is no such setting.
    """
    type_of(key)  # raises ConfigError
    if context.session:
        sources = context.session.extensions.settings
    else:
        root, is_trusted, _ = trust_of(context.cwd)
        sources = SettingsSources(root if is_trusted else None)
    setting = explain_settings(settings_by_place(*sources))[key]
    value = _public(setting.value)
    data = {"key": key, **setting._asdict(), "value": value}
    return Answer(data, [line(setting_text(setting.value))])


async def _set_chosen(context: ActionContext, chosen: str) -> Answer:
    """Save the setting that the user chose: `KEY VALUE`."""
    from ouro.configure import set_value

    key, _, value = chosen.partition(" ")
    return await set_value(context, key, value)


async def config(context: ActionContext, key: str = "") -> Answer | None:
    """Let the user of a session choose a setting to change, and return None if they cancel. On the
    command line, show all settings.

    Args:
        key: the setting to change, or on the command line to show.
    """
    # The context of the command line has no `front_end`.
    has_user = getattr(context, "front_end", None) is not None and context.can_ask
    if key and not has_user:
        return await config_get(context, key)
    return await _config(context, as_list=False, key=key)


async def _config(context: ActionContext, *, as_list: bool, key: str = "") -> Answer | None:
    """Show all settings, or, unless `as_list`, let the user of a session choose and change one. None
    if they cancel.

    Args:
        key: the setting to change; empty: the user chooses it.
    """
    root, is_trusted, notices = trust_of(context.cwd)
    session = context.session
    folder_sources = SettingsSources(root if is_trusted else None)
    sources = session.extensions.settings if session else folder_sources
    explained = explain_settings(settings_by_place(*sources))
    if sources.project is None and (root / CONFIG_FILE).exists():
        notices.append(
            f"{CONFIG_FILE} of this folder is not read: the folder is not trusted. Start `ouro`"
            " here."
        )
    front_end = getattr(context, "front_end", None)
    if front_end is not None and context.can_ask and not as_list:
        from ouro.configure import choose_setting

        chosen = await choose_setting(front_end, explained, key)
        return await _set_chosen(context, chosen) if chosen else None
    notices += [f"{name} is set, but there is no such setting." for name in unknown_variables()]
    rows = columns(
        [(path, setting.source, setting_text(setting.value)) for path, setting in explained.items()]
    )
    hint = f"`config set KEY VALUE` changes them in {tilde(get_config_path())}; `ouro help settings` explains them."
    return Answer(
        {
            path: {**setting._asdict(), "value": _public(setting.value)}
            for path, setting in explained.items()
        },
        [Quote("\n".join(rows)), line(), line(hint), *map(line, notices)],
    )


def setting_text(value: Any) -> str:
    """The part of a setting's value that may be shown, on one line: `true`, `a, b`, `name: a, b`; `-`
    if it is empty.
    """
    value = _public(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        value = [f"{name}: {', '.join(words)}" for name, words in value.items()]
    if isinstance(value, list | tuple):
        value = ", ".join(value)
    return "-" if value in (None, "") else str(value)


def _public(value: Any) -> Any:
    """The part of a setting's value that may be shown. Of servers only the names, because their
    variables and headers may hold keys; of hooks a line for each; any other value as it is.
    """
    if isinstance(value, Mapping) and any(map(is_section, value.values())):
        return list(value)
    if isinstance(value, tuple) and any(map(is_section, value)):
        return [f"{hook.event}: {hook.command or hook.url or hook.prompt}" for hook in value]
    return value
