"""SessionExtensions: what users and projects added to a session, for commands and front ends."""

from __future__ import annotations

import msgspec

from ouro.extensions import CommandRegistry


class SessionExtensions(msgspec.Struct, frozen=True, eq=False):
    commands: CommandRegistry
    problems: tuple[str, ...] = ()
    """A line for each extension file that is not used."""
