"""Sections of ouro in the instruction files of other agents: the core, between two marks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, product
from pathlib import Path

from ouro.errors import UsageError
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entry_lookup import (
    core_entries,
)
from ouro.memory.long_term.git.values import Scope
from ouro.safety import TrustStore, acting_files
from ouro.utils.agent_homes import agent_path
from ouro.utils.files import write_document
from ouro.utils.git import read_git_file
from ouro.utils.ouro_paths import get_trust_path

AGENT_FILES: Mapping[str, Mapping[Scope, str]] = {
    "claude": {"user": ".claude/CLAUDE.md", "repo": "CLAUDE.md"},
    "codex": {"user": ".codex/AGENTS.md", "repo": "AGENTS.md"},
    "gemini": {"user": ".gemini/GEMINI.md", "repo": "GEMINI.md"},
    "agents-md": {"repo": "AGENTS.md"},
}
"""The instruction files of other agents: the user's relative to the home, a project's relative to
its root.
"""
_SECTION_START = (
    "<!-- ouro memory: written by `ouro memory export --to`; changes here are overwritten -->"
)
_SECTION_END = "<!-- end of ouro memory -->"


def _with_section(text: str, block: str) -> str:
    """The text of a file with `block` instead of the section of ouro, or at the end if it has none.
    An empty block removes the section.
    """
    above, section, below = split_section(text)
    if section:
        return above + block + below
    if not block:
        return text
    return f"{text.rstrip()}\n\n{block}\n".lstrip("\n")


def export_to_agent(editor: MemoryEditor, agent: str) -> list[Path]:
    """Write the core as a section of ouro into the files that another agent reads; returns the paths
    of those that changed. What else is in them stays; an empty core removes the section.

    A repository whose instructions the user trusts stays trusted, because ouro wrote the change.

    Raises:
        UsageError: a file is a link (its target is not written), is not text, or cannot be written.
    """
    texts: dict[Path, str] = {}
    for scope, name in AGENT_FILES[agent].items():
        if scope == "user":
            path = agent_path(name)
        elif editor.root is not None:
            path = editor.root / name
        else:
            continue
        if path.is_symlink():
            raise UsageError(
                f"{path} is a link; it is not written.",
                "Export to a file, and link or copy it by hand.",
            )
        try:
            current_text = path.read_text(encoding="utf-8") if path.exists() else ""
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{path} is not UTF-8; it is not written.", "Convert it, then export again."
            ) from error
        lines = [f"- {entry.text}" for entry in core_entries(editor) if entry.scope == scope]
        block = "\n".join([_SECTION_START, *lines, _SECTION_END]) if lines else ""
        new_text = _with_section(current_text, block)
        if new_text != current_text:
            texts[path] = new_text
    write_for_agents(texts, editor.root)
    return list(texts)


def write_for_agents(texts: Mapping[Path, str], root: Path | None) -> None:
    """Write files that other agents read; raises UsageError if one cannot be written.

    Args:
        root: of the repository, which stays trusted if the user has trusted its instructions.
    """
    trust = TrustStore(get_trust_path())
    was_trusted = False
    if root is not None:
        was_trusted = trust.was_trusted(root) and trust.is_trusted(root, acting_files(root))
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Others may read the instructions of a project.
        mode = path.stat().st_mode if path.exists() else 0o644
        write_document(path, [text], force=True)
        path.chmod(mode & 0o777)
    if root is not None and was_trusted:
        files = {file.resolve() for file in texts}
        trust.trust(root, [path for path in acting_files(root) if path in files])


def find_exported_files(projects: Iterable[Path]) -> list[tuple[Path, Path]]:
    """The files with a section of ouro that other agents read: at home, in these projects and in
    their worktrees. Returns pairs of the folder in which the agent looks, and the path of the file.
    """
    project_roots = [*projects]
    linked_worktrees: list[Path] = []
    for root in project_roots:
        files = root.glob(".git/worktrees/*/gitdir")
        linked_worktrees += [Path(read_git_file(file).strip()).parent for file in files]
    names = dict.fromkeys(chain.from_iterable(files.values() for files in AGENT_FILES.values()))
    places = product(dict.fromkeys((Path.home(), *project_roots, *linked_worktrees)), names)
    candidates = {root / name: root for root, name in places}
    # The folder of an agent may be elsewhere; an earlier export may be in the usual one.
    for name in filter(_is_of_agent, names):
        path = agent_path(name)
        candidates.setdefault(path, path.parent)
    return [(root, path) for path, root in candidates.items() if _has_section(read_git_file(path))]


def _is_of_agent(name: str) -> bool:
    """Whether a file is in a folder of an agent, and not in a project's root."""
    return "/" in name


def _has_section(text: str) -> bool:
    """Whether a file has a section of ouro."""
    _above, section, _below = split_section(text)
    return bool(section)


def split_section(text: str) -> tuple[str, str, str]:
    """The text above the section of ouro, the section with its marks, and the text below it. Without
    a section the whole text is above, and the others are empty.
    """
    start = text.find(_SECTION_START)
    # A mark before the start may be left of a section that the user has cut.
    end_mark = text.find(_SECTION_END, start)
    if start < 0 or end_mark < 0:
        return text, "", ""
    end = end_mark + len(_SECTION_END)
    return text[:start], text[start:end], text[end:]
