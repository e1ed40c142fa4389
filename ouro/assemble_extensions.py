"""The extensions of a session: custom commands, instructions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from ouro.agent.instructions import system_prompt
from ouro.agent.project_instructions import ProjectInstructions
from ouro.errors import TrustNeeded
from ouro.extensions import CommandRegistry, ExtensionFile, FileKind, command_of, find_files
from ouro.safety import TrustStore, acting_files
from ouro.session.extensions import SessionExtensions
from ouro.utils.git import find_root

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
    raise TrustNeeded(root, store.untrusted(root, files))


@dataclass
class ExtensionBuilder:
    """Constructs what extension files add: each once, when it is first needed."""

    root: Path
    cwd: Path
    trust: TrustStore
    trusted: bool
    """The user trusts the files of the project as they are."""
    reserved: Collection[str]
    """The names of the built-in commands."""

    def __post_init__(self) -> None:
        self.problems: list[str] = []

    @cached_property
    def commands(self) -> CommandRegistry:
        """Reads the files of the user and, if it is trusted, of the project. Blocks."""
        found = [command_of(file) for file in self._files("commands")]
        registry = CommandRegistry([lambda: found], self.reserved)
        self.problems += registry.problems()
        return registry

    @cached_property
    def instructions(self) -> ProjectInstructions:
        return ProjectInstructions(self.cwd, lambda path: self.trusted and self.trust.is_trusted(self.root, [path]))

    @cached_property
    def system_prompt(self) -> str:
        """The system prompt without long-term memory. Blocks."""
        found = self.instructions
        prompt = system_prompt(found.of_project(), found.of_user())
        self.problems += found.problems
        return prompt

    @cached_property
    def found(self) -> SessionExtensions:
        return SessionExtensions(self.commands, self.instructions, self.problems)

    def notices(self) -> list[str]:
        """What the user is told about extension files at the start of a session."""
        problems = self.found.problems
        if len(problems) <= MAX_NOTICES:
            return list(problems)
        return [f"{len(problems)} extension files are not used: `ouro doctor` lists them."]

    def _files(self, kind: FileKind) -> list[ExtensionFile]:
        files, problems = find_files(kind, self.root, self.trusted)
        self.problems += problems
        return files
