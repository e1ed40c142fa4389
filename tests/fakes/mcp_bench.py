"""Real MCP servers, and the client that is connected to them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ouro.mcp import Host, McpServers, Registry
from ouro.safety import child_environment
from ouro.settings import McpServerSettings

PATH = "/bin:/usr/bin"
FAKE = Path(__file__).with_name("mcp_stdio_server.py")


def fake(timeout: int = 20, more: dict | None = None, **given) -> McpServerSettings:
    """The settings of the fake server on stdio."""
    return McpServerSettings(
        command=sys.executable,
        args=(str(FAKE), json.dumps(given)),
        timeout_seconds=timeout,
        **(more or {}),
    )


class Bench:
    """Servers, and the notices and questions to the user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.texts: list[str] = []
        self.asked: list[tuple] = []
        self.answers: dict[str, dict] = {}
        self.opened: list[McpServers] = []
        self.confine: Callable[[Sequence[str]], Sequence[str]] = list

    def host(self, has_user: bool = True) -> Host:
        return Host(
            self.folder, child_environment({"PATH": PATH, "MY_API_KEY": "k" * 20, "HOME": "/h"}),
            ("provider-key-1234",), lambda text, _level: self.texts.append(text), self._on_question, has_user,
            lambda argv: self.confine(argv),
        )  # fmt: skip

    def open(self, has_user: bool = True, off=(), **servers: McpServerSettings) -> McpServers:
        made = McpServers(Registry(servers, frozenset(off)), self.host(has_user))
        made.start()
        self.opened.append(made)
        return made

    async def _on_question(self, server, kind, about):
        self.asked.append((server, kind, about))
        return self.answers[kind]
