"""What other agents, and ouro's own export, remember in files: read, and taken apart into pieces."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ouro.errors import UsageError
from ouro.memory.long_term.export import FORMAT, MARK
from ouro.memory.long_term.memory_files import FileRefused, decoded
from ouro.memory.long_term.note import Note, is_note_name, parse_note
from ouro.memory.long_term.values import CORE, Scope, Skipped
from ouro.memory.sessions.yaml_text import BadYamlError, load

INSTRUCTIONS = ("CLAUDE.md", "AGENTS.md", "GEMINI.md", ".cursorrules", ".cursor/rules")
_ENDINGS = (".md", ".mdc", ".markdown", ".txt", ".json", ".cursorrules")
_MOST_BYTES = 4 << 20
_MOST_FILES = 2_000
_FRONT = re.compile(r"\ufeff?---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
_BULLET = re.compile(r"(\s{0,3})(?:[-*+]|\d{1,3}[.)])\s+(.*)$")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_LINK_LINE = re.compile(r"\s*\[[^\]\n]+\]\(([^)\s]+\.md)\).*$")
_NOTE = re.compile(r"<!-- (mem_[0-9a-f]{8,32}) (user|repo) ([\w-]+)( archived)? -->\n(.*?)\n<!-- /\1 -->", re.DOTALL)
_TOO_SHORT = 40
"""Characters under which a piece says little without its heading."""
_TYPES: dict[str, tuple[Scope | None, str]] = {
    "user": ("user", ""),
    "feedback": (None, ""),
    "project": ("repo", ""),
    "reference": (None, ""),
}
"""The sorts of memory that Claude Code's topic files name."""


class Piece(msgspec.Struct, frozen=True):
    """One thing that a file says."""

    text: str
    origin: str
    """`CLAUDE.md › Testing`."""
    path: Path
    scope: Scope | None = None
    category: str = ""
    """Of the core, where the file says it."""
    note: Note | None = None
    """Where the file holds a whole note."""


class Reading(msgspec.Struct, frozen=True):
    """What was read, and what was not."""

    pieces: tuple[Piece, ...]
    files: tuple[Path, ...]
    skipped: tuple[Skipped, ...] = ()


def read_sources(paths: Sequence[Path]) -> Reading:
    """All that the files say, those of folders too.

    Raises:
        UsageError: a path is not there, or holds nothing of the kind.
    """
    pieces: list[Piece] = []
    files: list[Path] = []
    skipped: list[Skipped] = []
    for path in dict.fromkeys(file for each in paths for file in _files(each.expanduser().absolute())):
        try:
            pieces += _pieces(path, _text(path))
            files.append(path)
        except (FileRefused, OSError) as error:
            skipped.append(Skipped(str(path), str(error)))
    return Reading(tuple(pieces), tuple(files), tuple(skipped))


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"There is no file or folder {path}.")
    named = [path / name for name in INSTRUCTIONS if (path / name).exists()]
    if named:
        return [file for each in named for file in ([each] if each.is_file() else _below(each))]
    found = _below(path)
    if not found:
        raise UsageError(f"{path} holds no Markdown.", f"ouro reads {', '.join(INSTRUCTIONS)} and folders of Markdown.")
    return found


def _below(folder: Path) -> list[Path]:
    """The texts in a folder, those of hidden folders and links apart; MEMORY.md first."""
    found: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        found += [Path(root) / each for each in sorted(names) if each.endswith(_ENDINGS) and not each.startswith(".")]
        if len(found) > _MOST_FILES:
            raise UsageError(f"{folder} holds over {_MOST_FILES:,} files.", "Name the folder of the memory itself.")
    return sorted(found, key=lambda each: (each.name != "MEMORY.md", each))


def _text(path: Path) -> str:
    """Raises: FileRefused, OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise FileRefused("no plain file")
        if found.st_size > _MOST_BYTES:
            raise FileRefused(f"{found.st_size:,} bytes: more than the {_MOST_BYTES:,} that are read")
        return decoded(file.read(_MOST_BYTES + 1))


def _pieces(path: Path, text: str) -> list[Piece]:
    if path.suffix == ".json":
        return list(_from_json(path, text))
    if is_note_name(path.name):
        note = parse_note(path.name, text).note
        return [Piece(note.text, path.name, path, note.scope, note.category, note)]
    if MARK in text[:400]:
        return list(_from_export(path, text))
    front, body = _without_front(text)
    kind = front.get("type") or (front.get("metadata") or {}).get("type") if isinstance(front, dict) else ""
    if isinstance(kind, str) and kind in _TYPES:
        scope, category = _TYPES[kind]
        whole = _COMMENT.sub("", body).strip()
        return [Piece(whole, path.name, path, scope, category)] if whole else []
    return list(_from_markdown(path, body))


def _without_front(text: str) -> tuple[dict[str, Any], str]:
    found = _FRONT.match(text)
    if found is None:
        return {}, text
    try:
        front = load(found[1].encode())
    except BadYamlError:
        front = {}
    return (front if isinstance(front, dict) else {}), text[found.end() :]


def _from_json(path: Path, text: str) -> Iterator[Piece]:
    try:
        data = json.loads(text)
        assert data["format"] == FORMAT
        for scope, part in data["scopes"].items():
            for category, core in part["core"].items():
                for line in str(core).splitlines():
                    if (words := _plain(line)) and category in CORE:
                        yield Piece(words, path.name, path, msgspec.convert(scope, Scope), category)
            for each in part["notes"]:
                note = msgspec.convert(each, Note, strict=False)
                yield Piece(note.text, path.name, path, note.scope, note.category, note)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError) as error:
        raise FileRefused("no export of ouro's memory") from error


def _from_export(path: Path, text: str) -> Iterator[Piece]:
    for found in _NOTE.finditer(text):
        note_id, scope, category, archived, words = found.groups()
        if not archived:
            note = Note(id=note_id, scope=msgspec.convert(scope, Scope), category=category, text=words)
            yield Piece(words, path.name, path, note.scope, category, note)
    scope, category = "", ""
    for line in _NOTE.sub("", text).splitlines():
        if heading := _HEADING.match(line):
            scope, category = (heading[2], "") if heading[1] == "##" else (scope, heading[2])
        elif category in CORE and scope in ("user", "repo") and (words := _plain(_COMMENT.sub("", line))):
            yield Piece(words, path.name, path, msgspec.convert(scope, Scope), category)


def _plain(line: str) -> str:
    found = _BULLET.match(line)
    return found[2].strip() if found else "" if _HEADING.match(line) else line.strip()


def _from_markdown(path: Path, text: str) -> Iterator[Piece]:
    """Each item of a list and each paragraph, with the headings above it."""
    headings: dict[int, str] = {}
    for block in _blocks(_COMMENT.sub("", text)):
        if heading := _HEADING.match(block):
            level = len(heading[1])
            headings = {**{key: value for key, value in headings.items() if key < level}, level: heading[2]}
            continue
        link = _LINK_LINE.match(block)
        if not block or block.startswith("@") or (link and (path.parent / link[1]).is_file()):
            continue  # another file that is named: it is read itself, where it belongs to what is imported
        above = [headings[level] for level in sorted(headings)]
        words = f"{above[-1]}: {block}" if above and len(block) < _TOO_SHORT and len(above) > 1 else block
        yield Piece(words, " › ".join([path.name, *above[-2:]]), path)


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
