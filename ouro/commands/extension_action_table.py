"""The declarations of `plugin …` and `hooks …`."""

from __future__ import annotations

from ouro.commands.action import YES, Action, arg

EXTENSION_ACTIONS: tuple[Action, ...] = (
    Action(
        "plugin add",
        "plugins.add_plugin",
        "Add a plugin: commands, skills, agents, hooks and MCP servers",
        (
            arg(
                "source",
                metavar="FOLDER|URL",
                help="a folder, a git address, or owner/name on GitHub",
            ),
            arg(
                "--path",
                default="",
                metavar="DIR",
                help="the folder of the plugin in the repository",
            ),
            arg(
                "--ref",
                default="",
                metavar="REF",
                help="a branch, a tag or a commit; else the newest",
            ),
            YES,
        ),
        ("plugin add acme/tools --path plugins/review", "plugin add ./my-plugin"),
        "shell",
    ),
    Action(
        "plugin list",
        "plugins.list_plugins",
        "List the plugins, with the commit that is installed",
        (),
        ("plugin list",),
        "shell",
    ),
    Action(
        "plugin update",
        "plugins.update_plugin",
        "Fetch plugins again, and show what changes before it is installed",
        (arg("name", nargs="?", default="", metavar="NAME", help="none: all"), YES),
        ("plugin update",),
        "shell",
    ),
    Action(
        "plugin remove",
        "plugins.remove_plugin",
        "Remove a plugin",
        (arg("name", metavar="NAME"), YES),
        ("plugin remove review",),
        "shell",
    ),
    Action(
        "hooks list",
        "hooks.hooks",
        "List the hooks of this folder",
        (),
        ("hooks list --json",),
        "shell",
    ),
    Action(
        "hooks test",
        "hooks.test",
        "Run the hooks of an event with sample data, and show what they say",
        (
            arg("event", metavar="EVENT", help="before-tool, after-tool, user-prompt, …"),
            arg(
                "--tool", default="shell", metavar="TOOL", help="for a tool event: its name (shell)"
            ),
            arg(
                "--input",
                dest="input_json",
                default="",
                metavar="JSON",
                help="the arguments of the tool",
            ),
        ),
        ('hooks test before-tool --tool edit --input \'{"file_path": "a.py"}\'',),
        "shell",
    ),
)
