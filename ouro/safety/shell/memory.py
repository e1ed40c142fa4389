"""Shell lines on long-term memory: reading and a few git commands are allowed, anything else needs a question."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ouro.safety.guarded_memory import GuardedMemory
from ouro.safety.shell.command import Command
from ouro.safety.shell.parse import ShellLine
from ouro.safety.shell.paths import Places
from ouro.safety.shell.reading import read_options, reading
from ouro.safety.shell.tables import rows
from ouro.safety.workspace import Workspace

_NAMED = re.compile(r"\.ouro/+memory\b")


def memory_git(command: Command, places: Places) -> GuardedMemory | None:
    """The memory that a command only commits to, as `git -C FOLDER commit -m TEXT`; None for any other command."""
    words = command.arguments
    texts = [word.text for word in words]
    if command.kind != "plain" or command.name != "git" or command.assignments or command.piped:
        return None
    row = rows().get(f"git-{texts[2]}") if texts[:1] == ["-C"] and texts[2:] else None
    if row is None or row.operands != "memory" or not all(word.exact for word in words):
        return None
    folders = {(places.workspace.memory_at(path), path) for path in places.named(texts[1])}
    folder, path = folders.pop()
    found = read_options(words[3:], row)
    if folders or folder is None or path != folder.path or found.unlisted:
        return None
    if texts[2] == "commit" and not found.has("m", "message"):
        return None  # it would open an editor
    if texts[2] == "restore" and not found.has("S", "staged"):
        return None  # it discards uncommitted changes
    whole = texts[2] in ("add", "commit", "restore")
    return folder if all(_is_inside(word.text, folder, whole=whole) for word in found.operands) else None


def _is_inside(text: str, folder: GuardedMemory, *, whole: bool) -> bool:
    """Whether a path, as git reads it, names memory files; pathspec magic and patterns do not."""
    if whole and text in (".", "archive", "archive/"):
        return True
    return not re.search(r"[:*?\[\\]", text) and folder.keeps(Path(os.path.normpath(folder.path / text)))


def memory_reason(line: ShellLine, text: str, places: Places) -> str:
    """Why a line on memory needs a question in every mode; empty if it only reads or runs listed git commands."""
    workspace = places.workspace
    if not workspace.memory:
        return ""
    for redirect in line.redirects:
        if redirect.writes and any(map(workspace.memory_at, places.named(redirect.target.text))):
            return "it writes into long-term memory without the file tools"
    inside = any(_is_near(folder, workspace) for folder in places.folders[1:])
    named = False
    for command in (command for command in line.commands if command.kind != "wrapper"):
        touches = _names_memory(command, places)
        named = named or touches
        # A command that gets the path of memory from a pipe may do anything with it.
        if not (touches or inside or (named and command.piped)):
            continue
        if folder := memory_git(command, places):
            if reason := folder.tampered():
                return f"it runs git on long-term memory, but {reason}"
        elif not isinstance(reading(command), tuple) or command.settings:
            return f"{command.program} may change long-term memory without the file tools"
    is_hidden = not named and _spells([text], workspace)
    return "it names long-term memory in a way that is not understood" if is_hidden else ""


def _is_near(folder: Path, workspace: Workspace) -> bool:
    """Whether a folder is in memory, or above memory and not above the workspace."""
    if workspace.memory_at(folder):
        return True
    above = any(folder in memory.path.parents for memory in workspace.memory)
    return above and folder not in (workspace.root, *workspace.root.parents)


def _names_memory(command: Command, places: Places) -> bool:
    texts = [command.stdin or "", *(setting.value.text for setting in command.assignments)]
    texts += [word.text for word in command.words]
    paths = (path for word in command.words for path in places.of_word(word))
    return _spells(texts, places.workspace) or any(map(places.workspace.memory_at, paths))


def _spells(texts: Sequence[str], workspace: Workspace) -> bool:
    """Whether one of the texts spells out a memory folder or its history."""
    names = [name for folder in workspace.memory for name in (str(folder.path), workspace.shown(folder.path))]
    names += [str(folder.state_dir.parent) for folder in workspace.memory if folder.state_dir is not None]
    return any(_NAMED.search(text) or any(name in text for name in names) for text in texts)
