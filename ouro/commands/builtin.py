"""All actions, in one list: the order is that of help and completion."""

from __future__ import annotations

from collections.abc import Mapping

from ouro.commands.action import Action, arg

_ENTRY = "a note's id or its start, a core line (`user/facts.md:3`) or a file (`facts`)"
_SESSION = "an id, its start, `latest`, or words of its title or messages"
_YES = arg("-y", "--yes", action="store_true", help="do not ask")
_FORCE = arg("--force", action="store_true", help="overwrite an existing file")
_NOTE = arg("note", metavar="ID", help="a note's id or its start")
_PROPOSAL = arg("proposal", nargs="?", default="", metavar="ID", help="needed if several are pending")

SESSION_COMMANDS: tuple[Action, ...] = (
    Action("help", "info.show_help", "Show the commands and keys", None, ("help memory",), "session",
           "[command]", ("h",)),
    Action("model", "model.model", "Use another model", None, ("model sonnet",), "session", "[name]", ("models",)),
    Action("think", "model.think", "Set how long the model thinks before it answers", None, ("think high",), "session",
           "[off|low|medium|high]", ("effort",)),
    Action("plan", "model.plan", "Enter or leave plan mode", None, ("plan a cache for the parser",), "session",
           "[what to plan]"),
    Action("permissions", "model.permissions", "Show the permission rules, and set the mode", None,
           ("permissions edit",), "session", "[ask|edit|plan|auto]", ("mode",)),
    Action("resume", "conversation.resume", "Continue an earlier session", None, ("resume latest",), "session",
           "[id or words]", ("sessions", "continue"), between_turns=True),
    Action("clear", "conversation.clear", "Start a new session; this one is saved", aliases=("new",),
           between_turns=True),
    Action("fork", "rewind.fork", "Continue in a copy of the session", None, ("fork another way",), "session",
           "[title]", between_turns=True),
    Action("rewind", "rewind.rewind", "Go back to before an earlier message, to edit and send it again", None,
           ("rewind 2",), "session", "[messages back]", ("back",), between_turns=True),
    Action("undo", "rewind.undo", "Go back to before your last message", between_turns=True),
    Action("redo", "rewind.redo", "Return to where the session was before you went back", between_turns=True),
    Action("rename", "conversation.rename", "Set the title; without one, a model finds one", None,
           ("rename The slow parser",), "session", "[title]"),
    Action("copy", "conversation.copy", "Copy the last answer as Markdown"),
    Action("export", "conversation.export", "Write the whole session to a Markdown, HTML or JSON file", None,
           ("export session.html",), "session", "[file]"),
    Action("memory", "", "Browse memory, or run one of its actions", None,
           ("memory search optimistic locking since:2026-01-01",), "session", "[list|search|show|edit|…]", ("mem",)),
)  # fmt: skip

