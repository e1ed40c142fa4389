"""What other agents, and ouro's own export, remember in files: read, and taken apart into pieces."""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ouro.errors import UsageError
from ouro.memory.long_term.export import FORMAT, MARK
from ouro.memory.long_term.git.files import FileRefused, decode_text
from ouro.memory.long_term.git.values import CORE, Scope, SkippedFile
from ouro.memory.long_term.notes.note import Note, is_note_name, parse_note
from ouro.memory.sessions.yaml_text import BadYamlError, load
from ouro.safety import TrustStore, acting_files
from ouro.utils.repository import find_root
from ouro.utils.runtime import get_trust_path

INSTRUCTIONS = (
    "CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md", ".claude/rules", "AGENTS.md", "GEMINI.md", ".cursorrules",
    ".cursor/rules",
)  # fmt: skip
_ENDINGS = (".md", ".mdc", ".markdown", ".txt", ".json", ".cursorrules")
_MAX_BYTES = 4 << 20
_MAX_FILES = 2_000
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
_BULLET = re.compile(r"(\s{0,3})(?:[-*+]|\d{1,3}[.)])\s+(.*)$")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_LINK_LINE = re.compile(r"\s*\[[^\]\n]+\]\(([^)\s]+\.md)\).*$")
_NOTE = re.compile(r"<!-- (mem_[0-9a-f]{8,32}) (user|repo) ([\w-]+)( archived)? -->\n(.*?)\n<!-- /\1 -->", re.DOTALL)
_TOO_SHORT = 40
"""Characters under which a piece says little without its heading."""
_TYPES: dict[str, Scope | None] = {"user": "user", "feedback": None, "project": "repo", "reference": None}
"""The sorts of memory that Claude Code's topic files name."""


class ImportPiece(msgspec.Struct, frozen=True):
    text: str
    origin: str
    """`CLAUDE.md › Testing`."""
    path: Path
    scope: Scope | None = None
    project: str = ""
    """The project that it speaks of, where the file says so: a folder, or a name of Claude Code's."""
    category: str = ""
    """Of the core, where the file says it."""
    note: Note | None = None
    """Where the file holds a whole note."""


class ImportMaterial(msgspec.Struct, frozen=True):
    pieces: tuple[ImportPiece, ...]
    files: tuple[Path, ...]
    skipped: tuple[SkippedFile, ...] = ()


def read_sources(paths: Sequence[Path]) -> ImportMaterial:
    """All that the files say, those of folders too.

    Raises:
        UsageError: a path is not there, or holds nothing of the kind.
    """
    pieces: list[ImportPiece] = []
    files: list[Path] = []
    skipped: list[SkippedFile] = []
    found: dict[Path, None] = {}
    for item in (path.expanduser().absolute() for path in paths):
        kept, others = (_files(item), []) if item.is_file() else set_aside(item, _files(item))
        found |= dict.fromkeys(kept)
        skipped += others
    depths = dict.fromkeys(found, 0)
    waiting = list(found)
    for path in waiting:  # what a file names comes behind
        try:
            text = _text(path)
            pieces += _pieces(path, text)
            files.append(path)
        except (FileRefused, OSError) as error:
            skipped.append(SkippedFile(str(path), str(error)))
            continue
        named, others = named_files(path, text, depths[path])
        skipped += others
        for item in named:
            if item not in depths:
                depths[item] = depths[path] + 1
                waiting.append(item)
    return ImportMaterial(tuple(pieces), tuple(files), tuple(skipped))


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"There is no file or folder {path}.")
    named = [path / name for name in INSTRUCTIONS if (path / name).exists()]
    if named:
        return [file for item in named for file in ([item] if item.is_file() else _below(item))]
    found = _below(path)
    if not found:
        raise UsageError(f"{path} holds no Markdown.", f"ouro reads {', '.join(INSTRUCTIONS)} and folders of Markdown.")
    return found


def _below(folder: Path) -> list[Path]:
    """The texts in a folder, those of hidden folders and links apart; MEMORY.md first."""
    found: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(item for item in folders if not item.startswith("."))
        found += [Path(root) / name for name in sorted(names) if name.endswith(_ENDINGS) and not name.startswith(".")]
        if len(found) > _MAX_FILES:
            raise UsageError(f"{folder} holds over {_MAX_FILES:,} files.", "Name the folder of the memory itself.")
    return sorted(found, key=lambda item: (item.name != "MEMORY.md", item))


