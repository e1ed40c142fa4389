"""Slash commands as a user types them; errors are raised."""

from __future__ import annotations

from ouro.commands.builtin import find_command
from ouro.commands.slash import run_command


async def slash(front_end, name, argument=""):
    """Run `/NAME ARGUMENT`."""
    await run_command(front_end, find_command(name), argument)


async def memory(front_end, argument=""):
    """Run `/memory ARGUMENT`."""
    await slash(front_end, "memory", argument)