MEMORY_ACTIONS: tuple[Action, ...] = (
    Action("memory files", "memory_notes.files", "List the core files and pending changes", (), ("memory files",)),
    Action("memory list", "memory_notes.list_entries", "List notes, core lines and pending changes",
           (arg("what", nargs="*", metavar="WHAT", help="a scope, a category, core, note, archived, replaced"),
            arg("-n", "--max", dest="limit", type=int, default=0, metavar="N", help="entries to show (all)")),
           ("memory list repo", "memory list coding-preferences", "memory list archived"), "both"),
    Action("memory show", "memory_notes.show", "Show a note with its versions, a core line or a core file",
           (arg("entry", nargs="?", default="", metavar="ID|FILE", help=f"{_ENTRY}; none: all core files"),),
           ("memory show mem_3f6c1e", "memory show user/preferences.md", "memory show repo/facts.md:3"), "both"),
    Action("memory search", "memory_notes.search", "Search notes, core lines and the messages of all sessions",
           (arg("words", nargs="*", metavar="WORDS"),
            arg("--since", default="", metavar="DAY", help="2026-11-21"),
            arg("--scope", choices=("user", "repo"), default="", help="notes and core lines of one scope"),
            arg("--category", default="", help="notes and core lines of one category"),
            arg("--project", default="", metavar="FOLDER", help="messages and notes of that folder"),
            arg("--session", default="", metavar="SESSION", help=_SESSION),
            arg("-n", "--max", dest="limit", type=int, default=10, metavar="N", help="hits to show (10)")),
           ('memory search "why optimistic locking" --since 2026-01-01',
            "memory search locking since:2026-01-01 scope:repo category:patterns"), "both", takes_text=True),
    Action("memory remember", "memory_notes.remember", "Save a note or core line; `-` reads standard input",
           (arg("text", nargs="+", metavar="TEXT"),
            arg("--scope", choices=("user", "repo"), default=None, help="where to save it (else found by its words)")),
           ("memory remember Run the tests with pytest -q", "memory remember --scope user I prefer tabs"), "both",
           takes_text=True),
    Action("memory forget", "memory_forget.forget", "Stop using what fits, after a preview",
           (arg("text", nargs="*", metavar="WORDS|ID"),
            arg("--pick", default="", metavar="NUMBERS", help="of what fits: 1,3"),
            arg("-y", "--yes", action="store_true", help="all that fits, without a question"),
            arg("--everywhere", action="store_true", help="plain text, out of histories, sessions and logs too"),
            arg("--secret", action="store_true", help="ask for the text without showing it, or read standard input"),
            arg("--backup", default="", metavar="FILE", help="first write all to this tar: it holds the text"),
            arg("--no-backup", action="store_true", help="write no backup")),
           ("memory forget staging password", "memory forget mem_3f6c1e --yes", "memory forget heron --pick 1,3",
            "memory forget --everywhere --secret"), "both", takes_text=True),
    Action("memory edit", "memory_notes.edit", "Edit a note or a core file in your editor",
           (arg("entry", nargs="?", default="", metavar="ID|FILE", help=f"{_ENTRY}; none: preferences"),),
           ("memory edit preferences", "memory edit repo/facts.md", "memory edit mem_3f6c1e"), "both"),
    Action("memory stats", "memory_notes.stats", "Count notes and core lines by kind, source and age", (),
           ("memory stats",), "both"),
    Action("memory confirm", "memory_notes.confirm", "Confirm that a note still holds", (_NOTE,),
           ("memory confirm mem_3f6c1e",), "both"),
    Action("memory archive", "memory_notes.archive", "Stop recalling a note", (_NOTE,),
           ("memory archive mem_3f6c1e",), "both"),
    Action("memory restore", "memory_notes.restore", "Bring a note back from the archive", (_NOTE,),
           ("memory restore mem_3f6c1e",), "both"),
    Action("memory receipt", "memory_notes.receipt", "Show what memory put into the prompt, and what was recalled", (),
           ("memory receipt",)),
    Action("memory accept", "memory_notes.accept", "Let a pending change take effect", (_PROPOSAL,),
           ("memory accept 3f6c1e",), "both"),
    Action("memory reject", "memory_notes.reject", "Drop a pending change; the git history keeps it", (_PROPOSAL,),
           ("memory reject 3f6c1e",), "both"),
    Action("memory log", "memory_history.log", "List the commits of memory, of one file or of one note",
           (arg("file", nargs="?", default="", metavar="FILE|NOTE"),
            arg("-n", "--max", dest="limit", type=int, default=30, metavar="N", help="commits to show (30)")),
           ("memory log", "memory log facts"), "both"),
    Action("memory diff", "memory_history.diff",
           "Show what a commit changed, what differs between two, or what changed since a date",
           (arg("commits", nargs="*", metavar="COMMIT", help="none: the last one; in a session all since its start"),
            arg("--since", default="", metavar="DATE", help="2026-11-21, yesterday, `3 days ago`")),
           ("memory diff", "memory diff 3f2a91c", "memory diff since yesterday"), "both"),
    Action("memory blame", "memory_history.blame", "Show the commit, session and turn of each line of a file",
           (arg("file", metavar="FILE"),
            arg("number", nargs="?", type=int, default=0, metavar="LINE", help="show the turn that taught this line"),
            arg("--open", dest="number", type=int, metavar="LINE", help="the same")),
           ("memory blame repo/facts.md", "memory blame facts 3"), "both"),
    Action("memory why", "memory_history.why", "Show what memory put into the prompt of a turn",
           (arg("turn", nargs="?", type=int, default=0, metavar="TURN", help="its number (the last)"),
            arg("--session", default="", metavar="SESSION", help=_SESSION)),
           ("memory why 3", "memory why 3 --session latest"), "both"),
    Action("memory evidence", "memory_history.evidence", "Show the turn that taught a note or made a commit",
           (arg("what", metavar="NOTE|COMMIT"),), ("memory evidence mem_3f6c1e0b",), "both"),
    Action("memory undo", "memory_history.undo", "Undo a commit with all of its turn, or one hunk; later changes stay",
           (arg("words", nargs="*", metavar="COMMIT", help="the last one; `hunk 2` behind it: only that hunk"),
            arg("--hunk", type=int, default=0, metavar="N", help="only that hunk, as `diff` numbers them"), _YES),
           ("memory undo 3f2a91c", "memory undo 3f2a91c hunk 2"), "both"),
    Action("memory as-of", "memory_history.as_of", "Show memory as it was on a date",
           (arg("when", nargs="+", metavar="DATE [FILE|NOTE]", help="2026-11-21, yesterday, `3 days ago`"),),
           ("memory as-of 2026-11-21 facts", "memory as-of 3 days ago"), "both"),
    Action("memory export", "memory_transfer.export", "Write all of memory to one Markdown or JSON file",
           (arg("file", nargs="?", default="", metavar="FILE", help="else standard output, or ouro-memory.md"), _FORCE),
           ("memory export memory.md", "memory export memory.json"), "both"),
    Action("memory import", "memory_transfer.import_",
           "Import CLAUDE.md, AGENTS.md, GEMINI.md, .cursorrules, memory folders of other agents, or an export",
           (arg("paths", nargs="+", metavar="PATH", help="files or folders; of a project its instructions"),
            arg("--scope", choices=("user", "repo"), default=None, help="import all to this scope"),
            arg("--dry-run", action="store_true", help="only show what would be imported"), _YES),
           ("memory import CLAUDE.md --dry-run", "memory import ~/.codex/memories --scope user --yes"), "both"),
    Action("memory graph", "memory_transfer.graph", "Write notes and the names in them as one page for a browser",
           (arg("--html", action="store_true", help="a page (the default)"),
            arg("-o", "--output", default="memory.html", metavar="FILE", help="memory.html"), _FORCE),
           ("memory graph -o memory.html",), "shell"),
    Action("memory sync", "memory_transfer.sync", "Fetch, merge and push memory over a git remote",
           (arg("words", nargs="*", metavar="[user|repo] [URL]", help="saved for the next time"),
            arg("--remote", default="", metavar="URL", help="the same; else `memory.remote`"),
            arg("--scope", choices=("user", "repo"), default=None, help="whose memory (user)")),
           ("memory sync", "memory sync git@example.org:me/memory.git", "memory sync repo /mnt/share/app.git"), "both"),
    Action("memory consolidate", "memory_maintenance.consolidate",
           "Have a model merge notes that say the same, and compress the core",
           (arg("what", nargs="?", default="", metavar="WHAT", help="notes, core, user or repo; none: all"),
            arg("--core", action="store_true", help="only the core files"),
            arg("--notes", action="store_true", help="only the notes"), _YES),
           ("memory consolidate", "memory consolidate notes"), "both"),
    Action("memory crystallize", "memory_maintenance.crystallize",
           "Have a model read old sessions of this folder for what is worth remembering",
           (arg("age", nargs="?", default="", metavar="DAYS|all", help="older than that (7)"),
            arg("--days", type=int, default=7, metavar="N", help="the same"),
            arg("--all", dest="every", action="store_true", help="of any age"), _YES),
           ("memory crystallize", "memory crystallize 30", "memory crystallize all --yes"), "both"),
    Action("memory lessons", "memory_notes.lessons", "List corrections and patterns of this project, newest first", (),
           ("memory lessons",), "both"),
    Action("memory doctor", "memory_maintenance.check", "Look for problems in memory; exit code 1 if there is one", (),
           ("memory doctor",), "shell"),
    Action("memory reindex", "memory_maintenance.reindex", "Rebuild the index from the files", (),
           ("memory reindex",), "shell"),
    Action("memory index", "memory_maintenance.index_state", "Show the size of the index and what is in it", (),
           ("memory index",), "shell"),
    Action("memory test", "memory_maintenance.measure", "Measure how well the search finds what is known to be there",
           (arg("--docs", default="", metavar="FILE", help="JSON lines: id, text, speaker, date, session, turn"),
            arg("--queries", default="", metavar="FILE", help="JSON lines: qid, query"),
            arg("--k", type=int, default=25, metavar="N", help="ids to print for each question (25)"),
            arg("--work", default="", metavar="DIR", help="an empty folder for the index of this test"),
            arg("--words", action="store_true", help="without vectors"),
            arg("--at-least", type=float, default=0.0, metavar="SHARE", help="exit 1 if Recall@10 is lower")),
           ("memory test --at-least 0.8", "memory test --docs docs.jsonl --queries queries.jsonl"), "shell"),
    Action("memory on", "memory_notes.turn_on", "Read and write the memory of this repository again", (),
           ("memory on",), "both"),
    Action("memory off", "memory_notes.turn_off", "Do not read or write the memory of this repository; yours stays on",
           (), ("memory off",), "both"),
)  # fmt: skip

