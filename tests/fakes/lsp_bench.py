"""A project with a scripted language server, and the tools that use it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from fakes.tool_context import call
from ouro import lsp
from ouro.lsp.configuration import LanguageServerSpec
from ouro.safety import Workspace
from ouro.tools.apply_patch import ApplyPatch
from ouro.tools.edit import Edit, Write
from ouro.tools.files_seen import FilesSeen
from ouro.tools.read import Read

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
