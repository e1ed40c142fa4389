"""Slash commands by name: ouro's own and custom ones, for dispatch, help and completion."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ouro.commands.action import Action
from ouro.commands.all_actions import COMMANDS
from ouro.commands.configuration_action_table import CONFIG_ACTIONS, PERMISSION_ACTIONS
from ouro.commands.memory_action_table import MEMORY_ACTIONS
from ouro.commands.server_action_table import LSP_ACTIONS, MCP_ACTIONS
from ouro.display import Choice

if TYPE_CHECKING:
    from ouro.extensions import CustomCommand
    from ouro.session import Session


def find_command(word: str) -> Action | None:
    return next((command for command in COMMANDS if word in command.names), None)


def actions_of(command: Action) -> dict[str, Action]:
    """The actions of a slash command, by their word: `show` for `/memory show`."""
    of_memory_and_servers = (*MEMORY_ACTIONS, *MCP_ACTIONS, *LSP_ACTIONS)
    prefix = f"{command.name} "
    actions: dict[str, Action] = {}
    for action in (*of_memory_and_servers, *PERMISSION_ACTIONS, *CONFIG_ACTIONS):
        if action.place == "shell":
            continue
        for name in action.names:
            if name.startswith(prefix):
                actions[name.removeprefix(prefix)] = action
    return actions


def listed_commands(session: Session | None) -> Sequence[Action | CustomCommand]:
    """The slash commands in the order of help and completion; without a session only ouro's own."""
    return (*COMMANDS, *custom_commands(session))


def matching_commands(session: Session | None, typed: str) -> list[Choice]:
    """Choices of commands for a typed name: first the one of that name or alias, then those that
    begin with it, then those that contain its letters in order. The value of one with arguments ends
    in a space, so that they can be typed after it.
    """
    letters_in_order = re.compile(".*".join(map(re.escape, typed)), re.IGNORECASE)

    def rank(name: str) -> tuple[bool, bool]:  # False is sorted first
        return name.lower() != typed.lower(), not name.lower().startswith(typed.lower())

    best_names = [(min(command.names, key=rank), command) for command in listed_commands(session)]
    choices = []
    for name, command in sorted(best_names, key=lambda named: rank(named[0])):
        if letters_in_order.search(name):
            value = f"/{name} " if command.argument else f"/{name}"
            choices.append(Choice(value, f"/{name} {command.argument}".rstrip(), command.help))
    return choices


def custom_commands(session: Session | None) -> Sequence[CustomCommand]:
    return session.extensions.commands.commands() if session else ()
