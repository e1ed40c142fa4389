"""What the memory folders and rules of other agents look like: what in them is memory, and of what it speaks.

Layouts, as of autumn 2026: Claude Code keeps `~/.claude/projects/<project>/memory/MEMORY.md` and a file for each topic;
Codex `~/.codex/memories/` with `MEMORY.md` (task groups), `memory_summary.md` and the material for both; Letta Code
`~/.letta/agents/<id>/memory/` with blocks, each with front matter; Gemini CLI adds to `~/.gemini/GEMINI.md`; Cursor has
`.cursor/rules/*.mdc`, and Claude Code `.claude/rules/*.md`, with the files that a rule is for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ouro.memory.long_term.git.values import Scope, SkippedFile
from ouro.memory.sessions.yaml_text import BadYamlError, load

_FRONT = re.compile(r"\ufeff?---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"([A-Za-z_][\w-]*):[ \t]*(.*)$", re.MULTILINE)
_MATERIAL = {"raw_memories.md", "rollout_summaries", "extensions"}
_REFERENCES = re.compile(r"(?:\s*\[Task \d+\])+\s*$")
_FOLDER = re.compile(r"\bcwd=`?(/[^\s;,`]+)")
_OF_THE_PERSON = {"User Profile", "User preferences", "General Tips"}
_WAYS_THROUGH = {"rollout_summary_files", "keywords", "What's in Memory"}
_LABELS = ("scope:", "applies_to:")
SAYS_NOTHING = {"Gemini Added Memories"}
"""Headings that would tell nothing in front of what stands below them."""


def is_codex(folder: Path) -> bool:
    """Whether a folder is where Codex keeps what it remembers."""
    return any((folder / name).exists() for name in ("memory_summary.md", *_MATERIAL))


def set_aside(folder: Path, files: Sequence[Path]) -> tuple[list[Path], list[SkippedFile]]:
    """The files of an agent's folder that hold memory, and in a line for each sort those that do not."""
    kept: list[Path] = []
    others: Counter[tuple[str, str]] = Counter()
    codex = is_codex(folder)
    for path in files:
        inside = path.relative_to(folder)
        if reason := _no_memory(inside, codex):
            others[str(folder / inside.parts[0]), reason] += 1
        else:
            kept.append(path)
    return kept, [SkippedFile(name, f"{reason} ({count} files)" if count > 1 else reason)
                  for (name, reason), count in others.items()]  # fmt: skip


def _no_memory(inside: Path, codex: bool) -> str:
    if "skills" in inside.parts[:-1] or inside.name == "SKILL.md":
        return "skills: they tell how something is done, and remember nothing"
    if codex and inside.parts[0] in _MATERIAL:
        return "material that MEMORY.md there was made of"
    return "it tells who that agent is, and nothing of you" if inside.stem == "persona" else ""


def project_of(path: Path) -> str:
    """The project whose memory a file of Claude Code is, as that names it (`-home-me-app`); empty for other files."""
    parts = path.parts
    at = next((n for n in range(len(parts) - 3) if parts[n : n + 2] == (".claude", "projects")), None)
    return parts[at + 2] if at is not None and "memory" in parts[at + 3 :] else ""


def is_project(named: str, root: Path | None) -> bool:
    """Whether `named` (a path, or a name as `project_of` gives it) is this project, or lies in it."""
    if root is None:
        return False
    here = str(root.resolve())
    return named == re.sub(r"[^A-Za-z0-9]", "-", here) or f"{named.rstrip('/')}/".startswith(f"{here}/")


def front_matter(text: str) -> tuple[dict[str, Any], str]:
    """The fields before a text, and the text. Cursor writes `globs: *.py`, which is no YAML: then line by line."""
    found = _FRONT.match(text)
    if found is None:
        return {}, text
    try:
        front = load(found[1].encode())
    except BadYamlError:
        front = {name: value.strip("'\" ") for name, value in _FIELD.findall(found[1])}
    return (front if isinstance(front, dict) else {}), text[found.end() :]


def files_of_rule(front: Mapping[str, Any]) -> str:
    """The patterns of the files that a rule is for (`*.py, *.pyi`); empty where it always holds."""
    if str(front.get("alwaysApply", "")).lower() == "true":
        return ""
    given = front.get("globs") or front.get("paths") or ""
    return ", ".join(map(str, given)) if isinstance(given, list) else str(given).strip()


def from_codex(sections: Iterator[tuple[list[str], str]]) -> Iterator[tuple[list[str], str, Scope, str]]:
    """Of headings and what stands below them: headings, text, scope, and the folder that it was learned in."""
    group = folder = ""
    for above, block in sections:
        if above[:1] != [group]:
            group, folder = (above[0] if above else ""), ""
        if block.startswith(_LABELS) or block == "v1" or not _WAYS_THROUGH.isdisjoint(above):
            folder = found[1] if (found := _FOLDER.search(block)) and block.startswith(_LABELS) else folder
            continue
        is_mine = not folder or not _OF_THE_PERSON.isdisjoint(above)
        yield above, _REFERENCES.sub("", block), "user" if is_mine else "repo", "" if is_mine else folder