def _text(path: Path) -> str:
    """Raises: FileRefused, OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise FileRefused("no plain file")
        if found.st_size > _MAX_BYTES:
            raise FileRefused(f"{found.st_size:,} bytes: more than the {_MAX_BYTES:,} that are read")
        return decode_text(file.read(_MAX_BYTES + 1))


def _pieces(path: Path, text: str) -> list[ImportPiece]:
    if path.suffix == ".json":
        return list(_from_json(path, text))
    if is_note_name(path.name):
        note = parse_note(path.name, text).note
        return [ImportPiece(note.text, path.name, path, note.scope, "", note.category, note)]
    if MARK in text[:400]:
        return list(_from_export(path, text))
    front, body = front_matter(text)
    if is_codex(path.parent):
        return [ImportPiece(words, " › ".join([path.name, *above[-2:]]), path, scope, project)
                for above, words, scope, project in from_codex(_sections(body))]  # fmt: skip
    kind = front.get("type") or _of(front, "metadata").get("type")
    if isinstance(kind, str) and kind in _TYPES:
        scope = _TYPES[kind]
        whole = _COMMENT.sub("", body).strip()
        return [ImportPiece(whole, path.name, path, scope, _project(path, scope, kind))] if whole else []
    return list(_from_markdown(path, body, front))


def _of(front: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = front.get(name)
    return found if isinstance(found, dict) else {}


def _project(path: Path, scope: Scope | None, kind: str) -> str:
    return "" if scope == "user" or kind == "feedback" else project_of(path)


def _from_json(path: Path, text: str) -> Iterator[ImportPiece]:
    try:
        data = json.loads(text)
        assert data["format"] == FORMAT
        for scope, part in data["scopes"].items():
            for category, core in part["core"].items():
                for line in str(core).splitlines():
                    if (words := _plain(line)) and category in CORE:
                        yield ImportPiece(words, path.name, path, msgspec.convert(scope, Scope), "", category)
            for item in part["notes"]:
                note = msgspec.convert(item, Note, strict=False)
                yield ImportPiece(note.text, path.name, path, note.scope, "", note.category, note)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError) as error:
        raise FileRefused("no export of ouro's memory") from error


def _from_export(path: Path, text: str) -> Iterator[ImportPiece]:
    for found in _NOTE.finditer(text):
        note_id, scope, category, archived, words = found.groups()
        if not archived:
            note = Note(id=note_id, scope=msgspec.convert(scope, Scope), category=category, text=words)
            yield ImportPiece(words, path.name, path, note.scope, "", category, note)
    scope, category = "", ""
    for line in _NOTE.sub("", text).splitlines():
        if heading := _HEADING.match(line):
            scope, category = (heading[2], "") if heading[1] == "##" else (scope, heading[2])
        elif category in CORE and scope in ("user", "repo") and (words := _plain(_COMMENT.sub("", line))):
            yield ImportPiece(words, path.name, path, msgspec.convert(scope, Scope), "", category)


def _plain(line: str) -> str:
    found = _BULLET.match(line)
    return found[2].strip() if found else "" if _HEADING.match(line) else line.strip()


def _from_markdown(path: Path, text: str, front: Mapping[str, Any]) -> Iterator[ImportPiece]:
    """Each item of a list and each paragraph, with what it is for and the headings above it where it says little."""
    rule, about = files_of_rule(front), str(front.get("description") or "").strip()
    name = f"{path.name} ({about})" if about else path.name
    scope: Scope | None = "user" if "human" in (front.get("label"), path.stem) else None
    for above, block in _sections(text):
        link = _LINK_LINE.match(block)
        if NAMED.fullmatch(block) or (link and (path.parent / link[1]).is_file()):
            continue  # another file that is named: it is read itself, or told of
        is_short = len(above) > 1 and len(block) < _TOO_SHORT and above[-1] not in SAYS_NOTHING
        words = f"{above[-1]}: {block}" if is_short else block
        yield ImportPiece(
            f"For {rule}: {words}" if rule else words, " › ".join([name, *above[-2:]]), path, scope, project_of(path)
        )


def _sections(text: str) -> Iterator[tuple[list[str], str]]:
    """Items of lists and paragraphs, each behind the headings above it."""
    headings: dict[int, str] = {}
    for block in _blocks(_COMMENT.sub("", text)):
        if heading := _HEADING.match(block):
            level = len(heading[1])
            headings = {**{key: value for key, value in headings.items() if key < level}, level: heading[2]}
        elif block:
            yield [headings[level] for level in sorted(headings)], block


def _blocks(text: str) -> Iterator[str]:
    """Headings, items of lists with what is indented below them, and paragraphs."""
    block: list[str] = []
    is_item = is_fenced = False
    for line in text.splitlines():
        fence, bullet = bool(_FENCE.match(line)), _BULLET.match(line)
        heading, is_blank = _HEADING.match(line), not line.strip()
        if is_fenced or fence or (is_item and (is_blank or line.startswith(("  ", "\t")))):
            block.append(line.rstrip())
            is_fenced = is_fenced != fence
            continue
        if is_blank or heading or bullet or (is_item and block[-1] == ""):
            yield "\n".join(block).strip()
            block, is_item = [], bool(bullet)
        if heading:
            yield line.strip()
        elif not is_blank:
            block.append(bullet[2] if bullet else line)
    yield "\n".join(block).strip()


_FRONT = re.compile(r"\ufeff?---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"([A-Za-z_][\w-]*):[ \t]*(.*)$", re.MULTILINE)
_MATERIAL = {"raw_memories.md", "rollout_summaries", "extensions"}
_REFERENCES = re.compile(r"(?:\s*\[Task \d+\])+\s*$")
_FOLDER = re.compile(r"\bcwd=`?(/[^\s;,`]+)")
_OF_THE_PERSON = {"User Profile", "User preferences", "General Tips"}
_WAYS_THROUGH = {"rollout_summary_files", "keywords", "What's in Memory"}
_LABELS = ("scope:", "applies_to:")
_AGENT_MEMORY = (".claude/projects", ".codex/memories", ".letta/agents")
"""Below the user's home: where other agents store what they learned from them."""
SAYS_NOTHING = {"Gemini Added Memories"}
"""Headings that would tell nothing in front of what stands below them."""


