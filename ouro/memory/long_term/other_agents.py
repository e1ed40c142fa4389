"""What other agents, and other clones, know about a project: where it is, and whether an import was
offered.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro.errors import OuroError
from ouro.memory.long_term.clones import find_clone_memories, project_of
from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.import_files import is_trusted_text, read_sources
from ouro.utils.agent_homes import agent_path, claude_project_name
from ouro.utils.files import lock_file, write_private
from ouro.utils.lenient_json import read_state
from ouro.utils.log import log
from ouro.utils.ouro_paths import ensure_private_dir, tilde
from ouro.utils.path_encoding import path_text

if TYPE_CHECKING:
    from ouro.memory.long_term.editor import MemoryEditor

_SOURCES: Sequence[tuple[str, Scope, str]] = (
    ("Claude Code", "user", ".claude/CLAUDE.md"),
    ("Claude Code", "user", ".claude/projects/{project}/memory"),
    ("Claude Code", "repo", "CLAUDE.md"),
    ("Claude Code", "repo", "CLAUDE.local.md"),
    ("Claude Code", "repo", ".claude/CLAUDE.md"),
    ("Claude Code", "repo", ".claude/rules"),
    ("Codex", "user", ".codex/AGENTS.md"),
    ("Codex", "user", ".codex/memories"),
    ("Gemini", "user", ".gemini/GEMINI.md"),
    ("Gemini", "repo", "GEMINI.md"),
    ("Cursor", "repo", ".cursorrules"),
    ("Cursor", "repo", ".cursor/rules"),
    ("AGENTS.md", "repo", "AGENTS.md"),
)
"""The name of the agent, and a file or folder: of the home, or of the project."""
_RULE_ENDINGS = (".md", ".mdc")
_MAX_RULE_FILES = 200
_LOCK_TIMEOUT = 1.0


class AgentMemory(msgspec.Struct, frozen=True):
    """What other agents know, and memory does not."""

    agents: tuple[str, ...]
    paths: tuple[Path, ...]
    """What an import reads."""
    entries: int
    """The number of entries that it would add."""
    in_prompt: tuple[str, ...] = ()
    """The files that each session reads as instructions: they are not imported."""


def find_agent_memory(
    editor: MemoryEditor, root: Path, instructions: Collection[Path]
) -> AgentMemory:
    """Find what other agents, and the memories of other clones, know about the project with this
    root and what memory does not have yet: an import would add it. Writes nothing, and blocks.

    Args:
        instructions: the files that are in each prompt already: these are listed, and not imported.
    """
    in_use = {path.resolve() for path in instructions}
    project = claude_project_name(str(root.resolve()))
    agent_by_path: dict[Path, str] = {}
    in_prompt: list[str] = []
    for agent, scope, name in _SOURCES:
        file_name = name.format(project=project)
        file = agent_path(file_name) if scope == "user" else root / file_name
        for path in _files_of(file, scope):
            if path.resolve() in in_use:
                in_prompt.append(name)
            else:
                agent_by_path[path] = agent
    if "repo" in editor.names:
        agent_by_path |= _name_clone_memories(root)
    counts = {path: _count_new(editor, path) for path in agent_by_path}
    useful = tuple(path for path, count in counts.items() if count)
    agents = tuple(dict.fromkeys(agent_by_path[path] for path in useful))
    return AgentMemory(
        agents,
        paths=useful,
        entries=sum(counts.values()),
        in_prompt=tuple(dict.fromkeys(in_prompt)),
    )


def _name_clone_memories(root: Path) -> dict[Path, str]:
    """The memory folders of other clones of a repository, each with a name for the user."""
    return {folder: f"ouro in {tilde(project_of(folder))}" for folder in find_clone_memories(root)}


def _count_new(editor: MemoryEditor, path: Path) -> int:
    """How many entries an import of a file or folder would add; 0 if it cannot be read."""
    from ouro.memory.long_term.memory_import import plan_import

    try:
        plan = plan_import(editor, read_sources([path]), trusts=is_trusted_text)
    except (OuroError, OSError) as error:  # a folder without texts, or one that is too large
        log.info("not offered for import: %s: %s", path, error)
        return 0
    return sum(plan.counts.values())


def _files_of(path: Path, scope: Scope) -> list[Path]:
    """The path alone, which may be a folder, if it exists; for a folder of rules in a project its
    first `_MAX_RULE_FILES` files by name.
    """
    if scope == "repo" and path.is_dir():
        rule_files = sorted(file for file in path.iterdir() if file.suffix in _RULE_ENDINGS)
        return rule_files[:_MAX_RULE_FILES]
    return [path] if path.exists() else []


class ImportOffers(msgspec.Struct, frozen=True):
    """The projects in which an import was offered, in a file. Its methods block."""

    path: Path

    def was_made(self, root: Path) -> bool:
        """Whether an import was offered in this project."""
        return path_text(root.resolve()) in self._roots()

    def record(self, root: Path) -> None:
        """Record that an import was offered in this project, so that it is offered once. An error is
        logged.
        """
        try:
            ensure_private_dir(self.path.parent)
            with lock_file(self.path.with_suffix(".lock"), _LOCK_TIMEOUT):
                roots = dict.fromkeys([*self._roots(), path_text(root.resolve())])
                write_private(self.path, msgspec.json.encode(list(roots)))
        except OSError as error:
            log.warning("the offer of an import is not recorded: %s", error)

    def _roots(self) -> list[str]:
        return read_state(self.path, list[str])
