"""Commands that show state: help, status, theme, feedback."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ouro import __version__
from ouro.commands.action import Answer
from ouro.commands.builtin import COMMANDS, actions_of, custom_commands, find_command
from ouro.commands.front_end import KeySections
from ouro.commands.pages import page_files, page_text, setting_text
from ouro.commands.render import Markdown, block, code, escape, facts
from ouro.errors import UsageError
from ouro.utils.runtime import get_home, get_log_path

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext
    from ouro.session import Session

_SECTIONS = {
    "Session": "resume clear fork rewind undo redo rename compact context pin copy export exit",
    "Work": (
        "model think style plan permissions add-dir init review diff todos tasks btw mcp skills skill agents"
        " hooks check"
    ),
    "Memory": "memory remember forget",
}
_OTHER = "ouro"
ALL_HELP = "Help · /help NAME shows details and an example"
TRIGGERS = (
    ("/", "a command"),
    ("@", "a file of the project"),
    ("!", "a shell line; the agent sees its output (`!!`: it does not)"),
    ("#", "remember this line"),
)


def help_text(session: Session | None, keys: KeySections) -> str:
    """All commands by subject, what may begin a message, and the keys, as Markdown."""
    section_of: dict[str, str] = {}
    for title, names in _SECTIONS.items():
        section_of |= dict.fromkeys(names.split(), title)
    sections: dict[str, list[tuple[str, str]]] = {title: [] for title in (*_SECTIONS, _OTHER)}
    for command in COMMANDS:
        sections[section_of.get(command.name, _OTHER)].append(
            (f"/{command.name}", escape(command.help))
        )
    sections["Your commands"] = [
        (f"/{command.name}", escape(command.help)) for command in custom_commands(session)
    ]
    parts = [_table(title, rows) for title, rows in sections.items() if rows]
    parts.append(f"{code('/help memory')} shows more of one, with an example.")
    parts += [
        _table(title, rows)
        for title, rows in (("At the start of a message", TRIGGERS), *keys)
        if rows
    ]
    return "\n\n".join(parts)


def _table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    cells = ((code(name).replace("|", r"\|"), what) for name, what in rows)
    return "\n".join(
        (f"| {title} | |", "|---|---|", *(f"| {name} | {what} |" for name, what in cells))
    )


async def show_help(context: SessionContext, topic: str) -> Answer | None:
    """The commands and keys; or a command, a page or a setting."""
    session, word = context.session, topic.removeprefix("/")
    if not topic:
        context.front_end.show(help_text(session, context.front_end.keys), ALL_HELP)
        return None
    is_command = find_command(word) is not None
    page = "" if is_command else await asyncio.to_thread(page_text, topic)
    if page:
        context.front_end.show(page, topic)
        return None
    text = "" if is_command else await asyncio.to_thread(setting_text, topic)
    text = text or _command_text(session, word)
    return Answer(text, [Markdown(text)])


def _command_text(session: Session, word: str) -> str:
    """The help of a built-in or custom command. Raises UsageError for another word."""
    if command := find_command(word):
        example = f"\n\nFor example: {code(f'/{command.examples[0]}')}" if command.examples else ""
        aliases = (
            f" Also: {', '.join(code(f'/{name}') for name in command.aliases)}"
            if command.aliases
            else ""
        )
        rows = {f"/{action.name}": escape(action.help) for action in actions_of(command).values()}
        actions = f"\n\n{_table('Actions', rows.items())}" if rows else ""
        has_page = command.name in page_files()
        page = f"\n\n{code(f'/help docs/{command.name}.md')}: the page." if has_page else ""
        return f"{code(command.usage)} {command.help}.{aliases}{example}{actions}{page}"
    custom = next((custom for custom in custom_commands(session) if word == custom.name), None)
    if custom is None:
        raise UsageError(f"There is no command, page or setting {word}. /help lists them all.")
    return f"{code(custom.usage)} {escape(custom.help)}\n\nFrom {code(custom.place)}"


async def status(context: SessionContext) -> Answer:
    session, now = context.session, context.session.status()
    percent = round(100 * now.context / max(1, now.window))
    shown = facts(
        ("Session", f"{code(session.id)} {escape(session.title)}".rstrip()),
        ("Folder", code(str(session.cwd))),
        ("Branch", code(now.branch) if now.branch else ""),
        ("Model", code(now.model)),
        ("Thinking", now.effort),
        ("Mode", now.mode),
        ("Sandbox", now.sandbox),
        ("Context", f"{now.context:,} of {now.window:,} tokens ({percent} %)"),
        ("Last recall", session.memory.last_recalled),
        ("ouro", f"{__version__}, files in {code(str(get_home()))}"),
    )
    return Answer(now, [Markdown(shown)])


async def theme(context: SessionContext, name: str) -> None:
    await context.front_end.use_theme(name)


async def vim(context: SessionContext) -> None:
    editing = context.front_end.toggle_vim()
    context.front_end.say(
        f"The prompt has the keys of {editing.capitalize()}. `tui.editing: {editing}` in the"
        " settings keeps that."
    )


async def feedback(context: SessionContext) -> Answer:
    known = (
        (
            f"ouro {__version__}, Python {platform.python_version()}, {platform.system()}"
            f" {platform.release()}"
        ),
        f"terminal {os.environ.get('TERM_PROGRAM') or os.environ.get('TERM', 'unknown')}",
        f"model {context.session.status().model}",
    )
    text = (
        "ouro sends nothing automatically. A report helps most with what you did, what you"
        " expected, what came, these lines, and the end of"
        f" {code(str(get_log_path()))}:\n\n{block(chr(10).join(known))}"
    )
    return Answer(known, [Markdown(text)])
