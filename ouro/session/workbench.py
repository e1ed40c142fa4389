"""Workbench: what the agent and the user work with in a session."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ouro.agent.subagents import Subagents
from ouro.llm import ModelSource
from ouro.safety import Permissions
from ouro.session.extensions import SessionExtensions
from ouro.tools.shell import Shell, ShellJobs
from ouro.tools.todo import Plan


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
