"""All actions, in the order of help and completion."""

from __future__ import annotations

from itertools import chain

from ouro.commands.action import Action, amount, arg, count, text
from ouro.commands.background_action_table import BACKGROUND_ACTIONS, BACKGROUND_COMMANDS
from ouro.commands.batch_action_table import BATCH_ACTIONS
from ouro.commands.configuration_action_table import (
    CONFIG,
    CONFIG_ACTIONS,
    DOCTOR,
    PERMISSION_ACTIONS,
)
from ouro.commands.extension_action_table import EXTENSION_ACTIONS
from ouro.commands.memory_action_table import MEMORY_ACTIONS, memory_shortcut
from ouro.commands.model_action_table import MODEL_ACTIONS
from ouro.commands.server_action_table import MCP_ACTIONS
from ouro.commands.session_action_table import SESSION_ACTIONS

_MESSAGES_BACK = text("back", metavar="messages back")
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

_TOOLS = Action(
    "tools",
    "tools.list_tools",
    "List the tools of the agent: where each comes from, and its tokens in a request",
    (),
    ("tools",),
    "both",
)

SESSION_COMMANDS: tuple[Action, ...] = (
    Action(
        "help",
        "help.show_help",
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
        "add_dir.add_dir",
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
        "ouro.permission_commands.permissions",
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
        (_MESSAGES_BACK,),
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
        (text("what", metavar="last|N|code|list"),),
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
        "Write the session, or its last answer, to a Markdown, HTML or JSON file",
        (text("file"),),
        ("export session.html", "export last answer.md"),
        shown_arguments="[last] [file]",
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
        "handoff_to_agent.handoff",
        "Let Claude Code or Codex continue this session; shows the command line",
        (arg("agent", choices=("claude", "codex")),),
        ("handoff codex", "handoff claude"),
        shown_arguments="claude|codex",
        between_turns=True,
    ),
    memory_shortcut("remember", "[user|repo] text", "remember repo Run the tests with pytest -q"),
    memory_shortcut("forget", "[--everywhere] words or id", "forget staging host"),
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
        "checks.check",
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
        "init_review_diff.init",
        "Study the repository and write AGENTS.md, or improve it",
        (text("wish", metavar="what matters"),),
        ("init how to run the tests",),
        "prompt",
    ),
    Action(
        "review",
        "init_review_diff.review",
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
        "init_review_diff.diff",
        "Show what changed since a commit, in the session or in a turn; undo and comment parts",
        (text("since", metavar="messages back|session|COMMIT"),),
        ("diff", "diff 1", "diff session", "diff main"),
    ),
    Action("status", "status.status", "Show the model, mode, folder and session"),
    _USAGE,
    Action(
        "context",
        "context_window.show_context",
        "Show what fills the model's window; drop, restore, pin what is sent",
        (text("what", metavar="drop|restore|pin N"),),
        ("context drop 1 3",),
    ),
    Action(
        "btw",
        "btw.btw",
        "Ask a question outside of the conversation, without stopping the agent",
        (text("question", nargs="+"),),
        ("btw which test covers this?",),
    ),
    Action(
        "instructions",
        "instructions.instructions",
        "List the loaded files of instructions, and their sizes",
        (),
        ("instructions",),
    ),
    Action(
        "skills",
        "skills.skills",
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
        "skills.skill",
        "Draft a skill from what was done in this session",
        (text("what"),),
        ("skill save how to release",),
        "session",
        "save [what]",
        between_turns=True,
    ),
    _TOOLS,
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
        "context_window.compact",
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
        "context_window.pin",
        "Keep a message word for word through every compaction, or stop",
        (text("message", metavar="number or last"),),
        ("pin last",),
    ),
    Action("vim", "screen_settings.vim", "Edit the prompt with the keys of Vim, or no longer"),
    Action(
        "theme", "screen_settings.theme", "Choose the colours", (text("name"),), ("theme light",)
    ),
    CONFIG,
    DOCTOR,
    Action("feedback", "status.feedback", "Show what to put into a bug report", aliases=("bug",)),
    Action("exit", "conversation.exit_", "Leave ouro; the session is saved", aliases=("quit", "q")),
)
"""The slash commands."""

COMMAND_NAMES: tuple[str, ...] = tuple(chain.from_iterable(command.names for command in COMMANDS))
"""The names and aliases of all slash commands."""

SHELL_ACTIONS: tuple[Action, ...] = (
    *SESSION_ACTIONS,
    *EXTENSION_ACTIONS,
    *PERMISSION_ACTIONS,
    Action(
        "checkpoints list",
        "checkpoints.list_checkpoints",
        "List the folders whose files are kept for undo",
        (),
        ("checkpoints list --json",),
        "shell",
    ),
    Action(
        "checkpoints clean",
        "checkpoints.clean_old_checkpoints",
        "Delete old checkpoints",
        (arg("--days", type=int, default=None, metavar="N", help="else `checkpoints.keep_days`"),),
        ("checkpoints clean --days 3",),
        "shell",
    ),
    _USAGE,
    _TOOLS,
    *MODEL_ACTIONS,
    *MEMORY_ACTIONS,
    *MCP_ACTIONS,
    *BATCH_ACTIONS,
    *BACKGROUND_ACTIONS,
    CONFIG,
    *CONFIG_ACTIONS,
    DOCTOR,
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
            arg(
                "--worktree",
                default="",
                metavar="NAME",
                help="work in a git worktree of each repository, on the branch ouro/NAME",
            ),
            arg(
                "--safe",
                action="store_true",
                help="without extensions, instructions, project settings and memory",
            ),
            arg("--no-sandbox", action="store_true", help="run commands unconfined"),
            arg("--no-memory", action="store_true", help="neither read nor write long-term memory"),
            arg("--debug", action="store_true", help="log more to ~/.ouro/logs/ouro.log"),
        ),
        ("acp", "acp --mode plan", "acp --worktree idea"),
        "shell",
        has_json=False,
    ),
    Action(
        "help",
        "help_topics.help_topic",
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
