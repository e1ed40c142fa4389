"""The declarations of `permissions …`."""

from __future__ import annotations

from ouro.commands.action import Action, text

_RULE = text("rule", nargs=None, metavar="RULE", help="such as `shell(make *)`")

PERMISSION_ACTIONS: tuple[Action, ...] = (
    Action(
        "permissions list",
        "ouro.permission_rules.list_rules",
        "List the rules, their sources and last uses",
        (),
        ("permissions list --json",),
        "both",
    ),
    Action(
        "permissions allow",
        "ouro.permission_rules.allow",
        "Save a rule for this folder: what it matches runs without asking",
        (_RULE,),
        ("permissions allow 'shell(make *)'",),
        "both",
    ),
    Action(
        "permissions ask",
        "ouro.permission_rules.ask",
        "Save a rule for this folder: what it matches is asked",
        (text("rule", nargs="?", metavar="RULE", help="without it in a session: the mode `ask`"),),
        ("permissions ask 'shell(make *)'",),
        "both",
    ),
    Action(
        "permissions deny",
        "ouro.permission_rules.deny",
        "Save a rule for this folder: what it matches never runs",
        (_RULE,),
        ("permissions deny 'shell(make *)'",),
        "both",
    ),
    Action(
        "permissions revoke",
        "ouro.permission_rules.revoke",
        "Delete a rule, wherever it is saved",
        (text("rule", nargs="?", metavar="RULE", help="asked for without it"),),
        ("permissions revoke 'shell(make *)'",),
        "both",
    ),
)
