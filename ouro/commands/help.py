"""/help: the commands, the keys, and the pages and settings by name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ouro.commands.action import Answer
from ouro.commands.all_actions import COMMANDS
from ouro.commands.command_lookup import actions_of, custom_commands, find_command
from ouro.commands.front_end import KeySections
from ouro.commands.help_topics import page_files, page_text, setting_text
from ouro.commands.render import Markdown, code, escape
from ouro.errors import UsageError

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


def help_text(session: Session | None, keys: KeySections, *, keys_first: bool = False) -> str:
    """All commands by subject, what may begin a message, and the keys, as Markdown. Without a session
    (None) it has only ouro's own commands. `keys_first`: the commands are at the end.
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
    command_blocks = [_table(title, rows) for title, rows in sections.items() if rows]
    command_blocks.append(f"{code('/help memory')} shows more of one, with an example.")
    prefixes_and_keys = (("At the start of a message", MESSAGE_PREFIXES), *keys)
    key_blocks = [_table(title, rows) for title, rows in prefixes_and_keys if rows]
    if keys_first:
        return "\n\n".join([*key_blocks, *command_blocks])
    return "\n\n".join([*command_blocks, *key_blocks])


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
