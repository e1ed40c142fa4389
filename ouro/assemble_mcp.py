"""The MCP servers of a session, constructed from the settings, and what they may ask of it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ouro.display import Question
from ouro.errors import ConfigError, OuroError
from ouro.events import Level, Reply, Said
from ouro.extensions import CommandPrompt, CustomCommand
from ouro.llm import ModelSource
from ouro.mcp import (
    Host,
    McpServer,
    McpServers,
    Outputs,
    Registry,
    ServerPrompt,
    elicitation,
    find_servers,
    mcp_tools,
    prompt_arguments,
)
from ouro.memory.manager import MemoryManager
from ouro.memory.side_calls import ask_in_background
from ouro.messages import assistant, system, user
from ouro.safety import Confinement, child_environment
from ouro.session.turn import SessionTasks
from ouro.settings import McpSettings
from ouro.tools.tool import AnyTool
from ouro.utils.text import cut, escaped, one_line
from ouro.utils.worker import Line

MAX_SHOWN = 2_000
_numbers = itertools.count(1)


class McpBuilder(msgspec.Struct, frozen=True):
    settings: McpSettings
    cwd: Path
    trusted_root: Path | None
    """Of the project; None where it is not trusted."""
    secrets: Sequence[str]
    """The keys of model providers, which no server gets."""
    mask: Callable[[str], str]
    """Removes secrets from what is written."""
    models: Callable[[], ModelSource]
    transcript: MemoryManager
    tasks: SessionTasks
    has_user: bool
    confinement: Callable[[], Confinement]

    def build(self, problems: list[str], plugins: Mapping[str, Any]) -> McpServers:
        """The servers, not started; what is wrong with their files is added to `problems`. Blocks.

        Args:
            problems: gets a line for each problem.
            plugins: the `mcpServers` of each plugin, by its name.
        """
        try:
            registry = find_servers(self.settings.servers, self.trusted_root, plugins)
        except ConfigError as error:
            registry = Registry({})
            problems.append(f"No MCP servers: {one_line(str(error), 300)}")
        problems += registry.notices
        host = Host(
            self.cwd,
            child_environment(os.environ, secrets=self.secrets),
            self.secrets,
            self._notify,
            self._on_question,
            self.has_user,
            lambda argv: self.confinement().wrap(argv, "workspace"),
        )
        return McpServers(registry, host)

    def tools(self, servers: McpServers) -> tuple[AnyTool, ...]:
        """The tools in the requests of the session."""
        outputs = Outputs(self.transcript.outputs, self.mask)
        return mcp_tools(servers, outputs, self.settings.tool_budget_tokens)

    def _notify(self, text: str, level: Level) -> None:
        self.tasks.emit(Said(text, level))

    async def _on_question(self, server: str, kind: str, about: Line) -> Line:
        try:
            return await (self._sample(server, about) if kind == "sample" else elicitation(server, about, self._ask))
        except OuroError as error:
            return {"refused": str(error)} if kind == "sample" else {"action": "cancel"}

    async def _ask(self, question: Question) -> tuple[str, ...]:
        answer = await self.tasks.ask(f"mcp:{next(_numbers)}", question)
        return answer.answers if isinstance(answer, Reply) else ()

    async def _sample(self, server: str, about: Line) -> Line:
        """Let a server ask the model, if the user agrees to what it asks."""
        asked = "\n\n".join(f"{item['role']}: {item['text']}" for item in about["messages"])
        details = f"{about['system']}\n\n{asked}".strip()
        question = Question(
            f"The MCP server {server} wants to ask the model. Allow it?",
            ("yes", "no"),
            details=f"```\n{escaped(cut(details, MAX_SHOWN))}\n```",
        )
        if await self._ask(question) != ("yes",):
            return {"refused": "The user refused."}
        models = self.models()
        messages = [system(about["system"])] if about["system"] else []
        messages += [(user if item["role"] == "user" else assistant)(item["text"]) for item in about["messages"]]
        text = await ask_in_background(models, self.transcript, "compact", "mcp")(messages)
        return {"text": text, "model": models.current()[0].spec.name}


def prompt_commands(servers: McpServers) -> list[CustomCommand]:
    """The prompts of all connected servers as commands: `/github:review`."""
    return [
        _prompt_command(servers, server, prompt)
        for server in servers.servers.values()
        if server.state == "ready"
        for prompt in server.listing.prompts
    ]


def _prompt_command(servers: McpServers, server: McpServer, prompt: ServerPrompt) -> CustomCommand:
    async def text(typed: str) -> CommandPrompt:
        outcome = await servers.prompt(server, prompt.name, prompt_arguments(prompt, typed))
        return CommandPrompt((outcome.text,), is_own=False)

    hint = " ".join(f"[{one_line(item.name, 30)}]" for item in prompt.arguments)
    name = f"{server.name}:{one_line(prompt.name, 60)}"
    return CustomCommand(name, one_line(prompt.description, 100), hint, f"MCP server {server.name}", text)
