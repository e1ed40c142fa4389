"""What tools need: a context that records reports and answers questions, a shell in a folder, a project
with a scripted language server, a secret mask, functions that look at processes, and engines of
containers: a program that poses as one, and an image for real ones.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
    Limits,
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
from ouro.utils.ouro_paths import get_home


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

    def __init__(
        self, folder: Path, confinement: Confinement = UNCONFINED, **environment: str
    ) -> None:
        self.root = folder / "workspace"
        self.root.mkdir(exist_ok=True)
        self.spool = folder / "outputs"
        self.jobs = ShellJobs(self.spool)
        self.shell = Shell(
            self.root, self.jobs, child_environment({**os.environ, **environment}), confinement
        )
        self.reported: list[str] = []
        self.events: list[Any] = []
        self._calls = 0
        self.context = ToolContext(self.reported.append, ask=self._nobody)

    async def run(self, command: str, timeout: float = PATIENCE, **arguments: object) -> ToolResult:
        """Run one command with the tool."""
        arguments = {"command": command, "timeout_seconds": timeout, **arguments}
        return await self.shell.run(ShellArgs(**arguments), self.context)

    async def run_as(self, limits: Limits, command: str, **arguments: object) -> ToolResult:
        """As `run`, as a call that permissions have given these limits."""
        self._calls += 1
        context = ToolContext(
            self.reported.append,
            self._nobody,
            limits=limits,
            call_id=f"call_{self._calls}",
            emit=self.events.append,
        )
        arguments = {"command": command, "timeout_seconds": PATIENCE, **arguments}
        return await self.shell.run(ShellArgs(**arguments), context)

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
            self.result = session.memory.messages()[-2].parts_of(ToolReply)[0].text
        finally:
            await session.close()
        return found[0]

    async def names(self, **settings: Any) -> set[str]:
        """The names of the tools in the first request of a session."""
        session = await self.open("Hello.", **settings)
        await say(session, "hello")
        await session.close()
        return {spec.name for spec in self.model.requests[0].tools}


_ENGINE = Path(__file__).parents[1] / "fixtures" / "container_engine.py"
_NAMES = ("DOCKER_HOST", "CONTAINERS_CONF", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
OF_REAL_ENGINES = {
    "XDG_DATA_HOME": str(Path.home() / ".local" / "share"),
    **{name: os.environ[name] for name in _NAMES if name in os.environ},
}
"""The variables with which real engines work here; tests begin without them."""


class FakeEngine:
    """The fake program, first on PATH, and what it was asked.

    Args:
        folder: where its state is.
        name: `podman` or `docker`.
    """

    def __init__(self, folder: Path, name: str = "podman", images: str = "box:1") -> None:
        self.state = folder / "engine"
        self.bin = folder / "engine_bin"
        (self.state / "boxes").mkdir(parents=True)
        self.bin.mkdir()
        (self.state / "images").write_text(images)
        (self.state / "calls").touch()
        program = self.bin / name
        words = shlex.join([sys.executable, "-I", "-S", str(_ENGINE), str(self.state)])
        program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        program.chmod(0o755)

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.state / "calls").read_text().splitlines()]

    def runs(self) -> list[list[str]]:
        """The command lines that started containers."""
        return [words for words in self.calls if words[0] == "run"]

    def boxes(self) -> list[str]:
        """The containers that exist."""
        return sorted(path.name for path in (self.state / "boxes").iterdir())

    def remove_boxes(self) -> None:
        """What a user does with `podman rm --force --all`."""
        for name in self.boxes():
            subprocess.run([next(self.bin.iterdir()), "rm", "--force", name], check=False)

    def is_broken(self, why: str, text: str = "") -> None:
        """Let it fail: `gone`, `refuses` (to start a container), or `wrong` with what the test of a
        container finds.
        """
        (self.state / why).write_text(text)


def mount_options(words: list[str]) -> dict[str, str]:
    """The mounts of a command line: target -> the other fields."""
    found: dict[str, str] = {}
    for number, word in enumerate(words):
        if word == "--mount":
            fields = words[number + 1].split(",")
            target = next(field for field in fields if field.startswith("target="))
            rest = [field for field in fields if field != target]
            found[target.removeprefix("target=")] = " ".join(rest)
    return found


@contextmanager
def real_image(engine: str) -> Iterator[str]:
    """An image with busybox, made without a registry; empty if the engine or busybox does not work
    here. podman on hosts with mixed cgroups needs `CONTAINERS_CONF` with the runtime runc.
    """
    program, busybox = shutil.which(engine), shutil.which("busybox")
    if not program or not busybox:
        yield ""
        return
    image = "localhost/ouro-test-busybox:1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "root")
        for below in ("bin", "etc", "tmp", "proc", "sys", "dev", "run", "var/tmp"):
            (folder / below).mkdir(parents=True)
        shutil.copy(busybox, folder / "bin" / "busybox")
        listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=False)
        for applet in listed.stdout.split():
            if applet != "busybox":
                (folder / "bin" / applet).symlink_to("busybox")
        archive = Path(name, "root.tar")
        subprocess.run(["tar", "-C", str(folder), "-cf", str(archive), "."], check=True)
        hard = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")
        for words in (
            ("import", str(archive), image),
            ("run", "--rm", "--network=none", *hard, image, "/bin/sh", "-c", "true"),
        ):
            if not _succeeds([program, *words]):
                yield ""
                return
        yield image
        _succeeds([program, "rmi", image])


def _succeeds(words: list[str]) -> bool:
    environment = {**os.environ, **OF_REAL_ENGINES}
    limit = PATIENCE * 4
    done = subprocess.run(words, env=environment, capture_output=True, timeout=limit, check=False)
    return done.returncode == 0
