"""A shell tool in its own folder, decisions about shell lines, and functions that look at
processes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fakes.waiting import PATIENCE
from ouro.safety import (
    Confinement,
    Decision,
    Effect,
    Mode,
    Permissions,
    Workspace,
    child_environment,
)
from ouro.settings import SandboxSettings
from ouro.tools.shell import Shell, ShellArgs
from ouro.tools.shell_jobs import ShellJobs
from ouro.tools.tool import ToolContext, ToolResult

UNCONFINED = Confinement(Path("/"), Path("/"), SandboxSettings(enabled=False))


class ShellBench:
    """A workspace with the shell tool, its jobs and its reports."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.root = folder / "workspace"
        self.root.mkdir(exist_ok=True)
        self.spool = folder / "outputs"
        self.jobs = ShellJobs(self.spool)
        self.shell = Shell(
            self.root, self.jobs, child_environment({**os.environ, **environment}), UNCONFINED
        )
        self.reported: list[str] = []
        self.context = ToolContext(self.reported.append, ask=self._nobody)

    async def run(self, command: str, timeout: float = PATIENCE, **arguments: object) -> ToolResult:
        """Run one command with the tool."""
        arguments = {"command": command, "timeout_seconds": timeout, **arguments}
        return await self.shell.run(ShellArgs(**arguments), self.context)

    async def _nobody(self, question: object) -> tuple[str, ...]:
        raise AssertionError(f"the shell asked {question}")


def decision(root: Path, line: str, mode: Mode = "ask", **rules: Any) -> Decision:
    """What permissions decide about a shell line."""
    return Permissions(Workspace(root), mode, **rules).decide("shell", Effect.RUN, [line])


def living(mark: str) -> list[int]:
    """The processes whose command line contains `mark`, without zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
