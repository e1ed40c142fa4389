"""The formats of memory files that are imported: ouro's own export, notes, and the memory of Codex,
Claude Code and others, each split into pieces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ouro.memory.long_term.git.files import FileRefused, is_note_name
from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.notes.note import Note, parse_note
from ouro.utils.agent_homes import claude_home
from ouro.utils.decoding import from_plain
from ouro.utils.yaml import split_front_matter, words_in

FORMAT = "ouro-memory"
"""The field `format` of an export as JSON."""
MARK = "<!-- ouro memory export 1 -->"
"""Follows the title of an export as Markdown."""
_MARK_WITHIN = 400
"""The characters in which the mark is looked for: what has it later may only quote an export."""
_HTML_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_HEADING_LINE = re.compile(r"(?P<signs>#{1,6})\s+(?P<title>.*?)\s*#*\s*$")
_LIST_ITEM = re.compile(r"\s{0,3}(?:[-*+]|\d{1,3}[.)])\s+(?P<text>.*)$")
_CODE_FENCE = re.compile(r"\s*(?:```|~~~)")
_LINK_LINE = re.compile(r"\s*\[[^\]\n]+\]\(([^)\s]+\.md)\).*$")
_EXPORTED_NOTE = re.compile(
    r"<!-- (mem_[0-9a-f]{8,32}) (user|repo) ([\w-]+)( archived)? -->\n(.*?)\n<!-- /\1 -->",
    re.DOTALL,
)
"""A note in an export as Markdown: id, scope, category, whether it is archived, text."""
_INCLUDES = re.compile(r"@\S+(?:\n@\S+)*")
"""A paragraph that consists of files to include."""
_MIN_PIECE = 40
"""A piece with fewer characters gets its heading in front, so that it can be understood alone."""
_EMPTY_HEADINGS = {"Gemini Added Memories"}
"""Headings without information, left out in front of short pieces."""
_SCOPE_OF_TYPE: dict[str, Scope | None] = {
    "user": "user",
    "feedback": None,
    "project": "repo",
    "reference": None,
}
"""The types of Claude Code's topic files, each with its scope."""

# Codex
RAW_MATERIAL_OF_CODEX = {"raw_memories.md", "rollout_summaries", "extensions"}
_TASK_REFERENCES = re.compile(r"(?:\s*\[Task \d+\])+\s*$")
_PROJECT_FOLDER = re.compile(r"\bcwd=`?(/[^\s;,`]+)")
_HEADINGS_ABOUT_USER = {"User Profile", "User preferences", "General Tips"}
_HEADINGS_WITHOUT_MEMORY = {"rollout_summary_files", "keywords", "What's in Memory"}
_FOLDER_LABELS = ("scope:", "applies_to:")


class ImportPiece(msgspec.Struct, frozen=True):
    """A text of a file that may become an entry."""

    text: str
    origin: str
    """`CLAUDE.md › Testing`."""
    path: Path
    scope: Scope | None = None
    """None: the file does not say it. `memory_import` decides then."""
    project: str = ""
    """The project that it is about, if the file names one: a folder, or Claude Code's name for it.
    """
    category: str = ""
    """The core category, if the file names it."""
    note: Note | None = None
    """The note, if the file holds a complete one."""


def read_pieces(path: Path, text: str) -> Iterator[ImportPiece]:
    """The pieces of a file with this text, by its format: an export of ouro, a note, memory of
    Codex, a topic file of Claude Code, or other Markdown. Raises FileRefused.
    """
    if path.suffix == ".json":
        return _from_json(path, text)
    if is_note_name(path.name):
        return iter([_piece_of_note(path, parse_note(path.name, text).note)])
    if MARK in text[:_MARK_WITHIN]:
        return _from_export(path, text)
    front, body = split_front_matter(text)
    if is_codex_folder(path.parent):
        return _from_codex(path, body)
    metadata = front.get("metadata")
    kind = front.get("type") or (metadata.get("type") if isinstance(metadata, dict) else None)
    if not isinstance(kind, str) or kind not in _SCOPE_OF_TYPE:
        return _from_markdown(path, body, front)
    # A topic file of Claude Code is one piece.
    whole_text = _HTML_COMMENT.sub("", body).strip()
    if not whole_text:
        return iter([])
    scope = _SCOPE_OF_TYPE[kind]
    is_about_user = scope == "user" or kind == "feedback"
    project = "" if is_about_user else _claude_project(path)
    return iter([ImportPiece(whole_text, path.name, path, scope=scope, project=project)])


