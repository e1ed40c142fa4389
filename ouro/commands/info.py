"""Commands that show state: help, status, theme, feedback."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ouro import __version__
from ouro.commands.builtin import COMMANDS, actions_of, custom_commands, find_command
from ouro.commands.front_end import FrontEnd, KeySections
from ouro.commands.render import block, code, escape, facts
from ouro.errors import UsageError
from ouro.utils.runtime import get_home, get_log_path

if TYPE_CHECKING:
    from ouro.session import Session

_SECTIONS = {
    "Session": "resume clear fork rewind undo redo rename compact context pin copy export exit",
    "Work": "model think plan permissions init review diff todos tasks btw mcp skills skill agents hooks check",
    "Memory": "memory remember forget",
}
_OTHER = "ouro"
TRIGGERS = (
    ("/", "a command"),
    ("@", "a file of the project"),
    ("!", "a shell line; the agent sees its output (`!!`: it does not)"),
    ("#", "remember this line"),
)


def help_text(session: Session | None, keys: KeySections) -> str:
    """All commands by subject, what may begin a message, and the keys, as Markdown."""
    section_of = {name: title for title, names in _SECTIONS.items() for name in names.split()}
    sections: dict[str, list[tuple[str, str]]] = {title: [] for title in (*_SECTIONS, _OTHER)}
    for command in COMMANDS:
        sections[section_of.get(command.name, _OTHER)].append((f"/{command.name}", escape(command.help)))
    sections["Your commands"] = [(f"/{command.name}", escape(command.help)) for command in custom_commands(session)]
    parts = [_table(title, rows) for title, rows in sections.items() if rows]
    parts.append(f"{code('/help memory')} shows more of one, with an example.")
    parts += [_table(title, rows) for title, rows in (("At the start of a message", TRIGGERS), *keys) if rows]
    return "\n\n".join(parts)


def _table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    cells = ((code(name).replace("|", r"\|"), what) for name, what in rows)
    return "\n".join((f"| {title} | |", "|---|---|", *(f"| {name} | {what} |" for name, what in cells)))


async def show_help(front_end: FrontEnd, argument: str) -> None:
    word = argument.removeprefix("/")
    if not argument:
        front_end.show(help_text(front_end.session, front_end.keys))
    elif command := find_command(word):
        example = f"\n\nFor example: {code(f'/{command.examples[0]}')}" if command.examples else ""
        aliases = f" Also: {', '.join(code(f'/{name}') for name in command.aliases)}" if command.aliases else ""
        rows = {f"/{action.name}": escape(action.help) for action in actions_of(command).values()}
        actions = f"\n\n{_table('Actions', rows.items())}" if rows else ""
        front_end.show(f"{code(command.usage)} {command.help}.{aliases}{example}{actions}")
    elif custom := next((custom for custom in custom_commands(front_end.session) if word == custom.name), None):
        front_end.show(f"{code(custom.usage)} {escape(custom.help)}\n\nFrom {code(custom.place)}")
    else:
        raise UsageError(f"There is no command /{word}. /help lists them all.")


async def status(front_end: FrontEnd) -> None:
    session, now = front_end.session, front_end.session.status()
    percent = round(100 * now.context / max(1, now.window))
    front_end.show(
        facts(
            ("Session", f"{code(session.id)} {escape(session.title)}".rstrip()),
            ("Folder", code(str(session.cwd))),
            ("Branch", code(now.branch) if now.branch else ""),
            ("Model", code(now.model)),
            ("Thinking", now.effort),
            ("Mode", now.mode),
            ("Context", f"{now.context:,} of {now.window:,} tokens ({percent} %)"),
            ("Last recall", session.memory.last_recalled),
            ("ouro", f"{__version__}, files in {code(str(get_home()))}"),
        )
    )


async def theme(front_end: FrontEnd, argument: str) -> None:
    await front_end.use_theme(argument)


async def feedback(front_end: FrontEnd) -> None:
    known = (
        f"ouro {__version__}, Python {platform.python_version()}, {platform.system()} {platform.release()}",
        f"terminal {os.environ.get('TERM_PROGRAM') or os.environ.get('TERM', 'unknown')}",
        f"model {front_end.session.status().model}",
    )
    front_end.show(
        "ouro sends nothing automatically. A report helps most with what you did, what you expected, what came, "
        f"these lines, and the end of {code(str(get_log_path()))}:\n\n{block(chr(10).join(known))}"
    )
