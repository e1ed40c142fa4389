"""All actions, in the order of help and completion."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.commands.action import Action, amount, arg, count, text
from ouro.commands.background_actions import BACKGROUND_ACTIONS, BACKGROUND_COMMANDS
from ouro.commands.batch_actions import BATCH_ACTIONS
from ouro.display import Choice

if TYPE_CHECKING:
    from ouro.extensions import CustomCommand
    from ouro.session import Session

_ENTRY = "a note's id or its start, a core line (`user/facts.md:3`) or a file (`facts`)"
_SESSION = "an id, its start, `latest`, or words of its title or messages"
_YES = arg("-y", "--yes", action="store_true", help="do not ask")
_FORCE = arg("--force", action="store_true", help="overwrite an existing file")
_NOTE = arg("note", metavar="ID", help="a note's id or its start")
_ONE_SESSION = arg("session", metavar="SESSION", help=_SESSION)
_PROPOSAL = arg(
    "proposal",
    nargs="?",
    default="",
    metavar="ID",
    help="the id of the change, if several are pending",
)

_BACK = text("back", metavar="messages back")
_RULE = text("rule", nargs=None, metavar="RULE", help="such as `shell(make *)`")
_SERVER = arg("server", metavar="SERVER", help="the name of an MCP server")
_CONFIG = Action(
    "config",
    "ouro.config_and_doctor.config",
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
_PROJECT = arg(
    "--project", action="store_true", help="in .ouro/config.yaml of the repository, not in yours"
)
_SETTING = arg("key", metavar="KEY", help="the dotted name: `tui.theme`")
_CONFIG_ACTIONS = (
    Action(
        "config list",
        "ouro.config_and_doctor.config_list",
        "List each setting, its value and its source",
        (),
        ("config list",),
        "both",
    ),
    Action(
        "config get",
        "ouro.config_and_doctor.config_get",
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
_DOCTOR = Action(
    "doctor",
    "ouro.config_and_doctor.doctor",
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
_USAGE = Action(
    "usage",
    "usage.usage",
    "Show tokens and cost by model: this session, today, this month, all",
    (
        arg(
            "--by",
            choices=("day", "project", "model", "purpose"),
            default="",
            help="of all sessions, with bars",
        ),
    ),
    ("usage", "usage --by day", "usage --by purpose --json"),
    "both",
    "[--by day|project|model|purpose]",
    aliases=("cost", "stats"),
)

SESSION_COMMANDS: tuple[Action, ...] = (
    Action(
        "help",
        "info.show_help",
        "Show the commands and keys, a command, a page of the documentation, or a setting",
        (text("topic", metavar="command or page"),),
        ("help memory", "help docs/settings.md", "help tui.theme"),
        aliases=("h",),
    ),
    Action(
        "model",
        "models.model",
        "Use another model",
        (text("name", metavar="name|next|previous|favorite"),),
        ("model sonnet", "model favorite", "model next"),
        aliases=("models",),
    ),
    Action(
        "think",
        "models.think",
        "Set how long the model thinks before it answers",
        (text("effort", metavar="LEVEL|next"),),
        ("think high", "think next"),
        aliases=("effort",),
    ),
    Action(
        "style",
        "style.style",
        "Choose how the agent answers; --save: also in new sessions",
        (text("name"),),
        ("style concise", "style default --save"),
        aliases=("output-style",),
    ),
    Action(
        "add-dir",
        "style.add_dir",
        "Add a folder to the workspace of this session",
        (text("folder"),),
        ("add-dir ../shared",),
    ),
    Action(
        "plan",
        "mode.plan",
        "Enter or leave plan mode",
        (text("task", metavar="what to plan"),),
        ("plan a cache for the parser",),
    ),
    Action(
        "plans",
        "plans.plans",
        "List the saved plans; carry one out, edit or delete it",
        (text("words"),),
        ("plans cache",),
        between_turns=True,
    ),
    Action(
        "permissions",
        "ouro.permission_rules.permissions",
        "Show the permission rules, change them, set the mode",
        (text("mode", metavar="mode or rule"),),
        (
            "permissions edit",
            "permissions deny shell(npm publish *)",
            "permissions revoke shell(make *)",
        ),
        aliases=("mode",),
    ),
    Action(
        "resume",
        "conversation.resume",
        "Continue an earlier session",
        (text("session", metavar="id or words"),),
        ("resume latest",),
        aliases=("sessions", "continue"),
        between_turns=True,
    ),
    Action(
        "tag",
        "conversation.tag",
        "Tag this session, to find it in lists, or pin it: it stays the first",
        (text("words", metavar="tags|pin|unpin"),),
        ("tag parser", "tag -parser", "tag pin"),
    ),
    Action(
        "clear",
        "conversation.clear",
        "Start a new session; this one is saved",
        aliases=("new",),
        between_turns=True,
    ),
    Action(
        "fork",
        "rewind.fork",
        "Continue in a copy of the session",
        (text("title"),),
        ("fork another way",),
        between_turns=True,
    ),
    Action(
        "rewind",
        "rewind.rewind",
        "Rewind to before an earlier message, to edit and send it again",
        (_BACK,),
        ("rewind 2",),
        aliases=("back",),
        between_turns=True,
    ),
    Action(
        "undo",
        "rewind.undo",
        "Undo your last message with its files, or what you name: a file, a hunk",
        (text("what"),),
        ("undo conversation", "undo files because the login broke", "undo src/a.py#3f2a"),
        between_turns=True,
    ),
    Action(
        "redo",
        "rewind.redo",
        "Redo what was undone: messages, files, memory",
        (text("what"),),
        ("redo files",),
        between_turns=True,
    ),
    Action(
        "rename",
        "conversation.rename",
        "Set the title; without one, a model finds one",
        (text("title"),),
        ("rename The slow parser",),
    ),
    Action(
        "copy",
        "copy.copy",
        "Copy the last answer or one of its code blocks, an earlier answer, or any message",
        (text("what", metavar="N|code|list"),),
        ("copy", "copy 2", "copy code", "copy list"),
    ),
    Action(
        "queue",
        "queue.queue",
        "Show the messages that wait; edit, move or remove one",
        (text("what", metavar="edit|up|down|remove N"),),
        ("queue", "queue remove 2", "queue up 3", "queue edit 1"),
    ),
    Action("transcript", "conversation.transcript", "Read the whole transcript"),
    Action(
        "find",
        "conversation.find",
        "Search the transcript",
        (text("words", nargs="+"),),
        ("find locking",),
    ),
    Action(
        "export",
        "conversation.export",
        "Write the whole session to a Markdown, HTML or JSON file",
        (text("file"),),
        ("export session.html",),
    ),
    Action(
        "memory",
        "memory_notes.browse",
        "Browse memory, or run one of its actions",
        (),
        ("memory search optimistic locking since:2026-01-01",),
        "session",
        "[list|search|show|edit|…]",
        ("mem",),
    ),
)

MEMORY_ACTIONS: tuple[Action, ...] = (
    Action(
        "memory files",
        "memory_notes.files",
        "List the core files and pending changes",
        (),
        ("memory files",),
        "both",
    ),
    Action(
        "memory list",
        "memory_notes.list_entries",
        "List notes, core lines and pending changes",
        (
            arg(
                "what",
                nargs="*",
                metavar="WHAT",
                help="a scope, a category, core, note, archived, replaced",
            ),
            arg(
                "-n",
                "--max",
                dest="limit",
                type=count,
                default=0,
                metavar="N",
                help="entries to show (all)",
            ),
        ),
        ("memory list repo", "memory list coding-preferences", "memory list archived"),
        "both",
    ),
    Action(
        "memory show",
        "memory_notes.show",
        "Show a note with its versions, a core line or a core file",
        (
            arg(
                "entry",
                nargs="?",
                default="",
                metavar="ID|FILE",
                help=f"{_ENTRY}; none: all core files",
            ),
        ),
        (
            "memory show mem_3f6c1e",
            "memory show user/preferences.md",
            "memory show repo/facts.md:3",
        ),
        "both",
    ),
    Action(
        "memory search",
        "memory_notes.search",
        "Search notes, core lines and the messages of all sessions",
        (
            text("words", metavar="WORDS"),
            arg("--since", default="", metavar="DAY", help="2026-11-21"),
            arg(
                "--scope",
                choices=("user", "repo"),
                default="",
                help="notes and core lines of one scope",
            ),
            arg("--category", default="", help="notes and core lines of one category"),
            arg(
                "--project", default="", metavar="FOLDER", help="messages and notes of that folder"
            ),
            arg("--session", default="", metavar="SESSION", help=_SESSION),
            arg(
                "-n",
                "--max",
                dest="limit",
                type=count,
                default=10,
                metavar="N",
                help="hits to show (10)",
            ),
        ),
        (
            'memory search "why optimistic locking" --since 2026-01-01',
            "memory search locking since:2026-01-01 scope:repo category:patterns",
        ),
        "both",
    ),
    Action(
        "memory remember",
        "memory_remember.remember",
        "Save a note or core line now, without a model",
        (
            text("text", nargs="+", metavar="TEXT", help="`-` in a shell: read standard input"),
            arg(
                "--scope",
                choices=("user", "repo"),
                default=None,
                help="where to save it (else found by its words)",
            ),
        ),
        (
            "memory remember Run the tests with make check",
            "memory remember --scope user I prefer tabs",
        ),
        "both",
    ),
    Action(
        "memory forget",
        "memory_notes.forget",
        "Stop using the matching entries, after a preview",
        (
            text("text", metavar="WORDS|ID"),
            arg("--pick", default="", metavar="NUMBERS", help="forget only these matches: 1,3"),
            arg("-y", "--yes", action="store_true", help="forget all matches, without asking"),
            arg(
                "--everywhere",
                action="store_true",
                help=(
                    "remove this text from all that ouro stores, also from histories, sessions and"
                    " logs"
                ),
            ),
            arg(
                "--secret",
                action="store_true",
                help="ask for the text without showing it, or read standard input",
            ),
            arg(
                "--backup",
                default="",
                metavar="FILE",
                help="first save all to this tar file, which keeps the text",
            ),
            arg("--no-backup", action="store_true", help="write no backup"),
        ),
        (
            "memory forget staging password",
            "memory forget mem_3f6c1e --yes",
            "memory forget heron --pick 1,3",
            "memory forget --everywhere --secret",
        ),
        "both",
    ),
    Action(
        "memory edit",
        "memory_notes.edit",
        "Edit a note or a core file in your editor",
        (
            arg(
                "entry",
                nargs="?",
                default="",
                metavar="ID|FILE",
                help=f"{_ENTRY}; none: preferences",
            ),
        ),
        ("memory edit preferences", "memory edit repo/facts.md", "memory edit mem_3f6c1e"),
        "both",
    ),
    Action(
        "memory stats",
        "memory_notes.stats",
        "Count notes and core lines by kind, source and age",
        (),
        ("memory stats",),
        "both",
    ),
    Action(
        "memory report",
        "memory_report.report",
        "Show how often each entry was sent and used, and what is unused, stale or double",
        (),
        ("memory report",),
        "both",
    ),
    Action(
        "memory commands",
        "memory_notes.commands",
        "List the commands that passed or failed in this project",
        (),
        ("memory commands",),
        "both",
    ),
    Action(
        "memory confirm",
        "memory_notes.confirm",
        "Confirm that a note still holds",
        (_NOTE,),
        ("memory confirm mem_3f6c1e",),
        "both",
    ),
    Action(
        "memory archive",
        "memory_notes.archive",
        "Stop recalling a note",
        (_NOTE,),
        ("memory archive mem_3f6c1e",),
        "both",
    ),
    Action(
        "memory restore",
        "memory_notes.restore",
        "Restore a note from the archive",
        (_NOTE,),
        ("memory restore mem_3f6c1e",),
        "both",
    ),
    Action(
        "memory promote",
        "memory_team.promote",
        "Propose entries for the shared memory of the repository, each on a new git branch",
        (
            arg("entries", nargs="+", metavar="ID", help=_ENTRY),
            arg(
                "--owner",
                default="",
                metavar="WHO",
                help="the user who is asked when it expires (git's user.email)",
            ),
            arg("--days", type=count, default=180, metavar="N", help="days until it expires (180)"),
        ),
        ("memory promote mem_3f6c1e --days 90", "memory promote mem_3f6c1e mem_0b9d"),
        "both",
    ),
    Action(
        "memory receipt",
        "memory_notes.receipt",
        "Show what memory put into the prompt, and what was recalled",
        (),
        ("memory receipt",),
    ),
    Action(
        "memory accept",
        "memory_notes.accept",
        "Accept a pending change of memory",
        (_PROPOSAL,),
        ("memory accept 3f6c1e",),
        "both",
    ),
    Action(
        "memory reject",
        "memory_notes.reject",
        "Reject a pending change of memory; git keeps it",
        (_PROPOSAL,),
        ("memory reject 3f6c1e",),
        "both",
    ),
    Action(
        "memory inbox",
        "memory_inbox.inbox",
        "List what waits for your decision: changes of memory, checks and skills",
        (
            arg(
                "words",
                nargs="*",
                metavar="[accept|reject] NUMBERS",
                help="`accept 1,3`, `reject 2-5`, `accept all`; without it, the list",
            ),
        ),
        ("memory inbox", "memory inbox accept 1,3-5", "memory inbox reject all"),
        "both",
    ),
    Action(
        "memory log",
        "memory_history.log",
        "List the commits of memory, of one file or of one note",
        (
            arg("file", nargs="?", default="", metavar="FILE|NOTE"),
            arg(
                "-n",
                "--max",
                dest="limit",
                type=count,
                default=30,
                metavar="N",
                help="commits to show (30)",
            ),
        ),
        ("memory log", "memory log facts"),
        "both",
    ),
    Action(
        "memory diff",
        "memory_history.diff",
        "Show what a commit changed, what differs between two, or what changed since a date",
        (
            arg(
                "commits",
                nargs="*",
                metavar="COMMIT",
                help="none: the last commit; in a session: all since it began",
            ),
            arg("--since", default="", metavar="DATE", help="2026-11-21, yesterday, `3 days ago`"),
            arg(
                "--with",
                dest="agent",
                choices=("claude", "codex", "gemini"),
                default="",
                help="compare with what this agent remembers",
            ),
        ),
        (
            "memory diff",
            "memory diff 3f2a91c",
            "memory diff since yesterday",
            "memory diff --with claude",
        ),
        "both",
    ),
    Action(
        "memory blame",
        "memory_history.blame",
        "Show the commit, session and turn of each line of a file",
        (
            arg("file", metavar="FILE"),
            arg(
                "number",
                nargs="?",
                type=int,
                default=0,
                metavar="LINE",
                help="show the turn that a line came from",
            ),
            arg("--open", dest="number", type=int, metavar="LINE", help="the same"),
        ),
        ("memory blame repo/facts.md", "memory blame facts 3"),
        "both",
    ),
    Action(
        "memory why",
        "memory_history.why",
        "Show what memory put into the prompt of a turn",
        (
            arg(
                "turn", nargs="?", type=int, default=0, metavar="TURN", help="its number (the last)"
            ),
            arg("--session", default="", metavar="SESSION", help=_SESSION),
        ),
        ("memory why 3", "memory why 3 --session latest"),
        "both",
    ),
    Action(
        "memory evidence",
        "memory_history.evidence",
        "Show the turn that a note or a commit came from",
        (arg("what", metavar="NOTE|COMMIT"),),
        ("memory evidence mem_3f6c1e0b",),
        "both",
    ),
    Action(
        "memory undo",
        "memory_history.undo",
        "Undo a commit with all of its turn, or one hunk; later changes stay",
        (
            arg(
                "words",
                nargs="*",
                metavar="COMMIT",
                help="none: the last one; then `hunk 2` for only that hunk",
            ),
            arg(
                "--hunk",
                type=count,
                default=0,
                metavar="N",
                help="only that hunk, as `diff` numbers them",
            ),
            _YES,
        ),
        ("memory undo 3f2a91c", "memory undo 3f2a91c hunk 2"),
        "both",
    ),
    Action(
        "memory at",
        "memory_history.show_at",
        "Show or search memory as it was on a date",
        (
            arg(
                "when",
                nargs="+",
                metavar="DATE",
                help="2026-11-21, yesterday, `3 days ago`; then `show FILE|NOTE` or `search WORDS`",
            ),
        ),
        (
            "memory at 2026-11-21",
            "memory at yesterday show facts",
            "memory at 3 days ago search redis",
        ),
        "both",
        aliases=("memory as-of",),
    ),
    Action(
        "memory export",
        "memory_transfer.export",
        "Write all of memory to one Markdown or JSON file",
        (
            arg(
                "file",
                nargs="?",
                default="",
                metavar="FILE",
                help="the file to write (standard output; in a session ouro-memory.md)",
            ),
            arg(
                "--to",
                choices=("claude", "codex", "gemini", "agents-md"),
                default="",
                help="write the core into the files that this agent reads",
            ),
            _FORCE,
        ),
        ("memory export memory.md", "memory export --to claude"),
        "both",
    ),
    Action(
        "memory init",
        "memory_init.init",
        "Answer three questions, and have the agent read the repository",
        (),
        ("memory init",),
        between_turns=True,
    ),
    Action(
        "memory import",
        "memory_transfer.import_",
        "Import CLAUDE.md, AGENTS.md, GEMINI.md, .cursorrules, memory folders of other agents, or"
        " an export",
        (
            arg(
                "paths",
                nargs="+",
                metavar="PATH",
                help="files, or folders (of a project: its instructions)",
            ),
            arg("--scope", choices=("user", "repo"), default=None, help="import all to this scope"),
            arg("--dry-run", action="store_true", help="only show what would be imported"),
            _YES,
        ),
        (
            "memory import CLAUDE.md --dry-run",
            "memory import pr 12",
            "memory import ~/.codex/memories --scope user --yes",
        ),
        "both",
    ),
    Action(
        "memory graph",
        "memory_transfer.graph",
        "Write the graph of notes and names as one HTML page",
        (
            arg(
                "-o",
                "--output",
                default="",
                metavar="FILE",
                help="the file to write (standard output)",
            ),
            _FORCE,
        ),
        ("memory graph -o memory.html",),
        "shell",
    ),
    Action(
        "memory sync",
        "memory_transfer.sync",
        "Fetch, merge and push memory over a git remote",
        (
            arg(
                "words",
                nargs="*",
                metavar="[user|repo] [URL]",
                help="the scope and the remote, which is saved",
            ),
            arg(
                "--remote",
                default="",
                metavar="URL",
                help="the remote (`memory.remote`, or the last one)",
            ),
            arg(
                "--scope",
                choices=("user", "repo"),
                default=None,
                help="the scope to synchronize (user)",
            ),
        ),
        (
            "memory sync",
            "memory sync git@example.org:me/memory.git",
            "memory sync repo /mnt/share/app.git",
        ),
        "both",
    ),
    Action(
        "memory consolidate",
        "memory_maintenance.consolidate",
        "Have a model merge notes that say the same, and compress the core",
        (
            arg(
                "what",
                nargs="?",
                default="",
                metavar="WHAT",
                help="notes, core, user or repo; none: all",
            ),
            arg("--core", action="store_true", help="only the core files"),
            arg("--notes", action="store_true", help="only the notes"),
            _YES,
        ),
        ("memory consolidate", "memory consolidate notes"),
        "both",
    ),
    Action(
        "memory crystallize",
        "memory_maintenance.crystallize",
        "Have a model make notes from old sessions of this folder",
        (
            arg(
                "age",
                nargs="?",
                default="",
                metavar="DAYS|all",
                help="the least age of a session (7)",
            ),
            arg("--days", type=count, default=7, metavar="N", help="the same"),
            arg("--all", dest="every", action="store_true", help="sessions of any age"),
            _YES,
        ),
        ("memory crystallize", "memory crystallize 30", "memory crystallize all --yes"),
        "both",
    ),
    Action(
        "memory lessons",
        "memory_notes.lessons",
        "List corrections and patterns of this project, newest first",
        (),
        ("memory lessons",),
        "both",
    ),
    Action(
        "memory doctor",
        "memory_maintenance.check",
        "Look for problems in memory; exit code 1 if there is one",
        (),
        ("memory doctor",),
        "shell",
    ),
    Action(
        "memory reindex",
        "memory_maintenance.reindex",
        "Rebuild the index from the files",
        (),
        ("memory reindex",),
        "shell",
    ),
    Action(
        "memory index",
        "memory_maintenance.index_state",
        "Show the size of the index and what is in it",
        (),
        ("memory index",),
        "shell",
    ),
    Action(
        "memory test",
        "memory_maintenance.measure",
        "Measure how well the search finds known notes and messages",
        (
            arg(
                "--docs",
                default="",
                metavar="FILE",
                help="JSON lines: id, text, speaker, date, session, turn",
            ),
            arg("--queries", default="", metavar="FILE", help="JSON lines: qid, query"),
            arg(
                "--k",
                type=count,
                default=25,
                metavar="N",
                help="ids to print for each question (25)",
            ),
            arg(
                "--work",
                default="",
                metavar="DIR",
                help="an empty folder for the index of this test",
            ),
            arg("--words", action="store_true", help="search without vectors"),
            arg(
                "--at-least",
                type=float,
                default=0.0,
                metavar="SHARE",
                help="exit 1 if Recall@10 is lower",
            ),
        ),
        ("memory test --at-least 0.8", "memory test --docs docs.jsonl --queries queries.jsonl"),
        "shell",
    ),
    Action(
        "memory on",
        "memory_notes.turn_on",
        "Read and write the memory of this repository again",
        (),
        ("memory on",),
        "both",
    ),
    Action(
        "memory off",
        "memory_notes.turn_off",
        "Stop using the memory of this repository; user memory stays on",
        (),
        ("memory off",),
        "both",
    ),
)

LSP_ACTIONS: tuple[Action, ...] = (
    Action(
        "lsp log",
        "lsp.log",
        "Show what a language server has logged",
        (arg("server"),),
        ("lsp log pyright",),
    ),
)

MCP_ACTIONS: tuple[Action, ...] = (
    Action(
        "mcp list",
        "mcp.list_servers",
        "List the MCP servers with state, tools, tokens and latency",
        (),
        ("mcp list",),
        "both",
    ),
    Action(
        "mcp show",
        "mcp.show",
        "Show a server: its tools and what each costs, resources, prompts",
        (_SERVER,),
        ("mcp show github",),
        "both",
    ),
    Action(
        "mcp test",
        "mcp.test",
        "Connect to a server, and show what it offers or why it fails",
        (_SERVER,),
        ("mcp test github",),
        "both",
    ),
    Action(
        "mcp log",
        "mcp.log",
        "Show what a server has printed and logged",
        (_SERVER,),
        ("mcp log github",),
    ),
    Action(
        "mcp on",
        "mcp.turn_on",
        "Switch a server or a tool on, here and later",
        (arg("what", metavar="SERVER[.TOOL]"),),
        ("mcp on github", "mcp on github.delete_repo"),
        "both",
    ),
    Action(
        "mcp off",
        "mcp.turn_off",
        "Switch a server or a tool off, here and later",
        (arg("what", metavar="SERVER[.TOOL]"),),
        ("mcp off github", "mcp off github.delete_repo"),
        "both",
    ),
    Action(
        "mcp approve",
        "mcp.approve",
        "Show what a server has changed in its tools, and approve it",
        (_SERVER, _YES),
        ("mcp approve github",),
        "both",
    ),
    Action(
        "mcp add",
        "mcp.add",
        "Add a server: a command behind `--`, or an address",
        (
            arg("name", metavar="NAME"),
            arg("command", nargs="*", metavar="COMMAND", default=[]),
            arg("--url", default="", metavar="URL", help="its address"),
            arg("--sse", action="store_true", help="the transport of 2024"),
            arg(
                "--env",
                action="append",
                default=[],
                metavar="NAME=VALUE",
                help="a variable of the command",
            ),
            arg(
                "--header",
                action="append",
                default=[],
                metavar="NAME:VALUE",
                help="a header of each request",
            ),
            arg("--force", action="store_true", help="overwrite the server of that name"),
        ),
        (
            (
                "mcp add github --env 'GITHUB_TOKEN=${GITHUB_TOKEN}' -- npx -y"
                " @modelcontextprotocol/server-github"
            ),
            "mcp add docs --url https://docs.example.com/mcp",
        ),
        "shell",
    ),
    Action(
        "mcp remove",
        "mcp.remove",
        "Remove a server that was added or imported",
        (arg("name", metavar="NAME"),),
        ("mcp remove github",),
        "shell",
    ),
    Action(
        "mcp import",
        "mcp.import_servers",
        "Import servers from Claude Code, .mcp.json and Codex",
        (
            arg(
                "--all",
                dest="every",
                action="store_true",
                help="all that are found, without asking",
            ),
        ),
        ("mcp import --all",),
        "shell",
    ),
    Action(
        "mcp login",
        "mcp.login",
        "Log in to a server with OAuth, in the browser",
        (_SERVER,),
        ("mcp login docs",),
        "shell",
    ),
    Action(
        "mcp serve",
        "mcp_serve.serve",
        "Serve ouro's memory to another agent, on stdin and stdout",
        (),
        ("mcp serve",),
        "shell",
        has_json=False,
    ),
    Action(
        "mcp logout",
        "mcp.logout",
        "Forget the tokens of a server",
        (_SERVER,),
        ("mcp logout docs",),
        "shell",
    ),
)

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
        (_RULE,),
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


def _shortcut(name: str, usage: str, *examples: str) -> Action:
    """`/remember` for `/memory remember`."""
    action = next(action for action in MEMORY_ACTIONS if action.name == f"memory {name}")
    return Action(name, action.target, action.help, action.arguments, examples, "session", usage)


_SYNC = Action(
    "sync",
    "ouro.synchronize.sync",
    "Fetch and send memory, sessions and settings over your git remote",
    (
        arg(
            "remote",
            nargs="?",
            default="",
            metavar="URL",
            help="saved for the next time; else `memory.remote`",
        ),
        arg("--later", action="store_true", help="do not ask about received settings now"),
        arg("--quiet", action="store_true", help="in a session: show only the last line"),
    ),
    ("sync", "sync git@example.org:me/ouro.git"),
    "both",
)

COMMANDS: tuple[Action, ...] = (
    *SESSION_COMMANDS,
    _SYNC,
    *BACKGROUND_COMMANDS,
    Action(
        "handoff",
        "handoff.handoff",
        "Let Claude Code or Codex continue this session; shows the command line",
        (arg("agent", choices=("claude", "codex")),),
        ("handoff codex", "handoff claude"),
        shown_arguments="claude|codex",
        between_turns=True,
    ),
    _shortcut("remember", "[user|repo] text", "remember repo Run the tests with pytest -q"),
    _shortcut("forget", "[--everywhere] words or id", "forget staging host"),
    Action("todos", "conversation.todos", "Show the agent's plan", aliases=("todo",)),
    Action(
        "goal",
        "goal.goal",
        "Work until a condition holds or a command passes; pause, resume or end that",
        (
            arg("--turns", type=count, metavar="N", help="the cap of turns"),
            arg("--cost", type=amount, metavar="USD", help="the cap of cost"),
            arg("--minutes", type=count, metavar="N", help="the cap of time"),
            arg("--keep", action="store_true", help="keep it when the session is closed"),
            text("condition"),
        ),
        ("goal all tests pass", "goal !make test", "goal --turns 50 !pytest -q", "goal clear"),
        shown_arguments="[condition|!command|pause|resume|clear]",
    ),
    Action(
        "loop",
        "goal.loop",
        "Send a message again and again, each time after an interval",
        (
            arg("--keep", action="store_true", help="keep it when the session is closed"),
            text("text"),
        ),
        ("loop 10m Check the build", "loop 1h /review"),
        shown_arguments="[interval text]",
    ),
    Action(
        "tasks",
        "conversation.tasks",
        "List the goal, loops, background jobs and subagents, end one, or move the running command"
        " to the background",
        (text("what", metavar="kill id|background"),),
        ("tasks kill job_3", "tasks background"),
        aliases=("ps", "jobs"),
    ),
    Action(
        "hooks", "hooks.hooks", "List the hooks, and what they did in this session", (), ("hooks",)
    ),
    Action(
        "check",
        "hooks.check",
        "Turn a correction into a rule or hook that is enforced and counted, or remove one",
        (text("correction", nargs="+", metavar="TEXT"),),
        ("check Use pnpm, not npm", "check remove 2"),
        "session",
        "<text|note|remove N>",
        between_turns=True,
    ),
    Action(
        "agents",
        "conversation.agents",
        "List the kinds of subagents and those of this session, or show one",
        (text("name", metavar="id"),),
        ("agents explore-1",),
    ),
    Action(
        "init",
        "repository.init",
        "Study the repository and write AGENTS.md, or improve it",
        (text("wish", metavar="what matters"),),
        ("init how to run the tests",),
        "prompt",
    ),
    Action(
        "review",
        "repository.review",
        "Have a subagent review the uncommitted changes, a branch or a pull request",
        (text("what", metavar="[security] base, #PR or what"),),
        ("review main", "review #12", "review the parser", "review security main"),
        "prompt",
    ),
    Action(
        "pr",
        "pull_request.pr",
        "Show the pull request of this branch and its checks; open one, or follow its checks",
        (text("words", metavar="open|follow"),),
        ("pr", "pr open as a draft", "pr follow"),
    ),
    Action(
        "diff",
        "repository.diff",
        "Show what changed since a commit, in the session or in a turn; undo and comment parts",
        (text("since", metavar="messages back|session|COMMIT"),),
        ("diff", "diff 1", "diff session", "diff main"),
    ),
    Action("status", "info.status", "Show the model, mode, folder and session"),
    _USAGE,
    Action(
        "context",
        "window.show_context",
        "Show what fills the model's window; drop, restore, pin what is sent",
        (text("what", metavar="drop|restore|pin N"),),
        ("context drop 1 3",),
    ),
    Action(
        "btw",
        "window.btw",
        "Ask a question outside of the conversation, without stopping the agent",
        (text("question", nargs="+"),),
        ("btw which test covers this?",),
    ),
    Action(
        "instructions",
        "extensions.instructions",
        "List the loaded files of instructions, and their sizes",
        (),
        ("instructions",),
    ),
    Action(
        "skills",
        "extensions.skills",
        "List the skills and what each costs, or switch one on or off",
        (
            arg("switch", nargs="?", choices=("on", "off"), metavar="on|off"),
            arg("name", nargs="?", default="", metavar="NAME"),
        ),
        ("skills off pdf",),
        "session",
        "[on|off NAME]",
    ),
    Action(
        "skill",
        "extensions.skill",
        "Draft a skill from what was done in this session",
        (text("what"),),
        ("skill save how to release",),
        "session",
        "save [what]",
        between_turns=True,
    ),
    Action(
        "mcp",
        "mcp.list_servers",
        "List MCP servers, or run one of its actions",
        (),
        ("mcp show github",),
        "session",
        "[show|test|log|on|off|approve]",
    ),
    Action(
        "lsp",
        "lsp.list_servers",
        "List the language servers with state and new errors, or show the log of one",
        (),
        ("lsp", "lsp log pyright"),
        "session",
        "[log]",
    ),
    Action(
        "compact",
        "window.compact",
        "Summarize the session to make room; name what must be kept",
        (arg("--probe", action="store_true"), text("keep")),
        ("compact the API of the parser", "compact --probe"),
        "session",
        "[--probe] [what to keep]",
        ("compress",),
        between_turns=True,
    ),
    Action(
        "pin",
        "window.pin",
        "Keep a message word for word through every compaction, or stop",
        (text("message", metavar="number or last"),),
        ("pin last",),
    ),
    Action("vim", "info.vim", "Edit the prompt with the keys of Vim, or no longer"),
    Action("theme", "info.theme", "Choose the colours", (text("name"),), ("theme light",)),
    _CONFIG,
    _DOCTOR,
    Action("feedback", "info.feedback", "Show what to put into a bug report", aliases=("bug",)),
    Action("exit", "conversation.exit_", "Leave ouro; the session is saved", aliases=("quit", "q")),
)
"""The slash commands."""

COMMAND_NAMES: tuple[str, ...] = tuple(name for command in COMMANDS for name in command.names)
"""Their names and aliases."""

SHELL_ACTIONS: tuple[Action, ...] = (
    Action(
        "sessions list",
        "sessions.list_sessions",
        "List the sessions of this folder, last used first",
        (
            arg("words", nargs="*", metavar="WORD", help="in the title or in a message"),
            arg("--all", dest="every", action="store_true", help="of every folder"),
        ),
        ("sessions list --all",),
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
        "Print a whole session as Markdown, HTML or JSON",
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
            _FORCE,
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
            arg("sessions", nargs="+", metavar="SESSION", help=_SESSION),
            _YES,
            arg("--purge", action="store_true", help="delete them, also those in the trash"),
        ),
        ("sessions rm 0d9f3c52",),
        "shell",
    ),
    Action(
        "sessions restore",
        "sessions.restore",
        "Restore a session from the trash; without one, list the trash",
        (arg("session", nargs="?", default="", metavar="SESSION", help=_SESSION),),
        ("sessions restore 0d9f3c52",),
        "shell",
    ),
    Action(
        "sessions clean",
        "sessions.clean_up",
        "Move sessions that were not used for long to the trash",
        (
            arg("--days", type=count, default=None, metavar="N", help="else `sessions.keep_days`"),
            _YES,
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
        (arg("session", nargs="?", default="", metavar="SESSION", help=f"{_SESSION}; none: all"),),
        ("sessions repair",),
        "shell",
    ),
    Action(
        "plugin add",
        "extensions.add_plugin",
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
            _YES,
        ),
        ("plugin add acme/tools --path plugins/review", "plugin add ./my-plugin"),
        "shell",
    ),
    Action(
        "plugin list",
        "extensions.list_plugins",
        "List the plugins, with the commit that is installed",
        (),
        ("plugin list",),
        "shell",
    ),
    Action(
        "plugin update",
        "extensions.update_plugin",
        "Fetch plugins again, and show what changes before it is installed",
        (arg("name", nargs="?", default="", metavar="NAME", help="none: all"), _YES),
        ("plugin update",),
        "shell",
    ),
    Action(
        "plugin remove",
        "extensions.remove_plugin",
        "Remove a plugin",
        (arg("name", metavar="NAME"), _YES),
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
    *PERMISSION_ACTIONS,
    Action(
        "checkpoints list",
        "rewind.list_checkpoints",
        "List the folders whose files are kept for undo",
        (),
        ("checkpoints list --json",),
        "shell",
    ),
    Action(
        "checkpoints clean",
        "rewind.clean_old_checkpoints",
        "Delete old checkpoints",
        (arg("--days", type=int, default=None, metavar="N", help="else `checkpoints.keep_days`"),),
        ("checkpoints clean --days 3",),
        "shell",
    ),
    _USAGE,
    Action(
        "models show",
        "models.show",
        "Show what ouro knows about a model, and what refusals of its server have taught",
        (arg("name", metavar="NAME", help="a model, by name or part of the name"),),
        ("models show sonnet",),
        "shell",
    ),
    Action(
        "models reset",
        "models.reset",
        "Forget what refusals have taught about a model",
        (arg("name", metavar="NAME", help="a model, by name or part of the name"),),
        ("models reset sonnet",),
        "shell",
    ),
    Action(
        "models",
        "models.models",
        "List usable models, and why others are not usable",
        (arg("--setup", action="store_true", help="choose a model and write it to models.yaml"),),
        ("models --setup", "models --json | jq -r '.models[] | select(.usable).name'"),
        "shell",
    ),
    Action(
        "models login",
        "models.login",
        "Store a key in the keyring of the system",
        (arg("name", metavar="NAME", help="a provider, or a model with a server of its own"),),
        ("models login openai", "pass show openai | ouro models login openai"),
        "shell",
    ),
    Action(
        "models logout",
        "models.logout",
        "Delete a key from the keyring of the system",
        (arg("name", metavar="NAME", help="a provider, or a model with a server of its own"),),
        ("models logout openai",),
        "shell",
    ),
    Action(
        "models update",
        "models.update",
        "Fetch a newer table of windows and prices",
        (arg("--from", dest="address", default="", metavar="URL", help="else `prices_url`"),),
        ("models update", "models update --from https://prices.example.com/models.json"),
        "shell",
    ),
    Action(
        "models test",
        "models.check",
        "Ask a model up to six small questions, and show what works: the first step of a report",
        (
            arg("name", nargs="?", default="", metavar="MODEL", help="else that of new sessions"),
            arg("-y", "--yes", action="store_true", help="do not ask because of the price"),
            arg(
                "--seconds",
                type=int,
                default=None,
                metavar="N",
                help="the limit of a request, and of the wait for a server that loads (300)",
            ),
        ),
        ("models test", "models test sonnet --json", "models test qwen --seconds 1800"),
        "shell",
    ),
    *MEMORY_ACTIONS,
    *MCP_ACTIONS,
    *BATCH_ACTIONS,
    *BACKGROUND_ACTIONS,
    _CONFIG,
    *_CONFIG_ACTIONS,
    _DOCTOR,
    Action(
        "acp",
        "ouro.cli.acp",
        "Work in an editor, over the Agent Client Protocol on standard input and output",
        (
            arg(
                "-m",
                "--model",
                default="",
                help="the model of new sessions, by name or a part of it",
            ),
            arg(
                "--mode",
                choices=("ask", "edit", "plan", "auto"),
                help="what is asked before it is done",
            ),
            arg(
                "--allow",
                action="append",
                default=[],
                metavar="RULE",
                help="such as 'shell(pytest *)'",
            ),
            arg(
                "--deny", action="append", default=[], metavar="RULE", help="such as 'write(.env)'"
            ),
            arg("--no-sandbox", action="store_true", help="run commands unconfined"),
            arg("--no-memory", action="store_true", help="neither read nor write long-term memory"),
            arg("--debug", action="store_true", help="log more to ~/.ouro/logs/ouro.log"),
        ),
        ("acp", "acp --mode plan"),
        "shell",
        has_json=False,
    ),
    Action(
        "help",
        "pages.help_topic",
        "Print a page of the documentation, what a setting means, or what a command does",
        (text("topic"),),
        ("help", "help settings", "help tui.theme"),
        "shell",
    ),
    Action(
        "completion",
        "ouro.cli.completion",
        "Print a script that completes ouro's command line",
        (arg("shell", choices=("bash", "zsh", "fish")),),
        ("completion bash > ~/.local/share/bash-completion/completions/ouro",),
        "shell",
        has_json=False,
    ),
    _SYNC,
    Action(
        "demo",
        "ouro.demo.demo",
        "Watch ouro repair a small program and remember, without a model or a key",
        (
            arg("--plain", action="store_true", help="in the plain prompt"),
            arg(
                "--headless",
                action="store_true",
                help="without a screen; questions are answered with yes",
            ),
        ),
        ("demo", "demo --plain", "demo --headless"),
        "shell",
    ),
)

ACTIONS: tuple[Action, ...] = tuple(action for action in SHELL_ACTIONS if action.place != "session")
"""The actions of `ouro WORD`."""


def find_command(word: str) -> Action | None:
    return next((command for command in COMMANDS if word in command.names), None)


def actions_of(command: Action) -> dict[str, Action]:
    """Word -> action of a slash command: `show` for `/memory show`."""
    prefix = f"{command.name} "
    return {
        name.removeprefix(prefix): action
        for action in (
            *MEMORY_ACTIONS,
            *MCP_ACTIONS,
            *LSP_ACTIONS,
            *PERMISSION_ACTIONS,
            *_CONFIG_ACTIONS,
        )
        for name in action.names
        if name.startswith(prefix) and action.place != "shell"
    }


def listed_commands(session: Session | None) -> Sequence[Action | CustomCommand]:
    """The slash commands in the order of help and completion; without a session only ouro's own."""
    return (*COMMANDS, *custom_commands(session))


def matching_commands(session: Session | None, wanted: str) -> list[Choice]:
    """The command of that name or alias, then those that begin so, then names that contain its
    letters in order.
    """
    scattered = re.compile(".*".join(map(re.escape, wanted)), re.IGNORECASE)

    def rank(name: str) -> tuple[bool, bool]:
        return name.lower() != wanted.lower(), not name.lower().startswith(wanted.lower())

    named = [(min(command.names, key=rank), command) for command in listed_commands(session)]
    return [
        Choice(
            f"/{name}{' ' * bool(command.argument)}",
            f"/{name} {command.argument}".rstrip(),
            command.help,
        )
        for name, command in sorted(named, key=lambda fit: rank(fit[0]))
        if scattered.search(name)
    ]


def custom_commands(session: Session | None) -> Sequence[CustomCommand]:
    return session.extensions.commands.commands() if session else ()
