"""Plugins: add, list, update, remove."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.commands.action import Answer, confirm
from ouro.commands.render import line, table
from ouro.errors import UsageError
from ouro.extensions import (
    Plugin,
    changed_files,
    describe_plugin,
    fetched,
    install,
    installed_plugins,
    plugin_folder,
    remove,
)

if TYPE_CHECKING:
    from ouro.commands.shell import ShellContext

NONE = "No plugins are installed."


async def add(context: ShellContext, source: str, path: str, ref: str, yes: bool) -> Answer:
    async with _fetched(source, ref, path) as (name, folder, plugin):
        if name in installed_plugins():
            raise UsageError(f"The plugin {name} is installed.", f"Update it: ouro plugin update {name}")
        return await _install(context, name, folder, plugin, assume_yes=yes)


async def list_plugins(_context: ShellContext) -> Answer:
    found = installed_plugins()
    rows = [(name, plugin.version or "-", _place(plugin)) for name, plugin in found.items()]
    return Answer(found, table(rows) or [line(NONE)])


async def update(context: ShellContext, name: str, yes: bool) -> Answer:
    found = installed_plugins()
    if name and name not in found:
        raise UsageError(f"There is no plugin {name}.", "`ouro plugin list` shows them.")
    done: dict[str, str] = {}
    for wanted in [name] if name else found:
        done[wanted] = await _update(context, wanted, found[wanted], assume_yes=yes)
    return Answer(done, [line(f"{plugin}: {what}") for plugin, what in done.items()] or [line(NONE)])


async def remove_plugin(context: ShellContext, name: str, yes: bool) -> Answer:
    if name not in installed_plugins():
        raise UsageError(f"There is no plugin {name}.", "`ouro plugin list` shows them.")
    if not await confirm(context, f"Remove the plugin {name}?", "Remove", assume_yes=yes):
        return Answer({"removed": None}, [line("Nothing was removed.")])
    await asyncio.to_thread(remove, name)
    return Answer({"removed": name}, [line(f"Removed {name}.")])


async def _update(context: ShellContext, name: str, plugin: Plugin, *, assume_yes: bool) -> str:
    async with _fetched(plugin.source, plugin.ref, plugin.path) as (_name, folder, new):
        current = plugin_folder(name)
        changes = (
            await asyncio.to_thread(changed_files, current, folder) if current.is_dir() else ["all files are gone"]
        )
        if not changes:
            return "is up to date"
        for change in changes:
            context.say(f"  {change}")
        answer = await _install(context, name, folder, new, assume_yes=assume_yes)
        return "updated" if answer.value["installed"] else "left as it is"


async def _install(context: ShellContext, name: str, folder: Path, plugin: Plugin, *, assume_yes: bool) -> Answer:
    brings = list(describe_plugin(folder))
    for text in (
        f"The plugin {name} {plugin.version} from {_place(plugin)} brings:",
        *(f"  {item}" for item in brings),
    ):
        context.say(text)
    value = {"name": name, "commit": plugin.commit, "brings": brings, "installed": False}
    if not await confirm(context, f"Trust {name}, and install it?", "Install", assume_yes=assume_yes):
        return Answer(value, [line("Nothing was installed.")])
    await asyncio.to_thread(install, name, folder, plugin)
    return Answer({**value, "installed": True}, [line(f"Installed {name}: new sessions use it.")])


@asynccontextmanager
async def _fetched(source: str, ref: str, path: str) -> AsyncIterator[tuple[str, Path, Plugin]]:
    with ExitStack() as stack:
        yield await asyncio.to_thread(stack.enter_context, fetched(source, ref, path))


def _place(plugin: Plugin) -> str:
    at = f" {plugin.path}" if plugin.path else ""
    return f"{plugin.source}{at}{f' at {plugin.commit[:12]}' if plugin.commit else ''}"