def _piece_of_note(path: Path, note: Note) -> ImportPiece:
    """The piece of a file that is a complete note."""
    return ImportPiece(
        note.text, path.name, path, scope=note.scope, category=note.category, note=note
    )


def _from_json(path: Path, text: str) -> Iterator[ImportPiece]:
    """Yield the core lines and notes of an export of ouro as JSON, scope by scope; archived notes
    are left out. Raises FileRefused if the text is no such export.
    """
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise ValueError("another format")
        for scope_name, exported in data["scopes"].items():
            for category, core in exported["core"].items():
                for line in str(core).splitlines():
                    if words := _line_text(line):
                        scope = from_plain(scope_name, Scope)
                        yield ImportPiece(words, path.name, path, scope=scope, category=category)
            for item in exported["notes"]:
                if not item.get("archived"):
                    yield _piece_of_note(path, from_plain(item, Note, strict=False))
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise FileRefused("not an export of ouro's memory") from error


def _from_export(path: Path, text: str) -> Iterator[ImportPiece]:
    """Yield the notes, then the core lines, of an export of ouro as Markdown. Archived notes are
    left out. In the export a heading `## user` names a scope; a heading of another level names a
    category.
    """
    for note_id, scope, category, archived, words in _EXPORTED_NOTE.findall(text):
        if not archived:
            yield _piece_of_note(path, Note(id=note_id, scope=scope, category=category, text=words))
    scope = category = ""
    for line in _EXPORTED_NOTE.sub("", text).splitlines():
        heading = _HEADING_LINE.match(line)
        if heading and heading["signs"] == "##":
            scope, category = heading["title"], ""
            continue
        if heading:
            category = heading["title"]
            continue
        is_of_core = category and not category.startswith(("Notes: ", "Archive"))
        if not is_of_core or scope not in ("user", "repo"):
            continue
        if words := _line_text(_HTML_COMMENT.sub("", line)):
            yield ImportPiece(
                words, path.name, path, scope=from_plain(scope, Scope), category=category
            )


def _from_codex(path: Path, body: str) -> Iterator[ImportPiece]:
    """Yield the list items and paragraphs of Codex's memory. A line of labels (`scope: …`) below a
    top heading may name a folder: what follows it below this heading is about the project in that
    folder. Everything else is about the user, and so is what a heading declares to be about the
    user.
    """
    group = folder = ""
    for headings, block in _blocks_with_headings(body):
        top_heading = headings[0] if headings else ""
        # A named folder holds until the next top heading; without a heading it holds for nothing.
        if top_heading != group or not headings:
            group, folder = top_heading, ""
        if block.startswith(_FOLDER_LABELS):
            if folder_match := _PROJECT_FOLDER.search(block):
                folder = folder_match[1]
            continue
        is_version = block == "v1"  # the first line of the file
        if is_version or not _HEADINGS_WITHOUT_MEMORY.isdisjoint(headings):
            continue
        is_about_user = not folder or not _HEADINGS_ABOUT_USER.isdisjoint(headings)
        words = _TASK_REFERENCES.sub("", block)
        origin = " › ".join([path.name, *headings[-2:]])
        if is_about_user:
            yield ImportPiece(words, origin, path, scope="user")
        else:
            yield ImportPiece(words, origin, path, scope="repo", project=folder)


def _file_patterns(front: Mapping[str, Any]) -> str:
    """The file patterns for which a rule holds, by its front matter, with commas between; empty if
    it always holds.
    """
    if str(front.get("alwaysApply", "")).lower() == "true":
        return ""
    return ", ".join(words_in(front.get("globs") or front.get("paths")))


