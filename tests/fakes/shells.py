"""A shell tool in a folder of its own, and the questions that its tests ask of the machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from ouro.safety import child_environment
from ouro.tools.shell import Shell, ShellArgs, ShellJobs
from ouro.tools.tool import ToolContext, ToolResult


class ShellBench:
    """A workspace, the shell in it, its jobs, and what it reported."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.root = folder / "workspace"
        self.root.mkdir(exist_ok=True)
        self.spool = folder / "outputs"
        self.jobs = ShellJobs(self.spool)
        self.shell = Shell(self.root, self.jobs, child_environment({**os.environ, **environment}))
        self.reported: list[str] = []
        self.context = ToolContext(self.reported.append, ask=self._nobody)

    async def run(self, command: str, timeout: float = 10, **arguments: object) -> ToolResult:
        """What the tool answers to one command."""
        arguments = {"command": command, "timeout_seconds": timeout, **arguments}
        return await self.shell.run(ShellArgs(**arguments), self.context)

    async def _nobody(self, question: object) -> tuple[str, ...]:
        raise AssertionError(f"the shell asked {question}")


def living(mark: str) -> list[int]:
    """The processes whose command line holds `mark`, zombies not among them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


async def until(state: Callable[[], object], seconds: float = 5) -> None:
    """Wait for a state; fails when it does not come."""
    async with asyncio.timeout(seconds):
        while not state():
            await asyncio.sleep(0.005)
