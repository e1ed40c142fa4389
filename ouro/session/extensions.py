"""SessionExtensions: what users and projects added to a session, for commands and front ends."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ouro.agent.project_instructions import ProjectInstructions
from ouro.extensions import CommandRegistry, Skills
from ouro.mcp import McpServers


class SessionExtensions(msgspec.Struct, frozen=True, eq=False):
    commands: CommandRegistry
    servers: McpServers
    skills: Skills
    instructions: ProjectInstructions
    problems: Sequence[str] = ()
    """A line for each extension file that is not used."""
