"""Commands on the installation: config, completion, demo."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ouro.commands.action import Answer
from ouro.commands.render import line, table
from ouro.utils.runtime import get_config_path, tilde

if TYPE_CHECKING:
    from ouro.commands.shell import ShellContext


async def config(context: ShellContext) -> Answer:
    """The settings that a session in this folder has."""
    settings, notices = context.opener.settings()
    value = {path: {"value": setting.value, "source": setting.source} for path, setting in settings.items()}
    rows = table((path, _text(setting.value), setting.source) for path, setting in settings.items())
    where = line(f"Change them in {tilde(get_config_path())}; see docs/settings.md.")
    return Answer(value, [*rows, line(), where, *map(line, notices)])


async def completion(context: ShellContext, shell: str) -> None:
    """Print the script that completes the command line in a shell."""
    import shtab

    sys.stdout.write(shtab.complete(context.opener.whole_parser(), shell=shell))


def demo(context: ShellContext, plain: bool, headless: bool) -> int:
    """Play the demo; returns the exit code. Not a coroutine: a front end has an event loop of its own."""
    chosen = "json" if context.as_json else "headless" if headless else "plain" if plain else "screen"
    return context.opener.demo(chosen)


def _text(value: Any) -> str:
    if value in (None, "", ()) or value == {}:
        return "-"
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {', '.join(keys)}" for name, keys in value.items())
    return str(value)
