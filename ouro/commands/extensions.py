"""Commands on instructions, skills and plugins: list, switch, add, update, remove; draft a skill from the session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ouro.commands.action import Answer, confirm
from ouro.commands.render import CodeSpan, Title, block, line, table
from ouro.display import Choice
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
from ouro.session import checked_skill, draft_skill, save_skill
from ouro.utils.git import find_root
from ouro.utils.runtime import get_home, tilde
from ouro.utils.text import cut, plural

if TYPE_CHECKING:
    from ouro.commands.front_end import FrontEnd
    from ouro.commands.shell import ShellContext
    from ouro.commands.slash import SessionContext

PLACES = {"user": "all projects", "project": "this project"}
"""Where a drafted skill can be saved."""
_NO_PLUGINS = "No plugins are installed."


async def instructions(context: SessionContext) -> Answer:
    found = context.session.workbench.extensions.instructions
    files = found.report()
    if not files:
        return Answer([], [line("No instructions are loaded. /init writes an AGENTS.md.")])
    rows = [(CodeSpan(tilde(item.path)), item.reason, item.state, plural(item.tokens, "token")) for item in files]
    sent = sum(item.tokens for item in files if item.state == "sent")
    problems = [line(problem, level="warning") for problem in found.problems]
    return Answer(files, [Title(f"Instructions: about {plural(sent, 'token')} sent"), *table(rows), *problems])


async def skills(context: SessionContext, switch: str | None, name: str) -> Answer:
    found = context.session.workbench.extensions.skills
    if switch:
        if not name:
            raise UsageError(f"Usage: /skills {switch} NAME. /skills lists the names.")
        found.switch(name, on=switch == "on")
        return Answer(name, [line(f"{name} is {switch}. The list in the prompt changes with the next session.")])
    if not found.all():
        return Answer(
            [], [line(f"There are no skills. Put one in {tilde(get_home())}/skills/NAME/SKILL.md, or use /skill save.")]
        )
    rows = []
    for skill in found.all():
        state = "on" if skill.is_offered else "by you only" if skill.is_on else "off"
        listed, used = skill.tokens
        cost = f"{plural(listed, 'token')}, {used:,} when used"
        description = cut(skill.file.description, 80)
        rows.append((CodeSpan(f"/{skill.name}"), state, cost, CodeSpan(tilde(skill.folder)), description))
    total = sum(skill.tokens[0] for skill in found.all())
    return Answer(
        [skill.name for skill in found.all()],
        [Title(f"Skills: about {plural(total, 'token')} in each request"), *table(rows)],
    )


async def skill(front_end: FrontEnd, argument: str) -> None:
    verb, _, what = argument.partition(" ")
    if verb != "save":
        raise UsageError("Usage: /skill save [what]. /skills lists the skills.")
    session = front_end.session
    folders = {"user": get_home() / "skills", "project": find_root(session.cwd) / ".ouro" / "skills"}
    front_end.say("The model writes a draft …")
    draft = await draft_skill(session, what.strip())
    choices = [
        *(Choice(place, f"Save it for {label}", tilde(folders[place])) for place, label in PLACES.items()),
        Choice("edit", "Edit it first"),
        Choice("drop", "Drop it"),
    ]
    while True:
        front_end.show(block(draft.text, "markdown"))
        chosen = await front_end.choose(f"Save the skill {draft.name}?", choices)
        if chosen == "edit":
            draft = checked_skill(session, await front_end.edit(draft.text))
            continue
        if chosen in folders:
            path = save_skill(draft, folders[chosen])
            front_end.say(f"Saved {tilde(path)}: new sessions use it. Edit it there.")
        else:
            front_end.say("The draft was dropped.")
        return


async def add_plugin(context: ShellContext, source: str, path: str, ref: str, yes: bool) -> Answer:
    with fetched(source, ref, path) as (name, folder, plugin):
        if name in installed_plugins():
            raise UsageError(f"The plugin {name} is installed.", f"Update it: ouro plugin update {name}")
        return await _install(context, name, folder, plugin, assume_yes=yes)


async def list_plugins(_context: ShellContext) -> Answer:
    found = installed_plugins()
    rows = [(name, plugin.version or "-", _place(plugin)) for name, plugin in found.items()]
    return Answer(found, table(rows) or [line(_NO_PLUGINS)])


async def update_plugin(context: ShellContext, name: str, yes: bool) -> Answer:
    found = installed_plugins()
    if name and name not in found:
        raise UsageError(f"There is no plugin {name}.", "`ouro plugin list` shows them.")
    done: dict[str, str] = {}
    for wanted in [name] if name else found:
        done[wanted] = await _update(context, wanted, found[wanted], assume_yes=yes)
    return Answer(done, [line(f"{plugin}: {what}") for plugin, what in done.items()] or [line(_NO_PLUGINS)])


async def remove_plugin(context: ShellContext, name: str, yes: bool) -> Answer:
    if name not in installed_plugins():
        raise UsageError(f"There is no plugin {name}.", "`ouro plugin list` shows them.")
    if not await confirm(context, f"Remove the plugin {name}?", "Remove", assume_yes=yes):
        return Answer({"removed": None}, [line("Nothing was removed.")])
    remove(name)
    return Answer({"removed": name}, [line(f"Removed {name}.")])


async def _update(context: ShellContext, name: str, plugin: Plugin, *, assume_yes: bool) -> str:
    with fetched(plugin.source, plugin.ref, plugin.path) as (_name, folder, new):
        current = plugin_folder(name)
        changes = changed_files(current, folder) if current.is_dir() else ["all files are gone"]
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
    install(name, folder, plugin)
    return Answer({**value, "installed": True}, [line(f"Installed {name}: new sessions use it.")])


def _place(plugin: Plugin) -> str:
    at = f" {plugin.path}" if plugin.path else ""
    return f"{plugin.source}{at}{f' at {plugin.commit[:12]}' if plugin.commit else ''}"