MEMORY_WORDS: Mapping[str, Action] = {
    each.name.removeprefix("memory "): each for each in MEMORY_ACTIONS if each.place != "shell"
}
"""What may follow `/memory`."""


def _shortcut(name: str, usage: str, *examples: str) -> Action:
    """`/remember` for `/memory remember`."""
    action = MEMORY_WORDS[name]
    return Action(name, action.target, action.help, action.arguments, examples, "session", usage, takes_text=True)


COMMANDS: tuple[Action, ...] = (
    *SESSION_COMMANDS,
    _shortcut("remember", "[user|repo] text", "remember repo Run the tests with pytest -q"),
    _shortcut("forget", "[--everywhere] words or id", "forget staging host"),
    Action("todos", "conversation.todos", "Show the agent's plan", aliases=("todo",)),
    Action("tasks", "conversation.tasks", "List background jobs, or end one", None, ("tasks kill 3",), "session",
           "[kill id]", ("ps", "jobs")),
    Action("init", "work.init", "Study the repository and write AGENTS.md, or improve it", None,
           ("init how to run the tests",), "session", "[what matters]", between_turns=True),
    Action("review", "work.review", "Review the uncommitted changes, or what you name", None,
           ("review the last commit",), "session", "[what to review]", between_turns=True),
    Action("diff", "work.diff", "Show what differs from the last commit"),
    Action("status", "info.status", "Show the model, mode, folder and session"),
    Action("usage", "usage.usage", "Show tokens and cost by model: this session, today, this month, all",
           aliases=("cost", "stats")),
    Action("context", "window.context", "Show what fills the model's window, and what a compaction would do"),
    Action("compact", "window.compact", "Summarize the session to make room; name what must be kept", None,
           ("compact the API of the parser",), "session", "[what to keep]", ("compress",), between_turns=True),
    Action("pin", "window.pin", "Keep a message word for word through every compaction, or stop", None, ("pin last",),
           "session", "[number or last]"),
    Action("theme", "info.theme", "Choose the colours", None, ("theme light",), "session", "[name]"),
    Action("config", "info.config", "Show each setting, its value and its source", aliases=("settings",)),
    Action("doctor", "info.doctor", "Check the installation"),
    Action("feedback", "info.feedback", "Show what to put into a bug report", aliases=("bug",)),
    Action("exit", "conversation.exit_", "Leave ouro; the session is saved", aliases=("quit", "q")),
)  # fmt: skip
"""The slash commands."""

ACTIONS: tuple[Action, ...] = MEMORY_ACTIONS
"""All that `ouro WORD` runs."""


def find_command(word: str) -> Action | None:
    """The slash command of that name or alias."""
    return next((command for command in COMMANDS if word == command.name or word in command.aliases), None)
