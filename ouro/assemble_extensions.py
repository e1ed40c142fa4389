"""The extensions of a session: custom commands, instructions."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import msgspec

from ouro.agent.instructions import system_prompt
from ouro.agent.project_instructions import ProjectInstructions
from ouro.assemble_mcp import McpBuilder, prompt_commands
from ouro.config import project_hooks, save_setting
from ouro.errors import ConfigError, TrustNeeded
from ouro.extensions import (
    Checks,
    CommandRegistry,
    ExtensionFile,
    FileKind,
    Hook,
    Hooks,
    Skills,
    command_of,
    describe_files,
    find_files,
    load_agents,
    load_hooks,
    plugin_tables,
)
from ouro.mcp import McpServers, attached_resources
from ouro.safety import CLAUDE_SETTINGS, Confinement, TrustStore, acting_files, child_environment
from ouro.session.extensions import SessionExtensions
from ouro.settings import Settings
from ouro.tools.skill import SkillTool
from ouro.tools.subagent import AgentSpec
from ouro.tools.tool import AnyTool
from ouro.utils.git import find_root
from ouro.utils.text import plural

MAX_NOTICES = 2
"""More problems than that are one notice: they come with each start."""


def is_trusted(store: TrustStore, cwd: Path, answer: Literal["unknown", "yes", "no"]) -> bool:
    """Whether the files of the project that ouro would obey are trusted; `answer` is what the user says to it.

    Raises:
        TrustNeeded: they are not, and the user was not asked.
    """
    root = find_root(cwd)
    files = acting_files(root, cwd)
    if not files or store.is_trusted(root, files):
        return True
    if answer == "yes":
        store.trust(root, files)
        return True
    if answer == "no":
        return False
    untrusted = store.untrusted(root, files)
    raise TrustNeeded(root, untrusted, describe_files(root, untrusted))


def find_hooks(
    settings: Settings, root: Path, trusts: Callable[[Path], bool], *, trusted: bool
) -> tuple[tuple[Hook, ...], tuple[str, ...]]:
    """The hooks of the user, of plugins and, if it is trusted, of the project, and a line for each problem. Blocks."""
    claude = {Path.home() / CLAUDE_SETTINGS[0]: False} if settings.claude_hooks else {}
    claude |= {path: True for name in CLAUDE_SETTINGS if (path := root / name).is_file() and trusts(path)}
    return load_hooks(settings.hooks, project_hooks(root) if trusted else (), claude)


class ExtensionBuilder(msgspec.Struct, dict=True):
    """Constructs what extension files add: each once, when it is first needed."""

    root: Path
    cwd: Path
    settings: Settings
    trust: TrustStore
    trusted: bool
    """The user trusts the files of the project as they are."""
    reserved: Collection[str]
    """The names of the built-in commands."""
    mcp: McpBuilder

    def __post_init__(self) -> None:
        self.problems: list[str] = []

    @cached_property
    def skills(self) -> Skills:
        """Reads as `commands` does. Blocks."""
        settings, trusts = self.settings.skills, self._trusts
        save = partial(save_setting, "skills.without")
        return Skills(self._files("skills"), settings.without, settings.prompt_tokens, trusts, save)

    def tools(self) -> list[AnyTool]:
        """The tools that extensions need."""
        skills = [SkillTool(self.skills.read)] if self.skills.prompt() else []
        return [*skills, *self.mcp.tools(self.servers)]

    @cached_property
    def commands(self) -> CommandRegistry:
        """Reads the files of the user and, if it is trusted, of the project. Blocks."""
        found = [command_of(file) for file in self._files("commands")]
        registry = CommandRegistry(
            [lambda: found, self.skills.commands, lambda: prompt_commands(self.servers)], self.reserved, self._connect
        )
        self.problems += registry.problems()
        return registry

    @cached_property
    def servers(self) -> McpServers:
        """Reads their files. Blocks."""
        return self.mcp.build(self.problems, plugin_tables("mcpServers", self.problems))

    @cached_property
    def instructions(self) -> ProjectInstructions:
        return self.instructions_in(self.cwd)

    def instructions_in(self, cwd: Path) -> ProjectInstructions:
        """Of a folder of this repository, or of a worktree of it: what is trusted here is trusted there. Blocks."""
        root = find_root(cwd)

        def trusts(path: Path) -> bool:
            own = self.root / path.relative_to(root)
            is_same = own == path or (own.is_file() and own.read_bytes() == path.read_bytes())
            return is_same and self._trusts(own)

        return ProjectInstructions(cwd, trusts)

    def hooks(self, warn: Callable[[str], None], confinement: Confinement) -> Hooks:
        """The hooks of the user and, if it is trusted, of the project, which are confined. Blocks."""
        found, problems = find_hooks(self.settings, self.root, self._trusts, trusted=self.trusted)
        self.problems += problems
        folder = {"CLAUDE_PROJECT_DIR": str(self.root), "OURO_PROJECT_DIR": str(self.root)}
        environment = child_environment(os.environ, secrets=self.mcp.secrets) | folder
        confines = confinement.settings.project_hooks
        confine = (lambda argv: confinement.wrap(argv, "workspace")) if confines else tuple[str, ...]
        hooks = Hooks(found, Checks(self.root), self.cwd, environment, warn, confine)
        try:
            hooks.change_checks(lambda _checks: None)
        except ConfigError as error:
            self.problems.append(error.message)
        return hooks

    @cached_property
    def agents(self) -> tuple[AgentSpec, ...]:
        """The kinds of subagents. Reads as `commands` does. Blocks."""
        specs, problems = load_agents(self._files("agents"))
        self.problems += problems
        return specs

    @cached_property
    def system_prompt(self) -> str:
        """The system prompt without long-term memory. Blocks."""
        found = self.instructions
        prompt = system_prompt(found.of_project(), found.of_user())
        self.problems += found.problems
        return "\n\n".join(filter(None, (prompt, self.skills.prompt())))

    def found(self) -> SessionExtensions:
        return SessionExtensions(self.commands, self.servers, self.skills, self.instructions, self.problems)

    async def _connect(self, server: str) -> None:
        if server in self.servers.servers:
            await self.servers.ready(server)

    async def attached(self, text: str) -> str:
        """The resources of MCP servers that a message names."""
        return await attached_resources(self.servers, text)

    def notices(self) -> list[str]:
        """What the user is told about extension files at the start of a session."""
        many = f"{len(self.problems)} problems in extension files: `ouro doctor` lists them."
        notices = self.problems if len(self.problems) <= MAX_NOTICES else [many]
        if self.trusted:
            return notices
        count = plural(len(acting_files(self.root, self.cwd)), "file")
        return [f"The project is not trusted: {count} not obeyed. `ouro doctor` lists them.", *notices]

    def _trusts(self, path: Path) -> bool:
        return self.trusted and self.trust.is_trusted(self.root, [path])

    def _files(self, kind: FileKind) -> list[ExtensionFile]:
        files, problems = find_files(kind, self.root, self.trusted)
        self.problems += problems
        return files
