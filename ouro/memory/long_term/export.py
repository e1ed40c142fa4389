"""Export of memory (Markdown, JSON, files of other agents), and comparison with other agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any

import msgspec

from ouro.errors import UsageError
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entry_lookup import (
    MemoryEntry,
    all_entries,
    chain_of,
    core_entries,
    describe_source,
)
from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.import_files import (
    FORMAT,
    MARK,
    ImportPiece,
    claude_project_name,
    read_sources,
)
from ouro.memory.long_term.notes.notebook import timestamp
from ouro.memory.long_term.supersession import fold_words
from ouro.safety import TrustStore, acting_files
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


def _core_line(line: MemoryEntry) -> str:
    """A core line in Markdown, with its source in a comment."""
    source = describe_source(line)
    return f"- {line.text} <!-- {source} -->" if source else f"- {line.text}"


def as_markdown(editor: MemoryEditor) -> str:
    """All of memory in Markdown, scope by scope: the core, then the notes by category, each with its
    source and earlier versions, then the archived notes. `memory import` reads it again.
    """
    entries = all_entries(editor, archived=True)
    introduction = f"Written on {timestamp()[:10]}. `ouro memory import FILE` reads it again."
    paragraphs = ["# What ouro remembers", MARK, introduction]
    for scope in editor.scopes:
        entries_of_scope = [entry for entry in entries if entry.scope == scope.name]
        paragraphs.append(f"## {scope.name}")
        for category in scope.store.core:
            core = [
                item
                for item in entries_of_scope
                if item.kind == "core" and item.category == category
            ]
            if core:
                paragraphs += [f"### {category}", "\n".join(map(_core_line, core))]
        notes = [entry for entry in entries_of_scope if entry.kind == "note"]
        paragraphs += _notes_as_markdown(notes)
    return "\n\n".join(paragraphs) + "\n"


def as_json(editor: MemoryEditor) -> dict[str, Any]:
    """All of memory as plain data: core texts and complete notes, by scope."""
    files = list(editor.notebook.all(archived=True))
    core = core_entries(editor)
    scopes = {}
    for scope in editor.scopes:
        entries = [entry for entry in core if entry.scope == scope.name]
        notes_of_scope = [file for file in files if file.scope == scope.name]
        scopes[scope.name] = {
            "core": dict(scope.loaded.core),
            "core_entries": list(map(msgspec.to_builtins, entries)),
            "notes": [
                {**msgspec.to_builtins(file.note), "archived": file.archived}
                for file in notes_of_scope
            ],
        }
    return {"format": FORMAT, "version": 1, "exported_at": timestamp(), "scopes": scopes}


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
        folder = Path.home() if scope == "user" else editor.root
        if folder is None:
            continue
        path = folder / name
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
    candidates = [(root, root / name) for root, name in places]
    return [(root, path) for root, path in candidates if _has_section(read_git_file(path))]


def _has_section(text: str) -> bool:
    """Whether a file has a section of ouro."""
    _above, section, _below = split_section(text)
    return bool(section)


def split_section(text: str) -> tuple[str, str, str]:
    """The text above the section of ouro, the section with its marks, and the text below it. Without
    a section the whole text is above, and the others are empty.
    """
    start, last_mark = text.find(_SECTION_START), text.find(_SECTION_END)
    if not 0 <= start < last_mark:
        return text, "", ""
    end = last_mark + len(_SECTION_END)
    return text[:start], text[start:end], text[end:]


def compare_with_agent(editor: MemoryEditor, agent: str) -> MemoryComparison:
    """Compare memory with what an agent reads automatically: its instructions and its own memory of
    this project. An entry that is in the other side's text, in the same words, is shared.
    """
    folders: dict[Scope, Path | None] = {"user": Path.home(), "repo": editor.root}
    names = [*AGENT_FILES[agent].items(), *_OTHER_AGENT_FILES[agent]]
    paths = [folder / name for scope, name in names if (folder := folders[scope])]
    if agent == "claude":
        projects = Path.home() / ".claude/projects"
        paths += [projects / claude_project_name(root) / "memory" for root in roots_of(editor)]
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


def _notes_as_markdown(notes: Sequence[MemoryEntry]) -> Iterator[str]:
    """Yield the current notes by category, then the archived ones, as paragraphs of the document."""
    latest = [note for note in notes if "replaced" not in note.badges]
    for category in sorted({note.category for note in latest}):
        notes_of_category = [
            note for note in latest if note.category == category and not note.archived
        ]
        yield from _group_as_markdown(f"Notes: {category}", notes_of_category, notes)
    archived = [note for note in latest if note.archived]
    yield from _group_as_markdown("Archive", archived, notes)


def _group_as_markdown(
    title: str, group: Sequence[MemoryEntry], notes: Sequence[MemoryEntry]
) -> Iterator[str]:
    """Yield the notes of a group below a title, each with what it replaced; nothing if there are
    none.
    """
    if group:
        yield f"### {title}"
    for note in group:
        state = " archived" if note.archived else ""
        yield (
            f"<!-- {note.id} {note.scope} {note.category}{state} -->\n"
            f"{note.text.strip()}\n<!-- /{note.id} -->"
        )
        yield f"*{note.id} · {describe_source(note)}*"
        if earlier_versions := chain_of(notes, note)[:-1]:
            lines = [
                f"> - {version.at[:10]}: {' '.join(version.text.split())}"
                for version in earlier_versions
            ]
            yield "\n".join(["> Before:", *lines])


def roots_of(editor: MemoryEditor) -> set[Path]:
    """The roots of the main worktree and of the one in use; empty without a repository."""
    return {root for root in (editor.project, editor.root) if root}
