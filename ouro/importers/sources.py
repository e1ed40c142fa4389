"""Find session files of other programs, and detect the program of a file."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from ouro.errors import SessionError, UsageError
from ouro.importers.claude_code import read_claude_code
from ouro.importers.codex import read_codex
from ouro.importers.json_values import ForeignSession, Program, folder, instant, json_lines, open_regular, word
from ouro.importers.older_ouro import read_older_ouro
from ouro.importers.own_json import read_own_json

READERS: Mapping[Program, Callable[[Path], ForeignSession]] = {
    "claude-code": read_claude_code,
    "codex": read_codex,
    "ouro-old": read_older_ouro,
    "json": read_own_json,
}
_PEEK = 1 << 18
_ENDINGS = (".jsonl", ".json", ".yaml")


class ImportSource(msgspec.Struct, frozen=True):
    """A file that holds a session of another program."""

    path: Path
    program: Program
    size: int
    changed_at: str
    project: str = ""
    first_words: str = ""


def usual_places(environ: Mapping[str, str]) -> list[Path]:
    """The existing session folders of Claude Code, Codex and the older ouro."""
    home = Path(environ.get("HOME") or "~").expanduser()
    claude = Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    codex = Path(environ.get("CODEX_HOME") or home / ".codex")
    places = (claude / "projects", codex / "sessions", codex / "archived_sessions", home / ".aloop" / "sessions")
    return [place for place in places if place.is_dir()]


def find_sources(paths: Iterable[Path], program: Program | None = None) -> list[ImportSource]:
    """The sessions in files and below folders, newest first.

    Args:
        paths: files and folders.
        program: whose they are; None: what their beginning says.

    Raises:
        UsageError: a path is not there.
    """
    found: list[ImportSource] = []
    for path in paths:
        if path.is_dir():
            found += [source for file in _files_below(path) if (source := _source(file, program)) is not None]
        elif not path.exists():
            raise UsageError(f"{path} is not there.")
        elif (source := _source(path, program)) is not None:
            found.append(source)
        else:
            raise UsageError(
                f"{path} is no session that ouro knows.", "`--from claude-code|codex|ouro-old|json` says whose it is."
            )
    return sorted(found, key=lambda item: item.changed_at, reverse=True)


def _files_below(place: Path) -> Iterable[Path]:
    for name, folders, files in os.walk(place):  # links are not followed: they could form a loop
        folders.sort()
        yield from (Path(name, file) for file in sorted(files) if file.endswith(_ENDINGS) and not file.startswith("."))


def _source(path: Path, program: Program | None) -> ImportSource | None:
    try:
        head = list(json_lines(path, Counter(), _PEEK)) if path.suffix == ".jsonl" else []
        found = program or _guess(path, head)
        status = path.stat()
    except (SessionError, OSError):
        return None
    if found is None:
        return None
    project = next((name for line in head if (name := _project(line))), "")
    words = next((text for line in head if (text := _words(line))), "")
    return ImportSource(path, found, status.st_size, instant(status.st_mtime), project, words)


def _guess(path: Path, head: list[dict[str, object]]) -> Program | None:
    """The program of a session file, by its first lines; None if unknown."""
    if path.suffix == ".yaml":
        return "ouro-old" if path.name == "session.yaml" and _is_older(path) else None
    if path.suffix == ".json":
        return "json" if _begins_as_export(path) else None
    for line in head:
        if line.get("type") in ("session_meta", "response_item", "event_msg", "turn_context"):
            return "codex"
        if "type" not in line and "id" in line and "timestamp" in line:
            return "codex"
        if "sessionId" in line and line.get("type") in ("user", "assistant") and line.get("isSidechain") is not True:
            return "claude-code"
    return None


def _is_older(path: Path) -> bool:
    with open_regular(path) as file:
        lines = file.read(1 << 12).splitlines()
    return not any(line.startswith(b"---") for line in lines[:3]) and any(line.startswith(b"id:") for line in lines)


def _begins_as_export(path: Path) -> bool:
    with open_regular(path) as file:
        start = file.read(1 << 12).decode("utf-8", "replace")
    try:
        first, _ = json.JSONDecoder().raw_decode(start[start.index('"session"') + len('"session"') :].lstrip(" \n:"))
    except ValueError:
        return False
    return isinstance(first, dict) and "format" in first


def _project(line: Mapping[str, object]) -> str:
    payload = line.get("payload")
    return folder(line.get("cwd")) or (folder(payload.get("cwd")) if isinstance(payload, dict) else "")


def _words(line: Mapping[str, object]) -> str:
    payload = line.get("payload")
    said = payload if isinstance(payload, dict) and payload.get("role") == "user" else line.get("message")
    if not isinstance(said, dict) or said.get("role") != "user" or line.get("isMeta") is True:
        return ""
    content = said.get("content")
    blocks = content if isinstance(content, list) else [{"text": content}]
    found = (word(block.get("text"), 70) for block in blocks if isinstance(block, dict))
    return next((text for text in found if text and not text.startswith(("<", "# AGENTS.md", "Caveat:"))), "")
