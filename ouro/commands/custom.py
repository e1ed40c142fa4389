"""The commands of a session as they are listed: those of ouro, then the custom ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ouro.commands.builtin import COMMANDS

if TYPE_CHECKING:
    from ouro.session import Session


class ListedCommand(msgspec.Struct, frozen=True):
    """A command for completion and help."""

    names: tuple[str, ...]
    """Its name, then aliases."""
    usage: str
    """`/model [name]`"""
    help: str
    takes_argument: bool
    place: str = ""
    """The file or server of a custom command."""


BUILT_IN = tuple(
    ListedCommand((command.name, *command.aliases), command.usage, command.help, bool(command.argument))
    for command in COMMANDS
)


def listed_commands(session: Session | None) -> Sequence[ListedCommand]:
    """All commands, in the order of help and completion; without a session those of ouro."""
    return (*BUILT_IN, *custom_commands(session))


def custom_commands(session: Session | None) -> Sequence[ListedCommand]:
    found = session.workbench.extensions.commands.commands() if session else ()
    return [
        ListedCommand((command.name,), command.usage, command.help, bool(command.argument), command.place)
        for command in found
    ]
