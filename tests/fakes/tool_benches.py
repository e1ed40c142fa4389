"""What tools need: a context that records reports and answers questions, a shell in a folder, a project
with a scripted language server, a secret mask, and functions that look at processes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

from fakes.agents import say
from fakes.waiting import PATIENCE
from ouro import lsp
from ouro.assemble import Options, opener
from ouro.display import Question
from ouro.events import PermissionAsked, Permit, ToolFinished
from ouro.llm import ScriptedModel
from ouro.lsp.configuration import LanguageServerSpec
from ouro.messages import ToolCall, ToolReply
from ouro.safety import (
    Confinement,
    Decision,
    Effect,
    Mode,
    Permissions,
    SecretMask,
    Workspace,
    child_environment,
)
from ouro.session import OpenRequest, Session
from ouro.settings import SandboxSettings
from ouro.tools.apply_patch import ApplyPatch
from ouro.tools.edit import Edit, Write
from ouro.tools.files_seen import FilesSeen
from ouro.tools.read import Read
from ouro.tools.shell import Shell, ShellArgs
from ouro.tools.shell_jobs import ShellJobs
from ouro.tools.tool import AnyTool, ToolContext, ToolResult, parse_arguments
from ouro.utils.runtime import get_home


class Surroundings:
    """A tool's context that records reports and questions."""

    def __init__(self, answers: Sequence[str] = ()) -> None:
        self.answers = tuple(answers)
        self.reports: list[str] = []
        self.questions: list[Question] = []

    @property
    def context(self) -> ToolContext:
        return ToolContext(self.reports.append, self._ask)

    async def _ask(self, question: Question) -> tuple[str, ...]:
        self.questions.append(question)
        return self.answers


async def call(tool: AnyTool, **arguments: object) -> ToolResult:
    """Run a tool as the agent does: arguments as plain data."""
    return await tool.run(parse_arguments(tool, arguments), Surroundings().context)


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


SERVER = Path(__file__).with_name("language_server.py")


def server_command(**options) -> tuple[str, ...]:
    return (sys.executable, str(SERVER), json.dumps(options))


class LspBench:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.notices: list[str] = []
        self.opened: list[lsp.LanguageServers] = []
        self.hidden: set[str] = set()

    def open(self, seconds: float = 50.0, **options) -> lsp.LanguageServers:
        """`seconds`: how long a change waits; so long that a busy machine does not matter."""
        spec = LanguageServerSpec("toy", server_command(**options), {".toy": "toy"})
        return self.open_specs(spec, seconds=seconds)

    def open_specs(self, *specs: LanguageServerSpec, seconds: float = 50.0) -> lsp.LanguageServers:
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        host = lsp.LspHost(
            self.folder, environment, lambda text, _level: self.notices.append(text), tuple
        )
        servers = lsp.LanguageServers(lambda: list(specs), host, seconds)
        servers.start()
        self.opened.append(servers)
        self.seen = FilesSeen(Workspace(self.folder), checks=servers)
        self.tool = lsp.Lsp(servers, self.seen, lambda path: path.name in self.hidden)
        return servers

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    async def read(self, name: str) -> str:
        return (await call(Read(self.seen), path=name)).text

    async def write(self, name: str, text: str) -> str:
        return (await call(Write(self.seen), path=name, content=text)).text

    async def edit(self, name: str, old: str, new: str) -> str:
        edits = [{"old_text": old, "new_text": new}]
        return (await call(Edit(self.seen), path=name, edits=edits)).text

    async def patch(self, text: str) -> str:
        return (await call(ApplyPatch(self.seen), input=text)).text

    async def ask(self, **arguments) -> str:
        return (await call(self.tool, **arguments)).text

    async def rename(self, path: str, name: str, new_name: str, line: int = 0):
        """The prepared call: the tool and its arguments."""
        args = self.tool.parse(
            {"action": "rename", "path": path, "name": name, "new_name": new_name, "line": line}
        )
        tool, args = self.tool.resolve(args)
        return tool, await tool.prepare(args)


def ready_mask() -> Callable[[str], str]:
    """The mask of a SecretMask without known values."""
    return SecretMask(patience=300).mask


class ToolFileBench:
    """Sessions with tool files of the user and of a project."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.asked: list[PermissionAsked] = []

    def own(self, name: str, text: str) -> Path:
        return self._write(get_home() / "tools" / name, text)

    def of_project(self, name: str, text: str) -> Path:
        return self._write(self.project / ".ouro" / "tools" / name, text)

    def _write(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"from ouro import tool\n{dedent(text)}")
        return path

    async def open(self, *answers: Any, trust: str = "yes", **settings: Any) -> Session:
        self.model = ScriptedModel([*answers])
        flags = {"permissions.mode": "auto"} | {
            name.replace("__", "."): value for name, value in settings.items()
        }
        options = Options(self.project, ready_model=self.model, settings=flags)
        return await opener(options)(OpenRequest(trust=trust))

    async def call(self, tool: str, /, *, say_yes: bool = True, **given: Any) -> ToolFinished:
        """Call a tool in a session of its own; `settings` in `given` are those of the session."""
        settings = given.pop("settings", {})
        session = await self.open(ToolCall("", tool, given), "Done.", **settings)
        found: list[ToolFinished] = []
        try:
            async for event in session.send("go"):
                if isinstance(event, PermissionAsked):
                    self.asked.append(event)
                    session.answer(event.question_id, Permit("yes" if say_yes else "no"))
                if isinstance(event, ToolFinished):
                    found.append(event)
            self.result = session.transcript.messages()[-2].parts_of(ToolReply)[0].text
        finally:
            await session.close()
        return found[0]

    async def names(self, **settings: Any) -> set[str]:
        """The names of the tools in the first request of a session."""
        session = await self.open("Hello.", **settings)
        await say(session, "hello")
        await session.close()
        return {spec.name for spec in self.model.requests[0].tools}
