"""Which command a typed line means, and running it."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from ouro.commands.builtin import COMMANDS, find_command
from ouro.commands.command import Command, FrontEnd
from ouro.errors import OuroError, UsageError

_WORD = re.compile(r"/(\w[\w-]*)(?:\s+(.*))?\Z", re.DOTALL)
_REMEMBER = re.compile(r"#(?![#!\d])\s*(\S[^\n]*)\s*\Z")
"""One line behind one `#`. `#12 is broken`, `## A heading` and what goes on in further lines are messages."""


async def dispatch(front_end: FrontEnd, text: str) -> bool:
    """Run the command that `text` is; False when it is none and should be sent as a message.

    A path (`/usr/bin`, `/tmp`) is none. An unknown command is told, with the nearest ones. `#text` is `/remember text`.
    """
    if kept := _REMEMBER.match(text):
        text = f"/remember {kept[1]}"
    match = _WORD.match(text)
    if match is None:
        return False
    word, argument = match[1].lower(), (match[2] or "").strip()
    command = find_command(word)
    if command is None and Path(f"/{match[1]}").exists():
        return False
    try:
        if command is None:
            raise UsageError(f"There is no command /{word}. {_nearest(word)}")
        await _run(front_end, command, argument)
    except OuroError as error:
        front_end.say(str(error), "error")
    return True


async def _run(front_end: FrontEnd, command: Command, argument: str) -> None:
    if command.between_turns and front_end.session.running:
        raise UsageError(f"/{command.name} has to wait: the agent is at work. Interrupt it, or wait until it is done.")
    if argument and not command.argument:
        raise UsageError(f"/{command.name} takes no argument.")
    await command.run(front_end, argument)


def _nearest(word: str) -> str:
    names = [name for command in COMMANDS for name in (command.name, *command.aliases)]
    starting = [name for name in names if name.startswith(word)]
    near = starting[:3] or difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(f'/{name}' for name in near)}?" if near else "/help lists them all."