def is_codex(folder: Path) -> bool:
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


NAMED = re.compile(r"@\S+(?:\n@\S+)*")
"""A paragraph that names files and says nothing else."""
MAX_DEPTH = 4
"""Files that name one another, from the first one on."""
_LINE = re.compile(r"^(?:[-*+] )?@(\S+)[ \t]*$", re.MULTILINE)
_NOT_READ = re.compile(r"<!--.*?(?:-->|\Z)|^\s*(```|~~~).*?(?:^\s*\1|\Z)", re.DOTALL | re.MULTILINE)
_TEXTS = (".md", ".mdc", ".markdown", ".txt")


def named_files(path: Path, text: str, depth: int) -> tuple[list[Path], list[SkippedFile]]:
    """The files that `text`, which stands in `path`, takes in; and those that are not read, with the reason.

    Args:
        path: an absolute one. Only what lies in its repository, or else in its folder, or in `~/.claude`, is taken.
        depth: so many files led to this one.
    """
    found: list[Path] = []
    skipped: list[SkippedFile] = []
    names = _LINE.findall(_NOT_READ.sub("", text)) if path.suffix in _TEXTS else []
    for name in dict.fromkeys(names):
        file = (path.parent / Path(name).expanduser()).resolve()
        if reason := _refused(path, file, depth):
            skipped.append(SkippedFile(f"@{name} in {path.name}", reason))
        else:
            found.append(file)
    return found, skipped


def _refused(path: Path, file: Path, depth: int) -> str:
    allowed = (find_root(path.parent), (Path.home() / ".claude").resolve())
    if not any(folder in file.parents for folder in allowed):
        return f"{file} lies outside of the project: import it by its name"
    if not file.is_file():
        return f"there is no file {file}"
    if file.suffix not in _TEXTS:
        return "it is no Markdown or text"
    return f"over {MAX_DEPTH} files deep: import it by its name" if depth >= MAX_DEPTH else ""


def is_trusted_text(path: Path) -> bool:
    """Whether the text of a file counts as the user's: it lies in no repository, or in one that the user trusts.

    What a repository brings along are the words of whoever wrote it (M1). The folders in which agents store what they
    learned from the user are the user's, also where they are git repositories. Blocks.
    """
    if any((Path.home() / folder).resolve() in path.resolve().parents for folder in _AGENT_MEMORY):
        return True
    root = find_root(path if path.is_dir() else path.parent)
    if not (root / ".git").exists():
        return True
    trust = TrustStore(get_trust_path())
    return trust.was_trusted(root) and trust.is_trusted(root, acting_files(root))
