"""Commands that show state (help, status, feedback), and those of the screen: theme, vim."""

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
from ouro.commands.help_topics import page_files, page_text, setting_text
from ouro.commands.render import Markdown, block, code, escape, facts
from ouro.errors import UsageError
from ouro.utils.ouro_paths import get_home, get_log_path

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext
    from ouro.session import Session

_COMMANDS_OF_SECTION = {
    "Session": "resume clear fork rewind undo redo rename compact context pin copy export exit",
    "Work": (
        "model think style plan permissions add-dir init review diff todos tasks btw mcp skills skill agents"
        " hooks check"
    ),
    "Memory": "memory remember forget",
}
_OTHER_SECTION = "ouro"
HELP_TITLE = "Help · /help NAME shows details and an example"
MESSAGE_PREFIXES = (
    ("/", "a command"),
    ("@", "a file of the project"),
    ("!", "a shell line; the agent sees its output (`!!`: it does not)"),
    ("#", "remember this line"),
)


def help_text(session: Session | None, keys: KeySections) -> str:
    """All commands by subject, what may begin a message, and the keys, as Markdown. Without a session
    (None) it has only ouro's own commands.
    """
    section_of_command: dict[str, str] = {}
    for title, names in _COMMANDS_OF_SECTION.items():
        section_of_command |= dict.fromkeys(names.split(), title)
    sections: dict[str, list[tuple[str, str]]] = {
        title: [] for title in (*_COMMANDS_OF_SECTION, _OTHER_SECTION)
    }
    for command in COMMANDS:
        title = section_of_command.get(command.name, _OTHER_SECTION)
        sections[title].append((f"/{command.name}", escape(command.help)))
    sections["Your commands"] = [
        (f"/{command.name}", escape(command.help)) for command in custom_commands(session)
    ]
    blocks = [_table(title, rows) for title, rows in sections.items() if rows]
    blocks.append(f"{code('/help memory')} shows more of one, with an example.")
    prefixes_and_keys = (("At the start of a message", MESSAGE_PREFIXES), *keys)
    blocks += [_table(title, rows) for title, rows in prefixes_and_keys if rows]
    return "\n\n".join(blocks)


def _table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A Markdown table of names, as code, and their explanations; the title is its head."""
    lines = [f"| {title} | |", "|---|---|"]
    for name, explanation in rows:
        cell = code(name).replace("|", r"\|")  # a bar would end the cell
        lines.append(f"| {cell} | {explanation} |")
    return "\n".join(lines)


async def show_help(context: SessionContext, topic: str) -> Answer | None:
    """Show all commands and keys if the topic is empty; else the command, the page or the setting of
    that name. A topic that is a command is not looked for among the pages and settings. None if a
    page was shown, which a screen shows on its own.
    """
    session, word = context.session, topic.removeprefix("/")
    if not topic:
        context.front_end.show(help_text(session, context.front_end.keys), HELP_TITLE)
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
    """The help of a built-in or custom command, in Markdown. Raises UsageError for another word."""
    command = find_command(word)
    if command is None:
        custom = next((custom for custom in custom_commands(session) if word == custom.name), None)
        if custom is None:
            raise UsageError(f"There is no command, page or setting {word}. /help lists them all.")
        return f"{code(custom.usage)} {escape(custom.help)}\n\nFrom {code(custom.place)}"
    text = f"{code(command.usage)} {command.help}."
    if command.aliases:
        text += f" Also: {', '.join(code(f'/{name}') for name in command.aliases)}"
    if command.examples:
        text += f"\n\nFor example: {code(f'/{command.examples[0]}')}"
    rows = {f"/{action.name}": escape(action.help) for action in actions_of(command).values()}
    if rows:
        text += f"\n\n{_table('Actions', rows.items())}"
    if command.name in page_files():
        text += f"\n\n{code(f'/help docs/{command.name}.md')}: the page."
    return text


async def status(context: SessionContext) -> Answer:
    """Show the session, its folder, model, mode and context."""
    session, session_status = context.session, context.session.status()
    percent = round(100 * session_status.context / max(1, session_status.window))
    table_text = facts(
        ("Session", f"{code(session.id)} {escape(session.title)}".rstrip()),
        ("Folder", code(str(session.cwd))),
        ("Branch", code(session_status.branch) if session_status.branch else ""),
        ("Model", code(session_status.model)),
        ("Thinking", session_status.effort),
        ("Mode", session_status.mode),
        ("Sandbox", session_status.sandbox),
        (
            "Context",
            f"{session_status.context:,} of {session_status.window:,} tokens ({percent} %)",
        ),
        ("Last recall", session.memory.last_recalled),
        ("ouro", f"{__version__}, files in {code(str(get_home()))}"),
    )
    return Answer(session_status, [Markdown(table_text)])


async def theme(context: SessionContext, name: str) -> None:
    await context.front_end.use_theme(name)


async def vim(context: SessionContext) -> None:
    """Change between the keys of Vim and of Emacs in the prompt, and show which they are now."""
    editing = context.front_end.toggle_vim()
    context.front_end.say(
        f"The prompt has the keys of {editing.capitalize()}. `tui.editing: {editing}` in the"
        " settings keeps that."
    )


async def feedback(context: SessionContext) -> Answer:
    """Show what a bug report needs. Nothing is sent."""
    fact_lines = (
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
        f" {code(str(get_log_path()))}:\n\n{block(chr(10).join(fact_lines))}"
    )
    return Answer(fact_lines, [Markdown(text)])
