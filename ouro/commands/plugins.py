"""Plugins: add, list, update and remove them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ouro import extensions
from ouro.commands.action import Answer, confirm
from ouro.commands.render import line, table
from ouro.errors import OuroError, UsageError, plain_error

if TYPE_CHECKING:
    from ouro.commands.shell_context import ShellContext


_NO_PLUGINS = "No plugins are installed."


async def add_plugin(context: ShellContext, source: str, path: str, ref: str, yes: bool) -> Answer:
    """Fetch a plugin, show what it brings, and install it if the user trusts it.

    Args:
        path: the folder of the plugin in the repository; empty for the whole of it.
        ref: a branch, a tag or a commit; empty for the newest.
        yes: do not ask.

    Raises:
        UsageError: one of its name is installed already.
    """
    with extensions.fetch_plugin(source, ref, path) as (name, folder, plugin):
        if name in extensions.installed_plugins():
            raise UsageError(
                f"The plugin {name} is installed.", f"Update it: ouro plugin update {name}"
            )
        return await _install(context, name, folder, plugin, assume_yes=yes)


async def list_plugins(_context: ShellContext) -> Answer:
    """List the installed plugins with version and source."""
    plugins = extensions.installed_plugins()
    rows = [
        (name, plugin.version or "-", _plugin_source(plugin)) for name, plugin in plugins.items()
    ]
    return Answer(plugins, table(rows) or [line(_NO_PLUGINS)])


async def update_plugin(context: ShellContext, name: str, yes: bool) -> Answer:
    """Fetch the named plugin again, or all if the name is empty. Those whose files changed are shown,
    and installed if the user agrees. Returns what was done with each. If one of all cannot be
    updated, the others still are, and the exit code is 1.
    """
    installed = extensions.installed_plugins()
    if name and name not in installed:
        raise UsageError(f"There is no plugin {name}.", "`ouro plugin list` shows them.")
    if name:
        outcomes = {name: await _update(context, name, installed[name], yes)}
        return Answer(outcomes, [line(f"{name}: {outcomes[name]}")])
    outcomes = {}
    failed = 0
    for plugin_name, plugin in installed.items():
        try:
            outcomes[plugin_name] = await _update(context, plugin_name, plugin, yes)
        except (OuroError, OSError) as error:
            failed += 1
            outcomes[plugin_name] = f"not updated: {plain_error(error).message}"
    lines = [line(f"{plugin_name}: {outcome}") for plugin_name, outcome in outcomes.items()]
    return Answer(outcomes, lines or [line(_NO_PLUGINS)], 1 if failed else 0)


async def _update(
    context: ShellContext, name: str, plugin: extensions.Plugin, assume_yes: bool
) -> str:
    """Fetch an installed plugin again, and install it if its files changed and the user agrees. Returns
    what was done.
    """
    fetching = extensions.fetch_plugin(plugin.source, plugin.ref, plugin.path)
    with fetching as (_name, folder, fetched):
        changes = _changes_of_plugin(name, folder)
        for change in changes:
            context.say(f"  {change}")
        if not changes:
            return "is up to date"
        answer = await _install(context, name, folder, plugin=fetched, assume_yes=assume_yes)
        return "updated" if answer.value["installed"] else "left as it is"


def _changes_of_plugin(name: str, fetched_folder: Path) -> Sequence[str]:
    """A line for each file that an update changes; empty if the plugin is up to date."""
    current_folder = extensions.plugin_folder(name)
    if not current_folder.is_dir():
        return ["all files are gone"]
    return extensions.changed_files(current_folder, fetched_folder)


async def remove_plugin(context: ShellContext, name: str, yes: bool) -> Answer:
    """Remove an installed plugin if the user agrees. Raises UsageError if there is none."""
    if name not in extensions.installed_plugins():
        raise UsageError(f"There is no plugin {name}.", "`ouro plugin list` shows them.")
    if not await confirm(context, f"Remove the plugin {name}?", "Remove", assume_yes=yes):
        return Answer({"removed": None}, [line("Nothing was removed.")])
    extensions.remove(name)
    return Answer({"removed": name}, [line(f"Removed {name}.")])


async def _install(
    context: ShellContext, name: str, folder: Path, plugin: extensions.Plugin, *, assume_yes: bool
) -> Answer:
    """Show what a plugin brings, and install it if the user trusts it. `installed` in the value of
    the answer says whether that was done.

    Args:
        folder: the fetched files.
    """
    brings = list(extensions.describe_plugin(folder))
    context.say(f"The plugin {name} {plugin.version} from {_plugin_source(plugin)} brings:")
    for item in brings:
        context.say(f"  {item}")
    value = {"name": name, "commit": plugin.commit, "brings": brings, "installed": False}
    if not await confirm(
        context, f"Trust {name}, and install it?", "Install", assume_yes=assume_yes
    ):
        return Answer(value, [line("Nothing was installed.")])
    extensions.install(name, folder, plugin)
    return Answer({**value, "installed": True}, [line(f"Installed {name}: new sessions use it.")])


def _plugin_source(plugin: extensions.Plugin) -> str:
    """Where the plugin is from: address, folder in the repository, and commit."""
    folder = f" {plugin.path}" if plugin.path else ""
    commit = f" at {plugin.commit[:12]}" if plugin.commit else ""
    return f"{plugin.source}{folder}{commit}"