def _only_names_file(block: str, folder: Path) -> bool:
    """Whether a block only includes a file, or links to one in this folder."""
    link = _LINK_LINE.match(block)
    links_to_file = link is not None and (folder / link[1]).is_file()
    return links_to_file or _INCLUDES.fullmatch(block) is not None


def _from_markdown(path: Path, text: str, front: Mapping[str, Any]) -> Iterator[ImportPiece]:
    """Yield the list items and paragraphs of Markdown. A short one begins with its heading, so that
    it can be understood alone. If the file is a rule for some files only, each one begins with the
    patterns of these files.
    """
    patterns = _file_patterns(front)
    description = str(front.get("description") or "").strip()
    name = f"{path.name} ({description})" if description else path.name
    # Letta calls the block about the user `human`.
    scope: Scope | None = "user" if "human" in (front.get("label"), path.stem) else None
    for headings, block in _blocks_with_headings(text):
        if _only_names_file(block, path.parent):
            continue  # it is read separately or reported as skipped
        words = block
        # The only heading above a block is mostly the title of the file, which `origin` has.
        has_telling_heading = len(headings) > 1 and headings[-1] not in _EMPTY_HEADINGS
        if has_telling_heading and len(block) < _MIN_PIECE:
            words = f"{headings[-1]}: {words}"
        if patterns:
            words = f"For {patterns}: {words}"
        origin = " › ".join([name, *headings[-2:]])
        yield ImportPiece(words, origin, path, scope=scope, project=_claude_project(path))


def _line_text(line: str) -> str:
    """The text of a line without its list mark; empty for a heading."""
    item = _LIST_ITEM.match(line)
    if item:
        return item["text"].strip()
    return "" if _HEADING_LINE.match(line) else line.strip()


def _blocks_with_headings(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield the list items and paragraphs of a text, without HTML comments, each with the headings
    above it: one of each level, the highest first.
    """
    headings_by_level: dict[int, str] = {}
    for block in _split_blocks(_HTML_COMMENT.sub("", text)):
        if heading := _HEADING_LINE.match(block):
            level = len(heading["signs"])
            # A heading ends the sections of its own and all lower levels.
            higher = {key: value for key, value in headings_by_level.items() if key < level}
            headings_by_level = {**higher, level: heading["title"]}
        elif block:
            yield [headings_by_level[level] for level in sorted(headings_by_level)], block


def _split_blocks(text: str) -> Iterator[str]:
    """Yield the headings, list items and paragraphs of Markdown, some of them empty. A list item
    includes its indented lines and is without its mark; a fenced code block is never split.
    """
    block: list[str] = []
    is_item = is_fenced = False
    for line in text.splitlines():
        is_fence = bool(_CODE_FENCE.match(line))
        is_blank = not line.strip()
        bullet, heading = _LIST_ITEM.match(line), _HEADING_LINE.match(line)
        continues_item = is_item and (is_blank or line.startswith(("  ", "\t")))
        if is_fenced or is_fence or continues_item:
            block.append(line.rstrip())
            if is_fence:
                is_fenced = not is_fenced
            continue
        # A blank line and a line that is not indented end an item.
        follows_ended_item = is_item and block[-1] == ""
        if is_blank or heading or bullet or follows_ended_item:
            yield "\n".join(block).strip()
            block, is_item = [], bool(bullet)
        if heading:
            yield line.strip()
        elif not is_blank:
            block.append(bullet["text"] if bullet else line)
    yield "\n".join(block).strip()


def is_codex_folder(folder: Path) -> bool:
    """Whether Codex keeps its memory in a folder: one of its files or folders is there."""
    return any((folder / name).exists() for name in ("memory_summary.md", *RAW_MATERIAL_OF_CODEX))


def _claude_project(path: Path) -> str:
    """Claude Code's name (`-home-me-app`) for the project of one of its memory files:
    `.claude/projects/NAME/…/memory/…`. Empty for other files.
    """
    parts, homes = path.parts, (".claude", claude_home().name)
    for start in range(len(parts) - 3):
        if parts[start] in homes and parts[start + 1] == "projects":
            name, below = parts[start + 2], parts[start + 3 :]
            return name if "memory" in below else ""
    return ""
