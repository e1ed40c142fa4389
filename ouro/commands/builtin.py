"""The built-in commands, in one list: the order is that of help and completion."""

from __future__ import annotations

from ouro.commands import conversation, info, memory, models, past, remember, usage, window, work
from ouro.commands.command import Command, FrontEnd


async def help_(front_end: FrontEnd, argument: str) -> None:
    """Show the commands and keys."""
    info.show_help(front_end, COMMANDS, argument)


COMMANDS: tuple[Command, ...] = (
    Command("help", help_, "[command]", ("h",), example="/help memory"),
    Command("model", models.model, "[name]", ("models",), example="/model sonnet"),
    Command("think", models.think, "[off|low|medium|high]", ("effort",), example="/think high"),
    Command("plan", models.plan, "[what to plan]", example="/plan a cache for the parser"),
    Command("permissions", models.permissions, "[ask|edit|plan|auto]", ("mode",), example="/permissions edit"),
    Command(
        "resume",
        conversation.resume,
        "[id or words]",
        ("sessions", "continue"),
        between_turns=True,
        example="/resume latest",
    ),
    Command("clear", conversation.clear, "", ("new",), between_turns=True),
    Command("fork", past.fork, "[title]", between_turns=True, example="/fork another way"),
    Command("rewind", past.rewind, "[messages back]", ("back",), between_turns=True, example="/rewind 2"),
    Command("undo", past.undo, between_turns=True),
    Command("redo", past.redo, between_turns=True),
    Command("rename", conversation.rename, "[title]", example="/rename The slow parser"),
    Command("copy", conversation.copy),
    Command("export", conversation.export, "[file]", example="/export session.html"),
    Command(
        "memory",
        memory.memory,
        "[list|search|show|edit|…]",
        ("mem",),
        example="/memory search optimistic locking since:2026-01-01",
        words=memory.WORDS,
    ),
    Command("remember", remember.remember, "[user|repo] text", example="/remember repo Run the tests with pytest -q"),
    Command("forget", remember.forget, "[--everywhere] words or id", example="/forget staging host"),
    Command("todos", conversation.todos, "", ("todo",)),
    Command("tasks", conversation.tasks, "[kill id]", ("ps", "jobs"), example="/tasks kill 3"),
    Command("init", work.init, "[what matters]", between_turns=True, example="/init how to run the tests"),
    Command("review", work.review, "[what to review]", between_turns=True, example="/review the last commit"),
    Command("diff", work.diff),
    Command("status", info.status),
    Command("usage", usage.usage, "", ("cost", "stats")),
    Command("context", window.context),
    Command(
        "compact",
        window.compact,
        "[what to keep]",
        ("compress",),
        between_turns=True,
        example="/compact the API of the parser",
    ),
    Command("pin", window.pin, "[number or last]", example="/pin last"),
    Command("theme", info.theme, "[name]", example="/theme light"),
    Command("config", info.config, "", ("settings",)),
    Command("doctor", info.doctor),
    Command("feedback", info.feedback, "", ("bug",)),
    Command("exit", conversation.exit_, "", ("quit", "q")),
)


def find_command(word: str) -> Command | None:
    """The command of that name or alias."""
    return next((each for each in COMMANDS if word == each.name or word in each.aliases), None)
