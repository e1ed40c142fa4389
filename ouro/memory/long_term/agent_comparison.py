"""Comparison of memory with what another agent remembers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ouro.memory.long_term.agent_sections import AGENT_FILES
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entry_lookup import (
    MemoryEntry,
    all_entries,
)
from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.import_files import read_sources
from ouro.memory.long_term.import_formats import ImportPiece
from ouro.memory.long_term.supersession import fold_words
from ouro.utils.agent_homes import agent_path, claude_home, claude_project_name

_OTHER_AGENT_FILES: Mapping[str, Sequence[tuple[Scope, str]]] = {
    "claude": (
        ("repo", "CLAUDE.local.md"),
        ("repo", ".claude/CLAUDE.md"),
        ("repo", ".claude/rules"),
    ),
    "codex": (("user", ".codex/memories"),),
    "gemini": (),
}
"""The other files and folders that an agent reads automatically."""


class MemoryComparison(msgspec.Struct, frozen=True):
    """What only ouro, and what only another agent remembers."""

    ours: tuple[MemoryEntry, ...]
    """Entries that only ouro has."""
    theirs: tuple[ImportPiece, ...]
    """Entries that only the other agent has."""
    shared: int
    files: tuple[Path, ...]
    """The files of the other agent that were read."""


def compare_with_agent(editor: MemoryEditor, agent: str) -> MemoryComparison:
    """Compare memory with what an agent reads automatically: its instructions and its own memory of
    this project. An entry that is in the other side's text, in the same words, is shared.
    """
    paths = _files_of_agent(editor, agent)
    material = read_sources([path for path in paths if path.exists()])
    entries = all_entries(editor)
    their_text = " ".join(fold_words(piece.text) for piece in material.pieces)
    our_text = " ".join(fold_words(entry.text) for entry in entries)
    return MemoryComparison(
        ours=tuple(entry for entry in entries if fold_words(entry.text) not in their_text),
        theirs=tuple(
            piece
            for piece in material.pieces
            if fold_words(piece.text) and fold_words(piece.text) not in our_text
        ),
        shared=sum(fold_words(entry.text) in their_text for entry in entries),
        files=material.files,
    )


def _files_of_agent(editor: MemoryEditor, agent: str) -> list[Path]:
    """The files and folders that an agent reads automatically; they need not exist."""
    paths: list[Path] = []
    for scope, name in (*AGENT_FILES[agent].items(), *_OTHER_AGENT_FILES[agent]):
        if scope == "user":
            paths.append(agent_path(name))
        elif editor.root is not None:
            paths.append(editor.root / name)
    if agent == "claude":
        names = [claude_project_name(str(root.resolve())) for root in editor.roots]
        paths += [claude_home() / "projects" / name / "memory" for name in names]
    return paths
