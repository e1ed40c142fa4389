"""The declarations of `memory …`; their functions are in `memory_*.py`."""

from __future__ import annotations

from ouro.commands.action import FORCE, SESSION_HELP, YES, Action, arg, count, text
from ouro.commands.memory_history_action_table import MEMORY_HISTORY_ACTIONS

_ENTRY = "a note's id or its start, a core line (`user/facts.md:3`) or a file (`facts`)"
_NOTE = arg("note", metavar="ID", help="a note's id or its start")
_PROPOSAL = arg(
    "proposal",
    nargs="?",
    default="",
    metavar="ID",
    help="the id of the change, if several are pending",
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
            arg("--session", default="", metavar="SESSION", help=SESSION_HELP),
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
        "memory_forget.forget",
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
        "memory_changes.edit",
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
        "memory_changes.confirm",
        "Confirm that a note still holds",
        (_NOTE,),
        ("memory confirm mem_3f6c1e",),
        "both",
    ),
    Action(
        "memory archive",
        "memory_changes.archive",
        "Stop recalling a note",
        (_NOTE,),
        ("memory archive mem_3f6c1e",),
        "both",
    ),
    Action(
        "memory restore",
        "memory_changes.restore",
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
        "memory_in_prompt.receipt",
        "Show what memory put into the prompt, and what was recalled",
        (),
        ("memory receipt",),
    ),
    Action(
        "memory send",
        "memory_in_prompt.send_offered_note",
        "Send what is shown of another project, with the next message or tool result",
        (),
        ("memory send",),
    ),
    Action(
        "memory accept",
        "memory_changes.accept",
        "Accept a pending change of memory",
        (_PROPOSAL,),
        ("memory accept 3f6c1e",),
        "both",
    ),
    Action(
        "memory reject",
        "memory_changes.reject",
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
    *MEMORY_HISTORY_ACTIONS,
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
            FORCE,
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
            YES,
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
            FORCE,
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
                help="the scope to synchronize (user; repo if only it has a remote)",
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
            YES,
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
            YES,
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
        "memory_changes.turn_on",
        "Read and write the memory of this repository again",
        (),
        ("memory on",),
        "both",
    ),
    Action(
        "memory off",
        "memory_changes.turn_off",
        "Stop using the memory of this repository; user memory stays on",
        (),
        ("memory off",),
        "both",
    ),
)


def memory_shortcut(name: str, usage: str, *examples: str) -> Action:
    """The action `/NAME` that does the same as `/memory NAME`.

    Args:
        usage: its arguments, as shown in help.
    """
    action = next(action for action in MEMORY_ACTIONS if action.name == f"memory {name}")
    return Action(name, action.target, action.help, action.arguments, examples, "session", usage)
