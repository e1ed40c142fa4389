"""Which files an import reads: the memory files of other agents, and the files that they include."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ouro.errors import UsageError, reason_of
from ouro.memory.long_term.clones import is_approved, memory_folder_of
from ouro.memory.long_term.git.files import ARCHIVE, FileRefused, decode_text, is_note_name
from ouro.memory.long_term.git.values import SkippedFile
from ouro.memory.long_term.import_formats import (
    RAW_MATERIAL_OF_CODEX,
    ImportPiece,
    is_codex_folder,
    read_pieces,
)
from ouro.safety import TrustStore, acting_files
from ouro.utils.agent_homes import agent_path, claude_home, claude_project_name
from ouro.utils.files import open_regular
from ouro.utils.git import find_root
from ouro.utils.ouro_paths import expand_home, get_trust_path

INSTRUCTIONS = (
    "CLAUDE.md",
    "CLAUDE.local.md",
    ".claude/CLAUDE.md",
    ".claude/rules",
    "AGENTS.md",
    "GEMINI.md",
    ".cursorrules",
    ".cursor/rules",
)
_AGENT_MEMORY = (".claude/projects", ".codex/memories", ".letta/agents")
"""Folders where other agents store memory, as `agent_path` names them."""
_TEXT_ENDINGS = (".md", ".mdc", ".markdown", ".txt")
_MEMORY_ENDINGS = (*_TEXT_ENDINGS, ".json", ".cursorrules")
_MAX_BYTES = 4 << 20
_MAX_FILES = 2_000
_MAX_DEPTH = 4
"""The maximum depth of files that include other files."""
_INCLUDE_LINE = re.compile(r"^(?:[-*+] )?@(\S+)[ \t]*$", re.MULTILINE)
_COMMENT_OR_CODE = re.compile(
    r"<!--.*?(?:-->|\Z)|^\s*(```|~~~).*?(?:^\s*\1|\Z)", re.DOTALL | re.MULTILINE
)
"""HTML comments and code blocks, in which no file is included."""


class ImportMaterial(msgspec.Struct, frozen=True):
    """What was read of files to import."""

    pieces: tuple[ImportPiece, ...]
    files: tuple[Path, ...]
    skipped: tuple[SkippedFile, ...] = ()


def read_sources(paths: Sequence[Path]) -> ImportMaterial:
    """Read these files, the memory files in these folders, and the files that they include, each
    once. A file that cannot be read, or may not be included, is listed as skipped.

    Raises:
        UsageError: a path does not exist, or holds no memory files.
    """
    pieces: list[ImportPiece] = []
    files: list[Path] = []
    skipped: list[SkippedFile] = []
    depths: dict[Path, int] = {}  # 0 for a named file, 1 for one that it includes, …
    for named_path in paths:
        item = expand_home(named_path).absolute()
        if item.is_file():
            depths[item] = 0
            continue
        memory_files, other_files = _find_memory_files(item)
        depths |= dict.fromkeys(memory_files, 0)
        skipped += other_files

    # Read each file, then the files that it includes: they are appended to the list.
    files_to_read = list(depths)
    for path in files_to_read:
        try:
            text = _read_text(path)
            pieces += list(read_pieces(path, text))  # no pieces at all if one cannot be read
        except (FileRefused, OSError) as error:
            skipped.append(SkippedFile(str(path), reason_of(error)))
            continue
        files.append(path)
        for name in _names_of_includes(path, text):
            included = (path.parent / expand_home(name)).resolve()
            if reason := _reason_to_refuse(path, included, depths[path]):
                skipped.append(SkippedFile(f"@{name} in {path.name}", reason))
            elif included not in depths:
                depths[included] = depths[path] + 1
                files_to_read.append(included)
    return ImportMaterial(tuple(pieces), tuple(files), tuple(skipped))


def _read_text(path: Path) -> str:
    """The text of a file. Raises FileRefused if it is too large or no text, and OSError."""
    with open_regular(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > _MAX_BYTES:
            raise FileRefused(f"{size:,} bytes; at most {_MAX_BYTES:,} are read")
        return decode_text(file.read(_MAX_BYTES + 1))


def _names_of_includes(path: Path, text: str) -> list[str]:
    """The names of the files that a text file includes, each once; none for other files."""
    if path.suffix not in _TEXT_ENDINGS:
        return []
    return list(dict.fromkeys(_INCLUDE_LINE.findall(_COMMENT_OR_CODE.sub("", text))))


def is_project(named: str, root: Path) -> bool:
    """Whether `named` is the project with this root: by Claude Code's name (`-home-me-app`), or as
    the path of the project or of a folder in it.
    """
    path = str(root.resolve())
    is_path_in_project = f"{named.rstrip('/')}/".startswith(f"{path}/")
    return is_path_in_project or named == claude_project_name(path)


def is_trusted_text(path: Path) -> bool:
    """Whether the text of a file counts as the user's: it is outside of any repository, or in one
    the user trusts.

    Other people may have written the files of a repository (M1). Folders where agents store memory
    count as the user's, even if they are git repositories; in the memory of another repository,
    what was approved there. Blocks.
    """
    if folder := memory_folder_of(path):
        return is_approved(path, folder)
    if any(agent_path(folder).resolve() in path.resolve().parents for folder in _AGENT_MEMORY):
        return True
    root = find_root(path if path.is_dir() else path.parent)
    if not (root / ".git").exists():
        return True
    trust = TrustStore(get_trust_path())
    return trust.was_trusted(root) and trust.is_trusted(root, acting_files(root))


def _find_memory_files(folder: Path) -> tuple[list[Path], list[SkippedFile]]:
    """The files of a folder that hold memory: the known instruction files if it has any, else all
    text files below it. Returns also what is left out of them: one entry for each subfolder and
    reason.

    Raises UsageError if there is no such folder, it holds no text files, or too many.
    """
    if not folder.is_dir():
        raise UsageError(f"There is no file or folder {folder}.")
    instruction_files = [folder / name for name in INSTRUCTIONS if (folder / name).exists()]
    files: list[Path] = []
    for item in instruction_files or [folder]:
        if item.is_file():
            files.append(item)
        else:
            files += _text_files_below(item)
    if not instruction_files and not files:
        names_read = ", ".join(INSTRUCTIONS)
        raise UsageError(
            f"{folder} holds no Markdown.", f"ouro reads {names_read} and folders of Markdown."
        )
    memory_files: list[Path] = []
    skipped_counts: Counter[tuple[str, str]] = Counter()
    is_of_codex = is_codex_folder(folder)
    for path in files:
        relative_path = path.relative_to(folder)
        if reason := _reason_to_leave_out(relative_path, is_codex=is_of_codex):
            skipped_counts[str(folder / relative_path.parts[0]), reason] += 1
        else:
            memory_files.append(path)
    skipped = [
        SkippedFile(name, f"{reason} ({count} files)" if count > 1 else reason)
        for (name, reason), count in skipped_counts.items()
    ]
    return memory_files, skipped


def _reason_to_leave_out(path: Path, *, is_codex: bool) -> str:
    """The reason why a file is not imported, by its path relative to the imported folder; empty if
    it is. `is_codex`: Codex keeps its memory in that folder.
    """
    if "skills" in path.parts[:-1] or path.name == "SKILL.md":
        return "skills: they hold instructions, not memory"
    if is_codex and path.parts[0] in RAW_MATERIAL_OF_CODEX:
        return "raw material of the MEMORY.md there"
    if path.parent.name == ARCHIVE and is_note_name(path.name):
        return "archived notes"
    if path.stem == "persona":
        return "it describes that agent, not the user"
    return ""


def _text_files_below(folder: Path) -> list[Path]:
    """The files below a folder that may hold memory, by the endings of their names: MEMORY.md first,
    then by path. Hidden files and folders, and links to folders, are left out. Raises UsageError if
    there are too many.
    """
    files: list[Path] = []
    for root, folders, names in os.walk(folder):
        # `os.walk` goes into the folders that remain in this list.
        folders[:] = sorted(item for item in folders if not item.startswith("."))
        files += [
            Path(root) / name
            for name in sorted(names)
            if name.endswith(_MEMORY_ENDINGS) and not name.startswith(".")
        ]
        if len(files) > _MAX_FILES:
            raise UsageError(
                f"{folder} holds over {_MAX_FILES:,} files.",
                "Name the folder of the memory itself.",
            )
    return sorted(files, key=lambda item: (item.name != "MEMORY.md", item))


def _reason_to_refuse(path: Path, included: Path, depth: int) -> str:
    """The reason why the file `path` may not include the file `included`; empty if it may. Only
    text files of its repository (or of its folder, if it is in none) and in the folder of Claude
    Code may be included. `depth` is how many includes lead to `path`.
    """
    allowed_folders = (find_root(path.parent), claude_home().resolve())
    if not any(folder in included.parents for folder in allowed_folders):
        return f"{included} is outside of the project: import it by its name"
    if not included.is_file():
        return f"there is no file {included}"
    if included.suffix not in _TEXT_ENDINGS:
        return "it is not Markdown or text"
    if depth >= _MAX_DEPTH:
        return f"more than {_MAX_DEPTH} includes deep: import it by its name"
    return ""
