"""The declarations of `sessions …`; their functions are in `sessions.py`."""

from __future__ import annotations

from pathlib import Path

from ouro.commands.action import FORCE, SESSION_HELP, YES, Action, arg, count

_ONE_SESSION = arg("session", metavar="SESSION", help=SESSION_HELP)

SESSION_ACTIONS: tuple[Action, ...] = (
    Action(
        "sessions list",
        "sessions.list_sessions",
        "List the sessions of this folder, last used first",
        (
            arg("words", nargs="*", metavar="WORD", help="in the title or in a message"),
            arg("--all", dest="every", action="store_true", help="of every folder"),
            arg(
                "-n",
                "--max",
                dest="limit",
                type=count,
                default=None,
                metavar="N",
                help="at most N; without it 50, and with --json all",
            ),
        ),
        ("sessions list --all", "sessions list --max 200"),
        "shell",
    ),
    Action(
        "sessions show",
        "sessions.show",
        "Show facts about a session, its first message and its last answer",
        (_ONE_SESSION,),
        ("sessions show latest",),
        "shell",
    ),
    Action(
        "sessions export",
        "sessions.export",
        "Print a whole session as Markdown, HTML or JSON, or its last answer",
        (
            _ONE_SESSION,
            arg("-o", "--output", default="", metavar="FILE", help="write to a new file"),
            arg(
                "--format",
                dest="to",
                choices=("markdown", "html", "json"),
                help="else by the ending of the file",
            ),
            arg(
                "--to",
                dest="agent",
                choices=("claude", "codex"),
                default="",
                help="where this agent continues it",
            ),
            arg("--last", action="store_true", help="only the last answer, as Markdown"),
            FORCE,
        ),
        ("sessions export 0d9f3c52 --output chat.html", "sessions export latest --to codex"),
        "shell",
    ),
    Action(
        "sessions import",
        "session_imports.import_sessions",
        "Import sessions of Claude Code, Codex, an older ouro or an export",
        (
            arg(
                "paths",
                nargs="*",
                type=Path,
                metavar="PATH",
                help="files or folders; none: the usual places",
            ),
            arg(
                "--from",
                dest="program",
                choices=("claude-code", "codex", "json", "ouro-old"),
                help="the program, if it is not detected",
            ),
            arg(
                "--all",
                dest="every",
                action="store_true",
                help="import all that is found, without asking",
            ),
        ),
        ("sessions import --all",),
        "shell",
    ),
    Action(
        "sessions rename",
        "sessions.rename",
        "Set the title of a session",
        (_ONE_SESSION, arg("title")),
        ('sessions rename latest "the broken import"',),
        "shell",
    ),
    Action(
        "sessions tag",
        "sessions.tag",
        "Tag a session, or with `-x` no longer; `pin` and `unpin` put it first in lists",
        (_ONE_SESSION, arg("words", nargs="+", metavar="TAG")),
        ("sessions tag latest parser", "sessions tag latest pin", "sessions tag latest -- -parser"),
        "shell",
    ),
    Action(
        "sessions rm",
        "sessions.remove",
        "Move sessions to the trash",
        (
            arg("sessions", nargs="+", metavar="SESSION", help=SESSION_HELP),
            YES,
            arg("--purge", action="store_true", help="delete them, also those in the trash"),
        ),
        ("sessions rm 0d9f3c52",),
        "shell",
    ),
    Action(
        "sessions restore",
        "sessions.restore",
        "Restore a session from the trash; without one, list the trash",
        (arg("session", nargs="?", default="", metavar="SESSION", help=SESSION_HELP),),
        ("sessions restore 0d9f3c52",),
        "shell",
    ),
    Action(
        "sessions clean",
        "sessions.clean_up",
        "Move sessions that were not used for long to the trash",
        (
            arg("--days", type=count, default=None, metavar="N", help="else `sessions.keep_days`"),
            YES,
        ),
        ("sessions clean --days 180",),
        "shell",
    ),
    Action(
        "sessions sync",
        "sessions.sync",
        "Fetch and send sessions over a git remote; a conflict becomes a fork",
        (
            arg(
                "remote",
                nargs="?",
                default="",
                metavar="URL",
                help="saved for the next time; else `sessions.remote`",
            ),
            arg(
                "--encrypt", action="store_true", help="a new remote: with a key that is made here"
            ),
            arg("--plain", action="store_true", help="without encryption, although there is a key"),
        ),
        ("sessions sync git@example.org:me/sessions.git", "sessions sync"),
        "shell",
    ),
    Action(
        "sessions repair",
        "sessions.repair",
        "Move unreadable data to `.torn` files, and rebuild the index",
        (
            arg(
                "session",
                nargs="?",
                default="",
                metavar="SESSION",
                help=f"{SESSION_HELP}; none: all",
            ),
        ),
        ("sessions repair",),
        "shell",
    ),
)
