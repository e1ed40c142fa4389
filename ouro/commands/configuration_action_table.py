"""The declarations of `config …`, `doctor` and `permissions …`."""

from __future__ import annotations

from ouro.commands.action import Action, arg, text

_RULE = text("rule", nargs=None, metavar="RULE", help="such as `shell(make *)`")
_PROJECT = arg(
    "--project", action="store_true", help="in .ouro/config.yaml of the repository, not in yours"
)
_SETTING = arg("key", metavar="KEY", help="the dotted name: `tui.theme`")

CONFIG = Action(
    "config",
    "ouro.config_command.config",
    "Show and change settings, with their values and sources",
    (text("key"),),
    (
        "config",
        "config tui.theme",
        "config set tui.theme light",
        "config --json | jq '.\"permissions.mode\".source'",
    ),
    "both",
    aliases=("settings",),
)

CONFIG_ACTIONS = (
    Action(
        "config list",
        "ouro.config_command.config_list",
        "List each setting, its value and its source",
        (),
        ("config list",),
        "both",
    ),
    Action(
        "config get",
        "ouro.config_command.config_get",
        "Show the value of one setting",
        (_SETTING,),
        ("config get permissions.mode",),
        "both",
    ),
    Action(
        "config set",
        "ouro.configure.set_value",
        "Change a setting; comments in the file stay",
        (_PROJECT, _SETTING, arg("value", metavar="VALUE")),
        ("config set tui.theme light", "config set --project effort high"),
        "both",
    ),
    Action(
        "config unset",
        "ouro.configure.unset_value",
        "Remove a setting from the file, so that its default is used",
        (_PROJECT, _SETTING),
        ("config unset tui.theme",),
        "both",
    ),
)

DOCTOR = Action(
    "doctor",
    "ouro.doctor.doctor",
    "Check the installation",
    (
        arg(
            "--bundle",
            nargs="?",
            const="",
            default=None,
            metavar="FILE",
            help="write a report without keys and names, to attach to an issue",
        ),
    ),
    ("doctor", "doctor --bundle", "doctor --json | jq '.[] | select(.state != \"good\")'"),
    "both",
    "[--bundle [FILE]]",
)

PERMISSION_ACTIONS: tuple[Action, ...] = (
    Action(
        "permissions list",
        "ouro.permission_commands.list_rules",
        "List the rules, their sources and last uses",
        (),
        ("permissions list --json",),
        "both",
    ),
    Action(
        "permissions allow",
        "ouro.permission_commands.allow",
        "Save a rule for this folder: what it matches runs without asking",
        (_RULE,),
        ("permissions allow 'shell(make *)'",),
        "both",
    ),
    Action(
        "permissions ask",
        "ouro.permission_commands.ask",
        "Save a rule for this folder: what it matches is asked",
        (text("rule", nargs="?", metavar="RULE", help="without it in a session: the mode `ask`"),),
        ("permissions ask 'shell(make *)'",),
        "both",
    ),
    Action(
        "permissions deny",
        "ouro.permission_commands.deny",
        "Save a rule for this folder: what it matches never runs",
        (_RULE,),
        ("permissions deny 'shell(make *)'",),
        "both",
    ),
    Action(
        "permissions revoke",
        "ouro.permission_commands.revoke",
        "Delete a rule, wherever it is saved",
        (text("rule", nargs="?", metavar="RULE", help="asked for without it"),),
        ("permissions revoke 'shell(make *)'",),
        "both",
    ),
)
