"""Workbench: what the agent and the user work with in a session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ouro.agent.project_instructions import ProjectInstructions
from ouro.agent.subagents import Subagents
from ouro.extensions import CommandRegistry, Skills
from ouro.llm import ModelSource
from ouro.mcp import McpServers
from ouro.safety import Permissions
from ouro.tools.shell import Shell, ShellJobs
from ouro.tools.todo import Plan


class SessionExtensions(msgspec.Struct, frozen=True, eq=False):
    """What users and projects added to a session, for commands and front ends."""

    commands: CommandRegistry
    servers: McpServers
    skills: Skills
    instructions: ProjectInstructions


class Workbench(msgspec.Struct, frozen=True):
    """What the agent and the user work with in a session."""

    cwd: Path
    models: ModelSource
    permissions: Permissions
    shell: Shell
    jobs: ShellJobs
    plan: Plan
    extensions: SessionExtensions
    subagents: Subagents
    is_saved: bool = True
    """The session is on disk, and can be resumed."""
    project: Path | None = None
    """The root of the repository, where its settings hold: it is trusted."""
    flags: Mapping[str, Any] = {}
    """The settings of the command line or the program, by dotted name."""
